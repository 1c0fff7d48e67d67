//! Sends events to webhooks, signed.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use ring::hmac;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    hook::JobAction,
    place::DeliveryId,
    state::{Shared, State},
};

/// How long GitHub waits for a receiver's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// An event on its way; without a request when its webhook is gone or has no usable URL.
struct Posting {
    id: DeliveryId,
    request: Option<Request<Full<Bytes>>>,
    /// The payload, when it is about a job.
    event: Option<(JobAction, Value)>,
}

impl State {
    /// The next event to send, or when the next one is due.
    fn next_delivery(&mut self) -> Result<Posting, Option<Instant>> {
        let id = self.hooks.take()?;
        let found = self.hooks.deliveries.get(&id).and_then(|delivery| {
            let hook = self.hooks.get(delivery.hook)?;
            let payload = self.event_body(delivery);
            let body = payload.to_string();
            let mut request = Request::post(&hook.url).header(header::ACCEPT, "*/*");
            for (name, value) in self.event_headers(delivery) {
                request = request.header(name, value);
            }
            if !hook.secret.is_empty() {
                for (name, prefix, algorithm) in [
                    ("x-hub-signature", "sha1", hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
                    ("x-hub-signature-256", "sha256", hmac::HMAC_SHA256),
                ] {
                    let signature = hmac::sign(&hmac::Key::new(algorithm, hook.secret.as_bytes()), body.as_bytes());
                    request = request.header(name, format!("{prefix}={}", hex::encode(signature)));
                }
            }
            let request = request.body(Full::new(Bytes::from(body))).ok()?;
            Some((request, delivery.action.map(|action| (action, payload))))
        });
        let (request, event) = found.unzip();
        Ok(Posting { id, request, event: event.flatten() })
    }
}

type HookClient = Client<HttpConnector, Full<Bytes>>;

/// Sends one event; the status, and how long it took.
fn send(client: &HookClient, posting: Posting) -> impl Future<Output = (DeliveryId, u16, Duration)> + use<> {
    let Posting { id, request, .. } = posting;
    let client = client.clone();
    async move {
        let begun = Instant::now();
        let exchange = async {
            let answer = client.request(request?).await.ok()?;
            let status = answer.status();
            answer.into_body().collect().await.ok()?;
            Some(status)
        };
        let status = tokio::time::timeout(PATIENCE, exchange).await.ok().flatten().unwrap_or(StatusCode::BAD_GATEWAY);
        (id, status.as_u16(), begun.elapsed())
    }
}

/// Delivers events until the simulation stops.
pub(super) async fn deliver(shared: &Shared) {
    let client: HookClient = Client::builder(TokioExecutor::new()).build_http();
    let mut under_way = FuturesUnordered::new();
    loop {
        let parallel = shared.with(|state| state.hooks.delivering.parallel).max(1);
        let mut next = None;
        while under_way.len() < parallel {
            match shared.with(State::next_delivery) {
                Ok(posting) => {
                    if let Some((action, payload)) = &posting.event {
                        shared.conformance.event(action.as_str(), payload);
                    }
                    under_way.push(send(&client, posting));
                }
                Err(at) => {
                    next = at;
                    break;
                }
            }
        }
        let sleep = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            Some((id, status, duration)) = under_way.next() => shared.with(|state| {
                let now = state.now();
                state.hooks.tried_now(id, status, duration, now);
                state.signals.changed = true;
            }),
            () = shared.outbox.notified() => {}
            () = sleep => {}
        }
    }
}
