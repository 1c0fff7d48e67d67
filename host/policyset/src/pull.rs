//! Modules from registries: what is held already, what has to be pulled, with whose credentials, and when that is tried again.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use pacer_cluster::answer::is_forbidden;
use pacer_core::reference::Reference;
use pacer_core::tenancy::Refusal;
use pacer_policy::bundle::{Remote, is_packed, pack};
use pacer_policy::{COMPRESSED_BYTES, Queue, text};
use pacer_registry::{Credentials, Form, Module, Registries, VerificationKeys};

use crate::Failure;
use crate::content::{Content, Pulled, remote};
use crate::history::Entry;

/// Pulls at once, of different namespaces. A registry that does not answer takes one of them for half a minute at the most.
const PLACES: usize = 8;

/// The first pause after a pull that failed.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// The longest pause after a pull that failed; pauses double up to it.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// What Kubernetes calls a Secret with credentials of registries, and its key.
const SECRET_TYPE: &str = "kubernetes.io/dockerconfigjson";
const SECRET_KEY: &str = ".dockerconfigjson";

/// What all policy sets share to pull.
pub(crate) struct Puller {
    registries: Registries,
    queue: Queue,
    /// Whether the sets of a namespace may name an artifact.
    admits: OnceLock<Admission>,
}

/// See [`crate::PolicySets::admit_pulls`].
pub(crate) type Admission = Box<dyn Fn(&str, &Reference) -> Result<(), Refusal> + Send + Sync>;

/// Why the modules of a content are not there.
#[derive(Debug)]
pub(crate) struct Lack {
    pub(crate) content: Content,
    pub(crate) failure: Failure,
    /// Another try may end otherwise.
    pub(crate) may_pass: bool,
}

impl Puller {
    pub(crate) fn new(registries: Registries) -> Self {
        Self { registries, queue: Queue::of(PLACES), admits: OnceLock::new() }
    }

    /// Says which artifacts the sets of a namespace may name; only the first call counts.
    pub(crate) fn admit(&self, admission: Admission) {
        let _first = self.admits.set(admission);
    }

    /// Why the sets of a namespace may not name an artifact; none where they may.
    pub(crate) fn refusal(&self, namespace: &str, reference: &Reference) -> Option<Failure> {
        let refused = self.admits.get()?(namespace, reference).err()?;
        Some(Failure { reason: "PolicyRegistryRefused", message: format!("{reference}: {refused}") })
    }

    pub(crate) fn keys(&self) -> &VerificationKeys {
        self.registries.keys()
    }

    /// Adds what is missing to the modules that are held.
    pub(crate) async fn pull(
        self: Arc<Self>,
        client: Client,
        namespace: String,
        content: Content,
        mut held: Pulled,
    ) -> Result<Content, Lack> {
        let remote = remote(&content.object);
        let gathered = async {
            let credentials = credentials(client, &namespace, remote.pull_secret.as_deref()).await?;
            for reference in held.missing(&remote) {
                // For each anew, so that nobody waits longer for others than these may take for one.
                let _turn = self.queue.permit(&namespace).await;
                let module = self.registries.pull(&reference, &credentials).await.map_err(|error| {
                    let failure = Failure { reason: error.reason(), message: format!("{reference}: {error}") };
                    (failure, error.may_pass())
                })?;
                let signer = module.signer.clone();
                let bytes = kept(&reference, module).await.map_err(|failure| (failure, false))?;
                held.add(reference, bytes, signer);
            }
            fits(&content.object, &held)?;
            Ok(held)
        };
        match gathered.await {
            Ok(pulled) => Ok(content.with(pulled)),
            Err((failure, may_pass)) => Err(Lack { content, failure, may_pass }),
        }
    }
}

/// Of the modules that a set names, those that its records have. Where modules have to be signed, only what one of these keys has signed.
pub(crate) fn held(remote: &Remote, records: &[Entry], keys: &VerificationKeys) -> Pulled {
    let mut held = Pulled::default();
    for record in records.iter().filter(|record| record.is_trusted(keys)) {
        let Pulled { modules, signers } = record.pulled();
        for reference in held.missing(remote) {
            // What lies in another registry under the same digest is the same.
            let same = |of: &&Reference| of.digits() == reference.digits();
            if let Some(module) = modules.keys().find(same).and_then(|of| modules.get(of)) {
                held.add(reference, module.clone(), None);
                held.signers.extend(signers.iter().filter(|signer| keys.has(signer)).cloned());
            }
        }
    }
    held
}

/// How long it takes until the next try, after so many that failed.
pub(crate) fn pause(failed: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failed.saturating_sub(1))).min(LONGEST_PAUSE)
}

/// As it is kept and handed on. A text stays as it is, because nothing but processes that are locked decompresses anything.
async fn kept(reference: &Reference, module: Module) -> Result<Vec<u8>, Failure> {
    match module.form {
        Form::Component => Ok(compressed(module.bytes.into()).await),
        Form::Text => text::module(&module.bytes)
            .map_err(|error| Failure { reason: error.code.as_str(), message: format!("{reference}: {error}") }),
    }
}

/// What is plain is compressed, because a record holds no more than a ConfigMap.
async fn compressed(module: Vec<u8>) -> Vec<u8> {
    if is_packed(&module) {
        return module;
    }
    let plain = Arc::new(module);
    let bytes = Arc::clone(&plain);
    // Takes half a second for the largest.
    let packed = tokio::task::spawn_blocking(move || pack(&bytes)).await;
    packed.unwrap_or_else(|_| plain.to_vec())
}

/// Whether a record can hold the content.
fn fits(object: &ConfigMap, pulled: &Pulled) -> Result<(), (Failure, bool)> {
    let modules: usize = pulled.modules.values().map(Vec::len).sum();
    let texts: usize = object.data.iter().flatten().map(|(_, text)| text.len()).sum();
    let own: usize = object.binary_data.iter().flatten().map(|(_, bytes)| bytes.0.len()).sum();
    if modules.saturating_add(texts).saturating_add(own) <= COMPRESSED_BYTES {
        return Ok(());
    }
    let message = format!(
        "the modules from registries have {modules} bytes compressed, what the ConfigMap holds has {}, and a record of both may have \
         {COMPRESSED_BYTES}; build the policies for size, or give a pool's decisions to a set of its own",
        texts.saturating_add(own)
    );
    Err((Failure { reason: "PolicyTooLarge", message }, false))
}

/// The credentials in a Secret of the set's namespace; none where the set names none.
async fn credentials(client: Client, namespace: &str, secret: Option<&str>) -> Result<Credentials, (Failure, bool)> {
    let Some(name) = secret else { return Ok(Credentials::default()) };
    let unusable = |why: &str| {
        let message = format!("pullSecret: Secret {namespace}/{name} {why}");
        (Failure { reason: "PolicyPullSecretInvalid", message }, true)
    };
    let secrets: Api<Secret> = Api::namespaced(client, namespace);
    let found = secrets.get_opt(name).await.map_err(|error| {
        if is_forbidden(&error) {
            unusable("can't be read: grant the operator the right to get Secrets in that namespace")
        } else {
            unusable("could not be read, because the API server did not answer as it should")
        }
    })?;
    let Some(secret) = found else {
        return Err(unusable("does not exist: create it with kubectl create secret docker-registry, or correct the name"));
    };
    // Any other Secret is none of the policy set's business.
    if secret.type_.as_deref() != Some(SECRET_TYPE) {
        return Err(unusable(&format!("is not of type {SECRET_TYPE}: create it with kubectl create secret docker-registry")));
    }
    let Some(file) = secret.data.as_ref().and_then(|data| data.get(SECRET_KEY)) else {
        return Err(unusable(&format!("has no key {SECRET_KEY}")));
    };
    Credentials::read(&file.0).map_err(|error| unusable(&format!("can't be used: in {SECRET_KEY}, {error}")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;
    use crate::history::entry;

    #[test]
    fn pauses_grow_and_end() {
        let pauses: Vec<u64> = (1..=8).map(|failed| pause(failed).as_secs()).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!((pause(0), pause(u32::MAX)), (FIRST_PAUSE, LONGEST_PAUSE));
    }

    #[tokio::test]
    async fn plain_modules_are_compressed_and_others_left() {
        let plain = b"\0asm a module, a module, a module, a module, a module, a module".to_vec();
        let packed = compressed(plain.clone()).await;
        assert!(is_packed(&packed) && packed != plain);
        assert_eq!(compressed(packed.clone()).await, packed);
        assert_eq!(compressed(vec![0x28, 0xb5, 0x2f, 0xfd, 9]).await, [0x28, 0xb5, 0x2f, 0xfd, 9]);
    }

    /// The public key that signatures of these tests are by, and its name.
    const KEY: &str = include_str!("../../registry/tests/signed/key.pub");

    fn reference(registry: &str, digit: &str) -> Reference {
        Reference::parse(&format!("oci://{registry}/policy@sha256:{}", digit.repeat(64))).unwrap().unwrap()
    }

    /// A record of a set with this module.
    fn record(reference: &Reference, key: &str, signers: Option<&str>) -> Entry {
        let mut annotations = json!({
            "actions.summerwind.dev/policy-digest": "sha256:0",
            "actions.summerwind.dev/policy-activated-at": "2026-05-04T10:11:12Z",
        });
        if let Some(signers) = signers {
            annotations["actions.summerwind.dev/policy-signed-by"] = json!(signers);
        }
        let data = json!({"policies.yaml": format!("restart: {{module: '{reference}'}}")});
        let binary = json!({key: ByteString(b"a module".to_vec())});
        let record = json!({"metadata": {"annotations": annotations}, "data": data, "binaryData": binary});
        entry(serde_json::from_value(record).unwrap()).unwrap()
    }

    #[test]
    fn module_is_held_when_a_record_has_its_digest_and_a_signature_that_counts() {
        let (one, mirrored, other) = (reference("a.example", "1"), reference("b.example:5000", "1"), reference("a.example", "2"));
        let key = format!("oci.sha256.{}", "1".repeat(64));
        let remote = Remote { references: vec![one.clone(), mirrored, other.clone()], pull_secret: None };
        let (none, mut keys) = (VerificationKeys::default(), VerificationKeys::default());
        keys.add(KEY.as_bytes()).unwrap();
        let missing = |record: Entry, keys: &VerificationKeys| {
            let held = held(&remote, &[record], keys);
            (held.missing(&remote).len(), held.signers.len())
        };
        // The same digest in another registry is the same module.
        assert_eq!(held(&remote, &[record(&one, &key, None)], &none).missing(&remote), std::slice::from_ref(&other));
        let signer = keys.ids().next().unwrap().to_owned();
        assert_eq!(missing(record(&one, &key, Some(&signer)), &none), (1, 0));
        assert_eq!(missing(record(&one, &key, Some(&signer)), &keys), (1, 1));
        for signers in [None, Some("another"), Some(&*format!("{signer},another"))] {
            assert_eq!(missing(record(&one, &key, signers), &keys), (3, 0), "{signers:?}");
        }
        // A key of the user's that looks like one, in a set that names no such module.
        assert_eq!(missing(record(&other, &key, None), &none), (3, 0));
    }

    #[test]
    fn content_is_refused_when_no_record_can_hold_it() {
        let reference = reference("registry.example", "a");
        let content = |text: usize, binary: usize, module: usize| {
            let object = ConfigMap {
                data: Some(BTreeMap::from([("policies.yaml".to_owned(), "x".repeat(text))])),
                binary_data: Some(BTreeMap::from([("m".to_owned(), ByteString(vec![0; binary]))])),
                ..ConfigMap::default()
            };
            let mut pulled = Pulled::default();
            pulled.add(reference.clone(), vec![0; module], None);
            fits(&object, &pulled)
        };
        assert_eq!(content(100, 1_000, COMPRESSED_BYTES - 1_100), Ok(()));
        let (failure, may_pass) = content(100, 1_000, COMPRESSED_BYTES - 1_099).unwrap_err();
        assert!(failure.reason == "PolicyTooLarge" && !may_pass, "{failure:?}");
        assert!(failure.message.contains("have 1047477 bytes compressed, what the ConfigMap holds has 1100"), "{failure:?}");
    }
}
