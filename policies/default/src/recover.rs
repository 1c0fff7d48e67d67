//! Whether jobs that died with their runners run again: once, where the runner's place was taken away from it.
//!
//! Memory is another matter: the same job would use as much again.

use pacer_policy_sdk::Recover;
use pacer_policy_sdk::recover::{DeadJob, Request, Verdict};

use crate::{Default, Settings};

impl Recover for Default {
    fn recover(request: &Request, _: &Settings) -> Result<Vec<Verdict>, String> {
        Ok((0_u32..).zip(&request.jobs).map(|(index, job)| verdict(index, job)).collect())
    }
}

fn verdict(index: u32, job: &DeadJob) -> Verdict {
    if job.attempt > 1 {
        return Verdict::leave(index, format!("its run is in attempt {}, and once is enough", job.attempt));
    }
    match job.cause.as_str() {
        "node-lost" => Verdict::rerun(index, None, "its node is gone, not its own fault"),
        "evicted" => Verdict::rerun(index, None, "evicted, not its own fault"),
        "preempted" => Verdict::rerun(index, None, "preempted, not its own fault"),
        "oom-killed" => Verdict::leave(index, "it used more memory than its runner may, and would again"),
        _ => Verdict::leave(index, "nothing proves that it was not its own fault"),
    }
}
