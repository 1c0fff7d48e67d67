//! Where runners failed of late. What happened before this process began to act is read from receipts, once a policy reads failures.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use pacer_cluster::watch::Range;
use pacer_core::failures::Failures;
use pacer_core::shard::Share;
use pacer_policyset::receipts;

/// How long after receipts could not be listed that is tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// Failures of the last hour.
pub struct FailureLog {
    client: Client,
    namespace: Option<String>,
    share: Option<Share>,
    began: Timestamp,
    known: Mutex<Failures>,
    reading: tokio::sync::Mutex<Reading>,
}

/// What became of the receipts of before.
enum Reading {
    /// They were read.
    Done,
    /// They are to be read, and not before this.
    Due(Option<Instant>),
}

impl FailureLog {
    /// One that knows of none, of a process that acts since `began`.
    #[must_use]
    pub fn new(client: Client, range: Range<'_>, began: Timestamp) -> Self {
        let (namespace, share) = (range.namespace.map(str::to_owned), range.share);
        Self { client, namespace, share, began, known: Mutex::default(), reading: tokio::sync::Mutex::new(Reading::Due(None)) }
    }

    /// A runner failed and was given up.
    pub fn add(&self, node: Option<&str>, image: Option<&str>, now: Timestamp) {
        self.lock().add(node, image, now);
    }

    /// How many runners failed on a node within the last hour.
    #[must_use]
    pub fn on_node(&self, node: &str, now: Timestamp) -> usize {
        self.lock().on_node(node, now)
    }

    /// How many runners of an image failed within the last hour.
    #[must_use]
    pub fn of_image(&self, image: &str, now: Timestamp) -> usize {
        self.lock().of_image(image, now)
    }

    /// Reads what receipts tell of the time before, unless that was done. Whoever asks meanwhile waits.
    pub async fn recall(&self) {
        let mut reading = self.reading.lock().await;
        let Reading::Due(due) = &*reading else { return };
        if due.is_some_and(|due| Instant::now() < due) {
            return;
        }
        let range = Range { namespace: self.namespace.as_deref(), share: self.share };
        match receipts::failures(&self.client, range, self.began).await {
            Ok(past) => {
                tracing::debug!(failures = past.len(), "failures before the start of this process were read from receipts");
                self.lock().recall(past, self.began);
                *reading = Reading::Done;
            }
            Err(error) => {
                tracing::warn!(
                    error = error.to_string(),
                    again_in = AGAIN.as_secs(),
                    "receipts can't be listed: policies that read failures are told only of those since this process began"
                );
                *reading = Reading::Due(Some(Instant::now() + AGAIN));
            }
        }
    }

    /// A poisoned lock only means that somebody panicked between two failures.
    fn lock(&self) -> MutexGuard<'_, Failures> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
