//! A decision as it is kept: question, answer, who gave it, and what was done with it. Enough to explain it to somebody and to ask again.
//!
//! A record is JSON, compressed with gzip. It holds what policies are told and what they answer, which is never a secret: names, counts, times,
//! messages of the cluster, settings of policies.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::decision::Decision;
use crate::inquiry::{Answer, Inquiry};
use crate::limits::RAW_BYTES;
use crate::receipt::Receipt;

pub mod account;

/// The form that this version writes. One that can't be read by earlier versions has a higher number.
pub const VERSION: u32 = 1;

/// A decision that was carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", try_from = "Stored")]
pub struct Record {
    /// [`VERSION`] of whoever wrote it.
    pub version: u32,
    /// Names it; grows with time. See [`id`].
    pub id: String,
    /// When it was decided.
    pub at: Timestamp,
    /// Whose runners it was about: what the user made, where the request speaks of one of its sets.
    pub pool: Pool,
    /// Who decided, and what it took.
    pub receipt: Receipt,
    /// What was asked, settings included; none when it was too large for the store, or nobody was asked.
    pub input: Option<Inquiry>,
    /// What was answered, as it passed the gate.
    pub answer: Answer,
    /// What was done with each thing that the answer names.
    pub items: Vec<Item>,
    /// Of a capacity decision: what became of the number of runners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// Earlier decisions that this one took the place of before they were written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub superseded: u32,
}

/// An object that runners belong to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Pool {
    /// `RunnerDeployment`, `RunnerSet`, `RunnerReplicaSet` or `Runner`.
    pub kind: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl std::fmt::Display for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// What the operator did about one runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Item {
    /// Name of the runner.
    pub name: String,
    /// What the operator did about it, or why it did nothing.
    #[serde(flatten)]
    pub done: Done,
    /// Where it failed, when it was given up for a failure that its node or its image may be to blame for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_on: Option<FailedOn>,
}

impl Item {
    /// What was done about a runner that is not known to have failed anywhere.
    #[must_use]
    pub fn new(name: String, done: Done) -> Self {
        Self { name, done, failed_on: None }
    }
}

/// Where a runner failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FailedOn {
    /// The node, where it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Image of its container `runner`, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// What the operator made of an answer about one runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum Done {
    /// GitHub removed its registration, and then it was deleted.
    Removed,
    /// GitHub says that it runs a job: it stays.
    Busy {
        /// GitHub's words.
        message: String,
    },
    /// GitHub could not be asked to remove it: it stays until that was tried again.
    NotUnregistered {
        /// Why its registration could not be removed.
        error: String,
    },
    /// Fewer were wanted and it did nothing: it was deleted before any policy was asked.
    Spare {
        /// How many were wanted.
        wanted: u32,
        /// It had ended; otherwise its container had not started.
        ended: bool,
    },
    /// It was deleted; its set makes another where one is wanted.
    Replaced,
    /// Its pod was deleted and made again.
    Recreated,
    /// It is left as it is, for people to look at.
    Quarantined,
    /// The job that died with it runs again as soon as GitHub allows it.
    Rerun {
        /// GitHub's id of the job.
        job: u64,
    },
    /// The job that died with it stays failed, as its policy has it.
    Left {
        /// GitHub's id of the job.
        job: u64,
    },
    /// The job that died with it stays failed, although its policy wants it to run again.
    NotRerun {
        /// GitHub's id of the job.
        job: u64,
        /// Why the operator refuses to run it again, for people.
        why: String,
    },
    /// Nothing is done yet; it is looked at again later.
    Waits {
        /// It is looked at again after this.
        seconds: u32,
    },
}

impl Done {
    /// Whether the operator changed something in the cluster or at GitHub.
    #[must_use]
    pub fn acted(&self) -> bool {
        match self {
            Self::Removed | Self::Spare { .. } | Self::Replaced | Self::Recreated | Self::Quarantined | Self::Rerun { .. } => {
                true
            }
            Self::Busy { .. } | Self::NotUnregistered { .. } | Self::Left { .. } | Self::NotRerun { .. } | Self::Waits { .. } => {
                false
            }
        }
    }
}

/// What became of the number of runners.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Change {
    /// Wanted number of runners before the decision.
    pub from: u32,
    /// Wanted number of runners after it.
    pub to: u32,
    /// Why, when everything that is not the policy's is reckoned in: bounds, schedules, delays.
    pub reason: String,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Names a record: 16 hexadecimal digits of which the first eleven are milliseconds since 1970, so that later ones sort behind.
#[must_use]
pub fn id(at: Timestamp, random: u64) -> String {
    format!("{:011x}{:05x}", at.as_millisecond().max(0), random & 0xf_ffff)
}

/// Why a record can't be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It is no record, or damaged.
    #[error("it is no receipt, or damaged: {0}")]
    Damaged(String),
    /// It was written by a later version.
    #[error("it has form {0} and this version knows forms up to {VERSION}: use the version of the operator that wrote it")]
    Newer(u32),
}

impl Record {
    /// Whether a policy was asked: some things the operator does by its own rules.
    #[must_use]
    pub fn was_asked(&self) -> bool {
        !self.receipt.attempts.is_empty()
    }

    /// The decision that its receipt names.
    #[must_use]
    pub fn decision(&self) -> Decision {
        self.receipt.decision
    }

    /// Reads one: JSON, or JSON compressed with gzip.
    ///
    /// # Errors
    ///
    /// When it is damaged, or of a later version.
    pub fn read(bytes: &[u8]) -> Result<Self, RecordError> {
        let damaged = |error: &dyn std::fmt::Display| RecordError::Damaged(error.to_string());
        let json = unpacked(bytes).map_err(|error| damaged(&error))?;
        let value: Value = serde_json::from_slice(&json).map_err(|error| damaged(&error))?;
        match value.get("version").and_then(Value::as_u64).and_then(|version| u32::try_from(version).ok()) {
            Some(version) if version > VERSION => Err(RecordError::Newer(version)),
            _ => serde_json::from_value(value).map_err(|error| damaged(&error)),
        }
    }

    /// Compressed, in at most so many bytes. One that is too large is kept without its input; none when even that is too large.
    #[must_use]
    pub fn pack(mut self, most: usize) -> Option<Vec<u8>> {
        if let Some(packed) = self.compressed(most) {
            return Some(packed);
        }
        self.input = None;
        self.compressed(most)
    }

    fn compressed(&self, most: usize) -> Option<Vec<u8>> {
        // Plain structs always serialise, and writing into memory does not fail.
        let json = serde_json::to_vec(self).ok()?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&json).ok()?;
        let packed = encoder.finish().ok()?;
        (json.len() <= RAW_BYTES && packed.len() <= most).then_some(packed)
    }
}

/// Where runners failed, as a record tells it. Nothing else of the record is read: whoever may write ConfigMaps of a namespace may have written it, and the rest
/// may take many times its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedRunners {
    /// When it was decided.
    pub at: Timestamp,
    /// Whose runners it was about.
    pub pool: Pool,
    /// Which decision it records.
    pub decision: Decision,
    /// Where each of those failed that did.
    pub on: Vec<FailedOn>,
}

impl FailedRunners {
    /// Reads them of a record, JSON or JSON compressed with gzip, of at most [`RAW_BYTES`] in all, which is what [`Record::pack`] writes at most.
    ///
    /// # Errors
    ///
    /// When it is damaged, or of a later version.
    pub fn read(bytes: &[u8]) -> Result<Self, RecordError> {
        let damaged = |error: &dyn std::fmt::Display| RecordError::Damaged(error.to_string());
        let json = unpacked(bytes).map_err(|error| damaged(&error))?;
        let stored: StoredFailures = serde_json::from_slice(&json).map_err(|error| damaged(&error))?;
        if stored.version > VERSION {
            return Err(RecordError::Newer(stored.version));
        }
        let on = stored.items.into_iter().filter_map(|item| item.failed_on).map(|failed| *failed).collect();
        Ok(Self { at: stored.at, pool: stored.pool, decision: stored.receipt.decision, on })
    }
}

/// What [`FailedRunners`] reads of a record.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct StoredFailures {
    version: u32,
    at: Timestamp,
    pool: Pool,
    receipt: StoredDecision,
    #[serde(default)]
    items: Vec<StoredItem>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct StoredDecision {
    decision: Decision,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct StoredItem {
    /// An item of two bytes that says nothing takes no more than this pointer.
    #[serde(default)]
    failed_on: Option<Box<FailedOn>>,
}

/// A record whose question and answer are still to be read: their JSON does not say which decision they are about, the receipt does.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Stored {
    version: u32,
    id: String,
    at: Timestamp,
    pool: Pool,
    receipt: Receipt,
    #[serde(default)]
    input: Option<Value>,
    answer: Value,
    #[serde(default)]
    items: Vec<Item>,
    #[serde(default)]
    change: Option<Change>,
    #[serde(default)]
    superseded: u32,
}

impl TryFrom<Stored> for Record {
    type Error = serde_json::Error;

    fn try_from(stored: Stored) -> Result<Self, serde_json::Error> {
        let Stored { version, id, at, pool, receipt, input, answer, items, change, superseded } = stored;
        let input = input.map(|input| Inquiry::read(receipt.decision, input)).transpose()?;
        let answer = Answer::read(receipt.decision, answer)?;
        Ok(Self { version, id, at, pool, receipt, input, answer, items, change, superseded })
    }
}

/// The JSON of a record, which may be compressed. Records are the operator's own; it writes them, and `pacer explain` reads them.
fn unpacked(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let most = u64::try_from(RAW_BYTES).unwrap_or(u64::MAX);
    let mut json = Vec::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        GzDecoder::new(bytes).take(most).read_to_end(&mut json)?;
    } else {
        json.extend_from_slice(bytes);
    }
    Ok(json)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use pacer_core::policy::{Candidate, Node, Pool as AskedPool, ScaleDownRequest};
    use proptest::prelude::*;

    use super::*;
    use crate::host::PolicyHost;
    use crate::observer::Counters;

    /// A scale-down of so many candidates, decided by the shipped policy.
    pub(crate) async fn scale_down(candidates: u32, surplus: u32) -> Record {
        let request = ScaleDownRequest {
            now: 1_763_816_000.123,
            pool: AskedPool {
                namespace: "default".into(),
                name: "web-7f9c".into(),
                kind: "RunnerReplicaSet".into(),
                ..AskedPool::default()
            },
            nodes: vec![Node { name: "n-1".into(), runners: 2, ..Node::default() }],
            candidates: (0..candidates)
                .map(|n| Candidate {
                    name: format!("web-{n}"),
                    idle: n * 60,
                    age: n * 60 + 100,
                    node: Some(0),
                    current: true,
                    ..Candidate::default()
                })
                .collect(),
            surplus,
            ..ScaleDownRequest::default()
        };
        let host = PolicyHost::new(Arc::new(Counters::default()));
        let evaluation = host.generation().scale_down(request).await;
        let at = Timestamp::from_millisecond(1_763_816_000_123).unwrap();
        let items = evaluation.answer.iter().map(|choice| Item::new(format!("web-{}", choice.index), Done::Removed));
        Record {
            version: VERSION,
            id: id(at, 0xabcde),
            at,
            pool: Pool { kind: "RunnerDeployment".into(), namespace: "default".into(), name: "web".into() },
            items: items.collect(),
            input: Some(evaluation.input.inquiry()),
            answer: evaluation.answer.into(),
            receipt: evaluation.receipt,
            change: None,
            superseded: 0,
        }
    }

    #[tokio::test]
    async fn what_was_kept_is_what_was_asked_and_answered() {
        let record = scale_down(5, 2).await;
        let packed = record.clone().pack(1 << 20).unwrap();
        let read = Record::read(&packed).unwrap();
        assert_eq!(read, record);
        // The digests are of the very bytes, after a way through the store as well.
        assert_eq!(read.input.as_ref().unwrap().digest().to_string(), record.receipt.input_hash);
        assert_eq!(read.answer.digest().to_string(), record.receipt.output_hash);
        assert_eq!(Record::read(&serde_json::to_vec_pretty(&record).unwrap()).unwrap(), record);
        assert!(packed.len() < 2_000, "{}", packed.len());
    }

    #[tokio::test]
    async fn one_that_is_too_large_loses_its_input_first() {
        let record = scale_down(400, 1).await;
        let whole = record.clone().pack(usize::MAX).unwrap().len();
        let abridged = Record::read(&record.clone().pack(whole - 1).unwrap()).unwrap();
        assert_eq!(abridged, Record { input: None, ..record.clone() });
        assert_eq!(record.pack(100), None);
    }

    #[tokio::test]
    async fn where_runners_failed_is_read_of_a_record_and_nothing_else() {
        let mut record = scale_down(3, 2).await;
        let failed = FailedOn { node: Some("n-1".to_owned()), image: None };
        record.items[1].failed_on = Some(failed.clone());
        let told = FailedRunners { at: record.at, pool: record.pool.clone(), decision: Decision::ScaleDown, on: vec![failed] };
        assert_eq!(FailedRunners::read(&record.clone().pack(1 << 20).unwrap()).unwrap(), told);
        let mut odd = serde_json::to_value(&record).unwrap();
        odd["input"] = "of another form".into();
        assert_eq!(FailedRunners::read(odd.to_string().as_bytes()).unwrap(), told);
        odd["version"] = 2.into();
        assert!(matches!(FailedRunners::read(odd.to_string().as_bytes()), Err(RecordError::Newer(2))));
        // Of what grows beyond all bounds no more is decompressed than a record may have.
        let bomb = crate::bundle::pack(&vec![b' '; 2 * RAW_BYTES]);
        assert!(bomb.len() < 20_000, "{}", bomb.len());
        for bytes in [&bomb[..], b"{}", b"", b"[1]"] {
            assert!(matches!(FailedRunners::read(bytes), Err(RecordError::Damaged(_))));
        }
    }

    #[tokio::test]
    async fn what_is_no_record_says_so() {
        let record = scale_down(1, 1).await;
        let mut newer = serde_json::to_value(&record).unwrap();
        newer["version"] = 2.into();
        newer["answer"] = "of another form".into();
        let error = |bytes: &[u8]| Record::read(bytes).unwrap_err().to_string();
        assert!(error(newer.to_string().as_bytes()).contains("form 2"));
        for bytes in [&b"{}"[..], b"", b"\x1f\x8b nonsense", b"[1]"] {
            assert!(error(bytes).starts_with("it is no receipt"), "{}", error(bytes));
        }
        let mut wrong = serde_json::to_value(&record).unwrap();
        wrong["receipt"]["decision"] = "restart".into();
        assert!(error(wrong.to_string().as_bytes()).contains("candidates"));
    }

    proptest! {
        #[test]
        fn later_records_have_greater_names(one in 0_i64..4_000_000_000_000, more in 1_i64..1_000_000, a: u64, b: u64) {
            let at = |millis| Timestamp::from_millisecond(millis).unwrap();
            prop_assert!(id(at(one), a) < id(at(one + more), b));
            prop_assert_eq!(id(at(one), a).len(), 16);
        }
    }
}
