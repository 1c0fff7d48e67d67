//! Why a pool has the number of runners that it has, what is held back, who decides, and what was decided last.

use std::sync::Arc;

use anyhow::{Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, ResourceExt};
use pacer_api::autoscaler::ScaleTargetKind;
use pacer_api::names::annotation;
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet};
use pacer_cluster::object::ObjectKey;
use pacer_core::ledger::{Ledger, State};
use pacer_core::waiting::in_a_row;
use pacer_demand::ledger::jobs_of;
use pacer_operator::target::{Target, TargetRef};
use pacer_operator::waiting;
use pacer_policy::{Decision, Record};
use pacer_policyset::Phase;
use pacer_policyset::report::Report as SetReport;
use serde::Serialize;

use crate::archive::{Archive, ago};
use crate::cluster::Cluster;
use crate::plain::line;
use crate::report::{Format, Report};
use crate::table;

/// What to do where the set that is looked at is perhaps not the operator's.
const OTHERWISE: &str = "if the operator runs with another --policies, say the same one here";

/// Decisions of each kind that are told.
const LAST: usize = 3;

/// What a pool may be named as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Whatever has the name.
    Any,
    /// A RunnerDeployment.
    Deployment,
    /// A RunnerSet.
    RunnerSet,
    /// A HorizontalRunnerAutoscaler: its target.
    Autoscaler,
    /// A RunnerReplicaSet.
    Set,
}

/// What the cluster says about a pool.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) target: Option<Target>,
    pub(super) autoscalers: Vec<HorizontalRunnerAutoscaler>,
    pub(super) job_ledgers: Vec<JobLedger>,
    pub(super) sets: Vec<RunnerReplicaSet>,
    pub(super) runners: Vec<Runner>,
    /// The policy set that is asked for; none where there is not even a default one.
    pub(super) set: Option<Set>,
}

/// A policy set that a pool asks for.
#[derive(Debug)]
pub(super) struct Set {
    key: ObjectKey,
    /// It is everybody's who asks for none.
    default: bool,
    seen: Seen,
}

/// What is to be seen of a set.
#[derive(Debug)]
enum Seen {
    /// What the operator says about it; none when it has not said anything.
    There(Option<Box<SetReport>>),
    /// There is no such ConfigMap.
    Missing,
    /// It can't be read, with these rights for instance.
    Hidden(String),
}

/// What is told about a pool.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Story {
    pool: String,
    wanted: u32,
    present: u32,
    online: u32,
    /// On their way out; not counted in the others.
    leaving: u32,
    /// Why the number is what it is.
    why: Vec<String>,
    /// What is not done although it could be, and why.
    held: Vec<String>,
    /// Lines that say which policy set applies, and which policy takes each decision.
    policies: Vec<String>,
    /// The newest first.
    decisions: Vec<Told>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    receipt: String,
    at: Timestamp,
    decision: String,
    outcome: String,
    policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Reads the cluster and tells.
pub(super) async fn explain(
    cluster: &Cluster,
    kind: Kind,
    name: &str,
    default: Option<&ObjectKey>,
    format: Format,
) -> Result<Report> {
    let found = find(cluster, kind, name, default).await?;
    let archive = Archive::read(cluster).await?;
    let pool = found.name();
    let records: Vec<&Record> = archive.records().into_iter().filter(|record| concerns(record, &found)).collect();
    let now = Timestamp::now();
    let story = Story::new(&found, &records, now);
    let text = match format {
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&story)?),
        Format::Text => story.text(now),
    };
    let notes = match (format, records.is_empty()) {
        (Format::Text, true) => format!("no receipts of {pool}: {}\n", archive.gaps(now)),
        _ => String::new(),
    };
    Ok(Report { text, notes, failure: None })
}

async fn find(cluster: &Cluster, kind: Kind, name: &str, default: Option<&ObjectKey>) -> Result<Found> {
    let deployments = cluster.list::<RunnerDeployment>(false, "").await?.into_iter().map(|one| Target::Deployment(Arc::new(one)));
    let runner_sets = cluster.list::<RunnerSet>(false, "").await?.into_iter().map(|one| Target::Set(Arc::new(one)));
    let targets: Vec<Target> = deployments.chain(runner_sets).collect();
    let autoscalers: Vec<HorizontalRunnerAutoscaler> = cluster.list(false, "").await?;
    let sets: Vec<RunnerReplicaSet> = cluster.list(false, "").await?;
    let named = |name: &str| targets.iter().find(|one| one.name() == name).cloned();
    let of_kind =
        |kind: ScaleTargetKind, name: &str| targets.iter().find(|one| one.kind() == kind && one.name() == name).cloned();
    let by_autoscaler = || {
        let autoscaler = autoscalers.iter().find(|one| one.name_any() == name)?;
        of_kind(autoscaler.spec.target_kind(), autoscaler.spec.target_name()?)
    };
    let by_set = || sets.iter().find(|one| one.name_any() == name).cloned();
    let (target, set) = match kind {
        Kind::Deployment => (of_kind(ScaleTargetKind::RunnerDeployment, name), None),
        Kind::RunnerSet => (of_kind(ScaleTargetKind::RunnerSet, name), None),
        Kind::Autoscaler => (by_autoscaler(), None),
        Kind::Set => (None, by_set()),
        Kind::Any => match named(name).or_else(by_autoscaler) {
            Some(target) => (Some(target), None),
            None => (None, by_set()),
        },
    };
    let owned = |set: &RunnerReplicaSet, target: &Target| {
        set.owner_references().iter().any(|owner| Some(&owner.uid) == target.meta().uid.as_ref())
    };
    let sets: Vec<RunnerReplicaSet> = match (&target, set) {
        (Some(target), _) => sets.into_iter().filter(|set| owned(set, target)).collect(),
        (None, Some(set)) => vec![set],
        (None, None) => {
            let short = |one: &Target| match one {
                Target::Deployment(_) => format!("rdeploy/{}", one.name()),
                Target::Set(_) => format!("runnerset/{}", one.name()),
            };
            let known: Vec<String> = targets.iter().map(short).collect();
            let known = if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
            bail!(
                "there is no pool {name} in namespace {}: no RunnerDeployment, RunnerSet, RunnerReplicaSet, or HorizontalRunnerAutoscaler with a target, of \
                 that name; {known}",
                cluster.namespace
            );
        }
    };
    let reference = target.as_ref().map(Target::reference);
    let autoscalers: Vec<_> =
        autoscalers.into_iter().filter(|one| reference.is_some() && TargetRef::of(one) == reference).collect();
    let uids: Vec<String> = sets.iter().filter_map(ResourceExt::uid).collect();
    let mut runners: Vec<Runner> = cluster.list(false, "").await?;
    runners.retain(|runner| runner.owner_references().iter().any(|owner| uids.contains(&owner.uid)));
    let annotated = autoscalers.iter().map(ResourceExt::annotations).chain(sets.iter().map(ResourceExt::annotations));
    let asked = target.as_ref().and_then(Target::policies).cloned();
    let asked = asked.or_else(|| annotated.into_iter().find_map(|annotations| annotations.get(annotation::POLICIES).cloned()));
    let own = asked.map(|name| ObjectKey { namespace: cluster.namespace.clone(), name: name.trim().to_owned() });
    let set = match (own, default) {
        (Some(key), _) => Some(look(cluster, key, false).await),
        (None, Some(key)) => Some(look(cluster, key.clone(), true).await),
        (None, None) => None,
    };
    let job_ledgers = cluster.list(false, "").await?;
    Ok(Found { target, autoscalers, job_ledgers, sets, runners, set })
}

async fn look(cluster: &Cluster, key: ObjectKey, default: bool) -> Set {
    let config_maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &key.namespace);
    let seen = match config_maps.get_metadata_opt(&key.name).await {
        Ok(Some(set)) => {
            Seen::There(set.annotations().get(annotation::POLICY_STATUS).and_then(|status| SetReport::read(status)).map(Box::new))
        }
        Ok(None) => Seen::Missing,
        // Whoever may look at pools need not have the right to look there.
        Err(error) => Seen::Hidden(error.to_string()),
    };
    Set { key, default, seen }
}

fn concerns(record: &Record, found: &Found) -> bool {
    match &found.target {
        Some(target) => record.pool.kind == target.kind().as_str() && record.pool.name == target.name(),
        None => {
            let is = |name: &str| found.sets.iter().any(|set| set.name_any() == name);
            is(&record.pool.name) || record.input.as_ref().is_some_and(|input| is(&input.pool().name))
        }
    }
}

impl Found {
    fn name(&self) -> String {
        match (&self.target, self.sets.first()) {
            (Some(target), _) => target.reference().to_string(),
            (None, Some(set)) => format!("RunnerReplicaSet {}/{}", set.namespace().unwrap_or_default(), set.name_any()),
            (None, None) => "nothing".to_owned(),
        }
    }

    fn conditions(&self) -> &[Condition] {
        let of_set = || self.sets.first().and_then(|set| set.status.as_ref()).map(|status| status.conditions.as_slice());
        match &self.target {
            Some(target) => target.conditions(),
            None => of_set().unwrap_or_default(),
        }
    }

    fn why(&self) -> Vec<String> {
        let wanted = self.wanted();
        if self.autoscalers.is_empty() {
            let owner = self
                .sets
                .first()
                .and_then(|set| set.owner_references().first().map(|owner| format!("{} {}", owner.kind, owner.name)));
            return vec![match (&self.target, owner) {
                (None, Some(owner)) => format!("{owner} asks for {wanted} of this template"),
                _ => format!("spec.replicas says {wanted}, and no HorizontalRunnerAutoscaler sets it: kubectl scale changes it"),
            }];
        }
        let lines = |one: &HorizontalRunnerAutoscaler| autoscaler(one, &jobs_of(one, &self.job_ledgers));
        self.autoscalers.iter().flat_map(lines).collect()
    }

    fn wanted(&self) -> u32 {
        match (&self.target, self.sets.first()) {
            (Some(target), _) => target.replicas(),
            (None, Some(set)) => set.spec.replicas_or_default(),
            (None, None) => 0,
        }
    }

    /// What is not done although it could be.
    fn held(&self, now: Timestamp) -> Vec<String> {
        let mut held: Vec<String> = self
            .conditions()
            .iter()
            .filter(|condition| condition.type_ == "Ready" && condition.status != "True")
            .map(|condition| format!("not ready ({}): {}", condition.reason, condition.message))
            .collect();
        for set in &self.sets {
            if let Some((until, attempts)) = waiting::backoff([set], now) {
                let failed = in_a_row(attempts);
                held.push(format!(
                    "RunnerReplicaSet {}: {failed} failed to start: a place is filled again by {until}",
                    set.name_any()
                ));
            }
        }
        for runner in &self.runners {
            let name = runner.name_any();
            if runner.annotations().get(annotation::PROTECTED).is_some_and(|word| word == "true") {
                held.push(format!("runner {name} is protected (annotation {}): no scale-down takes it", annotation::PROTECTED));
            }
            let conditions = runner.status.iter().flat_map(|status| &status.conditions);
            for condition in conditions.filter(|condition| condition.status == "True") {
                match condition.type_.as_str() {
                    "Stopping" => {
                        held.push(format!("runner {name} is to go and waits ({}): {}", condition.reason, condition.message));
                    }
                    "Quarantined" => {
                        held.push(format!("runner {name} is set aside, delete it when you have looked: {}", condition.message));
                    }
                    _ => {}
                }
            }
        }
        held
    }

    fn policies(&self) -> Vec<String> {
        let Some(Set { key, default, seen }) = &self.set else {
            return vec![
                "the shipped policies decide: no set is asked for, and there is no default one (--policies=)".to_owned(),
            ];
        };
        let asked = if *default { "the cluster's default set" } else { "its own set" };
        let mut lines = Vec::new();
        match seen {
            Seen::There(Some(report)) => {
                let digest = report.digest.as_deref().map_or_else(String::new, |digest| format!(", {digest}"));
                lines.push(format!("{asked}, ConfigMap {key}: {}{digest}", report.phase));
                if report.phase != Phase::Active.as_str()
                    && let Some(error) = &report.last_error
                {
                    lines.push(format!("{}: {}", error.reason, error.message));
                }
                for decision in Decision::ALL {
                    let decided = report.decisions.get(decision.as_str());
                    let by = decided.and_then(|decided| decided.enforced.as_ref());
                    // Nobody decides about dead jobs unless a set says who.
                    let otherwise = if decision == Decision::Recover { "nobody" } else { "shipped" };
                    let by = by.map_or_else(
                        || otherwise.to_owned(),
                        |asked| {
                            format!(
                                "{}{}",
                                asked.policy,
                                if asked.breaker == "open" { ", which keeps failing: shipped stands in" } else { "" }
                            )
                        },
                    );
                    lines.push(format!("{decision}: {by}"));
                }
            }
            Seen::There(None) if *default => lines.push(format!(
                "{asked}, ConfigMap {key}: the operator has not said anything about it; {OTHERWISE}"
            )),
            Seen::There(None) => lines.push(format!("{asked}, ConfigMap {key}: the operator has not said anything about it (yet)")),
            Seen::Missing if *default => lines.push(format!(
                "the shipped policies decide: no set is asked for, and ConfigMap {key}, the cluster's default set, does not exist; {OTHERWISE}"
            )),
            Seen::Missing => lines.push(format!("{asked}, ConfigMap {key}: there is none of that name, so what decided before goes on")),
            Seen::Hidden(error) => lines.push(format!("{asked}, ConfigMap {key}: it can't be read: {error}")),
        }
        for condition in self.conditions().iter().filter(|condition| condition.type_.starts_with("Policy")) {
            if (condition.status == "True") == (condition.type_ == "PolicyDegraded") {
                lines.push(format!("{} {} ({}): {}", condition.type_, condition.status, condition.reason, condition.message));
            }
        }
        lines
    }
}

/// Whether the operator says that GitHub has contact with it.
fn is_online(runner: &Runner) -> bool {
    let conditions = runner.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Lines about an autoscaler: its number, the reason, what hinders it, and the jobs that it knows.
fn autoscaler(autoscaler: &HorizontalRunnerAutoscaler, jobs: &Ledger) -> Vec<String> {
    let name = autoscaler.name_any();
    let number = |number: Option<i32>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    let status = autoscaler.status.clone().unwrap_or_default();
    let bounds = format!("{} to {}", number(autoscaler.spec.min_replicas), number(autoscaler.spec.max_replicas));
    let mut lines = vec![format!("HorizontalRunnerAutoscaler {name} ({bounds}) wants {}", number(status.desired_replicas))];
    for condition in &status.conditions {
        match (condition.type_.as_str(), condition.status.as_str()) {
            ("Scaling", "True") => lines.push(format!("because: {}", condition.message)),
            ("Scaling" | "Accepted", "False") => {
                lines.push(format!("it can't do its work ({}): {}", condition.reason, condition.message));
            }
            _ => {}
        }
    }
    let count = |state| jobs.open().filter(|(_, job)| job.state == state).count();
    let (queued, running) = (count(State::Queued), count(State::InProgress));
    if queued + running > 0 {
        lines.push(format!("jobs known from webhooks: {queued} waiting, {running} running"));
    }
    if let Some(raised) = &status.last_successful_scale_out_time {
        lines.push(format!("raised last at {}", raised.0));
    }
    if let Some(schedule) = &status.scheduled_overrides_summary {
        lines.push(format!("schedule: {schedule}"));
    }
    lines
}

impl Story {
    pub(super) fn new(found: &Found, records: &[&Record], now: Timestamp) -> Self {
        // All from the same list: figures of different moments contradict each other.
        let (leaving, alive): (Vec<&Runner>, Vec<&Runner>) =
            found.runners.iter().partition(|runner| runner.metadata.deletion_timestamp.is_some());
        let count = |runners: &[&Runner]| u32::try_from(runners.len()).unwrap_or(u32::MAX);
        let online: Vec<&Runner> = alive.iter().copied().filter(|runner| is_online(runner)).collect();
        let of = |decision| records.iter().rev().filter(move |record| record.decision() == decision).take(LAST);
        let mut decisions: Vec<&&Record> = Decision::ALL.into_iter().flat_map(of).collect();
        decisions.sort_by(|one, other| other.id.cmp(&one.id));
        Self {
            pool: found.name(),
            wanted: found.wanted(),
            present: count(&alive),
            online: count(&online),
            leaving: count(&leaving),
            why: found.why(),
            held: found.held(now),
            policies: found.policies(),
            decisions: decisions.into_iter().map(|record| Told::of(record)).collect(),
        }
    }

    pub(super) fn text(&self, now: Timestamp) -> String {
        let are = |count: u32| if count == 1 { "is" } else { "are" };
        let does = if self.present == 1 { "exists" } else { "exist" };
        let runners = if self.wanted == 1 { "runner" } else { "runners" };
        let mut text = format!(
            "{}: {} {runners} {} wanted, {} {does}, {} {} online",
            self.pool,
            self.wanted,
            are(self.wanted),
            self.present,
            self.online,
            are(self.online)
        );
        if self.leaving > 0 {
            text.push_str(&format!("; {} more {} on the way out", self.leaving, are(self.leaving)));
        }
        text.push_str(".\n");
        let told = |fields: &[String]| fields.iter().map(|field| line(field)).collect::<Vec<_>>();
        let mut part = |title: &str, lines: &[String], none: &str| {
            text.push_str(&format!("\n{title}\n"));
            for line in lines {
                text.push_str(&format!("  {line}\n"));
            }
            if lines.is_empty() {
                text.push_str(&format!("  {none}\n"));
            }
        };
        part(&format!("Why {}", self.wanted), &told(&self.why), "nobody says");
        part("Held back", &told(&self.held), "nothing");
        part("Who decides", &told(&self.policies), "the shipped policies");
        let rows: Vec<Vec<String>> = self
            .decisions
            .iter()
            .map(|told| {
                vec![
                    ago(told.at, now),
                    told.decision.clone(),
                    line(&told.receipt),
                    line(&told.outcome),
                    format!("by {}", line(&told.policy)),
                ]
            })
            .collect();
        let lines: Vec<String> = table::left(&rows).lines().map(str::to_owned).collect();
        part("Last decisions", &lines, "none is known");
        text
    }
}

impl Told {
    fn of(record: &Record) -> Self {
        Self {
            receipt: record.id.clone(),
            at: record.at,
            decision: record.decision().to_string(),
            outcome: record.outcome(),
            policy: record.receipt.policy.clone(),
            reason: record.change.as_ref().map(|change| change.reason.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::sample;

    fn found(yaml: &str) -> Found {
        let deployment: RunnerDeployment = serde_saphyr::from_str(yaml).unwrap();
        Found { target: Some(Target::Deployment(Arc::new(deployment))), ..Found::default() }
    }

    const WEB: &str = "{apiVersion: actions.summerwind.dev/v1alpha1, kind: RunnerDeployment, metadata: {name: web, namespace: default}, \
                       spec: {replicas: 3, template: {spec: {repository: acme/app}}}}";

    #[test]
    fn a_pool_that_nobody_scales() {
        let record = sample::scale_down(5, 2);
        let text = Story::new(&found(WEB), &[&record], record.at).text(record.at);
        for part in [
            "RunnerDeployment default/web: 3 runners are wanted, 0 exist, 0 are online.",
            "Why 3\n  spec.replicas says 3, and no HorizontalRunnerAutoscaler sets it",
            "Held back\n  nothing",
            "Who decides\n  the shipped policies decide",
            "removed web-4, web-3  by default@sha256:",
        ] {
            assert!(text.contains(part), "no {part:?} in:\n{text}");
        }
    }

    #[test]
    fn what_an_autoscaler_and_what_holds_back_say() {
        let mut found = found(WEB);
        found.autoscalers = vec![
            serde_saphyr::from_str(
                "{apiVersion: actions.summerwind.dev/v1alpha1, kind: HorizontalRunnerAutoscaler, metadata: {name: web-hra, namespace: default, uid: u-1}, \
                 spec: {scaleTargetRef: {name: web}, minReplicas: 1, maxReplicas: 9}, status: {desiredReplicas: 3, conditions: [{type: Scaling, \
                 status: 'True', reason: Reserved, message: 3 runners for 2 jobs, lastTransitionTime: 2026-01-01T00:00:00Z}]}}",
            )
            .unwrap(),
        ];
        found.job_ledgers = vec![
            serde_saphyr::from_str(
                "{apiVersion: actions.summerwind.dev/v1alpha1, kind: JobLedger, metadata: {name: web-hra-u1-00, namespace: default, \
                 ownerReferences: [{apiVersion: actions.summerwind.dev/v1alpha1, kind: HorizontalRunnerAutoscaler, name: web-hra, uid: u-1, \
                 controller: true}]}, spec: {autoscaler: web-hra, jobs: {'1': {queued: 2026-01-01T00:00:00Z}, '2': {queued: \
                 2026-01-01T00:00:00Z, started: 2026-01-01T00:00:09Z}, '3': {ended: 2026-01-01T00:00:09Z}}}}",
            )
            .unwrap(),
        ];
        found.runners = vec![
            serde_saphyr::from_str(
                "{apiVersion: actions.summerwind.dev/v1alpha1, kind: Runner, metadata: {name: web-1}, spec: {repository: acme/app}, \
                 status: {conditions: [{type: Stopping, status: 'True', reason: Draining, message: runs a job, lastTransitionTime: 2026-01-01T00:00:00Z}]}}",
            )
            .unwrap(),
        ];
        let report = r#"{"phase":"LastGood","digest":"sha256:ab","decisions":{"scale-down":{"enforced":{"policy":"mine@sha256:12","breaker":"open"}}},
            "lastError":{"reason":"PolicySetInvalid","message":"line 2","at":"2026-01-01T00:00:00Z"}}"#;
        let key = ObjectKey { namespace: "default".into(), name: "opinions".into() };
        found.set = Some(Set { key, default: false, seen: Seen::There(SetReport::read(report).map(Box::new)) });
        let text = Story::new(&found, &[], Timestamp::UNIX_EPOCH).text(Timestamp::UNIX_EPOCH);
        for part in [
            "HorizontalRunnerAutoscaler web-hra (1 to 9) wants 3\n  because: 3 runners for 2 jobs",
            "jobs known from webhooks: 1 waiting, 1 running",
            "runner web-1 is to go and waits (Draining): runs a job",
            "its own set, ConfigMap default/opinions: LastGood, sha256:ab\n  PolicySetInvalid: line 2",
            "scale-down: mine@sha256:12, which keeps failing: shipped stands in\n  restart: shipped",
            "Last decisions\n  none is known",
        ] {
            assert!(text.contains(part), "no {part:?} in:\n{text}");
        }
    }

    #[test]
    fn fields_of_a_pool_stay_on_their_line_and_steer_no_terminal() {
        let mut found = found(WEB);
        let runner = serde_json::json!({
            "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "Runner", "metadata": {"name": "web-1"}, "spec": {"repository": "acme/app"},
            "status": {"conditions": [{
                "type": "Stopping", "status": "True", "reason": "Draining", "message": "a\n\nWho decides\u{1b}[2J",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        });
        found.runners = vec![serde_json::from_value(runner).unwrap()];
        let mut record = sample::scale_down(5, 2);
        record.receipt.policy = "mine\n  forged".to_owned();
        let text = Story::new(&found, &[&record], record.at).text(record.at);
        for part in [
            "\nHeld back\n  runner web-1 is to go and waits (Draining): a Who decides [2J\n",
            "removed web-4, web-3  by mine forged\n",
        ] {
            assert!(text.contains(part), "no {part:?} in:\n{text:?}");
        }
    }

    #[test]
    fn which_set_is_looked_for_is_said_where_it_is_not_found() {
        let key = ObjectKey { namespace: "ci".into(), name: "opinions".into() };
        for (default, seen, expected) in [
            (
                true,
                Seen::Missing,
                "ConfigMap ci/opinions, the cluster's default set, does not exist; if the operator runs with another --policies",
            ),
            (
                true,
                Seen::There(None),
                "the cluster's default set, ConfigMap ci/opinions: the operator has not said anything about it; if",
            ),
            (false, Seen::Missing, "its own set, ConfigMap ci/opinions: there is none of that name"),
            (true, Seen::Hidden("forbidden".into()), "ConfigMap ci/opinions: it can't be read: forbidden"),
        ] {
            let found = Found { set: Some(Set { key: key.clone(), default, seen }), ..found(WEB) };
            let lines = found.policies();
            assert!(lines.iter().any(|line| line.contains(expected)), "no {expected:?} in {lines:?}");
        }
    }
}
