//! GitHub's rate limits: so many requests an hour, so many points a minute.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

/// One caller's rate limit as its headers tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Requests in an hour.
    pub limit: u32,
    /// Of these, spent.
    pub used: u32,
    /// When all are there again.
    pub reset: Timestamp,
}

impl Budget {
    /// Requests left until the reset.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.limit.saturating_sub(self.used)
    }
}

#[derive(Debug)]
struct Account {
    used: u32,
    reset: Timestamp,
}

/// GitHub does not say when its minutes begin, so that none of them may hold too much.
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Budgets {
    limit: u32,
    exhausted_until: Option<Timestamp>,
    accounts: HashMap<String, Account>,
    /// What was spent in the last minute, and when, by what it is counted for.
    spent: HashMap<String, VecDeque<(Timestamp, u32)>>,
    refusals: u64,
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| now.checked_add(by).ok()).unwrap_or(now)
}

impl Budgets {
    pub(super) fn new(limit: u32) -> Self {
        Self { limit, exhausted_until: None, accounts: HashMap::new(), spent: HashMap::new(), refusals: 0 }
    }

    /// Requests that a secondary limit refused.
    pub(super) fn refusals(&self) -> u64 {
        self.refusals
    }

    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    pub(super) fn exhaust(&mut self, until: Timestamp) {
        self.exhausted_until = Some(until);
    }

    pub(super) fn refill(&mut self) {
        self.exhausted_until = None;
        self.accounts.clear();
        self.spent.clear();
    }

    fn account(&mut self, caller: &str, now: Timestamp) -> &mut Account {
        let hour = later(now, Duration::from_secs(3600));
        let account = self.accounts.entry(caller.to_owned()).or_insert(Account { used: 0, reset: hour });
        if account.reset <= now {
            (account.used, account.reset) = (0, hour);
        }
        account
    }

    pub(super) fn budget(&mut self, caller: &str, now: Timestamp) -> Budget {
        let limit = self.limit;
        if let Some(reset) = self.exhausted_until.filter(|until| *until > now) {
            return Budget { limit, used: limit, reset };
        }
        let account = self.account(caller, now);
        Budget { limit, used: account.used.min(limit), reset: account.reset }
    }

    pub(super) fn charge(&mut self, caller: &str, now: Timestamp) {
        let account = self.account(caller, now);
        account.used = account.used.saturating_add(1);
    }

    /// Counts towards secondary limits, each so much for one purse of at most so much a minute; the time to wait when one has too little
    /// left. What is refused counts for none.
    pub(super) fn spend(&mut self, purses: &[(String, u32, u32)], now: Timestamp) -> Option<Duration> {
        let waits = purses.iter().filter_map(|(purse, amount, limit)| {
            let spent = self.spent.entry(purse.clone()).or_default();
            while spent.front().is_some_and(|(at, _)| later(*at, MINUTE) <= now) {
                spent.pop_front();
            }
            let total: u32 = spent.iter().map(|(_, amount)| amount).sum();
            let mut missing = total.saturating_add(*amount).checked_sub(*limit).filter(|missing| *missing > 0)?;
            let freed = spent.iter().find(|(_, amount)| {
                missing = missing.saturating_sub(*amount);
                missing == 0
            });
            let free_at = freed.map_or(later(now, MINUTE), |(at, _)| later(*at, MINUTE));
            Some(Duration::try_from(now.duration_until(free_at)).unwrap_or_default())
        });
        let longest = waits.max();
        if longest.is_some() {
            self.refusals += 1;
            return longest;
        }
        for (purse, amount, _) in purses {
            self.spent.entry(purse.clone()).or_default().push_back((now, *amount));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_of_an_hour_is_there_again_when_it_is_over() {
        let mut budgets = Budgets::new(2);
        let start = Timestamp::from_second(1_800_000_000).unwrap();
        let mut left_after = |second: u64| {
            let now = later(start, Duration::from_secs(second));
            budgets.charge("one", now);
            budgets.budget("one", now).remaining()
        };
        assert_eq!([0, 1_800, 3_599].map(&mut left_after), [1, 0, 0]);
        assert_eq!([3_600, 7_199].map(left_after), [1, 0], "the next hour begins with its first request");
    }

    #[test]
    fn no_sixty_seconds_hold_more_than_the_limit() {
        let mut budgets = Budgets::new(5_000);
        let start = Timestamp::from_second(1_800_000_000).unwrap();
        let mut spend = |second: u64| budgets.spend(&[("one".to_owned(), 5, 10)], later(start, Duration::from_secs(second)));
        assert_eq!((spend(0), spend(30)), (None, None));
        assert_eq!(spend(50), Some(Duration::from_secs(10)), "the first is a minute old then");
        assert_eq!((spend(60), spend(61)), (None, Some(Duration::from_secs(29))));
        assert_eq!(budgets.refusals(), 2);
    }
}
