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
    /// Counts the pending runners whose pods no node takes or a quota forbids.
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

/// What scheduler and API server say where there is no room, and the word for it. Of several phrases that fit a part of a message, the first
/// counts. From the scheduler's plugins (`pkg/scheduler/framework/plugins` of Kubernetes 1.28 to 1.34) and the admission plugin ResourceQuota.
const LACKING: [(&str, &str); 16] = [
    ("exceeded quota", "quota"),
    ("insufficient quota", "quota"),
    ("insufficient cpu", "cpu"),
    ("insufficient memory", "memory"),
    ("insufficient ephemeral-storage", "ephemeral-storage"),
    ("insufficient ", "extended-resource"),
    ("too many pods", "pods-per-node"),
    ("taint", "toleration"),
    ("volume", "volume"),
    ("topology spread", "topology-spread"),
    ("pod affinity", "pod-affinity"),
    ("anti-affinity", "pod-affinity"),
    ("affinity/selector", "node-selector"),
    ("free ports", "port"),
    ("unschedulable", "schedulable-node"),
    ("no nodes available", "schedulable-node"),
];

/// What is lacking, as the message of a pod or of a refusal says it: words of a closed set, sorted, each once; none where it says nothing known.
#[must_use]
pub fn lacking(message: &str) -> Vec<&'static str> {
    // What the scheduler says of preemption repeats or explains what it said before.
    let message = message.split_once("preemption:").map_or(message, |(reasons, _)| reasons).to_lowercase();
    let word = |part: &str| LACKING.iter().find(|(phrase, _)| part.contains(phrase)).map(|(_, word)| *word);
    let mut words: Vec<&str> = match word(&message) {
        // The rest of such a message lists what is requested and used.
        Some("quota") => vec!["quota"],
        _ => message.split([',', ':']).filter_map(word).collect(),
    };
    words.sort_unstable();
    words.dedup();
    words
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

    #[test]
    fn what_is_lacking_is_told_in_words_of_a_closed_set() {
        for (message, expected) in [
            ("", &[][..]),
            ("something new", &[]),
            (
                "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims.",
                &["cpu"],
            ),
            (
                "0/9 nodes are available: 1 Too many pods, 2 Insufficient memory, 2 node(s) had untolerated taint {a: b}, 4 node(s) didn't \
                 match Pod's node affinity/selector.",
                &["memory", "node-selector", "pods-per-node", "toleration"],
            ),
            ("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.", &["extended-resource"]),
            ("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.", &["volume"]),
            ("0/4 nodes are available: 1 Insufficient cpu, 3 node(s) had volume node affinity conflict.", &["cpu", "volume"]),
            ("0/2 nodes are available: 2 node(s) were unschedulable.", &["schedulable-node"]),
            ("0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.", &["pod-affinity"]),
            ("pods \"web-a\" is forbidden: exceeded quota: team, requested: cpu=1, used: cpu=4, limited: cpu=4", &["quota"]),
        ] {
            assert_eq!(lacking(message), expected, "{message}");
        }
    }
}
