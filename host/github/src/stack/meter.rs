//! Counts calls, keeps the budget and reads GitHub's clock. Sits below authentication, so that the calls made there count too.

use std::sync::Arc;

use jiff::Timestamp;
use tower::layer::layer_fn;
use tower::{Layer, ServiceExt};

use crate::budget::Ledger;
use crate::call::Call;
use crate::clock::Clock;
use crate::counters::{Counters, Outcome};
use crate::limit::{self, Limited};
use crate::stack::{Next, Request, Response, checked, service};

/// Observes every answer and passes it on unchanged.
pub(crate) fn layer(ledger: Arc<Ledger>, counters: Arc<Counters>, clock: Arc<Clock>) -> impl Layer<Next, Service = Next> {
    layer_fn(move |next: Next| {
        let (ledger, counters, clock) = (Arc::clone(&ledger), Arc::clone(&counters), Arc::clone(&clock));
        service(move |request: Request| {
            let (next, ledger) = (next.clone(), Arc::clone(&ledger));
            let (counters, clock) = (Arc::clone(&counters), Arc::clone(&clock));
            async move {
                let call = request.extensions().get::<Call>().cloned();
                let answer = next.oneshot(request).await;
                if let Some(call) = call {
                    let outcome = match &answer {
                        Ok(response) => {
                            let now = Timestamp::now();
                            if let Some(at_github) = limit::date(response.headers()) {
                                clock.read(at_github, now);
                            }
                            let limited = limited(response, now).await;
                            ledger.note(
                                &call,
                                limit::report(response.headers(), now),
                                limited,
                                response.status().is_success(),
                                now,
                            );
                            Outcome::of(response.status(), limited.is_some())
                        }
                        Err(_) => Outcome::NoAnswer,
                    };
                    counters.count(call.endpoint, outcome);
                }
                answer
            }
        })
    })
}

async fn limited(response: &Response, now: Timestamp) -> Option<Limited> {
    if !matches!(response.status().as_u16(), 403 | 429) {
        return None;
    }
    let mut copy = Response::new(response.body().clone());
    *copy.status_mut() = response.status();
    let Err(octocrab::Error::GitHub { source, .. }) = checked(copy).await else { return None };
    limit::limited(response.status(), response.headers(), &source.message, source.documentation_url.as_deref(), now)
}
