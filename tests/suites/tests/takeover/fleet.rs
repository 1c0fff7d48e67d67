//! Fleets of ARC's that go on under this operator.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use kube::api::ListParams;
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerReplicaSet};
use pacer_harness::github::RouteKind;
use pacer_suites::arc::{self, LONG, everything, uids};
use pacer_suites::webhook::{SECRET, hook};
use pacer_suites::{api, delete, delete_all, end, queue, runners, running, scale, settled, succeeded, until};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn ten_runners_of_which_four_are_busy_notice_nothing() -> Result<()> {
    let (mut world, options) = arc::without_operator(&[]).await?;
    arc::fleet(&world, "web", 10).await?;
    queue(&world, "web", 4, LONG)?;
    running(&world, 4).await?;
    let busy: BTreeSet<String> =
        world.github.registrations(&arc::scope()).into_iter().filter(|one| one.job.is_some()).map(|one| one.name).collect();
    let before = everything(&world).await?;
    world.github.reset_calls();

    arc::start(&mut world, &options).await?;
    arc::taken_over(&world, "web", 10).await?;
    ensure!(everything(&world).await? == before, "objects were exchanged");
    let pods = api::<Pod>(&world).list(&ListParams::default()).await?;
    ensure!(pods.iter().all(|pod| pod.finalizers() == ["actions.summerwind.dev/runner-pod"]), "pods at work were touched");
    let seen = world.nodes.as_ref().map_or(0, |nodes| nodes.tally().seen());
    ensure!(seen == 10, "{seen} pods");
    ensure!(world.github.count(RouteKind::DeleteRunner).requests == 0 && world.github.runners().ever_registered == 10);

    // Up: the set that ARC made grows.
    scale(&world, "web", 12).await?;
    settled(&world, 12).await?;
    ensure!(uids::<RunnerReplicaSet>(&world).await? == before[0], "another set");
    ensure!(uids::<Pod>(&world).await?.is_superset(&before[2]), "a pod of ARC's is gone");

    // Down, to those that are busy: they stay, nobody asks them, and what ARC left on the pods of the others holds nothing up.
    scale(&world, "web", 4).await?;
    settled(&world, 4).await?;
    let left: BTreeSet<String> =
        api::<Pod>(&world).list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
    ensure!(left == busy, "{left:?} are left, {busy:?} were busy");
    ensure!(world.github.busy_deletes_refused() == 0, "busy runners were asked to go");
    ensure!(world.github.jobs().in_progress == 4, "{:?}", world.github.jobs());
    succeeded(&world, 4).await?;
    // What ran to its end is replaced by runners of this operator's making.
    until::<Pod>(&world, "new pods for those that finished", |all| {
        all.len() == 4 && all.iter().all(|pod| pod.finalizers().is_empty() && !busy.contains(&pod.name_any()))
    })
    .await?;
    settled(&world, 4).await?;

    delete_all(&world).await?;
    ensure!(world.github.leaked().is_empty() && world.github.jobs().lost == 0);
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arc_had_begun_is_brought_to_its_end() -> Result<()> {
    let (mut world, options) = arc::without_operator(&[]).await?;
    let deployment = arc::deployment(&world, "web", 3).await?;
    let set = arc::set(&world, &deployment, "x7k2p", 3).await?;
    // One that has done its job, one that ARC unregistered whose pod waits for ARC, one that ARC marked and did not come to, one without a pod.
    let done = arc::runner(&world, &set, "done0", true).await?;
    let gone = arc::runner(&world, &set, "gone0", false).await?;
    let (done_pod, gone_pod) = (arc::pod(&world, &done).await?, arc::pod(&world, &gone).await?);
    runners(&world, "both", |counts| counts.online == 2).await?;
    arc::note_ids(&world).await?;
    queue(&world, "web", 2, Duration::ZERO)?;
    succeeded(&world, 2).await?;
    until::<Pod>(&world, "both to end", |all| {
        all.iter().all(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded"))
    })
    .await?;
    let marked = arc::runner(&world, &set, "marked", true).await?;
    let marked_pod = arc::pod(&world, &marked).await?;
    runners(&world, "the marked one", |counts| counts.online == 1).await?;
    let mark = json!({"metadata": {"annotations": {"actions-runner/unregistration-request-timestamp": "2026-01-31T08:10:00Z"}}});
    let mark = kube::api::Patch::Merge(mark);
    api::<Runner>(&world).patch(&marked.name_any(), &kube::api::PatchParams::default(), &mark).await?;
    arc::runner(&world, &set, "nopod", true).await?;
    delete::<Runner>(&world, &gone.name_any()).await?;
    until::<Pod>(&world, "the pod of the deleted Runner to be held", |all| {
        all.iter().any(|pod| pod.uid() == gone_pod.uid() && pod.metadata.deletion_timestamp.is_some())
    })
    .await?;

    arc::start(&mut world, &options).await?;
    until::<Pod>(&world, "ARC's leftovers to go", |all| {
        all.iter().all(|pod| pod.uid() != gone_pod.uid() && pod.uid() != done_pod.uid())
    })
    .await?;
    settled(&world, 3).await?;
    let pods = uids::<Pod>(&world).await?;
    ensure!(pods.contains(&marked_pod.uid().context("no UID")?), "the marked one is needed, and stays");

    delete_all(&world).await?;
    ensure!(world.github.leaked().is_empty() && world.github.jobs().lost == 0);
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_deleted_by_hand_goes_though_arc_held_it() -> Result<()> {
    let (mut world, options) = arc::without_operator(&[]).await?;
    arc::fleet(&world, "web", 2).await?;
    arc::start(&mut world, &options).await?;
    arc::taken_over(&world, "web", 2).await?;
    let first = api::<Pod>(&world).list(&ListParams::default()).await?.items.into_iter().next().context("no pod")?;
    delete::<Pod>(&world, &first.name_any()).await?;
    until::<Pod>(&world, "another pod in its place", |all| all.len() == 2 && all.iter().all(|pod| pod.uid() != first.uid()))
        .await?;
    settled(&world, 2).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn reservations_of_arc_count_until_they_end_and_are_left_as_they_are() -> Result<()> {
    let (mut world, options) = arc::without_operator(&[]).await?;
    arc::fleet(&world, "web", 3).await?;
    let now = Timestamp::now();
    let ends = (now + SignedDuration::from_secs(120)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let made = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let reservation = json!({"effectiveTime": made, "expirationTime": ends, "replicas": 1});
    let reservations = json!([reservation, reservation, reservation]);
    let object = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"kind": "RunnerDeployment", "name": "web"}, "minReplicas": 0, "maxReplicas": 5,
            "scaleDownDelaySecondsAfterScaleOut": 1, "capacityReservations": reservations,
            "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}],
        },
        "status": {"desiredReplicas": 3, "lastSuccessfulScaleOutTime": "2026-01-31T08:00:00Z"},
    });
    arc::create(&world, "HorizontalRunnerAutoscaler", object).await?;
    let before = everything(&world).await?;
    arc::start(&mut world, &options).await?;
    arc::taken_over(&world, "web", 3).await?;
    until::<HorizontalRunnerAutoscaler>(&world, "the autoscaler to be taken over", |all| {
        all.iter().any(|one| {
            one.status.as_ref().is_some_and(|status| !status.conditions.is_empty() && status.desired_replicas == Some(3))
        })
    })
    .await?;
    if Timestamp::now() < ends.parse()? {
        ensure!(everything(&world).await? == before, "objects were exchanged");
    }
    nothing_but_the_deployment(&world).await?;
    ensure!(Timestamp::now() >= ends.parse()?, "given up before the reservations ended");
    let kept = api::<HorizontalRunnerAutoscaler>(&world).get("web").await?.spec.capacity_reservations.unwrap_or_default();
    ensure!(kept.len() == 3, "the user's list was changed");
    end(world).await
}

/// ARC took away the first reservation when the end of a job was told, whichever it belonged to.
#[tokio::test(flavor = "multi_thread")]
async fn reservations_of_arc_end_with_the_jobs_that_they_were_made_for() -> Result<()> {
    let (mut world, mut options) = arc::without_operator(&["--webhook-addr=127.0.0.1:0"]).await?;
    options.env.push(("GITHUB_WEBHOOK_SECRET_TOKEN".to_owned(), SECRET.to_owned()));
    arc::fleet(&world, "web", 3).await?;
    queue(&world, "web", 3, Duration::from_secs(45))?;
    running(&world, 3).await?;
    let now = Timestamp::now();
    let [made, ends] = [now, now + SignedDuration::from_mins(30)].map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    // Rounded down to a second that the jobs may have been queued in.
    let reservation = json!({"effectiveTime": made, "expirationTime": ends, "replicas": 1});
    let object = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"kind": "RunnerDeployment", "name": "web"}, "minReplicas": 0, "maxReplicas": 5,
            "scaleDownDelaySecondsAfterScaleOut": 1, "capacityReservations": [reservation, reservation, reservation],
            "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}],
        },
        "status": {"desiredReplicas": 3, "lastSuccessfulScaleOutTime": "2026-01-31T08:00:00Z"},
    });
    arc::create(&world, "HorizontalRunnerAutoscaler", object).await?;
    arc::start(&mut world, &options).await?;
    hook(&world, arc::scope())?;
    arc::taken_over(&world, "web", 3).await?;
    let desired = async |number: i32| {
        until::<HorizontalRunnerAutoscaler>(&world, &format!("{number} wanted"), |all| {
            all.iter().any(|one| one.status.as_ref().is_some_and(|status| status.desired_replicas == Some(number)))
        })
        .await
    };
    desired(3).await?;
    succeeded(&world, 3).await?;
    let found = desired(0).await?;
    settled(&world, 0).await?;
    ensure!(Timestamp::now() < ends.parse()?, "the reservations expired");
    let kept = found.iter().filter_map(|one| one.spec.capacity_reservations.as_ref()).map(Vec::len).sum::<usize>();
    ensure!(kept == 3, "the user's list was changed");
    end(world).await
}

/// Waits until no runner is left, while the deployment and its set stay.
async fn nothing_but_the_deployment(world: &pacer_harness::world::World) -> Result<()> {
    until::<Runner>(world, "no Runners", |all| all.is_empty()).await?;
    until::<Pod>(world, "no pods", |all| all.is_empty()).await?;
    until::<Secret>(world, "no tokens", |all| {
        !all.iter().any(|one| one.labels().contains_key("actions.summerwind.dev/registration-token"))
    })
    .await?;
    runners(world, "no registrations", |counts| counts.registered == 0).await
}
