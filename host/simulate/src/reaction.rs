//! How long the operator took from what called for a runner until it made one.

use std::collections::VecDeque;
use std::sync::Arc;

use pacer_trace::{End, History, JobLife, PoolSettings};

use crate::agenda::{Moment, moment};
use crate::samples::Samples;

/// What took longer was no reaction: a limit, a quota or a pause held the runner back, and rules are played by themselves.
const LONGEST: Moment = 30_000;

/// What changes how many runners are wanted, or how many there are. Of what happens at the same moment, demand comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A job more, or one less.
    Jobs(i64),
    /// A runner is gone; whether its start failed.
    Gone {
        failed: bool,
    },
    Created,
}

/// What calls for a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    /// A job was queued.
    Job,
    /// Another runner is gone.
    End,
}

/// The times of a pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reactions {
    to_jobs: Samples<Moment>,
    /// Less than 0 where a runner's pod ended, another was made in its place, and then its object was gone. That takes a busy cluster long.
    to_ends: Samples<Moment>,
}

impl Reactions {
    pub(crate) fn to(&self, call: Call) -> &Samples<Moment> {
        match call {
            Call::Job => &self.to_jobs,
            Call::End => &self.to_ends,
        }
    }
}

/// Takes them from what was recorded. Runners that are wanted and not there are called for by a job that was queued, or by a runner that went; each
/// that is made answers the earliest call. One that nothing called for takes the place of the next that goes. After a failed start the operator
/// waits on purpose, so that is no call.
pub(crate) fn reactions<'a>(
    pool: &Arc<str>,
    settings: &[(Moment, PoolSettings)],
    jobs: impl Iterator<Item = &'a JobLife>,
    history: &History,
) -> Reactions {
    let mut steps: Vec<(Moment, Step)> = Vec::new();
    for job in jobs {
        steps.push((moment(job.queued), Step::Jobs(1)));
        steps.extend(job.completed.map(|completed| (moment(completed), Step::Jobs(-1))));
    }
    for life in history.runners.values().filter(|life| life.pool == *pool) {
        steps.push((moment(life.created), Step::Created));
        steps.extend(life.ended.map(|(at, why)| (moment(at), Step::Gone { failed: why == End::Failed })));
    }
    steps.sort_unstable();
    let (mut jobs, mut runners) = (0_i64, 0_i64);
    let mut calls: VecDeque<Option<(Moment, Call)>> = VecDeque::new();
    let mut ahead: VecDeque<Moment> = VecDeque::new();
    let mut samples = Vec::new();
    for (now, step) in steps {
        let in_force = settings.iter().rev().find(|(at, _)| *at <= now).or_else(|| settings.first());
        let Some((_, bounds)) = in_force else { continue };
        let mut call = Some((now, Call::Job));
        match step {
            Step::Jobs(more) => jobs += more,
            Step::Gone { failed } => {
                runners -= 1;
                call = (!failed).then_some((now, Call::End));
                samples.extend(ahead.pop_front().filter(|_| !failed).map(|made| (now, made - now, Call::End)));
            }
            Step::Created => {
                runners += 1;
                match calls.pop_front() {
                    Some(called) => samples.extend(called.map(|(called, call)| (now, now - called, call))),
                    None => ahead.push_back(now),
                }
            }
        }
        let floor = if bounds.webhooks { jobs + i64::from(bounds.min) } else { i64::from(bounds.replicas) };
        let missing = floor.min(i64::from(bounds.max)) - runners;
        let wanted = usize::try_from(missing).unwrap_or(0);
        // What is wanted no more was called for last.
        calls.truncate(wanted);
        calls.resize(wanted, call);
    }
    let of = |wanted: Call| {
        let all = samples.iter().filter(|(_, took, call)| *call == wanted && took.abs() <= LONGEST);
        Samples::of(all.map(|(now, took, _)| (*now, *took)))
    };
    Reactions { to_jobs: of(Call::Job), to_ends: of(Call::End) }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use pacer_trace::{About, Header, Record, Trace, What};

    use super::*;

    const POOL: &str = "ci/web";

    const NOTHING: [Vec<Moment>; 2] = [Vec::new(), Vec::new()];

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(1_000_000 + milliseconds).unwrap()
    }

    fn queued(job: u64) -> What {
        What::JobQueued { job, about: About { pool: Some(POOL.into()), ..About::default() } }
    }

    fn created(runner: &str) -> What {
        What::RunnerCreated { runner: runner.into(), pool: POOL.into() }
    }

    fn ended(runner: &str, why: End) -> What {
        What::RunnerEnded { runner: runner.into(), why }
    }

    /// Answers to jobs, and to ends.
    fn sampled(max: u32, records: Vec<(i64, What)>) -> [Vec<Moment>; 2] {
        let records = records.into_iter().map(|(milliseconds, what)| Record { at: at(milliseconds), what }).collect();
        let history = History::of(&Trace { header: Header::new(at(0)), records });
        let settings = PoolSettings { pool: POOL.into(), max, webhooks: true, ..PoolSettings::default() };
        let jobs = history.jobs.values();
        let reactions = reactions(&POOL.into(), &[(moment(at(0)), settings)], jobs, &history);
        [Call::Job, Call::End].map(|call| reactions.to(call).values().collect())
    }

    #[test]
    fn runners_answer_the_jobs_that_called_for_them() {
        let records = vec![(0, queued(1)), (100, queued(2)), (150, created("a")), (400, created("b"))];
        assert_eq!(sampled(9, records), [vec![150, 300], vec![]]);
    }

    #[test]
    fn a_job_beyond_the_maximum_calls_for_a_runner_when_one_goes() {
        let records = vec![
            (0, queued(1)),
            (0, queued(2)),
            (50, created("a")),
            (5_000, What::JobCompleted { job: 1 }),
            (5_100, ended("a", End::Finished)),
            (5_300, created("b")),
        ];
        assert_eq!(sampled(1, records), [vec![50], vec![200]]);
    }

    #[test]
    fn a_runner_that_is_replaced_before_it_is_gone_was_answered_early() {
        let records = vec![
            (0, queued(1)),
            (0, queued(2)),
            (50, created("a")),
            (5_000, What::JobCompleted { job: 1 }),
            (5_080, created("b")),
            (5_100, ended("a", End::Finished)),
            (9_000, What::JobCompleted { job: 2 }),
            (9_100, ended("b", End::Finished)),
        ];
        assert_eq!(sampled(1, records), [vec![50], vec![-20]]);
    }

    #[test]
    fn what_the_operator_waits_for_on_purpose_is_no_reaction() {
        let failed = vec![(0, queued(1)), (10, created("a")), (900, ended("a", End::Failed)), (9_000, created("b"))];
        assert_eq!(sampled(9, failed), [vec![10], vec![]]);
        assert_eq!(sampled(9, vec![(0, queued(1)), (40_000, created("a"))]), NOTHING);
        let cancelled = vec![(0, queued(1)), (500, What::JobCompleted { job: 1 }), (900, created("a"))];
        assert_eq!(sampled(9, cancelled), NOTHING, "nothing called for it");
    }
}
