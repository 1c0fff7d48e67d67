//! GitHub's rate limits: so many requests an hour, so many points a minute.

use std::{collections::HashMap, time::Duration};

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
    points: u32,
    points_reset: Timestamp,
}

#[derive(Debug)]
pub(super) struct Budgets {
    limit: u32,
    exhausted_until: Option<Timestamp>,
    accounts: HashMap<String, Account>,
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| now.checked_add(by).ok()).unwrap_or(now)
}

impl Budgets {
    pub(super) fn new(limit: u32) -> Self {
        Self { limit, exhausted_until: None, accounts: HashMap::new() }
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
    }

    fn account(&mut self, caller: &str, now: Timestamp) -> &mut Account {
        let (hour, minute) = (later(now, Duration::from_secs(3600)), later(now, Duration::from_secs(60)));
        let account =
            self.accounts.entry(caller.to_owned()).or_insert(Account { used: 0, reset: hour, points: 0, points_reset: minute });
        if account.reset <= now {
            (account.used, account.reset) = (0, hour);
        }
        if account.points_reset <= now {
            (account.points, account.points_reset) = (0, minute);
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

    /// Counts points towards the secondary limit; the time to wait when there are too many.
    pub(super) fn spend_points(&mut self, caller: &str, points: u32, limit: u32, now: Timestamp) -> Option<Duration> {
        let account = self.account(caller, now);
        if account.points.saturating_add(points) > limit {
            return Some(Duration::try_from(now.duration_until(account.points_reset)).unwrap_or_default());
        }
        account.points += points;
        None
    }
}
