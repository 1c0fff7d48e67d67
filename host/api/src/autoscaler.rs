//! Demand and the bounds within which a fleet follows it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::{Timestamp, tz::TimeZone},
};
use kube::CustomResource;
use pacer_core::autoscale::inherited::{Author, Entry};
use pacer_core::ledger::{About, Job, State};
use pacer_core::report::{self, Form, Report};
use pacer_core::schedule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    duration::{self, DurationError},
    nullable,
    runner::{GitHubApiCredentialsFrom, RunnerConfig},
};

pub use crate::offset_time::OffsetTime;
pub use crate::status_ledger::{JobState, LedgerEntry};

/// Which fleet is scaled, between which bounds, by which evidence.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "actions.summerwind.dev",
    version = "v1alpha1",
    kind = "HorizontalRunnerAutoscaler",
    plural = "horizontalrunnerautoscalers",
    shortname = "hra",
    doc = "Scales a RunnerDeployment or a RunnerSet by demand.",
    namespaced,
    schema = "disabled",
    status = "HorizontalRunnerAutoscalerStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Min", type_ = "number", json_path = ".spec.minReplicas"),
    printcolumn(name = "Max", type_ = "number", json_path = ".spec.maxReplicas"),
    printcolumn(name = "Desired", type_ = "number", json_path = ".status.desiredReplicas"),
    printcolumn(name = "Schedule", type_ = "string", json_path = ".status.scheduledOverridesSummary"),
    printcolumn(name = "Why", type_ = "string", json_path = ".status.conditions[?(@.type==\"Scaling\")].reason")
)]
pub struct HorizontalRunnerAutoscalerSpec {
    /// What is scaled; same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_target_ref: Option<ScaleTargetRef>,
    /// Fewest runners. Needed, although the schema lets it be absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    /// Most runners. Needed, although the schema lets it be absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    /// Seconds after the last increase during which the number is not lowered. Default: the operator's (600).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_down_delay_seconds_after_scale_out: Option<i32>,
    /// Evidence that is pulled from GitHub; at most two, the second for when the first one has nothing to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Vec<MetricSpec>>,
    /// Events that count as demand; one entry with githubEvent.workflowJob is of use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_up_triggers: Option<Vec<ScaleUpTrigger>>,
    /// Runners wanted for a while beyond the minimum. Never written by the operator, which keeps demand in the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_reservations: Option<Vec<CapacityReservation>>,
    /// Times with a minimum of their own; of several that hold at once the first in the list counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled_overrides: Option<Vec<ScheduledOverride>>,
    /// GitHub credentials of this object's API calls. Default: the operator's.
    #[serde(rename = "githubAPICredentialsFrom", skip_serializing_if = "Option::is_none")]
    pub github_api_credentials_from: Option<GitHubApiCredentialsFrom>,
}

impl HorizontalRunnerAutoscalerSpec {
    /// Kind of the target; RunnerDeployment where none is given.
    #[must_use]
    pub fn target_kind(&self) -> ScaleTargetKind {
        self.scale_target_ref.as_ref().and_then(|target| target.kind).unwrap_or_default()
    }

    /// Name of the target, where one is given.
    #[must_use]
    pub fn target_name(&self) -> Option<&str> {
        self.scale_target_ref.as_ref().and_then(|target| target.name.as_deref()).filter(|name| !name.is_empty())
    }

    /// Name of the Secret with the credentials of this object, same namespace; none means the operator's own.
    #[must_use]
    pub fn credentials_secret(&self) -> Option<&str> {
        self.github_api_credentials_from.as_ref().and_then(GitHubApiCredentialsFrom::secret_name)
    }

    /// The trigger for queued jobs: its entry is the only one and has `githubEvent.workflowJob`.
    #[must_use]
    pub fn workflow_job_trigger(&self) -> Option<&ScaleUpTrigger> {
        match self.scale_up_triggers.as_deref() {
            Some([trigger]) if trigger.github_event.as_ref().is_some_and(|event| event.workflow_job.is_some()) => Some(trigger),
            _ => None,
        }
    }

    /// The reservations of the spec that ask for runners until some time. An entry without an expiry has ended.
    #[must_use]
    pub fn reservations(&self) -> Vec<Entry> {
        let entries = self.capacity_reservations.iter().flatten();
        let entry = |entry: &CapacityReservation| {
            Some(Entry {
                effective: entry.effective_time.as_ref().map(|time| time.0),
                expires: entry.expiration_time.as_ref()?.0,
                replicas: u32::try_from(entry.replicas?).ok()?,
                author: match entry.name.as_deref() {
                    None | Some("") => Author::Unknown,
                    Some(_) => Author::Person,
                },
            })
        };
        entries.filter_map(entry).collect()
    }

    /// How many runners they ask for at `now`, if no job is known by itself.
    #[must_use]
    pub fn reserved(&self, now: Timestamp) -> u32 {
        let in_force = self.reservations().into_iter().filter(|entry| entry.expires > now);
        in_force.fold(0, |sum, entry| sum.saturating_add(entry.replicas))
    }
}

/// Names what is scaled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScaleTargetRef {
    /// Kind of the target. Default: RunnerDeployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ScaleTargetKind>,
    /// Name of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What can be scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ScaleTargetKind {
    /// A RunnerDeployment.
    #[default]
    RunnerDeployment,
    /// A RunnerSet.
    RunnerSet,
}

impl ScaleTargetKind {
    /// The kind's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunnerDeployment => "RunnerDeployment",
            Self::RunnerSet => "RunnerSet",
        }
    }
}

/// Evidence that is pulled from GitHub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricSpec {
    /// TotalNumberOfQueuedAndInProgressWorkflowRuns or PercentageRunnersBusy.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// Names, without the owner, of the organization's repositories whose runs are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository_names: Option<Vec<String>>,
    /// Share of busy runners from which the fleet grows, a decimal number between 0 and 1. Default: 0.8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_up_threshold: Option<String>,
    /// Share of busy runners below which the fleet shrinks, a decimal number between 0 and 1. Default: 0.3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_down_threshold: Option<String>,
    /// What the fleet's size is multiplied by when it grows, a decimal number. Default: 1.3. Excludes scaleUpAdjustment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_up_factor: Option<String>,
    /// What the fleet's size is multiplied by when it shrinks, a decimal number. Default: 0.7. Excludes scaleDownAdjustment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_down_factor: Option<String>,
    /// How many runners are added when the fleet grows. Excludes scaleUpFactor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_up_adjustment: Option<i32>,
    /// How many runners are taken away when the fleet shrinks. Excludes scaleDownFactor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_down_adjustment: Option<i32>,
}

impl MetricSpec {
    /// The metric that `type` names, where it is one.
    #[must_use]
    pub fn kind(&self) -> Option<MetricKind> {
        match self.type_.as_deref() {
            Some("TotalNumberOfQueuedAndInProgressWorkflowRuns") => Some(MetricKind::QueuedAndInProgressRuns),
            Some("PercentageRunnersBusy") => Some(MetricKind::PercentageRunnersBusy),
            _ => None,
        }
    }
}

/// The metrics there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricKind {
    /// Jobs that are queued or run.
    QueuedAndInProgressRuns,
    /// Share of runners that run a job.
    PercentageRunnersBusy,
}

/// An event that counts as demand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleUpTrigger {
    /// Which event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub github_event: Option<GitHubEventTrigger>,
    /// Has no effect: one job is one runner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<i32>,
    /// How long a queued job counts when no further event of it comes, such as 30m or 1h30m. Default: 10m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
}

impl ScaleUpTrigger {
    /// How long a queued job counts where a trigger does not say.
    pub const DEFAULT_DURATION: Duration = Duration::from_secs(600);

    /// How long a queued job counts when no further event of it comes; zero counts as absent.
    ///
    /// # Errors
    ///
    /// When the text is no duration.
    pub fn duration_or_default(&self) -> Result<Duration, DurationError> {
        let given = self.duration.as_deref().filter(|text| !text.is_empty()).map_or(Ok(Duration::ZERO), duration::parse)?;
        Ok(if given.is_zero() { Self::DEFAULT_DURATION } else { given })
    }
}

/// An event of GitHub. Only workflowJob has an effect; the others stay so that old manifests are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitHubEventTrigger {
    /// Has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_run: Option<CheckRunTrigger>,
    /// Has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PullRequestTrigger>,
    /// Has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<PushTrigger>,
    /// A job was queued, started or completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_job: Option<WorkflowJobTrigger>,
}

/// Has no effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckRunTrigger {
    /// Has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub types: Option<Vec<String>>,
    /// Has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// Has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repositories: Option<Vec<String>>,
}

/// Has no effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PullRequestTrigger {
    /// Has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub types: Option<Vec<String>>,
    /// Has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branches: Option<Vec<String>>,
}

/// Has no effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PushTrigger {}

/// Events of jobs whose labels the target's runners have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowJobTrigger {}

/// Runners wanted for a while.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservation {
    /// For humans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When they stop being wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_time: Option<Time>,
    /// How many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Since when they are wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_time: Option<Time>,
}

/// A time with a minimum of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledOverride {
    /// When it begins the first time.
    pub start_time: OffsetTime,
    /// When it ends the first time; this moment is outside.
    pub end_time: OffsetTime,
    /// Fewest runners meanwhile.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    /// How it repeats. Default: it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recurrence_rule: Option<RecurrenceRule>,
    /// IANA time zone, such as Asia/Tokyo, on whose clock it repeats. Default: the fixed offset of startTime. Not in ARC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

/// A time zone that the tz database does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no time zone {0:?}")]
pub struct UnknownTimeZone(
    /// As it was given.
    pub String,
);

impl ScheduledOverride {
    /// The override as the rules of schedules take it.
    ///
    /// # Errors
    ///
    /// When nobody knows its time zone.
    pub fn read(&self) -> Result<schedule::Override, UnknownTimeZone> {
        let zone = |name: &str| TimeZone::get(name).map_err(|_| UnknownTimeZone(name.to_owned()));
        let rule = self.recurrence_rule.as_ref();
        Ok(schedule::Override {
            start: self.start_time.zoned(),
            end: self.end_time.timestamp(),
            frequency: rule.and_then(|rule| rule.frequency).map(|frequency| match frequency {
                Frequency::Daily => schedule::Frequency::Daily,
                Frequency::Weekly => schedule::Frequency::Weekly,
                Frequency::Monthly => schedule::Frequency::Monthly,
                Frequency::Yearly => schedule::Frequency::Yearly,
            }),
            until: rule.and_then(|rule| rule.until_time).map(OffsetTime::timestamp),
            min_replicas: self.min_replicas.and_then(|min| u32::try_from(min).ok()),
            time_zone: self.time_zone.as_deref().filter(|name| !name.is_empty()).map(zone).transpose()?,
        })
    }
}

/// How a scheduled override repeats.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecurrenceRule {
    /// How often. Default: once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency: Option<Frequency>,
    /// Last moment at which it may begin again. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_time: Option<OffsetTime>,
}

/// How often a scheduled override repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Frequency {
    /// Every day at the same time.
    Daily,
    /// Every week on the same weekday.
    Weekly,
    /// Every month on the same day; months without that day are skipped.
    Monthly,
    /// Every year on the same day; years without that day are skipped.
    Yearly,
}

/// What became of a HorizontalRunnerAutoscaler, and the demand that is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HorizontalRunnerAutoscalerStatus {
    /// Generation of the object that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of runners that the target was set to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// When that number was raised last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_successful_scale_out_time: Option<Time>,
    /// Left by ARC; not written any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_entries: Option<Vec<CacheEntry>>,
    /// The scheduled override that holds or comes next, for the Schedule column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduled_overrides_summary: Option<String>,
    /// Left by pacer 0.1; jobs are kept in JobLedgers now, and what is found here is moved there.
    #[serde(default, deserialize_with = "nullable::or_default", skip_serializing_if = "Vec::is_empty")]
    pub ledger: Vec<LedgerEntry>,
    /// Left by pacer 0.1, beside ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_revision: Option<i64>,
    /// Where the target's runners may be, as the operator has found; the webhook server goes by it. Not in ARC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proved_scope: Option<ProvedScope>,
    /// Reports of jobs that wait which are open at GitHub. Not in ARC.
    #[serde(default, deserialize_with = "nullable::or_default", skip_serializing_if = "Vec::is_empty")]
    pub waiting_reports: Vec<WaitingReport>,
    /// Jobs that have waited for 30 s and that polling alone tells of: the 20 that wait longest. Those that webhooks tell of are in JobLedgers. Not in ARC.
    #[serde(default, deserialize_with = "nullable::or_default", skip_serializing_if = "Vec::is_empty")]
    pub polled_jobs: Vec<PolledJob>,
    /// What the operator has to say about the autoscaler.
    #[serde(default, deserialize_with = "nullable::or_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A scope that is known to be that of an autoscaler's runners. Not in ARC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvedScope {
    /// The scope: repos/acme/app, orgs/acme or enterprises/corp.
    pub scope: String,
    /// Secret with the credentials that listed its runners; absent for the operator's own, which the tenancy file allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Base URL of the API that listed them; absent for the operator's own GitHub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
}

impl ProvedScope {
    /// Whether it is about runners of this configuration.
    #[must_use]
    pub fn is_of(&self, config: &RunnerConfig) -> bool {
        config.scope().is_ok_and(|scope| scope.api_path() == self.scope) && config.credentials_secret() == self.secret.as_deref()
    }

    /// Whether a job of a repository at this URL of GitHub's API may be its: any at the operator's own GitHub, since nobody else signs
    /// deliveries as that does.
    #[must_use]
    pub fn is_at(&self, repository: Option<&str>) -> bool {
        let Some(api) = &self.api else { return true };
        let own = repository.and_then(|url| url.get(..api.len()));
        own.is_some_and(|start| start.eq_ignore_ascii_case(api))
    }
}

/// A report of a job that waits, open on a commit at GitHub. Not in ARC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingReport {
    /// GitHub's id of the job.
    pub job: i64,
    /// Its repository, owner/name.
    pub repository: String,
    /// Hash of the commit.
    pub commit: String,
    /// Name of the check run, or context of the commit status.
    pub name: String,
    /// Whether it is a check run. A commit status otherwise.
    #[serde(default, deserialize_with = "nullable::or_default")]
    pub check: bool,
    /// What it says, in short, to tell whether that has changed.
    pub said: String,
    /// When it was said.
    pub at: Time,
}

impl WaitingReport {
    /// As it is kept. Not with the number of a check run: whoever may write a status could name one that is not a report.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        Self {
            job: i64::try_from(report.job).unwrap_or(i64::MAX),
            repository: report.repository.clone(),
            commit: report.commit.clone(),
            name: report.name.clone(),
            check: matches!(report.form, Form::Check(_)),
            said: report.said.clone(),
            at: Time(report.at),
        }
    }

    /// What was kept; none where it is not about a job, or [not a report's name](report::is_name).
    #[must_use]
    pub fn read(&self) -> Option<Report> {
        Some(Report {
            job: u64::try_from(self.job).ok()?,
            repository: self.repository.clone(),
            commit: self.commit.clone(),
            name: Some(self.name.clone()).filter(|name| report::is_name(name))?,
            form: if self.check { Form::Check(None) } else { Form::Status },
            said: self.said.clone(),
            at: self.at.0,
            refused: 0,
        })
    }
}

/// Longest name of a workflow in a status, in characters.
const WORKFLOW: usize = 96;

/// Most labels of a job in a status.
const LABELS: usize = 20;

/// A job that waits and that polling alone tells of. Not in ARC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolledJob {
    /// GitHub's id of the job.
    pub job: i64,
    /// Its repository, owner/name.
    pub repository: String,
    /// Name of its workflow.
    #[serde(default, deserialize_with = "nullable::or_default", skip_serializing_if = "String::is_empty")]
    pub workflow: String,
    /// Labels that it asks for.
    #[serde(default, deserialize_with = "nullable::or_default", skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// When it was queued.
    pub queued_at: Time,
}

impl PolledJob {
    /// As it is told, in texts of bounded length.
    #[must_use]
    pub fn of(id: u64, job: &Job) -> Self {
        Self {
            job: i64::try_from(id).unwrap_or(i64::MAX),
            repository: job.about.repository.to_string(),
            workflow: job.about.workflow.chars().take(WORKFLOW).collect(),
            labels: job.about.labels.iter().take(LABELS).map(ToString::to_string).collect(),
            // As it is stored, or it would differ from what is.
            queued_at: Time(Timestamp::from_second(job.queued.as_second()).unwrap_or(job.queued)),
        }
    }

    /// The job that is told of; none where the id is none.
    #[must_use]
    pub fn read(&self) -> Option<(u64, Job)> {
        let about = About {
            repository: self.repository.as_str().into(),
            workflow: self.workflow.as_str().into(),
            labels: self.labels.iter().map(|label| label.as_str().into()).collect(),
            // The status does not say.
            attempt: 1,
        };
        let job = Job {
            state: State::Queued,
            since: self.queued_at.0,
            queued: self.queued_at.0,
            expires: Timestamp::MAX,
            about: Arc::new(about),
            runner: None,
            origin: Arc::default(),
        };
        Some((u64::try_from(self.job).ok()?, job))
    }
}

/// Left by ARC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CacheEntry {
    /// Left by ARC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Left by ARC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<i64>,
    /// Left by ARC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_time: Option<Time>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_holds_for_its_scope_its_secret_and_its_server() {
        let config = |repository: &str, secret: Option<&str>| -> RunnerConfig {
            let from = secret.map(|name| serde_json::json!({"secretRef": {"name": name}}));
            serde_json::from_value(serde_json::json!({"repository": repository, "githubAPICredentialsFrom": from})).unwrap()
        };
        let proved = ProvedScope { scope: "repos/acme/app".to_owned(), secret: Some("own".to_owned()), api: None };
        let own = ProvedScope { secret: None, ..proved.clone() };
        for (proof, repository, secret, expected) in [
            (&proved, "acme/app", Some("own"), true),
            (&proved, "acme/app", Some("other"), false),
            (&proved, "acme/app", None, false),
            (&proved, "acme/victim", Some("own"), false),
            (&own, "acme/app", None, true),
            (&own, "acme/app", Some("own"), false),
        ] {
            assert_eq!(proof.is_of(&config(repository, secret)), expected, "{repository} {secret:?}");
        }
        let elsewhere = ProvedScope { api: Some("https://evil.example/api/v3/".to_owned()), ..proved.clone() };
        for (proof, url, expected) in [
            (&proved, Some("https://api.github.com/repos/acme/app"), true),
            (&proved, None, true),
            (&elsewhere, Some("https://Evil.example/api/v3/repos/acme/app"), true),
            (&elsewhere, Some("https://api.github.com/repos/acme/app"), false),
            (&elsewhere, Some("https://evil.example"), false),
            (&elsewhere, None, false),
        ] {
            assert_eq!(proof.is_at(url), expected, "{proof:?} {url:?}");
        }
    }

    #[test]
    fn polled_job_is_read_as_it_is_told_in_bounded_texts() {
        let told: PolledJob = serde_json::from_value(serde_json::json!({
            "job": 7, "repository": "acme/app", "workflow": "build", "labels": ["web"], "queuedAt": "2026-01-01T00:00:00Z",
        }))
        .unwrap();
        let (id, job) = told.read().unwrap();
        assert_eq!((id, job.state, PolledJob::of(id, &job)), (7, State::Queued, told.clone()));
        let about = About {
            workflow: "x".repeat(1_000).into(),
            labels: std::iter::repeat_n(Arc::from("web"), 1_000).collect(),
            ..About::clone(&job.about)
        };
        let fraction = Timestamp::from_millisecond(1_767_225_600_999).unwrap();
        let cut = PolledJob::of(id, &Job { about: Arc::new(about), queued: fraction, ..job });
        assert_eq!((cut.workflow.len(), cut.labels.len(), &cut.queued_at), (WORKFLOW, LABELS, &told.queued_at));
        assert_eq!(PolledJob { job: -1, ..told }.read(), None);
    }

    #[test]
    fn only_reservations_that_ask_for_runners_until_some_time_count() {
        let at = |second| Some(Time(Timestamp::from_second(second).unwrap()));
        let entry = |replicas, expiration_time| CapacityReservation { replicas, expiration_time, ..Default::default() };
        let spec = HorizontalRunnerAutoscalerSpec {
            capacity_reservations: Some(vec![
                entry(Some(2), at(11)),
                entry(Some(3), at(10)),
                entry(Some(-4), at(20)),
                entry(None, at(20)),
                entry(Some(5), None),
            ]),
            ..Default::default()
        };
        let ends: Vec<(u32, i64)> =
            spec.reservations().into_iter().map(|entry| (entry.replicas, entry.expires.as_second())).collect();
        assert_eq!((ends, spec.reserved(at(10).unwrap().0)), (vec![(2, 11), (3, 10)], 2));
    }

    #[test]
    fn a_reservation_with_a_name_is_that_of_a_person() {
        let author = |name: Option<&str>| {
            let expiration_time = Some(Time(Timestamp::from_second(20).unwrap()));
            let entry =
                CapacityReservation { name: name.map(str::to_owned), expiration_time, replicas: Some(1), ..Default::default() };
            let spec = HorizontalRunnerAutoscalerSpec { capacity_reservations: Some(vec![entry]), ..Default::default() };
            spec.reservations().into_iter().map(|entry| entry.author).collect::<Vec<_>>()
        };
        assert_eq!(author(None), [Author::Unknown]);
        assert_eq!(author(Some("")), [Author::Unknown]);
        assert_eq!(author(Some("release night")), [Author::Person]);
    }

    #[test]
    fn a_trigger_lasts_ten_minutes_unless_it_says_more() {
        let duration =
            |text: Option<&str>| ScaleUpTrigger { duration: text.map(str::to_owned), ..Default::default() }.duration_or_default();
        for (text, expected) in [(None, 600), (Some(""), 600), (Some("0s"), 600), (Some("30m"), 1800), (Some("1h30m"), 5400)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(expected)), "{text:?}");
        }
        assert!(duration(Some("soon")).is_err());
    }

    #[test]
    fn a_trigger_counts_when_it_is_the_only_one_and_for_jobs() {
        let job = ScaleUpTrigger {
            github_event: Some(GitHubEventTrigger { workflow_job: Some(WorkflowJobTrigger {}), ..Default::default() }),
            ..Default::default()
        };
        let spec = |triggers| HorizontalRunnerAutoscalerSpec { scale_up_triggers: triggers, ..Default::default() };
        for (triggers, expected) in [
            (None, false),
            (Some(vec![]), false),
            (Some(vec![job.clone()]), true),
            (Some(vec![job.clone(), job]), false),
            (Some(vec![ScaleUpTrigger::default()]), false),
        ] {
            assert_eq!(spec(triggers.clone()).workflow_job_trigger().is_some(), expected, "{triggers:?}");
        }
    }
}
