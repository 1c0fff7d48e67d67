//! Conditional requests: an answer that did not change costs nothing of the primary limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, LINK};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use quick_cache::{OptionsBuilder, Weighter};
use tower::layer::layer_fn;
use tower::{Layer, ServiceExt};

use crate::counters::CacheUse;
use crate::error::Fault;
use crate::stack::{Next, Request, Response, service};

/// Headers of a stored answer that its readers need.
const KEPT: [http::HeaderName; 4] = [CONTENT_TYPE, ETAG, LAST_MODIFIED, LINK];
/// What an entry costs beside its texts.
const OVERHEAD: u64 = 256;
/// Expected size of an entry: a page of 100 runners.
const TYPICAL: u64 = 48 * 1024;

/// Which stored answer a response repeats: equal versions mean equal bodies. An extension of responses to GETs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(pub(crate) u64);

/// Marks a response that GitHub answered with 304.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unchanged;

/// Answers to GETs, shared as [`Bytes`], bounded by their total size.
///
/// Belongs to one client and so to one set of credentials; keyed by URI and `Accept`. Freshness is always asked of GitHub:
/// `Cache-Control` would allow a minute of stale answers, and asking is free.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    entries: Arc<quick_cache::sync::Cache<Key, Arc<Entry>, Size>>,
    versions: Arc<AtomicU64>,
}

type Key = (String, Option<HeaderValue>);

#[derive(Debug)]
struct Entry {
    version: Version,
    condition: (http::HeaderName, HeaderValue),
    headers: HeaderMap,
    body: Bytes,
}

#[derive(Clone, Debug)]
struct Size;

impl Weighter<Key, Arc<Entry>> for Size {
    fn weight(&self, key: &Key, entry: &Arc<Entry>) -> u64 {
        let headers: usize = entry.headers.values().map(HeaderValue::len).sum();
        (key.0.len() + headers + entry.body.len()) as u64 + OVERHEAD
    }
}

impl Cache {
    /// Holds at most `capacity` bytes; 0 turns caching off.
    pub(crate) fn new(capacity: u64) -> Self {
        let items = usize::try_from(capacity / TYPICAL).unwrap_or(usize::MAX).clamp(16, 1 << 16);
        // One shard: a page must be admitted as long as it fits the whole, and there is no contention to speak of.
        let options = OptionsBuilder::new().estimated_items_capacity(items).weight_capacity(capacity).shards(1).build();
        let entries = match options {
            Ok(options) => quick_cache::sync::Cache::with_options(
                options,
                Size,
                quick_cache::DefaultHashBuilder::default(),
                quick_cache::sync::DefaultLifecycle::default(),
            ),
            Err(_) => quick_cache::sync::Cache::with_weighter(items, capacity, Size),
        };
        Self { entries: Arc::new(entries), versions: Arc::default() }
    }

    /// Answers and bytes that the cache holds, and the most bytes that it may hold; for metrics.
    pub(crate) fn usage(&self) -> CacheUse {
        CacheUse { entries: self.entries.len() as u64, bytes: self.entries.weight(), capacity: self.entries.capacity() }
    }

    /// Drops an answer that proved unusable: GitHub would confirm it by 304 for as long as what it should have been stays the same.
    pub(crate) fn forget(&self, uri: &str, accept: HeaderValue) {
        self.entries.remove(&(uri.to_owned(), Some(accept)));
    }

    /// The layer that looks answers up and keeps them.
    pub(crate) fn layer(&self) -> impl Layer<Next, Service = Next> + use<> {
        let cache = self.clone();
        layer_fn(move |next: Next| {
            let cache = cache.clone();
            service(move |request: Request| {
                let (next, cache) = (next.clone(), cache.clone());
                async move { cache.ask(next, request).await }
            })
        })
    }

    async fn ask(&self, next: Next, mut request: Request) -> Result<Response, Fault> {
        if *request.method() != Method::GET {
            return next.oneshot(request).await;
        }
        let key = (request.uri().to_string(), request.headers().get(ACCEPT).cloned());
        let known = self.entries.get(&key);
        if let Some(entry) = &known {
            let (name, value) = &entry.condition;
            request.headers_mut().insert(name, value.clone());
        }
        let mut response = next.oneshot(request).await?;
        if response.status() == StatusCode::NOT_MODIFIED {
            let Some(entry) = known else { return Ok(response) };
            *response.status_mut() = StatusCode::OK;
            for (name, value) in &entry.headers {
                if !response.headers().contains_key(name) {
                    response.headers_mut().insert(name, value.clone());
                }
            }
            *response.body_mut() = entry.body.clone();
            response.extensions_mut().insert(entry.version);
            response.extensions_mut().insert(Unchanged);
            return Ok(response);
        }
        match (response.status(), condition(response.headers())) {
            (StatusCode::OK, Some(condition)) => {
                let version = Version(self.versions.fetch_add(1, Ordering::Relaxed));
                let mut headers = HeaderMap::new();
                for name in KEPT {
                    if let Some(value) = response.headers().get(&name) {
                        headers.insert(name, value.clone());
                    }
                }
                let body = response.body().clone();
                self.entries.insert(key, Arc::new(Entry { version, condition, headers, body }));
                response.extensions_mut().insert(version);
            }
            // Gone, or no longer comparable. A refusal leaves the entry: it is compared before it is used again.
            (StatusCode::OK | StatusCode::NOT_FOUND | StatusCode::GONE, _) => {
                self.entries.remove(&key);
            }
            _ => {}
        }
        Ok(response)
    }
}

fn condition(headers: &HeaderMap) -> Option<(http::HeaderName, HeaderValue)> {
    if let Some(tag) = headers.get(ETAG) {
        return Some((IF_NONE_MATCH, tag.clone()));
    }
    headers.get(LAST_MODIFIED).map(|date| (IF_MODIFIED_SINCE, date.clone()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Answers every path with a body of its own, or 304 when its tag is sent.
    fn origin(validator: http::HeaderName, size: usize) -> (Next, Arc<Mutex<Vec<u16>>>) {
        let log: Arc<Mutex<Vec<u16>>> = Arc::default();
        let seen = Arc::clone(&log);
        let condition = if validator == ETAG { IF_NONE_MATCH } else { IF_MODIFIED_SINCE };
        let next = service(move |request: Request| {
            let tag = HeaderValue::try_from(format!("\"{}\"", request.uri().path())).unwrap();
            let fresh = request.headers().get(&condition) == Some(&tag);
            seen.lock().unwrap().push(if fresh { 304 } else { 200 });
            let builder = http::Response::builder().header("x-ratelimit-remaining", if fresh { "8" } else { "9" });
            let response = if fresh {
                builder.status(304).body(Bytes::new())
            } else {
                builder.header(&validator, tag).header(LINK, "l").body(Bytes::from(vec![b'x'; size]))
            };
            async move { Ok(response.unwrap()) }
        });
        (next, log)
    }

    fn get(path: &str) -> Request {
        http::Request::get(format!("https://h{path}")).header(ACCEPT, "json").body(Bytes::new()).unwrap()
    }

    #[tokio::test]
    async fn an_unchanged_answer_is_repeated_with_fresh_limit_headers() {
        for validator in [ETAG, LAST_MODIFIED] {
            let (next, log) = origin(validator, 10);
            let cache = Cache::new(1 << 20);
            let service = cache.layer().layer(next);
            let first = service.clone().oneshot(get("/a")).await.unwrap();
            let second = service.clone().oneshot(get("/a")).await.unwrap();
            assert_eq!(*log.lock().unwrap(), [200, 304]);
            assert_eq!((second.status(), second.body()), (StatusCode::OK, first.body()));
            assert_eq!(second.headers()["x-ratelimit-remaining"], "8");
            assert_eq!(second.headers()[LINK], "l");
            assert_eq!(second.extensions().get::<Version>(), first.extensions().get::<Version>());
            assert!(second.extensions().get::<Unchanged>().is_some() && first.extensions().get::<Unchanged>().is_none());
        }
    }

    #[tokio::test]
    async fn a_forgotten_answer_is_fetched_anew() {
        let (next, log) = origin(ETAG, 10);
        let cache = Cache::new(1 << 20);
        let service = cache.layer().layer(next);
        for path in ["https://h/b", "https://h/a"] {
            service.clone().oneshot(get("/a")).await.unwrap();
            cache.forget(path, HeaderValue::from_static("json"));
        }
        service.clone().oneshot(get("/a")).await.unwrap();
        assert_eq!(*log.lock().unwrap(), [200, 304, 200]);
    }

    #[tokio::test]
    async fn methods_paths_and_accepts_are_kept_apart() {
        let (next, log) = origin(ETAG, 10);
        let service = Cache::new(1 << 20).layer().layer(next);
        service.clone().oneshot(get("/a")).await.unwrap();
        let mut delete = get("/a");
        *delete.method_mut() = Method::DELETE;
        let mut other = get("/a");
        other.headers_mut().insert(ACCEPT, HeaderValue::from_static("html"));
        for request in [delete, other, get("/b")] {
            service.clone().oneshot(request).await.unwrap();
        }
        assert_eq!(*log.lock().unwrap(), [200; 4]);
    }

    #[tokio::test]
    async fn old_answers_give_way_when_the_bytes_run_out() {
        let (next, _) = origin(ETAG, 10_000);
        let cache = Cache::new(50_000);
        let service = cache.layer().layer(next);
        for n in 0..100 {
            service.clone().oneshot(get(&format!("/{n}"))).await.unwrap();
            assert!(cache.usage().bytes <= 50_000, "{:?}", cache.usage());
        }
        assert!((1..=4).contains(&cache.usage().entries), "{:?}", cache.usage());
    }

    #[tokio::test]
    async fn a_page_that_just_fits_is_kept_and_one_that_does_not_is_passed_on() {
        for (size, statuses) in [(40_000, [200, 304]), (60_000, [200, 200])] {
            let (next, log) = origin(ETAG, size);
            let service = Cache::new(50_000).layer().layer(next);
            for _ in 0..2 {
                let response = service.clone().oneshot(get("/a")).await.unwrap();
                assert_eq!(response.body().len(), size);
            }
            assert_eq!(*log.lock().unwrap(), statuses);
        }
    }

    #[tokio::test]
    async fn refusals_leave_the_answer_and_disappearances_drop_it() {
        for (status, entries) in [(403, 1), (429, 1), (502, 1), (401, 1), (404, 0), (410, 0), (200, 0)] {
            let fresh = Arc::new(std::sync::atomic::AtomicBool::new(true));
            let first = Arc::clone(&fresh);
            let next = service(move |_| {
                let mut response = http::Response::builder().status(status);
                if first.swap(false, Ordering::SeqCst) {
                    response = response.status(200).header(ETAG, "x");
                }
                async move { Ok(response.body(Bytes::new()).unwrap()) }
            });
            let cache = Cache::new(1 << 20);
            let service = cache.layer().layer(next);
            for _ in 0..2 {
                service.clone().oneshot(get("/a")).await.unwrap();
            }
            assert_eq!(cache.usage().entries, entries, "{status}");
        }
    }
}
