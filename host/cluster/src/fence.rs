//! The fence: the right to change anything ends on a local clock, and no server has to be reached for that.
//!
//! Every change in the cluster passes [`FenceLayer`]; every change at GitHub asks [`Fence::holds`] first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, ready};
use futures::{FutureExt, TryFutureExt};
use http::{Method, Request};
use tower::{BoxError, Layer, Service};

/// The right to act, until a moment on the monotonic clock.
#[derive(Clone, Debug)]
pub struct Fence {
    origin: Instant,
    /// End of the right, in milliseconds after `origin`; 0 when closed.
    until: Arc<AtomicU64>,
}

impl Fence {
    /// Nobody may act until the right is [extended](Self::extend).
    #[must_use]
    pub fn closed() -> Self {
        Self { origin: Instant::now(), until: Arc::default() }
    }

    /// Acting is always allowed: there is only one operator.
    #[must_use]
    pub fn open() -> Self {
        Self { origin: Instant::now(), until: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// Allows acting until `deadline`.
    pub fn extend(&self, deadline: Instant) {
        let until = deadline.saturating_duration_since(self.origin).as_millis();
        self.until.store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Ends the right at once.
    pub fn close(&self) {
        self.until.store(0, Ordering::Release);
    }

    /// Whether acting is allowed now.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// For how long acting is still allowed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let until = Duration::from_millis(self.until.load(Ordering::Acquire));
        until.saturating_sub(self.origin.elapsed())
    }
}

/// The refusal of a change.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("this operator is not the leader any more, so it changes nothing; the new leader goes on")]
pub struct NotLeader;

/// Refuses changes to the API server while the fence does not hold, and ends every request that is no watch after a deadline: what was begun
/// with the right to act must be over before another process may have it. Reads pass.
#[derive(Clone, Debug)]
pub struct FenceLayer {
    fence: Fence,
    deadline: Duration,
}

impl FenceLayer {
    /// A layer on this fence.
    #[must_use]
    pub fn new(fence: Fence, deadline: Duration) -> Self {
        Self { fence, deadline }
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Fenced { inner, fence: self.fence.clone(), deadline: self.deadline }
    }
}

/// Whether a request to the API server asks for a watch, whose answer lasts.
#[must_use]
pub fn is_watch<B>(request: &Request<B>) -> bool {
    *request.method() == Method::GET && request.uri().query().is_some_and(|query| query.contains("watch="))
}

/// A service behind a fence.
#[derive(Clone, Debug)]
pub struct Fenced<S> {
    inner: S,
    fence: Fence,
    deadline: Duration,
}

/// No answer in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the API server gave no answer within {0:?}")]
pub struct NoAnswer(Duration);

impl<S, B> Service<Request<B>> for Fenced<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
    S::Error: Into<BoxError> + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if !reads && !self.fence.holds() {
            return ready(Err(NotLeader.into())).boxed();
        }
        let watches = is_watch(&request);
        let answer = self.inner.call(request);
        if watches {
            return answer.map_err(Into::into).boxed();
        }
        let deadline = self.deadline;
        async move {
            match tokio::time::timeout(deadline, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(NoAnswer(deadline).into()),
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use tower::{ServiceExt, service_fn};

    use super::*;

    #[tokio::test]
    async fn changes_are_refused_when_the_right_to_act_has_ended() {
        let fence = Fence::closed();
        let service = FenceLayer::new(fence.clone(), Duration::from_secs(5))
            .layer(service_fn(|request: Request<()>| async move { Ok::<_, BoxError>(request.method().clone()) }));
        let send = |method: Method| {
            let request = Request::builder().method(method).body(()).unwrap();
            service.clone().oneshot(request)
        };
        assert!(send(Method::POST).await.unwrap_err().is::<NotLeader>());
        assert_eq!(send(Method::GET).await.unwrap(), Method::GET);
        fence.extend(Instant::now() + Duration::from_secs(60));
        assert_eq!(send(Method::DELETE).await.unwrap(), Method::DELETE);
        fence.extend(Instant::now());
        assert!(send(Method::PATCH).await.is_err());
        fence.extend(Instant::now() + Duration::from_secs(60));
        fence.close();
        assert!(!fence.holds());
    }
}
