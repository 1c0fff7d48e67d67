//! The status of an autoscaler: the number, and why it is this one.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use pacer_api::autoscaler::{PolledJob, ProvedScope};
use pacer_api::condition::{self, ConditionType, Statement, Verdict};
use pacer_api::names::annotation;
use pacer_api::{HorizontalRunnerAutoscaler, HorizontalRunnerAutoscalerStatus};
use pacer_cluster::answer::ignore_not_found;
use pacer_cluster::events::Reason;
use pacer_cluster::status::{Turn, Weight};
use pacer_core::autoscale::telling::{Step, Story};
use pacer_core::demand;
use pacer_policyset::condition as policy_condition;
use serde_json::{Value, json};

use super::decide::Decided;
use super::memo::{AutoscalerMemo, Said};
use super::proof::Proof;
use super::{Autoscalers, Problem, Subject, left};
use crate::error::Error;

/// Reasons of the condition Scaling while jobs come and go; that something else bounds the number is news.
const ROUTINE: [&str; 5] = ["MinReplicas", "ScheduledOverride", "Metric", "Reserved", "ScaleDownDelay"];

/// Events about what keeps an autoscaler from deciding come at most this often.
const EVENT_PACE: Duration = Duration::from_secs(10);

/// What a pass came to.
pub(super) enum Outcome {
    /// The number of runners was decided.
    Decided {
        decided: Decided,
        /// For the Schedule column.
        summary: Option<String>,
    },
    /// No number was decided, for this reason.
    Problem(Problem),
}

impl Outcome {
    /// How long until the answer changes by itself.
    pub(super) fn next(&self, now: Timestamp) -> Option<Duration> {
        match self {
            Self::Decided { decided, .. } => decided.next.map(|at| until(at, now)),
            Self::Problem(_) => None,
        }
    }
}

impl Autoscalers {
    /// What the status says by now, whether it is written or not.
    pub(super) fn said(&self, of: Subject<'_>) -> Said {
        let said = self.memory.memos.read(of.uid, |memo| memo.said.clone()).flatten();
        said.unwrap_or_else(|| of.object.status.as_ref().map(Said::by).unwrap_or_default())
    }

    /// Writes the status if it differs and its [turn](Turn) has come. Returns when to go on with one that waits.
    pub(super) async fn write_status(&self, of: Subject<'_>, outcome: &Outcome, proof: &Proof) -> Result<Duration, Error> {
        let autoscaler = of.object;
        let old = autoscaler.status.clone().unwrap_or_default();
        let refused =
            self.memory.memos.read(of.uid, |memo| memo.refused.as_ref().map(|refusal| refusal.why().to_owned())).flatten();
        let mut new = compute(autoscaler, outcome, &old, (self.said(of), refused.as_deref()), of.clock.now);
        let asked = autoscaler.annotations().get(annotation::POLICIES).map(String::as_str);
        let (namespace, generation) = (autoscaler.namespace().unwrap_or_default(), autoscaler.metadata.generation);
        let policies = &self.decisions.policies;
        policy_condition::put(&mut new.conditions, policies, &namespace, asked, generation, of.clock.now);
        proof.put(&mut new, generation, of.clock.now);
        self.put_reporting(of, &mut new.conditions);
        let more = self.put_polled(of, &mut new).map_or(Duration::MAX, |at| until(at, of.clock.now));
        let period = self.publish_change(of, outcome, &old, &new).await.unwrap_or(Duration::MAX);
        let period = period.min(more).min(self.settings.sync_period);
        let (version, stored, value) = (autoscaler.resource_version(), fields(&old), fields(&new));
        let weight = match new.proved_scope == old.proved_scope {
            true => Weight::of(&old.conditions, &new.conditions, &ROUTINE),
            false => Weight::News,
        };
        let turn = self.memory.memos.change(of.uid, |memo| {
            memo.said = Some(Said::by(&new));
            memo.status.turn(version.as_deref(), &stored, value, weight, of.clock.instant)
        });
        let value = match turn {
            Turn::Settled => return Ok(period),
            Turn::Later(wait) => return Ok(wait.min(period)),
            Turn::Write(value) => value,
        };
        let api: Api<HorizontalRunnerAutoscaler> = self.cluster.api(&namespace);
        let patch = Patch::Merge(json!({ "status": value }));
        ignore_not_found(api.patch_status(&autoscaler.name_any(), &PatchParams::default(), &patch).await)?;
        self.memory.memos.change(of.uid, |memo| memo.status.written(version, value, of.clock.instant));
        Ok(period)
    }

    /// Says which jobs polling alone tells of. What another process said stands until this one knows. Returns when there is one more to be told.
    fn put_polled(&self, of: Subject<'_>, new: &mut HorizontalRunnerAutoscalerStatus) -> Option<Timestamp> {
        let polled = self.memory.memos.read(of.uid, |memo| memo.polled.clone()).flatten()?;
        let told = demand::told(&polled, of.clock.now);
        new.polled_jobs = told.jobs.iter().map(|(id, job)| PolledJob::of(*id, job)).collect();
        told.next
    }

    /// Tells people what changed. Returns how long what is told later waits.
    async fn publish_change(
        &self,
        of: Subject<'_>,
        outcome: &Outcome,
        old: &HorizontalRunnerAutoscalerStatus,
        new: &HorizontalRunnerAutoscalerStatus,
    ) -> Option<Duration> {
        let now = of.clock.instant;
        let stories = match outcome {
            Outcome::Problem(problem) => {
                let is_due = |memo: &mut AutoscalerMemo| {
                    let is_due = left(EVENT_PACE, memo.published, now).is_none();
                    memo.published = if is_due { Some(now) } else { memo.published };
                    is_due
                };
                if new.conditions != old.conditions && self.memory.memos.change(of.uid, is_due) {
                    let (reason, about) = (Reason::RunnerAutoscalingFailure, of.object.object_ref(&()));
                    self.cluster.events.publish(reason, &about, None, &problem.to_string()).await;
                }
                self.memory.memos.change(of.uid, |memo| memo.telling.due(now)).into_iter().collect()
            }
            Outcome::Decided { decided: Decided { decision, from, .. }, .. } => self.memory.memos.change(of.uid, |memo| {
                memo.number = Some(decision.desired);
                let mut stories: Vec<Story> = memo.telling.due(now).into_iter().collect();
                if decision.desired != *from {
                    let side = if decision.desired > *from { &mut memo.scaled.up } else { &mut memo.scaled.down };
                    *side = Some(of.clock.now);
                    let step = Step { from: *from, to: decision.desired, reason: decision.reason.to_string() };
                    stories.extend(memo.telling.step(step, now));
                }
                stories
            }),
        };
        for story in stories {
            // Events of one action are merged, and the note of the first would stand for all.
            let back = story.back.as_ref().map(|back| format!("To{}", back.to)).unwrap_or_default();
            let (action, about) = (format!("Scale{}To{}{back}", story.there.from, story.there.to), of.object.object_ref(&()));
            self.cluster.events.publish_with_action(Reason::Scaled, &action, &about, None, &story.to_string()).await;
        }
        self.memory.memos.read(of.uid, |memo| memo.telling.wait(now)).flatten()
    }
}

/// How long until a moment is past, not just reached.
fn until(at: Timestamp, now: Timestamp) -> Duration {
    at.duration_since(now).saturating_add(SignedDuration::from_millis(1)).max(SignedDuration::ZERO).unsigned_abs()
}

/// What this controller owns of a status; the ledger that an earlier version left there is not its own.
fn fields(status: &HorizontalRunnerAutoscalerStatus) -> Value {
    json!({
        "observedGeneration": status.observed_generation,
        "desiredReplicas": status.desired_replicas,
        "lastSuccessfulScaleOutTime": status.last_successful_scale_out_time,
        "scheduledOverridesSummary": status.scheduled_overrides_summary,
        "provedScope": proved_scope(status.proved_scope.as_ref()),
        // An empty list is absent.
        "polledJobs": Some(&status.polled_jobs).filter(|jobs| !jobs.is_empty()),
        "conditions": status.conditions,
    })
}

/// With every field, so that a merge patch removes those that are absent.
fn proved_scope(proved: Option<&ProvedScope>) -> Value {
    proved.map_or(Value::Null, |proved| json!({"scope": proved.scope, "secret": proved.secret, "api": proved.api}))
}

fn compute(
    autoscaler: &HorizontalRunnerAutoscaler,
    outcome: &Outcome,
    old: &HorizontalRunnerAutoscalerStatus,
    (Said { desired: before, raised }, refused): (Said, Option<&str>),
    now: Timestamp,
) -> HorizontalRunnerAutoscalerStatus {
    let mut new = old.clone();
    new.desired_replicas = before;
    new.last_successful_scale_out_time = raised;
    let generation = autoscaler.metadata.generation;
    new.observed_generation = generation;
    let mut say = |type_, verdict: bool, reason: &str, message: &str| {
        let statement = Statement { type_, verdict: Verdict::from(verdict), reason, message, generation };
        condition::put(&mut new.conditions, &statement, now);
    };
    match outcome {
        Outcome::Problem(problem) => {
            say(ConditionType::Accepted, false, problem.reason(), &problem.to_string());
            say(ConditionType::Scaling, false, problem.reason(), "the target keeps its number; see the condition Accepted");
        }
        Outcome::Decided { decided: Decided { decision, trouble, .. }, summary } => {
            say(ConditionType::Accepted, true, "Accepted", "the spec makes sense and the target exists");
            match (refused, trouble) {
                (Some(why), _) => say(ConditionType::Scaling, false, Reason::ScalingRefused.as_str(), why),
                (None, Some(trouble)) => say(
                    ConditionType::Scaling,
                    false,
                    "MetricUnavailable",
                    &format!("{}; not lowered: {trouble}", decision.reason),
                ),
                (None, None) => say(ConditionType::Scaling, true, decision.reason.word(), &decision.reason.to_string()),
            }
            let desired = i32::try_from(decision.desired).unwrap_or(i32::MAX);
            // ARC's rule: without a number before, more than one runner counts as an increase.
            if desired > before.unwrap_or(1) {
                new.last_successful_scale_out_time = Timestamp::from_second(now.as_second()).ok().map(Time);
            }
            new.desired_replicas = Some(desired);
            new.scheduled_overrides_summary.clone_from(summary);
        }
    }
    new
}
