//! What registries and users send: whatever it is, it is read or refused.

use pacer_core::reference::Reference;

use crate::bundle::{self, Artifact};
use crate::credentials::Credentials;
use crate::signature::VerificationKeys;
use crate::{challenge, exchange, manifest};

const MANIFESTS: [&str; 2] = [
    r#"{"schemaVersion":2,"layers":[{"mediaType":"application/wasm","digest":"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","size":9}]}"#,
    r#"{"layers":[{"mediaType":"application/vnd.dev.cosign.simplesigning.v1+json","digest":"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","size":9,"annotations":{"dev.cosignproject.cosign/signature":"MEUC"}}]}"#,
];
const BUNDLES: [&str; 2] = [include_str!("../tests/cosign3/bundle.json"), include_str!("../tests/cosign3/message.json")];
const CHALLENGES: [&str; 2] =
    [r#"Bearer realm="https://auth.example/token",service="registry.example",scope="x""#, r#"Basic realm="a\"b", Negotiate"#];
const CREDENTIALS: [&str; 1] =
    [r#"{"auths":{"ghcr.io":{"auth":"dTpw"},"https://index.docker.io/v1/":{"username":"u","password":"p"}}}"#];
const REFERENCES: [&str; 2] = [
    "oci://[::1]:5000/team/policy@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "oci://registry.example/a__b/c-d.e@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
];
const KEYS: [&str; 1] = [include_str!("../tests/signed/key.pub")];

#[test]
fn manifest_is_read_or_refused_whatever_it_says() {
    pacer_fuzz::text!(MANIFESTS, |text| {
        let module = manifest::module(text.as_bytes());
        let modules = module.iter().map(|(blob, _)| blob.clone());
        let named = manifest::referrers(text.as_bytes()).into_iter().chain(manifest::bundles(text.as_bytes())).flatten();
        assert!(modules.chain(named).all(|blob| blob.digest.len() == 64));
        let signatures = manifest::signatures(text.as_bytes());
        for signed in signatures.iter().flatten() {
            assert!(VerificationKeys::default().signer(text.as_bytes(), &signed.signature, "sha256:0").is_none());
        }
        module.is_ok() || signatures.is_ok_and(|all| !all.is_empty())
    });
}

#[test]
fn bundle_is_read_or_refused_whatever_it_says() {
    pacer_fuzz::text!(BUNDLES, |text| {
        let manifest: &[u8] = include_bytes!("../tests/cosign3/manifest.json");
        let digits = hex::encode(ring::digest::digest(&ring::digest::SHA256, manifest));
        let signatures = bundle::signatures(text.as_bytes(), Artifact { manifest, digits: &digits });
        let by_nobody =
            |signed: &bundle::Signed| VerificationKeys::default().signer_of(&signed.message, &signed.signature).is_none();
        assert!(signatures.iter().all(by_nobody));
        !signatures.is_empty()
    });
}

/// A payload of cosign, and the signature beside it.
const SIGNED: [&str; 1] = [
    "MEUCIQDx{\"critical\":{\"identity\":{\"docker-reference\":\"\"},\"image\":{\"docker-manifest-digest\":\"sha256:0\"},\"type\":\"cosign container image signature\"},\"optional\":null}",
];

#[test]
fn signature_by_nobody_that_is_known_counts_for_nothing() {
    pacer_fuzz::text!(SIGNED, |text| {
        let mut keys = VerificationKeys::default();
        keys.add(KEYS[0].as_bytes()).unwrap();
        let (signature, payload) = text.split_at(text.find('{').unwrap_or(text.len()));
        assert!(keys.signer(payload.as_bytes(), signature, "sha256:0").is_none());
        true
    });
}

#[test]
fn challenge_is_read_or_refused_whatever_it_says() {
    pacer_fuzz::text!(CHALLENGES, |text| challenge::read(text).is_some());
}

#[test]
fn credentials_are_read_or_refused_whatever_they_say() {
    pacer_fuzz::text!(CREDENTIALS, |text| Credentials::read(text.as_bytes()).is_ok());
}

#[test]
fn keys_are_read_or_refused_whatever_they_say() {
    pacer_fuzz::text!(KEYS, |text| VerificationKeys::default().add(text.as_bytes()).is_ok());
}

#[test]
fn reference_is_read_or_refused_and_makes_an_address() {
    pacer_fuzz::text!(REFERENCES, |text| {
        let Some(Ok(reference)) = Reference::parse(text) else { return false };
        assert_eq!(reference.to_string(), text);
        let (server, repository) = crate::credentials::server(&reference);
        let uri: http::Uri = format!("https://{server}/v2/{repository}/blobs/x").parse().unwrap();
        assert!(uri.authority().is_some_and(|authority| authority.as_str() == server));
        true
    });
}

#[test]
fn redirect_leads_somewhere_by_tls_or_nowhere() {
    pacer_fuzz::text!(["/v2/a/blobs/x", "https://cdn.example/x?y=%2F", "https://[::1]:5000/"], |location| {
        let from: http::Uri = "https://registry.example/v2/a/blobs/y".parse().unwrap();
        let Some(to) = exchange::target(&from, location).filter(|to| exchange::may_follow(&from, to)) else { return false };
        assert_eq!(to.scheme(), Some(&http::uri::Scheme::HTTPS), "{location:?} leads to {to}");
        assert!(to.host().is_some_and(|host| !host.is_empty()), "{location:?} leads to {to}");
        true
    });
}
