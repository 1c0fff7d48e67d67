//! Stand-alone Runners at work, and a flag that is dropped in mid-job.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use pacer_api::Runner;
use pacer_harness::github::{Behaviour, Settings};
use pacer_harness::world::World;
use pacer_suites::{
    NAMESPACE, PATIENCE, api, apply, delete, deployment, end, no_busy_kill, queue, runners, running, scale, settled, succeeded,
    until,
};
use serde_json::json;

use super::{Agents, Events, JOB, late_world};

/// A stand-alone Runner `solo` with a job that no listing shows as long as it lasts.
async fn at_work(agents: Agents) -> Result<World> {
    let world = late_world(Events::None, agents).await?;
    let solo = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "Runner", "metadata": {"name": "solo", "namespace": NAMESPACE},
        "spec": {"repository": "acme/app", "labels": ["solo"]},
    });
    apply(&world, &solo).await?;
    runners(&world, "it online", |counts| counts.online == 1).await?;
    until::<Runner>(&world, "its registration known", |all| {
        all.iter().any(|one| one.status.as_ref().is_some_and(|status| status.runner_id.is_some()))
    })
    .await?;
    queue(&world, "solo", 1, JOB)?;
    running(&world, 1).await?;
    Ok(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn stand_alone_runner_finishes_its_job_when_it_is_deleted() -> Result<()> {
    for agents in [Agents::Finish, Agents::Cancel] {
        let world = at_work(agents).await?;
        delete::<Runner>(&world, "solo").await?;
        until::<Runner>(&world, "no Runner", |all| all.is_empty()).await?;
        ensure!(world.github.jobs().succeeded == 1, "{agents:?}: {:?}", world.github.jobs());
        end(world).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stand_alone_runner_finishes_its_job_when_its_template_changes() -> Result<()> {
    for agents in [Agents::Finish, Agents::Cancel] {
        let world = at_work(agents).await?;
        let changed = Patch::Merge(json!({"spec": {"env": [{"name": "NEW", "value": "1"}]}}));
        api::<Runner>(&world).patch("solo", &PatchParams::default(), &changed).await?;
        succeeded(&world, 1).await?;
        until::<k8s_openapi::api::core::v1::Pod>(&world, "a pod of the new template", |all| {
            let is_new = |pod: &&k8s_openapi::api::core::v1::Pod| {
                let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
                containers.flat_map(|container| container.env.iter().flatten()).any(|variable| variable.name == "NEW")
            };
            all.len() == 1 && all.first().is_some_and(|pod| is_new(pod) && pod.name_any() == "solo")
        })
        .await?;
        runners(&world, "it online again", |counts| counts.online == 1 && counts.registered == 1).await?;
        end(world).await?;
    }
    Ok(())
}

/// True a moment after each job began, and false a minute later, for a minute. Meanwhile the fleet shrinks; DELETE goes by the flag.
#[tokio::test(flavor = "multi_thread")]
async fn no_job_is_killed_when_the_flag_drops_in_mid_job() -> Result<()> {
    let world = pacer_suites::world(|options| {
        let behaviour = Behaviour {
            busy_late: Duration::ZERO..=Duration::ZERO,
            busy_drops: 1.0,
            cancels_when_removed: 1.0,
            ..Behaviour::real(5228)
        };
        options.github = Settings { behaviour, rate_limit: options.github.rate_limit, ..Settings::real(5228) };
    })
    .await?;
    apply(&world, &deployment("web", 6)).await?;
    settled(&world, 6).await?;
    queue(&world, "web", 3, Duration::from_secs(150))?;
    runners(&world, "the flags up", |counts| counts.shown_busy == 3).await?;
    runners(&world, "the flags down", |counts| counts.busy == 3 && counts.shown_busy == 0).await?;
    scale(&world, "web", 2).await?;
    let fewer = world.github.wait_for(PATIENCE, |view| view.runners().registered <= 3).await;
    world.check(fewer).await?;
    no_busy_kill(&world).await?;
    succeeded(&world, 3).await?;
    settled(&world, 2).await?;
    end(world).await
}
