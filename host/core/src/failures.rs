//! Where runners failed of late: by node and by image.
//!
//! A node that breaks runner after runner, and an image that does not start, show here long before anybody looks. What is remembered is
//! bounded by number and by age; a process that begins to act takes those before it from receipts.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::phase::Cause;

/// For how long a failure counts.
pub const AGE: SignedDuration = SignedDuration::from_hours(1);

/// Failures that are remembered; the oldest go first.
pub const LIMIT: usize = 2_000;

/// Whether the node or the image of a runner may be to blame for its end. What GitHub, a quota or a person did says nothing of them.
#[must_use]
pub fn is_told(cause: Cause) -> bool {
    use Cause::{ConfigError, Evicted, Exit, ImagePull, NeverStarted, NodeLost, OomKilled, Unknown, UnregisteredExit};
    matches!(cause, Exit | UnregisteredExit | NeverStarted | Evicted | OomKilled | NodeLost | ImagePull | ConfigError | Unknown)
}

/// A runner failed and was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When the operator decided to replace it.
    pub at: Timestamp,
    /// Its node, where it had one.
    pub node: Option<Arc<str>>,
    /// Its image, where that is known.
    pub image: Option<Arc<str>>,
}

/// Those of the last hour, of all pools; the oldest first.
#[derive(Clone, Debug, Default)]
pub struct Failures(VecDeque<Failure>);

impl Failures {
    /// A runner failed and was replaced. Nothing is remembered of one that had neither.
    pub fn add(&mut self, node: Option<&str>, image: Option<&str>, now: Timestamp) {
        self.forget(now);
        if node.is_none() && image.is_none() {
            return;
        }
        if self.0.len() >= LIMIT {
            self.0.pop_front();
        }
        // Names repeat: many failures of one node or image share one text.
        let shared = |text: &str, of: fn(&Failure) -> &Option<Arc<str>>| {
            let known = self.0.iter().rev().take(16).filter_map(|failure| of(failure).as_ref());
            known.into_iter().find(|known| ***known == *text).cloned().unwrap_or_else(|| Arc::from(text))
        };
        let node = node.map(|node| shared(node, |failure| &failure.node));
        let image = image.map(|image| shared(image, |failure| &failure.image));
        self.0.push_back(Failure { at: now, node, image });
    }

    /// Adds failures of before `began`, when this process began to count, in the order of time. Those that are told of since then are known already.
    pub fn recall(&mut self, mut past: Vec<Failure>, began: Timestamp) {
        past.retain(|failure| failure.at < began);
        past.extend(self.0.drain(..).filter(|failure| failure.at >= began));
        past.sort_by_key(|failure| failure.at);
        past.drain(..past.len().saturating_sub(LIMIT));
        self.0 = past.into();
    }

    /// How many runners failed on a node within the last hour.
    #[must_use]
    pub fn on_node(&self, node: &str, now: Timestamp) -> usize {
        self.recent(now).filter(|failure| failure.node.as_deref() == Some(node)).count()
    }

    /// How many runners of an image failed within the last hour.
    #[must_use]
    pub fn of_image(&self, image: &str, now: Timestamp) -> usize {
        self.recent(now).filter(|failure| failure.image.as_deref() == Some(image)).count()
    }

    fn recent(&self, now: Timestamp) -> impl Iterator<Item = &Failure> {
        self.0.iter().filter(move |failure| now.duration_since(failure.at) < AGE)
    }

    fn forget(&mut self, now: Timestamp) {
        self.0.retain(|failure| now.duration_since(failure.at) < AGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    #[test]
    fn failures_count_for_an_hour_by_node_and_by_image() {
        let mut failures = Failures::default();
        failures.add(Some("n-1"), Some("runner:1"), at(0));
        failures.add(Some("n-1"), Some("runner:2"), at(100));
        failures.add(None, Some("runner:1"), at(200));
        failures.add(None, None, at(300));
        for (second, node, image) in [(300, 2, 2), (3_599, 2, 2), (3_600, 1, 1), (3_700, 0, 1), (3_800, 0, 0)] {
            let found = (failures.on_node("n-1", at(second)), failures.of_image("runner:1", at(second)));
            assert_eq!(found, (node, image), "after {second} s");
        }
        assert_eq!((failures.on_node("n-2", at(300)), failures.0.len()), (0, 3));
        failures.add(Some("n-2"), None, at(10_000));
        assert_eq!(failures.0.len(), 1, "what is old is forgotten");
    }

    #[test]
    fn those_before_the_process_began_are_counted_once_beside_its_own() {
        let mut failures = Failures::default();
        failures.add(Some("n-1"), Some("runner:1"), at(1_000));
        let told = |second, node: &str| Failure { at: at(second), node: Some(node.into()), image: None };
        // Its own failure has a receipt as well.
        let past = vec![told(1_000, "n-1"), told(500, "n-1"), told(400, "n-2")];
        failures.recall(past.clone(), at(900));
        for (second, one, two) in [(1_000, 2, 1), (4_000, 2, 0), (4_100, 1, 0), (4_600, 0, 0)] {
            assert_eq!((failures.on_node("n-1", at(second)), failures.on_node("n-2", at(second))), (one, two), "{second}");
        }
        failures.recall(past, at(900));
        assert_eq!(failures.on_node("n-1", at(1_000)), 2, "told twice");
        failures.recall((0..2 * i64::try_from(LIMIT).unwrap()).map(|_| told(800, "n-3")).collect(), at(900));
        assert_eq!((failures.0.len(), failures.on_node("n-3", at(1_000))), (LIMIT, LIMIT - 1), "the oldest make room");
    }

    #[test]
    fn the_oldest_make_room_when_there_are_too_many() {
        let mut failures = Failures::default();
        failures.add(Some("first"), None, at(0));
        for _ in 0..LIMIT {
            failures.add(Some("n-1"), None, at(1));
        }
        assert_eq!((failures.on_node("first", at(2)), failures.on_node("n-1", at(2))), (0, LIMIT));
    }
}
