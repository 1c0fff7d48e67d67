//! Receipts: records of decisions, kept in the cluster so that they outlive the process, and in the pool's namespace so that they end with it.
//!
//! ```text
//! decision -> leave (never waits)          -> queue -> Writer: packed, collected per pool -> one write for all of a pool -> ConfigMap of the pool
//!          -> keep (waits until written) -/
//! ```
//!
//! Each pool has one ConfigMap, owned by it, with one key per receipt; [`pacer_core::ring`] says which make room for new ones. Only the
//! replica that acts decides, so only it writes. What can't be kept (too many at once, no right to write) is counted and lost.
//!
//! Removals and failures are written down before anything is deleted, so that no kill of the process loses their receipt; a decision waits
//! `PATIENCE` for that at most. What happens all the time (a runner did its job, the number changed) is collected, since a write for each would be one
//! more per runner: half a minute's worth of it is lost when the process is killed.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use pacer_api::{Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet};
use pacer_cluster::object::{MissingMetadata, Uid};
use pacer_cluster::owner::controller;
use pacer_core::ring::Bounds;
use pacer_policy::record::{Change, Done, Item, Pool};
use pacer_policy::{Answer, Decision, Evaluation, Generation, Input, Receipt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

mod failures;
mod recent;
mod store;
mod writer;

pub use failures::failures;
pub use recent::{Brief, Recent};
pub use writer::Writer;

/// Receipts that wait to be packed; more are dropped and counted.
const QUEUE: usize = 256;

/// How long what was decided waits for its receipt to be written.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pools whose last decision is remembered, so that the same is not written down again.
const REMEMBERED: usize = 4_096;

/// The object that receipts are about, and with which they go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pool: Pool,
    uid: Uid,
}

impl Owner {
    /// A Runner that no RunnerReplicaSet owns.
    ///
    /// # Errors
    ///
    /// When it has no UID.
    pub fn runner(runner: &Runner) -> Result<Self, MissingMetadata> {
        Self::of(runner)
    }

    /// The owner of a RunnerReplicaSet, since RunnerReplicaSets come and go with templates; itself where it has none.
    ///
    /// # Errors
    ///
    /// When it has no UID.
    pub fn set(set: &RunnerReplicaSet) -> Result<Self, MissingMetadata> {
        fn owner<K: Resource<DynamicType = ()>>(set: &RunnerReplicaSet) -> Option<Owner> {
            let owner = controller::<K>(set)?;
            let (kind, namespace, name) = (K::kind(&()).into_owned(), set.namespace()?, owner.name.to_owned());
            Some(Owner { pool: Pool { kind, namespace, name }, uid: Uid::new(owner.uid)? })
        }
        owner::<RunnerDeployment>(set).or_else(|| owner::<RunnerSet>(set)).map_or_else(|| Self::of(set), Ok)
    }

    /// Whether it is a Runner.
    #[must_use]
    pub fn is_runner(&self) -> bool {
        self.pool.kind == "Runner"
    }

    /// A RunnerDeployment, a RunnerSet, or an object that none of them owns.
    ///
    /// # Errors
    ///
    /// When it has no UID.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Result<Self, MissingMetadata> {
        let (kind, namespace) = (K::kind(&()).into_owned(), object.namespace().unwrap_or_default());
        Ok(Self { pool: Pool { kind, namespace, name: object.name_any() }, uid: Uid::of(object)? })
    }

    fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: pacer_api::names::API_VERSION.to_owned(),
            kind: self.pool.kind.clone(),
            name: self.pool.name.clone(),
            uid: self.uid.to_string(),
            ..OwnerReference::default()
        }
    }
}

/// A decision that is to leave a receipt.
#[derive(Debug)]
pub struct Draft {
    owner: Owner,
    at: Timestamp,
    receipt: Receipt,
    /// None where no policy was asked.
    input: Option<Input>,
    answer: Answer,
    items: Vec<Item>,
    change: Option<Change>,
    haste: Haste,
}

/// How soon a receipt is written.
#[derive(Debug, Default)]
enum Haste {
    /// Now, because a decision waits for it.
    Now(oneshot::Sender<()>),
    /// Soon, because a user may ask about it.
    #[default]
    Prompt,
    /// It happens all the time.
    Routine,
}

impl Draft {
    /// Of a decision and what was done with each item of its answer.
    #[must_use]
    pub fn new<T: Clone + Into<Answer>>(owner: Owner, evaluation: &Evaluation<T>, items: Vec<Item>, at: Timestamp) -> Self {
        Self {
            owner,
            at,
            receipt: evaluation.receipt.clone(),
            input: Some(evaluation.input.clone()),
            answer: evaluation.answer.clone().into(),
            items,
            change: None,
            haste: Haste::Prompt,
        }
    }

    /// Of runners that go by the operator's own rules, before any policy is asked.
    #[must_use]
    pub fn unasked(owner: Owner, generation: &Generation, items: Vec<Item>, at: Timestamp) -> Self {
        let (receipt, answer) = (Receipt::unasked(Decision::ScaleDown, generation.number()), Answer::ScaleDown(Vec::new()));
        Self { owner, at, receipt, input: None, answer, items, change: None, haste: Haste::Prompt }
    }

    /// Of a decision about the number of runners. Those that are not written yet are told as one as long as the number goes the same way.
    #[must_use]
    pub fn capacity(
        owner: Owner,
        evaluation: Evaluation<pacer_core::policy::CapacityPlan>,
        change: Change,
        at: Timestamp,
    ) -> Self {
        let Evaluation { answer, receipt, input, .. } = evaluation;
        let (items, change, haste) = (Vec::new(), Some(change), Haste::Routine);
        Self { owner, at, receipt, input: Some(input), answer: answer.into(), items, change, haste }
    }

    /// Written when there is time for it.
    #[must_use]
    pub fn routine(self) -> Self {
        Self { haste: Haste::Routine, ..self }
    }

    /// Hash of what was done to which items: receipts that agree in it say the same.
    fn essence(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for Item { name, done, .. } in &self.items {
            name.hash(&mut hasher);
            std::mem::discriminant(done).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Receipts since the process began.
#[derive(Debug, Default)]
pub struct Counters {
    stored: AtomicU64,
    dropped: AtomicU64,
}

impl Counters {
    /// Those that were written.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }

    /// Those that could not be written, or came too fast.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn add_stored(&self, count: usize) {
        self.stored.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn add_dropped(&self, count: usize) {
        self.dropped.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Takes receipts and never waits.
pub struct Receipts {
    queue: Option<mpsc::Sender<Draft>>,
    /// By pool and decision, the essence of the last one.
    last: Mutex<HashMap<(Uid, Decision), u64>>,
    counters: Arc<Counters>,
    recent: Recent,
    written: Arc<OnceLock<Tell>>,
}

/// A receipt that is in the cluster now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Whose runners it is about.
    pub pool: Pool,
    /// Which of the contract's four decisions it records.
    pub decision: Decision,
    /// Id of the receipt; see [`pacer_policy::record::id`].
    pub id: String,
    /// When it was decided.
    pub at: Timestamp,
    /// Who decided: `default@sha256:0123456789ab`, `native`, or `none` where no policy was asked.
    pub policy: String,
    /// What was done.
    pub summary: String,
}

/// See [`Receipts::when_written`].
type Tell = Box<dyn Fn(Written) + Send + Sync>;

impl Receipts {
    /// Where decisions leave their receipts, and what writes them; none where `bounds` allow no receipt.
    #[must_use]
    pub fn new(client: kube::Client, bounds: Bounds, counters: Arc<Counters>) -> (Self, Option<Writer>) {
        let (queue, drafts) = mpsc::channel(QUEUE);
        let keeps = bounds.count > 0 && bounds.bytes > 0;
        let (recent, written) = (Recent::default(), Arc::<OnceLock<Tell>>::default());
        let writer = keeps.then(|| Writer::new(client, bounds, drafts, counters.clone(), recent.clone(), written.clone()));
        (Self { queue: keeps.then_some(queue), last: Mutex::default(), counters, recent, written }, writer)
    }

    /// Has somebody told of each receipt that is written from now on; of a second one nothing is made. `tell` must not wait.
    pub fn when_written(&self, tell: impl Fn(Written) + Send + Sync + 'static) {
        // The first one stays.
        let _ = self.written.set(Box::new(tell));
    }

    /// The newest decisions in a few words; none where no receipts are kept.
    #[must_use]
    pub fn recent(&self) -> Recent {
        self.recent.clone()
    }

    /// Keeps receipts of what is about to be done; returns when they are written, or can't be for now.
    pub async fn keep(&self, drafts: impl IntoIterator<Item = Draft>) {
        let written: Vec<_> = drafts
            .into_iter()
            .map(|draft| {
                let (done, written) = oneshot::channel();
                self.leave(Draft { haste: Haste::Now(done), ..draft });
                written
            })
            .collect();
        if timeout(PATIENCE, join_all(written)).await.is_err() {
            tracing::debug!("a receipt was not written in time: what was decided is done all the same");
        }
    }

    /// Leaves a receipt. Nothing is left when it says what the last one of this pool and decision said and nothing was done.
    pub fn leave(&self, draft: Draft) {
        let Some(queue) = &self.queue else { return };
        if let Some(change) = &draft.change {
            self.recent.note_number(&draft.owner.pool, &draft.receipt.policy, change, draft.at);
        } else {
            let essence = draft.essence();
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.len() > REMEMBERED {
                last.clear();
            }
            let before = last.insert((draft.owner.uid.clone(), draft.receipt.decision), essence);
            // A Runner without a set keeps its name, so the same may well have been done to it again.
            let again = draft.owner.is_runner() && draft.items.iter().any(|item| item.done.acted());
            if before == Some(essence) && !again {
                return;
            }
        }
        if queue.try_send(draft).is_err() {
            self.counters.add_dropped(1);
        }
    }
}

/// What was done with an item whose runner could not be unregistered.
pub fn not_unregistered(error: &impl fmt::Display) -> Done {
    Done::NotUnregistered { error: pacer_core::gate::scrub(&error.to_string(), pacer_core::gate::REASON_BYTES) }
}
