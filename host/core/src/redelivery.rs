//! Which failed webhook deliveries GitHub is asked to deliver again.
//!
//! GitHub delivers once: a receiver that was down has missed the event, unless somebody asks for it. GitHub remembers all attempts for some
//! days, each under an id of its own, all attempts for one event under one GUID. So a [`Backlog`] needs no state that has to outlive the
//! process: how often an event was asked for is what GitHub lists.
//!
//! An event is asked for at most [`Limits::attempts`] times and only while it is young. While the newest attempts fail, one event at a time is
//! asked for, which shows whether the receiver is back; then the rest follows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

/// Events of one webhook that are remembered at most; the rest of an outage of that size is left to polling.
pub const BACKLOG: usize = 10_000;

/// How far a reading reaches into the one before: GitHub waits ten seconds for an answer, and may list an attempt a little late.
const OVERLAP: SignedDuration = SignedDuration::from_secs(120);

/// Pause after the first attempt in vain; each one in a row makes it four times as long.
const PAUSE: SignedDuration = SignedDuration::from_secs(60);

/// How long an attempt may be under way that GitHub was asked for: newer events go ahead, and it lists only what it has tried.
const UNDER_WAY: SignedDuration = SignedDuration::from_secs(30);

/// How long, how often and how many at a time GitHub is asked to deliver failed events again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Events whose first failure is older are given up: GitHub itself ends a queued job after a day, and lists deliveries for three.
    pub age: SignedDuration,
    /// How often one event is asked for, whoever asks.
    pub attempts: u32,
    /// Events that are asked for in one go.
    pub batch: usize,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver took it.
    Taken,
    /// The receiver answered that it will never take it.
    Refused,
    /// The receiver was not there, or could not take it then.
    Failed,
}

impl Outcome {
    /// By the status that the receiver answered; 0 when there was no answer. A wrong signature (401) may be a secret that is being changed, a
    /// 404 an ingress that is being set up; what is too long or not to be understood stays so.
    #[must_use]
    pub fn of(status: u16) -> Self {
        match status {
            200..300 => Self::Taken,
            400 | 413 | 415 | 422 => Self::Refused,
            _ => Self::Failed,
        }
    }
}

/// What an event is worth to those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Worth {
    /// It tells of a job that was queued.
    Urgent,
    /// It tells of a job that has a runner or is over.
    Useful,
    /// Nothing: it is never asked for, and only shows whether the receiver is there.
    Nothing,
}

/// One attempt to deliver, as GitHub lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt<'a> {
    /// GitHub's id of the attempt; the event is asked for again by it.
    pub id: u64,
    /// Identity of the event.
    pub guid: &'a str,
    /// When it was made.
    pub at: Timestamp,
    /// What the event is worth.
    pub worth: Worth,
    /// What became of it.
    pub outcome: Outcome,
    /// Somebody had asked for it.
    pub again: bool,
}

/// An event to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Id of its latest attempt.
    pub id: u64,
    /// GUID of the event, which all of its attempts share.
    pub guid: Arc<str>,
}

/// What a reading brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Events that this process had asked for and that were taken.
    pub delivered: u32,
    /// Events that are too old now, or were refused for good.
    pub given_up: u32,
    /// Failures that there was no room for.
    pub overlooked: u32,
}

/// Events of one webhook that were not delivered yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    failed: BTreeMap<Arc<str>, Failed>,
    /// The newest attempt of all, by time and id.
    newest: Option<(Timestamp, u64)>,
    /// Whether that one was taken.
    reachable: bool,
    /// When an attempt was taken last.
    taken: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Failed {
    latest: u64,
    /// Of the first failure that is known.
    first: Timestamp,
    /// Of the latest attempt, or of the latest time that this process asked.
    last: Timestamp,
    worth: Worth,
    /// Attempts that somebody had asked for.
    again: BTreeSet<u64>,
    /// How often this process asked.
    asked: u32,
    /// When it asked for an attempt that is not listed yet.
    expected: Option<Timestamp>,
}

impl Failed {
    /// How often it was asked for.
    fn tries(&self) -> u32 {
        self.asked.max(u32::try_from(self.again.len()).unwrap_or(u32::MAX))
    }
}

impl Backlog {
    /// How far back to read: newer attempts are to be given to [`Backlog::record`].
    #[must_use]
    pub fn since(&self, limits: &Limits, now: Timestamp) -> Timestamp {
        let oldest = now.checked_sub(limits.age).unwrap_or(Timestamp::MIN);
        let known = self.newest.and_then(|(at, _)| at.checked_sub(OVERLAP).ok());
        known.map_or(oldest, |known| known.max(oldest))
    }

    /// Takes note of attempts, in any order. What is known already changes nothing.
    pub fn record(&mut self, attempts: &[Attempt<'_>], limits: &Limits, now: Timestamp) -> Recorded {
        let mut recorded = Recorded::default();
        let oldest = now.checked_sub(limits.age).unwrap_or(Timestamp::MIN);
        let mut in_order: Vec<&Attempt<'_>> = attempts.iter().collect();
        in_order.sort_unstable_by_key(|attempt| (attempt.at, attempt.id));
        // An attempt that was taken ends the event, whatever came before or, by another's wish, after it.
        let over: BTreeSet<&str> =
            in_order.iter().filter(|attempt| attempt.outcome != Outcome::Failed).map(|attempt| attempt.guid).collect();
        for attempt in in_order {
            if self.newest.is_none_or(|newest| newest <= (attempt.at, attempt.id)) {
                self.newest = Some((attempt.at, attempt.id));
                self.reachable = attempt.outcome != Outcome::Failed;
            }
            match attempt.outcome {
                Outcome::Taken | Outcome::Refused => {
                    self.taken = self.taken.max(Some(attempt.at));
                    let ended = self.failed.remove(attempt.guid).filter(|failed| failed.asked > 0);
                    match attempt.outcome {
                        Outcome::Taken => recorded.delivered += u32::from(ended.is_some()),
                        _ => recorded.given_up += u32::from(ended.is_some()),
                    }
                }
                Outcome::Failed if over.contains(attempt.guid) || attempt.worth == Worth::Nothing => {}
                Outcome::Failed => recorded.overlooked += u32::from(!self.note(attempt)),
            }
        }
        let before = self.failed.len();
        self.failed.retain(|_, failed| failed.first >= oldest);
        recorded.given_up += u32::try_from(before - self.failed.len()).unwrap_or(u32::MAX);
        recorded
    }

    /// False when there is no room.
    fn note(&mut self, attempt: &Attempt<'_>) -> bool {
        if self.failed.len() >= BACKLOG && !self.failed.contains_key(attempt.guid) {
            return false;
        }
        let failed = self.failed.entry(Arc::from(attempt.guid)).or_insert_with(|| Failed {
            latest: attempt.id,
            first: attempt.at,
            last: attempt.at,
            worth: attempt.worth,
            again: BTreeSet::new(),
            asked: 0,
            expected: None,
        });
        failed.first = failed.first.min(attempt.at);
        if attempt.at >= failed.last {
            (failed.last, failed.latest) = (attempt.at, attempt.id);
        }
        if attempt.again && failed.again.insert(attempt.id) {
            failed.expected = None;
        }
        true
    }

    /// What to ask for now: jobs that wait first, then in the order of the events.
    #[must_use]
    pub fn due(&self, limits: &Limits, now: Timestamp) -> Vec<Due> {
        let mut due: Vec<(&Arc<str>, &Failed)> =
            self.failed.iter().filter(|(_, failed)| failed.tries() < limits.attempts && self.is_due(failed, now)).collect();
        due.sort_unstable_by_key(|(guid, failed)| {
            // Of a receiver that may be away the one is asked for that has the most attempts left.
            let probe = if self.reachable { 0 } else { failed.tries() };
            (probe, failed.worth, failed.first, *guid)
        });
        due.truncate(if self.reachable { limits.batch } else { limits.batch.min(1) });
        due.into_iter().map(|(guid, failed)| Due { id: failed.latest, guid: guid.clone() }).collect()
    }

    /// At once when it was never asked for, or when the receiver took something since and no attempt is under way; else after a pause.
    fn is_due(&self, failed: &Failed, now: Timestamp) -> bool {
        let Some(before) = failed.tries().checked_sub(1) else { return true };
        let pause = PAUSE.as_secs().saturating_mul(4_i64.saturating_pow(before));
        let waited = failed.last.checked_add(SignedDuration::from_secs(pause)).is_ok_and(|end| end <= now);
        let arrives = failed.expected.and_then(|asked| asked.checked_add(UNDER_WAY).ok());
        let is_under_way = arrives.is_some_and(|by| by > now);
        waited || (!is_under_way && self.taken.is_some_and(|taken| taken > failed.last))
    }

    /// An event was asked for.
    pub fn asked(&mut self, guid: &str, now: Timestamp) {
        if let Some(failed) = self.failed.get_mut(guid) {
            failed.asked = failed.tries().saturating_add(1);
            failed.last = failed.last.max(now);
            failed.expected = Some(now);
        }
    }

    /// Events that were not delivered and are not given up.
    #[must_use]
    pub fn waiting(&self, limits: &Limits) -> usize {
        self.failed.values().filter(|failed| failed.tries() < limits.attempts).count()
    }
}

/// Whether two URLs are the same address for webhooks: scheme and host have no case, and a slash at the end makes no difference.
#[must_use]
pub fn same_address(one: &str, other: &str) -> bool {
    fn parts(url: &str) -> (String, &str) {
        let url = url.trim();
        let begin = url.find("://").map_or(0, |at| at + 3);
        let end = url.get(begin..).and_then(|rest| rest.find(['/', '?'])).map_or(url.len(), |at| begin + at);
        let (host, path) = url.split_at_checked(end).unwrap_or((url, ""));
        (host.to_ascii_lowercase(), path.trim_end_matches('/'))
    }
    parts(one) == parts(other)
}

#[cfg(test)]
mod tests;
