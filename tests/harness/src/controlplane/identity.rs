//! Who may talk to the control plane: static tokens, the key of service account tokens, kubeconfigs.

use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CertifiedKey, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};

/// A static user of the control plane, a member of `system:masters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StaticUser {
    /// The test itself.
    Admin,
    /// The simulated scheduler and kubelets.
    Nodes,
    /// kube-controller-manager.
    Controllers,
}

impl StaticUser {
    /// Every static user; each has a token and a kubeconfig.
    pub const ALL: [Self; 3] = [Self::Admin, Self::Nodes, Self::Controllers];

    /// Its user name, as the audit log shows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "pacer-harness:admin",
            Self::Nodes => "pacer-harness:nodes",
            Self::Controllers => "pacer-harness:controllers",
        }
    }
}

/// A bearer token; never shown.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// 128 random bits.
    pub(crate) fn random() -> io::Result<Self> {
        let mut bytes = [0_u8; 16];
        SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system has no randomness"))?;
        let mut text = String::with_capacity(32);
        for byte in bytes {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text))
    }

    pub(crate) fn from_issued(token: String) -> Self {
        Self(token)
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Writes `content` to a file that only its owner may read.
pub(crate) fn write_private(path: &Path, content: &str) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    io::Write::write_all(&mut file, content.as_bytes())
}

/// Writes the certificate of an API server on this machine, with that of an authority of its own behind it, and its key.
pub(crate) fn write_certificates(certificate: &Path, private: &Path) -> io::Result<()> {
    let (authority, own) = certificates().map_err(io::Error::other)?;
    std::fs::write(certificate, format!("{}{authority}", own.cert.pem()))?;
    write_private(private, &own.signing_key.serialize_pem())
}

/// The authority's certificate, and what it signed.
fn certificates() -> Result<(String, CertifiedKey<KeyPair>), rcgen::Error> {
    let named = |name: &str| {
        let mut distinguished = DistinguishedName::new();
        distinguished.push(DnType::CommonName, name);
        distinguished
    };
    let mut authority = CertificateParams::default();
    authority.distinguished_name = named("pacer-harness");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let names = ["127.0.0.1", "localhost", "kubernetes.default.svc", "kubernetes"].map(str::to_owned);
    let mut own = CertificateParams::new(names)?;
    own.distinguished_name = named("kube-apiserver");
    own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let signing_key = KeyPair::generate()?;
    let cert = own.signed_by(&signing_key, &authority)?;
    Ok((authority.pem(), CertifiedKey { cert, signing_key }))
}

/// Writes the pair of keys that signs and verifies service account tokens.
pub(crate) fn write_signing_keys(private: &Path, public: &Path) -> io::Result<()> {
    let random = SystemRandom::new();
    let refused = |_| io::Error::other("the system has no randomness");
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).map_err(refused)?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random)
        .map_err(|error| io::Error::other(error.to_string()))?;
    // RFC 5480: SubjectPublicKeyInfo { id-ecPublicKey, prime256v1 }, then the point as a bit string.
    let mut information = vec![
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d,
        0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
    ];
    information.extend_from_slice(pair.public_key().as_ref());
    write_private(private, &pem("PRIVATE KEY", document.as_ref()))?;
    write_private(public, &pem("PUBLIC KEY", &information))
}

fn pem(kind: &str, der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {kind}-----\n");
    let mut rest = encoded.as_str();
    while let Some((line, after)) = rest.split_at_checked(64) {
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    if !rest.is_empty() {
        text.push_str(rest);
        text.push('\n');
    }
    text + "-----END " + kind + "-----\n"
}

/// A kubeconfig with one cluster, user and context.
pub(crate) fn kubeconfig(server: &str, authority: &Path, user: &str, namespace: &str, token: &Token) -> String {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "harness", "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": user, "user": {"token": token.reveal()}}],
        "contexts": [{"name": "harness", "context": {"cluster": "harness", "user": user, "namespace": namespace}}],
        "current-context": "harness",
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_hide_themselves() {
        let (one, two) = (Token::random().unwrap(), Token::random().unwrap());
        assert_ne!(one.reveal(), two.reveal());
        assert_eq!(one.reveal().len(), 32);
        assert!(!format!("{one:?}").contains(one.reveal()));
    }

    #[test]
    fn pem_lines_are_64_wide() {
        let text = pem("X", &[7; 96]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.first(), Some(&"-----BEGIN X-----"));
        assert_eq!(lines.iter().map(|line| line.len()).collect::<Vec<_>>(), [17, 64, 64, 15]);
    }
}
