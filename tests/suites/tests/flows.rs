//! What a fleet does when nothing goes wrong around it: on the real API server, with the shipped roles.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::ListParams;
use pacer_api::condition::{self, ConditionType};
use pacer_api::{Runner, RunnerDeployment, RunnerReplicaSet};
use pacer_harness::world::Options;
use pacer_suites::fleet::Kind;
use pacer_suites::{
    api, apply, brisk_world, deployment, end, end_as_it_is, event, for_both_kinds, nothing_left, only, queue, runners, running,
    scale, succeeded, until, world,
};
use serde_json::json;

for_both_kinds!(a_rollout_stays_within_its_surge_and_busy_runners_finish, what_is_deleted_drains);

/// Jobs that last as long as a test.
const LONG: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_becomes_runners_and_goes_back_to_nothing() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    apply(&world, &deployment("web", 3)).await?;
    runners(&world, "3 online", |counts| counts.online == 3).await?;
    let deployments = until::<RunnerDeployment>(&world, "a ready deployment", |all| {
        all.iter().any(|deployment| {
            let status = deployment.status.clone().unwrap_or_default();
            condition::holds(&status.conditions, ConditionType::Ready)
                && status.replicas == Some(3)
                && status.available_replicas == Some(3)
        })
    })
    .await?;
    let status = only(deployments)?.status.unwrap_or_default();
    ensure!(
        status.observed_generation == Some(1) && status.desired_replicas == Some(3) && status.updated_replicas == Some(3),
        "{status:?}"
    );
    let found = until::<Runner>(&world, "registered Runners", |all| {
        all.len() == 3 && all.iter().all(|runner| runner.status.as_ref().is_some_and(|status| status.runner_id.is_some()))
    })
    .await?;
    ensure!(found.iter().all(|runner| runner.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")));

    queue(&world, "web", 6, Duration::from_millis(200))?;
    succeeded(&world, 6).await?;
    runners(&world, "3 online again", |counts| counts.online == 3 && counts.registered == 3).await?;

    scale(&world, "web", 0).await?;
    runners(&world, "none", |counts| counts.registered == 0).await?;
    until::<Runner>(&world, "no Runners", |all| all.is_empty()).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_shorter_than_the_pace_of_listings_are_no_failed_starts() -> Result<()> {
    // GitHub's own times would be most of the minute.
    let prompt = |options: &mut Options| {
        let behaviour = &mut options.github.behaviour;
        behaviour.updates_itself = 0.0;
        behaviour.online_late = Duration::ZERO..=Duration::ZERO;
        behaviour.assigned_late = Duration::ZERO..=Duration::ZERO;
    };
    let world = brisk_world(&[], prompt).await?;
    apply(&world, &deployment("web", 2)).await?;
    until::<RunnerReplicaSet>(&world, "2 idle in the status", |sets| {
        sets.iter().any(|set| set.status.as_ref().is_some_and(|status| status.idle_replicas == Some(2)))
    })
    .await?;
    // An agent is registered for less than half a second, and a listing is made once a second at most: hardly any of them is seen.
    let queued = Instant::now();
    queue(&world, "web", 20, Duration::from_millis(300))?;
    succeeded(&world, 20).await?;
    let took = queued.elapsed();
    println!("20 jobs of 300 ms on a static fleet of 2, hardly any listed: {:.1} s", took.as_secs_f64());
    runners(&world, "2 online again", |counts| counts.online == 2 && counts.registered == 2).await?;
    let sets = until::<RunnerReplicaSet>(&world, "one set", |sets| sets.len() == 1).await?;
    let failed = only(sets)?.status.and_then(|status| status.failed_attempts).unwrap_or_default();
    ensure!(failed == 0, "{failed} failed attempts");
    ensure!(took < Duration::from_secs(60), "{took:?}");
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn scale_down_asks_no_busy_runner_and_reaches_the_number_at_once() -> Result<()> {
    let world = world(|_| {}).await?;
    apply(&world, &deployment("web", 100)).await?;
    runners(&world, "100 online", |counts| counts.online == 100).await?;
    queue(&world, "web", 30, LONG)?;
    running(&world, 30).await?;
    // The listing has to show them, or they would be asked and answer 422.
    until::<RunnerReplicaSet>(&world, "30 busy in the status", |sets| {
        sets.iter().any(|set| {
            set.status.as_ref().is_some_and(|status| status.busy_replicas == Some(30) && status.idle_replicas == Some(70))
        })
    })
    .await?;
    scale(&world, "web", 40).await?;
    runners(&world, "40 left", |counts| counts.registered == 40).await?;
    ensure!(world.github.busy_deletes_refused() == 0, "{} busy runners were asked", world.github.busy_deletes_refused());
    ensure!(world.github.jobs().in_progress == 30, "{:?}", world.github.jobs());
    // Events follow the removals.
    event(&world, "RunnerRemoved", |note| note.contains("idle")).await?;
    let told = api::<Event>(&world).list(&ListParams::default().fields("reason=RunnerRemoved")).await?;
    let notes: Vec<&str> = told.iter().filter_map(|event| event.note.as_deref()).collect();
    ensure!(notes.iter().all(|note| note.contains("idle")) && !notes.is_empty(), "{notes:?}");
    // `kubectl describe` of the RunnerDeployment shows them, and each names the Runner that went.
    let kinds = |of: Option<&ObjectReference>| of.and_then(|of| of.kind.clone()).unwrap_or_default();
    let about = told.iter().map(|event| (kinds(event.regarding.as_ref()), kinds(event.related.as_ref())));
    let about: BTreeSet<_> = about.collect();
    let expected = BTreeSet::from([("RunnerDeployment".to_owned(), "Runner".to_owned())]);
    ensure!(about == expected, "{about:?}");
    // On a starved machine a call may miss its deadline of 100 ms of wall time; then the metric says so and the same policy decides natively.
    let metrics = match &world.operator {
        Some(operator) => operator.metrics().await?,
        None => String::new(),
    };
    let late = metrics.contains("pacer_policy_faults_total{kind=\"deadline\"}")
        && !metrics.contains("pacer_policy_faults_total{kind=\"deadline\"} 0");
    let component = notes.iter().all(|note| note.contains("policy default@sha256:"));
    ensure!(component || (late && notes.iter().all(|note| note.contains("policy native"))), "{notes:?}");
    end_as_it_is(world).await
}

async fn a_rollout_stays_within_its_surge_and_busy_runners_finish(kind: Kind) -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let fleet = kind.fleet("web", 60);
    fleet.apply(&world).await?;
    runners(&world, "60 online", |counts| counts.online == 60).await?;
    queue(&world, "web", 10, Duration::from_secs(20))?;
    running(&world, 10).await?;
    fleet.renew(&world, "2").await?;
    // Watched all the way: never more than the surge of 10 % above the wanted number.
    let mut most = 0;
    let sets = until::<Runner>(&world, "only new Runners", |all| {
        let alive = all.iter().filter(|runner| runner.metadata.deletion_timestamp.is_none()).count();
        most = most.max(alive);
        let new = all.iter().filter(|runner| runner.annotations().contains_key("revision")).count();
        new == 60 && all.len() == 60
    })
    .await?;
    ensure!(sets.len() == 60 && most <= 66, "{most} Runners at once");
    until::<RunnerReplicaSet>(&world, "one set", |sets| sets.len() == 1).await?;
    runners(&world, "60 online", |counts| counts.online == 60).await?;
    ensure!(world.github.jobs().succeeded == 10, "{:?}", world.github.jobs());
    end(world).await
}

async fn what_is_deleted_drains(kind: Kind) -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let fleet = kind.fleet("web", 6);
    fleet.apply(&world).await?;
    runners(&world, "6 online", |counts| counts.online == 6).await?;
    queue(&world, "web", 3, Duration::from_secs(45))?;
    running(&world, 3).await?;
    fleet.delete(&world).await?;
    // The idle ones go, the busy ones stay and say why.
    runners(&world, "the busy ones only", |counts| counts.registered == 3).await?;
    until::<Runner>(&world, "a visible wait", |all| {
        all.len() == 3
            && all.iter().all(|runner| {
                runner.status.as_ref().is_some_and(|status| condition::holds(&status.conditions, ConditionType::Stopping))
            })
    })
    .await?;
    nothing_left(&world).await?;
    ensure!(world.github.jobs().succeeded == 3, "{:?}", world.github.jobs());
    end(world).await
}

/// A stand-alone Runner `solo` that is online.
async fn world_with_solo() -> Result<pacer_harness::world::World> {
    let world = brisk_world(&[], |_| {}).await?;
    let runner = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1",
        "kind": "Runner",
        "metadata": {"name": "solo", "namespace": "default"},
        "spec": {"repository": "acme/app", "labels": ["solo"]},
    });
    apply(&world, &runner).await?;
    runners(&world, "it online", |counts| counts.online == 1).await?;
    Ok(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stand_alone_runner_keeps_its_name() -> Result<()> {
    let world = world_with_solo().await?;
    queue(&world, "solo", 2, Duration::from_millis(200))?;
    succeeded(&world, 2).await?;
    runners(&world, "it online again", |counts| counts.online == 1).await?;
    let left = only(api::<Runner>(&world).list(&kube::api::ListParams::default()).await?.items)?;
    ensure!(left.name_any() == "solo");
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_stand_alone_runner_is_made_again_without_a_storm_of_writes() -> Result<()> {
    let world = world_with_solo().await?;
    let evicted = jiff::Timestamp::now();
    world.nodes.as_ref().context("no nodes")?.evict("default", "solo").await?;
    runners(&world, "it online again", |counts| counts.ever_registered == 2 && counts.online == 1 && counts.registered == 1)
        .await?;
    until::<Runner>(&world, "a new registration in its status", |all| {
        all.iter().any(|one| one.status.as_ref().is_some_and(|status| status.runner_id.is_some() && status.ready == Some(true)))
    })
    .await?;
    // Taken down and made again; every repetition of a step would be a write or more.
    let calls = world.operator_calls(Some(evicted))?;
    ensure!(calls.total() <= 20, "{calls}");
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn foreground_deletion_drains_as_well() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    apply(&world, &deployment("web", 4)).await?;
    runners(&world, "4 online", |counts| counts.online == 4).await?;
    queue(&world, "web", 2, Duration::from_secs(8))?;
    running(&world, 2).await?;
    api::<RunnerDeployment>(&world).delete("web", &kube::api::DeleteParams::foreground()).await?;
    nothing_left(&world).await?;
    ensure!(world.github.jobs().succeeded == 2, "{:?}", world.github.jobs());
    end(world).await
}
