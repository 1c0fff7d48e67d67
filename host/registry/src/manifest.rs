//! Manifests: which layers an artifact has.

use std::collections::BTreeMap;

use pacer_core::reference::is_digest;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Largest manifest, in bytes.
pub(crate) const MANIFEST_BYTES: usize = 64 << 10;

/// What is asked for.
pub(crate) const ACCEPT: &str =
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";

/// What a layer with a module is called: today, and by the first tools that pushed WebAssembly.
const MODULES: [&str; 2] = ["application/wasm", "application/vnd.wasm.content.layer.v1+wasm"];

/// What a layer with a policy that is text is called (RFC 9239), and what such a file was called before.
const TEXTS: [&str; 2] = ["text/javascript", "application/javascript"];

/// What an index of artifacts is called.
pub(crate) const ACCEPT_INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Largest list of what refers to an artifact, in bytes.
pub(crate) const INDEX_BYTES: usize = 256 << 10;

/// What the layers and artifacts begin with in which cosign 3 puts signatures; the version follows.
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";

/// What an artifact is taken for by registries that read the type of its configuration alone.
const EMPTY: &str = "application/vnd.oci.empty.v1+json";

/// Where cosign 3 says of what kind a signed statement is.
const PREDICATE: &str = "dev.sigstore.bundle.predicateType";

/// What cosign calls that which it signs.
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// Where cosign puts its signature.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// Signatures of an artifact that are looked at.
const SIGNATURES: usize = 16;

/// Why an artifact is no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The bytes are no JSON of a manifest.
    #[error("its manifest can't be read (line {line}, column {column})")]
    Unreadable {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// It is an index, which names other manifests.
    #[error("it is an index of artifacts, and the digest must be that of one of them")]
    Index,
    /// So many of its layers are modules of a policy, and not exactly one.
    #[error("it has {0} layers of type application/wasm or text/javascript, and must have one")]
    Layers(usize),
    /// A digest that is none.
    #[error("the digest of its layer is no SHA-256")]
    Digest,
}

/// Bytes in a registry, by their digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blob {
    /// SHA-256 as 64 hexadecimal digits, without `sha256:`.
    pub(crate) digest: String,
    pub(crate) size: u64,
}

/// What a module is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A component or a core module, plain or compressed.
    Component,
    /// JavaScript, plain.
    Text,
}

/// A payload and its signature, in base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signed {
    pub(crate) payload: Blob,
    pub(crate) signature: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
    #[serde(default)]
    manifests: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    artifact_type: Option<String>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

impl Descriptor {
    fn blob(&self) -> Option<Blob> {
        let digest = self.digest.strip_prefix("sha256:").filter(|digest| is_digest(digest))?;
        Some(Blob { digest: digest.to_owned(), size: self.size })
    }
}

fn layers(manifest: &[u8]) -> Result<Vec<Descriptor>, ManifestError> {
    let written: Written = serde_json::from_slice(manifest)
        .map_err(|error| ManifestError::Unreadable { line: error.line(), column: error.column() })?;
    match (written.layers, written.manifests) {
        (Some(layers), None) => Ok(layers),
        (_, Some(_)) => Err(ManifestError::Index),
        (None, None) => Err(ManifestError::Layers(0)),
    }
}

/// The module of an artifact, and what it is.
pub(crate) fn module(manifest: &[u8]) -> Result<(Blob, Form), ManifestError> {
    let form = |layer: &Descriptor| match layer.media_type.as_str() {
        module if MODULES.contains(&module) => Some(Form::Component),
        text if TEXTS.contains(&text) => Some(Form::Text),
        _ => None,
    };
    let layers = layers(manifest)?;
    let modules: Vec<(&Descriptor, Form)> = layers.iter().filter_map(|layer| Some((layer, form(layer)?))).collect();
    match modules.as_slice() {
        [(one, form)] => Ok((one.blob().ok_or(ManifestError::Digest)?, *form)),
        others => Err(ManifestError::Layers(others.len())),
    }
}

/// The signatures of the artifact that this manifest is about.
pub(crate) fn signatures(manifest: &[u8]) -> Result<Vec<Signed>, ManifestError> {
    let signed = |layer: Descriptor| {
        let payload = layer.blob().filter(|_| layer.media_type == PAYLOAD)?;
        Some(Signed { payload, signature: layer.annotations?.remove(SIGNATURE)? })
    };
    Ok(layers(manifest)?.into_iter().filter_map(signed).take(SIGNATURES).collect())
}

/// Of what refers to an artifact, the manifests that may have a bundle with a signature. Others are told apart by what the list says of them.
pub(crate) fn referrers(index: &[u8]) -> Result<Vec<Blob>, ManifestError> {
    #[derive(Deserialize)]
    struct Index {
        #[serde(default)]
        manifests: Vec<Descriptor>,
    }
    let written: Index = serde_json::from_slice(index)
        .map_err(|error| ManifestError::Unreadable { line: error.line(), column: error.column() })?;
    let may_be = |of: &Descriptor| {
        let says = |key: &str| of.annotations.as_ref().and_then(|annotations| annotations.get(key));
        let is_bundle = |kind: &String| kind.starts_with(BUNDLE) || kind == EMPTY;
        says(PREDICATE).map_or_else(|| of.artifact_type.as_ref().is_none_or(is_bundle), |kind| kind == crate::bundle::SIGNS)
    };
    Ok(written.manifests.iter().filter(|of| may_be(of)).filter_map(Descriptor::blob).take(SIGNATURES).collect())
}

/// The bundles in an artifact that refers to another one.
pub(crate) fn bundles(manifest: &[u8]) -> Result<Vec<Blob>, ManifestError> {
    let layers = layers(manifest)?;
    let bundles = layers.iter().filter(|layer| layer.media_type.starts_with(BUNDLE));
    Ok(bundles.filter_map(Descriptor::blob).take(SIGNATURES).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn layer(media_type: &str, digest: &str) -> Value {
        json!({"mediaType": media_type, "digest": digest, "size": 9, "annotations": {"org.opencontainers.image.title": "policy.wasm"}})
    }

    fn digest() -> String {
        format!("sha256:{}", "ab".repeat(32))
    }

    fn found(manifest: &Value) -> Result<(Blob, Form), ManifestError> {
        module(manifest.to_string().as_bytes())
    }

    #[test]
    fn an_artifact_has_one_layer_of_webassembly() {
        let blob = Blob { digest: "ab".repeat(32), size: 9 };
        let (modules, texts) = (MODULES.map(|module| (module, Form::Component)), TEXTS.map(|text| (text, Form::Text)));
        for (media_type, form) in modules.into_iter().chain(texts) {
            let manifest = json!({
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "artifactType": "application/vnd.unknown.artifact.v1",
                "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest(), "size": 2, "data": "e30="},
                "layers": [layer(media_type, &digest()), layer("text/markdown", "sha256:beside")],
                "annotations": {"org.opencontainers.image.created": "2026-05-01T10:00:00Z"},
            });
            assert_eq!(found(&manifest), Ok((blob.clone(), form)));
        }
        let wasm = || layer("application/wasm", &digest());
        for (manifest, error) in [
            (json!({"layers": []}), ManifestError::Layers(0)),
            (json!({"schemaVersion": 1}), ManifestError::Layers(0)),
            (json!({"layers": [layer("application/vnd.oci.image.layer.v1.tar+gzip", &digest())]}), ManifestError::Layers(0)),
            (json!({"layers": [wasm(), wasm()]}), ManifestError::Layers(2)),
            (json!({"layers": [wasm(), layer("text/javascript", &digest())]}), ManifestError::Layers(2)),
            (json!({"manifests": [wasm()]}), ManifestError::Index),
            (json!({"layers": [layer("application/wasm", "sha256:../../x")]}), ManifestError::Digest),
            (json!({"layers": [layer("application/wasm", &digest().to_uppercase())]}), ManifestError::Digest),
        ] {
            assert_eq!(found(&manifest), Err(error), "{manifest}");
        }
        assert_eq!(module(b"{\n \"layers\": 7}"), Err(ManifestError::Unreadable { line: 2, column: 12 }));
    }

    #[test]
    fn signatures_are_where_cosign_puts_them() {
        let mut layer = layer(PAYLOAD, &digest());
        layer["annotations"][SIGNATURE] = json!("MEUC");
        let others = [json!({"mediaType": PAYLOAD, "digest": digest(), "size": 1}), self::layer("text/plain", &digest())];
        let manifest = json!({"layers": [layer, others[0], others[1]]}).to_string();
        let signed = Signed { payload: Blob { digest: "ab".repeat(32), size: 9 }, signature: "MEUC".to_owned() };
        assert_eq!(signatures(manifest.as_bytes()), Ok(vec![signed]));
        let many = json!({"layers": vec![layer; 100]}).to_string();
        assert_eq!(signatures(many.as_bytes()).unwrap().len(), SIGNATURES);
    }

    #[test]
    fn bundles_are_found_among_what_refers_to_an_artifact() {
        let referrer = |kind: Value, predicate: Value| {
            let mut of = json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(), "size": 9});
            of["artifactType"] = kind;
            of["annotations"] = json!({"dev.sigstore.bundle.content": "dsse-envelope", (PREDICATE): predicate});
            of
        };
        let (bundle, signs) = (json!("application/vnd.dev.sigstore.bundle.v0.3+json"), json!(crate::bundle::SIGNS));
        let found = |manifests: Vec<Value>| referrers(json!({"manifests": manifests}).to_string().as_bytes()).map(|of| of.len());
        assert_eq!(found(vec![referrer(bundle.clone(), signs.clone())]), Ok(1));
        assert_eq!(found(vec![referrer(bundle.clone(), json!("https://slsa.dev/provenance/v1"))]), Ok(0));
        assert_eq!(found(vec![referrer(json!(EMPTY), signs.clone())]), Ok(1));
        let spdx = json!({"digest": digest(), "size": 9, "artifactType": "application/spdx+json"});
        assert_eq!(found(vec![spdx]), Ok(0));
        assert_eq!(found(vec![json!({"digest": digest(), "size": 9})]), Ok(1), "a registry that tells nothing of it");
        assert_eq!(found(vec![json!({"digest": "sha256:../../x", "size": 9})]), Ok(0));
        assert_eq!(found(vec![referrer(bundle, signs); 100]), Ok(SIGNATURES));
        assert_eq!(referrers(b"{}"), Ok(Vec::new()));
        assert!(referrers(b"[").is_err());

        let manifest = json!({"layers": [layer("application/vnd.dev.sigstore.bundle.v0.3+json", &digest()), layer("text/plain", &digest())]});
        assert_eq!(bundles(manifest.to_string().as_bytes()), Ok(vec![Blob { digest: "ab".repeat(32), size: 9 }]));
    }
}
