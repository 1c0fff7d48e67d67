//! The ledger's storage: the status of HorizontalRunnerAutoscalers.
//!
//! Any replica of the webhook receiver writes a job there before it answers, and the controller writes what polling finds. Writers agree by `status.ledgerRevision`, which each one tests and raises; nothing else in the object gets in their way. Changes that
//! arrive while a write is under way go out together with the next one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, ResourceExt};
use pacer_api::{HorizontalRunnerAutoscaler, job_ledger};
use pacer_cluster::answer::{is_conflict, is_not_found, status};
use pacer_core::ledger::{Change, JobEvent, LIMIT, Ledger, Terms};
use serde_json::json;
use tokio::sync::oneshot;

/// Changes that may wait per autoscaler; more are refused. A thousand jobs at once are a big burst.
const WAITING: usize = 10_000;

/// Times a write is tried when others write at the same time.
const ATTEMPTS: u32 = 12;

/// A change of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// GitHub said something about a job.
    Event {
        /// What.
        event: JobEvent,
        /// How long a queued job counts without a further event.
        life: Duration,
    },
    /// A job is over, by evidence other than an event: its ID.
    Complete(u64),
    /// A job is still queued and counts for another while.
    Renew {
        /// Its id.
        id: u64,
        /// How long.
        life: Duration,
    },
    /// What became of a job can't be found out: its ID.
    Forget(u64),
    /// Expired tombstones are removed.
    Sweep,
}

impl Edit {
    fn apply(&self, ledger: &mut Ledger, now: Timestamp) -> Change {
        let changed = |changed| if changed { Change::Advanced } else { Change::None };
        let terms = |life: &Duration| Terms { queued: *life, limit: LIMIT };
        match self {
            Self::Event { event, life } => ledger.apply(event, &terms(life), now),
            Self::Complete(id) => changed(ledger.complete(*id, now)),
            Self::Renew { id, life } => changed(ledger.renew(*id, &terms(life), now)),
            Self::Forget(id) => changed(ledger.forget(*id)),
            Self::Sweep => changed(ledger.sweep(now) > 0),
        }
    }
}

/// What became of the changes, one for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// In the order given.
    pub changes: Vec<Change>,
}

/// Why a change is not in the cluster.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LedgerError {
    /// More changes wait than may.
    #[error("{WAITING} changes of the ledger of {0} wait already; the Kubernetes API is too slow or away")]
    Full(String),
    /// The autoscaler does not exist (any more).
    #[error("HorizontalRunnerAutoscaler {0} does not exist")]
    Gone(String),
    /// The API server did not take it.
    #[error("writing the ledger of {autoscaler} failed: {reason}")]
    Refused {
        /// `namespace/name`.
        autoscaler: String,
        /// What the API server, or the way to it, said.
        reason: String,
    },
}

impl LedgerError {
    /// When trying again makes sense, for `Retry-After`. None: never.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Gone(_) => None,
            Self::Full(_) | Self::Refused { .. } => Some(Duration::from_secs(5)),
        }
    }
}

/// Writes the ledgers of all autoscalers.
pub struct Ledgers {
    client: Client,
    writers: Mutex<HashMap<ObjectRef<HorizontalRunnerAutoscaler>, Arc<Writer>>>,
    overflows: AtomicU64,
    writes: AtomicU64,
}

#[derive(Default)]
struct Writer {
    waiting: Mutex<Vec<Waiting>>,
    /// The ledger as this process wrote it last. Held while a write is under way.
    known: tokio::sync::Mutex<Option<Known>>,
}

struct Waiting {
    edits: Arc<[Edit]>,
    done: oneshot::Sender<Result<Recorded, LedgerError>>,
}

struct Known {
    revision: Option<i64>,
    resource_version: Option<String>,
    has_status: bool,
    ledger: Ledger,
}

impl Ledgers {
    /// Writes through this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, writers: Mutex::default(), overflows: AtomicU64::new(0), writes: AtomicU64::new(0) }
    }

    /// Takes note of what GitHub said about a job of this autoscaler, as a watch shows it; `life` is how long a queued job counts. Returns once
    /// it is in the cluster, or once it is known to be there already.
    ///
    /// # Errors
    ///
    /// When it is not: nothing of it counts then, and it may be recorded again.
    pub async fn record(
        &self,
        autoscaler: &HorizontalRunnerAutoscaler,
        event: JobEvent,
        life: Duration,
    ) -> Result<Recorded, LedgerError> {
        let edits = vec![Edit::Event { event, life }];
        self.change_seen(&ObjectRef::from_obj(autoscaler), edits, Some(autoscaler)).await
    }

    /// Changes a ledger; as [`Ledgers::record`].
    ///
    /// # Errors
    ///
    /// As [`Ledgers::record`].
    pub async fn change(
        &self,
        autoscaler: &ObjectRef<HorizontalRunnerAutoscaler>,
        edits: Vec<Edit>,
    ) -> Result<Recorded, LedgerError> {
        self.change_seen(autoscaler, edits, None).await
    }

    /// A watch may know of the writes of others before this process runs into them, which costs two more requests.
    async fn change_seen(
        &self,
        autoscaler: &ObjectRef<HorizontalRunnerAutoscaler>,
        edits: Vec<Edit>,
        seen: Option<&HorizontalRunnerAutoscaler>,
    ) -> Result<Recorded, LedgerError> {
        let edits: Arc<[Edit]> = edits.into();
        let writer = Arc::clone(lock(&self.writers).entry(autoscaler.clone()).or_default());
        let mut outcome = writer.enqueue(&edits, autoscaler)?;
        loop {
            {
                // Whoever gets the lock writes for all that wait by then.
                let mut known = writer.known.lock().await;
                match outcome.try_recv() {
                    Ok(result) => return result,
                    Err(oneshot::error::TryRecvError::Empty) => {
                        let batch = std::mem::take(&mut *lock(&writer.waiting));
                        if let Some(seen) = seen {
                            update_from_watch(&mut known, seen);
                        }
                        self.write(autoscaler, batch, &mut known).await;
                    }
                    // The writer was dropped in the middle. Whether its request arrived is not known, and writing it again does no harm.
                    Err(oneshot::error::TryRecvError::Closed) => outcome = writer.enqueue(&edits, autoscaler)?,
                }
            }
        }
    }

    /// Jobs that were not kept because a ledger was full.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.overflows.load(Ordering::Relaxed)
    }

    /// Writes to the API server.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Keeps only what belongs to these autoscalers.
    pub fn retain(&self, exists: impl Fn(&ObjectRef<HorizontalRunnerAutoscaler>) -> bool) {
        lock(&self.writers).retain(|autoscaler, _| exists(autoscaler));
    }

    async fn write(&self, autoscaler: &ObjectRef<HorizontalRunnerAutoscaler>, batch: Vec<Waiting>, known: &mut Option<Known>) {
        let result = self.try_write(autoscaler, &batch, known).await;
        match result {
            Ok(changes) => {
                let overflows = changes.iter().flatten().filter(|change| **change == Change::Overflow).count();
                self.overflows.fetch_add(u64::try_from(overflows).unwrap_or(u64::MAX), Ordering::Relaxed);
                for (waiting, changes) in batch.into_iter().zip(changes) {
                    let _dropped = waiting.done.send(Ok(Recorded { changes }));
                }
            }
            Err(error) => {
                *known = None;
                for waiting in batch {
                    let _dropped = waiting.done.send(Err(error.clone()));
                }
            }
        }
    }

    async fn try_write(
        &self,
        autoscaler: &ObjectRef<HorizontalRunnerAutoscaler>,
        batch: &[Waiting],
        known: &mut Option<Known>,
    ) -> Result<Vec<Vec<Change>>, LedgerError> {
        let api: Api<HorizontalRunnerAutoscaler> =
            Api::namespaced(self.client.clone(), autoscaler.namespace.as_deref().unwrap_or_default());
        let mut conflict = String::new();
        for _ in 0..ATTEMPTS {
            // Taken out: what this process knows counts again only when the write went well.
            let before = match known.take() {
                Some(known) => known,
                None => Known::of(&api.get(&autoscaler.name).await.map_err(|error| refused(autoscaler, &error))?),
            };
            let mut ledger = before.ledger.clone();
            let now = Timestamp::now();
            let changes: Vec<Vec<Change>> =
                batch.iter().map(|waiting| waiting.edits.iter().map(|edit| edit.apply(&mut ledger, now)).collect()).collect();
            if ledger == before.ledger {
                *known = Some(before);
                return Ok(changes);
            }
            ledger.sweep(now);
            self.writes.fetch_add(1, Ordering::Relaxed);
            match send(&api, &autoscaler.name, &before, &ledger).await {
                Ok(object) => {
                    *known = Some(Known::of(&object));
                    return Ok(changes);
                }
                // 409: the object changed; 422: the test of the revision failed.
                Err(error) if is_conflict(&error) || status(&error).is_some_and(|status| status.code == 422) => {
                    conflict = error.to_string();
                }
                Err(error) => return Err(refused(autoscaler, &error)),
            }
        }
        Err(LedgerError::Refused { autoscaler: name(autoscaler), reason: conflict })
    }
}

impl Writer {
    fn enqueue(
        &self,
        edits: &Arc<[Edit]>,
        autoscaler: &ObjectRef<HorizontalRunnerAutoscaler>,
    ) -> Result<oneshot::Receiver<Result<Recorded, LedgerError>>, LedgerError> {
        let (done, outcome) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        if waiting.iter().map(|waiting| waiting.edits.len()).sum::<usize>() >= WAITING {
            return Err(LedgerError::Full(name(autoscaler)));
        }
        waiting.push(Waiting { edits: edits.clone(), done });
        Ok(outcome)
    }
}

/// Replaces what this process knows by what a watch shows, if that is newer.
fn update_from_watch(known: &mut Option<Known>, seen: &HorizontalRunnerAutoscaler) {
    let revision = |revision: Option<i64>| revision.unwrap_or_default();
    let shown = revision(seen.status.as_ref().and_then(|status| status.ledger_revision));
    if known.as_ref().is_none_or(|known| revision(known.revision) < shown) {
        *known = Some(Known::of(seen));
    }
}

impl Known {
    fn of(object: &HorizontalRunnerAutoscaler) -> Self {
        let status = object.status.as_ref();
        Self {
            revision: status.and_then(|status| status.ledger_revision),
            resource_version: object.resource_version(),
            has_status: status.is_some(),
            ledger: status.map(|status| job_ledger::read(&status.ledger)).unwrap_or_default(),
        }
    }
}

async fn send(
    api: &Api<HorizontalRunnerAutoscaler>,
    name: &str,
    before: &Known,
    ledger: &Ledger,
) -> Result<HorizontalRunnerAutoscaler, kube::Error> {
    let entries = job_ledger::write(ledger);
    let next = before.revision.unwrap_or_default().saturating_add(1);
    let parameters = PatchParams::default();
    if let (true, Some(revision)) = (before.has_status, before.revision) {
        let operations = json!([
            {"op": "test", "path": "/status/ledgerRevision", "value": revision},
            {"op": "add", "path": "/status/ledger", "value": entries},
            {"op": "replace", "path": "/status/ledgerRevision", "value": next},
        ]);
        let patch: json_patch::Patch = serde_json::from_value(operations).map_err(kube::Error::SerdeError)?;
        return api.patch_status(name, &parameters, &Patch::<()>::Json(patch)).await;
    }
    // The first one: there is no revision to test yet, so the whole object must be as it was read.
    let patch = json!({
        "metadata": {"resourceVersion": before.resource_version},
        "status": {"ledger": entries, "ledgerRevision": next},
    });
    api.patch_status(name, &parameters, &Patch::Merge(patch)).await
}

fn refused(autoscaler: &ObjectRef<HorizontalRunnerAutoscaler>, error: &kube::Error) -> LedgerError {
    if is_not_found(error) {
        return LedgerError::Gone(name(autoscaler));
    }
    LedgerError::Refused { autoscaler: name(autoscaler), reason: error.to_string() }
}

fn name(autoscaler: &ObjectRef<HorizontalRunnerAutoscaler>) -> String {
    format!("{}/{}", autoscaler.namespace.as_deref().unwrap_or_default(), autoscaler.name)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
