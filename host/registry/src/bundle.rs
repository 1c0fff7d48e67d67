//! Signatures as cosign 3 makes them unless told otherwise: a Sigstore bundle, in an artifact that refers to the one that is signed.
//!
//! With a key, what is signed is a statement in an envelope (DSSE, <https://github.com/secure-systems-lab/dsse/blob/v1.0.2/protocol.md>) that names
//! the digest of a manifest, or the manifest itself. What else a bundle holds, such as entries of a transparency log, proves nothing that a
//! configured key would not, and is not looked at.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// Largest bundle, in bytes; one with an entry of a transparency log has some 5 KiB.
pub(crate) const BYTES: usize = 64 << 10;

/// What a statement says that is a signature, and no attestation of something else.
pub(crate) const SIGNS: &str = "https://sigstore.dev/cosign/sign/v1";

/// What an envelope holds.
const STATEMENT: &str = "application/vnd.in-toto+json";

/// Signatures of one envelope that are looked at.
const SIGNATURES: usize = 4;

/// Bytes, and a signature that is said to be of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Signed {
    pub(crate) message: Vec<u8>,
    pub(crate) signature: Vec<u8>,
}

/// An artifact that has to be signed.
#[derive(Clone, Copy)]
pub(crate) struct Artifact<'a> {
    /// Bytes of its manifest. A signature without an envelope signs them.
    pub(crate) manifest: &'a [u8],
    /// The 64 digits of its digest.
    pub(crate) digits: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    dsse_envelope: Option<Envelope>,
    message_signature: Option<MessageSignature>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Deserialize)]
struct EnvelopeSignature {
    sig: String,
}

#[derive(Deserialize)]
struct MessageSignature {
    signature: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    subject: Vec<Subject>,
    predicate_type: String,
}

#[derive(Deserialize)]
struct Subject {
    digest: BTreeMap<String, String>,
}

/// The signatures of a bundle, if they are of this artifact. Nobody has verified them.
pub(crate) fn signatures(bundle: &[u8], artifact: Artifact<'_>) -> Vec<Signed> {
    let Ok(written) = serde_json::from_slice::<Written>(bundle) else { return Vec::new() };
    let (envelope, message) = (written.dsse_envelope, written.message_signature);
    let of_message = message.and_then(|of| {
        let signature = STANDARD.decode(of.signature).ok()?;
        Some(Signed { message: artifact.manifest.to_vec(), signature })
    });
    envelope.and_then(|envelope| of_envelope(envelope, artifact)).unwrap_or_default().into_iter().chain(of_message).collect()
}

fn of_envelope(envelope: Envelope, artifact: Artifact<'_>) -> Option<Vec<Signed>> {
    let payload = STANDARD.decode(envelope.payload).ok().filter(|_| envelope.payload_type == STATEMENT)?;
    let statement: Statement = serde_json::from_slice(&payload).ok()?;
    let is_named =
        statement.subject.iter().any(|subject| subject.digest.get("sha256").is_some_and(|digits| digits == artifact.digits));
    if !is_named || statement.predicate_type != SIGNS {
        return None;
    }
    let message = authenticated(&envelope.payload_type, &payload);
    let decoded = envelope.signatures.into_iter().take(SIGNATURES).filter_map(|signature| STANDARD.decode(signature.sig).ok());
    Some(decoded.map(|signature| Signed { message: message.clone(), signature }).collect())
}

/// What is signed of an envelope: its type and its payload, each behind its length.
fn authenticated(kind: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::signature::VerificationKeys;

    const DIGITS: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const ARTIFACT: Artifact<'static> = Artifact { manifest: b"a manifest", digits: DIGITS };

    fn statement() -> Value {
        json!({"_type": "https://in-toto.io/Statement/v1", "subject": [{"digest": {"sha256": DIGITS}}], "predicateType": SIGNS, "predicate": {}})
    }

    fn envelope(statement: &Value) -> Value {
        let payload = STANDARD.encode(statement.to_string());
        json!({"dsseEnvelope": {"payload": payload, "payloadType": STATEMENT, "signatures": [{"sig": "AQID"}]}})
    }

    fn found(bundle: &Value) -> usize {
        signatures(bundle.to_string().as_bytes(), ARTIFACT).len()
    }

    #[test]
    fn the_type_and_the_payload_are_signed_with_their_lengths() {
        // The example of the protocol.
        assert_eq!(
            authenticated("http://example.com/HelloWorld", b"hello world"),
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
        );
        let [signed] = &signatures(envelope(&statement()).to_string().as_bytes(), ARTIFACT)[..] else { panic!("one signature") };
        assert_eq!(signed.signature, [1, 2, 3]);
        assert!(signed.message.starts_with(b"DSSEv1 28 application/vnd.in-toto+json "));
    }

    #[test]
    fn a_signature_of_something_else_does_not_count() {
        for (field, other) in [
            ("predicateType", json!("https://slsa.dev/provenance/v1")),
            ("subject", json!([{"digest": {"sha256": "b".repeat(64)}}])),
            ("subject", json!([{"digest": {"sha512": DIGITS}}])),
            ("subject", json!([])),
        ] {
            let mut statement = statement();
            statement[field] = other;
            assert_eq!(found(&envelope(&statement)), 0, "{statement}");
        }
        let mut foreign = envelope(&statement());
        foreign["dsseEnvelope"]["payloadType"] = json!("application/json");
        assert_eq!(found(&foreign), 0);
        let mut many = envelope(&statement());
        many["dsseEnvelope"]["signatures"] = json!(vec![json!({"sig": "AQID"}); 100]);
        assert_eq!(found(&many), SIGNATURES);
        for other in [json!({}), json!([]), json!({"dsseEnvelope": {}}), json!({"messageSignature": {"signature": "%"}})] {
            assert_eq!(found(&other), 0, "{other}");
        }
    }

    /// Made by cosign 3.1.3: `cosign sign --key` and `cosign sign-blob --key --bundle`.
    #[test]
    fn signatures_of_cosign_hold_for_their_manifest_alone() {
        let mut keys = VerificationKeys::default();
        keys.add(include_bytes!("../tests/cosign3/cosign.pub")).unwrap();
        let manifest: &[u8] = include_bytes!("../tests/cosign3/manifest.json");
        let digits = hex::encode(ring::digest::digest(&ring::digest::SHA256, manifest));
        let (one, other) = (Artifact { manifest, digits: &digits }, Artifact { manifest: b"another", digits: DIGITS });
        let bundles: [&[u8]; 2] =
            [include_bytes!("../tests/cosign3/bundle.json"), include_bytes!("../tests/cosign3/message.json")];
        for bundle in bundles {
            let signer = |artifact| {
                signatures(bundle, artifact).iter().find_map(|of| keys.signer_of(&of.message, &of.signature)).is_some()
            };
            assert!(signer(one) && !signer(other), "{}", String::from_utf8_lossy(bundle));
        }
    }

    #[test]
    fn a_signature_of_the_manifest_itself_is_one() {
        let bundle =
            json!({"messageSignature": {"messageDigest": {"algorithm": "SHA2_256", "digest": "AQID"}, "signature": "AQID"}});
        let signed = Signed { message: b"a manifest".to_vec(), signature: vec![1, 2, 3] };
        assert_eq!(signatures(bundle.to_string().as_bytes(), ARTIFACT), [signed]);
    }
}
