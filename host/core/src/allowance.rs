//! How many calls one account may make at GitHub in a minute, and whose turn it is.
//!
//! GitHub's secondary limits (docs: rate limits for the REST API, "secondary rate limits"; they can't be queried): 900 points a minute "to a
//! single endpoint", where a GET is one point and any other call five, and about 80 requests a minute that create content. GitHub does not say
//! what an endpoint is there, whether a 304 is free, nor which requests create content. So here all calls of an account share the 900, a 304 costs
//! what a GET does, and every POST creates something.
//!
//! A call counts from when it is sent until a minute after its answer: GitHub saw it at some time between, and so no minute of GitHub's, whenever
//! it begins, holds more than was allowed here.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// What a call is for, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// Somebody's job waits for it: registration tokens, looks at a single job or runner.
    Start,
    /// Listings, on which everything else is decided.
    Listing,
    /// Nobody waits for it: removals, missed webhooks.
    Removal,
    /// For people to read: reports of jobs that wait. It gets no more than a small part of a minute, and nothing is kept for it.
    Report,
}

impl Purpose {
    /// Every purpose, in the order of their indices.
    pub const ALL: [Self; 4] = [Self::Start, Self::Listing, Self::Removal, Self::Report];

    /// Name for metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Listing => "listing",
            Self::Removal => "removal",
            Self::Report => "report",
        }
    }
}

/// What a call costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Points that count against GitHub's secondary limit per minute.
    pub points: u32,
    /// Requests that create something.
    pub creations: u32,
}

/// A call that may be made, to be given back when it was answered.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "what is not given back counts for ever"]
pub struct Grant {
    purpose: Purpose,
    cost: Cost,
}

/// An amount for each purpose.
type Amounts = [u32; Purpose::ALL.len()];

/// Time over which GitHub's secondary limits count.
const MINUTE: Duration = Duration::from_secs(60);

/// Points of an account: 60 of GitHub's 900 are left to whoever else uses the credentials.
const POINTS: Limit = Limit { most: 840, kept: [60, 120, 60, 0], reports: 60 };

/// Creations of an account: 5 of GitHub's 80 are left to others.
const CREATIONS: Limit = Limit { most: 75, kept: [40, 0, 10, 0], reports: 10 };

/// Calls that wait for their turn. More wait as well, but in no order.
const WAITING: usize = 4_096;

/// A call whose turn has come keeps its place for so long.
const LAPSE: Duration = Duration::from_secs(30);

/// Nobody is told to come back sooner than this.
const LEAST_WAIT: Duration = Duration::from_millis(100);

/// How much of something a minute may hold.
#[derive(Clone, Copy, Debug)]
struct Limit {
    most: u32,
    /// What the others leave to each purpose, whether or not it has used it.
    kept: Amounts,
    /// The most that [`Purpose::Report`] may use, even where nobody else uses anything.
    reports: u32,
}

impl Limit {
    /// That of one of so many. Nobody has nothing.
    fn part(self, sharers: u32) -> Self {
        let of = |amount: u32| amount / sharers.max(1);
        Self { most: of(self.most).max(1), kept: self.kept.map(of), reports: of(self.reports).max(1) }
    }

    /// Whether `used` leaves room for `amount`. Of what others use or have kept for them, no more counts than leaves this purpose its own share:
    /// `used` may name calls that are not made yet.
    fn fits(&self, used: &Amounts, purpose: Purpose, amount: u32) -> bool {
        let others = Purpose::ALL.iter().zip(used.iter().zip(&self.kept)).filter(|(other, _)| **other != purpose);
        let others = others.fold(0_u32, |sum, (_, (used, kept))| sum.saturating_add(*used.max(kept)));
        let others = others.min(self.most.saturating_sub(of(&self.kept, purpose)));
        let own = of(used, purpose).saturating_add(amount);
        own <= self.cap(purpose) && own.saturating_add(others) <= self.most
    }

    /// The most that calls for one purpose can use.
    fn most_for(&self, purpose: Purpose) -> u32 {
        let kept: u32 = Purpose::ALL.iter().zip(&self.kept).filter(|(other, _)| **other != purpose).map(|(_, kept)| kept).sum();
        self.most.saturating_sub(kept).min(self.cap(purpose))
    }

    /// What a purpose may use where nobody else uses anything.
    fn cap(&self, purpose: Purpose) -> u32 {
        if purpose == Purpose::Report { self.reports } else { self.most }
    }
}

/// What was used in the last minute.
#[derive(Debug)]
struct Window {
    limit: Limit,
    in_flight: Amounts,
    /// By the second in which it was answered, rounded up; the newest last.
    answered: VecDeque<(Duration, Amounts)>,
}

impl Window {
    fn new(limit: Limit) -> Self {
        Self { limit, in_flight: Amounts::default(), answered: VecDeque::new() }
    }

    fn forget(&mut self, now: Duration) {
        while self.answered.front().is_some_and(|(at, _)| at.saturating_add(MINUTE) <= now) {
            self.answered.pop_front();
        }
    }

    fn begin(&mut self, purpose: Purpose, amount: u32) {
        add(&mut self.in_flight, purpose, amount);
    }

    fn end(&mut self, purpose: Purpose, amount: u32, now: Duration) {
        if let Some(mine) = self.in_flight.get_mut(purpose as usize) {
            *mine = mine.saturating_sub(amount);
        }
        let second = Duration::from_secs(now.as_secs().saturating_add(u64::from(now.subsec_nanos() > 0)));
        match self.answered.back_mut().filter(|(at, _)| *at >= second) {
            Some((_, amounts)) => add(amounts, purpose, amount),
            None => {
                let mut amounts = Amounts::default();
                add(&mut amounts, purpose, amount);
                self.answered.push_back((second, amounts));
            }
        }
    }

    /// Time until there is room for `amount` behind what is `ahead`; an estimate, unless it is zero.
    fn wait(&self, ahead: &Amounts, purpose: Purpose, amount: u32, now: Duration) -> Duration {
        if amount == 0 {
            return Duration::ZERO;
        }
        let mut used = self.in_flight;
        for amounts in self.answered.iter().map(|(_, amounts)| amounts).chain([ahead]) {
            for (used, amount) in used.iter_mut().zip(amounts) {
                *used = used.saturating_add(*amount);
            }
        }
        if self.limit.fits(&used, purpose, amount) {
            return Duration::ZERO;
        }
        for (at, amounts) in &self.answered {
            for (used, amount) in used.iter_mut().zip(amounts) {
                *used = used.saturating_sub(*amount);
            }
            if self.limit.fits(&used, purpose, amount) {
                return at.saturating_add(MINUTE).saturating_sub(now);
            }
        }
        // More is ahead than a minute holds.
        let total = used.iter().fold(amount, |sum, used| sum.saturating_add(*used));
        MINUTE.mul_f64((f64::from(total) / f64::from(self.limit.most_for(purpose).max(1))).max(1.0))
    }
}

/// A call that waits.
#[derive(Debug)]
struct Waiting<K> {
    who: K,
    cost: Cost,
    /// When it was told to come back.
    due: Duration,
}

/// What one account may do in a minute, and who waits for a turn. Every `now` is the time since a fixed moment, on a clock that never goes back.
#[derive(Debug)]
pub struct Allowance<K> {
    /// Who has as much of the account as this one, itself included.
    sharers: u32,
    points: Window,
    creations: Window,
    /// In the order in which they have their turns: by purpose, then as they came.
    waiting: BTreeMap<(Purpose, u64), Waiting<K>>,
    numbers: u64,
}

impl<K> Default for Allowance<K> {
    fn default() -> Self {
        Self { sharers: 1, points: Window::new(POINTS), creations: Window::new(CREATIONS), waiting: BTreeMap::new(), numbers: 0 }
    }
}

impl<K> Allowance<K> {
    /// From now on so many have the account's minute among them, each the same part. What was used before counts as it did.
    pub fn share(&mut self, sharers: u32) {
        if self.sharers != sharers.max(1) {
            self.sharers = sharers.max(1);
            self.points.limit = POINTS.part(self.sharers);
            self.creations.limit = CREATIONS.part(self.sharers);
        }
    }
}

impl<K: PartialEq> Allowance<K> {
    /// Asks for a call. `who` tells it from others when it asks again.
    ///
    /// Whoever is urgent goes first, then whoever came first; each purpose has a share that the others leave to it. A call that costs more
    /// than a minute holds goes when nothing else does.
    ///
    /// # Errors
    ///
    /// When it has to wait: for how long. Its place is kept until some time after that.
    pub fn ask(&mut self, who: K, purpose: Purpose, cost: Cost, now: Duration) -> Result<Grant, Duration> {
        self.points.forget(now);
        self.creations.forget(now);
        self.waiting.retain(|_, waiting| waiting.due.saturating_add(LAPSE) >= now);
        let cost = Cost {
            points: cost.points.min(self.points.limit.most_for(purpose)),
            creations: cost.creations.min(self.creations.limit.most_for(purpose)),
        };
        let known = self.waiting.iter().find(|((of, _), waiting)| *of == purpose && waiting.who == who).map(|(place, _)| *place);
        let place = known.unwrap_or((purpose, self.numbers));
        let (mut points, mut creations) = (Amounts::default(), Amounts::default());
        for ((purpose, _), waiting) in self.waiting.range(..place) {
            add(&mut points, *purpose, waiting.cost.points);
            add(&mut creations, *purpose, waiting.cost.creations);
        }
        let wait = self.points.wait(&points, purpose, cost.points, now);
        let wait = wait.max(self.creations.wait(&creations, purpose, cost.creations, now));
        if wait.is_zero() {
            self.waiting.remove(&place);
            self.points.begin(purpose, cost.points);
            self.creations.begin(purpose, cost.creations);
            return Ok(Grant { purpose, cost });
        }
        let wait = wait.max(LEAST_WAIT);
        if known.is_some() || self.waiting.len() < WAITING {
            self.numbers = self.numbers.wrapping_add(u64::from(known.is_none()));
            self.waiting.insert(place, Waiting { who, cost, due: now.saturating_add(wait) });
        }
        Err(wait)
    }

    /// A call was answered, or given up.
    pub fn answered(&mut self, Grant { purpose, cost }: Grant, now: Duration) {
        self.points.end(purpose, cost.points, now);
        self.creations.end(purpose, cost.creations, now);
    }
}

fn of(amounts: &Amounts, purpose: Purpose) -> u32 {
    amounts.get(purpose as usize).copied().unwrap_or_default()
}

fn add(amounts: &mut Amounts, purpose: Purpose, amount: u32) {
    if let Some(mine) = amounts.get_mut(purpose as usize) {
        *mine = mine.saturating_add(amount);
    }
}

#[cfg(test)]
#[path = "allowance/tests.rs"]
mod tests;
