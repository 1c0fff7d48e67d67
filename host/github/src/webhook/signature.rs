//! Signatures: a keyed hash of the raw body, which only GitHub and the receiver can make.

use http::HeaderMap;
use ring::hmac;

use crate::secret::Secret;

/// Name of the header with GitHub's HMAC-SHA256 signature, and what its value begins with.
const SHA256: (&str, &str) = ("x-hub-signature-256", "sha256=");
/// The one that it sends beside it for receivers from before 2020.
const SHA1: (&str, &str) = ("x-hub-signature", "sha1=");

/// Checks signatures against any of several secrets, so that a secret can be changed without losing events.
///
/// `Debug` shows how many there are, never what they are.
pub struct Verifier {
    sha256: Vec<hmac::Key>,
    /// Empty unless SHA-1 is allowed.
    sha1: Vec<hmac::Key>,
}

/// Why a delivery does not count as GitHub's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// There is no signature at all.
    #[error("the delivery is not signed: set the webhook's secret at GitHub to the one that this server was given")]
    Missing,
    /// There is a SHA-1 signature only.
    #[error(
        "the delivery has a SHA-1 signature only: let its sender use X-Hub-Signature-256, or start this server with --webhook-allow-sha1"
    )]
    OnlySha1,
    /// There is more than one signature, or it has another form.
    #[error("the signature is not of the form sha256=<64 hexadecimal digits>")]
    Malformed,
    /// It is a signature of something else, or made with another secret.
    #[error(
        "the signature does not match: the webhook's secret at GitHub is none of those that this server was given, or something between them changed the body"
    )]
    Mismatch,
}

/// Why secrets can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretsError {
    /// An empty one would accept what anybody signs with nothing.
    #[error("a webhook secret is empty: leave it out, or give the one that is set at GitHub")]
    Empty,
}

impl Verifier {
    /// A verifier that accepts signatures made with any of these secrets; with `allow_sha1` also SHA-1 ones, where there is no other.
    /// Without secrets it accepts everything.
    ///
    /// # Errors
    ///
    /// When a secret is empty.
    pub fn new(secrets: &[Secret], allow_sha1: bool) -> Result<Self, SecretsError> {
        if secrets.iter().any(|secret| secret.expose().is_empty()) {
            return Err(SecretsError::Empty);
        }
        let keys = |algorithm| secrets.iter().map(|secret| hmac::Key::new(algorithm, secret.expose().as_bytes())).collect();
        Ok(Self {
            sha256: keys(hmac::HMAC_SHA256),
            sha1: if allow_sha1 { keys(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY) } else { Vec::new() },
        })
    }

    /// Whether anybody can be refused.
    #[must_use]
    pub fn checks(&self) -> bool {
        !self.sha256.is_empty()
    }

    /// Checks the signature of a raw body, in a time that tells nothing about the right one.
    ///
    /// # Errors
    ///
    /// When it is missing or wrong.
    pub fn check(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), SignatureError> {
        let mut check = self.begin(headers)?;
        check.update(body);
        check.finish().map(|_| ())
    }

    /// Begins to check the signature of a body that is still to come.
    ///
    /// # Errors
    ///
    /// When no body could fit: the signature is missing, or is none.
    pub fn begin(&self, headers: &HeaderMap) -> Result<Check, SignatureError> {
        if !self.checks() {
            return Ok(Check(None));
        }
        let (keys, tag) = match (tag::<32>(headers, SHA256)?, tag::<20>(headers, SHA1)?) {
            (Some(tag), _) => (&self.sha256, tag.to_vec()),
            (None, Some(_)) if self.sha1.is_empty() => return Err(SignatureError::OnlySha1),
            (None, Some(tag)) => (&self.sha1, tag.to_vec()),
            (None, None) => return Err(SignatureError::Missing),
        };
        let bodies = keys.iter().map(|key| (key.clone(), hmac::Context::with_key(key))).collect();
        Ok(Check(Some(Expected { bodies, tag })))
    }
}

/// The check of one signature, while the body arrives.
pub struct Check(Option<Expected>);

struct Expected {
    /// For each secret its key, and the HMAC of what has arrived of the body.
    bodies: Vec<(hmac::Key, hmac::Context)>,
    tag: Vec<u8>,
}

impl Check {
    /// Takes the next piece of the body.
    pub fn update(&mut self, piece: &[u8]) {
        for (_, body) in self.0.iter_mut().flat_map(|expected| &mut expected.bodies) {
            body.update(piece);
        }
    }

    /// Checks the signature after the last piece, in a time that tells nothing about the right one.
    ///
    /// # Errors
    ///
    /// When it is that of another body, or made with another secret.
    pub fn finish(self) -> Result<Signed, SignatureError> {
        let Some(Expected { bodies, tag }) = self.0 else { return Ok(Signed(())) };
        // The library compares in constant time only what it has computed itself: equal tags have equal tags.
        let authentic = |(key, body): (hmac::Key, hmac::Context)| {
            hmac::verify(&key, body.sign().as_ref(), hmac::sign(&key, &tag).as_ref()).is_ok()
        };
        if bodies.into_iter().any(authentic) { Ok(Signed(())) } else { Err(SignatureError::Mismatch) }
    }
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Check")
    }
}

/// Proof that the signature of a body was checked, where there is a secret to check it with.
#[derive(Debug)]
pub struct Signed(());

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("secrets", &self.sha256.len()).field("sha1", &!self.sha1.is_empty()).finish()
    }
}

/// The tag in a signature header, where there is one.
fn tag<const BYTES: usize>(headers: &HeaderMap, (name, prefix): (&str, &str)) -> Result<Option<[u8; BYTES]>, SignatureError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let digits = value.to_str().ok().and_then(|text| text.trim().strip_prefix(prefix)).ok_or(SignatureError::Malformed)?;
    let mut tag = [0; BYTES];
    hex::decode_to_slice(digits, &mut tag).map_err(|_| SignatureError::Malformed)?;
    if values.next().is_some() { Err(SignatureError::Malformed) } else { Ok(Some(tag)) }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    // The example of GitHub's documentation on validating webhook deliveries.
    const SECRET: &str = "It's a Secret to Everybody";
    const BODY: &[u8] = b"Hello, World!";
    const SIGNATURE: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    fn verifier(secrets: &[&str], allow_sha1: bool) -> Verifier {
        let secrets: Vec<Secret> = secrets.iter().map(|secret| Secret::from(*secret)).collect();
        Verifier::new(&secrets, allow_sha1).unwrap()
    }

    fn headers(values: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn sha1(body: &[u8]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET.as_bytes());
        format!("sha1={}", hex::encode(hmac::sign(&key, body)))
    }

    #[test]
    fn githubs_own_example_holds() {
        let signed = headers(&[(SHA256.0, SIGNATURE)]);
        assert_eq!(verifier(&[SECRET], false).check(&signed, BODY), Ok(()));
        assert_eq!(verifier(&[SECRET], false).check(&headers(&[(SHA256.0, &SIGNATURE.replace("ea0eb", "EA0EB"))]), BODY), Ok(()));
        assert_eq!(verifier(&["new", SECRET], false).check(&signed, BODY), Ok(()), "the old secret while it is changed");
        assert_eq!(verifier(&["new"], false).check(&signed, BODY), Err(SignatureError::Mismatch));
        assert_eq!(verifier(&[SECRET], false).check(&signed, b"Hello, World?"), Err(SignatureError::Mismatch));
    }

    #[test]
    fn body_that_comes_in_pieces_has_the_signature_of_the_whole() {
        let signed = headers(&[(SHA256.0, SIGNATURE)]);
        for (pieces, fits) in [(["Hello, ", "World!"], true), (["", "Hello, World!"], true), (["World!", "Hello, "], false)] {
            let mut check = verifier(&["new", SECRET], false).begin(&signed).unwrap();
            pieces.iter().for_each(|piece| check.update(piece.as_bytes()));
            assert_eq!(check.finish().is_ok(), fits, "{pieces:?}");
        }
    }

    #[test]
    fn without_a_secret_everything_passes() {
        assert!(!verifier(&[], true).checks());
        assert_eq!(verifier(&[], false).check(&HeaderMap::new(), BODY), Ok(()));
        assert_eq!(Verifier::new(&[Secret::from("a"), Secret::from("")], false).unwrap_err(), SecretsError::Empty);
    }

    #[test]
    fn missing_and_malformed_signatures_are_refused() {
        let verifier = verifier(&[SECRET], false);
        assert_eq!(verifier.check(&HeaderMap::new(), BODY), Err(SignatureError::Missing));
        for text in ["", "sha256=", "757107ea", "sha512=00", &SIGNATURE[..70], &format!("{SIGNATURE}0"), "sha256=zz"] {
            assert_eq!(verifier.check(&headers(&[(SHA256.0, text)]), BODY), Err(SignatureError::Malformed), "{text}");
        }
        let twice = headers(&[(SHA256.0, SIGNATURE), (SHA256.0, SIGNATURE)]);
        assert_eq!(verifier.check(&twice, BODY), Err(SignatureError::Malformed));
    }

    #[test]
    fn sha1_counts_where_it_is_allowed_and_nothing_better_is_there() {
        let weak = headers(&[(SHA1.0, &sha1(BODY))]);
        assert_eq!(verifier(&[SECRET], false).check(&weak, BODY), Err(SignatureError::OnlySha1));
        assert_eq!(verifier(&[SECRET], true).check(&weak, BODY), Ok(()));
        assert_eq!(verifier(&[SECRET], true).check(&weak, b"else"), Err(SignatureError::Mismatch));
        let both = headers(&[(SHA1.0, &sha1(BODY)), (SHA256.0, &SIGNATURE.replace('7', "8"))]);
        assert_eq!(verifier(&[SECRET], true).check(&both, BODY), Err(SignatureError::Mismatch), "no way around the better one");
    }

    #[test]
    fn secrets_do_not_show() {
        assert!(!format!("{:?}", verifier(&[SECRET], true)).contains("Everybody"));
    }

    proptest! {
        #[test]
        fn what_is_signed_with_a_known_secret_passes(secret in ".+", body: Vec<u8>) {
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), &body);
            let signed = headers(&[(SHA256.0, &format!("sha256={}", hex::encode(tag)))]);
            prop_assert_eq!(verifier(&["other", &secret], false).check(&signed, &body), Ok(()));
        }
    }
}
