//! One pool's receipts in its ConfigMap.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt};
use pacer_api::names::{API_VERSION, annotation, label};
use pacer_cluster::answer::{is_already_exists, is_not_found};
use pacer_cluster::live;
use pacer_cluster::object::Uid;
use pacer_core::ring::{Bounds, Held, overflow};
use pacer_policy::record::Pool;
use pacer_policy::{Decision, Digest};
use serde_json::{Value, json};

use super::{Owner, Written};

/// Letters of a pool's name in that of its ConfigMap; the rest of the name tells it apart.
const NAME: usize = 200;

/// A receipt as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    pub(super) about: Written,
    pub(super) bytes: Vec<u8>,
}

impl Packed {
    pub(super) fn held(&self) -> Held<Decision> {
        Held { kind: self.about.decision, id: self.about.id.clone(), bytes: self.bytes.len() }
    }
}

/// What a ConfigMap holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    exists: bool,
    held: Vec<Held<Decision>>,
    /// Receipts that are no longer there.
    gone: u64,
}

/// Writes receipts in one request, two where it is not known what is there. Returns what is there afterwards.
pub(super) async fn write(
    client: &Client,
    owner: &Owner,
    index: Option<Index>,
    new: &[Packed],
    lost: u64,
    bounds: Bounds,
) -> Result<Index, kube::Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &owner.pool.namespace);
    let name = name(owner);
    let mut index = match index {
        Some(index) => index,
        None => look(client, owner, &name).await?,
    };
    for again in [true, false] {
        let (next, changes) = exchange(&index, new, lost, bounds);
        let annotations = json!({
            annotation::RECEIPTS_OF: owner.pool.name,
            annotation::RECEIPTS_GONE: next.gone.to_string(),
            annotation::RECEIPTS_BOUND: format!("{} receipts, {} bytes", bounds.count, bounds.bytes),
        });
        let outcome = if index.exists {
            let patch = json!({"metadata": {"annotations": annotations}, "binaryData": changes});
            api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
        } else {
            let content = content(owner, &name, &annotations, new, &next);
            api.create(&PostParams::default(), &content).await.map(drop)
        };
        match outcome {
            Ok(()) => return Ok(next),
            // Somebody made it or deleted it.
            Err(error) if again && (is_already_exists(&error) || is_not_found(&error)) => {
                index = look(client, owner, &name).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(index)
}

/// What is there once the new ones are, and the keys to set and to take away for that.
fn exchange(index: &Index, new: &[Packed], lost: u64, bounds: Bounds) -> (Index, BTreeMap<String, Value>) {
    let mut all = index.held.clone();
    all.extend(new.iter().map(Packed::held));
    let gone = overflow(&all, bounds);
    let mut changes: BTreeMap<String, Value> = new
        .iter()
        .map(|packed| (key(packed.about.decision, &packed.about.id), json!(ByteString(packed.bytes.clone()))))
        .collect();
    for place in &gone {
        let Some(held) = all.get(*place) else { continue };
        let key = key(held.kind, &held.id);
        if *place < index.held.len() {
            changes.insert(key, Value::Null);
        } else {
            changes.remove(&key);
        }
    }
    let held = all.iter().enumerate().filter(|(place, _)| gone.binary_search(place).is_err()).map(|(_, held)| held.clone());
    let count = u64::try_from(gone.len()).unwrap_or(u64::MAX);
    (Index { exists: true, held: held.collect(), gone: index.gone.saturating_add(lost).saturating_add(count) }, changes)
}

fn content(owner: &Owner, name: &str, annotations: &Value, new: &[Packed], next: &Index) -> ConfigMap {
    let kept = |packed: &&Packed| next.held.iter().any(|held| held.id == packed.about.id);
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([(label::RECEIPTS_OF_KIND.to_owned(), owner.pool.kind.clone())])),
            annotations: serde_json::from_value(annotations.clone()).ok(),
            owner_references: Some(vec![owner.reference()]),
            ..ObjectMeta::default()
        },
        binary_data: Some(
            new.iter()
                .filter(kept)
                .map(|packed| (key(packed.about.decision, &packed.about.id), ByteString(packed.bytes.clone())))
                .collect(),
        ),
        ..ConfigMap::default()
    }
}

/// Reads which receipts the pool's ConfigMap holds.
async fn look(client: &Client, owner: &Owner, name: &str) -> Result<Index, kube::Error> {
    let found = live::object::<ConfigMap>(client, &owner.pool.namespace, name).await?;
    let Some(found) = found else { return Ok(Index::default()) };
    let gone = found.annotations().get(annotation::RECEIPTS_GONE).and_then(|count| count.parse().ok()).unwrap_or(0);
    let held = found.binary_data.iter().flatten().filter_map(|(key, bytes)| {
        let (decision, id) = key.split_once('.')?;
        let kind = Decision::ALL.into_iter().find(|known| known.as_str() == decision)?;
        Some(Held { kind, id: id.to_owned(), bytes: bytes.0.len() })
    });
    Ok(Index { exists: true, held: held.collect(), gone })
}

fn key(decision: Decision, id: &str) -> String {
    format!("{decision}.{id}")
}

/// Whose receipts a ConfigMap holds; none where it is not one as [`write`] makes it. Whoever may make ConfigMaps in a namespace may put the label on one.
pub(super) fn owner(object: &ConfigMap) -> Option<Owner> {
    let (namespace, kind, made) = (object.namespace()?, object.labels().get(label::RECEIPTS_OF_KIND)?, object.name_any());
    let references = object.owner_references().iter().filter(|owner| owner.api_version == API_VERSION && owner.kind == *kind);
    let mut owners = references.filter_map(|owner| {
        let pool = Pool { kind: owner.kind.clone(), namespace: namespace.clone(), name: owner.name.clone() };
        Some(Owner { pool, uid: Uid::new(&owner.uid)? })
    });
    owners.find(|owner| name(owner) == made)
}

/// Of the ConfigMap: made from name and UID, so that a pool made anew under the same name has another.
pub(super) fn name(owner: &Owner) -> String {
    let mut end = owner.pool.name.len().min(NAME);
    while !owner.pool.name.is_char_boundary(end) {
        end -= 1;
    }
    let start = owner.pool.name.get(..end).unwrap_or_default().trim_end_matches(['-', '.']);
    format!("pacer-receipts-{start}-{}", Digest::of(owner.uid.as_str().as_bytes()).hex(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(decision: Decision, id: &str, bytes: usize) -> Packed {
        let about = Written {
            pool: Pool { kind: "RunnerDeployment".into(), namespace: "ci".into(), name: "web".into() },
            decision,
            id: id.to_owned(),
            at: jiff::Timestamp::UNIX_EPOCH,
            policy: "native".to_owned(),
            summary: "removed web-a".to_owned(),
        };
        Packed { about, bytes: vec![7; bytes] }
    }

    #[test]
    fn oldest_receipts_go_when_store_is_full() {
        let bounds = Bounds { count: 3, bytes: 100 };
        let new =
            [packed(Decision::Restart, "01", 10), packed(Decision::Restart, "02", 10), packed(Decision::ScaleDown, "03", 10)];
        let (first, changes) = exchange(&Index::default(), &new, 0, bounds);
        assert_eq!(changes.keys().collect::<Vec<_>>(), ["restart.01", "restart.02", "scale-down.03"]);
        assert_eq!((first.held.len(), first.gone), (3, 0));
        let (second, changes) = exchange(&first, &[packed(Decision::Restart, "04", 10)], 2, bounds);
        assert_eq!(changes.get("restart.01"), Some(&Value::Null));
        assert_eq!(changes.keys().collect::<Vec<_>>(), ["restart.01", "restart.04"]);
        assert_eq!((second.held.len(), second.gone), (3, 3));
        // One that does not fit is not sent.
        let (third, changes) = exchange(&second, &[packed(Decision::Capacity, "05", 200)], 0, bounds);
        assert_eq!((changes.len(), third.held.len(), third.gone), (0, 3, 4));
    }

    fn of(name: &str, uid: &str) -> Owner {
        let pool = Pool { kind: "RunnerDeployment".into(), namespace: "default".into(), name: name.into() };
        Owner { pool, uid: Uid::new(uid).unwrap() }
    }

    #[test]
    fn owner_is_known_of_what_was_written_and_of_nothing_else() {
        let owner = of("web", "1");
        let written = || {
            let mut object = content(&owner, &name(&owner), &json!({}), &[], &Index::default());
            object.metadata.namespace = Some("default".to_owned());
            object
        };
        assert_eq!(super::owner(&written()), Some(owner.clone()));
        let forgeries: [fn(&mut ConfigMap); 6] = [
            |object| object.metadata.name = Some("receipts".to_owned()),
            |object| object.metadata.labels = None,
            |object| object.metadata.labels = Some(BTreeMap::from([(label::RECEIPTS_OF_KIND.to_owned(), "Runner".to_owned())])),
            |object| object.metadata.owner_references = None,
            |object| object.metadata.owner_references = Some(vec![of("other", "2").reference()]),
            |object| object.metadata.owner_references.iter_mut().flatten().for_each(|owner| owner.api_version = "v1".to_owned()),
        ];
        for (number, forge) in forgeries.into_iter().enumerate() {
            let mut object = written();
            forge(&mut object);
            assert_eq!(super::owner(&object), None, "{number}");
        }
        // In another namespace it is another pool's, as its records then have to be.
        let mut elsewhere = written();
        elsewhere.metadata.namespace = Some("other".to_owned());
        assert_eq!(super::owner(&elsewhere).map(|owner| owner.pool.namespace), Some("other".to_owned()));
    }

    #[test]
    fn names_differ_when_pools_differ() {
        let of = |name: &str, uid: &str| super::name(&of(name, uid));
        assert_ne!(of("web", "1"), of("web", "2"));
        assert!(of("web", "1").starts_with("pacer-receipts-web-"));
        assert!(of(&"a.".repeat(130), "1").len() < 253 && !of(&"a.".repeat(130), "1").contains(".-"));
    }
}
