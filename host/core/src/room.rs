//! Runners that the cluster has no room for: no node takes their pods, or a quota is used up.
//!
//! The scheduler and the API server say so of each runner that waits, which costs no question of ours. What is free elsewhere nobody asks.

use jiff::Timestamp;

use crate::phase::{Assessment, Cause, Phase};
use crate::policy::Attributes;
use crate::scale_down::since;

/// Those of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoRoom {
    /// Whose pods no node takes.
    pub unschedulable: u32,
    /// Whose pods can't be made because a quota is used up.
    pub over_quota: u32,
    /// Since when the first of them has been waiting.
    pub since: Option<Timestamp>,
}

impl NoRoom {
    /// Counts them.
    #[must_use]
    pub fn among<'a>(runners: impl IntoIterator<Item = &'a Assessment>) -> Self {
        runners.into_iter().filter(|assessment| assessment.phase == Phase::Pending).fold(Self::default(), |found, assessment| {
            let Some(trouble) = &assessment.trouble else { return found };
            let one = match trouble.cause {
                Cause::Unschedulable => Self { unschedulable: 1, over_quota: 0, since: Some(trouble.since) },
                Cause::Quota => Self { unschedulable: 0, over_quota: 1, since: Some(trouble.since) },
                _ => return found,
            };
            found.and(one)
        })
    }

    /// These and others together.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self {
            unschedulable: self.unschedulable.saturating_add(others.unschedulable),
            over_quota: self.over_quota.saturating_add(others.over_quota),
            since: self.since.into_iter().chain(others.since).min(),
        }
    }

    /// The contract's attributes of a pool that say so; none when there is room for all.
    #[must_use]
    pub fn attributes(self, now: Timestamp) -> Attributes {
        let Some(first) = self.since else { return Attributes::new() };
        [("unschedulable", self.unschedulable), ("over-quota", self.over_quota), ("no-room-seconds", since(first, now))]
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_string()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phase::{Situation, Trouble};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn waiting(cause: Cause, since: i64) -> Assessment {
        let trouble =
            Trouble { situation: Situation::NotStarting, cause, since: at(since), exit_code: None, message: String::new() };
        Assessment { phase: Phase::Pending, trouble: Some(trouble) }
    }

    #[test]
    fn only_runners_without_room_count() {
        let image = waiting(Cause::ImagePull, 10);
        let starting = Assessment { phase: Phase::Pending, trouble: None };
        let leaving = Assessment { phase: Phase::Stopping, trouble: waiting(Cause::Unschedulable, 1).trouble };
        assert_eq!(NoRoom::among([&image, &starting, &leaving]), NoRoom::default());
        assert_eq!(NoRoom::default().attributes(at(100)), []);

        let some = [waiting(Cause::Unschedulable, 60), waiting(Cause::Quota, 40), waiting(Cause::Unschedulable, 50), image];
        let found = NoRoom::among(&some);
        assert_eq!(found, NoRoom { unschedulable: 2, over_quota: 1, since: Some(at(40)) });
        let attributes = found.and(NoRoom::among([&waiting(Cause::Unschedulable, 30)])).attributes(at(100));
        let expected = [("unschedulable", "3"), ("over-quota", "1"), ("no-room-seconds", "70")];
        assert_eq!(attributes, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }
}
