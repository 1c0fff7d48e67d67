//! Leader election on a Lease.
//!
//! Follows client-go's rules: a lease belongs to another process for as long as it was seen to change within its duration on *this* machine's
//! monotonic clock; the wall clock in it is for people. A leader that can't renew stops at its own deadline, which lies before anybody else
//! may take over, without having to reach the API server.

use std::time::{Duration, Instant};

use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::fence::Fence;
use seat::{Seat, Standing};

mod seat;
pub mod shards;

/// Looks at a Lease, each with a write, in one round: others write it as well.
const TRIES: usize = 5;

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
    /// How long the lease lasts, and how often it is renewed or asked for.
    pub timing: LeaseTiming,
}

/// Takes and keeps the lease.
pub struct Election {
    seat: Seat,
    config: LeaseConfig,
    fence: Fence,
    /// Who was seen to hold it last.
    holder: Option<String>,
}

impl Election {
    /// An election through this client, which must not be fenced or throttled by anything else.
    #[must_use]
    pub fn new(client: Client, config: LeaseConfig, fence: Fence) -> Self {
        let seat = Seat::new(client, &config.namespace, &config.name, &config.identity, config.timing.duration);
        Self { seat, config, fence, holder: None }
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
            let release = tokio::time::timeout(self.config.timing.retry, self.seat.release(|_| {}));
            if !matches!(release.await, Ok(Ok(()))) {
                tracing::warn!(lease = %self.config.name, "lease not given back; others wait until it expires");
            }
        }
    }

    fn lose(&self, leading: &watch::Sender<bool>) {
        self.fence.close();
        leading.send_replace(false);
    }

    /// Creates, renews or takes over the Lease. False: another process holds it.
    ///
    /// Only a look proves that. A conflict may come from whoever annotates the Lease, or from an earlier renewal of ours whose answer was late.
    async fn attempt(&mut self) -> Result<bool, kube::Error> {
        for _ in 0..TRIES {
            let read = match self.seat.stand().await? {
                Standing::Held { holder, .. } => {
                    if self.holder.as_ref() != Some(&holder) {
                        tracing::info!(lease = %self.config.name, holder, "another operator leads; waiting for the lease");
                    }
                    self.holder = Some(holder);
                    return Ok(false);
                }
                Standing::Missing => None,
                Standing::Ours(lease) | Standing::Free(lease) => Some(lease),
            };
            if self.seat.write(read, |_| {}).await? {
                return Ok(true);
            }
        }
        Err(seat::crowded())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response, StatusCode};
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::client::Body;
    use serde_json::json;
    use tower::{BoxError, service_fn};

    use super::*;

    /// An API server that has one Lease, and the methods it was called with.
    #[derive(Default)]
    struct Server {
        lease: Option<Lease>,
        version: u64,
        calls: Vec<Method>,
    }

    impl Server {
        fn keep(&mut self, mut lease: Lease) -> Lease {
            self.version += 1;
            lease.metadata.resource_version = Some(self.version.to_string());
            self.lease = Some(lease.clone());
            lease
        }

        /// Somebody else writes it.
        fn change(&mut self, change: impl FnOnce(&mut Lease)) {
            let mut lease = self.lease.clone().unwrap();
            change(&mut lease);
            self.keep(lease);
        }

        fn answer(&mut self, method: &Method, body: &[u8]) -> Result<Lease, StatusCode> {
            self.calls.push(method.clone());
            if *method == Method::GET {
                return self.lease.clone().ok_or(StatusCode::NOT_FOUND);
            }
            let lease: Lease = serde_json::from_slice(body).unwrap();
            let version = |lease: &Lease| lease.metadata.resource_version.clone();
            // A Lease that is gone has no version: whoever names one comes too late.
            match self.lease.as_ref().and_then(version) == version(&lease) {
                true => Ok(self.keep(lease)),
                false => Err(StatusCode::CONFLICT),
            }
        }

        fn calls(&mut self) -> Vec<Method> {
            std::mem::take(&mut self.calls)
        }
    }

    fn client(server: &Arc<Mutex<Server>>) -> Client {
        let server = server.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let (code, answer) = match server.lock().unwrap().answer(&head.method, &body) {
                    Ok(lease) => (StatusCode::OK, serde_json::to_vec(&lease)?),
                    Err(code) => {
                        let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
                        let status = json!({"status": "Failure", "message": "", "reason": reason, "code": code.as_u16()});
                        (code, serde_json::to_vec(&status)?)
                    }
                };
                let mut answer = Response::new(Body::from(answer));
                *answer.status_mut() = code;
                Ok::<_, BoxError>(answer)
            }
        });
        Client::new(service, "ci")
    }

    #[tokio::test]
    async fn holder_renews_with_one_write_and_reads_only_after_somebody_else_has_written() {
        let server = Arc::new(Mutex::new(Server::default()));
        let (namespace, name) = ("ci".to_owned(), "operator".to_owned());
        // However slow the machine is, the time of the lease is not over before the test is.
        let timing = LeaseTiming { duration: Duration::from_secs(86_400), ..LeaseTiming::default() };
        let config = LeaseConfig { namespace, name, identity: "we".to_owned(), timing };
        let mut election = Election::new(client(&server), config, Fence::closed());
        let calls = || server.lock().unwrap().calls();
        assert!(election.attempt().await.unwrap());
        assert_eq!(calls(), [Method::GET, Method::POST]);
        for _ in 0..2 {
            assert!(election.attempt().await.unwrap());
            assert_eq!(calls(), [Method::PUT]);
        }

        let annotate = |lease: &mut Lease| lease.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
        server.lock().unwrap().change(annotate);
        assert!(election.attempt().await.unwrap());
        assert_eq!(calls(), [Method::PUT, Method::GET, Method::PUT]);
        let annotations = server.lock().unwrap().lease.clone().unwrap().metadata.annotations.unwrap();
        assert_eq!(annotations["a"], "b", "what others wrote stays");

        server.lock().unwrap().lease = None;
        assert!(election.attempt().await.unwrap());
        assert_eq!(calls(), [Method::PUT, Method::GET, Method::POST]);

        server.lock().unwrap().change(|lease| lease.spec.as_mut().unwrap().holder_identity = Some("another".to_owned()));
        assert!(!election.attempt().await.unwrap());
        assert!(!election.attempt().await.unwrap(), "it is another's until its time is over");
        assert_eq!(calls(), [Method::PUT, Method::GET, Method::GET]);
    }
}
