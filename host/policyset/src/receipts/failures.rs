//! Failures that receipts tell of, for a process that has just begun to act.
//!
//! The receipts of a pool lie in its namespace, and whoever may write ConfigMaps there may write what this reads. So a ConfigMap tells only of the pool
//! whose it is by its name and its owner, what is decompressed is no larger than what the operator compresses, and no namespace takes the time or the
//! places of the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Client, ResourceExt};
use pacer_api::names::label;
use pacer_cluster::page;
use pacer_cluster::unreadable::Unreadable;
use pacer_cluster::watch::Range;
use pacer_core::failures::{AGE, Failure, LIMIT};
use pacer_policy::Decision;
use pacer_policy::record::{self, FailedRunners, Pool};
use tokio::task::spawn_blocking;

use super::store;

/// ConfigMaps that are read at once: some megabytes, where all are full.
const PAGE: u32 = 10;

/// For how long is read at the most; a decision waits for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// For how long the receipts of one namespace are read: thousands as they usually are, and some fifty of the largest.
const SHARE: Duration = Duration::from_secs(1);

/// Longest name of a node or an image that is remembered, in bytes. Those of nodes have 253 at most.
const NAME_BYTES: usize = 512;

/// Failures of the last hour that the receipts of these namespaces tell of, those of them that were read in time; the oldest first. Where they are more
/// than [`LIMIT`], the newest of each namespace, and of none more than its equal share unless others need less.
///
/// # Errors
///
/// When receipts can't be listed.
pub async fn failures(client: &Client, range: Range<'_>, now: Timestamp) -> Result<Vec<Failure>, kube::Error> {
    let until = Instant::now() + PATIENCE;
    let mut told = Told::default();
    let mut params = ListParams::default().labels(label::RECEIPTS_OF_KIND).limit(PAGE);
    let own = |object: &ConfigMap| range.share.is_none_or(|share| share.has(&object.namespace().unwrap_or_default()));
    loop {
        let mut shelves = Vec::new();
        let take = |object: ConfigMap| {
            if own(&object) {
                shelves.extend(Shelf::of(object, now));
            }
        };
        let leave_out = |one: &Unreadable| tracing::warn!(configmap = %one, "receipts cannot be read and are left out");
        let next = page::each(client, range.namespace, &params, take, leave_out).await?;
        // Decompressing is work, and whatever else goes on shall not wait for it.
        let reading = spawn_blocking(move || {
            for shelf in &shelves {
                told.read(shelf, now, until);
            }
            told.bound(LIMIT);
            told
        });
        // Without an answer its thread has panicked, and what was read so far is lost.
        told = reading.await.unwrap_or_default();
        let Some(next) = next else { break };
        if Instant::now() >= until {
            told.is_late = true;
            break;
        }
        params = params.continue_token(&next);
    }
    Ok(told.ended())
}

/// The receipts of one pool that may tell of failures of the last hour.
struct Shelf {
    pool: Pool,
    /// Each compressed, the newest first.
    packed: Vec<Vec<u8>>,
}

impl Shelf {
    /// None of a ConfigMap that the operator did not write.
    fn of(object: ConfigMap, now: Timestamp) -> Option<Self> {
        let pool = store::owner(&object)?.pool;
        let oldest = record::id(now.saturating_sub(AGE).unwrap_or(now), 0);
        let newest = record::id(now, u64::MAX);
        let recent = object.binary_data.into_iter().flatten().filter(|(key, _)| {
            key.split_once('.').is_some_and(|(decision, id)| {
                decision == Decision::Restart.as_str() && (oldest.as_str()..=newest.as_str()).contains(&id)
            })
        });
        let mut packed: Vec<Vec<u8>> = recent.map(|(_, bytes)| bytes.0).collect();
        // They are in the order of their ids.
        packed.reverse();
        Some(Self { pool, packed })
    }
}

/// What was read, by namespace.
#[derive(Default)]
struct Told {
    namespaces: BTreeMap<String, Namespace>,
    /// Not everything was read in time.
    is_late: bool,
}

#[derive(Default)]
struct Namespace {
    /// At most [`LIMIT`].
    failures: Vec<Failure>,
    /// For how long its receipts were read.
    spent: Duration,
    /// Not everything was read in its share of the time.
    is_late: bool,
}

impl Told {
    /// Reads the receipts of a pool, for as long as there is time. What can't be read tells of no failure.
    fn read(&mut self, shelf: &Shelf, now: Timestamp, until: Instant) {
        let namespace = self.namespaces.entry(shelf.pool.namespace.clone()).or_default();
        for bytes in &shelf.packed {
            let began = Instant::now();
            self.is_late |= began >= until;
            namespace.is_late |= namespace.spent >= SHARE;
            if self.is_late || namespace.is_late {
                return;
            }
            namespace.failures.extend(told_by(bytes, &shelf.pool, now));
            namespace.keep(LIMIT);
            namespace.spent += began.elapsed();
        }
    }

    /// Keeps so many, the newest of each namespace. A namespace that tells of more than its equal share loses what others need.
    fn bound(&mut self, most: usize) {
        let each = share(self.namespaces.values().map(|namespace| namespace.failures.len()).collect(), most);
        self.namespaces.values_mut().for_each(|namespace| namespace.keep(each));
    }

    /// All of them, the oldest first.
    fn ended(self) -> Vec<Failure> {
        let late: Vec<&str> =
            self.namespaces.iter().filter(|(_, namespace)| namespace.is_late).map(|(name, _)| name.as_str()).collect();
        if let Some(first) = late.first() {
            tracing::warn!(
                namespaces = late.len(),
                first,
                seconds = SHARE.as_secs(),
                "the receipts of some namespaces take too long to read: not all of their failures before the start of this process are counted"
            );
        }
        let is_late = self.is_late;
        let mut all: Vec<Failure> = self.namespaces.into_values().flat_map(|namespace| namespace.failures).collect();
        if is_late {
            tracing::warn!(
                failures = all.len(),
                seconds = PATIENCE.as_secs(),
                "there are more receipts than could be read in time: not all failures before the start of this process are counted"
            );
        }
        all.sort_by_key(|failure| failure.at);
        all
    }
}

impl Namespace {
    /// Keeps the newest.
    fn keep(&mut self, most: usize) {
        if self.failures.len() > most {
            self.failures.sort_by_key(|failure| failure.at);
            self.failures.drain(..self.failures.len().saturating_sub(most));
        }
    }
}

/// How many each may have of so many in all, where each has so many: what one does not need is the others'.
fn share(mut all: Vec<usize>, most: usize) -> usize {
    all.sort_unstable();
    let (mut left, mut those) = (most, all.len());
    for one in all {
        let share = left.checked_div(those).unwrap_or(left);
        if one > share {
            return share;
        }
        left = left.saturating_sub(one);
        those = those.saturating_sub(1);
    }
    most
}

/// The failures of the last hour that one receipt tells of; none where it is not one of this pool.
fn told_by(bytes: &[u8], pool: &Pool, now: Timestamp) -> impl Iterator<Item = Failure> {
    let told = FailedRunners::read(bytes).ok().filter(|told| {
        let is_recent = (SignedDuration::ZERO..AGE).contains(&now.duration_since(told.at));
        is_recent && told.decision == Decision::Restart && told.pool == *pool
    });
    let failures = told.into_iter().flat_map(|told| {
        let at = told.at;
        told.on.into_iter().take(LIMIT).map(move |failed| Failure { at, node: named(failed.node), image: named(failed.image) })
    });
    failures.filter(|failure| failure.node.is_some() || failure.image.is_some())
}

/// A name that is none is not remembered.
fn named(name: Option<String>) -> Option<Arc<str>> {
    name.filter(|name| name.len() <= NAME_BYTES).map(Into::into)
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::ByteString;
    use kube::client::Body;
    use pacer_cluster::object::Uid;
    use pacer_policy::record::{Done, FailedOn, Item, Record, VERSION};
    use pacer_policy::{Answer, Receipt, bundle};
    use serde_json::json;

    use super::*;
    use crate::receipts::Owner;

    fn now() -> Timestamp {
        Timestamp::from_second(1_763_816_000).unwrap()
    }

    fn at(before: i64) -> Timestamp {
        now() - SignedDuration::from_secs(before)
    }

    fn owner(namespace: &str, name: &str) -> Owner {
        let pool = Pool { kind: "RunnerDeployment".into(), namespace: namespace.into(), name: name.into() };
        Owner { pool, uid: Uid::new(&format!("uid-of-{name}")).unwrap() }
    }

    type Failed<'a> = (Option<&'a str>, Option<&'a str>);

    fn packed(pool: &Pool, at: Timestamp, decision: Decision, failed: &[Failed<'_>]) -> (String, ByteString) {
        let failed_on = |(node, image): &Failed<'_>| FailedOn { node: node.map(str::to_owned), image: image.map(str::to_owned) };
        let items =
            failed.iter().map(|of| Item { failed_on: Some(failed_on(of)), ..Item::new("web-1".to_owned(), Done::Replaced) });
        let record = Record {
            version: VERSION,
            id: record::id(at, 7),
            at,
            pool: pool.clone(),
            receipt: Receipt::unasked(decision, 1),
            input: None,
            answer: Answer::Restart(Vec::new()),
            items: items.chain([Item::new("web-2".to_owned(), Done::Waits { seconds: 1 })]).collect(),
            change: None,
            superseded: 0,
        };
        (format!("{decision}.{}", record.id), ByteString(record.pack(usize::MAX).unwrap()))
    }

    /// The ConfigMap that the operator writes for this owner.
    fn config_map(owner: &Owner, receipts: impl IntoIterator<Item = (String, ByteString)>) -> ConfigMap {
        let mut object = ConfigMap { binary_data: Some(receipts.into_iter().collect()), ..ConfigMap::default() };
        object.metadata.name = Some(store::name(owner));
        object.metadata.namespace = Some(owner.pool.namespace.clone());
        object.metadata.labels = Some(BTreeMap::from([(label::RECEIPTS_OF_KIND.to_owned(), owner.pool.kind.clone())]));
        object.metadata.owner_references = Some(vec![owner.reference()]);
        object
    }

    fn failure(before: i64, node: Option<&str>, image: Option<&str>) -> Failure {
        Failure { at: at(before), node: node.map(Into::into), image: image.map(Into::into) }
    }

    /// What these ConfigMaps of the cluster tell of.
    async fn told(objects: Vec<ConfigMap>) -> Vec<Failure> {
        let list = Arc::new(json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": objects}).to_string());
        let service = tower::service_fn(move |_: Request<Body>| {
            let list = Arc::clone(&list);
            async move { Ok::<_, kube::Error>(Response::new(Body::from(list.as_bytes().to_vec()))) }
        });
        failures(&Client::new(service, "default"), Range { namespace: None, share: None }, now()).await.unwrap()
    }

    #[tokio::test]
    async fn failures_of_the_last_hour_are_read_from_receipts_of_restarts() {
        let web = owner("default", "web");
        let receipt = |before, decision, failed: &[Failed<'_>]| packed(&web.pool, at(before), decision, failed);
        let (key, other) = receipt(7, Decision::ScaleDown, &[(Some("n-4"), None)]);
        let text = "n".repeat(NAME_BYTES + 1);
        let long = text.as_str();
        let receipts = [
            receipt(3_600, Decision::Restart, &[(Some("n-1"), None)]),
            receipt(3_599, Decision::Restart, &[(Some("n-2"), Some("runner:1")), (None, Some("runner:2"))]),
            receipt(10, Decision::Restart, &[]),
            receipt(9, Decision::Restart, &[(None, None), (Some(long), None), (Some("n-5"), Some(long))]),
            receipt(-10, Decision::Restart, &[(Some("n-3"), None)]),
            (key.replacen("scale-down", "restart", 1), other.clone()),
            (key, other),
            (format!("restart.{}", record::id(at(5), 0)), ByteString(b"damaged".to_vec())),
            (format!("restart.{}", record::id(at(4), 0)), ByteString(bundle::pack(&vec![b' '; 8 << 20]))),
            ("restart".to_owned(), ByteString(Vec::new())),
        ];
        let expected = [
            failure(3_599, Some("n-2"), Some("runner:1")),
            failure(3_599, None, Some("runner:2")),
            failure(9, Some("n-5"), None),
        ];
        assert_eq!(told(vec![config_map(&web, receipts)]).await, expected);
        assert_eq!(told(Vec::new()).await, []);
    }

    #[tokio::test]
    async fn nobody_tells_of_the_pools_of_others() {
        let (web, others) = (owner("default", "web"), owner("other", "web"));
        let of = |pool: &Pool, node: &str| packed(pool, at(10), Decision::Restart, &[(Some(node), None)]);
        let mut elsewhere = config_map(&others, [of(&others.pool, "n-1")]);
        elsewhere.metadata.namespace = Some("default".to_owned());
        let mut unowned = config_map(&web, [of(&web.pool, "n-2")]);
        unowned.metadata.owner_references = None;
        let mut named = config_map(&web, [of(&web.pool, "n-3")]);
        named.metadata.name = Some("receipts".to_owned());
        let forged = config_map(&web, [of(&others.pool, "n-4")]);
        assert_eq!(told(vec![elsewhere, unowned, named, forged]).await, []);
        let real = config_map(&others, [of(&others.pool, "n-5")]);
        assert_eq!(told(vec![real]).await, [failure(10, Some("n-5"), None)]);
    }

    #[tokio::test]
    async fn failures_of_one_namespace_do_not_displace_those_of_others() {
        let (greedy, modest) = (owner("greedy", "web"), owner("modest", "web"));
        let many: Vec<Failed<'_>> = vec![(Some("n-1"), None); LIMIT];
        let greedy = config_map(&greedy, (1..4).map(|before| packed(&greedy.pool, at(before), Decision::Restart, &many)));
        let few = (100..110).map(|before| packed(&modest.pool, at(before), Decision::Restart, &[(Some("n-2"), None)]));
        let found = told(vec![greedy, config_map(&modest, few)]).await;
        let of = |node: &str| found.iter().filter(|failure| failure.node.as_deref() == Some(node)).count();
        assert_eq!((of("n-1"), of("n-2"), found.len()), (LIMIT - 10, 10, LIMIT));
        // The newest of each.
        assert!(found.iter().all(|failure| failure.at == at(1) || failure.node.as_deref() == Some("n-2")));
    }

    #[test]
    fn places_are_shared_evenly_and_what_one_does_not_need_is_the_others() {
        for (all, most, expected) in [
            (vec![], 10, 10),
            (vec![3, 4], 10, 10),
            (vec![30, 2], 10, 8),
            (vec![30, 20, 2], 10, 4),
            (vec![9, 9, 9], 10, 3),
            (vec![1, 1, 1], 2, 0),
        ] {
            assert_eq!(share(all.clone(), most), expected, "{all:?}");
        }
    }

    #[test]
    fn receipts_of_one_namespace_do_not_take_the_time_of_those_of_others() {
        let shelf = |owner: &Owner| {
            let receipt = packed(&owner.pool, at(10), Decision::Restart, &[(Some("n-1"), None)]);
            Shelf::of(config_map(owner, [receipt]), now()).unwrap()
        };
        let (slow, other) = (shelf(&owner("slow", "web")), shelf(&owner("other", "web")));
        let in_time = Instant::now() + PATIENCE;
        let mut told = Told::default();
        told.namespaces.insert("slow".to_owned(), Namespace { spent: SHARE, ..Namespace::default() });
        told.read(&slow, now(), in_time);
        told.read(&other, now(), in_time);
        let late: Vec<bool> = told.namespaces.values().map(|namespace| namespace.is_late).collect();
        assert_eq!((late, told.is_late), (vec![false, true], false));
        // When the time is over, nothing more is read of whoever it is.
        told.read(&other, now(), Instant::now());
        assert!(told.is_late);
        assert_eq!(told.ended(), [failure(10, Some("n-1"), None)]);
    }
}
