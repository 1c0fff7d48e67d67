//! The operator's own recorder: from its stores into a directory.
//!
//! ```text
//! watches --names of what changed, as many as there is room for--> one thread: stores -> chronicle -> files
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
use pacer_operator::metrics::RecordingMetrics;
use pacer_operator::stores::Stores;
use pacer_operator::watches::{Change, Watches};
use pacer_trace::file::FileError;
use pacer_trace::{Directory, Limits, Record, What};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::chronicle::{Chronicle, Defaults};
use super::{CHECKPOINT, FLUSH_COMPRESSED, TICK};

/// Changes that wait for the thread: those of some seconds in which thousands of jobs start.
const ROOM: usize = 16_384;

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
}

/// Records until it is stopped.
#[derive(Debug)]
pub(crate) struct Recorder {
    stop: CancellationToken,
    ended: oneshot::Receiver<()>,
}

/// Where the watches put what changed.
#[derive(Clone)]
struct Inbox {
    changes: SyncSender<Change>,
    missed: Arc<AtomicBool>,
    metrics: RecordingMetrics,
}

impl Inbox {
    fn put(&self, change: Change) {
        if self.changes.try_send(change).is_err() {
            self.missed.store(true, Ordering::Release);
            self.metrics.missed();
        }
    }
}

/// The thread.
struct Clerk {
    setting: Setting,
    stores: Stores,
    changes: Receiver<Change>,
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
        let (changes, receiver) = sync_channel(ROOM);
        let inbox = Inbox { changes, missed: Arc::default(), metrics: metrics.clone() };
        let stop = CancellationToken::new();
        let clerk = Clerk {
            setting,
            stores,
            changes: receiver,
            missed: inbox.missed.clone(),
            metrics: metrics.clone(),
            stop: stop.clone(),
        };
        let (end, ended) = oneshot::channel();
        let work = move || {
            clerk.work();
            // Nobody waits where the process ended before.
            let _ = end.send(());
        };
        thread::Builder::new().name("recorder".to_owned()).spawn(work).context("starting the recorder")?;
        Ok((Self { stop, ended }, watches.telling(move |change| inbox.put(change))))
    }

    /// Has the last lines written, for as long as that may take.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if tokio::time::timeout(LAST_LINES, self.ended).await.is_err() {
            tracing::warn!("the disk of --record is slow, and the end of the trace was not written");
        }
    }
}

impl Clerk {
    fn work(&self) {
        while !self.stop.is_cancelled() {
            let directory = self.setting.directory.display();
            if !self.stores.are_full() {
                thread::sleep(LOOK);
            } else if let Err(error) = self.record() {
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
    fn record(&self) -> Result<(), FileError> {
        let now = Timestamp::now();
        let (directory, history) = Directory::open(&self.setting.directory, self.setting.limits, now)?;
        let defaults = self.setting.defaults.clone();
        let mut book = Book { directory, chronicle: Chronicle::new(defaults.clone()), metrics: &self.metrics };
        if let Some(history) = history {
            book.chronicle = Chronicle::resumed(defaults, &history);
            book.note(now, What::Resumed { since: history.ended })?;
        }
        self.take_all(&mut book)?;
        book.directory.flush(now)?;
        let (mut flushed, mut checked, mut ticked, mut since) = (Instant::now(), Instant::now(), Instant::now(), now);
        loop {
            match self.changes.recv_timeout(LOOK) {
                Ok(change) => self.take(change, &mut book)?,
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
            if ticked.elapsed() >= TICK {
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
        self.changes.try_iter().take(ROOM).for_each(drop);
        self.missed.store(false, Ordering::Release);
        let (now, stores) = (Timestamp::now(), &self.stores);
        let chronicle = &mut book.chronicle;
        // Settings are told once both are known.
        stores.autoscalers.state().iter().for_each(|autoscaler| chronicle.autoscaler(autoscaler, now));
        stores.deployments.state().iter().for_each(|deployment| chronicle.deployment(deployment, now));
        stores.job_ledgers.state().iter().for_each(|ledger| chronicle.jobs(ledger, now));
        let runners = stores.runners.state();
        runners.iter().for_each(|runner| chronicle.runner(runner, now));
        let names: BTreeSet<String> = runners.iter().map(|runner| runner.name_any()).collect();
        chronicle.runners_are(&names, now);
        book.write()
    }

    fn take(&self, change: Change, book: &mut Book<'_>) -> Result<(), FileError> {
        let (now, stores) = (Timestamp::now(), &self.stores);
        let chronicle = &mut book.chronicle;
        match change {
            Change::Autoscaler(one) => match stores.autoscalers.get(&one) {
                Some(object) => chronicle.autoscaler(&object, now),
                None => chronicle.autoscaler_gone(&format!("{}/{}", one.namespace.unwrap_or_default(), one.name), now),
            },
            Change::Deployment(one) => match stores.deployments.get(&one) {
                Some(object) => chronicle.deployment(&object, now),
                None => chronicle.deployment_gone(&format!("{}/{}", one.namespace.unwrap_or_default(), one.name)),
            },
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
        book.write()
    }
}

/// The files, and what is known.
struct Book<'a> {
    directory: Directory,
    chronicle: Chronicle,
    metrics: &'a RecordingMetrics,
}

impl Book<'_> {
    fn note(&mut self, at: Timestamp, what: What) -> Result<(), FileError> {
        self.metrics.recorded(1);
        self.directory.record(&Record { at, what })
    }

    fn write(&mut self) -> Result<(), FileError> {
        let news = self.chronicle.news();
        self.metrics.recorded(news.len() as u64);
        news.iter().try_for_each(|record| self.directory.record(record))
    }
}
