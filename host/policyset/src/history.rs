//! The last known good contents of policy sets, kept in the operator's own namespace so that a restart with a broken ConfigMap still runs them.
//!
//! Each is an immutable ConfigMap named by the policy set and its content. They have no owner: deleting the policy set's ConfigMap, or its
//! namespace, leaves them. At most `KEPT` are kept per policy set: the active one, the one before, and one that was rolled back, so that
//! it is not tried again after a restart.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt};
use pacer_policy::bundle::FILE;
use pacer_policy::{Bundle, Digest, Jail, Module, PolicyHost, Turn, text};
use serde_json::json;

use pacer_cluster::answer::{ignore_not_found, is_already_exists};
use pacer_cluster::object::ObjectKey;

use crate::report::content_digest;

/// Entries kept per policy set.
const KEPT: usize = 3;

/// Label of the entries. Its value stands for the policy set.
pub const LABEL: &str = "actions.summerwind.dev/policy-record-of";
/// The policy set as `namespace/name`, for people.
const SOURCE: &str = "actions.summerwind.dev/policy-set";
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
    content: ConfigMap,
}

/// Whether this version of the operator has staged an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// It has not.
    Never,
    /// It began to, and did not come to an end.
    InVain,
    /// It has.
    Well,
}

impl Entry {
    /// Its content, if it is what its digest says.
    pub(super) async fn bundle(&self, turn: &Turn, host: &PolicyHost, owner: &str) -> Option<Bundle> {
        let bundle = parse(turn, host, owner, &self.content).await.ok()?;
        (bundle.digest().to_string() == self.digest).then_some(bundle)
    }
}

/// Reads the policy set of a ConfigMap of the namespace `owner`, whose turn it is.
///
/// # Errors
///
/// The first thing that is wrong with it.
pub(super) async fn parse(
    turn: &Turn,
    host: &PolicyHost,
    owner: &str,
    content: &ConfigMap,
) -> Result<Bundle, pacer_policy::BundleError> {
    Bundle::parse_in(turn, host, owner, content.data.as_ref().unwrap_or(&BTreeMap::new()), &modules(content)).await
}

/// The same outside of the operator. Blocks.
///
/// # Errors
///
/// The first thing that is wrong with it.
pub fn read(jail: &Jail, content: &ConfigMap) -> Result<Bundle, pacer_policy::BundleError> {
    Bundle::read(jail, content.data.as_ref().unwrap_or(&BTreeMap::new()), &modules(content))
}

fn modules(content: &ConfigMap) -> BTreeMap<String, Vec<u8>> {
    content.binary_data.iter().flatten().map(|(key, bytes)| (key.clone(), bytes.0.clone())).collect()
}

/// A content that was active once, as people may have it back.
#[derive(Clone, Debug)]
pub struct Past {
    /// Identifies it.
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
    let past = |Entry { digest, rejected, activated, content, .. }| Past { digest, rejected, activated, content };
    Ok(entries.into_iter().map(past).collect())
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
        let label = Digest::of(source.to_string().as_bytes()).hex(16);
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
    pub(super) async fn keep(&self, bundle: &Bundle, content: &ConfigMap, at: Timestamp) -> Result<(), kube::Error> {
        if self.is_anothers {
            return Ok(());
        }
        let digest = bundle.digest();
        let used: Vec<&str> = bundle
            .entries()
            .filter_map(|(_, _, entry)| match &entry.module {
                Module::Component { key, .. } => Some(key.as_str()),
                Module::Builtin => None,
            })
            .collect();
        let name = format!("pacer-policies-{}-{}", self.label, digest.hex(16));
        let known = [
            (ACTIVATED, at.to_string()),
            (CONTENT, content_digest(content).to_string()),
            (TRIED, VERSION.to_owned()),
            (STAGED, VERSION.to_owned()),
        ];
        let known = known.map(|(key, value)| (key.to_owned(), value));
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
            binary_data: content.binary_data.as_ref().map(|modules| {
                modules.iter().filter(|(key, _)| used.contains(&key.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
            }),
            immutable: Some(true),
        };
        match self.api.create(&PostParams::default(), &entry).await {
            Err(error) if is_already_exists(&error) => {
                let patch = json!({"metadata": {"annotations": BTreeMap::from(known)}});
                self.api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
            }
            other => {
                other?;
            }
        }
        self.prune(&name).await
    }

    /// Writes down that this version begins to try an entry.
    pub(super) async fn begin(&self, entry: &Entry) -> Result<(), kube::Error> {
        self.annotate(entry, TRIED).await
    }

    /// Writes down that this version has staged an entry.
    pub(super) async fn end(&self, entry: &Entry) -> Result<(), kube::Error> {
        self.annotate(entry, STAGED).await
    }

    async fn annotate(&self, entry: &Entry, key: &str) -> Result<(), kube::Error> {
        if self.is_anothers {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": {key: VERSION}}});
        ignore_not_found(self.api.patch_metadata(&entry.name, &PatchParams::default(), &Patch::Merge(&patch)).await)
    }

    /// Marks a content as rolled back.
    pub(super) async fn reject(&self, digest: &str, why: &str) -> Result<(), kube::Error> {
        if self.is_anothers {
            return Ok(());
        }
        let Some(entry) = self.list().await?.into_iter().find(|entry| entry.digest == digest) else { return Ok(()) };
        let patch = json!({"metadata": {"annotations": {REJECTED: why}}});
        ignore_not_found(self.api.patch_metadata(&entry.name, &PatchParams::default(), &Patch::Merge(&patch)).await)
    }

    /// Removes all.
    pub(super) async fn forget(&self) -> Result<(), kube::Error> {
        if self.is_anothers {
            return Ok(());
        }
        for entry in self.list().await? {
            self.delete(&entry.name).await?;
        }
        Ok(())
    }

    async fn prune(&self, current: &str) -> Result<(), kube::Error> {
        let (rejected, good): (Vec<Entry>, Vec<Entry>) =
            self.list().await?.into_iter().filter(|entry| entry.name != current).partition(|entry| entry.rejected.is_some());
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

fn entry(content: ConfigMap) -> Option<Entry> {
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
        content,
    })
}
