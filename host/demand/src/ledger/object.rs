//! One JobLedger: what is known of it, and the writes to it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource, ResourceExt};
use pacer_api::job_ledger::{self, Additions};
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger};
use pacer_cluster::answer::{is_already_exists, is_not_found};
use pacer_cluster::object::Uid;
use pacer_cluster::owner::controller;
use pacer_core::ledger::SHARDS;
use tokio::sync::oneshot;

use super::{LedgerError, lock};

/// Changes that may wait for one object; more are refused. A thousand jobs at once are a big burst.
const WAITING: usize = 10_000;

/// Times that a write is tried when the object comes or goes meanwhile.
const ATTEMPTS: u32 = 4;

/// How long the answer to a write counts for more than a watch that does not show it: a watch that is later has been interrupted, and the
/// object may have been deleted since.
const WATCH_LAG: Duration = Duration::from_secs(30);

/// Jobs that are over and forgotten along with another write, at most.
const FORGOTTEN: usize = 256;

/// The autoscaler to which ledgers belong.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: Uid,
    /// As its objects refer to it.
    owner: OwnerReference,
    /// What the names of its objects begin with.
    prefix: String,
}

impl Owner {
    /// None when the object was never created.
    pub(super) fn of(autoscaler: &HorizontalRunnerAutoscaler) -> Option<Self> {
        Self::new(autoscaler.namespace().unwrap_or_default(), autoscaler.controller_owner_ref(&())?)
    }

    /// None when no autoscaler owns the object.
    pub(super) fn of_ledger(ledger: &JobLedger) -> Option<Self> {
        let uid = controller::<HorizontalRunnerAutoscaler>(ledger)?.uid;
        let owner = ledger.owner_references().iter().find(|owner| owner.uid == uid)?;
        Self::new(ledger.namespace().unwrap_or_default(), owner.clone())
    }

    fn new(namespace: String, owner: OwnerReference) -> Option<Self> {
        let (uid, name) = (Uid::new(&owner.uid)?, owner.name.clone());
        let prefix = job_ledger::prefix(&name, uid.as_str());
        Some(Self { namespace, name, uid, owner, prefix })
    }

    pub(super) fn object_name(&self, shard: u16) -> String {
        job_ledger::name(&self.name, self.uid.as_str(), shard)
    }

    /// Which of its objects has this name; none where somebody else made it.
    pub(super) fn shard(&self, name: &str) -> Option<u16> {
        let number = name.strip_prefix(self.prefix.as_str())?;
        u16::from_str_radix(number, 16).ok().filter(|shard| *shard < SHARDS)
    }

    pub(super) fn reference(&self, shard: u16) -> ObjectRef<JobLedger> {
        ObjectRef::new(&self.object_name(shard)).within(&self.namespace)
    }

    /// `namespace/name`.
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    pub(super) fn refused(&self, error: &kube::Error) -> LedgerError {
        if is_not_found(error) {
            return LedgerError::Gone(self.full_name());
        }
        let (autoscaler, reason) = (self.full_name(), error.to_string());
        if passes(error) { LedgerError::Unavailable { autoscaler, reason } } else { LedgerError::Refused { autoscaler, reason } }
    }

    fn new_object(&self, shard: u16, additions: &Additions) -> Result<JobLedger, serde_json::Error> {
        let mut object = JobLedger::new(&self.object_name(shard), additions.spec(&self.name)?);
        object.metadata.owner_references = Some(vec![self.owner.clone()]);
        Ok(object)
    }
}

/// One object, as this process writes to it.
#[derive(Default)]
pub(super) struct Object {
    waiting: Mutex<Vec<Waiting>>,
    /// Held while a write is under way.
    writing: tokio::sync::Mutex<()>,
    written: Mutex<Written>,
    /// Whether this process made it.
    own: AtomicBool,
}

struct Waiting {
    additions: Additions,
    done: oneshot::Sender<Result<(), LedgerError>>,
}

/// What this process did last, until the watch shows it.
#[derive(Default)]
enum Written {
    #[default]
    Nothing,
    Answered(Instant, Arc<JobLedger>),
    /// UID of the object.
    Deleted(Instant, Option<String>),
}

impl Object {
    /// Whether the watch has shown what this process did last.
    pub(super) fn is_shown(&self) -> bool {
        matches!(*lock(&self.written), Written::Nothing)
    }

    /// The newer of what the watch shows and what the API server answered last.
    pub(super) fn latest(&self, stored: Option<Arc<JobLedger>>) -> Option<Arc<JobLedger>> {
        let mut written = lock(&self.written);
        match &*written {
            Written::Nothing => stored,
            Written::Answered(at, answer) => {
                let shows = |stored: &Arc<JobLedger>| {
                    stored.uid() == answer.uid() && stored.metadata.generation >= answer.metadata.generation
                };
                if at.elapsed() > WATCH_LAG || stored.as_ref().is_some_and(shows) {
                    *written = Written::Nothing;
                    return stored;
                }
                Some(answer.clone())
            }
            Written::Deleted(at, uid) => {
                if at.elapsed() > WATCH_LAG || stored.as_ref().is_none_or(|stored| stored.uid() != *uid) {
                    *written = Written::Nothing;
                    return stored;
                }
                None
            }
        }
    }

    pub(super) fn answered(&self, answer: JobLedger) {
        *lock(&self.written) = Written::Answered(Instant::now(), Arc::new(answer));
    }

    /// Whether this process made the object, so that others put few new jobs into it.
    pub(super) fn is_own(&self) -> bool {
        self.own.load(Ordering::Relaxed)
    }

    pub(super) fn deleted(&self, object: &JobLedger) {
        self.own.store(false, Ordering::Relaxed);
        *lock(&self.written) = Written::Deleted(Instant::now(), object.uid());
    }

    /// Returns once the additions are in the cluster. Safe to be dropped: they may or may not be there then.
    pub(super) async fn write(
        &self,
        writes: &AtomicU64,
        api: &Api<JobLedger>,
        (owner, shard): (&Owner, u16),
        stored: impl Fn() -> Option<Arc<JobLedger>>,
        additions: Additions,
    ) -> Result<(), LedgerError> {
        let mut outcome = self.enqueue(owner, &additions)?;
        loop {
            // Whoever gets the lock writes for all that wait by then.
            let _writing = self.writing.lock().await;
            match outcome.try_recv() {
                Ok(result) => return result,
                Err(oneshot::error::TryRecvError::Empty) => {
                    let batch = std::mem::take(&mut *lock(&self.waiting));
                    let mut all = Additions::default();
                    batch.iter().for_each(|waiting| all.extend(waiting.additions.clone()));
                    let result = self.send(writes, api, (owner, shard), self.latest(stored()), all).await;
                    for waiting in batch {
                        let _dropped = waiting.done.send(result.clone());
                    }
                }
                // The writer was dropped in the middle. Whether its request arrived is not known, and writing it again does no harm.
                Err(oneshot::error::TryRecvError::Closed) => outcome = self.enqueue(owner, &additions)?,
            }
        }
    }

    fn enqueue(&self, owner: &Owner, additions: &Additions) -> Result<oneshot::Receiver<Result<(), LedgerError>>, LedgerError> {
        let (done, outcome) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= WAITING {
            return Err(LedgerError::Full { autoscaler: owner.full_name(), waiting: waiting.len() });
        }
        waiting.push(Waiting { additions: additions.clone(), done });
        Ok(outcome)
    }

    async fn send(
        &self,
        writes: &AtomicU64,
        api: &Api<JobLedger>,
        (owner, shard): (&Owner, u16),
        known: Option<Arc<JobLedger>>,
        additions: Additions,
    ) -> Result<(), LedgerError> {
        let mut exists = known.is_some();
        let patch = known.map_or_else(|| additions.clone(), |known| with_forgotten(&known, &additions, Timestamp::now()));
        let name = owner.object_name(shard);
        let mut last = None;
        for _ in 0..ATTEMPTS {
            writes.fetch_add(1, Ordering::Relaxed);
            let answer = if exists {
                api.patch(&name, &PatchParams::default(), &Patch::Merge(patch.patch())).await
            } else {
                let new = owner.new_object(shard, &additions).map_err(|error| owner.refused(&kube::Error::SerdeError(error)))?;
                api.create(&PostParams::default(), &new).await
            };
            match answer {
                Ok(object) => {
                    if !exists {
                        self.own.store(true, Ordering::Relaxed);
                    }
                    self.answered(object);
                    return Ok(());
                }
                Err(error) if (exists && is_not_found(&error)) || (!exists && is_already_exists(&error)) => {
                    exists = !exists;
                    last = Some(error);
                }
                Err(error) => return Err(owner.refused(&error)),
            }
        }
        let reason = last.map_or_else(String::new, |error| error.to_string());
        Err(LedgerError::Refused { autoscaler: owner.full_name(), reason })
    }
}

/// Whether it is the API server's state, or the way to it, and not the object that is wrong.
fn passes(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::SerdeError(_) => false,
        _ => true,
    }
}

/// The additions, and without jobs that have been over for long enough.
pub(super) fn with_forgotten(known: &JobLedger, additions: &Additions, now: Timestamp) -> Additions {
    let mut patch = Additions::default();
    let over = known.spec.all().filter(|(_, job)| job.is_forgotten(now));
    over.take(FORGOTTEN).for_each(|(id, _)| patch.remove(id));
    // Later changes count: a job that is added is not forgotten.
    patch.extend(additions.clone());
    patch
}
