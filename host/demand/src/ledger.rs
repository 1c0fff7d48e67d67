//! The ledger's storage: JobLedgers, over which the jobs of each HorizontalRunnerAutoscaler are spread.
//!
//! Any replica of the webhook receiver writes a job there before it answers, and the controller writes what it finds out. Nobody reads before
//! a write: what is known comes from a watch and from the answers to own writes, and a write only adds fields, so that writers can't undo each
//! other's work ([`pacer_api::job_ledger`]). Changes that arrive while a write of the same object is under way go out together with the next one.
//!
//! Read first: [`Ledgers::change`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use pacer_api::autoscaler::PolledJob;
use pacer_api::job_ledger::Additions;
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, status_ledger};
use pacer_cluster::answer::{is_conflict, is_not_found, status};
use pacer_cluster::index::{Changed, Index};
use pacer_cluster::object::Uid;
use pacer_cluster::owner::controller;
use pacer_cluster::precedence::Precedence;
use pacer_cluster::seed::Seed;
use pacer_core::backoff::doubled;
use pacer_core::ledger::{Change, Job, JobEvent, LIMIT, Ledger, SHARDS, Size, State, Terms};
use serde_json::json;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;

mod object;
mod view;

use object::{Object, Owner};
use view::View;

/// Workflows without jobs that a JobLedger may hold before they are removed.
const UNUSED_WORKFLOWS: usize = 16;

/// A change of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// GitHub said something about a job.
    Event {
        /// What GitHub said about the job.
        event: JobEvent,
        /// How long a queued job counts without a further event.
        life: Duration,
        /// Its runner takes further jobs, so that its end is remembered for longer.
        lasting: bool,
    },
    /// A job is over, by evidence other than an event: its ID.
    Complete(u64),
    /// A job is still queued and counts for another while.
    Renew {
        /// GitHub's id of the job.
        id: u64,
        /// How long the job counts from now on, unless a further event of it comes.
        life: Duration,
    },
    /// What became of a job can't be found out: its ID.
    Forget(u64),
}

impl Edit {
    fn job(&self) -> u64 {
        match self {
            Self::Event { event, .. } => event.id,
            Self::Complete(id) | Self::Forget(id) | Self::Renew { id, .. } => *id,
        }
    }

    /// Whether GitHub tells of a job that waits. Of what jobs do later there is as much again, at the pace at which runners come; it is stored
    /// beside the making of further runners.
    fn is_of_a_waiting_job(&self) -> bool {
        matches!(self, Self::Event { event, .. } if event.state == State::Queued)
    }

    fn apply(&self, ledger: &mut Ledger, now: Timestamp) -> Change {
        let changed = |changed| if changed { Change::Advanced } else { Change::None };
        let terms = |life: &Duration| Terms { queued: *life, limit: LIMIT };
        match self {
            Self::Event { event, life, lasting } => {
                let change = ledger.apply(event, &terms(life), now);
                if *lasting && change != Change::None {
                    ledger.remember(event.id, now);
                }
                change
            }
            Self::Complete(id) => changed(ledger.complete(*id, now)),
            Self::Renew { id, life } => changed(ledger.renew(*id, &terms(life), now)),
            Self::Forget(id) => changed(ledger.forget(*id)),
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
    #[error("{waiting} changes of the ledger of {autoscaler} wait already; the Kubernetes API is too slow or away")]
    Full {
        /// `namespace/name`.
        autoscaler: String,
        /// How many wait for one of its objects.
        waiting: usize,
    },
    /// The autoscaler does not exist (any more).
    #[error("HorizontalRunnerAutoscaler {0} does not exist")]
    Gone(String),
    /// The API server refuses it, and would again.
    #[error("writing the ledger of {autoscaler} failed: {reason}")]
    Refused {
        /// `namespace/name`.
        autoscaler: String,
        /// What the API server said.
        reason: String,
    },
    /// The API server is not there, or has too much to do: this passes.
    #[error("writing the ledger of {autoscaler} failed: {reason}")]
    Unavailable {
        /// `namespace/name`.
        autoscaler: String,
        /// What the API server, or the way to it, said.
        reason: String,
    },
}

impl LedgerError {
    /// Whether the same write may succeed a moment later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// When trying again makes sense, for `Retry-After`. None: never.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Gone(_) => None,
            Self::Full { .. } | Self::Refused { .. } | Self::Unavailable { .. } => Some(Duration::from_secs(5)),
        }
    }
}

/// Pauses between tries to write while the API server is away; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The ledgers of all autoscalers.
pub struct Ledgers {
    client: Client,
    precedence: Precedence,
    /// From which number on this process looks for one for a new object.
    first: u16,
    stored: Mutex<Stored>,
    /// By UID of the autoscaler.
    books: Mutex<HashMap<Uid, Arc<Book>>>,
    overflows: AtomicU64,
    writes: AtomicU64,
}

/// What the watch shows.
struct Stored {
    index: Index<JobLedger, Uid>,
    changes: broadcast::Receiver<Arc<Changed<JobLedger, Uid>>>,
    /// Nothing of it has been read.
    is_new: bool,
}

impl Stored {
    fn new(index: Index<JobLedger, Uid>) -> Self {
        Self { changes: index.changes(), index, is_new: true }
    }
}

/// The ledger of one autoscaler, as this process knows it.
struct Book {
    owner: Owner,
    /// Its objects that this process has written to, by shard.
    written: Mutex<BTreeMap<u16, Arc<Object>>>,
    /// What all of them said when they were last read.
    view: Mutex<View>,
    stale: Mutex<Stale>,
}

/// Which objects may say something else than when they were last read.
enum Stale {
    All,
    Some(BTreeSet<u16>),
}

impl Stale {
    fn add(&mut self, shard: u16) {
        if let Self::Some(shards) = self {
            shards.insert(shard);
        }
    }
}

impl Book {
    fn new(owner: Owner) -> Self {
        Self { owner, written: Mutex::default(), view: Mutex::default(), stale: Mutex::new(Stale::All) }
    }

    fn object(&self, shard: u16) -> Arc<Object> {
        Arc::clone(lock(&self.written).entry(shard).or_default())
    }

    /// Reads again what may say something else by now.
    fn view(&self, stored: &Mutex<Stored>) -> MutexGuard<'_, View> {
        let mut view = lock(&self.view);
        // Before the store is known: where it is exchanged meanwhile, everything becomes stale once more.
        let stale = std::mem::replace(&mut *lock(&self.stale), Stale::Some(BTreeSet::new()));
        if matches!(&stale, Stale::Some(shards) if shards.is_empty()) {
            return view;
        }
        let index = lock(stored).index.clone();
        let shards = match stale {
            Stale::Some(shards) => shards,
            Stale::All => {
                let shard = |object: Arc<JobLedger>| self.owner.shard(object.metadata.name.as_deref()?);
                let stored = index.get(&self.owner.uid).into_iter().filter_map(shard);
                let written = lock(&self.written);
                stored.chain(view.objects().keys().copied()).chain(written.keys().copied()).collect()
            }
        };
        for shard in shards {
            let stored = index.store().get(&self.owner.reference(shard));
            let stored = stored.filter(|object| owner(object).contains(&self.owner.uid));
            let written = lock(&self.written).get(&shard).cloned();
            let Some(object) = written else {
                view.set(shard, stored);
                continue;
            };
            view.set(shard, object.latest(stored));
            // The watch tells of it, but not where it was interrupted meanwhile.
            if !object.is_shown() {
                lock(&self.stale).add(shard);
            }
        }
        view
    }

    /// Whether this process made the object with this number.
    fn is_own(&self, shard: u16) -> bool {
        lock(&self.written).get(&shard).is_some_and(|object| object.is_own())
    }
}

/// By which autoscaler's UID a JobLedger is found.
#[must_use]
pub fn owner(ledger: &JobLedger) -> Vec<Uid> {
    controller::<HorizontalRunnerAutoscaler>(ledger).and_then(|owner| Uid::new(owner.uid)).into_iter().collect()
}

/// What an edit comes to.
struct Planned {
    change: Change,
    /// What is to be added to which JobLedger of the autoscaler, by shard.
    additions: Vec<(u16, Additions)>,
}

impl Ledgers {
    /// Writes through this client, before what waits for that by this precedence; the store, indexed by [`owner`], shows what others wrote.
    #[must_use]
    pub fn new(client: Client, precedence: Precedence, stored: Index<JobLedger, Uid>) -> Self {
        let stored = Mutex::new(Stored::new(stored));
        let first = u16::try_from(Seed::default().draw() % u64::from(SHARDS)).unwrap_or_default();
        Self {
            client,
            precedence,
            first,
            stored,
            books: Mutex::default(),
            overflows: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        }
    }

    /// From now on another store, which has to be full, shows what others wrote.
    pub fn read_from(&self, stored: Index<JobLedger, Uid>) {
        *lock(&self.stored) = Stored::new(stored);
    }

    /// What is known of an autoscaler's objects by now.
    fn view<'a>(&self, book: &'a Book) -> MutexGuard<'a, View> {
        self.follow();
        book.view(&self.stored)
    }

    /// Tells every book what it has to read again of the store.
    fn follow(&self) {
        let (mut stored, mut books) = (lock(&self.stored), lock(&self.books));
        let mut all = std::mem::take(&mut stored.is_new);
        loop {
            let changed = match stored.changes.try_recv() {
                Ok(changed) => changed,
                Err(TryRecvError::Lagged(_)) => {
                    all = true;
                    continue;
                }
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            };
            match &*changed {
                Changed::All => all = true,
                Changed::One { object, keys } => match keys.first().and_then(|uid| books.get(uid)) {
                    Some(book) => {
                        if let Some(shard) = book.owner.shard(&object.name) {
                            lock(&book.stale).add(shard);
                        }
                    }
                    None => stored.index.store().get(object).iter().for_each(|ledger| open(&mut books, ledger)),
                },
            }
        }
        if all {
            books.values().for_each(|book| *lock(&book.stale) = Stale::All);
            stored.index.store().state().iter().for_each(|ledger| open(&mut books, ledger));
        }
    }

    /// Takes note of what GitHub said about a job of this autoscaler; `life` is how long a queued job counts. Returns once it is in the cluster,
    /// or once it is known to be there already.
    ///
    /// # Errors
    ///
    /// When it is not: it may be recorded again.
    pub async fn record(
        &self,
        autoscaler: &HorizontalRunnerAutoscaler,
        event: JobEvent,
        life: Duration,
        lasting: bool,
    ) -> Result<Recorded, LedgerError> {
        self.change(autoscaler, &[Edit::Event { event, life, lasting }]).await
    }

    /// As [`Ledgers::record`], tried again until `deadline` while the API server is away or has too much to do.
    ///
    /// # Errors
    ///
    /// As [`Ledgers::record`].
    pub async fn record_by(
        &self,
        deadline: tokio::time::Instant,
        autoscaler: &HorizontalRunnerAutoscaler,
        event: &JobEvent,
        life: Duration,
        lasting: bool,
    ) -> Result<Recorded, LedgerError> {
        let mut last = None;
        let trying = async {
            let mut tries = 0;
            loop {
                match self.record(autoscaler, event.clone(), life, lasting).await {
                    Err(error) if error.is_passing() => last = Some(error),
                    outcome => return outcome,
                }
                tries += 1;
                tokio::time::sleep(doubled(FIRST_PAUSE, LONGEST_PAUSE, tries)).await;
            }
        };
        let outcome = tokio::time::timeout_at(deadline, trying).await;
        outcome.unwrap_or_else(|_| {
            let full_name = || format!("{}/{}", autoscaler.namespace().unwrap_or_default(), autoscaler.name_any());
            let silent = || LedgerError::Unavailable { autoscaler: full_name(), reason: "no answer in time".to_owned() };
            Err(last.unwrap_or_else(silent))
        })
    }

    /// Changes a ledger; as [`Ledgers::record`].
    ///
    /// # Errors
    ///
    /// As [`Ledgers::record`]; some of the changes may be in the cluster.
    pub async fn change(&self, autoscaler: &HorizontalRunnerAutoscaler, edits: &[Edit]) -> Result<Recorded, LedgerError> {
        // Looking at all objects is for nothing then, and most passes have nothing to say.
        if edits.is_empty() {
            return Ok(Recorded { changes: Vec::new() });
        }
        let owner = Owner::of(autoscaler).ok_or_else(|| LedgerError::Gone(autoscaler.name_any()))?;
        let now = Timestamp::now();
        let book = self.book(&owner);
        let earlier = earlier(autoscaler);
        let mut additions: BTreeMap<u16, Additions> = BTreeMap::new();
        let mut changes = Vec::with_capacity(edits.len());
        {
            let view = self.view(&book);
            let is_own = |shard| book.is_own(shard);
            let mut places = Places::new(&view, &is_own, self.first);
            for edit in edits {
                let planned = plan(edit, &view, &mut places, &earlier, now);
                planned.additions.into_iter().for_each(|(shard, more)| additions.entry(shard).or_default().extend(more));
                changes.push(planned.change);
            }
        }
        let overflows = changes.iter().filter(|change| **change == Change::Overflow).count();
        self.overflows.fetch_add(u64::try_from(overflows).unwrap_or(u64::MAX), Ordering::Relaxed);
        let _first = edits.iter().any(Edit::is_of_a_waiting_job).then(|| self.precedence.storing());
        self.write(&owner, additions).await?;
        Ok(Recorded { changes })
    }

    /// Takes note of a change of a JobLedger: where it has a job that waits and that nobody here has read of, another process, such as a replica of
    /// `pacer webhook`, is storing jobs, and goes before what waits for that.
    pub fn notice(&self, object: &JobLedger) {
        let Some(book) = owner(object).first().and_then(|owner| lock(&self.books).get(owner).cloned()) else { return };
        let view = lock(&book.view);
        let is_waiting = |id| object.spec.job(id).is_some_and(|job| job.state == State::Queued);
        if object.spec.ids().any(|id| !view.has(id) && is_waiting(id)) {
            self.precedence.stored_elsewhere();
        }
    }

    /// Every job of an autoscaler. Costs what its JobLedgers that have changed since the last time hold.
    #[must_use]
    pub fn read(&self, autoscaler: &HorizontalRunnerAutoscaler) -> Arc<Ledger> {
        let jobs = Owner::of(autoscaler).map(|owner| self.view(&self.book(&owner)).jobs().clone()).unwrap_or_default();
        if earlier(autoscaler).is_empty() {
            return jobs;
        }
        Arc::new(with_earlier(autoscaler, jobs.all().map(|(id, job)| (id, job.clone()))))
    }

    /// UIDs of the autoscalers in whose ledgers a job is.
    #[must_use]
    pub fn knowing(&self, job: u64) -> Vec<Uid> {
        self.follow();
        let books: Vec<Arc<Book>> = lock(&self.books).values().cloned().collect();
        let has = |book: &&Arc<Book>| book.view(&self.stored).has(job);
        let mut found: Vec<Uid> = books.iter().filter(has).map(|book| book.owner.uid.clone()).collect();
        found.sort();
        found
    }

    /// Moves what an earlier version kept in the autoscaler's status, and deletes objects that hold nothing any more.
    ///
    /// # Errors
    ///
    /// When the API server did not do its part; nothing is lost, and it may be done again.
    pub async fn tidy(&self, autoscaler: &HorizontalRunnerAutoscaler) -> Result<(), LedgerError> {
        let Some(owner) = Owner::of(autoscaler) else { return Ok(()) };
        self.adopt(&owner, autoscaler).await?;
        let now = Timestamp::now();
        let objects = self.view(&self.book(&owner)).objects().clone();
        for (shard, object) in objects {
            // The first one stays: the next job would make it again.
            if shard > 0 && object.spec.all().all(|(_, job)| job.is_forgotten(now)) {
                self.delete(&owner, shard, &object).await?;
            } else if object.spec.workflows.len() > UNUSED_WORKFLOWS && object.spec.unused_workflows().count() > UNUSED_WORKFLOWS
            {
                self.remove_workflows(&owner, shard, &object).await?;
            }
        }
        Ok(())
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

    /// Keeps only what belongs to these autoscalers, and what still has objects: an autoscaler may be known later than those.
    pub fn retain(&self, exists: impl Fn(&Uid) -> bool) {
        self.follow();
        let books: Vec<Arc<Book>> = lock(&self.books).values().cloned().collect();
        let is_over = |book: &&Arc<Book>| !exists(&book.owner.uid) && book.view(&self.stored).objects().is_empty();
        let over: Vec<&Uid> = books.iter().filter(is_over).map(|book| &book.owner.uid).collect();
        lock(&self.books).retain(|autoscaler, _| !over.contains(&autoscaler));
    }

    fn book(&self, owner: &Owner) -> Arc<Book> {
        let mut books = lock(&self.books);
        Arc::clone(books.entry(owner.uid.clone()).or_insert_with(|| Arc::new(Book::new(owner.clone()))))
    }

    async fn write(&self, owner: &Owner, additions: BTreeMap<u16, Additions>) -> Result<(), LedgerError> {
        if additions.is_empty() {
            return Ok(());
        }
        let (book, api) = (self.book(owner), self.api(owner));
        let (book, api) = (&book, &api);
        let writes = additions.into_iter().map(|(shard, additions)| async move {
            let object = book.object(shard);
            let stored = || lock(&self.stored).index.store().get(&owner.reference(shard));
            let written = object.write(&self.writes, api, (owner, shard), stored, additions).await;
            lock(&book.stale).add(shard);
            written
        });
        join_all(writes).await.into_iter().collect()
    }

    async fn adopt(&self, owner: &Owner, autoscaler: &HorizontalRunnerAutoscaler) -> Result<(), LedgerError> {
        let Some(status) = autoscaler.status.as_ref().filter(|status| !status.ledger.is_empty()) else { return Ok(()) };
        let earlier = earlier(autoscaler);
        let mut additions: BTreeMap<u16, Additions> = BTreeMap::new();
        {
            let book = self.book(owner);
            let view = self.view(&book);
            let is_own = |shard| book.is_own(shard);
            let mut places = Places::new(&view, &is_own, self.first);
            for (id, job) in earlier.all() {
                additions.entry(places.next()).or_default().put(id, job);
            }
        }
        self.write(owner, additions).await?;
        let api: Api<HorizontalRunnerAutoscaler> = Api::namespaced(self.client.clone(), &owner.namespace);
        self.writes.fetch_add(1, Ordering::Relaxed);
        let answer = match status.ledger_revision {
            Some(revision) => {
                let operations = json!([
                    {"op": "test", "path": "/status/ledgerRevision", "value": revision},
                    {"op": "remove", "path": "/status/ledger"},
                    {"op": "replace", "path": "/status/ledgerRevision", "value": revision.saturating_add(1)},
                ]);
                let patch: json_patch::Patch =
                    serde_json::from_value(operations).map_err(|error| owner.refused(&kube::Error::SerdeError(error)))?;
                api.patch_status(&owner.name, &PatchParams::default(), &Patch::<()>::Json(patch)).await
            }
            None => {
                let patch = json!({"metadata": {"resourceVersion": autoscaler.resource_version()}, "status": {"ledger": null}});
                api.patch_status(&owner.name, &PatchParams::default(), &Patch::Merge(patch)).await
            }
        };
        match answer {
            Ok(_) => Ok(()),
            // An earlier version wrote again meanwhile: the watch will show it.
            Err(error) if is_conflict(&error) || status_code(&error) == Some(422) => Ok(()),
            Err(error) => Err(owner.refused(&error)),
        }
    }

    async fn delete(&self, owner: &Owner, shard: u16, object: &JobLedger) -> Result<(), LedgerError> {
        // Whoever adds to it first keeps it.
        let unchanged = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
        let parameters = DeleteParams { preconditions: Some(unchanged), ..DeleteParams::default() };
        self.writes.fetch_add(1, Ordering::Relaxed);
        match self.api(owner).delete(&owner.object_name(shard), &parameters).await {
            Ok(_) => {
                let book = self.book(owner);
                book.object(shard).deleted(object);
                lock(&book.stale).add(shard);
                Ok(())
            }
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            Err(error) => Err(owner.refused(&error)),
        }
    }

    async fn remove_workflows(&self, owner: &Owner, shard: u16, object: &JobLedger) -> Result<(), LedgerError> {
        let nothing: BTreeMap<&str, Option<()>> = object.spec.unused_workflows().map(|key| (key, None)).collect();
        // A job that was added since may refer to one of them.
        let patch = json!({"metadata": {"resourceVersion": object.resource_version()}, "spec": {"workflows": nothing}});
        self.writes.fetch_add(1, Ordering::Relaxed);
        match self.api(owner).patch(&owner.object_name(shard), &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(answer) => {
                let book = self.book(owner);
                book.object(shard).answered(answer);
                lock(&book.stale).add(shard);
                Ok(())
            }
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            Err(error) => Err(owner.refused(&error)),
        }
    }

    fn api(&self, owner: &Owner) -> Api<JobLedger> {
        Api::namespaced(self.client.clone(), &owner.namespace)
    }
}

/// The jobs of one autoscaler, from the JobLedgers that a listing shows.
#[must_use]
pub fn jobs_of(autoscaler: &HorizontalRunnerAutoscaler, ledgers: &[JobLedger]) -> Ledger {
    let uid = autoscaler.metadata.uid.as_deref();
    let owned =
        |ledger: &&JobLedger| uid.is_some() && controller::<HorizontalRunnerAutoscaler>(*ledger).map(|owner| owner.uid) == uid;
    with_earlier(autoscaler, ledgers.iter().filter(owned).flat_map(|ledger| ledger.spec.all()))
}

/// The jobs that an autoscaler knows: those of [`jobs_of`], and those that polling alone tells of. A ledger that has one by now knows more of it.
#[must_use]
pub fn jobs_known_to(autoscaler: &HorizontalRunnerAutoscaler, ledgers: &[JobLedger]) -> Ledger {
    let ledger = jobs_of(autoscaler, ledgers);
    let polled = autoscaler.status.iter().flat_map(|status| &status.polled_jobs).filter_map(PolledJob::read);
    let polled: Vec<(u64, Job)> = polled.filter(|(id, _)| ledger.get(*id).is_none()).collect();
    if polled.is_empty() {
        return ledger;
    }
    Ledger::from_jobs(ledger.all().map(|(id, job)| (id, job.clone())).chain(polled))
}

/// These jobs, and those that an earlier version kept in the autoscaler's status.
fn with_earlier(autoscaler: &HorizontalRunnerAutoscaler, jobs: impl Iterator<Item = (u64, Job)>) -> Ledger {
    Ledger::from_jobs(jobs.chain(earlier(autoscaler).all().map(|(id, job)| (id, job.clone()))))
}

/// An object that was made by another process may be the first of its autoscaler.
fn open(books: &mut HashMap<Uid, Arc<Book>>, ledger: &JobLedger) {
    if let Some(owner) = Owner::of_ledger(ledger) {
        books.entry(owner.uid.clone()).or_insert_with(|| Arc::new(Book::new(owner)));
    }
}

/// What an edit comes to, given what is known of the autoscaler's objects.
fn plan(edit: &Edit, view: &View, places: &mut Places<'_>, earlier: &Ledger, now: Timestamp) -> Planned {
    let id = edit.job();
    let holders = view.said(id);
    let known = holders.iter().map(|(_, job)| job).chain(earlier.get(id)).map(|job| (id, Job::clone(job)));
    let mut ledger = Ledger::from_jobs(known);
    let is_new = ledger.is_empty();
    let change = edit.apply(&mut ledger, now);
    if is_new && change != Change::None && places.jobs() >= LIMIT {
        return Planned { change: Change::Overflow, additions: Vec::new() };
    }
    let addition = |shard: u16| {
        let mut addition = Additions::default();
        match ledger.get(id) {
            Some(job) => addition.put(id, job),
            None => addition.remove(id),
        }
        (shard, addition)
    };
    let additions = match (change, ledger.get(id)) {
        (Change::None | Change::Overflow, _) => Vec::new(),
        (Change::Added | Change::Advanced, None) => holders.iter().map(|(shard, _)| addition(*shard)).collect(),
        (Change::Added | Change::Advanced, Some(_)) => {
            vec![addition(holders.first().map_or_else(|| places.next(), |(shard, _)| *shard))]
        }
    };
    Planned { change, additions }
}

/// Into which objects new jobs go.
struct Places<'a> {
    view: &'a View,
    /// Whether this process made an object.
    is_own: &'a dyn Fn(u16) -> bool,
    /// From which number on one is looked for for a new object.
    first: u16,
    /// Of each object, with the jobs that are about to be written; most events are of jobs that are known, and need none of it.
    sizes: Option<BTreeMap<u16, Size>>,
    /// Jobs that are about to be written.
    placed: usize,
}

impl<'a> Places<'a> {
    fn new(view: &'a View, is_own: &'a dyn Fn(u16) -> bool, first: u16) -> Self {
        Self { view, is_own, first, sizes: None, placed: 0 }
    }

    /// How many there are.
    fn jobs(&self) -> usize {
        self.view.jobs().len().saturating_add(self.placed)
    }

    /// Into which object the next job goes that is in none of them.
    fn next(&mut self) -> u16 {
        let sizes = self.sizes.get_or_insert_with(|| {
            let size = |shard, object: &JobLedger| Size { jobs: object.spec.jobs.len(), own: (self.is_own)(shard) };
            self.view.objects().iter().map(|(shard, object)| (*shard, size(*shard, object))).collect()
        });
        let shard = pacer_core::ledger::place(sizes, self.first);
        let size = sizes.entry(shard).or_insert(Size { jobs: 0, own: true });
        size.jobs = size.jobs.saturating_add(1);
        self.placed = self.placed.saturating_add(1);
        shard
    }
}

/// What an earlier version kept in the status.
fn earlier(autoscaler: &HorizontalRunnerAutoscaler) -> Ledger {
    autoscaler.status.as_ref().map(|status| status_ledger::read(&status.ledger)).unwrap_or_default()
}

fn status_code(error: &kube::Error) -> Option<u16> {
    status(error).map(|status| status.code)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
