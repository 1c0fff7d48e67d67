//! `pacer status`: all pools on one screen.
//!
//! Everything is read from specs and statuses, so that whoever may read the five kinds may use it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use kube::ResourceExt;
use pacer_api::names::annotation;
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, RunnerDeployment, RunnerReplicaSet, RunnerReplicaSetStatus, RunnerSet};
use pacer_core::ledger::State;
use pacer_demand::ledger::jobs_known_to;
use pacer_operator::target::{Target, TargetRef, owner_of};
use serde::Serialize;

use crate::archive::ago;
use crate::cluster::{self, Cluster, ClusterArguments};
use crate::plain::line;
use crate::report::{Format, Report};
use crate::table;

/// How often `--watch` looks.
const GLANCE: Duration = Duration::from_secs(2);

/// Arguments of `pacer status`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Pools of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Prints again on each change until it is interrupted.
    #[arg(short, long)]
    watch: bool,
    /// Output format. With --watch, JSON is one line per change.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// A pool as `pacer status` shows it.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    namespace: String,
    kind: String,
    name: String,
    /// Runners that are wanted.
    wanted: u32,
    /// Runners that exist and are not on their way out.
    present: u32,
    /// Those that GitHub has contact with.
    online: u32,
    /// Those that run a job, or can't be proved not to.
    busy: u32,
    /// Jobs that wait, as far as webhooks told, and those that polling alone tells of once they have waited for long.
    waiting: u32,
    /// When the one that waits longest was queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_since: Option<Timestamp>,
    /// Why the number is what it is, or what is wrong.
    why: String,
    /// The policy set that is asked for; none for the cluster's default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    policies: Option<String>,
}

/// `pacer status`.
pub(crate) fn status(arguments: &Arguments, tell: impl Fn(&Report) -> Result<()>) -> Result<()> {
    cluster::with(&arguments.cluster, async |cluster| {
        let mut told = None;
        loop {
            let rows = read(&cluster, arguments.all_namespaces).await?;
            if told.as_ref() != Some(&rows) {
                tell(&Report::text(text(&rows, arguments, &cluster.namespace, Timestamp::now())?))?;
                told = Some(rows);
            }
            if !arguments.watch {
                return Ok(());
            }
            tokio::time::sleep(GLANCE).await;
        }
    })
}

async fn read(cluster: &Cluster, all: bool) -> Result<Vec<Row>> {
    let deployments = cluster.list::<RunnerDeployment>(all, "").await?.into_iter().map(|one| Target::Deployment(Arc::new(one)));
    let sets = cluster.list::<RunnerSet>(all, "").await?.into_iter().map(|one| Target::Set(Arc::new(one)));
    let targets: Vec<Target> = deployments.chain(sets).collect();
    let autoscalers: Vec<HorizontalRunnerAutoscaler> = cluster.list(all, "").await?;
    let jobs: Vec<JobLedger> = cluster.list(all, "").await?;
    Ok(rows(&targets, &autoscalers, &jobs, &cluster.list::<RunnerReplicaSet>(all, "").await?))
}

pub(crate) fn rows(
    targets: &[Target],
    autoscalers: &[HorizontalRunnerAutoscaler],
    jobs: &[JobLedger],
    sets: &[RunnerReplicaSet],
) -> Vec<Row> {
    let mut owned: BTreeMap<String, Vec<&RunnerReplicaSetStatus>> = BTreeMap::new();
    for set in sets {
        if let (Some(owner), Some(status)) = (owner_of(set), &set.status) {
            owned.entry(owner.uid.to_string()).or_default().push(status);
        }
    }
    let mut rows: Vec<Row> = targets
        .iter()
        .map(|target| {
            let of: Vec<&HorizontalRunnerAutoscaler> =
                autoscalers.iter().filter(|one| TargetRef::of(one).is_some_and(|of| of == target.reference())).collect();
            let statuses = target.meta().uid.as_ref().and_then(|uid| owned.get(uid)).map(Vec::as_slice).unwrap_or_default();
            row(target, &of, jobs, statuses)
        })
        .collect();
    rows.sort_by(|one, other| (&one.namespace, &one.name, &one.kind).cmp(&(&other.namespace, &other.name, &other.kind)));
    rows
}

fn row(
    target: &Target,
    autoscalers: &[&HorizontalRunnerAutoscaler],
    jobs: &[JobLedger],
    sets: &[&RunnerReplicaSetStatus],
) -> Row {
    let reference = target.reference();
    let sum = |number: fn(&RunnerReplicaSetStatus) -> Option<i32>| -> u32 {
        sets.iter().filter_map(|status| u32::try_from(number(status)?).ok()).sum()
    };
    let busy = sum(|status| status.busy_replicas);
    let mut waiting: Vec<Timestamp> = Vec::new();
    for autoscaler in autoscalers {
        let ledger = jobs_known_to(autoscaler, jobs);
        waiting.extend(ledger.open().filter(|(_, job)| job.state == State::Queued).map(|(_, job)| job.queued));
    }
    let asked = target.policies().or_else(|| autoscalers.iter().find_map(|one| one.annotations().get(annotation::POLICIES)));
    Row {
        namespace: reference.namespace,
        kind: reference.kind.as_str().to_owned(),
        name: reference.name,
        wanted: target.replicas(),
        present: sum(|status| status.replicas),
        online: busy.saturating_add(sum(|status| status.idle_replicas)),
        busy,
        waiting: u32::try_from(waiting.len()).unwrap_or(u32::MAX),
        waiting_since: waiting.into_iter().min(),
        why: why(target, autoscalers),
        policies: asked.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()),
    }
}

/// What is wrong comes first, then why the number is what it is.
fn why(target: &Target, autoscalers: &[&HorizontalRunnerAutoscaler]) -> String {
    let unready = target.conditions().iter().find(|condition| condition.type_ == "Ready" && condition.status == "False");
    let unready = unready.filter(|condition| condition.reason != "Starting").map(|condition| condition.message.clone());
    let mut parts: Vec<String> = unready.into_iter().collect();
    for autoscaler in autoscalers {
        let conditions = autoscaler.status.iter().flat_map(|status| &status.conditions);
        let said = |type_: &'static str, verdict: &'static str| {
            conditions.clone().find(|condition| condition.type_ == type_ && condition.status == verdict)
        };
        let condition = said("Accepted", "False").or_else(|| said("Scaling", "False")).or_else(|| said("Scaling", "True"));
        parts.extend(condition.map(|condition| condition.message.clone()));
    }
    if autoscalers.is_empty() && parts.is_empty() {
        parts.push("set by hand".to_owned());
    }
    parts.join("; ")
}

fn text(rows: &[Row], arguments: &Arguments, namespace: &str, now: Timestamp) -> Result<String> {
    Ok(match (arguments.output, arguments.watch) {
        (Format::Json, false) => format!("{}\n", serde_json::to_string_pretty(rows)?),
        (Format::Json, true) => format!("{}\n", serde_json::to_string(rows)?),
        (Format::Text, watch) => {
            let title = if watch { format!("\n{}\n", now.strftime("%H:%M:%SZ")) } else { String::new() };
            title + &screen(rows, arguments.all_namespaces, namespace, now)
        }
    })
}

pub(crate) fn screen(rows: &[Row], all: bool, namespace: &str, now: Timestamp) -> String {
    if rows.is_empty() {
        let place = if all { "in any namespace".to_owned() } else { format!("in namespace {namespace} (-A shows all)") };
        return format!("There is no RunnerDeployment and no RunnerSet {place}.\n");
    }
    let mut head = vec!["POOL", "WANTED", "EXIST", "ONLINE", "BUSY", "WAITING JOBS", "POLICIES", "WHY"];
    if all {
        head.insert(0, "NAMESPACE");
    }
    let mut table = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for row in rows {
        let waiting = match row.waiting_since {
            None => "0".to_owned(),
            Some(since) => format!("{}, first {}", row.waiting, ago(since, now)),
        };
        let mut cells = vec![
            format!("{}/{}", row.kind, row.name),
            row.wanted.to_string(),
            row.present.to_string(),
            row.online.to_string(),
            row.busy.to_string(),
            waiting,
            row.policies.as_deref().map_or_else(|| "default".to_owned(), line),
            line(&row.why),
        ];
        if all {
            cells.insert(0, row.namespace.clone());
        }
        table.push(cells);
    }
    table::left(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_told_in_one_line_each() {
        let deployment = |name: &str, extra: &str| -> Target {
            let text = format!(
                "{{metadata: {{name: {name}, namespace: ci, uid: u-{name}}}, spec: {{replicas: 3, template: {{spec: {{}}}}}}{extra}}}"
            );
            Target::Deployment(Arc::new(serde_saphyr::from_str(&text).unwrap()))
        };
        let failing = ", status: {conditions: [{type: Ready, status: 'False', reason: GitHubUnavailable, message: bad credentials, lastTransitionTime: 2026-01-01T00:00:00Z}]}";
        let autoscaler: HorizontalRunnerAutoscaler = serde_saphyr::from_str(
            "metadata: {name: a, namespace: ci, annotations: {actions.summerwind.dev/policies: ours}}\nspec: {scaleTargetRef: {name: web}, maxReplicas: 3}\nstatus:\n  conditions: [{type: Scaling, status: 'True', reason: MaxReplicas, message: clamped by maxReplicas 3 (wanted 5), lastTransitionTime: 2026-01-01T00:00:00Z}]\n  ledger:\n  - {state: Queued, since: 2026-01-01T00:00:00Z, expires: 2026-01-01T01:00:00Z, repository: acme/app, jobs: [7, 8]}\n  polledJobs:\n  - {job: 8, repository: acme/app, queuedAt: 2026-01-01T00:00:00Z}\n  - {job: 9, repository: acme/app, queuedAt: 2025-12-31T23:59:30Z}\n",
        )
        .unwrap();
        let set: RunnerReplicaSet = serde_saphyr::from_str(
            "metadata: {name: web-1, namespace: ci, ownerReferences: [{apiVersion: a, kind: RunnerDeployment, name: web, uid: u-web, controller: true}]}\nspec: {template: {spec: {}}}\nstatus: {replicas: 3, idleReplicas: 1, busyReplicas: 1}\n",
        )
        .unwrap();
        let rows = rows(&[deployment("web", ""), deployment("batch", failing)], &[autoscaler], &[], &[set]);
        let now = "2026-01-01T00:01:30Z".parse().unwrap();
        let text = screen(&rows, true, "ci", now);
        let lines: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "NAMESPACE POOL WANTED EXIST ONLINE BUSY WAITING JOBS POLICIES WHY",
                "ci RunnerDeployment/batch 3 0 0 0 0 default bad credentials",
                "ci RunnerDeployment/web 3 3 2 1 3, first 2 min ago ours clamped by maxReplicas 3 (wanted 5)",
            ]
        );
        assert!(screen(&[], false, "ci", now).contains("in namespace ci (-A shows all)"));
    }

    #[test]
    fn fields_of_a_pool_stay_on_its_line_and_steer_no_terminal() {
        let row = Row {
            namespace: "ci".to_owned(),
            kind: "RunnerDeployment".to_owned(),
            name: "web".to_owned(),
            wanted: 3,
            present: 0,
            online: 0,
            busy: 0,
            waiting: 0,
            waiting_since: None,
            why: "a\nRunnerDeployment/batch  9\u{1b}[2J".to_owned(),
            policies: Some("ours\nb".to_owned()),
        };
        let text = screen(&[row], false, "ci", Timestamp::UNIX_EPOCH);
        assert_eq!(text.lines().count(), 2, "{text:?}");
        assert!(text.ends_with("  ours b    a RunnerDeployment/batch 9 [2J\n"), "{text:?}");
    }
}
