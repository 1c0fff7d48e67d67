//! Which requests of a command to the API server are repeated: those that only read, while the API server answers that it has too many.
//!
//! It does so under load, and for some seconds after the definition of a kind has changed. Whoever asked for a write decides whether it is tried again.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use tokio::time::{Instant, Sleep, sleep_until};
use tower::buffer::BufferLayer;
use tower::retry::{Policy, RetryLayer};

use crate::connection::Sender;

/// Shortest pause before a request is repeated, and the pause where the answer asks for none.
const PAUSE: Duration = Duration::from_secs(1);

/// How long after the first such answer a request is repeated.
const LONGEST: Duration = Duration::from_secs(30);

/// Requests that wait to be sent; as many as in kube's own client.
const QUEUE: usize = 1_024;

/// A client that repeats requests that only read. Has to be called in a runtime.
pub(crate) fn client(builder: ClientBuilder<Sender>) -> Client {
    let repeats = RetryLayer::new(Reread::default());
    builder.with_layer(&BufferLayer::<Request<Body>>::new(QUEUE)).with_layer(&repeats).build()
}

/// The repetitions of one request.
#[derive(Clone, Debug, Default)]
struct Reread {
    /// When the last one may be sent; none before the first answer that asks for one.
    last: Option<Instant>,
}

impl<B, E> Policy<Request<Body>, Response<B>, E> for Reread {
    type Future = Sleep;

    fn retry(&mut self, _: &mut Request<Body>, outcome: &mut Result<Response<B>, E>) -> Option<Sleep> {
        let answer = outcome.as_ref().ok().filter(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS)?;
        let now = Instant::now();
        let last = *self.last.get_or_insert(now + LONGEST);
        let next = now.checked_add(pause(answer.headers())).filter(|next| *next <= last)?;
        Some(sleep_until(next))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        if *request.method() != Method::GET {
            return None;
        }
        let mut again = Request::new(request.body().try_clone()?);
        *again.method_mut() = request.method().clone();
        *again.uri_mut() = request.uri().clone();
        *again.version_mut() = request.version();
        *again.headers_mut() = request.headers().clone();
        *again.extensions_mut() = request.extensions().clone();
        Some(again)
    }
}

/// What an answer asks to wait for. The API server says it in whole seconds.
fn pause(headers: &HeaderMap) -> Duration {
    let asked = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    asked.map_or(PAUSE, Duration::from_secs).max(PAUSE)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::HeaderValue;
    use http_body_util::BodyExt as _;
    use kube::client::DynBody;
    use tower::{BoxError, ServiceExt as _, service_fn};

    use super::*;

    /// An API server that gives this answer so many times, and then a good one; counts the requests.
    fn server(code: u16, times: u32, retry_after: Option<&'static str>) -> (Client, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let service = service_fn(move |_: Request<Body>| {
            let mut answer = Response::new(Box::new(Body::empty().map_err(BoxError::from)) as Box<DynBody>);
            if count.fetch_add(1, Ordering::Relaxed) < times {
                *answer.status_mut() = StatusCode::from_u16(code).unwrap();
                if let Some(text) = retry_after {
                    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(text));
                }
            }
            async move { Ok::<_, BoxError>(answer) }
        });
        (client(ClientBuilder::new(service.boxed(), "ci")), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn reads_are_repeated_for_a_while_when_the_api_server_asks_for_that_and_writes_never() {
        for (method, (code, times, retry_after), (succeeds, requests, seconds)) in [
            (Method::GET, (429, 3, Some("1")), (true, 4, 3)),
            (Method::GET, (429, 1, Some("5")), (true, 2, 5)),
            (Method::GET, (429, 1, Some("Wed, 21 Oct 2026 07:28:00 GMT")), (true, 2, 1)),
            (Method::GET, (429, 2, None), (true, 3, 2)),
            (Method::GET, (429, 2, Some("0")), (true, 3, 2)),
            (Method::GET, (429, 100, Some("3")), (false, 11, 30)),
            (Method::GET, (429, 1, Some("3600")), (false, 1, 0)),
            (Method::GET, (429, 1, Some("18446744073709551615")), (false, 1, 0)),
            (Method::GET, (403, 1, None), (false, 1, 0)),
            (Method::GET, (503, 1, Some("1")), (false, 1, 0)),
            (Method::POST, (429, 1, Some("1")), (false, 1, 0)),
            (Method::PATCH, (429, 1, Some("1")), (false, 1, 0)),
            (Method::DELETE, (429, 1, Some("1")), (false, 1, 0)),
        ] {
            let (client, asked) = server(code, times, retry_after);
            let began = Instant::now();
            let request = Request::builder().method(method.clone()).uri("/api/v1/namespaces/ci/pods").body(Vec::new()).unwrap();
            let outcome = client.request_text(request).await;
            let found = (outcome.is_ok(), asked.load(Ordering::Relaxed), began.elapsed().as_secs());
            assert_eq!(found, (succeeds, requests, seconds), "{method} {code} {times} {retry_after:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_may_be_repeated_for_as_long_as_the_first_one() {
        let (client, asked) = server(429, 100, Some("3"));
        for requests in [11, 22] {
            let request = Request::get("/api/v1/pods").body(Vec::new()).unwrap();
            assert!(client.request_text(request).await.is_err());
            assert_eq!(asked.load(Ordering::Relaxed), requests);
        }
    }
}
