//! A real registry on loopback, in memory, and what people do to it: push policies, sign them as cosign does.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

use crate::child::{Child, ChildError};

/// How long it may take until it answers.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is known to those who may read and write, where somebody has to know something.
pub const USER: &str = "tests";
/// Password of [`USER`].
pub const PASSWORD: &str = "a password of the tests";

/// What the DER of a public key on P-256 begins with.
const KEY_PREFIX: &str = "3059301306072a8648ce3d020106082a8648ce3d030107034200";

/// Why a registry could not be started or written to.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// There is no executable.
    #[error("cannot build the registry: {0}")]
    Binary(String),
    /// Its process could not be started.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// Files or addresses could not be had.
    #[error("cannot prepare the registry: {0}")]
    Io(#[from] std::io::Error),
    /// It does not answer.
    #[error("the registry does not answer; the end of its log:\n{0}")]
    Silent(String),
    /// It did not take something.
    #[error("{what}: the registry answered {answer}")]
    Push {
        /// What it was to take.
        what: String,
        /// Status of its answer, or why there is none.
        answer: String,
    },
    /// A key could not be made or used.
    #[error("a key can't be used")]
    Key,
}

/// A registry; it ends, and forgets everything, when the handle is dropped.
pub struct Registry {
    child: Child,
    address: String,
    command: Vec<String>,
    directory: TempDir,
    client: Client<HttpConnector, Full<Bytes>>,
    is_guarded: bool,
}

/// A pair of keys that policies are signed with.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl SigningKey {
    /// A new one.
    ///
    /// # Errors
    ///
    /// When none can be made.
    pub fn new() -> Result<Self, RegistryError> {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).map_err(|_| RegistryError::Key)?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random);
        Ok(Self { pair: pair.map_err(|_| RegistryError::Key)?, random })
    }

    /// The public key as cosign writes it.
    #[must_use]
    pub fn public(&self) -> String {
        let prefix = hex::decode(KEY_PREFIX).unwrap_or_default();
        let der = STANDARD.encode([prefix.as_slice(), self.pair.public_key().as_ref()].concat());
        let lines: Vec<&str> = der.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n"))
    }
}

impl Registry {
    /// Starts one that anybody may use.
    ///
    /// # Errors
    ///
    /// When it can't be built or does not answer.
    pub async fn start() -> Result<Self, RegistryError> {
        Self::start_with(&[]).await
    }

    /// Starts one for those who know [`USER`] and [`PASSWORD`], by `bearer` or `basic`.
    ///
    /// # Errors
    ///
    /// As [`Registry::start`].
    pub async fn guarded(scheme: &str) -> Result<Self, RegistryError> {
        Self::start_with(&["--user", &format!("{USER}:{PASSWORD}"), "--scheme", scheme]).await
    }

    async fn start_with(arguments: &[&str]) -> Result<Self, RegistryError> {
        let directory = tempfile::tempdir()?;
        // Free now, and asked for again at once: nothing else on this machine takes ports by number.
        let address = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.to_string();
        let mut command = vec![binary()?.display().to_string(), "--listen".to_owned(), address.clone()];
        command.extend(arguments.iter().map(|&argument| argument.to_owned()));
        let child = launch(&command, directory.path())?;
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        let registry = Self { child, address, command, directory, client, is_guarded: !arguments.is_empty() };
        registry.until_it_answers().await?;
        Ok(registry)
    }

    /// Host and port.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Ends it. Everything in it is lost.
    pub async fn stop(&self) {
        self.child.kill().await;
    }

    /// Starts it again at the same address, with nothing in it.
    ///
    /// # Errors
    ///
    /// As [`Registry::start`].
    pub async fn start_again(&mut self) -> Result<(), RegistryError> {
        self.child.kill().await;
        self.child = launch(&self.command, self.directory.path())?;
        self.until_it_answers().await
    }

    async fn until_it_answers(&self) -> Result<(), RegistryError> {
        let connected = async {
            while TcpStream::connect(&self.address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let silent = |_| RegistryError::Silent(self.child.log_tail(4_000));
        tokio::time::timeout(PATIENCE, connected).await.map_err(silent)
    }

    /// Pushes a policy as `oras push` does. Returns what names it in a policy set.
    ///
    /// # Errors
    ///
    /// When the registry does not take it.
    pub async fn push(&self, repository: &str, module: &[u8]) -> Result<String, RegistryError> {
        self.push_as("policy.wasm:application/wasm", repository, module).await
    }

    /// Pushes a policy that is JavaScript.
    ///
    /// # Errors
    ///
    /// As [`Registry::push`].
    pub async fn push_text(&self, repository: &str, text: &str) -> Result<String, RegistryError> {
        self.push_as("policy.js:text/javascript", repository, text.as_bytes()).await
    }

    /// `named` is the file and its type, as `oras push` takes them.
    async fn push_as(&self, named: &str, repository: &str, module: &[u8]) -> Result<String, RegistryError> {
        let (file, media_type) = named.split_once(':').unwrap_or((named, "application/octet-stream"));
        let config = self.blob(repository, b"{}").await?;
        let layer = self.blob(repository, module).await?;
        let title = json!({"org.opencontainers.image.title": file});
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "artifactType": "application/vnd.unknown.artifact.v1",
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": config, "size": 2, "data": "e30="},
            "layers": [{"mediaType": media_type, "digest": layer, "size": module.len(), "annotations": title}],
        });
        let digest = sha256(manifest.to_string().as_bytes());
        self.manifest(repository, &digest, &manifest).await?;
        Ok(format!("oci://{}/{repository}@{digest}", self.address))
    }

    /// Signs a policy as `cosign sign --key` of version 3 does: a bundle in an artifact that refers to the policy's.
    ///
    /// # Errors
    ///
    /// When the registry does not take the signature.
    pub async fn sign_with_bundle(&self, reference: &str, key: &SigningKey) -> Result<(), RegistryError> {
        const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
        const STATEMENT: &str = "application/vnd.in-toto+json";
        let (repository, digest) = self.named(reference)?;
        let statement = json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"digest": {"sha256": digest.trim_start_matches("sha256:")}}],
            "predicateType": "https://sigstore.dev/cosign/sign/v1",
            "predicate": {},
        });
        let statement = statement.to_string();
        let message = format!("DSSEv1 {} {STATEMENT} {} {statement}", STATEMENT.len(), statement.len());
        let signature = key.pair.sign(&key.random, message.as_bytes()).map_err(|_| RegistryError::Key)?;
        let bundle = json!({
            "mediaType": BUNDLE,
            "verificationMaterial": {"publicKey": {"hint": "the key of a test"}},
            "dsseEnvelope": {
                "payload": STANDARD.encode(&statement),
                "payloadType": STATEMENT,
                "signatures": [{"sig": STANDARD.encode(signature.as_ref())}],
            },
        });
        let bundle = bundle.to_string();
        let config = self.blob(repository, b"{}").await?;
        let layer = self.blob(repository, bundle.as_bytes()).await?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "artifactType": BUNDLE,
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": config, "size": 2},
            "layers": [{"mediaType": BUNDLE, "digest": layer, "size": bundle.len()}],
            "subject": {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": 1},
            "annotations": {
                "dev.sigstore.bundle.content": "dsse-envelope",
                "dev.sigstore.bundle.predicateType": "https://sigstore.dev/cosign/sign/v1",
            },
        });
        self.manifest(repository, &sha256(manifest.to_string().as_bytes()), &manifest).await
    }

    /// Signs a policy as `cosign sign --key` did up to version 2.
    ///
    /// # Errors
    ///
    /// When the registry does not take the signature.
    pub async fn sign(&self, reference: &str, key: &SigningKey) -> Result<(), RegistryError> {
        let (repository, digest) = self.named(reference)?;
        let payload = json!({
            "critical": {
                "identity": {"docker-reference": format!("{}/{repository}", self.address)},
                "image": {"docker-manifest-digest": digest},
                "type": "cosign container image signature",
            },
            "optional": null,
        });
        let payload = payload.to_string();
        let signature = key.pair.sign(&key.random, payload.as_bytes()).map_err(|_| RegistryError::Key)?;
        let config = self.blob(repository, b"{}").await?;
        let layer = self.blob(repository, payload.as_bytes()).await?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": 2},
            "layers": [{
                "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
                "digest": layer,
                "size": payload.len(),
                "annotations": {"dev.cosignproject.cosign/signature": STANDARD.encode(signature.as_ref())},
            }],
        });
        self.manifest(repository, &format!("{}.sig", digest.replace(':', "-")), &manifest).await
    }

    /// Repository and digest of what is named.
    fn named<'a>(&self, reference: &'a str) -> Result<(&'a str, &'a str), RegistryError> {
        let unnamed =
            || RegistryError::Push { what: reference.to_owned(), answer: "nothing, for that names no policy of it".to_owned() };
        let name = reference.strip_prefix(&format!("oci://{}/", self.address)).ok_or_else(unnamed)?;
        name.split_once('@').ok_or_else(unnamed)
    }

    async fn blob(&self, repository: &str, bytes: &[u8]) -> Result<String, RegistryError> {
        let digest = sha256(bytes);
        let path = format!("/v2/{repository}/blobs/uploads/?digest={digest}");
        self.send(Method::POST, &path, "application/octet-stream", bytes).await?;
        Ok(digest)
    }

    async fn manifest(&self, repository: &str, name: &str, manifest: &Value) -> Result<(), RegistryError> {
        let path = format!("/v2/{repository}/manifests/{name}");
        self.send(Method::PUT, &path, "application/vnd.oci.image.manifest.v1+json", manifest.to_string().as_bytes()).await
    }

    async fn send(&self, method: Method, path: &str, media_type: &str, body: &[u8]) -> Result<(), RegistryError> {
        let failed = |answer: String| RegistryError::Push { what: path.to_owned(), answer };
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("content-type", media_type)
            .body(Full::new(Bytes::copy_from_slice(body)));
        let mut request = request.map_err(|error| failed(error.to_string()))?;
        if self.is_guarded {
            let authorization = format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
            let authorization = authorization.parse().map_err(|_| failed("nothing yet".to_owned()))?;
            request.headers_mut().insert("authorization", authorization);
        }
        let answer = self.client.request(request).await.map_err(|error| failed(error.to_string()))?;
        if answer.status() == StatusCode::CREATED { Ok(()) } else { Err(failed(answer.status().to_string())) }
    }
}

fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(digest(&SHA256, bytes)))
}

fn launch(command: &[String], directory: &Path) -> Result<Child, RegistryError> {
    let (program, arguments) = command.split_first().ok_or_else(|| RegistryError::Binary("no command".to_owned()))?;
    let mut start = Command::new(program);
    start.args(arguments);
    Ok(Child::start("registry", &start, &directory.join("registry.log"))?)
}

/// The executable, which `tests/registry/build.sh` builds once.
fn binary() -> Result<PathBuf, RegistryError> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../registry/build.sh");
    let output = Command::new("/bin/sh").arg(&script).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| RegistryError::Binary(format!("{}: {error}", script.display())))?;
    if !output.status.success() {
        return Err(RegistryError::Binary(format!("{} failed ({})", script.display(), output.status)));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}
