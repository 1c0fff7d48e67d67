//! The operator's own recorder: from its stores into a directory.
//!
//! ```text
//! watches --names of what changed, as many as there is room for--> one thread: stores -> chronicle -> files
//! nodes, GitHub --what they are now and then--> the same thread: surroundings -> files
//! ```
//!
//! Only that thread touches the disk, and nobody waits for it. What it could not take in or write down is read anew from the stores, as after a
//! restart.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use kube::ResourceExt as _;
use pacer_api::Runner;
use pacer_api::autoscaler::ScaleTargetKind;
use pacer_cluster::nodes::Nodes;
use pacer_cluster::watch::Range;
use pacer_core::allowed::Allowed;
use pacer_core::shard::Share;
use pacer_github::GitHub;
use pacer_operator::access::Accesses;
use pacer_operator::metrics::RecordingMetrics;
use pacer_operator::stores::Stores;
use pacer_operator::target::{Target, TargetRef};
use pacer_operator::watches::{Change, Watches};
use pacer_policyset::receipts::{Receipts, Written};
use pacer_trace::file::FileError;
use pacer_trace::{Directory, Limits, PoolKind, Record, What};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::chronicle::{Chronicle, Defaults, named};
use super::surroundings::{self, NodeReader, ReadNodes, Reading, Surroundings};
use super::{CHECKPOINT, FLUSH_COMPRESSED, TICK, key};

/// Changes that wait for the thread: those of some seconds in which thousands of jobs start.
const ROOM: usize = 16_384;

/// Characters of what was done that are told; the receipt has all of it.
const SUMMARY: usize = 300;

/// How often the thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(250);

/// How long the files are left alone after a failure.
const RETRY: Duration = Duration::from_secs(30);

/// How long the end of the process waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(3);

/// What is recorded where.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) directory: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) defaults: Defaults,
    /// The namespace that is watched; all when none.
    pub(crate) namespace: Option<String>,
    /// The namespaces of this shard; all when none.
    pub(crate) share: Option<Share>,
    /// Labels of nodes that are told.
    pub(crate) allowed: Arc<Allowed>,
}

/// Records until it is stopped.
#[derive(Debug)]
pub(crate) struct Recorder {
    stop: CancellationToken,
    ended: oneshot::Receiver<()>,
    inbox: Inbox,
    looking: JoinSet<()>,
}

/// What the thread is told.
enum News {
    /// Name of an object that was made, changed or deleted.
    Changed(Change),
    /// How nodes of runners are.
    Nodes(ReadNodes),
    /// Limits and listings at GitHub of each set of credentials.
    GitHub(Vec<Reading>),
    /// A decision left a receipt.
    Receipt(Written),
}

/// What is looked at now and then.
pub(crate) struct Sights {
    pub(crate) accesses: Arc<Accesses>,
    /// The operator's own client, where it has credentials.
    pub(crate) github: Option<GitHub>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) stores: Stores,
}

/// Where news are put.
#[derive(Clone, Debug)]
struct Inbox {
    news: SyncSender<News>,
    missed: Arc<AtomicBool>,
    metrics: RecordingMetrics,
}

impl Inbox {
    fn put(&self, change: Change) {
        if self.news.try_send(News::Changed(change)).is_err() {
            self.missed.store(true, Ordering::Release);
            self.metrics.missed();
        }
    }

    /// What is looked at again soon is no loss.
    fn show(&self, news: News) {
        if self.news.try_send(news).is_err() {
            tracing::debug!("the recorder is busy, so that what it was shown is left out of the trace");
        }
    }
}

/// What the recording thread works with.
struct Clerk {
    setting: Setting,
    stores: Stores,
    news: Receiver<News>,
    missed: Arc<AtomicBool>,
    metrics: RecordingMetrics,
    stop: CancellationToken,
}

impl Recorder {
    /// Begins to record what these watches tell.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub(crate) fn start(
        setting: Setting,
        watches: Watches,
        stores: Stores,
        metrics: &RecordingMetrics,
    ) -> Result<(Self, Watches)> {
        let (news, receiver) = sync_channel(ROOM);
        let inbox = Inbox { news, missed: Arc::default(), metrics: metrics.clone() };
        let stop = CancellationToken::new();
        let clerk =
            Clerk { setting, stores, news: receiver, missed: inbox.missed.clone(), metrics: metrics.clone(), stop: stop.clone() };
        let (end, ended) = oneshot::channel();
        let work = move || {
            clerk.work();
            // Nobody waits where the process ended before.
            let _ = end.send(());
        };
        thread::Builder::new().name("recorder".to_owned()).spawn(work).context("starting the recorder")?;
        let told = inbox.clone();
        let recorder = Self { stop, ended, inbox, looking: JoinSet::new() };
        Ok((recorder, watches.telling(move |change| told.put(change))))
    }

    /// Records what left a receipt as well.
    pub(crate) fn read(&self, receipts: &Receipts) {
        let inbox = self.inbox.clone();
        receipts.when_written(move |written| inbox.show(News::Receipt(written)));
    }

    /// Records nodes and GitHub as well.
    pub(crate) fn look_at(&mut self, sights: Sights) {
        let (inbox, stop) = (self.inbox.clone(), self.stop.clone());
        self.looking.spawn(async move {
            stop.run_until_cancelled(look(sights, inbox)).await;
        });
    }

    /// Has the last lines written, for as long as that may take.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while self.looking.join_next().await.is_some() {}
        if tokio::time::timeout(LAST_LINES, self.ended).await.is_err() {
            tracing::warn!("the disk of --record is slow, and the end of the trace was not written");
        }
    }
}

/// Looks at nodes and GitHub now and then.
async fn look(sights: Sights, inbox: Inbox) {
    let Sights { accesses, github, nodes, stores } = sights;
    let mut reader = NodeReader::new(nodes);
    let mut look = interval(surroundings::LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        inbox.show(News::GitHub(surroundings::readings(&accesses, github.as_ref())));
        let node = |runner: &Runner| runner.status.as_ref()?.node_name.as_deref().map(Arc::from);
        let names = stores.runners.state().iter().filter_map(|runner| node(runner)).collect();
        inbox.show(News::Nodes(reader.read(names).await));
    }
}

impl Clerk {
    fn work(&self) {
        let mut surroundings = Surroundings::default();
        while !self.stop.is_cancelled() {
            let directory = self.setting.directory.display();
            if !self.stores.are_full() {
                thread::sleep(LOOK);
            } else if let Err(error) = self.record(&mut surroundings) {
                self.metrics.failed();
                let retry = RETRY.as_secs();
                tracing::error!(%directory, %error, retry, "the trace of --record can't be written; see that the volume is there, writable and not full");
                self.pause();
            }
        }
    }

    /// Leaves the files alone for a while.
    fn pause(&self) {
        let began = Instant::now();
        while began.elapsed() < RETRY && !self.stop.is_cancelled() {
            thread::sleep(LOOK);
        }
    }

    /// Records until it is stopped, or until something can't be written.
    fn record(&self, surroundings: &mut Surroundings) -> Result<(), FileError> {
        let now = Timestamp::now();
        let (directory, history) = Directory::open(&self.setting.directory, self.setting.limits, now)?;
        let defaults = self.setting.defaults.clone();
        surroundings.tell_nodes_anew();
        let chronicle = Chronicle::new(defaults.clone());
        let mut book = Book { directory, chronicle, surroundings, metrics: &self.metrics };
        if let Some(history) = history {
            let watched = Range { namespace: self.setting.namespace.as_deref(), share: self.setting.share };
            book.chronicle = Chronicle::resumed(defaults, &history, watched);
            book.note(now, What::Resumed { since: history.ended })?;
        }
        let mut policies = self.setting.defaults.policies.as_ref().map(|policies| policies.changes());
        self.take_all(&mut book)?;
        book.directory.flush(now)?;
        let (mut flushed, mut checked, mut ticked, mut since) = (Instant::now(), Instant::now(), Instant::now(), now);
        loop {
            match self.news.recv_timeout(LOOK) {
                Ok(news) => self.take(news, &mut book)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => thread::sleep(LOOK),
            }
            let now = Timestamp::now();
            if self.missed.load(Ordering::Acquire) {
                book.note(now, What::Resumed { since })?;
                self.take_all(&mut book)?;
            }
            since = now;
            let ends = self.stop.is_cancelled();
            if ends {
                // What was told before the end is in the trace: receipts are written last.
                let left: Vec<News> = self.news.try_iter().take(ROOM).collect();
                left.into_iter().try_for_each(|news| self.take(news, &mut book))?;
            }
            if ticked.elapsed() >= TICK {
                if policies.as_mut().is_some_and(have_changed) {
                    book.chronicle.policies_changed(now);
                }
                book.chronicle.time_passes(now);
                book.write()?;
                ticked = Instant::now();
            }
            if ends || checked.elapsed() >= CHECKPOINT {
                book.note(now, What::Checkpoint {})?;
                checked = Instant::now();
            }
            if ends || flushed.elapsed() >= FLUSH_COMPRESSED {
                book.directory.flush(now)?;
                flushed = Instant::now();
            }
            if ends {
                return Ok(());
            }
        }
    }

    /// Everything as it is, and what is not there any more.
    fn take_all(&self, book: &mut Book<'_>) -> Result<(), FileError> {
        // What is told from here on is newer than what is read.
        self.news.try_iter().take(ROOM).for_each(drop);
        self.missed.store(false, Ordering::Release);
        let (now, stores) = (Timestamp::now(), &self.stores);
        let chronicle = &mut book.chronicle;
        // Settings are told once both are known.
        let autoscalers = stores.autoscalers.state();
        autoscalers.iter().for_each(|autoscaler| chronicle.autoscaler(autoscaler, now));
        let targets = stores.targets();
        targets.iter().for_each(|target| chronicle.target(target, now));
        let pools: BTreeSet<String> = targets.iter().map(Target::reference).map(|target| named(&target).to_string()).collect();
        for kind in [PoolKind::RunnerDeployment, PoolKind::RunnerSet] {
            chronicle.targets_are(kind, &pools, now);
        }
        let keys: BTreeSet<String> = autoscalers.iter().map(|autoscaler| key(&**autoscaler)).collect();
        chronicle.autoscalers_are(&keys, now);
        stores.job_ledgers.state().iter().for_each(|ledger| chronicle.jobs(ledger, now));
        let runners = stores.runners.state();
        runners.iter().for_each(|runner| chronicle.runner(runner, now));
        let names: BTreeSet<String> = runners.iter().map(|runner| runner.name_any()).collect();
        chronicle.runners_are(&names, now);
        book.write()
    }

    fn take(&self, news: News, book: &mut Book<'_>) -> Result<(), FileError> {
        let now = Timestamp::now();
        match news {
            News::Changed(change) => {
                self.follow(change, &mut book.chronicle, now);
                let learned = book.chronicle.learned(now);
                book.tell(&learned)
            }
            News::Nodes(read) => {
                let told = book.surroundings.nodes(&read, &self.setting.allowed, now);
                book.tell(&told)
            }
            News::Receipt(written) => book.tell(receipt(written).as_slice()),
            News::GitHub(readings) => {
                let told = book.surroundings.github(readings, now);
                book.tell(&told)
            }
        }
    }

    fn follow(&self, change: Change, chronicle: &mut Chronicle, now: Timestamp) {
        let stores = &self.stores;
        match change {
            Change::Autoscaler(one) => match stores.autoscalers.get(&one) {
                Some(object) => chronicle.autoscaler(&object, now),
                None => chronicle.autoscaler_gone(&format!("{}/{}", one.namespace.unwrap_or_default(), one.name), now),
            },
            Change::Deployment(one) => {
                follow_target(stores, &target(ScaleTargetKind::RunnerDeployment, one.namespace, one.name), chronicle, now);
            }
            Change::RunnerSet(one) => {
                follow_target(stores, &target(ScaleTargetKind::RunnerSet, one.namespace, one.name), chronicle, now);
            }
            Change::JobLedger(one) => {
                if let Some(object) = stores.job_ledgers.get(&one) {
                    chronicle.jobs(&object, now);
                }
            }
            Change::Runner(one) => match stores.runners.get(&one) {
                Some(object) => chronicle.runner(&object, now),
                None => chronicle.runner_gone(&one.name, now),
            },
        }
    }
}

/// Of a Runner or a RunnerReplicaSet that stands alone, traces tell nothing.
fn receipt(written: Written) -> Option<Record> {
    let Written { pool, decision, id, at, policy, summary } = written;
    let kind = match pool.kind.as_str() {
        "RunnerDeployment" => ScaleTargetKind::RunnerDeployment,
        "RunnerSet" => ScaleTargetKind::RunnerSet,
        _ => return None,
    };
    let what = What::Receipt {
        pool: named(&target(kind, Some(pool.namespace), pool.name)),
        decision: Arc::from(decision.as_str()),
        policy: Arc::from(policy),
        summary: summary.chars().take(SUMMARY).collect(),
        receipt: Some(id),
    };
    Some(Record { at, what })
}

/// Whether policies are others than when this was asked last.
fn have_changed(policies: &mut watch::Receiver<u64>) -> bool {
    let changed = policies.has_changed().unwrap_or_default();
    policies.mark_unchanged();
    changed
}

fn follow_target(stores: &Stores, target: &TargetRef, chronicle: &mut Chronicle, now: Timestamp) {
    match stores.target(target) {
        Some(object) => chronicle.target(&object, now),
        None => chronicle.target_gone(target, now),
    }
}

fn target(kind: ScaleTargetKind, namespace: Option<String>, name: String) -> TargetRef {
    TargetRef { kind, namespace: namespace.unwrap_or_default(), name }
}

/// The files, and what is known.
struct Book<'a> {
    directory: Directory,
    chronicle: Chronicle,
    surroundings: &'a mut Surroundings,
    metrics: &'a RecordingMetrics,
}

impl Book<'_> {
    fn note(&mut self, at: Timestamp, what: What) -> Result<(), FileError> {
        self.metrics.recorded(1);
        self.directory.record(&Record { at, what })
    }

    fn write(&mut self) -> Result<(), FileError> {
        let news = self.chronicle.news();
        self.tell(&news)
    }

    fn tell(&mut self, news: &[Record]) -> Result<(), FileError> {
        self.metrics.recorded(news.len() as u64);
        news.iter().try_for_each(|record| self.directory.record(record))
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use pacer_core::shard::Shards;
    use pacer_operator::metrics::Metrics;
    use pacer_operator::tenancy::Tenancies;
    use pacer_operator::watches::watches;
    use pacer_trace::PoolSettings;

    use super::*;
    use crate::record::{LINES_OF_A_FILE, RECORD_BYTES, fixture};

    /// What an operator that watches these namespaces, and finds them empty, adds to a recording of all.
    fn told(namespace: Option<&str>, share: Option<Share>) -> Vec<String> {
        let home = tempfile::tempdir().unwrap();
        let limits = Limits { total: RECORD_BYTES, lines: LINES_OF_A_FILE };
        let pool = |name: &str| What::Pool(PoolSettings { pool: name.into(), max: 2, ..PoolSettings::default() });
        let runner = |name: &str, pool: &str| What::RunnerCreated { runner: name.into(), pool: pool.into() };
        let (mut directory, _) = Directory::open(home.path(), limits, Timestamp::UNIX_EPOCH).unwrap();
        for what in [pool("ci/web"), pool("team-a/web"), runner("web-a", "ci/web"), runner("web-b", "team-a/web")] {
            directory.record(&Record { at: Timestamp::UNIX_EPOCH, what }).unwrap();
        }
        directory.flush(Timestamp::UNIX_EPOCH).unwrap();
        let silence = tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, std::io::Error>>());
        let client = Client::new(silence, "default");
        let (_watches, stores) = watches(&client, Range { namespace, share }, &Tenancies::new(None));
        let (_news, news) = sync_channel(1);
        // It reads everything, and ends.
        let stop = CancellationToken::new();
        stop.cancel();
        let setting = Setting {
            directory: home.path().to_owned(),
            limits,
            defaults: fixture::defaults(),
            namespace: namespace.map(str::to_owned),
            share,
            allowed: Arc::default(),
        };
        let metrics = Metrics::default().recording().clone();
        let clerk = Clerk { setting, stores, news, missed: Arc::default(), metrics, stop };
        clerk.record(&mut Surroundings::default()).unwrap();
        let records = pacer_trace::read(home.path()).unwrap().trace.records;
        fixture::told(records.iter().skip(4))
    }

    #[tokio::test]
    async fn a_recording_that_goes_on_with_fewer_namespaces_tells_nothing_of_the_others() {
        assert_eq!(told(None, None), ["ci/web", "team-a/web", "web-a", "web-b"]);
        assert_eq!(told(Some("ci"), None), ["ci/web", "web-a"]);
        let shards = Shards::new(2).unwrap();
        assert_eq!((shards.of("ci"), shards.of("team-a")), (0, 1));
        assert_eq!(told(None, Some(Share { shards, shard: 1 })), ["team-a/web", "web-b"]);
    }
}
