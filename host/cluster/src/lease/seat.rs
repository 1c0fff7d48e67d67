//! One Lease: who holds it, by this machine's monotonic clock.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};

/// A Lease, and since when it has not changed.
pub(super) struct Seat {
    leases: Api<Lease>,
    namespace: String,
    name: String,
    holder: String,
    duration: Duration,
    observed: Option<(String, Instant)>,
    /// As this process wrote it last; none after a write that failed.
    written: Option<Lease>,
}

/// How a Lease stands.
pub(super) enum Standing {
    /// There is none.
    Missing,
    /// It is ours, and was when it was written last.
    Ours(Lease),
    /// It was given back, or has not changed for its duration since this process first saw it like this. In the second case that is who held it.
    Free(Lease),
    /// Another process holds it, and its duration has not passed since it was last seen to change.
    Held {
        /// Identity of the process that holds it.
        holder: String,
        /// After this it is free, unless it changes.
        left: Duration,
    },
}

impl Seat {
    /// The Lease of this name, for this holder.
    pub(super) fn new(client: Client, namespace: &str, name: &str, holder: &str, duration: Duration) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            holder: holder.to_owned(),
            duration,
            observed: None,
            written: None,
        }
    }

    /// How the Lease stands, without a request where this process wrote it last: if others have written it since then, the write that follows fails, and
    /// the next call reads it. So a holder renews with one request, as client-go does.
    pub(super) async fn stand(&mut self) -> Result<Standing, kube::Error> {
        match self.written.take() {
            Some(lease) => Ok(Standing::Ours(lease)),
            None => self.look().await,
        }
    }

    /// The right to it ended: it is read again before it is written.
    pub(super) fn lost(&mut self) {
        self.written = None;
    }

    /// Reads the Lease from the API server and says how it stands.
    pub(super) async fn look(&mut self) -> Result<Standing, kube::Error> {
        let Some(lease) = self.leases.get_opt(&self.name).await? else { return Ok(Standing::Missing) };
        let holder = holder(&lease);
        if holder == Some(self.holder.as_str()) {
            return Ok(Standing::Ours(lease));
        }
        let Some(holder) = holder.map(str::to_owned) else { return Ok(Standing::Free(lease)) };
        let left = self.left(&lease);
        Ok(if left.is_zero() { Standing::Free(lease) } else { Standing::Held { holder, left } })
    }

    /// How long it stays its holder's without a change.
    fn left(&mut self, lease: &Lease) -> Duration {
        let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let duration = seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(self.duration, Duration::from_secs);
        let version = lease.metadata.resource_version.as_deref().unwrap_or_default();
        match &self.observed {
            Some((seen, since)) if seen == version => duration.saturating_sub(since.elapsed()),
            _ => {
                self.observed = Some((version.to_owned(), Instant::now()));
                duration
            }
        }
    }

    /// Creates it, renews it or takes it over as it was read. False when somebody else has written it meanwhile.
    pub(super) async fn write(&mut self, read: Option<Lease>, amend: impl FnOnce(&mut Lease)) -> Result<bool, kube::Error> {
        self.written = None;
        let is_new = read.is_none();
        let mut lease = self.ours(read);
        amend(&mut lease);
        let written = match is_new {
            true => self.leases.create(&PostParams::default(), &lease).await,
            false => self.leases.replace(&self.name, &PostParams::default(), &lease).await,
        };
        self.written = none_for_conflict(written)?;
        Ok(self.written.is_some())
    }

    fn ours(&self, old: Option<Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let mut lease = old.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            ..Lease::default()
        });
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(self.holder.as_str()) {
            spec.holder_identity = Some(self.holder.clone());
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |transitions| transitions.saturating_add(1)));
        }
        // Rounded up: a lease that others may take earlier than we give it up would let two act at once.
        let seconds = self.duration.as_millis().div_ceil(1000);
        spec.lease_duration_seconds = i32::try_from(seconds).ok();
        spec.renew_time = Some(now);
        lease
    }

    /// Gives it back, if it is ours.
    pub(super) async fn release(&mut self, amend: impl FnOnce(&mut Lease)) -> Result<(), kube::Error> {
        self.written = None;
        let mut lease = self.leases.get(&self.name).await?;
        if holder(&lease) == Some(self.holder.as_str()) {
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = Some(String::new());
            spec.renew_time = Some(MicroTime(Timestamp::now()));
            amend(&mut lease);
            self.leases.replace(&self.name, &PostParams::default(), &lease).await?;
        }
        Ok(())
    }
}

/// The Lease could not be written, since others wrote it at the same time each time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("others wrote the Lease at the same time, each time")]
struct Crowded;

/// Whether the Lease is ours was not seen: it was written between each look and the write.
pub(super) fn crowded() -> kube::Error {
    kube::Error::Service(Box::new(Crowded))
}

/// Who holds a Lease, as it says.
pub(super) fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

fn none_for_conflict(result: Result<Lease, kube::Error>) -> Result<Option<Lease>, kube::Error> {
    match result {
        Ok(lease) => Ok(Some(lease)),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => Ok(None),
        Err(error) => Err(error),
    }
}
