//! Failures that receipts tell of, for a process that has just begun to act.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Client, ResourceExt};
use pacer_api::names::label;
use pacer_cluster::page;
use pacer_cluster::watch::Range;
use pacer_core::failures::{AGE, Failure, LIMIT};
use pacer_policy::Decision;
use pacer_policy::record::{self, Record};

/// ConfigMaps that are read at once: some megabytes, where all are full.
const PAGE: u32 = 20;

/// For how long is read at the most; a decision waits for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Failures of the last hour that the receipts of these namespaces tell of, the newest [`LIMIT`] of those that were read in time; the oldest first.
///
/// # Errors
///
/// When receipts can't be listed.
pub async fn failures(client: &Client, range: Range<'_>, now: Timestamp) -> Result<Vec<Failure>, kube::Error> {
    let began = Instant::now();
    let mut found = Vec::new();
    let mut params = ListParams::default().labels(label::RECEIPTS_OF_KIND).limit(PAGE);
    let own = |object: &ConfigMap| range.share.is_none_or(|share| share.has(&object.namespace().unwrap_or_default()));
    loop {
        let take = |object: ConfigMap| {
            if own(&object) {
                found.extend(told_by(object.binary_data.as_ref(), now));
            }
        };
        let Some(next) = page::each(client, range.namespace, &params, take).await? else { break };
        if began.elapsed() > PATIENCE {
            tracing::warn!(
                failures = found.len(),
                seconds = PATIENCE.as_secs(),
                "there are more receipts than could be read in time: not all failures before the start of this process are counted"
            );
            break;
        }
        params = params.continue_token(&next);
    }
    found.sort_by_key(|failure| failure.at);
    found.drain(..found.len().saturating_sub(LIMIT));
    Ok(found)
}

/// Those of one ConfigMap, of the last hour. What can't be read tells of none.
fn told_by(receipts: Option<&BTreeMap<String, ByteString>>, now: Timestamp) -> Vec<Failure> {
    let oldest = record::id(now.saturating_sub(AGE).unwrap_or(now), 0);
    let recent = receipts.into_iter().flatten().filter(|(key, _)| {
        key.split_once('.').is_some_and(|(decision, id)| decision == Decision::Restart.as_str() && id >= oldest.as_str())
    });
    let records = recent.filter_map(|(_, bytes)| Record::read(&bytes.0).ok());
    let failures = records.flat_map(|record| {
        let at = record.at;
        record.items.into_iter().filter_map(move |item| item.failed_on).map(move |failed| Failure {
            at,
            node: failed.node.map(Into::into),
            image: failed.image.map(Into::into),
        })
    });
    failures.filter(|failure| (SignedDuration::ZERO..AGE).contains(&now.duration_since(failure.at))).collect()
}

#[cfg(test)]
mod tests {
    use pacer_policy::record::{Done, FailedOn, Item, Pool, VERSION};
    use pacer_policy::{Answer, Receipt};

    use super::*;

    fn packed(at: Timestamp, decision: Decision, failed: &[(Option<&str>, Option<&str>)]) -> (String, ByteString) {
        let failed_on = |(node, image): &(Option<&str>, Option<&str>)| FailedOn {
            node: node.map(str::to_owned),
            image: image.map(str::to_owned),
        };
        let items =
            failed.iter().map(|of| Item { failed_on: Some(failed_on(of)), ..Item::new("web-1".to_owned(), Done::Replaced) });
        let record = Record {
            version: VERSION,
            id: record::id(at, 7),
            at,
            pool: Pool { kind: "RunnerDeployment".into(), namespace: "default".into(), name: "web".into() },
            receipt: Receipt::unasked(decision, 1),
            input: None,
            answer: Answer::Restart(Vec::new()),
            items: items.chain([Item::new("web-2".to_owned(), Done::Waits { seconds: 1 })]).collect(),
            change: None,
            superseded: 0,
        };
        (format!("{decision}.{}", record.id), ByteString(record.pack(usize::MAX).unwrap()))
    }

    #[test]
    fn failures_of_the_last_hour_are_read_from_receipts_of_restarts() {
        let now = Timestamp::from_second(1_763_816_000).unwrap();
        let at = |before: i64| now - SignedDuration::from_secs(before);
        let receipts = BTreeMap::from([
            packed(at(3_600), Decision::Restart, &[(Some("n-1"), None)]),
            packed(at(3_599), Decision::Restart, &[(Some("n-2"), Some("runner:1")), (None, Some("runner:2"))]),
            packed(at(10), Decision::Restart, &[]),
            packed(at(-10), Decision::Restart, &[(Some("n-3"), None)]),
            (format!("restart.{}", record::id(at(5), 0)), ByteString(b"damaged".to_vec())),
            ("restart".to_owned(), ByteString(Vec::new())),
        ]);
        let told =
            |node: Option<&str>, image: &str| Failure { at: at(3_599), node: node.map(Into::into), image: Some(image.into()) };
        assert_eq!(told_by(Some(&receipts), now), [told(Some("n-2"), "runner:1"), told(None, "runner:2")]);
        assert_eq!(told_by(None, now), []);
    }
}
