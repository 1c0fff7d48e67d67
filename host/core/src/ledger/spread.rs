//! Over how many objects a ledger is spread, and which of them a new job is put into.
//!
//! One object would be written whole for each event and grow with the number of jobs up to what the API server takes. Objects chosen by a hash of
//! the job's id would each be written for a single event, since events that come together belong to different ones. So one object takes new jobs
//! until it is full: what comes together, and later what happens to those jobs, goes out in one write. Objects whose jobs are all over are deleted.
//!
//! Each writer may see other objects than the others do, and so choose another one for the same job: a ledger is read from all of its objects.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Objects that one ledger has at most.
pub const SHARDS: u16 = 256;

/// Jobs that an object is meant to hold: some KiB, so that the API server reads and writes it in about a millisecond.
const JOBS: usize = 64;

/// Into which object a job goes that is in none of them. `sizes` has the jobs of each object that exists, by its number.
#[must_use]
pub fn place(sizes: &BTreeMap<u16, usize>) -> u16 {
    // The fullest one with room: those that are nearly empty become empty, and are deleted.
    let roomy = sizes.iter().filter(|(_, jobs)| **jobs < JOBS).max_by_key(|(shard, jobs)| (**jobs, Reverse(**shard)));
    let unused = || (0..SHARDS).find(|shard| !sizes.contains_key(shard));
    let emptiest = || sizes.iter().min_by_key(|(_, jobs)| **jobs).map(|(shard, _)| *shard);
    roomy.map(|(shard, _)| *shard).or_else(unused).or_else(emptiest).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_object_takes_new_jobs_until_it_is_full() {
        for (sizes, expected) in [
            (&[][..], 0),
            (&[(0, 1)], 0),
            (&[(0, 63)], 0),
            (&[(0, 64)], 1),
            (&[(0, 64), (1, 3)], 1),
            (&[(0, 10), (1, 64), (2, 11)], 2),
            (&[(0, 10), (2, 10)], 0),
            (&[(1, 64), (2, 64)], 0),
        ] {
            assert_eq!(place(&sizes.iter().copied().collect()), expected, "{sizes:?}");
        }
        let full: BTreeMap<u16, usize> = (0..SHARDS).map(|shard| (shard, if shard == 9 { 70 } else { 80 })).collect();
        assert_eq!(place(&full), 9, "no more than {SHARDS} objects");
    }

    proptest! {
        /// As many jobs as come, and as many of them forgotten.
        #[test]
        fn objects_are_few_and_of_even_size(steps in proptest::collection::vec((0_u32..400, 0_u32..400), 1..60)) {
            let mut sizes: BTreeMap<u16, usize> = BTreeMap::new();
            for (more, fewer) in steps {
                for _ in 0..more {
                    let shard = place(&sizes);
                    *sizes.entry(shard).or_default() += 1;
                }
                for _ in 0..fewer {
                    if let Some(jobs) = sizes.values_mut().find(|jobs| **jobs > 0) {
                        *jobs -= 1;
                    }
                }
                sizes.retain(|_, jobs| *jobs > 0);
                let (most, all) = (sizes.values().max().copied().unwrap_or_default(), sizes.values().sum::<usize>());
                prop_assert!(most <= JOBS.max(all.div_ceil(usize::from(SHARDS)) + 1), "{sizes:?}");
                prop_assert!(sizes.keys().all(|shard| *shard < SHARDS));
            }
        }
    }
}
