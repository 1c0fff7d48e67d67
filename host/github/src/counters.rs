//! What the client has done so far, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use pacer_core::allowance::Purpose;

use crate::call::Endpoint;

/// How a call ended. Closed, so that it can label metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// 2xx.
    Success,
    /// 304: the cached answer still holds. Not charged to the primary limit.
    NotModified,
    /// 403 or 429 because of a rate limit.
    RateLimited,
    /// Any other 3xx or 4xx.
    Refused,
    /// 5xx.
    ServerError,
    /// No answer: network, TLS, proxy or deadline.
    NoAnswer,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 6] =
        [Self::Success, Self::NotModified, Self::RateLimited, Self::Refused, Self::ServerError, Self::NoAnswer];

    /// Name for metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::NotModified => "not_modified",
            Self::RateLimited => "rate_limited",
            Self::Refused => "refused",
            Self::ServerError => "server_error",
            Self::NoAnswer => "no_answer",
        }
    }

    pub(crate) fn of(status: StatusCode, limited: bool) -> Self {
        match status.as_u16() {
            _ if limited => Self::RateLimited,
            200..300 => Self::Success,
            304 => Self::NotModified,
            500.. => Self::ServerError,
            _ => Self::Refused,
        }
    }
}

/// Calls of one kind that ended one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCount {
    /// What the calls were for.
    pub endpoint: Endpoint,
    /// How each of the calls ended.
    pub outcome: Outcome,
    /// How often, since the client was made.
    pub calls: u64,
}

/// State of the conditional cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Answers held.
    pub entries: u64,
    /// Bytes of the answers held, with their headers.
    pub bytes: u64,
    /// Upper bound of `bytes`.
    pub capacity: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    calls: [[AtomicU64; Outcome::ALL.len()]; Endpoint::ALL.len()],
    held_back: AtomicU64,
    deferred: [AtomicU64; Purpose::ALL.len()],
}

impl Counters {
    pub(crate) fn count(&self, endpoint: Endpoint, outcome: Outcome) {
        if let Some(cell) = self.calls.get(endpoint.index()).and_then(|row| row.get(outcome as usize)) {
            cell.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn hold_back(&self) {
        self.held_back.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn held_back(&self) -> u64 {
        self.held_back.load(Ordering::Relaxed)
    }

    pub(crate) fn defer(&self, purpose: Purpose) {
        if let Some(cell) = self.deferred.get(purpose as usize) {
            cell.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn deferred(&self) -> [(Purpose, u64); Purpose::ALL.len()] {
        let count = |purpose: Purpose| self.deferred.get(purpose as usize).map_or(0, |cell| cell.load(Ordering::Relaxed));
        Purpose::ALL.map(|purpose| (purpose, count(purpose)))
    }

    pub(crate) fn calls(&self) -> Vec<CallCount> {
        let rows = Endpoint::ALL.into_iter().zip(&self.calls);
        let cells = rows.flat_map(|(endpoint, row)| Outcome::ALL.into_iter().zip(row).map(move |cell| (endpoint, cell)));
        cells.map(|(endpoint, (outcome, cell))| CallCount { endpoint, outcome, calls: cell.load(Ordering::Relaxed) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_counted_where_they_belong() {
        let table = [
            (200, false, Outcome::Success),
            (204, false, Outcome::Success),
            (304, false, Outcome::NotModified),
            (302, false, Outcome::Refused),
            (403, false, Outcome::Refused),
            (403, true, Outcome::RateLimited),
            (429, true, Outcome::RateLimited),
            (502, false, Outcome::ServerError),
        ];
        let counters = Counters::default();
        for (status, limited, outcome) in table {
            assert_eq!(Outcome::of(StatusCode::from_u16(status).unwrap(), limited), outcome, "{status}");
            counters.count(Endpoint::RemoveRunner, outcome);
        }
        let calls = counters.calls();
        assert_eq!(calls.len(), Endpoint::ALL.len() * Outcome::ALL.len());
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
            let expected = table.iter().filter(|row| row.2 == outcome).count() as u64;
            let found = calls.iter().find(|count| count.endpoint == Endpoint::RemoveRunner && count.outcome == outcome);
            assert_eq!(found.unwrap().calls, expected, "{}", outcome.name());
        }
    }
}
