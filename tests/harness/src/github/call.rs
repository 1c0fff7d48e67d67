//! What was asked over HTTP.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;

use super::route::RouteKind;

/// One request and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// When it was answered.
    pub at: Timestamp,
    /// Method in upper case.
    pub method: String,
    /// What it asked for; none when GitHub has no such route.
    pub route: Option<RouteKind>,
    /// Path with names and numbers replaced: `/repos/{owner}/{repo}/actions/runners`.
    pub template: &'static str,
    /// Path and query as sent.
    pub path: String,
    /// Status of the answer; 0 when the connection was cut instead.
    pub status: u16,
    /// Whether it carried `If-None-Match`.
    pub conditional: bool,
    /// Who asked, without secrets: `user octocat`, `app 7`, `installation 70`; empty when refused.
    pub caller: String,
}

impl Call {
    /// Whether the answer was 304.
    #[must_use]
    pub fn not_modified(&self) -> bool {
        self.status == 304
    }
}

/// How often a route was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteCount {
    /// All requests of the route since the start or the last reset.
    pub requests: u64,
    /// Of these: answered 304.
    pub not_modified: u64,
    /// Of these: answered 4xx or 5xx, or cut.
    pub failed: u64,
}

#[derive(Debug)]
pub(super) struct Calls {
    log: VecDeque<Call>,
    capacity: usize,
    counts: BTreeMap<RouteKind, RouteCount>,
    unknown: u64,
}

impl Calls {
    pub(super) fn new(capacity: usize) -> Self {
        Self { log: VecDeque::new(), capacity, counts: BTreeMap::new(), unknown: 0 }
    }

    pub(super) fn record(&mut self, call: Call) {
        match call.route {
            Some(route) => {
                let count = self.counts.entry(route).or_default();
                count.requests += 1;
                count.not_modified += u64::from(call.not_modified());
                count.failed += u64::from(call.status == 0 || call.status >= 400);
            }
            None => self.unknown += 1,
        }
        if self.log.len() >= self.capacity {
            self.log.pop_front();
        }
        self.log.push_back(call);
    }

    pub(super) fn log(&self) -> impl Iterator<Item = &Call> {
        self.log.iter()
    }

    pub(super) fn count(&self, route: RouteKind) -> RouteCount {
        self.counts.get(&route).copied().unwrap_or_default()
    }

    pub(super) fn counts(&self) -> BTreeMap<RouteKind, RouteCount> {
        self.counts.clone()
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.values().map(|count| count.requests).sum::<u64>() + self.unknown
    }

    pub(super) fn reset(&mut self) {
        self.log.clear();
        self.counts.clear();
        self.unknown = 0;
    }
}
