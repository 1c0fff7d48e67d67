//! Refuses calls that GitHub would refuse anyway because of its rate limits. Once above the cache, so that such a call does nothing else before,
//! and once below authentication, for the calls that are made there.

use std::sync::Arc;

use tower::layer::layer_fn;
use tower::{Layer, ServiceExt};

use crate::budget::Ledger;
use crate::call::Call;
use crate::counters::Counters;
use crate::error::Fault;
use crate::stack::{Next, Request, service};

/// Fails fast while a limit stands: a call never sleeps, its caller decides what to do meanwhile.
pub(crate) fn layer(ledger: Arc<Ledger>, counters: Arc<Counters>) -> impl Layer<Next, Service = Next> {
    layer_fn(move |next: Next| {
        let (ledger, counters) = (Arc::clone(&ledger), Arc::clone(&counters));
        service(move |request: Request| {
            let block = request.extensions().get::<Call>().and_then(|call| ledger.standing(call));
            if block.is_some() {
                counters.hold_back();
            }
            let next = next.clone();
            async move {
                match block {
                    Some(block) => Err(Fault::Blocked(block)),
                    None => next.oneshot(request).await,
                }
            }
        })
    })
}
