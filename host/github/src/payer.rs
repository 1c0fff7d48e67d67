//! Who pays for calls: each namespace may have a quota of them.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pacer_core::allowance::Purpose;

/// Somebody whose calls are counted, beside those of the account.
pub trait Payer: Debug + Send + Sync {
    /// Tells it from others.
    fn name(&self) -> &str;

    /// Time until it may make a call; zero when it may make one now.
    fn wait(&self, purpose: Purpose) -> Duration;

    /// Asks for so many calls at once.
    ///
    /// # Errors
    ///
    /// When they have to wait: for how long.
    fn ask(&self, purpose: Purpose, calls: u32) -> Result<(), Duration>;

    /// So many calls that were allowed last are not made after all.
    fn give_back(&self, calls: u32);
}

/// Those who share a listing: each time one of them pays for it.
#[derive(Debug, Default)]
pub(crate) struct Payers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Everybody who shares the listing, ordered by name.
    all: Vec<Arc<dyn Payer>>,
    /// Name of the one that was chosen last; none before the first time.
    last: Option<String>,
}

impl Payers {
    /// One more shares it; false when it does already.
    pub(crate) fn add(&self, payer: &Arc<dyn Payer>) -> bool {
        let mut state = self.lock();
        let place = state.all.binary_search_by(|known| known.name().cmp(payer.name()));
        if let Err(place) = place {
            state.all.insert(place, Arc::clone(payer));
        }
        place.is_err()
    }

    /// Only these share it from now on.
    pub(crate) fn keep(&self, names: &[&str]) {
        self.lock().all.retain(|payer| names.contains(&payer.name()));
    }

    /// Who pays next: whoever `hurried`, else each in turn, of those who may make a call. When nobody may, whoever may first.
    pub(crate) fn next(&self, hurried: Option<&str>) -> Option<Arc<dyn Payer>> {
        let mut state = self.lock();
        let after = state.last.as_deref().map_or(0, |last| state.all.partition_point(|payer| payer.name() <= last));
        let (before, behind) = state.all.split_at(after.min(state.all.len()));
        let first = hurried.and_then(|hurried| state.all.iter().find(|payer| payer.name() == hurried));
        let next = first.into_iter().chain(behind).chain(before).min_by_key(|payer| payer.wait(Purpose::Listing)).cloned();
        if let Some(next) = &next {
            state.last = Some(next.name().to_owned());
        }
        next
    }

    /// Whether somebody may make a call now.
    pub(crate) fn can_pay(&self) -> bool {
        self.lock().all.iter().any(|payer| payer.wait(Purpose::Listing).is_zero())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Tenant(&'static str, u64);

    impl Payer for Tenant {
        fn name(&self) -> &str {
            self.0
        }

        fn wait(&self, _: Purpose) -> Duration {
            Duration::from_secs(self.1)
        }

        fn ask(&self, purpose: Purpose, _: u32) -> Result<(), Duration> {
            Some(self.wait(purpose)).filter(|wait| !wait.is_zero()).map_or(Ok(()), Err)
        }

        fn give_back(&self, _: u32) {}
    }

    fn payers(all: &[(&'static str, u64)]) -> Payers {
        let payers = Payers::default();
        for (name, wait) in all {
            let tenant: Arc<dyn Payer> = Arc::new(Tenant(name, *wait));
            assert!(payers.add(&tenant) && !payers.add(&tenant));
        }
        payers
    }

    fn next(payers: &Payers, hurried: Option<&str>) -> String {
        payers.next(hurried).map_or_else(String::new, |payer| payer.name().to_owned())
    }

    #[test]
    fn listing_is_paid_by_whoever_hurried_it_else_by_each_in_turn() {
        let shared = payers(&[("b", 0), ("a", 0), ("c", 0)]);
        assert_eq!([None, None, None, None].map(|hurried| next(&shared, hurried)), ["a", "b", "c", "a"]);
        assert_eq!([Some("c"), None, Some("gone")].map(|hurried| next(&shared, hurried)), ["c", "a", "b"]);
        shared.keep(&["c"]);
        assert_eq!(next(&shared, Some("a")), "c");
        assert_eq!(next(&payers(&[]), None), "");
    }

    #[test]
    fn one_without_calls_leaves_the_listing_to_the_others() {
        let shared = payers(&[("a", 9), ("b", 0)]);
        assert_eq!([None, Some("a"), None].map(|hurried| next(&shared, hurried)), ["b", "b", "b"]);
        let unable = payers(&[("a", 9), ("b", 3)]);
        assert_eq!(next(&unable, None), "b", "whoever may first, when nobody may");
        assert!(shared.can_pay() && !unable.can_pay());
    }
}
