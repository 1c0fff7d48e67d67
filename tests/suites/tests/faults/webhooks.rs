//! Webhooks go wrong in every way at once, while their receivers die.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_harness::github::{Conclusion, Delivering, Hook, JobId, JobSpec, Scope, View};
use pacer_harness::ingress::Ingress;
use pacer_harness::operator::Operator;
use pacer_harness::world::World;
use pacer_suites::fleet::{Fleet, Kind};
use pacer_suites::kill::Dice;
use pacer_suites::manifests::{shipped, shipped_env};
use pacer_suites::webhook::{SECRET, receiver};
use pacer_suites::{PATIENCE, apply, brisk_world, delete, delete_all, end, for_both_kinds, no_open_jobs, queue, settled, until};
use serde_json::json;

for_both_kinds!(nobody_waits_and_nothing_stays_reserved_however_receivers_die);

/// `pacer webhook` with its shipped role and variables, ready.
async fn replica(world: &World) -> Result<Operator> {
    let mut options = receiver();
    options.env.extend(shipped_env("webhook/deployment.yaml")?);
    let replica = Operator::start(&world.plane, &world.github, &options).await?;
    replica.until_ready("receiving", PATIENCE).await?;
    Ok(replica)
}

fn address(replica: &Operator) -> Result<String> {
    replica.webhook_address().context("it announced no address for webhooks")
}

/// A fleet and an autoscaler that has webhooks and polls.
async fn pool(world: &World, fleet: &Fleet) -> Result<()> {
    fleet.apply(world).await?;
    let name = fleet.name();
    let autoscaler = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1",
        "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "scaleTargetRef": fleet.reference(), "minReplicas": 0, "maxReplicas": 40, "scaleDownDelaySecondsAfterScaleOut": 0,
            "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}],
            "metrics": [{"type": "TotalNumberOfQueuedAndInProgressWorkflowRuns"}],
        },
    });
    apply(world, &autoscaler).await?;
    until::<HorizontalRunnerAutoscaler>(world, "the first number", |all| {
        all.iter().any(|one| {
            one.metadata.name.as_deref() == Some(name)
                && one.status.as_ref().is_some_and(|status| status.desired_replicas.is_some())
        })
    })
    .await?;
    Ok(())
}

/// Ten jobs more: some cancelled, some run once more in the same run, some for an autoscaler that is going to be deleted.
fn jobs(world: &World, dice: &mut Dice, wanted: &mut usize, doomed: &mut Vec<JobId>) -> Result<()> {
    let lasting = |dice: &mut Dice| Duration::from_millis(500 + dice.below(3_000));
    for _ in 0..8 {
        let id = world.github.queue_job(JobSpec::new("acme/app", ["web"]).lasting(lasting(dice)))?;
        let run = world.github.job(id).context("no such job")?.run;
        if dice.below(5) == 0 && world.github.cancel_job(id) {
            world.github.queue_job(JobSpec::new("acme/app", ["web"]).lasting(lasting(dice)).in_run(run))?;
        }
        *wanted += 1;
    }
    let id = world.github.queue_job(JobSpec::new("acme/app", ["web"]))?;
    *wanted += usize::from(!world.github.skip_job(id));
    doomed.extend(queue(world, "old", 1, Duration::from_secs(1))?);
    Ok(())
}

/// Two replicas are killed at random and come back, while 20 % of the events are lost, others come twice or late, jobs are cancelled, skipped
/// and run again, and one autoscaler is deleted with its jobs waiting.
async fn nobody_waits_and_nothing_stays_reserved_however_receivers_die(kind: Kind) -> Result<()> {
    let world = brisk_world(&[], |options| {
        options.manifests.push(shipped("webhook/rbac.yaml"));
    })
    .await?;
    let ingress = Ingress::start().await?;
    let owner = Scope::repository("acme", "app").into();
    world.github.add_hook(Hook { owner, url: ingress.url(), secret: SECRET.to_owned() });
    world.github.deliver(Delivering {
        drop_every: Some(5),
        duplicate_every: Some(3),
        reorder_within: 8,
        delay: Duration::from_millis(30),
        parallel: 4,
    });
    pool(&world, &kind.fleet("web", 0)).await?;
    let (mut one, mut other) = (replica(&world).await?, replica(&world).await?);
    ingress.serve([address(&one)?, address(&other)?]);

    let (mut dice, mut wanted, mut doomed) = (Dice::new(7), 0, Vec::new());
    // The other one's runners do not fit its jobs.
    let old = kind.fleet("old", 0);
    pool(&world, &old).await?;
    for round in 0..6 {
        jobs(&world, &mut dice, &mut wanted, &mut doomed)?;
        let before = world.github.view(|view| view.deliveries().accepted);
        let some = dice.below(12);
        let outcome = world.github.wait_for(PATIENCE, |view| view.deliveries().accepted >= before + some).await;
        world.check(outcome).await?;
        let (victim, survivor) = if dice.below(2) == 0 { (&mut one, &other) } else { (&mut other, &one) };
        victim.kill9().await;
        ingress.serve([address(survivor)?]);
        if round == 3 {
            delete::<HorizontalRunnerAutoscaler>(&world, "old").await?;
            old.delete(&world).await?;
        }
        victim.restart().await?;
        victim.until_ready("receiving", PATIENCE).await?;
        ingress.serve([address(&one)?, address(&other)?]);
    }
    let done = |view: &View<'_>| {
        let ours = view.all_jobs().filter(|job| job.spec.labels == ["web"]);
        ours.filter(|job| job.conclusion == Some(Conclusion::Success)).count()
    };
    let outcome = world.github.wait_for(PATIENCE, |view| done(view) == wanted).await;
    world.check(outcome).await.with_context(|| format!("waiting for {wanted} jobs to succeed"))?;
    for job in doomed {
        world.github.cancel_job(job);
    }
    let queued = world.github.view(|view| view.jobs().queued);
    ensure!(queued == 0, "{queued} jobs wait at GitHub");
    until::<HorizontalRunnerAutoscaler>(&world, "nothing reserved", |all| {
        all.iter().all(|one| one.status.as_ref().is_some_and(|status| status.desired_replicas == Some(0)))
    })
    .await?;
    no_open_jobs(&world).await?;
    settled(&world, 0).await?;
    let lost = world.github.view(|view| view.jobs().lost);
    ensure!(lost == 0, "{lost} jobs lost their runner");
    delete_all(&world).await?;
    one.terminate().await;
    other.terminate().await;
    ingress.stop().await;
    end(world).await
}
