//! When a status is written, for objects whose status counts what changes all the time.
//!
//! A status is for people and for the next process: no decision of this one waits for it. So one that only counts anew is written once it has
//! lasted, and one that has gone back to what is stored is not written at all. News that somebody may have to act on is written at once.
//! Whoever computes a status at every pass, asks [`PacedStatus::turn`], and comes back when that says so, has written the last one in the end.
//!
//! Statuses go out as merge patches and not by server-side apply. An applied field that is left out later is removed only if its field manager
//! alone owns it. Statuses that ARC or an earlier version of pacer wrote belong to other managers, with the operation `Update`, so that a
//! `backoffUntil` or a `message` of theirs would stay for ever. And a status has several writers: the receiver writes the ledger, the hook in a
//! pod writes the phase.

use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::Patch;
use serde_json::{Value, json};

/// A status that counts is written when it has been the same for so long: longer than the states that a runner passes through on its way to
/// its job, and short enough for somebody who looks.
pub const QUIET: Duration = Duration::from_secs(2);

/// While it changes on and on it is written after so long.
pub const LONGEST: Duration = Duration::from_secs(5);

/// Nothing is written more often, whatever it says.
pub const PACE: Duration = Duration::from_secs(1);

/// What a status has to say that the stored one does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Numbers, and words about numbers.
    Counts,
    /// Something that a person or a program may be waiting for.
    News,
}

impl Weight {
    /// Of conditions: one that appears, goes, turns or has another reason is news, unless both of its reasons are `routine`.
    #[must_use]
    pub fn of(stored: &[Condition], new: &[Condition], routine: &[&str]) -> Self {
        let is_routine = |condition: &Condition| routine.contains(&condition.reason.as_str());
        let is_told = |condition: &Condition| {
            stored.iter().find(|before| before.type_ == condition.type_).is_some_and(|before| {
                let same = before.status == condition.status && before.reason == condition.reason;
                same || (is_routine(before) && is_routine(condition))
            })
        };
        let gone = stored.iter().any(|before| new.iter().all(|condition| condition.type_ != before.type_));
        if !gone && new.iter().all(is_told) { Self::Counts } else { Self::News }
    }
}

/// What to do with a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing: it is stored, or was sent and the watch has not shown that yet.
    Settled,
    /// To be computed and asked about again after so long.
    Later(Duration),
    /// To be written: as it was when it began to say this, so that a condition has turned when it did.
    Write(Value),
}

/// The status of one object.
#[derive(Clone, Debug, Default)]
pub struct PacedStatus {
    sent: Option<Sent>,
    waiting: Option<Waiting>,
}

/// What was written last.
#[derive(Clone, Debug)]
struct Sent {
    /// Resource version of the object that it was computed from.
    version: Option<String>,
    value: Value,
    at: Instant,
}

/// What is not written yet.
#[derive(Clone, Debug)]
struct Waiting {
    value: Value,
    /// Since when it says this.
    since: Instant,
    /// Since when it says anything else than what is stored.
    began: Instant,
}

impl PacedStatus {
    /// What to do with a status, `new`, that was computed from the object at this resource version, whose status is `stored`.
    pub fn turn(&mut self, version: Option<&str>, stored: &Value, new: Value, weight: Weight, now: Instant) -> Turn {
        let is_sent = |sent: &Sent| sent.version.as_deref() == version && says_the_same(&sent.value, &new);
        if says_the_same(stored, &new) || self.sent.as_ref().is_some_and(is_sent) {
            self.waiting = None;
            return Turn::Settled;
        }
        let waiting = match self.waiting.take() {
            Some(waiting) if says_the_same(&waiting.value, &new) => waiting,
            Some(Waiting { began, .. }) => Waiting { value: new, since: now, began },
            None => Waiting { value: new, since: now, began: now },
        };
        let lasted = QUIET.saturating_sub(now.saturating_duration_since(waiting.since));
        let longest = LONGEST.saturating_sub(now.saturating_duration_since(waiting.began));
        let paced = self.sent.as_ref().map_or(Duration::ZERO, |sent| PACE.saturating_sub(now.saturating_duration_since(sent.at)));
        let wait = match weight {
            Weight::News => paced,
            Weight::Counts => lasted.min(longest).max(paced),
        };
        let value = waiting.value.clone();
        self.waiting = Some(waiting);
        if wait.is_zero() { Turn::Write(value) } else { Turn::Later(wait) }
    }

    /// A status that was computed from this resource version has been written.
    pub fn written(&mut self, version: Option<String>, value: Value, now: Instant) {
        *self = Self { sent: Some(Sent { version, value, at: now }), waiting: None };
    }
}

/// Whether two statuses differ in nothing but when their conditions turned: one that turned and turned back in between, untold, has not.
fn says_the_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let is_same = |(key, value): (&String, &Value)| {
                let told = other.get(key);
                key == "lastTransitionTime" || told.is_some_and(|told| says_the_same(value, told))
            };
            one.len() == other.len() && one.iter().all(is_same)
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| says_the_same(one, other))
        }
        _ => one == other,
    }
}

/// A merge patch from one status to another: what is gone has to be named in it.
#[must_use]
pub fn merge_patch(new: &Value, old: &Value) -> Patch<Value> {
    let mut body = new.clone();
    if let (Some(fields), Value::Object(old)) = (body.as_object_mut(), old) {
        for key in old.keys() {
            fields.entry(key.clone()).or_insert(Value::Null);
        }
    }
    Patch::Merge(json!({ "status": body }))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn count(count: u32) -> Value {
        json!({ "replicas": count })
    }

    /// Milliseconds until it is to be asked again; none when there is nothing to do, 0 when it is written.
    fn ask(status: &mut PacedStatus, (version, stored): (&str, u32), new: u32, weight: Weight, now: Instant) -> Option<u128> {
        match status.turn(Some(version), &count(stored), count(new), weight, now) {
            Turn::Settled => None,
            Turn::Later(wait) => Some(wait.as_millis()),
            Turn::Write(value) => {
                status.written(Some(version.to_owned()), value, now);
                Some(0)
            }
        }
    }

    #[test]
    fn counts_are_written_when_they_last_and_news_at_once() {
        let began = Instant::now();
        let mut status = PacedStatus::default();
        for (milliseconds, seen, new, weight, expected) in [
            (0, ("7", 3), 3, Weight::Counts, None),
            (0, ("7", 3), 4, Weight::Counts, Some(2_000)),
            (1_500, ("7", 3), 5, Weight::Counts, Some(2_000)),
            // It has gone back before anybody was told.
            (1_600, ("7", 3), 3, Weight::Counts, None),
            (2_000, ("7", 3), 4, Weight::Counts, Some(2_000)),
            (4_000, ("7", 3), 4, Weight::Counts, Some(0)),
            // The watch has not shown it.
            (4_010, ("7", 3), 4, Weight::Counts, None),
            (4_020, ("8", 4), 4, Weight::Counts, None),
            (4_500, ("8", 4), 9, Weight::News, Some(500)),
            (5_000, ("8", 4), 9, Weight::News, Some(0)),
            // Somebody else changed it in between: it has to be written again.
            (9_000, ("10", 1), 9, Weight::Counts, Some(2_000)),
            (11_000, ("10", 1), 9, Weight::Counts, Some(0)),
        ] {
            let now = began + Duration::from_millis(milliseconds);
            assert_eq!(ask(&mut status, seen, new, weight, now), expected, "{new} after {milliseconds} ms");
        }
    }

    #[test]
    fn what_changes_on_and_on_is_written_as_well() {
        let began = Instant::now();
        let mut status = PacedStatus::default();
        let mut stored = 0;
        let mut written = Vec::new();
        for tenth in 0..200_u32 {
            let now = began + Duration::from_millis(u64::from(tenth) * 100);
            if ask(&mut status, ("7", stored), 1_000 + tenth, Weight::Counts, now) == Some(0) {
                stored = 1_000 + tenth;
                written.push(tenth);
            }
        }
        assert_eq!(written, [50, 101, 152]);
    }

    /// Whatever happens before: whoever comes back when told to has written the last status, once.
    #[test]
    fn last_status_is_written_when_nothing_else_happens() {
        let began = Instant::now();
        for changes in 0..40_u32 {
            let (mut status, mut stored, mut now) = (PacedStatus::default(), 0, began);
            for change in 1..=changes {
                if ask(&mut status, ("7", stored), change, Weight::Counts, now) == Some(0) {
                    stored = change;
                }
                now += Duration::from_millis(u64::from(change) * 37 % 1_900);
            }
            let mut writes = 0;
            while let Some(wait) = ask(&mut status, ("8", stored), 77, Weight::Counts, now) {
                if wait == 0 {
                    (stored, writes) = (77, writes + 1);
                }
                now += Duration::from_millis(u64::try_from(wait).unwrap());
            }
            assert_eq!((stored, writes), (77, 1), "{changes} changes before");
            assert!(now - began < Duration::from_secs(120));
        }
    }

    fn condition(type_: &str, status: &str, reason: &str, second: i64) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: Time(jiff::Timestamp::from_second(second).unwrap()),
        }
    }

    #[test]
    fn conditions_are_news_when_they_turn_or_have_another_reason() {
        let routine = ["AllOnline", "Starting"];
        let ready = |status: &str, reason: &str| vec![condition("Ready", status, reason, 0)];
        for (what, before, after, expected) in [
            ("first", vec![], ready("True", "AllOnline"), Weight::News),
            ("gone", ready("True", "AllOnline"), vec![], Weight::News),
            ("same", ready("True", "AllOnline"), ready("True", "AllOnline"), Weight::Counts),
            ("routine", ready("True", "AllOnline"), ready("False", "Starting"), Weight::Counts),
            ("trouble", ready("True", "AllOnline"), ready("False", "BackingOff"), Weight::News),
            ("another trouble", ready("False", "BackingOff"), ready("False", "CredentialsRefused"), Weight::News),
            ("trouble over", ready("False", "BackingOff"), ready("False", "Starting"), Weight::News),
            ("it holds for another reason", ready("True", "AllOnline"), ready("True", "Enough"), Weight::News),
        ] {
            assert_eq!(Weight::of(&before, &after, &routine), expected, "{what}");
        }
    }

    #[test]
    fn condition_that_turned_back_untold_has_not_turned() {
        let status =
            |replicas: u32, second: i64| json!({"replicas": replicas, "conditions": [condition("Ready", "True", "r", second)]});
        let (mut paced, began) = (PacedStatus::default(), Instant::now());
        assert_eq!(paced.turn(None, &status(1, 5), status(1, 9), Weight::Counts, began), Turn::Settled);
        // It turned when it first said so, not when it is written.
        assert_eq!(paced.turn(None, &status(1, 5), status(2, 9), Weight::Counts, began), Turn::Later(QUIET));
        assert_eq!(paced.turn(None, &status(1, 5), status(2, 11), Weight::Counts, began + QUIET), Turn::Write(status(2, 9)));
    }

    #[test]
    fn field_that_is_gone_is_named_in_the_patch() {
        let Patch::Merge(patch) = merge_patch(&json!({"a": 1}), &json!({"a": 0, "b": 2})) else { panic!("another patch") };
        assert_eq!(patch, json!({"status": {"a": 1, "b": null}}));
    }
}
