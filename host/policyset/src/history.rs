//! The last known good contents of policy sets, kept in the operator's own namespace so that a restart with a broken ConfigMap still runs them.
//!
//! Each is an immutable ConfigMap named by the policy set and its content. They have no owner: deleting the policy set's ConfigMap, or its
//! namespace, leaves them; they go when no pool asks for the policy set any more. At most `KEPT` are kept per policy set: the active one, the one before, and one that was rolled back, so that
//! it is not tried again after a restart. Modules from registries are in them, compressed, so that a restart pulls nothing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt};
use pacer_core::reference::{Reference, SCHEME};
use pacer_policy::bundle::FILE;
use pacer_policy::{Bundle, Digest, Jail, Module, PolicyHost, Turn, text};
use pacer_registry::VerificationKeys;
use serde_json::json;

use pacer_cluster::answer::{ignore_not_found, is_already_exists};
use pacer_cluster::object::ObjectKey;

use crate::content::{Content, Pulled, are_trusted, remote};
use crate::report::content_digest;

/// Entries kept per policy set.
const KEPT: usize = 3;

/// Entries that are listed at a time.
const PAGE: u32 = 500;

/// Label of the entries. Its value stands for the policy set.
pub const LABEL: &str = "actions.summerwind.dev/policy-record-of";
/// The policy set as `namespace/name`, for people.
pub(super) const SOURCE: &str = "actions.summerwind.dev/policy-set";
/// Digest of the content.
const DIGEST: &str = "actions.summerwind.dev/policy-digest";
/// When it was activated last, RFC 3339.
const ACTIVATED: &str = "actions.summerwind.dev/policy-activated-at";
/// Why it was rolled back.
const REJECTED: &str = "actions.summerwind.dev/policy-rejected";

/// Digest of the ConfigMap that it was read from.
const CONTENT: &str = "actions.summerwind.dev/policy-content";
/// Version of the operator that staged it last, or died of it.
const TRIED: &str = "actions.summerwind.dev/policy-tried-by";
/// Version of the operator that staged it last.
const STAGED: &str = "actions.summerwind.dev/policy-staged-by";

/// The keys that its modules from registries are signed by.
const SIGNED: &str = "actions.summerwind.dev/policy-signed-by";

/// What the key of a module from a registry begins with; the digits of its digest follow.
const PULLED: &str = "oci.sha256.";

/// This version of the operator.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A content that was active once.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    name: String,
    pub(super) digest: String,
    /// Why it was rolled back; none for a good one.
    pub(super) rejected: Option<String>,
    pub(super) activated: Timestamp,
    /// Digest of the ConfigMap that it was read from.
    pub(super) read_from: String,
    /// How it went when this version tried it.
    pub(super) tried: Tried,
    /// The keys that its modules from registries are signed by.
    signers: BTreeSet<String>,
    content: ConfigMap,
}

/// Whether this version of the operator has staged an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// It has not tried to.
    Never,
    /// It began to, and did not come to an end.
    InVain,
    /// It has staged it.
    Well,
}

impl Entry {
    /// Its content, if it is what its digest says.
    pub(super) async fn bundle(&self, turn: &Turn, host: &PolicyHost, owner: &str) -> Option<Bundle> {
        let content = Content::of(self.content.clone()).with(self.pulled());
        let bundle = parse(turn, host, owner, &content).await.ok()?;
        (bundle.digest().to_string() == self.digest).then_some(bundle)
    }

    /// Whether its modules from registries, if any, are signed by one of these keys.
    pub(super) fn is_trusted(&self, keys: &VerificationKeys) -> bool {
        are_trusted(&self.signers, keys) || remote(&self.content).references.is_empty()
    }

    /// Its modules from registries.
    pub(super) fn pulled(&self) -> Pulled {
        Pulled { modules: pulled(&self.content), signers: self.signers.clone() }
    }
}

/// The modules from registries in a record.
fn pulled(record: &ConfigMap) -> BTreeMap<Reference, Vec<u8>> {
    let module = |reference: &Reference| Some(record.binary_data.as_ref()?.get(&key(reference))?.0.clone());
    remote(record).references.into_iter().filter_map(|reference| Some((reference.clone(), module(&reference)?))).collect()
}

/// Where a module from a registry lies in a record.
fn key(reference: &Reference) -> String {
    format!("{PULLED}{}", reference.digits())
}

/// Reads a content of the namespace `owner`, whose turn it is.
///
/// # Errors
///
/// The first thing that is wrong with it.
pub(super) async fn parse(
    turn: &Turn,
    host: &PolicyHost,
    owner: &str,
    content: &Content,
) -> Result<Bundle, pacer_policy::BundleError> {
    let none = Pulled::default();
    let pulled = content.pulled.as_deref().unwrap_or(&none);
    let (data, modules) = (content.object.data.as_ref(), modules(&content.object, &pulled.modules));
    Bundle::parse_in(turn, host, owner, data.unwrap_or(&BTreeMap::new()), &modules).await
}

/// The same of a record, or of a ConfigMap that names no registry, outside of the operator. Blocks.
///
/// # Errors
///
/// The first thing that is wrong with it.
pub fn read(jail: &Jail, content: &ConfigMap) -> Result<Bundle, pacer_policy::BundleError> {
    Bundle::read(jail, content.data.as_ref().unwrap_or(&BTreeMap::new()), &modules(content, &pulled(content)))
}

fn modules(object: &ConfigMap, pulled: &BTreeMap<Reference, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    let own = object.binary_data.iter().flatten().map(|(key, bytes)| (key.clone(), bytes.0.clone()));
    own.chain(pulled.iter().map(|(reference, bytes)| (reference.to_string(), bytes.clone()))).collect()
}

/// A content that was active once, as people may have it back.
#[derive(Clone, Debug)]
pub struct Past {
    /// Digest of the content, which identifies it.
    pub digest: String,
    /// Why it was rolled back; none for a good one.
    pub rejected: Option<String>,
    /// When it was activated last.
    pub activated: Timestamp,
    /// With `policies.yaml` and the modules that it names.
    pub content: ConfigMap,
}

/// The contents of a policy set that are kept in the operator's own namespace, the newest first.
///
/// # Errors
///
/// When they can't be listed.
pub async fn contents(client: Client, namespace: &str, source: &ObjectKey) -> Result<Vec<Past>, kube::Error> {
    let entries = History::new(client, namespace, source.clone()).list().await?;
    let past = |Entry { digest, rejected, activated, mut content, .. }| {
        // What lies in a registry is named there, not by a key.
        let keys: Vec<String> = remote(&content).references.iter().map(key).collect();
        content.binary_data.iter_mut().for_each(|modules| modules.retain(|key, _| !keys.contains(key)));
        Past { digest, rejected, activated, content }
    };
    Ok(entries.into_iter().map(past).collect())
}

/// Deletes the entries of the policy sets that `is_gone` holds for. Returns how many entries those were.
///
/// # Errors
///
/// When the API server refuses or does not answer; some may have been deleted by then.
pub(super) async fn sweep(client: Client, namespace: &str, is_gone: impl Fn(&ObjectKey) -> bool) -> Result<usize, kube::Error> {
    let api: Api<ConfigMap> = Api::namespaced(client, namespace);
    let mut page = ListParams::default().labels(LABEL).limit(PAGE);
    let mut deleted = 0_usize;
    loop {
        let listed = api.list_metadata(&page).await?;
        let gone = listed.items.iter().filter(|entry| source(&entry.metadata).is_some_and(|source| is_gone(&source)));
        let gone: Vec<String> = gone.map(ResourceExt::name_any).collect();
        for entry in gone {
            ignore_not_found(api.delete(&entry, &DeleteParams::default()).await)?;
            deleted = deleted.saturating_add(1);
        }
        match listed.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return Ok(deleted),
        }
    }
}

/// The policy set that an entry is of; none where [`History::keep`] did not make it.
fn source(entry: &ObjectMeta) -> Option<ObjectKey> {
    let (namespace, name) = entry.annotations.as_ref()?.get(SOURCE)?.split_once('/')?;
    let source = ObjectKey::new(namespace, name);
    (*entry.labels.as_ref()?.get(LABEL)? == label(&source)).then_some(source)
}

/// Value of [`LABEL`] for a policy set.
pub(super) fn label(source: &ObjectKey) -> String {
    Digest::of(source.to_string().as_bytes()).hex(16)
}

/// The entries of one policy set.
#[derive(Clone)]
pub(super) struct History {
    api: Api<ConfigMap>,
    source: ObjectKey,
    label: String,
    /// It is another process's, and only read here.
    is_anothers: bool,
}

impl History {
    pub(super) fn new(client: Client, namespace: &str, source: ObjectKey) -> Self {
        let label = label(&source);
        Self { api: Api::namespaced(client, namespace), source, label, is_anothers: false }
    }

    /// The same, which changes nothing where it is another process's.
    pub(super) fn kept_by(self, us: bool) -> Self {
        Self { is_anothers: !us, ..self }
    }

    /// All of them, the newest first.
    pub(super) async fn list(&self) -> Result<Vec<Entry>, kube::Error> {
        let listed = self.api.list(&ListParams::default().labels(&format!("{LABEL}={}", self.label))).await?;
        let mut entries: Vec<Entry> = listed.into_iter().filter_map(entry).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.activated));
        Ok(entries)
    }

    /// Writes down that this content is active since `at`, and removes what is too old.
    pub(super) async fn keep(&self, bundle: &Bundle, content: &Content, at: Timestamp) -> Result<(), kube::Error> {
        if self.is_anothers {
            return Ok(());
        }
        let Content { object: content, pulled } = content;
        let pulled = pulled.as_deref().cloned().unwrap_or_default();
        let digest = bundle.digest();
        let used: Vec<&str> = bundle
            .entries()
            .filter_map(|(_, _, entry)| match &entry.module {
                Module::Component { key, .. } => Some(key.as_str()),
                Module::Builtin => None,
            })
            .collect();
        let references: Vec<&str> = used.iter().copied().filter(|key| key.starts_with(SCHEME)).collect();
        // The same policies may lie in the ConfigMap one day and in a registry the next, and a record does not change.
        let unique = if references.is_empty() { digest } else { Digest::of(format!("{digest} {references:?}").as_bytes()) };
        let name = format!("pacer-policies-{}-{}", self.label, unique.hex(16));
        let signed = (!pulled.signers.is_empty()).then(|| pulled.signers.iter().cloned().collect::<Vec<_>>().join(","));
        let known = [
            (ACTIVATED, at.to_string()),
            (CONTENT, content_digest(content).to_string()),
            (TRIED, VERSION.to_owned()),
            (STAGED, VERSION.to_owned()),
        ];
        let known = known.into_iter().chain(signed.map(|signed| (SIGNED, signed)));
        let known: BTreeMap<String, String> = known.map(|(key, value)| (key.to_owned(), value)).collect();
        let lasting =
            [(SOURCE, self.source.to_string()), (DIGEST, digest.to_string())].map(|(key, value)| (key.to_owned(), value));
        let entry = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(BTreeMap::from([(LABEL.to_owned(), self.label.clone())])),
                annotations: Some(lasting.into_iter().chain(known.clone()).collect()),
                ..ObjectMeta::default()
            },
            data: content.data.as_ref().map(|data| {
                let kept = data.iter().filter(|(key, _)| *key == FILE || text::is_text(key) && used.contains(&key.as_str()));
                kept.map(|(key, text)| (key.clone(), text.clone())).collect()
            }),
            binary_data: {
                let own = content.binary_data.iter().flatten().filter(|(key, _)| used.contains(&key.as_str()));
                let own = own.map(|(key, bytes)| (key.clone(), bytes.clone()));
                // Last, so that no key of the user's takes the place of one.
                let pulled = pulled.modules.into_iter().map(|(reference, bytes)| (key(&reference), ByteString(bytes)));
                Some(own.chain(pulled).collect()).filter(|modules: &BTreeMap<_, _>| !modules.is_empty())
            },
            immutable: Some(true),
        };
        match self.api.create(&PostParams::default(), &entry).await {
            Err(error) if is_already_exists(&error) => {
                let patch = json!({"metadata": {"annotations": known}});
                self.api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
            }
            other => {
                other?;
            }
        }
        self.prune(&name, &digest.to_string()).await
    }

    /// Writes down that this version begins to try an entry.
    pub(super) async fn begin(&self, entry: &Entry) -> Result<(), kube::Error> {
        self.annotate(entry, TRIED, Some(VERSION)).await
    }

    /// Takes back that this version began to try an entry.
    pub(super) async fn withdraw(&self, entry: &Entry) -> Result<(), kube::Error> {
        self.annotate(entry, TRIED, None).await
    }

    /// Writes down that this version has staged an entry.
    pub(super) async fn end(&self, entry: &Entry) -> Result<(), kube::Error> {
        self.annotate(entry, STAGED, Some(VERSION)).await
    }

    async fn annotate(&self, entry: &Entry, key: &str, value: Option<&str>) -> Result<(), kube::Error> {
        if self.is_anothers {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": {key: value}}});
        ignore_not_found(self.api.patch_metadata(&entry.name, &PatchParams::default(), &Patch::Merge(&patch)).await)
    }

    /// Marks a content as rolled back.
    pub(super) async fn reject(&self, digest: &str, why: &str) -> Result<(), kube::Error> {
        if self.is_anothers {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": {REJECTED: why}}});
        for entry in self.list().await?.into_iter().filter(|entry| entry.digest == digest) {
            ignore_not_found(self.api.patch_metadata(&entry.name, &PatchParams::default(), &Patch::Merge(&patch)).await)?;
        }
        Ok(())
    }

    /// Deletes all entries of this policy set, unless they are another process's.
    pub(super) async fn forget(&self) -> Result<(), kube::Error> {
        if self.is_anothers {
            return Ok(());
        }
        for entry in self.list().await? {
            self.delete(&entry.name).await?;
        }
        Ok(())
    }

    async fn prune(&self, current: &str, digest: &str) -> Result<(), kube::Error> {
        let others = self.list().await?.into_iter().filter(|entry| entry.name != current);
        // The same policies from elsewhere are nothing to go back to.
        let (same, others): (Vec<Entry>, Vec<Entry>) = others.partition(|entry| entry.digest == digest);
        for entry in same {
            self.delete(&entry.name).await?;
        }
        let (rejected, good): (Vec<Entry>, Vec<Entry>) = others.into_iter().partition(|entry| entry.rejected.is_some());
        let room = KEPT.saturating_sub(2);
        for entry in good.into_iter().skip(room).chain(rejected.into_iter().skip(1)) {
            self.delete(&entry.name).await?;
        }
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<(), kube::Error> {
        ignore_not_found(self.api.delete(name, &DeleteParams::default()).await)
    }
}

/// What a record says; none where it is none.
pub(super) fn entry(content: ConfigMap) -> Option<Entry> {
    let annotation = |key: &str| content.annotations().get(key).cloned();
    Some(Entry {
        name: content.name_any(),
        digest: annotation(DIGEST)?,
        rejected: annotation(REJECTED),
        activated: annotation(ACTIVATED)?.parse().ok()?,
        read_from: annotation(CONTENT).unwrap_or_else(|| content_digest(&content).to_string()),
        tried: match (annotation(STAGED), annotation(TRIED)) {
            (Some(by), _) if by == VERSION => Tried::Well,
            (_, Some(by)) if by == VERSION => Tried::InVain,
            _ => Tried::Never,
        },
        signers: annotation(SIGNED).iter().flat_map(|ids| ids.split(',')).map(str::to_owned).collect(),
        content,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::Value;

    use super::*;

    #[tokio::test]
    async fn entries_of_policy_sets_that_are_gone_are_deleted_and_no_other_objects() {
        let entry = |name: &str, of: &str, label: &str| {
            let meta = json!({"name": name, "labels": {LABEL: label}, "annotations": {SOURCE: of}});
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta})
        };
        let of = |name: &str, set: &str| entry(name, &format!("ci/{set}"), &label(&ObjectKey::new("ci", set)));
        let pages = [
            (json!([of("used", "used"), of("one", "gone")]), "next"),
            (json!([of("two", "gone"), entry("foreign", "ci/gone", "x"), entry("odd", "gone", "x")]), ""),
        ];
        let deleted = Arc::new(Mutex::new(Vec::<String>::new()));
        let seen = Arc::clone(&deleted);
        let service = tower::service_fn(move |request: Request<Body>| {
            let uri = request.uri().to_string();
            let answer = if *request.method() == http::Method::DELETE {
                seen.lock().unwrap().extend(request.uri().path().rsplit('/').next().map(str::to_owned));
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
            } else {
                let (items, next) = &pages[usize::from(uri.contains("continue=next"))];
                let meta = json!({"continue": next});
                json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "items": items})
            };
            async move { Ok::<_, kube::Error>(Response::new(Body::from(answer.to_string().into_bytes()))) }
        });
        let count = sweep(Client::new(service, "own"), "own", |source| *source == ObjectKey::new("ci", "gone")).await.unwrap();
        assert_eq!((count, deleted.lock().unwrap().as_slice()), (2, ["one".to_owned(), "two".to_owned()].as_slice()));
    }

    #[tokio::test]
    async fn trial_that_others_left_no_room_for_is_taken_back() {
        let sent = Arc::new(Mutex::new(Vec::<Value>::new()));
        let seen = Arc::clone(&sent);
        let service = tower::service_fn(move |request: Request<Body>| {
            let seen = Arc::clone(&seen);
            async move {
                let body = request.into_body().collect_bytes().await?;
                let patch: Value = serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?;
                seen.lock().unwrap().push(patch);
                let answer =
                    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "record"}});
                Ok::<_, kube::Error>(Response::new(Body::from(answer.to_string().into_bytes())))
            }
        });
        let mut record = ConfigMap::default();
        let said = [(DIGEST, "sha256:0"), (ACTIVATED, "2026-11-22T12:00:00Z"), (TRIED, VERSION)];
        record.metadata.name = Some("record".to_owned());
        record.metadata.annotations = Some(said.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        let tried = entry(record.clone()).unwrap();
        assert_eq!(tried.tried, Tried::InVain);
        let history = History::new(Client::new(service, "own"), "own", ObjectKey::new("ci", "opinions"));
        history.withdraw(&tried).await.unwrap();
        assert_eq!(*sent.lock().unwrap(), [json!({"metadata": {"annotations": {TRIED: null}}})]);
        record.metadata.annotations.as_mut().unwrap().remove(TRIED);
        assert_eq!(entry(record).unwrap().tried, Tried::Never);
    }
}
