//! Jobs are queued, given to runners and completed.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{Due, State};
use crate::github::{
    hook::JobAction,
    job::{Conclusion, Demand, Hold, Job, JobRunner, JobSpec, JobState, Run},
    place::{Group, JobId, NoScope, PlaceId, RunId, RunnerId, Scope},
    runner::{Pool, Runner},
};

impl State {
    pub(in crate::github) fn queue_job(&mut self, spec: JobSpec) -> Result<JobId, NoScope> {
        let repository = match spec.repository.parse()? {
            scope @ Scope::Repository { .. } => self.accounts.ensure(&scope),
            Scope::Organization(_) | Scope::Enterprise(_) => return Err(NoScope(spec.repository)),
        };
        let (id, now) = (JobId(self.jobs.number()), self.now());
        let run = spec.run.filter(|run| self.jobs.runs.get(run).is_some_and(|run| run.repository == repository));
        let run = run.unwrap_or_else(|| RunId(self.jobs.number()));
        self.jobs
            .runs
            .entry(run)
            .or_insert_with(|| Run {
                id: run,
                repository,
                workflow: spec.workflow.clone(),
                jobs: Vec::new(),
                attempt: 1,
                state: JobState::Queued,
                created_at: now,
                updated_at: now,
            })
            .jobs
            .push(id);
        self.enqueue(id, run, Arc::new(spec), repository);
        Ok(id)
    }

    /// Runs a job of a run that has ended again, in a new attempt of the run; none where there is no such job. Refused as GitHub does, while the run goes
    /// on (github-behaviour: rerun), and beyond its limits of 50 attempts and 30 days (docs: re-run workflows).
    pub(in crate::github) fn rerun_job(&mut self, place: PlaceId, id: JobId) -> Option<Result<JobId, &'static str>> {
        let job = self.jobs.all.get(&id).filter(|job| job.repository == place)?;
        let (run, spec, now) = (job.run, Arc::clone(&job.spec), self.now());
        let new = JobId(self.jobs.number());
        let again = self.jobs.runs.get_mut(&run)?;
        if again.state != JobState::Completed {
            return Some(Err("The workflow run containing this job is already running"));
        }
        if again.attempt > 50 || now.duration_since(again.created_at).as_hours() > 30 * 24 {
            return Some(Err("This workflow run cannot be retried"));
        }
        again.attempt += 1;
        again.jobs.retain(|job| *job != id);
        again.jobs.push(new);
        self.enqueue(new, run, spec, place);
        Some(Ok(new))
    }

    /// Lets a job go on that waits for something else than a runner; false when it does not.
    pub(in crate::github) fn release_job(&mut self, id: JobId) -> bool {
        if self.jobs.all.get(&id).is_none_or(|job| job.state >= JobState::Queued) {
            return false;
        }
        self.set_job_state(id, JobState::Queued);
        self.job_changed(id, &[JobAction::Queued]);
        self.offer_soon(id);
        true
    }

    /// Adds a job to its run.
    fn enqueue(&mut self, id: JobId, run: RunId, spec: Arc<JobSpec>, repository: PlaceId) {
        let attempt = self.jobs.runs.get(&run).map_or(1, |run| run.attempt);
        let (state, told): (_, &[JobAction]) = match spec.held {
            None => (JobState::Queued, &[JobAction::Queued]),
            Some(Hold::Approval) if self.settings.behaviour.waiting_twice_queued => {
                (JobState::Waiting, &[JobAction::Queued, JobAction::Waiting])
            }
            Some(Hold::Approval) => (JobState::Waiting, &[JobAction::Waiting]),
            Some(Hold::Concurrency) => (JobState::Pending, &[]),
        };
        let job = Job {
            id,
            run,
            spec,
            attempt,
            state,
            conclusion: None,
            queued_at: self.now(),
            started_at: None,
            completed_at: None,
            runner: None,
            lost: false,
            repository,
        };
        self.jobs.all.insert(id, job);
        *self.jobs.counts.slot(state) += 1;
        self.job_changed(id, told);
        if state == JobState::Queued {
            self.offer_soon(id);
        }
    }

    fn offer_soon(&mut self, id: JobId) {
        match self.assigned_late() {
            Duration::ZERO => self.offer_job(id),
            latency => self.after(latency, Due::JobReady(id)),
        }
    }

    /// Gives a queued job to an idle runner, or lets it wait for one.
    pub(in crate::github) fn offer_job(&mut self, id: JobId) {
        if self.jobs.all.get(&id).is_none_or(|job| job.state != JobState::Queued || job.runner.is_some()) {
            return;
        }
        let Some(demand) = self.jobs.demand(id) else { return };
        // The nearest scope first: repository, organization, enterprise.
        let distance = |pool: &Pool| self.accounts.lineage(demand.repository).position(|place| place == pool.place);
        let runner = self
            .idle
            .iter()
            .filter(|(pool, _)| self.serves(pool, &demand))
            .min_by_key(|(pool, _)| distance(pool))
            .and_then(|(_, runners)| runners.first().copied());
        match runner {
            Some(runner) => self.assign(id, runner),
            None => {
                self.jobs.waiting.entry(demand).or_default().insert(id);
            }
        }
    }

    /// Gives an idle runner the oldest job that it can run, or lets it wait for one.
    pub(in crate::github) fn offer_runner(&mut self, id: RunnerId) {
        let Some(pool) = self.runners.get(&id).filter(|runner| self.takes_jobs(runner)).map(Runner::pool) else { return };
        let job = self
            .jobs
            .waiting
            .iter()
            .filter(|(demand, _)| self.serves(&pool, demand))
            .filter_map(|(_, jobs)| jobs.first().copied())
            .min();
        match job {
            Some(job) => self.assign(job, id),
            None => {
                self.idle.entry(pool).or_default().insert(id);
            }
        }
    }

    fn serves(&self, pool: &Pool, demand: &Demand) -> bool {
        let group = || {
            let place = self.accounts.get(pool.place)?;
            Some(place.group(pool.group)?.name.to_lowercase())
        };
        self.accounts.lineage(demand.repository).any(|place| place == pool.place)
            && demand.labels.is_subset(&pool.labels)
            && self.accounts.admits(pool.place, pool.group, demand.repository)
            && demand.group.as_ref().is_none_or(|wanted| group().as_ref() == Some(wanted))
    }

    fn assign(&mut self, job: JobId, runner: RunnerId) {
        let (now, Some(demand)) = (self.now(), self.jobs.demand(job)) else { return };
        if let Some(jobs) = self.jobs.waiting.get_mut(&demand) {
            jobs.remove(&job);
            if jobs.is_empty() {
                self.jobs.waiting.remove(&demand);
            }
        }
        self.not_idle(runner);
        let Some(taker) = self.runners.get_mut(&runner) else { return };
        taker.job = Some(job);
        taker.delivered = false;
        taker.wake.notify_one();
        let group_name = self
            .accounts
            .get(taker.place)
            .and_then(|place| place.group(taker.group))
            .map_or_else(|| Group::DEFAULT.to_owned(), |group| group.name.clone());
        let runner_of_job = JobRunner { id: runner, name: taker.name.clone(), group: taker.group, group_name };
        if let Some(job) = self.jobs.all.get_mut(&job) {
            job.started_at = Some(now);
            job.runner = Some(runner_of_job);
        }
        match self.chance.within(&self.settings.behaviour.in_progress_late) {
            Duration::ZERO => self.begin_job(job),
            late => self.after(late, Due::JobBegins(job)),
        }
        self.busy_changed(runner, job, true);
    }

    /// GitHub learns that the agent which a job was given to has begun it.
    pub(in crate::github) fn begin_job(&mut self, id: JobId) {
        if self.jobs.all.get(&id).is_some_and(|job| job.state == JobState::Queued && job.runner.is_some()) {
            self.set_job_state(id, JobState::InProgress);
            self.job_changed(id, &[JobAction::InProgress]);
        }
    }

    /// Ends a job, once; false when it was over before.
    pub(in crate::github) fn complete_job(&mut self, id: JobId, conclusion: Conclusion, lost: bool) -> bool {
        self.begin_job(id);
        let (now, waiting) = (self.now(), self.jobs.demand(id));
        let Some(job) = self.jobs.all.get_mut(&id).filter(|job| job.state != JobState::Completed) else { return false };
        job.conclusion = Some(conclusion);
        job.completed_at = Some(now);
        job.lost = lost;
        let runner = job.runner.as_ref().map(|runner| runner.id);
        if let Some(demand) = waiting
            && let Some(jobs) = self.jobs.waiting.get_mut(&demand)
        {
            jobs.remove(&id);
            if jobs.is_empty() {
                self.jobs.waiting.remove(&demand);
            }
        }
        self.jobs.counts.succeeded += u64::from(conclusion == Conclusion::Success);
        self.jobs.counts.lost += u64::from(lost);
        self.set_job_state(id, JobState::Completed);
        self.job_changed(id, &[JobAction::Completed]);
        if let Some(runner) = runner {
            self.job_left(runner, id, lost);
        }
        true
    }

    fn set_job_state(&mut self, id: JobId, state: JobState) {
        let Some(job) = self.jobs.all.get_mut(&id) else { return };
        *self.jobs.counts.slot(job.state) -= 1;
        job.state = state;
        *self.jobs.counts.slot(state) += 1;
    }

    /// What follows from any change of a job: its run's state, the answers about its repository, webhooks.
    fn job_changed(&mut self, id: JobId, told: &[JobAction]) {
        let now = self.now();
        let Some(job) = self.jobs.all.get(&id) else { return };
        let (run, repository) = (job.run, job.repository);
        if let Some(run) = self.jobs.runs.get_mut(&run) {
            let states: BTreeSet<JobState> =
                run.jobs.iter().filter_map(|job| self.jobs.all.get(job)).map(|job| job.state).collect();
            let open = states.iter().rev().find(|state| **state != JobState::Completed);
            let state = match (states.first(), states.last(), open) {
                (Some(first), Some(last), _) if first == last => *first,
                // Nothing of it can have a runner.
                (_, _, Some(held)) if *held < JobState::Queued => *held,
                _ => JobState::InProgress,
            };
            let before = std::mem::replace(&mut run.state, state);
            run.updated_at = now;
            self.jobs.runs_of.entry(repository).or_default().set(run.id, before, state);
        }
        self.accounts.touch(repository);
        told.iter().for_each(|action| self.emit(id, *action));
        self.signals.changed = true;
    }
}
