//! Over how many objects a ledger is spread, and which of them a job belongs to.
//!
//! One object would be written whole for each event and grow with the number of jobs up to what the API server takes. Each writer may see
//! another number of jobs than the others do, and so choose another object for the same job: a ledger is read from all of its objects.

/// Objects that one ledger has at most.
pub const SHARDS: u16 = 256;

/// Jobs up to which one object is enough: most autoscalers never have more at a time.
const SINGLE: usize = 32;

/// Jobs that an object is meant to hold: a few KiB, so that the API server reads and writes it in about a millisecond.
const JOBS: usize = 48;

/// Objects that a ledger of several has at least: as many requests can be under way.
const SEVERAL: usize = 8;

/// Over how many objects a ledger of so many jobs is spread. A power of two.
#[must_use]
pub fn shards(jobs: usize) -> u16 {
    if jobs <= SINGLE {
        return 1;
    }
    let wanted = jobs.div_ceil(JOBS).next_power_of_two().max(SEVERAL);
    u16::try_from(wanted).map_or(SHARDS, |wanted| wanted.min(SHARDS))
}

/// Which of `shards` objects a job belongs to, from 0.
#[must_use]
pub fn shard(job: u64, shards: u16) -> u16 {
    // Fibonacci hashing: GitHub's ids grow, and often by the same step for the jobs of a matrix.
    let mixed = job.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    u16::try_from(mixed % u64::from(shards.max(1))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn number_of_objects_grows_with_the_jobs() {
        for (jobs, expected) in
            [(0, 1), (1, 1), (32, 1), (33, 8), (384, 8), (385, 16), (1_000, 32), (6_000, 128), (20_000, 256), (usize::MAX, 256)]
        {
            assert_eq!(shards(jobs), expected, "{jobs} jobs");
        }
    }

    #[test]
    fn jobs_with_evenly_spaced_ids_are_spread_evenly() {
        for step in [1, 2, 3, 64, 1_000] {
            let mut members = [0_u32; 32];
            for job in 0..3_200 {
                members[usize::from(shard(38_000_000_000 + job * step, 32))] += 1;
            }
            let (least, most) = (members.iter().min().unwrap(), members.iter().max().unwrap());
            assert!(*least >= 50 && *most <= 200, "step {step}: {least} to {most}");
        }
    }

    proptest! {
        #[test]
        fn shard_of_a_job_is_one_that_exists(job in any::<u64>(), jobs in 0_usize..100_000) {
            let shards = shards(jobs);
            prop_assert!(shards.is_power_of_two() && shards <= SHARDS);
            prop_assert!(shard(job, shards) < shards);
        }
    }
}
