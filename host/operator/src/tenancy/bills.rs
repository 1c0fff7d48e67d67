//! The GitHub calls of namespaces with a quota of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pacer_core::allowance::Purpose;
use pacer_core::tenancy::{Calls, Refusal};
use pacer_github::Payer;

use super::Tenancies;

/// Calls of namespaces, and how many had to wait for their quota.
#[derive(Debug)]
pub(crate) struct Bills {
    /// From when time counts.
    made: Instant,
    all: Mutex<HashMap<String, Bill>>,
}

#[derive(Debug, Default)]
struct Bill {
    calls: Calls,
    put_off: u64,
}

impl Default for Bills {
    fn default() -> Self {
        Self { made: Instant::now(), all: Mutex::default() }
    }
}

impl Bills {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Bill>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tenancies {
    /// The namespace as one that pays for calls.
    #[must_use]
    pub fn payer(self: &Arc<Self>, namespace: &str) -> Arc<dyn Payer> {
        Arc::new(Tenant { name: namespace.to_owned(), tenancies: Arc::clone(self) })
    }

    /// Why calls of a namespace had to wait within the last minute, if any had to.
    #[must_use]
    pub fn calls_put_off(&self, namespace: &str) -> Option<Refusal> {
        let most = self.most_calls(namespace)?;
        let put_off = self.bills.lock().get(namespace)?.calls.were_put_off(self.bills.made.elapsed());
        put_off.then(|| Refusal::Calls { namespace: namespace.to_owned(), most })
    }

    /// How often a call was put off by a quota, for each namespace that has one.
    #[must_use]
    pub fn put_off(&self) -> Vec<(String, u64)> {
        let mut all: Vec<_> = self.bills.lock().iter().map(|(name, bill)| (name.clone(), bill.put_off)).collect();
        all.sort_unstable();
        all
    }

    /// Forgets namespaces that have no such quota any more.
    pub(crate) fn forget_bills(&self) {
        let now = self.bills.made.elapsed();
        let names: Vec<String> = self.bills.lock().keys().cloned().collect();
        let without = names.into_iter().filter(|name| self.most_calls(name).is_none());
        for name in without {
            let mut all = self.bills.lock();
            if all.get(&name).is_some_and(|bill| bill.calls.are_forgotten(now)) {
                all.remove(&name);
            }
        }
    }

    fn most_calls(&self, namespace: &str) -> Option<u32> {
        // Where nobody knows, nothing new is made, and what is there has to be removed.
        self.quotas(namespace).ok()?.calls_per_minute
    }
}

/// See [`Tenancies::payer`].
#[derive(Debug)]
struct Tenant {
    name: String,
    tenancies: Arc<Tenancies>,
}

impl Payer for Tenant {
    fn name(&self) -> &str {
        &self.name
    }

    fn wait(&self, purpose: Purpose) -> Duration {
        let Some(most) = self.tenancies.most_calls(&self.name) else { return Duration::ZERO };
        let bills = &self.tenancies.bills;
        bills.lock().get(&self.name).map_or(Duration::ZERO, |bill| bill.calls.wait(most, purpose, bills.made.elapsed()))
    }

    fn ask(&self, purpose: Purpose, calls: u32) -> Result<(), Duration> {
        let Some(most) = self.tenancies.most_calls(&self.name) else { return Ok(()) };
        let bills = &self.tenancies.bills;
        let mut all = bills.lock();
        let bill = all.entry(self.name.clone()).or_default();
        let asked = bill.calls.ask(most, purpose, calls, bills.made.elapsed());
        bill.put_off = bill.put_off.saturating_add(u64::from(asked.is_err()));
        asked
    }

    fn give_back(&self, calls: u32) {
        if let Some(bill) = self.tenancies.bills.lock().get_mut(&self.name) {
            bill.calls.give_back(calls);
        }
    }
}
