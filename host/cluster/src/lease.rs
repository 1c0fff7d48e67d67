//! Leader election on a Lease.
//!
//! Follows client-go's rules: a lease belongs to another process for as long as it was seen to change within its duration on *this* machine's
//! monotonic clock; the wall clock in it is for people. A leader that can't renew stops at its own deadline, which lies before anybody else
//! may take over, without having to reach the API server.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::fence::Fence;

/// client-go's defaults: 15 s lease, renewed every 2 s, lost after 10 s without success. The five seconds between are for calls that
/// were under way when the right ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// How long others leave a lease alone that does not change.
    pub duration: Duration,
    /// How long after its last success a leader goes on.
    pub renew_deadline: Duration,
    /// Time between attempts.
    pub retry: Duration,
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self { duration: Duration::from_secs(15), renew_deadline: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

/// Which lease, and who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Its name; operators that compete share it.
    pub name: String,
    /// Unique per process.
    pub identity: String,
    /// Clocks.
    pub timing: LeaseTiming,
}

/// Takes and keeps the lease.
pub struct Election {
    leases: Api<Lease>,
    config: LeaseConfig,
    fence: Fence,
    observed: Option<(String, Instant)>,
}

impl Election {
    /// An election through this client, which must not be fenced or throttled by anything else.
    #[must_use]
    pub fn new(client: Client, config: LeaseConfig, fence: Fence) -> Self {
        Self { leases: Api::namespaced(client, &config.namespace), config, fence, observed: None }
    }

    /// Runs until `stop`: announces on `leading` when the lease is ours and when it is lost, and gives it back at the end.
    pub async fn run(mut self, leading: watch::Sender<bool>, stop: CancellationToken) {
        let mut deadline: Option<Instant> = None;
        loop {
            let started = Instant::now();
            let attempt = tokio::time::timeout(self.config.timing.renew_deadline / 2, self.attempt());
            match attempt.await {
                Ok(Ok(true)) => {
                    let until = started + self.config.timing.renew_deadline;
                    self.fence.extend(until);
                    deadline = Some(until);
                    if !*leading.borrow() {
                        tracing::info!(lease = %self.config.name, identity = %self.config.identity, "leading");
                        leading.send_replace(true);
                    }
                }
                Ok(Ok(false)) => {
                    if deadline.take().is_some() {
                        tracing::warn!(lease = %self.config.name, "lease taken by another operator");
                        self.lose(&leading);
                    }
                }
                Ok(Err(error)) => tracing::warn!(%error, lease = %self.config.name, "lease not renewed"),
                Err(_) => tracing::warn!(lease = %self.config.name, "lease not renewed: no answer in time"),
            }
            let wait = deadline.map_or(self.config.timing.retry, |deadline| {
                self.config.timing.retry.min(deadline.saturating_duration_since(Instant::now()))
            });
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(wait) => {}
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                deadline = None;
                tracing::error!(lease = %self.config.name, "lease lost: not renewed in time");
                self.lose(&leading);
            }
        }
        if deadline.is_some() {
            self.lose(&leading);
            let release = tokio::time::timeout(self.config.timing.retry, self.release());
            if !matches!(release.await, Ok(Ok(()))) {
                tracing::warn!(lease = %self.config.name, "lease not given back; others wait until it expires");
            }
        }
    }

    fn lose(&self, leading: &watch::Sender<bool>) {
        self.fence.close();
        leading.send_replace(false);
    }

    /// One try to create, renew or take over. False: another process holds it.
    async fn attempt(&mut self) -> Result<bool, kube::Error> {
        let Some(lease) = self.leases.get_opt(&self.config.name).await? else {
            return conflict_is_false(self.leases.create(&PostParams::default(), &self.ours(None)).await);
        };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if holder != self.config.identity && !holder.is_empty() && !self.expired(&version, &spec) {
            return Ok(false);
        }
        let renewed = self.ours(Some(lease));
        conflict_is_false(self.leases.replace(&self.config.name, &PostParams::default(), &renewed).await)
    }

    /// Whether the lease has not changed for its duration since this process first saw it like this.
    fn expired(&mut self, version: &str, spec: &LeaseSpec) -> bool {
        let duration = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(self.config.timing.duration, Duration::from_secs);
        match &self.observed {
            Some((seen, since)) if seen == version => since.elapsed() >= duration,
            _ => {
                self.observed = Some((version.to_owned(), Instant::now()));
                false
            }
        }
    }

    fn ours(&self, old: Option<Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let mut lease = old.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.config.name.clone()),
                namespace: Some(self.config.namespace.clone()),
                ..ObjectMeta::default()
            },
            ..Lease::default()
        });
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(self.config.identity.as_str()) {
            spec.holder_identity = Some(self.config.identity.clone());
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |transitions| transitions.saturating_add(1)));
        }
        // Rounded up: a lease that others may take earlier than we give it up would let two act at once.
        let seconds = self.config.timing.duration.as_millis().div_ceil(1000);
        spec.lease_duration_seconds = i32::try_from(seconds).ok();
        spec.renew_time = Some(now);
        lease
    }

    async fn release(&self) -> Result<(), kube::Error> {
        let mut lease = self.leases.get(&self.config.name).await?;
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() == Some(self.config.identity.as_str()) {
            spec.holder_identity = Some(String::new());
            spec.renew_time = Some(MicroTime(Timestamp::now()));
            self.leases.replace(&self.config.name, &PostParams::default(), &lease).await?;
        }
        Ok(())
    }
}

fn conflict_is_false(result: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(false),
        Err(error) => Err(error),
    }
}
