//! What a poller remembers of its past to find its next interval.

use std::time::Duration;

use crate::budget::Budget;
use crate::pace::Situation;

/// Weight of the last listing in the average of charged calls.
const RECENT: f64 = 0.5;
/// Average below which listings count as free: a change long ago must not slow us down for ever.
const FREE: f64 = 0.05;

/// The past of one poller, as far as its pace depends on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rhythm {
    since_haste: Option<u32>,
    failures: u32,
    imposed: Option<Duration>,
    pages: u32,
    paid: f64,
}

impl Rhythm {
    /// Somebody asked for haste.
    pub(crate) fn hurry(&mut self) {
        self.since_haste = Some(0);
    }

    /// A listing is about to start.
    pub(crate) fn begin(&mut self) {
        self.since_haste = self.since_haste.map(|listings| listings.saturating_add(1));
    }

    /// A listing succeeded with `pages` calls, `paid` of them charged. Gives the failures before it.
    pub(crate) fn succeed(&mut self, pages: u32, paid: u32) -> u32 {
        self.imposed = None;
        self.pages = pages;
        self.paid = self.paid * (1.0 - RECENT) + f64::from(paid) * RECENT;
        if self.paid < FREE {
            self.paid = 0.0;
        }
        std::mem::take(&mut self.failures)
    }

    /// A listing failed, and GitHub told us to wait until `imposed` after its start. Gives the failures since the last good one.
    pub(crate) fn fail(&mut self, imposed: Option<Duration>) -> u32 {
        self.imposed = imposed;
        self.failures = self.failures.saturating_add(1);
        self.failures
    }

    /// The situation now; `pollers` share the budget, this one included.
    pub(crate) fn situation(&self, budget: Option<&Budget>, pollers: u32) -> Situation {
        Situation {
            since_haste: self.since_haste,
            failures: self.failures,
            imposed: self.imposed,
            pages: self.pages,
            paid: self.paid,
            spare: budget.map_or(0, |budget| budget.remaining.saturating_sub(budget.limit / 2)),
            budget: budget.map(|budget| (budget.remaining, budget.resets_in())),
            pollers,
        }
    }
}
