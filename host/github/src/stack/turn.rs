//! Calls have their turns, so that no minute holds more of them than GitHub allows. Below authentication: its own calls count as well.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use http::Method;
use pacer_core::allowance::{Cost, Grant};
use tower::layer::layer_fn;
use tower::{Layer, ServiceExt};

use crate::budget::{Account, Deferral, Ledger};
use crate::call::Call;
use crate::counters::Counters;
use crate::error::Fault;
use crate::stack::{Next, Request, service};

/// The right to make one call or several; what they cost counts until a minute after this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    ledger: Arc<Ledger>,
    /// None where nobody counts.
    grant: Option<(Account, Grant)>,
}

impl Turn {
    /// Asks for so many calls; `who` is the same for whoever asks again.
    pub(crate) fn take(
        ledger: &Arc<Ledger>,
        counters: &Counters,
        call: &Call,
        who: impl Hash,
        cost: Cost,
        calls: u32,
    ) -> Result<Self, Fault> {
        let mut hasher = DefaultHasher::new();
        (call.endpoint, who).hash(&mut hasher);
        let purpose = call.endpoint.purpose();
        if let Some(payer) = &call.payer {
            payer.ask(purpose, calls).map_err(|wait| Fault::Deferred(Deferral::of(wait)))?;
        }
        let grant = ledger.ask(call, hasher.finish(), cost).map_err(|deferral| {
            if let Some(payer) = &call.payer {
                payer.give_back(calls);
            }
            counters.defer(purpose);
            Fault::Deferred(deferral)
        })?;
        Ok(Self { ledger: Arc::clone(ledger), grant })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((account, grant)) = self.grant.take() {
            self.ledger.answered(&account, grant);
        }
    }
}

/// Fails fast when it is not a call's turn: a call never sleeps, its caller comes back.
pub(crate) fn layer(ledger: Arc<Ledger>, counters: Arc<Counters>) -> impl Layer<Next, Service = Next> {
    layer_fn(move |next: Next| {
        let (ledger, counters) = (Arc::clone(&ledger), Arc::clone(&counters));
        service(move |request: Request| {
            let call = request.extensions().get::<Call>().filter(|call| !call.granted);
            let turn =
                call.map(|call| Turn::take(&ledger, &counters, call, request.uri(), cost(request.method()), 1)).transpose();
            let next = next.clone();
            async move {
                let _turn = turn?;
                next.oneshot(request).await
            }
        })
    })
}

/// What GitHub counts for a request; see [`pacer_core::allowance`].
fn cost(method: &Method) -> Cost {
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS => Cost { points: 1, creations: 0 },
        Method::POST => Cost { points: 5, creations: 1 },
        _ => Cost { points: 5, creations: 0 },
    }
}
