//! Receipts as they lie in the cluster.

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use pacer_api::names::{annotation, label};
use pacer_policy::{Decision, Record};

use crate::cluster::Cluster;
use crate::denial::unreadable;
use crate::plain::line;

/// The receipts of a namespace, or of all.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    /// What these are the receipts of, in words: `namespace ci`, or `all namespaces`.
    pub(crate) of: String,
    /// Receipts of each pool, in the order of kind and name.
    pub(crate) shelves: Vec<Shelf>,
}

/// The receipts of one pool.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    /// Kind, namespace and name: `RunnerDeployment ci/web`.
    pub(crate) pool: String,
    /// What it may hold, in words.
    pub(crate) bound: String,
    /// How many are no longer there.
    pub(crate) gone: u64,
    /// The oldest first.
    pub(crate) records: Vec<Record>,
    /// Why some can't be read.
    pub(crate) unreadable: Vec<String>,
}

impl Archive {
    /// All receipts of the namespace.
    pub(crate) async fn read(cluster: &Cluster) -> Result<Self> {
        Self::read_from(cluster, false).await
    }

    /// All receipts of the namespace, or of all.
    pub(crate) async fn read_from(cluster: &Cluster, all: bool) -> Result<Self> {
        let of = if all { "all namespaces".to_owned() } else { format!("namespace {}", cluster.namespace) };
        let listed = cluster.list::<ConfigMap>(all, label::RECEIPTS_OF_KIND).await;
        let listed =
            listed.map_err(|error| unreadable(error, format!("the receipts of {of} can't be read"), "list ConfigMaps there"))?;
        let mut shelves: Vec<Shelf> = listed.iter().map(Shelf::read).collect();
        shelves.sort_by(|one, other| one.pool.cmp(&other.pool));
        Ok(Self { of, shelves })
    }

    /// All of them, the oldest first.
    pub(crate) fn records(&self) -> Vec<&Record> {
        let mut records: Vec<&Record> = self.shelves.iter().flat_map(|shelf| &shelf.records).collect();
        records.sort_by(|one, other| one.id.cmp(&other.id));
        records
    }

    /// Why something that is looked for may not be there.
    pub(crate) fn gaps(&self, now: Timestamp) -> String {
        if self.shelves.is_empty() {
            return format!(
                "there are no receipts of {}: nothing has been decided there, it is the wrong namespace (-n), or the operator keeps none \
                 (--receipts-per-pool=0, or without the role pacer-receipts)",
                self.of
            );
        }
        let count: usize = self.shelves.iter().map(|shelf| shelf.records.len()).sum();
        let oldest = self.shelves.iter().filter_map(|shelf| shelf.records.first()).map(|record| record.at).min();
        let oldest = oldest.map_or_else(String::new, |at| format!(", the oldest of {}", when(at, now)));
        let mut text = format!("{count} receipts of {} pools were looked at{oldest}", self.shelves.len());
        for shelf in &self.shelves {
            let (pool, bound) = (line(&shelf.pool), line(&shelf.bound));
            if shelf.gone > 0 {
                text.push_str(&format!("; {pool} had room for {bound}, so {} older ones are gone", shelf.gone));
            }
            if let Some(first) = shelf.unreadable.first() {
                text.push_str(&format!("; {} of {pool} can't be read: {}", shelf.unreadable.len(), line(first)));
            }
        }
        text.push_str(
            "; receipts go with their pool; that a runner was cleared away after its job is written up to half a minute later",
        );
        text
    }
}

impl Shelf {
    fn read(object: &ConfigMap) -> Self {
        let of = |key: &str| object.annotations().get(key).cloned();
        let kind = object.labels().get(label::RECEIPTS_OF_KIND).cloned().unwrap_or_default();
        let name = of(annotation::RECEIPTS_OF).unwrap_or_else(|| object.name_any());
        let mut shelf = Self {
            pool: format!("{kind} {}/{name}", object.namespace().unwrap_or_default()),
            bound: of(annotation::RECEIPTS_BOUND).unwrap_or_default(),
            gone: of(annotation::RECEIPTS_GONE).and_then(|count| count.parse().ok()).unwrap_or(0),
            ..Self::default()
        };
        for (key, bytes) in object.binary_data.iter().flatten() {
            match Record::read(&bytes.0) {
                Ok(record) => shelf.records.push(record),
                Err(error) => shelf.unreadable.push(format!("{key}: {error}")),
            }
        }
        shelf.records.sort_by(|one, other| one.id.cmp(&other.id));
        shelf
    }
}

/// Which receipts.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Only receipts of this pool: a name, or kind/name.
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    /// Only receipts that mention this runner.
    #[arg(long, value_name = "NAME")]
    pub(crate) runner: Option<String>,
    /// Only receipts of this decision: scale-down, restart, capacity or recover.
    #[arg(long)]
    pub(crate) decision: Option<Decision>,
    /// Only this many of the newest receipts.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) last: Option<usize>,
}

impl Filter {
    /// Those of the archive, the oldest first.
    pub(crate) fn of<'a>(&self, archive: &'a Archive) -> Vec<&'a Record> {
        let mut records = archive.records();
        records.retain(|record| {
            let pool = self.pool.as_ref().is_none_or(|pool| belongs(record, pool));
            let runner = self.runner.as_ref().is_none_or(|runner| record.account_of(runner).is_some());
            pool && runner && self.decision.is_none_or(|decision| decision == record.decision())
        });
        let skipped = self.last.map_or(0, |last| records.len().saturating_sub(last));
        records.split_off(skipped)
    }
}

/// Whether a record is about the pool of this name, or kind and name; sets count as themselves too.
fn belongs(record: &Record, pool: &str) -> bool {
    let name = pool.rsplit_once('/').map_or(pool, |(_, name)| name);
    record.pool.name == name || record.input.as_ref().is_some_and(|input| input.pool().name == name)
}

/// `2026-11-22T12:51:02Z (3 min ago)`.
pub(crate) fn when(at: Timestamp, now: Timestamp) -> String {
    let seconds = Timestamp::from_second(at.as_second()).unwrap_or(at);
    format!("{seconds} ({})", ago(at, now))
}

/// `3 min ago`.
pub(crate) fn ago(at: Timestamp, now: Timestamp) -> String {
    match now.duration_since(at).as_secs().max(0) {
        seconds @ 0..120 => format!("{seconds} s ago"),
        seconds @ 120..7_200 => format!("{} min ago", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_in_words() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let words =
            [-5, 0, 119, 120, 7_199, 7_200, 172_800].map(|age| ago(Timestamp::from_second(1_000_000 - age).unwrap(), now));
        assert_eq!(words, ["0 s ago", "0 s ago", "119 s ago", "2 min ago", "119 min ago", "2 h ago", "2 days ago"]);
    }

    #[test]
    fn what_is_missing_is_explained() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let none = Archive { of: "namespace ci".into(), ..Archive::default() }.gaps(now);
        assert!(none.starts_with("there are no receipts of namespace ci: ") && none.contains("--receipts-per-pool=0"), "{none}");
        let shelf =
            Shelf { pool: "RunnerDeployment ci/web".into(), bound: "2 receipts, 9 bytes".into(), gone: 7, ..Shelf::default() };
        let full = Archive { shelves: vec![shelf], ..Archive::default() }.gaps(now);
        assert!(full.contains("RunnerDeployment ci/web had room for 2 receipts, 9 bytes, so 7 older ones are gone"), "{full}");
    }

    #[test]
    fn what_is_missing_is_told_on_one_line_whatever_the_fields_hold() {
        let shelf = Shelf {
            pool: "RunnerDeployment ci/web\nforged".into(),
            bound: "2 receipts\u{1b}[2J".into(),
            gone: 7,
            unreadable: vec!["a\r\nb".into()],
            ..Shelf::default()
        };
        let text = Archive { shelves: vec![shelf], ..Archive::default() }.gaps(Timestamp::UNIX_EPOCH);
        assert!(
            text.contains("; RunnerDeployment ci/web forged had room for 2 receipts [2J, so 7 older ones are gone"),
            "{text:?}"
        );
        assert!(text.contains("; 1 of RunnerDeployment ci/web forged can't be read: a b; "), "{text:?}");
    }
}
