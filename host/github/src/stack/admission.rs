//! Deadline and concurrency.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use octocrab::OctoBody;
use tokio::sync::Semaphore;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt};

use crate::error::Fault;
use crate::stack::{Next, Request};

/// The service that octocrab talks to.
pub(crate) type Entrance = BoxCloneSyncService<http::Request<OctoBody>, http::Response<Full<Bytes>>, BoxError>;

/// Lets `concurrency` calls through at a time and as many again as `queue` wait, each for at most `deadline` with all it does.
pub(crate) fn entrance(next: Next, deadline: Duration, concurrency: usize, queue: usize) -> Entrance {
    let concurrency = concurrency.clamp(1, Semaphore::MAX_PERMITS);
    let slots = Arc::new(Semaphore::new(concurrency));
    let places = Arc::new(Semaphore::new(concurrency.saturating_add(queue).min(Semaphore::MAX_PERMITS)));
    let admit = move |request: http::Request<OctoBody>| {
        let (next, slots, places) = (next.clone(), Arc::clone(&slots), Arc::clone(&places));
        async move {
            let _place = places.try_acquire().map_err(|_| Fault::Saturated)?;
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let request = Request::from_parts(parts, body);
            let call = async {
                let _slot = slots.acquire().await.map_err(|_| Fault::Saturated)?;
                next.oneshot(request).await
            };
            let response = tokio::time::timeout(deadline, call).await.map_err(|_| Fault::Deadline(deadline))??;
            Ok::<_, BoxError>(response.map(Full::new))
        }
    };
    BoxCloneSyncService::new(tower::service_fn(admit))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::stack::{Response, service};

    /// Answers after ten seconds; gives the most calls that were in flight at a time.
    fn origin() -> (Next, Arc<AtomicUsize>) {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::clone(&most);
        let next = service(move |_| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&seen));
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(10)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(Response::default())
            }
        });
        (next, most)
    }

    async fn outcomes(entrance: &Entrance, calls: usize) -> Vec<Result<(), Fault>> {
        let calls = (0..calls).map(|_| entrance.clone().oneshot(http::Request::new(OctoBody::empty())));
        let answers = futures::future::join_all(calls).await;
        answers.into_iter().map(|answer| answer.map(drop).map_err(|error| *error.downcast::<Fault>().unwrap())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn calls_wait_for_their_turn_and_the_wait_counts_against_their_deadline() {
        let (next, most) = origin();
        let entrance = entrance(next, Duration::from_secs(25), 3, 100);
        let outcomes = outcomes(&entrance, 9).await;
        assert_eq!(most.load(Ordering::SeqCst), 3);
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 6);
        assert!(outcomes.iter().flat_map(|outcome| outcome.as_ref().err()).all(|fault| matches!(fault, Fault::Deadline(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_refuses_at_once_and_empties_again() {
        let (next, _) = origin();
        let entrance = entrance(next, Duration::from_secs(60), 2, 3);
        let started = tokio::time::Instant::now();
        let first = outcomes(&entrance, 8).await;
        let refused = first.iter().filter(|outcome| matches!(outcome, Err(Fault::Saturated))).count();
        assert_eq!((refused, started.elapsed().as_secs()), (3, 30));
        assert!(outcomes(&entrance, 5).await.iter().all(Result::is_ok));
    }
}
