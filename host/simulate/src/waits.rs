//! Waits by repository and by label set.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

use serde::Serialize;

use crate::agenda::Moment;
use crate::scenario::{Job, Scenario};

/// Repositories, and label sets, that have waits of their own: those with the most jobs. The jobs of all others count together.
const MOST: usize = 20;

/// What the others are called.
pub const OTHERS: &str = "others";

/// How long jobs waited from queued to started, seconds; of one that had not started at the end, as far as it got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// Jobs that were queued.
    pub jobs: u64,
    /// Median, by nearest rank.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// Longest wait.
    pub max: f64,
}

impl Waits {
    /// Of these waits, in milliseconds.
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a trace fit into the 53 bits of an f64")]
    pub(crate) fn of(mut waits: Vec<Moment>) -> Self {
        waits.sort_unstable();
        let rank = |percent: usize| (waits.len() * percent).div_ceil(100).saturating_sub(1);
        let wait = |percent: usize| waits.get(rank(percent)).map_or(0.0, |wait| *wait as f64 / 1000.0);
        Self { jobs: waits.len() as u64, p50: wait(50), p95: wait(95), max: wait(100) }
    }
}

/// Waits by repository and by label set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Breakdown {
    /// By `owner/name`.
    pub repositories: BTreeMap<String, Waits>,
    /// By labels, in their order.
    pub labels: BTreeMap<String, Waits>,
}

impl Breakdown {
    /// Of the jobs whose waits count; `wait` has each one's, in milliseconds.
    pub(crate) fn of(scenario: &Scenario, wait: impl Fn(usize) -> Moment) -> Self {
        let counted = || scenario.jobs.iter().enumerate().filter(|(_, job)| job.has_a_wait());
        let waits = || counted().map(|(index, job)| (job, wait(index)));
        Self {
            repositories: grouped(waits().map(|(job, wait)| (&*job.repository, wait)), |repository| (*repository).to_owned()),
            labels: grouped(waits().map(|(job, wait)| (&*job.labels, wait)), |labels| joined(labels)),
        }
    }
}

impl Job {
    /// Whether its wait counts: a pool takes it, it came after the beginning and was not called off.
    pub(crate) fn has_a_wait(&self) -> bool {
        self.pool.is_some() && self.counts && self.cancelled.is_none()
    }
}

fn joined(labels: &[Arc<str>]) -> String {
    let mut labels: Vec<&str> = labels.iter().map(|label| &**label).collect();
    labels.sort_unstable();
    labels.join(",")
}

fn grouped<K: Hash + Ord>(waits: impl Iterator<Item = (K, Moment)>, name: impl Fn(&K) -> String) -> BTreeMap<String, Waits> {
    let mut groups: BTreeMap<K, Vec<Moment>> = BTreeMap::new();
    waits.for_each(|(group, wait)| groups.entry(group).or_default().push(wait));
    // The same labels in another order are the same set.
    let mut named: BTreeMap<String, Vec<Moment>> = BTreeMap::new();
    groups.into_iter().for_each(|(group, waits)| named.entry(name(&group)).or_default().extend(waits));
    let mut groups: Vec<(String, Vec<Moment>)> = named.into_iter().collect();
    groups.sort_by(|(one, some), (other, more)| more.len().cmp(&some.len()).then_with(|| one.cmp(other)));
    let others: Vec<Moment> = groups.split_off(groups.len().min(MOST)).into_iter().flat_map(|(_, waits)| waits).collect();
    let others = (!others.is_empty()).then(|| (OTHERS.to_owned(), others));
    groups.into_iter().chain(others).map(|(group, waits)| (group, Waits::of(waits))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_grouped_and_those_of_small_groups_count_together() {
        // Repository r0 has 25 jobs, r1 24, and so on down to r24 with one.
        let waits = (0..25_i64).flat_map(|group| (0..25 - group).map(move |job| (group, 1_000 * (job + 1))));
        let found = grouped(waits, |group| format!("r{group}"));
        assert_eq!(found.len(), MOST + 1);
        assert_eq!(found["r0"], Waits { jobs: 25, p50: 13.0, p95: 24.0, max: 25.0 });
        assert_eq!(found["r19"].jobs, 6);
        assert_eq!(found[OTHERS], Waits { jobs: 5 + 4 + 3 + 2 + 1, p50: 2.0, p95: 5.0, max: 5.0 });
        assert!(grouped(std::iter::empty::<(u8, Moment)>(), u8::to_string).is_empty());
    }

    #[test]
    fn order_of_labels_makes_no_difference() {
        let labels = |names: [&str; 2]| names.map(Arc::<str>::from).to_vec();
        let waits = [(labels(["b", "a"]), 1_000), (labels(["a", "b"]), 3_000)];
        let found = grouped(waits.into_iter(), |labels| joined(labels));
        assert_eq!(found, BTreeMap::from([("a,b".to_owned(), Waits { jobs: 2, p50: 1.0, p95: 3.0, max: 3.0 })]));
    }
}
