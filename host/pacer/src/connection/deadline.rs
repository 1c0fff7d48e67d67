//! Answers of the API server that never begin, or begin and never end. A server that is reached and hangs closes no connection, so that whoever waits
//! for it would wait for ever.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use kube::client::{Body, DynBody};
use pacer_cluster::fence::is_watch;
use tokio::time::{Sleep, sleep, timeout};
use tower::{BoxError, Service};

/// Longest time for an answer to begin, and for the body of one that is no watch. The API server gives up its own requests after as long, and answers a
/// watch at once.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// What did not come in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum TooLate {
    #[error("the API server did not begin to answer a watch within {} s", DEADLINE.as_secs())]
    Watch,
    #[error("the API server did not begin its answer within {} s", DEADLINE.as_secs())]
    Head,
    #[error("the API server did not end its answer within {} s", DEADLINE.as_secs())]
    Body,
}

/// A service whose answers begin within [`DEADLINE`], connecting included, and end within as long again; watches may last. Layers around it may allow less.
#[derive(Debug)]
pub(super) struct Timely<S>(pub(super) S);

impl<S> Service<Request<Body>> for Timely<S>
where
    S: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<Box<DynBody>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let watches = is_watch(&request);
        let late = if watches { TooLate::Watch } else { TooLate::Head };
        let answer = self.0.call(request);
        async move {
            let answer = timeout(DEADLINE, answer).await.unwrap_or(Err(late.into()))?;
            if watches {
                return Ok(answer);
            }
            let (head, body) = answer.into_parts();
            let body: Box<DynBody> = Box::new(TimelyBody { body, until: Box::pin(sleep(DEADLINE)) });
            Ok(Response::from_parts(head, body))
        }
        .boxed()
    }
}

/// A body that ends, or fails at its deadline.
struct TimelyBody {
    body: Box<DynBody>,
    until: Pin<Box<Sleep>>,
}

impl HttpBody for TimelyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        self.until.as_mut().poll(cx).map(|()| Some(Err(TooLate::Body.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
