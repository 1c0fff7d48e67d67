//! What registries and users send: whatever it is, it is read or refused.

use pacer_core::reference::Reference;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::bundle::{self, Artifact};
use crate::credentials::Credentials;
use crate::signature::VerificationKeys;
use crate::{challenge, manifest};

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
    "oci://registry.example/a__b/c-d.e:v1@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
];
const KEYS: [&str; 1] = [include_str!("../tests/signed/key.pub")];

const PIECES: [&str; 16] =
    ["", " ", ",", "\"", "\\", "{", "}", "[", "]", ":", "=", "/", "@", "\u{0}", "é", "99999999999999999999"];

fn damaged(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    let text = (select(texts), vec((any::<Index>(), 0_usize..6, select(&PIECES[..])), 0..5)).prop_map(|(text, damages)| {
        let mut text: Vec<char> = text.chars().collect();
        for (place, length, piece) in damages {
            let place = place.index(text.len() + 1);
            text.splice(place..(place + length).min(text.len()), piece.chars());
        }
        text.into_iter().collect()
    });
    prop_oneof![6 => text, 1 => any::<String>()]
}

proptest! {
    #[test]
    fn manifest_is_read_or_refused_whatever_it_says(text in damaged(&MANIFESTS)) {
        if let Ok((blob, _)) = manifest::module(text.as_bytes()) {
            prop_assert_eq!(blob.digest.len(), 64);
        }
        for blob in manifest::referrers(text.as_bytes()).into_iter().chain(manifest::bundles(text.as_bytes())).flatten() {
            prop_assert_eq!(blob.digest.len(), 64);
        }
        for signed in manifest::signatures(text.as_bytes()).into_iter().flatten() {
            prop_assert!(VerificationKeys::default().signer(text.as_bytes(), &signed.signature, "sha256:0").is_none());
        }
    }

    #[test]
    fn bundle_is_read_or_refused_whatever_it_says(text in damaged(&BUNDLES)) {
        let artifact = Artifact { manifest: text.as_bytes(), digits: "0" };
        for signed in bundle::signatures(text.as_bytes(), artifact) {
            prop_assert!(VerificationKeys::default().signer_of(&signed.message, &signed.signature).is_none());
        }
    }

    #[test]
    fn challenge_is_read_or_refused_whatever_it_says(text in damaged(&CHALLENGES)) {
        let _either = challenge::read(&text);
    }

    #[test]
    fn credentials_are_read_or_refused_whatever_they_say(text in damaged(&CREDENTIALS)) {
        let _either = Credentials::read(text.as_bytes());
    }

    #[test]
    fn keys_are_read_or_refused_whatever_they_say(text in damaged(&KEYS)) {
        let _either = VerificationKeys::default().add(text.as_bytes());
    }

    #[test]
    fn reference_is_read_or_refused_and_makes_an_address(text in damaged(&REFERENCES)) {
        if let Some(Ok(reference)) = Reference::parse(&text) {
            prop_assert_eq!(reference.to_string(), text);
            let (server, repository) = crate::credentials::server(&reference);
            let uri: http::Uri = format!("https://{server}/v2/{repository}/blobs/x").parse().unwrap();
            prop_assert!(uri.authority().is_some_and(|authority| authority.as_str() == server));
        }
    }
}
