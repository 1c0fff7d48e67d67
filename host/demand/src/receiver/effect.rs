//! What an event means for demand.

use std::sync::Arc;

use jiff::Timestamp;
use pacer_core::ledger::{JobEvent, Origin, State};
use pacer_github::webhook::{JobAction, WorkflowJob};

/// What is to be done about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It goes into the ledger of the job's autoscaler.
    Record(JobEvent),
    /// It ends a job that never ran: it goes into the ledger that has the job, if one has.
    RecordIfKnown(JobEvent),
    Nothing,
}

/// What the event of a job, which arrived at `now`, means.
///
/// A job that was skipped needed no runner, and one that succeeded without a runner is no job but a check that looks like one; of both no
/// `queued` event is sent as a rule (arc-behaviour 3.7).
pub(super) fn of(job: &WorkflowJob, now: Timestamp) -> Effect {
    let created = job.created_at.or(job.started_at);
    let event = |state, at: Option<Timestamp>| {
        let at = at.unwrap_or(now);
        JobEvent {
            id: job.id,
            state,
            at,
            queued_at: created.unwrap_or(at),
            repository: Arc::from(format!("{}/{}", job.repository.owner, job.repository.name)),
            workflow: Arc::from(job.workflow.as_str()),
            labels: job.labels.iter().map(|label| Arc::from(label.as_str())).collect(),
            attempt: job.attempt,
            runner: job.runner_name.as_deref().filter(|_| state != State::Queued).map(Arc::from),
            origin: Arc::new(origin(job)),
        }
    };
    match job.action {
        JobAction::Queued => Effect::Record(event(State::Queued, created)),
        JobAction::InProgress => Effect::Record(event(State::InProgress, job.started_at)),
        JobAction::Completed => {
            let event = event(State::Completed, job.completed_at);
            match (job.conclusion.as_deref(), job.runner_id) {
                (Some("skipped"), _) | (Some("success"), None) => Effect::RecordIfKnown(event),
                _ => Effect::Record(event),
            }
        }
        JobAction::Waiting | JobAction::Other => Effect::Nothing,
    }
}

/// GitHub does not say which event started a run.
fn origin(job: &WorkflowJob) -> Origin {
    Origin {
        run: job.run,
        branch: Arc::from(job.branch.as_str()),
        event: Arc::default(),
        actor: Arc::from(job.actor.as_str()),
        environment: Arc::from(job.environment.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use pacer_github::webhook::{Account, Repository};

    use super::*;

    fn moment(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn job(action: JobAction) -> WorkflowJob {
        WorkflowJob {
            action,
            id: 7,
            attempt: 2,
            workflow: "ci".to_owned(),
            name: "build".to_owned(),
            branch: "main".to_owned(),
            run: Some(3),
            actor: "octocat".to_owned(),
            environment: "live".to_owned(),
            labels: vec!["linux".to_owned()],
            conclusion: None,
            runner_id: Some(5),
            runner_name: Some("web-abcde".to_owned()),
            created_at: Some(moment(10)),
            started_at: Some(moment(20)),
            completed_at: Some(moment(30)),
            repository: Repository {
                owner: "acme".to_owned(),
                name: "app".to_owned(),
                account: Account::Organization,
                url: None,
            },
            enterprise: None,
            organization: Some("acme".to_owned()),
            failed_step: None,
        }
    }

    #[test]
    fn actions_become_states_with_their_times() {
        for (action, state, at, runner) in [
            (JobAction::Queued, State::Queued, 10, None),
            (JobAction::InProgress, State::InProgress, 20, Some("web-abcde")),
            (JobAction::Completed, State::Completed, 30, Some("web-abcde")),
        ] {
            let Effect::Record(event) = of(&job(action), moment(99)) else { panic!("{action:?} counts") };
            assert_eq!(
                (event.state, event.at, event.queued_at, event.runner.as_deref()),
                (state, moment(at), moment(10), runner)
            );
            assert_eq!((event.id, event.attempt, &*event.repository, &*event.workflow), (7, 2, "acme/app", "ci"));
            let origin = &event.origin;
            assert_eq!((origin.run, &*origin.branch, &*origin.actor, &*origin.environment), (Some(3), "main", "octocat", "live"));
        }
        assert_eq!(of(&job(JobAction::Waiting), moment(99)), Effect::Nothing);
        assert_eq!(of(&job(JobAction::Other), moment(99)), Effect::Nothing);
    }

    #[test]
    fn time_of_arrival_is_used_when_payload_has_none() {
        let bare = WorkflowJob { created_at: None, started_at: None, completed_at: None, ..job(JobAction::Completed) };
        let Effect::Record(event) = of(&bare, moment(99)) else { panic!("it counts") };
        assert_eq!((event.at, event.queued_at), (moment(99), moment(99)));
    }

    /// The table of ARC's webhook server (3.7) and its derived vectors (9.9).
    #[test]
    fn job_is_ignored_when_it_could_not_have_run() {
        for (conclusion, runner_id, counts) in [
            ("skipped", Some(5), false),
            ("skipped", None, false),
            ("success", None, false),
            ("success", Some(5), true),
            ("success", Some(0), true),
            ("failure", None, true),
            ("cancelled", Some(0), true),
            ("timed_out", Some(5), true),
        ] {
            let done = WorkflowJob { conclusion: Some(conclusion.to_owned()), runner_id, ..job(JobAction::Completed) };
            let effect = of(&done, moment(99));
            assert_eq!(matches!(effect, Effect::Record(_)), counts, "{conclusion} {runner_id:?}");
            assert_eq!(matches!(effect, Effect::RecordIfKnown(_)), !counts, "{conclusion} {runner_id:?}");
        }
    }
}
