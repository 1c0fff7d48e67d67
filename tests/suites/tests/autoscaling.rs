//! Autoscaling from end to end: jobs at GitHub, webhooks or polling, runners, and back to the minimum.

mod held;
mod keeping;
mod redelivery;
mod refused;
mod shared;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams};
use pacer_api::condition::ConditionType;
use pacer_api::job_ledger;
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, Runner};
use pacer_core::facts::FLAG_PATIENCE;
use pacer_core::ledger::State;
use pacer_harness::github::{Delivering, Hook, Scope};
use pacer_harness::world::World;
use pacer_suites::manifests::shipped;
use pacer_suites::webhook::{SECRET, hook, hooked_world, receive_itself};
use pacer_suites::{
    PATIENCE, api, apply, deployment, end, no_open_jobs, put, queue, runners, settled, succeeded, until, with_spec, world,
    world_with,
};
use serde_json::{Value, json};

/// An autoscaler of the deployment `web`.
fn autoscaler(min: u32, max: u32, more: Value) -> Value {
    let mut spec = json!({"scaleTargetRef": {"name": "web"}, "minReplicas": min, "maxReplicas": max});
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1",
        "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": spec,
    })
}

fn by_webhook() -> Value {
    json!({"scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}]})
}

fn by_polling() -> Value {
    json!({"metrics": [{"type": "TotalNumberOfQueuedAndInProgressWorkflowRuns"}]})
}

/// The same autoscaler with a schedule that names no time zone, so that it can't decide.
fn undecidable(autoscaler: Value) -> Value {
    let overrides =
        json!([{"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-02T00:00:00Z", "timeZone": "Mars/Olympus_Mons"}]);
    put(autoscaler, "/spec", "scheduledOverrides", overrides)
}

/// Applies a deployment without a number of its own, and its autoscaler; waits until both are acted on.
async fn pool(world: &World, min: u32, autoscaler: &Value) -> Result<()> {
    apply(world, &deployment("web", min)).await?;
    apply(world, autoscaler).await?;
    status(world, "the first number", |status| status.desired_replicas.is_some()).await?;
    Ok(())
}

/// Waits until the autoscaler's status is as wanted.
async fn status(
    world: &World,
    what: &str,
    reached: impl Fn(&pacer_api::HorizontalRunnerAutoscalerStatus) -> bool,
) -> Result<HorizontalRunnerAutoscaler> {
    let mut found =
        until::<HorizontalRunnerAutoscaler>(world, what, |all| all.iter().any(|one| one.status.as_ref().is_some_and(&reached)))
            .await?;
    found.pop().context("no autoscaler")
}

/// What Events say about changes of the number.
#[derive(Default)]
struct Told {
    /// How often the number came to be this one, less how often it ceased to be: nothing is left out where all are zero and it began and ended
    /// at the same one.
    balance: BTreeMap<u32, i64>,
    highest: u32,
}

fn told_changes(events: &[&Event]) -> Told {
    let mut told = Told::default();
    for event in events.iter().filter(|event| event.reason.as_deref() == Some("Scaled")) {
        let note = event.note.as_deref().unwrap_or_default();
        let words: Vec<&str> = note.split(' ').collect();
        let (Some(from), Some(to)) =
            (words.get(1).and_then(|word| word.parse().ok()), words.get(3).and_then(|word| word.parse().ok()))
        else {
            // One that can't be read never comes out even.
            told.balance.insert(u32::MAX, 1);
            continue;
        };
        let back = note.split_once("; then to ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        let times = event.series.as_ref().map_or(1, |series| i64::from(series.count));
        *told.balance.entry(from).or_default() -= times;
        *told.balance.entry(back.unwrap_or(to)).or_default() += times;
        told.highest = told.highest.max(to);
    }
    told
}

/// Reason and message of the condition Scaling.
fn scaling(autoscaler: &HorizontalRunnerAutoscaler) -> (String, String) {
    let conditions = autoscaler.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.into_iter().find(|condition| condition.type_ == ConditionType::Scaling.as_str());
    found.map(|condition| (condition.reason.clone(), condition.message.clone())).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_gets_one_runner_per_job_and_the_fleet_goes_back() -> Result<()> {
    let world = hooked_world(&[]).await?;
    pool(&world, 0, &autoscaler(0, 30, by_webhook())).await?;
    queue(&world, "web", 20, Duration::from_secs(3))?;
    succeeded(&world, 20).await?;
    status(&world, "back to none", |status| status.desired_replicas == Some(0)).await?;
    settled(&world, 0).await?;
    let made = world.github.runners().ever_registered;
    ensure!(made == 20, "{made} runners were made for 20 jobs");
    // Each change was told, from the number before: up to the highest and back to none.
    until::<Event>(&world, "Events of every change", |all| {
        let told = told_changes(all);
        told.highest == 20 && told.balance.values().all(|times| *times == 0)
    })
    .await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn more_jobs_than_runners_wait_for_their_turn_and_the_reason_is_told() -> Result<()> {
    let world = hooked_world(&[]).await?;
    pool(&world, 0, &autoscaler(0, 4, by_webhook())).await?;
    queue(&world, "web", 12, Duration::from_secs(2))?;
    let clamped = status(&world, "the maximum", |status| {
        status.desired_replicas == Some(4) && status.conditions.iter().any(|condition| condition.reason == "MaxReplicas")
    })
    .await?;
    let (_, message) = scaling(&clamped);
    ensure!(message.contains("clamped by maxReplicas 4"), "{message}");
    succeeded(&world, 12).await?;
    settled(&world, 0).await?;
    let made = world.github.runners().ever_registered;
    ensure!(made == 12, "{made} runners were made for 12 jobs");
    end(world).await
}

/// With the scale-down delay at its default of ten minutes.
#[tokio::test(flavor = "multi_thread")]
async fn single_jobs_one_after_the_other_leave_nothing_idle() -> Result<()> {
    let world = hooked_world(&[]).await?;
    pool(&world, 0, &autoscaler(0, 10, by_webhook())).await?;
    for done in 1..=6 {
        queue(&world, "web", 1, Duration::from_millis(500))?;
        succeeded(&world, done).await?;
    }
    settled(&world, 0).await?;
    let made = world.github.runners().ever_registered;
    ensure!(made == 6, "{made} runners were made for 6 jobs");
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_runners_of_the_minimum_stay_beside_those_of_jobs() -> Result<()> {
    let world = hooked_world(&[]).await?;
    pool(&world, 2, &autoscaler(2, 10, by_webhook())).await?;
    settled(&world, 2).await?;
    // All three have to be there before the first one ends, and an agent may update itself before.
    queue(&world, "web", 3, Duration::from_secs(30))?;
    runners(&world, "three at work and two idle", |counts| counts.busy == 3 && counts.online == 5).await?;
    succeeded(&world, 3).await?;
    settled(&world, 2).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_repeated_and_reordered_events_leave_nobody_waiting_and_nothing_reserved() -> Result<()> {
    let world = hooked_world(&[]).await?;
    world.github.deliver(Delivering {
        drop_every: Some(5),
        duplicate_every: Some(3),
        reorder_within: 6,
        delay: Duration::from_millis(50),
        parallel: 4,
    });
    let mut more = by_webhook();
    more["metrics"] = by_polling()["metrics"].clone();
    // What was made for a job that somebody else's runner took goes at once.
    more["scaleDownDelaySecondsAfterScaleOut"] = json!(0);
    pool(&world, 0, &autoscaler(0, 40, more)).await?;
    let jobs = queue(&world, "web", 25, Duration::from_secs(2))?;
    ensure!(world.github.cancel_job(jobs[24]), "the last job can't be cancelled");
    succeeded(&world, 24).await?;
    status(&world, "nothing reserved", |status| status.desired_replicas == Some(0)).await?;
    no_open_jobs(&world).await?;
    settled(&world, 0).await?;
    metrics_are_told(&world).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_in_status_are_moved_when_an_earlier_version_left_them() -> Result<()> {
    let world = world_with(&[], |_| {}).await?;
    pool(&world, 0, &autoscaler(0, 10, by_webhook())).await?;
    let now = Timestamp::now();
    let entry = json!({
        "state": "Queued", "since": now, "expires": now + SignedDuration::from_mins(10), "repository": "acme/app", "workflow": "build",
        "labels": ["web"], "jobs": [77, 78],
    });
    let left = json!({"status": {"ledger": [entry], "ledgerRevision": 4}});
    let autoscalers = api::<HorizontalRunnerAutoscaler>(&world);
    autoscalers.patch_status("web", &PatchParams::default(), &Patch::Merge(left)).await?;
    status(&world, "two runners, and nothing left in the status", |status| {
        status.desired_replicas == Some(2) && status.ledger.is_empty()
    })
    .await?;
    until::<JobLedger>(&world, "both jobs in a JobLedger", |all| all.iter().any(|one| one.spec.has(77) && one.spec.has(78)))
        .await?;
    settled(&world, 2).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn polling_alone_works() -> Result<()> {
    let world = world_with(&[], |_| {}).await?;
    let mut more = by_polling();
    more["scaleDownDelaySecondsAfterScaleOut"] = json!(0);
    pool(&world, 1, &autoscaler(1, 10, more)).await?;
    settled(&world, 1).await?;
    queue(&world, "web", 4, Duration::from_secs(3))?;
    queue(&world, "somebody-else", 3, Duration::from_secs(3))?;
    succeeded(&world, 4).await?;
    settled(&world, 1).await?;
    end(world).await
}

/// ARC's names are there with their labels, and the dashboard asks for nothing that is not.
async fn metrics_are_told(world: &World) -> Result<()> {
    // Prometheus asks all of them; receivers tell of the jobs' times.
    let mut text = world.operator.as_ref().context("no operator")?.metrics().await?;
    text.push_str(&world.receivers.as_ref().context("no receivers")?.metrics().await?);
    for line in [
        r#"horizontalrunnerautoscaler_spec_max_replicas{horizontalrunnerautoscaler="web",namespace="default"} 40"#,
        r#"horizontalrunnerautoscaler_necessary_replicas{horizontalrunnerautoscaler="web",namespace="default",enterprise="",organization="","#,
        r#"repository="acme/app",kind="runnerdeployment",name="web"} 0"#,
        r#"pacer_ledger_jobs{horizontalrunnerautoscaler="web",namespace="default",state="queued"} 0"#,
    ] {
        ensure!(text.contains(line), "/metrics lacks {line}:\n{text}");
    }
    let exported: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let path = shipped("grafana/pacer.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let list = |object: &Value, field: &str| object.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let targets = list(&dashboard, "panels").into_iter().flat_map(|panel| list(&panel, "targets"));
    let mut asked = 0;
    for query in targets.filter_map(|target| target.get("expr")?.as_str().map(str::to_owned)) {
        let words = query.split(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '_'));
        for word in
            words.filter(|word| ["pacer_", "github_", "horizontalrunnerautoscaler_"].iter().any(|start| word.starts_with(start)))
        {
            let name = word.strip_suffix("_total").or_else(|| word.strip_suffix("_bucket")).unwrap_or(word);
            ensure!(exported.contains(&name), "the dashboard asks for {word}, and /metrics has {exported:?}");
            asked += 1;
        }
    }
    ensure!(asked > 15, "only {asked} metrics in the dashboard");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_share_of_busy_runners_grows_the_fleet() -> Result<()> {
    let world = world_with(&[], |_| {}).await?;
    let more = json!({
        "metrics": [{"type": "PercentageRunnersBusy", "scaleUpThreshold": "0.75", "scaleDownThreshold": "0.25", "scaleUpFactor": "2"}],
        "scaleDownDelaySecondsAfterScaleOut": 0,
    });
    pool(&world, 2, &autoscaler(2, 6, more)).await?;
    settled(&world, 2).await?;
    // GitHub's flag may be a minute late, and the share is looked at once a minute.
    queue(&world, "web", 2, Duration::from_secs(140))?;
    let grown = status(&world, "four", |status| status.desired_replicas == Some(4)).await?;
    ensure!(scaling(&grown).0 == "Metric", "{:?}", scaling(&grown));
    succeeded(&world, 2).await?;
    settled(&world, 2).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduled_override_begins_and_ends_on_time() -> Result<()> {
    let world = world_with(&[], |_| {}).await?;
    let now = Timestamp::from_second(Timestamp::now().as_second())?;
    let until = |end: Timestamp| {
        let begin = now - SignedDuration::from_secs(60);
        let more = json!({
            "scheduledOverrides": [{"startTime": begin.to_string(), "endTime": end.to_string(), "minReplicas": 3}],
            "scaleDownDelaySecondsAfterScaleOut": 0,
        });
        autoscaler(0, 5, more)
    };
    pool(&world, 0, &until(now + SignedDuration::from_hours(1))).await?;
    settled(&world, 3).await?;
    let found = status(&world, "the schedule", |status| status.scheduled_overrides_summary.is_some()).await?;
    ensure!(scaling(&found).0 == "ScheduledOverride", "{:?}", scaling(&found));
    let end_time = Timestamp::from_second(Timestamp::now().as_second())? + SignedDuration::from_secs(10);
    apply(&world, &until(end_time)).await?;
    settled(&world, 0).await?;
    ensure!(Timestamp::now() >= end_time, "it ended too early");
    let found = status(&world, "no schedule", |status| status.scheduled_overrides_summary.is_none()).await?;
    ensure!(scaling(&found).0 == "MinReplicas", "{:?}", scaling(&found));
    end(world).await
}

/// What was accepted is in the cluster: a process that is killed loses none of it.
#[tokio::test(flavor = "multi_thread")]
async fn accepted_webhooks_survive_a_kill() -> Result<()> {
    let mut world = world_with(&[], receive_itself).await?;
    hook(&world, Scope::repository("acme", "app"))?;
    pool(&world, 0, &autoscaler(0, 60, by_webhook())).await?;
    queue(&world, "web", 40, Duration::from_secs(4))?;
    let outcome = world.github.wait_for(PATIENCE, |view| view.deliveries().accepted >= 40).await;
    world.check(outcome).await?;
    let operator = world.operator.as_mut().context("no operator")?;
    operator.kill9().await;
    operator.restart().await?;
    hook(&world, Scope::repository("acme", "app"))?;
    succeeded(&world, 40).await?;
    settled(&world, 0).await?;
    let made = world.github.runners().ever_registered;
    ensure!(made == 40, "{made} runners were made for 40 jobs");
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_an_autoscaler_is_said_and_nothing_is_changed() -> Result<()> {
    let world = world_with(&[], |_| {}).await?;
    apply(&world, &deployment("web", 2)).await?;
    settled(&world, 2).await?;
    let mut broken = autoscaler(0, 5, json!({"metrics": [{"type": "PercentageRunnersBusy", "scaleUpFactor": "two"}]}));
    apply(&world, &broken).await?;
    let accepted = |autoscaler: &HorizontalRunnerAutoscaler| {
        let conditions = autoscaler.status.iter().flat_map(|status| &status.conditions);
        let found = conditions.into_iter().find(|condition| condition.type_ == ConditionType::Accepted.as_str());
        found.map(|condition| (condition.status.clone(), condition.message.clone())).unwrap_or_default()
    };
    let found = status(&world, "a refusal", |status| !status.conditions.is_empty()).await?;
    let (verdict, message) = accepted(&found);
    ensure!(verdict == "False" && message.contains("scaleUpFactor") && message.contains("two"), "{verdict} {message}");
    ensure!(api::<Runner>(&world).list(&kube::api::ListParams::default()).await?.items.len() == 2, "runners were changed");
    broken["spec"]["metrics"] = json!([]);
    apply(&world, &broken).await?;
    settled(&world, 0).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_that_can_no_longer_decide_keeps_its_fleet_at_its_number() -> Result<()> {
    let world = hooked_world(&[]).await?;
    pool(&world, 2, &autoscaler(2, 2, by_webhook())).await?;
    settled(&world, 2).await?;
    apply(&world, &undecidable(autoscaler(2, 2, by_webhook()))).await?;
    status(&world, "a refusal", |status| {
        status.conditions.iter().any(|it| it.type_ == ConditionType::Accepted.as_str() && it.status == "False")
    })
    .await?;
    for done in 1..=3 {
        queue(&world, "web", 2, Duration::from_secs(2))?;
        succeeded(&world, 2 * done).await?;
        settled(&world, 2).await?;
    }
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_end_of_a_job_is_found_while_the_autoscaler_can_not_decide() -> Result<()> {
    let world = hooked_world(&[]).await?;
    let mut more = by_webhook();
    more["metrics"] = by_polling()["metrics"].clone();
    apply(&world, &with_spec(deployment("web", 1), "ephemeral", json!(false))).await?;
    let autoscaler = autoscaler(1, 1, more);
    apply(&world, &autoscaler).await?;
    settled(&world, 1).await?;
    queue(&world, "web", 1, Duration::from_secs(10))?;
    let works = |ledger: &&JobLedger| job_ledger::read([&ledger.spec]).open().any(|(_, job)| job.state == State::InProgress);
    until::<JobLedger>(&world, "a job in progress", |all| all.iter().any(works)).await?;
    world.github.deliver(Delivering { drop_every: Some(1), ..Delivering::default() });
    apply(&world, &undecidable(autoscaler)).await?;
    succeeded(&world, 1).await?;
    no_open_jobs(&world).await?;
    end(world).await
}

/// Nobody looks for the worker process, and GitHub's flag says idle all the time. Each listing of runners says so for longer than the patience with that
/// flag, so that the list of jobs alone protects them.
#[tokio::test(flavor = "multi_thread")]
async fn runners_that_only_the_job_list_names_are_not_asked_to_go() -> Result<()> {
    let never = Duration::from_secs(3_600);
    let world = world(|options| options.github.behaviour.busy_late = never..=never).await?;
    let own_probe = json!([{"name": "runner", "readinessProbe": {"exec": {"command": ["true"]}}}]);
    apply(&world, &with_spec(deployment("web", 2), "containers", own_probe)).await?;
    apply(&world, &autoscaler(2, 2, by_polling())).await?;
    settled(&world, 2).await?;
    queue(&world, "web", 2, FLAG_PATIENCE + Duration::from_secs(40))?;
    runners(&world, "both at work", |counts| counts.busy == 2).await?;
    apply(&world, &autoscaler(1, 1, by_polling())).await?;
    succeeded(&world, 2).await?;
    settled(&world, 1).await?;
    end(world).await
}
