//! Good sets, kept by the operator in its own namespace so that a restart with a broken ConfigMap still runs them.
//!
//! Each is an immutable ConfigMap named by the set and its content. They belong to no object: deleting the set's ConfigMap, or its
//! namespace, leaves them. At most [`KEPT`] are kept per set: the one in force, the one before, and one that was taken back, so that
//! it is not tried again after a restart.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ObjectMeta, Status};
use kube::{Api, Client, ResourceExt};
use pacer_policy::bundle::{FILE, Module};
use pacer_policy::{Bundle, Digest};
use serde_json::json;

use super::SetKey;
use crate::error::{gone_is_fine, status};

/// Records kept per set.
const KEPT: usize = 3;

/// Marks records; the value names the set.
pub const LABEL: &str = "actions.summerwind.dev/policy-record-of";
/// The set as `namespace/name`, for people.
const SOURCE: &str = "actions.summerwind.dev/policy-set";
/// Digest of the content.
const DIGEST: &str = "actions.summerwind.dev/policy-digest";
/// When it came into force last, RFC 3339.
const ACTIVATED: &str = "actions.summerwind.dev/policy-activated-at";
/// Why it was taken back.
const REJECTED: &str = "actions.summerwind.dev/policy-rejected";

/// One record.
#[derive(Clone, Debug)]
pub(super) struct Record {
    name: String,
    pub(super) digest: String,
    /// Why it was taken back; none for a good one.
    pub(super) rejected: Option<String>,
    pub(super) activated: Timestamp,
    content: ConfigMap,
}

impl Record {
    /// Its content, if it is what its digest says.
    pub(super) fn bundle(&self) -> Option<Bundle> {
        let bundle = parse(&self.content).ok()?;
        (bundle.digest().to_string() == self.digest).then_some(bundle)
    }
}

/// Reads the set of a ConfigMap. Blocks for some milliseconds.
///
/// # Errors
///
/// The first thing that is wrong with it.
pub fn parse(content: &ConfigMap) -> Result<Bundle, pacer_policy::BundleError> {
    let modules: BTreeMap<String, Vec<u8>> =
        content.binary_data.iter().flatten().map(|(key, bytes)| (key.clone(), bytes.0.clone())).collect();
    Bundle::parse(content.data.as_ref().unwrap_or(&BTreeMap::new()), &modules)
}

/// The records of one set.
#[derive(Clone)]
pub(super) struct Records {
    api: Api<ConfigMap>,
    source: SetKey,
    label: String,
}

impl Records {
    pub(super) fn new(client: Client, namespace: &str, source: SetKey) -> Self {
        let label = Digest::of(source.to_string().as_bytes()).hex(16);
        Self { api: Api::namespaced(client, namespace), source, label }
    }

    /// All of them, the newest first.
    pub(super) async fn list(&self) -> Result<Vec<Record>, kube::Error> {
        let listed = self.api.list(&ListParams::default().labels(&format!("{LABEL}={}", self.label))).await?;
        let mut records: Vec<Record> = listed.into_iter().filter_map(record).collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.activated));
        Ok(records)
    }

    /// Records that this content came into force, and removes what is too old.
    pub(super) async fn keep(&self, bundle: &Bundle, content: &ConfigMap, now: Timestamp) -> Result<(), kube::Error> {
        let digest = bundle.digest();
        let used: Vec<&str> = bundle
            .entries()
            .filter_map(|(_, _, entry)| match &entry.module {
                Module::Component { key, .. } => Some(key.as_str()),
                Module::Builtin => None,
            })
            .collect();
        let name = format!("pacer-policies-{}-{}", self.label, digest.hex(16));
        let activated = BTreeMap::from([(ACTIVATED, now.to_string())]);
        let record = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(BTreeMap::from([(LABEL.to_owned(), self.label.clone())])),
                annotations: Some(BTreeMap::from([
                    (SOURCE.to_owned(), self.source.to_string()),
                    (DIGEST.to_owned(), digest.to_string()),
                    (ACTIVATED.to_owned(), now.to_string()),
                ])),
                ..ObjectMeta::default()
            },
            data: content
                .data
                .as_ref()
                .and_then(|data| data.get(FILE))
                .map(|text| BTreeMap::from([(FILE.to_owned(), text.clone())])),
            binary_data: content.binary_data.as_ref().map(|modules| {
                modules.iter().filter(|(key, _)| used.contains(&key.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
            }),
            immutable: Some(true),
        };
        match self.api.create(&PostParams::default(), &record).await {
            Err(error) if status(&error).is_some_and(Status::is_already_exists) => {
                let patch = json!({"metadata": {"annotations": activated}});
                self.api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
            }
            other => {
                other?;
            }
        }
        self.prune(&name).await
    }

    /// Marks a content as taken back.
    pub(super) async fn reject(&self, digest: &str, why: &str) -> Result<(), kube::Error> {
        let Some(record) = self.list().await?.into_iter().find(|record| record.digest == digest) else { return Ok(()) };
        let patch = json!({"metadata": {"annotations": {REJECTED: why}}});
        gone_is_fine(self.api.patch_metadata(&record.name, &PatchParams::default(), &Patch::Merge(&patch)).await)
    }

    /// Removes all.
    pub(super) async fn forget(&self) -> Result<(), kube::Error> {
        for record in self.list().await? {
            self.delete(&record.name).await?;
        }
        Ok(())
    }

    async fn prune(&self, current: &str) -> Result<(), kube::Error> {
        let (rejected, good): (Vec<Record>, Vec<Record>) =
            self.list().await?.into_iter().filter(|record| record.name != current).partition(|record| record.rejected.is_some());
        let room = KEPT.saturating_sub(2);
        for record in good.into_iter().skip(room).chain(rejected.into_iter().skip(1)) {
            self.delete(&record.name).await?;
        }
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<(), kube::Error> {
        gone_is_fine(self.api.delete(name, &DeleteParams::default()).await)
    }
}

fn record(content: ConfigMap) -> Option<Record> {
    let annotation = |key: &str| content.annotations().get(key).cloned();
    Some(Record {
        name: content.name_any(),
        digest: annotation(DIGEST)?,
        rejected: annotation(REJECTED),
        activated: annotation(ACTIVATED)?.parse().ok()?,
        content,
    })
}
