//! JSON Web Tokens of GitHub Apps.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use rustls::SignatureScheme;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::SigningKey;

use crate::secret::Secret;

/// GitHub refuses tokens from the future; a minute covers ordinary clock drift (GitHub's own advice).
const BACKDATED: SignedDuration = SignedDuration::from_secs(60);
/// GitHub refuses an expiry more than ten minutes ahead; one minute is left for drift.
const LIFETIME: SignedDuration = SignedDuration::from_secs(9 * 60);

/// RSA key of a GitHub App, ready to sign. `Debug` shows nothing of it.
#[derive(Clone)]
pub struct AppKey(Arc<dyn SigningKey>);

impl AppKey {
    /// Reads a PKCS#1 or PKCS#8 PEM text of at least 2,048 bits. Line breaks may be written as `\n`, as they often arrive from
    /// environment variables.
    pub(crate) fn from_pem(pem: &str) -> Result<Self, String> {
        let pem = Secret::new(pem.replace("\\n", "\n"));
        let der = PrivateKeyDer::from_pem_slice(pem.expose().as_bytes())
            .map_err(|_| "it holds no PEM section with a private key".to_owned())?;
        let key = rustls::crypto::ring::sign::any_supported_type(&der)
            .map_err(|_| "it is damaged, shorter than 2,048 bits, or of an unknown type".to_owned())?;
        if key.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256]).is_none() {
            return Err("it is not an RSA key".to_owned());
        }
        Ok(Self(key))
    }

    /// The public half, which tells keys apart.
    pub(crate) fn public_der(&self) -> Vec<u8> {
        self.0.public_key().map(|key| key.as_ref().to_vec()).unwrap_or_default()
    }

    /// A token for calls as the App itself, valid from a minute ago for nine minutes to come.
    ///
    /// Fails only when the key does not sign, which reading it has ruled out.
    pub(crate) fn sign(&self, issuer: &str, now: Timestamp) -> Result<Secret, String> {
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","typ":"JWT"}"#);
        let claims = serde_json::json!({
            "iat": (now - BACKDATED).as_second(),
            "exp": (now + LIFETIME).as_second(),
            "iss": issuer,
        });
        let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signer = self
            .0
            .choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256])
            .ok_or_else(|| "the App's private key is not an RSA key".to_owned())?;
        let signature = signer.sign(message.as_bytes()).map_err(|error| format!("the App's private key cannot sign: {error}"))?;
        Ok(Secret::new(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))))
    }
}

impl fmt::Debug for AppKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}
