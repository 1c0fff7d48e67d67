//! One runner for each job, until the job is done.
//!
//! ARC's plan, by job instead of by counting events. A reservation beyond the maximum has no runner yet, so its clock starts again at
//! every plan. One that ran out while its job is still known is made anew, which asks again for a starved job. A job whose end nobody
//! heard of stops at a limit.

use crate::capacity::{Job, Plan, Request, Reservation};
use crate::order;
use crate::types::{attribute, duration};

/// Fact about a job or a whole request: life of a reservation in seconds, from the trigger that the job came through.
pub const RESERVATION_SECONDS: &str = "reservation-seconds";

/// How long things last, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lives {
    /// Life of a reservation; renewed while its job is known. [`RESERVATION_SECONDS`] wins where it is given.
    pub reservation: u32,
    /// After so long in the queue a job gets no more reservations.
    pub queued_limit: u32,
    /// After so long in progress a job gets no more reservations.
    pub running_limit: u32,
}

impl Default for Lives {
    /// ARC's ten minutes; GitHub's own limits of a day in the queue and five days in progress.
    fn default() -> Self {
        Self { reservation: 600, queued_limit: 86_400, running_limit: 432_000 }
    }
}

/// One reservation of one runner for every job that waits or runs, and what others reserved without naming jobs until it expires.
///
/// See [`one_per_job_beside`] for policies that hold more than that.
#[must_use]
pub fn one_per_job(request: &Request, lives: &Lives) -> Plan {
    one_per_job_beside("", request, lives)
}

/// As [`one_per_job`], without the reservation whose id is `own`: the policy made it and will make it anew. Ids like `job-1234` are taken.
#[must_use]
pub fn one_per_job_beside(own: &str, request: &Request, lives: &Lives) -> Plan {
    let mut open = OpenJobs::new(&request.jobs, lives);
    let mut reservations = Vec::with_capacity(request.jobs.len());
    let mut ahead = 0_u32;
    for held in in_order(&request.reservations, &open).filter(|held| held.id != own) {
        let mut held = held.clone();
        let has_runner = request.pool.max_replicas.is_none_or(|max| ahead < max);
        ahead = ahead.saturating_add(held.replicas);
        if !has_runner {
            restart_clock(&mut held);
        }
        if keep_open_jobs(&mut held, &mut open, lives) {
            reservations.push(held);
        }
    }
    reservations.extend(open.uncovered().map(|job| reserve(job, request, lives)));

    let look_again = reservations.iter().map(|reservation| reservation.expires).min();
    Plan { reservations, ceiling: None, look_again, attributes: Vec::new() }
}

/// Jobs whose end nobody was told of: in progress before queued, then the one that was queued first.
struct OpenJobs<'a> {
    in_order: Vec<OpenJob<'a>>,
    /// Indices of them, ordered by the jobs' ids.
    by_id: Vec<u32>,
}

struct OpenJob<'a> {
    job: &'a Job,
    covered: bool,
}

impl<'a> OpenJobs<'a> {
    fn new(jobs: &'a [Job], lives: &Lives) -> Self {
        let first_come = order::by_key(jobs, |job| (!runs(job), std::cmp::Reverse(job.queued), job.id));
        let open = first_come.into_iter().filter_map(|index| jobs.get(index as usize)).filter(|job| time_left(job, lives) > 0);
        let in_order: Vec<OpenJob> = open.map(|job| OpenJob { job, covered: false }).collect();
        let by_id = order::by_key(&in_order, |open| open.job.id);
        Self { in_order, by_id }
    }

    fn index(&self, id: u64) -> Option<usize> {
        let id_at = |index: &u32| self.in_order.get(*index as usize).map(|open| open.job.id);
        let place = self.by_id.binary_search_by_key(&Some(id), id_at).ok()?;
        self.by_id.get(place).map(|index| *index as usize)
    }

    fn get(&self, id: u64) -> Option<&'a Job> {
        self.in_order.get(self.index(id)?).map(|open| open.job)
    }

    /// The job, unless a reservation has it already.
    fn cover(&mut self, id: u64) -> Option<&'a Job> {
        let index = self.index(id)?;
        let open = self.in_order.get_mut(index).filter(|open| !open.covered)?;
        open.covered = true;
        Some(open.job)
    }

    fn uncovered(&self) -> impl Iterator<Item = &'a Job> {
        // An id that is there twice counts once: the one that `index` finds.
        let counts = |place: usize, open: &OpenJob| !open.covered && self.index(open.job.id) == Some(place);
        self.in_order.iter().enumerate().filter(move |(place, open)| counts(*place, open)).map(|(_, open)| open.job)
    }
}

fn runs(job: &Job) -> bool {
    job.state == "in-progress"
}

/// Running jobs have their runners; then whoever was first. What has expired is left out: equal to now counts as expired.
fn in_order<'a>(reservations: &'a [Reservation], open: &OpenJobs) -> impl Iterator<Item = &'a Reservation> + use<'a> {
    let order = order::by_key(reservations, |held| {
        let running = held.jobs.iter().any(|id| open.get(*id).is_some_and(runs));
        (!running, held.effective, held.jobs.iter().min(), &held.id)
    });
    order.into_iter().filter_map(|index| reservations.get(index as usize)).filter(|held| held.expires > 0)
}

fn restart_clock(held: &mut Reservation) {
    held.expires = held.expires.saturating_add(held.effective.min(0).unsigned_abs());
    held.effective = held.effective.max(0);
}

/// Whether the reservation stays. One that names no jobs was made by somebody else and lasts until it expires.
fn keep_open_jobs(held: &mut Reservation, open: &mut OpenJobs, lives: &Lives) -> bool {
    if held.jobs.is_empty() {
        return true;
    }
    let mut longest = 0;
    held.jobs.retain(|id| {
        let job = open.cover(*id);
        longest = longest.max(job.map_or(0, |job| time_left(job, lives)));
        job.is_some()
    });
    held.replicas = u32::try_from(held.jobs.len()).unwrap_or(u32::MAX);
    held.expires = held.expires.min(longest);
    !held.jobs.is_empty()
}

fn reserve(job: &Job, request: &Request, lives: &Lives) -> Reservation {
    let given = attribute(&job.attributes, RESERVATION_SECONDS).or_else(|| attribute(&request.attributes, RESERVATION_SECONDS));
    let life = given.and_then(|seconds| seconds.parse().ok()).filter(|life| *life > 0).unwrap_or(lives.reservation);
    let reason = match job.started.filter(|_| runs(job)) {
        Some(started) => format!("in progress for {}", duration(started)),
        None if runs(job) => "in progress".to_owned(),
        None if job.queued >= life => format!("queued for {} without a runner, asked again", duration(job.queued)),
        None => format!("queued {} ago", duration(job.queued)),
    };
    Reservation {
        id: format!("job-{}", job.id),
        jobs: vec![job.id],
        replicas: 1,
        effective: 0,
        expires: life.min(time_left(job, lives)),
        reason,
        attributes: Vec::new(),
    }
}

/// Seconds until the job is given up: somebody would have told its end long ago.
fn time_left(job: &Job, lives: &Lives) -> u32 {
    match job.state.as_str() {
        "in-progress" => lives.running_limit.saturating_sub(job.started.unwrap_or(0)),
        "completed" => 0,
        _ => lives.queued_limit.saturating_sub(job.queued),
    }
}
