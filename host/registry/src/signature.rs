//! Keys that modules are signed with, ECDSA on P-256, and signatures as cosign made them up to version 2: over a text that names the digest of a
//! manifest. Those of version 3 are in [`crate::bundle`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;

/// What a public key on P-256 begins with, up to its point: the algorithm, the curve, the length.
const PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Bytes of a point that is not compressed.
const POINT: usize = 65;

/// Keys by which modules from registries have to be signed; with none, no signature is looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerificationKeys(Vec<Key>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    point: Vec<u8>,
    id: String,
}

/// Why a file has no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No PEM, or none of public keys.
    #[error("it has no public key in PEM (-----BEGIN PUBLIC KEY-----); cosign writes one as cosign.pub")]
    None,
    /// The key of this number, from 1, is not ECDSA on P-256.
    #[error("its key number {0} is not ECDSA on P-256, which is what cosign generate-key-pair makes")]
    Kind(usize),
}

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Image {
    docker_manifest_digest: String,
}

impl VerificationKeys {
    /// Adds the public keys of a PEM file.
    ///
    /// # Errors
    ///
    /// When there is none, or one is of another kind.
    pub fn add(&mut self, pem: &[u8]) -> Result<(), KeyError> {
        let keys = SubjectPublicKeyInfoDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(|_| KeyError::None)?;
        if keys.is_empty() {
            return Err(KeyError::None);
        }
        for (number, der) in keys.iter().enumerate() {
            let point = der.strip_prefix(&PREFIX).filter(|point| point.len() == POINT && point.first() == Some(&4));
            let point = point.ok_or(KeyError::Kind(number.saturating_add(1)))?;
            self.0.push(Key { point: point.to_vec(), id: hex::encode(digest(&SHA256, der)) });
        }
        Ok(())
    }

    /// Whether nothing has to be signed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a key, by the SHA-256 of its DER, is one of these.
    #[must_use]
    pub fn has(&self, id: &str) -> bool {
        self.ids().any(|of| of == id)
    }

    /// The SHA-256 of the DER of each.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|key| key.id.as_str())
    }

    /// Which key has signed a payload that is about the manifest of this digest.
    pub(crate) fn signer(&self, payload: &[u8], signature: &str, manifest: &str) -> Option<&str> {
        let signer = self.signer_of(payload, &STANDARD.decode(signature.trim()).ok()?)?;
        let said: Payload = serde_json::from_slice(payload).ok()?;
        (said.critical.image.docker_manifest_digest == manifest).then_some(signer)
    }

    /// Which key has signed these bytes.
    pub(crate) fn signer_of(&self, message: &[u8], signature: &[u8]) -> Option<&str> {
        let is_by = |key: &&Key| UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &key.point).verify(message, signature).is_ok();
        self.0.iter().find(is_by).map(|key| key.id.as_str())
    }
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

    use super::*;

    /// Made with `openssl ecparam -genkey`, signed with `openssl dgst -sha256 -sign`, as cosign's are.
    const KEY: &str = include_str!("../tests/signed/key.pub");
    const PAYLOAD: &[u8] = include_bytes!("../tests/signed/payload.json");
    const SIGNATURE: &str = include_str!("../tests/signed/signature.base64");
    const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn keys(pem: &str) -> Result<VerificationKeys, KeyError> {
        let mut keys = VerificationKeys::default();
        keys.add(pem.as_bytes()).map(|()| keys)
    }

    fn pem(der: &[u8]) -> String {
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der))
    }

    #[test]
    fn a_signature_holds_for_its_key_payload_and_digest_alone() {
        let ours = keys(KEY).unwrap();
        let id = ours.signer(PAYLOAD, SIGNATURE, DIGEST).unwrap();
        assert!(ours.has(id) && !ours.has("other") && !ours.is_empty());
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random).unwrap();
        let other = pem(&[&PREFIX, pair.public_key().as_ref()].concat());
        // Both keys in one file: either may have signed.
        let both = keys(&format!("{other}{KEY}")).unwrap();
        let own = STANDARD.encode(pair.sign(&random, PAYLOAD).unwrap());
        assert_eq!(both.signer(PAYLOAD, SIGNATURE, DIGEST), Some(id));
        assert!(both.signer(PAYLOAD, &own, DIGEST).is_some_and(|signer| signer != id));
        let mut changed = PAYLOAD.to_vec();
        changed[1] = b' ';
        for (keys, payload, signature, digest) in [
            (&ours, PAYLOAD, own.as_str(), DIGEST),
            (&ours, changed.as_slice(), SIGNATURE, DIGEST),
            (&ours, PAYLOAD, "MEUC", DIGEST),
            (&ours, PAYLOAD, "", DIGEST),
            (&ours, PAYLOAD, "%", DIGEST),
            (&ours, PAYLOAD, SIGNATURE, "sha256:bb"),
            (&keys(&other).unwrap(), PAYLOAD, SIGNATURE, DIGEST),
            (&VerificationKeys::default(), PAYLOAD, SIGNATURE, DIGEST),
        ] {
            assert_eq!(keys.signer(payload, signature, digest), None);
        }
        // Signed, but about nothing.
        let about_nothing = br#"{"critical": {"image": {}}}"#;
        let signed = STANDARD.encode(pair.sign(&random, about_nothing).unwrap());
        assert_eq!(both.signer(about_nothing, &signed, DIGEST), None);
    }

    #[test]
    fn keys_of_other_kinds_are_refused() {
        let ed25519 = pem(&hex::decode(format!("302a300506032b6570032100{}", "11".repeat(32))).unwrap());
        let compressed = pem(&[&PREFIX[..], &[2], &[7; 32]].concat());
        for (text, error) in [
            ("", KeyError::None),
            ("ssh-ed25519 AAAA", KeyError::None),
            ("-----BEGIN PUBLIC KEY-----\n%\n-----END PUBLIC KEY-----\n", KeyError::None),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", KeyError::None),
            (&ed25519, KeyError::Kind(1)),
            (&compressed, KeyError::Kind(1)),
            (&format!("{KEY}{ed25519}"), KeyError::Kind(2)),
        ] {
            assert_eq!(keys(text), Err(error), "{text}");
        }
    }
}
