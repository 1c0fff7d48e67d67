//! What is believed of a registry.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, StatusCode, Uri};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;
use tokio::net::TcpListener;

use super::*;

/// Status, headers and body of an answer.
type Page = (u16, Vec<(&'static str, String)>, Vec<u8>);

/// What a server answers with, by path.
type Pages = BTreeMap<String, Page>;

/// A path, and the `Authorization` that it was asked for with.
type Asked = (String, Option<String>);

/// A server on this machine that tells which requests it had, with their `Authorization`.
#[derive(Clone, Default)]
struct Server {
    address: String,
    pages: Arc<Mutex<Pages>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

async fn answer(State(server): State<Server>, uri: Uri, headers: HeaderMap) -> Response {
    let authorization = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    server.asked.lock().unwrap().push((uri.to_string(), authorization.clone()));
    let pages = server.pages.lock().unwrap();
    let found = authorization.and_then(|with| pages.get(&format!("{} {}", uri.path(), with))).or_else(|| pages.get(uri.path()));
    let Some((status, headers, body)) = found else { return (StatusCode::NOT_FOUND, "what a registry says").into_response() };
    let mut answer = (StatusCode::from_u16(*status).unwrap(), body.clone()).into_response();
    for (name, value) in headers {
        answer.headers_mut().insert(*name, value.parse().unwrap());
    }
    answer
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self { address: listener.local_addr().unwrap().to_string(), ..Self::default() };
        let router = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        server
    }

    fn page(&self, path: &str, status: u16, headers: &[(&'static str, &str)], body: &[u8]) {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.pages.lock().unwrap().insert(path.to_owned(), (status, headers, body.to_vec()));
    }

    /// Puts an artifact with one layer there, and names it.
    fn artifact(&self, module: &[u8]) -> Reference {
        let blob = sha(module);
        let layer = json!({"mediaType": "application/wasm", "digest": format!("sha256:{blob}"), "size": module.len()});
        let manifest = json!({"schemaVersion": 2, "layers": [layer]}).to_string();
        let digest = sha(manifest.as_bytes());
        self.page(&format!("/v2/team/policy/manifests/sha256:{digest}"), 200, &[], manifest.as_bytes());
        self.page(&format!("/v2/team/policy/blobs/sha256:{blob}"), 200, &[], module);
        self.reference(&digest)
    }

    fn reference(&self, digest: &str) -> Reference {
        Reference::parse(&format!("oci://{}/team/policy@sha256:{digest}", self.address)).unwrap().unwrap()
    }

    fn credentials(&self) -> Credentials {
        Credentials::read(json!({"auths": {self.address.as_str(): {"username": "u", "password": "p"}}}).to_string().as_bytes())
            .unwrap()
    }

    /// Paths with what they were asked with.
    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

fn sha(bytes: &[u8]) -> String {
    hex::encode(digest(&SHA256, bytes))
}

fn registries(keys: VerificationKeys) -> Registries {
    Registries { proxy: ProxyRules::Direct, ..Registries::new(keys, 100).with_loopback() }
}

async fn pull(reference: &Reference, credentials: &Credentials) -> Result<Vec<u8>, PullError> {
    registries(VerificationKeys::default()).pull(reference, credentials).await.map(|module| module.bytes.to_vec())
}

fn none() -> Credentials {
    Credentials::default()
}

const BASIC: &str = "Basic dTpw";

#[tokio::test]
async fn artifact_is_pulled_when_digests_of_manifest_and_module_hold() {
    let server = Server::start().await;
    let reference = server.artifact(b"a module");
    assert_eq!(pull(&reference, &none()).await, Ok(b"a module".to_vec()));
    let registry = || server.address.clone();
    // Other bytes under the same digest, of the module and then of the manifest.
    server.page(&format!("/v2/team/policy/blobs/sha256:{}", sha(b"a module")), 200, &[], b"b module");
    assert_eq!(pull(&reference, &none()).await, Err(PullError::Digest { registry: registry(), what: "module" }));
    server.page(&format!("/v2/team/policy/manifests/{}", reference.digest()), 200, &[], b"{\"layers\": []}");
    assert_eq!(pull(&reference, &none()).await, Err(PullError::Digest { registry: registry(), what: "manifest" }));
    let absent = server.reference(&"0".repeat(64));
    let error = pull(&absent, &none()).await.unwrap_err();
    assert_eq!(error, PullError::NotFound { registry: registry(), what: "manifest" });
    assert!(!error.to_string().contains("what a registry says"), "{error}");
    server.page(&format!("/v2/team/policy/manifests/{}", absent.digest()), 500, &[], b"what a registry says");
    assert_eq!(pull(&absent, &none()).await, Err(PullError::Status { registry: registry(), status: 500 }));
}

#[tokio::test]
async fn what_is_too_large_is_not_read() {
    let server = Server::start().await;
    let large = server.artifact(&[b'x'; 101]);
    assert_eq!(pull(&large, &none()).await, Err(PullError::TooLarge { what: "module", most: 100 }));
    assert!(server.asked().iter().all(|(path, _)| !path.contains("blobs")));
    // One that lies about its size.
    let layer = json!({"mediaType": "application/wasm", "digest": format!("sha256:{}", sha(&[b'x'; 101])), "size": 7});
    let manifest = json!({"layers": [layer]}).to_string();
    let digest = sha(manifest.as_bytes());
    server.page(&format!("/v2/team/policy/manifests/sha256:{digest}"), 200, &[], manifest.as_bytes());
    assert_eq!(pull(&server.reference(&digest), &none()).await, Err(PullError::TooLarge { what: "module", most: 100 }));
    let endless = vec![b' '; MANIFEST_BYTES + 1];
    server.page(&format!("/v2/team/policy/manifests/sha256:{}", "1".repeat(64)), 200, &[], &endless);
    let error = pull(&server.reference(&"1".repeat(64)), &none()).await;
    assert_eq!(error, Err(PullError::TooLarge { what: "manifest", most: MANIFEST_BYTES }));
}

#[tokio::test]
async fn credentials_go_to_the_registry_and_to_nobody_else() {
    let (server, store) = (Server::start().await, Server::start().await);
    let reference = server.artifact(b"a module");
    let (manifest, blob) = (
        format!("/v2/team/policy/manifests/{}", reference.digest()),
        format!("/v2/team/policy/blobs/sha256:{}", sha(b"a module")),
    );
    // Basic, and a module that lies elsewhere.
    server.pages.lock().unwrap().retain(|path, _| !path.contains("blobs"));
    let page = server.pages.lock().unwrap().remove(&manifest).unwrap();
    server.pages.lock().unwrap().insert(format!("{manifest} {BASIC}"), page);
    server.page(&manifest, 401, &[("www-authenticate", "Basic realm=\"x\"")], b"");
    server.page(&blob, 307, &[("location", &format!("http://{}/store", store.address))], b"");
    store.page("/store", 200, &[], b"a module");
    assert_eq!(pull(&reference, &server.credentials()).await, Ok(b"a module".to_vec()));
    assert_eq!(store.asked(), [("/store".to_owned(), None)]);
    let asked = server.asked();
    assert_eq!(asked.iter().map(|(_, with)| with.as_deref()).collect::<Vec<_>>(), [None, Some(BASIC), Some(BASIC)]);
    // Without credentials, or with those of another registry.
    let denied = |given| Err(PullError::Denied { registry: server.address.clone(), given });
    assert_eq!(pull(&reference, &none()).await, denied(false));
    assert_eq!(pull(&reference, &store.credentials()).await, denied(false));
    assert!(server.asked().iter().all(|(_, with)| with.is_none()));
    // A token, from a service that is told what it is for.
    let realm = format!("Bearer realm=\"http://{}/token?a=b\",service=\"s&t\"", server.address);
    server.page(&manifest, 401, &[("www-authenticate", &realm)], b"");
    server.page("/token", 200, &[], br#"{"token": "known"}"#);
    let page = server.pages.lock().unwrap().remove(&format!("{manifest} {BASIC}")).unwrap();
    server.pages.lock().unwrap().insert(format!("{manifest} Bearer known"), page);
    assert_eq!(pull(&reference, &server.credentials()).await, Ok(b"a module".to_vec()));
    let asked = server.asked();
    assert_eq!(asked[1], ("/token?a=b&service=s%26t&scope=repository%3Ateam%2Fpolicy%3Apull".to_owned(), Some(BASIC.to_owned())));
    assert_eq!(asked[2].1.as_deref(), Some("Bearer known"));
    server.page("/token", 401, &[], b"");
    assert_eq!(pull(&reference, &server.credentials()).await, denied(true));
    // A service in another domain gets nothing.
    let elsewhere = format!("Bearer realm=\"http://localhost:{}/token\"", store.address.rsplit(':').next().unwrap());
    server.page(&manifest, 401, &[("www-authenticate", &elsewhere)], b"");
    let refused = Err(PullError::Challenge { registry: server.address.clone() });
    assert_eq!(pull(&reference, &server.credentials()).await, refused);
    assert_eq!(store.asked().len(), 1);
}

#[tokio::test]
async fn redirects_end() {
    let server = Server::start().await;
    let reference = server.artifact(b"a module");
    let path = format!("/v2/team/policy/manifests/{}", reference.digest());
    server.page(&path, 302, &[("location", &path)], b"");
    assert!(matches!(pull(&reference, &none()).await, Err(PullError::Redirect(why, _)) if why.contains("too often")));
    assert_eq!(server.asked().len(), 4);
    server.page(&path, 302, &[("location", "http://169.254.169.254/latest")], b"");
    assert!(matches!(pull(&reference, &none()).await, Err(PullError::Redirect(..))));
}

#[tokio::test]
async fn metadata_addresses_are_not_called() {
    let reference = Reference::parse(&format!("oci://169.254.169.254/team/policy@sha256:{}", "0".repeat(64))).unwrap().unwrap();
    let error = pull(&reference, &none()).await.unwrap_err();
    assert!(error.reason() == "PolicyPullFailed" && error.to_string().contains("metadata address"), "{error}");
}

#[tokio::test]
async fn loopback_is_not_called_unless_it_is_allowed() {
    let server = Server::start().await;
    let reference = server.artifact(b"a module");
    let error = Registries::new(VerificationKeys::default(), 100).pull(&reference, &none()).await.unwrap_err();
    assert!(error.reason() == "PolicyRegistryRefused" && !error.may_pass(), "{error}");
    assert!(error.to_string().contains("--policy-registries-on-loopback"), "{error}");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn authorities_are_read_by_the_first_pull_and_named_when_they_are_not_there() {
    let server = Server::start().await;
    let reference = server.artifact(b"a module");
    let file = std::env::temp_dir().join("pacer-registry-authorities-that-nobody-wrote.pem");
    let registries =
        Registries { proxy: ProxyRules::Direct, ..Registries::new(VerificationKeys::default(), 100).with_loopback() };
    let error = registries.with_authorities(file.clone()).pull(&reference, &none()).await.unwrap_err();
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    assert!(error.reason() == "PolicyPullFailed" && error.may_pass(), "{error}");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn text_is_pulled_as_text() {
    let server = Server::start().await;
    let (blob, text) = (sha(b"a text"), b"a text");
    let layer = json!({"mediaType": "text/javascript", "digest": format!("sha256:{blob}"), "size": text.len()});
    let manifest = json!({"layers": [layer]}).to_string();
    let digest = sha(manifest.as_bytes());
    server.page(&format!("/v2/team/policy/manifests/sha256:{digest}"), 200, &[], manifest.as_bytes());
    server.page(&format!("/v2/team/policy/blobs/sha256:{blob}"), 200, &[], text);
    let module = registries(VerificationKeys::default()).pull(&server.reference(&digest), &none()).await.unwrap();
    assert_eq!((module.form, &module.bytes[..]), (Form::Text, &text[..]));
}

/// What cosign 3.1.3 has written into a registry.
#[tokio::test]
async fn signature_in_a_bundle_is_found_by_what_refers_to_the_artifact() {
    let (manifest, referrer): (&[u8], &[u8]) =
        (include_bytes!("../../tests/cosign3/manifest.json"), include_bytes!("../../tests/cosign3/referrer.json"));
    let (bundle, referrers): (&[u8], &[u8]) =
        (include_bytes!("../../tests/cosign3/bundle.json"), include_bytes!("../../tests/cosign3/referrers.json"));
    let mut keys = VerificationKeys::default();
    keys.add(include_bytes!("../../tests/cosign3/cosign.pub")).unwrap();
    let (registries, module) = (registries(keys), b"\0asm\x01\0\0\0");
    // Registries that tell what refers to an artifact, and those where a tag does.
    for told_at in ["referrers/sha256:", "manifests/sha256-"] {
        let server = Server::start().await;
        let put = |path: &str, bytes: &[u8]| server.page(&format!("/v2/team/policy/{path}"), 200, &[], bytes);
        put(&format!("manifests/sha256:{}", sha(manifest)), manifest);
        put(&format!("blobs/sha256:{}", sha(module)), module);
        let reference = server.reference(&sha(manifest));
        let unsigned = registries.pull(&reference, &none()).await.unwrap_err();
        assert_eq!(unsigned.reason(), "PolicySignatureMissing");
        put(&format!("{told_at}{}", sha(manifest)), referrers);
        put(&format!("manifests/sha256:{}", sha(referrer)), referrer);
        // A bundle that is not there, or another one, is no signature.
        let damaged = registries.pull(&reference, &none()).await.unwrap_err();
        assert_eq!(damaged.reason(), "PolicySignatureInvalid");
        put(&format!("blobs/sha256:{}", sha(bundle)), bundle);
        let pulled = registries.pull(&reference, &none()).await.unwrap();
        assert!(pulled.signer.is_some_and(|signer| registries.keys().has(&signer)), "{told_at}");
    }
}

#[tokio::test]
async fn artifact_is_pulled_with_a_signature_by_a_configured_key_alone() {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random).unwrap();
    let prefix = hex::decode("3059301306072a8648ce3d020106082a8648ce3d030107034200").unwrap();
    let der = STANDARD.encode([prefix.as_slice(), pair.public_key().as_ref()].concat());
    let mut keys = VerificationKeys::default();
    keys.add(format!("-----BEGIN PUBLIC KEY-----\n{der}\n-----END PUBLIC KEY-----\n").as_bytes()).unwrap();
    let registries = registries(keys);

    let server = Server::start().await;
    let reference = server.artifact(b"a module");
    let unsigned = registries.pull(&reference, &none()).await.unwrap_err();
    assert_eq!(unsigned.reason(), "PolicySignatureMissing");
    assert!(unsigned.to_string().contains(&format!("{}/team/policy@{}", server.address, reference.digest())), "{unsigned}");
    assert!(server.asked().iter().all(|(path, _)| !path.contains("blobs")), "it is not pulled for nothing");

    let sign = |about: &str, by: Option<&[u8]>| {
        let payload = json!({"critical": {"image": {"docker-manifest-digest": about}}}).to_string();
        let signature = pair.sign(&random, by.unwrap_or(payload.as_bytes())).unwrap();
        server.page(&format!("/v2/team/policy/blobs/sha256:{}", sha(payload.as_bytes())), 200, &[], payload.as_bytes());
        json!({
            "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
            "digest": format!("sha256:{}", sha(payload.as_bytes())),
            "size": payload.len(),
            "annotations": {"dev.cosignproject.cosign/signature": STANDARD.encode(signature)},
        })
    };
    let publish = |layers: serde_json::Value| {
        let manifest = json!({"layers": layers}).to_string();
        server.page(&format!("/v2/team/policy/manifests/sha256-{}.sig", reference.digits()), 200, &[], manifest.as_bytes());
    };
    let absent = json!({
        "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json", "digest": format!("sha256:{}", "7".repeat(64)), "size": 1,
        "annotations": {"dev.cosignproject.cosign/signature": ""},
    });
    let other = sign("sha256:0", None);
    let forged = sign(&reference.digest(), Some(b"something else"));
    for layers in [json!([other]), json!([forged]), json!([absent])] {
        publish(layers);
        assert_eq!(registries.pull(&reference, &none()).await, Err(PullError::Signature));
    }
    publish(json!([absent, other, sign(&reference.digest(), None)]));
    let module = registries.pull(&reference, &none()).await.unwrap();
    assert!(module.bytes == b"a module"[..] && module.signer.is_some_and(|signer| registries.keys().has(&signer)));
}
