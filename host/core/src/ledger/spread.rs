//! Over how many objects a ledger is spread, and which of them a new job is put into.
//!
//! One object would be written whole for each event and grow with the number of jobs up to what the API server takes. Objects chosen by a hash of
//! the job's id would each be written for a single event, since events that come together belong to different ones. So one object takes new jobs
//! until it is full: what comes together, and later what happens to those jobs, goes out in one write. Objects whose jobs are all over are deleted.
//!
//! Two writers of one object cost the API server more than twice as much as one: each patch that finds the object changed is applied once more. So
//! a writer puts jobs into objects of its own, unless there are few jobs. What happens to a job later is written to the object that has it, whoever
//! made that.
//!
//! Each writer may see other objects than the others do, and so choose another one for the same job: a ledger is read from all of its objects.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Objects that one ledger has at most. Beyond some thirty thousand jobs, all of them hold more than they are meant to.
pub const SHARDS: u16 = 2_048;

/// Jobs that an object is meant to hold. A patch costs the API server 3 ms of processor time, and a quarter of a millisecond more for each job in
/// the object, on two cores of 2025; an object that comes and goes costs as much as three patches.
const JOBS: usize = 16;

/// Jobs up to which several writers put new ones into the same object: in an installation with few jobs, one object serves all.
const SHARED: usize = 8;

/// An object that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Jobs in it.
    pub jobs: usize,
    /// Whether whoever asks made it.
    pub own: bool,
}

/// Into which object a job goes that is in none of them. `sizes` has those that exist, by their numbers; a new one gets the first free number from
/// `first` on, which is another one for each writer.
#[must_use]
pub fn place(sizes: &BTreeMap<u16, Size>, first: u16) -> u16 {
    if sizes.is_empty() {
        return 0;
    }
    let has_room = |size: &Size| size.jobs < if size.own { JOBS } else { SHARED };
    // The fullest one with room: those that are nearly empty become empty, and are deleted.
    let roomy = sizes.iter().filter(|(_, size)| has_room(size)).max_by_key(|(shard, size)| (size.jobs, Reverse(**shard)));
    let first = first % SHARDS;
    let unused = || (first..SHARDS).chain(0..first).find(|shard| !sizes.contains_key(shard));
    let emptiest = || sizes.iter().min_by_key(|(_, size)| size.jobs).map(|(shard, _)| *shard);
    roomy.map(|(shard, _)| *shard).or_else(unused).or_else(emptiest).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn own(jobs: usize) -> Size {
        Size { jobs, own: true }
    }

    fn other(jobs: usize) -> Size {
        Size { jobs, own: false }
    }

    #[test]
    fn one_object_takes_new_jobs_until_it_is_full() {
        for (sizes, expected) in [
            (&[][..], 0),
            (&[(0, own(1))], 0),
            (&[(0, own(15))], 0),
            (&[(0, own(16))], 5),
            (&[(0, own(16)), (5, own(16))], 6),
            (&[(0, own(16)), (1, own(3))], 1),
            (&[(0, own(10)), (1, own(16)), (2, own(11))], 2),
            (&[(0, own(10)), (2, own(10))], 0),
        ] {
            assert_eq!(place(&sizes.iter().copied().collect(), 5), expected, "{sizes:?}");
        }
        let full: BTreeMap<u16, Size> = (0..SHARDS).map(|shard| (shard, own(if shard == 9 { 70 } else { 80 }))).collect();
        assert_eq!(place(&full, 5), 9, "no more than {SHARDS} objects");
        let most: BTreeMap<u16, Size> = (5..SHARDS).map(|shard| (shard, own(16))).collect();
        assert_eq!(place(&most, 5), 0, "numbers begin again");
    }

    #[test]
    fn objects_of_other_writers_take_new_jobs_while_they_hold_few() {
        for (sizes, expected) in [
            (&[(0, other(0))][..], 0),
            (&[(0, other(7))], 0),
            (&[(0, other(8))], 5),
            (&[(0, other(8)), (5, own(2))], 5),
            (&[(0, other(7)), (5, own(9))], 5),
            (&[(0, other(8)), (5, other(8))], 6),
        ] {
            assert_eq!(place(&sizes.iter().copied().collect(), 5), expected, "{sizes:?}");
        }
    }

    proptest! {
        /// As many jobs as come by either of two writers, and as many of them forgotten.
        #[test]
        fn objects_are_few_and_of_even_size(steps in proptest::collection::vec((any::<bool>(), 0_u32..400, 0_u32..400), 1..60)) {
            // As each of the two sees them.
            let mut seen: [BTreeMap<u16, Size>; 2] = Default::default();
            for (writer, more, fewer) in steps {
                let writer = usize::from(writer);
                for _ in 0..more {
                    let shard = place(&seen[writer], [17, 203][writer]);
                    for (reader, sizes) in seen.iter_mut().enumerate() {
                        sizes.entry(shard).or_insert(Size { jobs: 0, own: reader == writer }).jobs += 1;
                    }
                }
                for _ in 0..fewer {
                    let Some(shard) = seen[0].iter().find(|(_, size)| size.jobs > 0).map(|(shard, _)| *shard) else { break };
                    seen.iter_mut().for_each(|sizes| sizes.get_mut(&shard).unwrap().jobs -= 1);
                }
                seen.iter_mut().for_each(|sizes| sizes.retain(|_, size| size.jobs > 0));
                let objects = &seen[0];
                let jobs = || objects.values().map(|size| size.jobs);
                let (most, all) = (jobs().max().unwrap_or_default(), jobs().sum::<usize>());
                prop_assert!(most <= JOBS.max(all.div_ceil(usize::from(SHARDS)) + 1), "{objects:?}");
                prop_assert!(objects.keys().all(|shard| *shard < SHARDS));
            }
        }
    }
}
