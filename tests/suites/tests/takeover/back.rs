//! Going back: what this operator leaves behind is what ARC v0.27.6 works with (arc-behaviour 2), and the commands in
//! docs/taking-over-from-arc.md remove the rest.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret};
use kube::ResourceExt;
use kube::api::ListParams;
use pacer_api::{Runner, RunnerReplicaSet};
use pacer_harness::world::World;
use pacer_suites::{api, apply, arc, deployment, end, end_as_it_is, settled, until};

/// The document that users follow.
const DOCUMENT: &str = include_str!("../../../../docs/taking-over-from-arc.md");

/// The commands of the section "Go back to ARC" that begin so.
fn commands(beginning: &str) -> Vec<&'static str> {
    let (_, section) = DOCUMENT.split_once("\n## Go back to ARC").unwrap_or_default();
    section.lines().map(str::trim).filter(|line| line.starts_with(beginning)).collect()
}

fn variable(container: &Container, name: &str) -> Option<String> {
    container.env.iter().flatten().find(|variable| variable.name == name).and_then(|variable| variable.value.clone())
}

/// What ARC's controllers need of a set and its Runners: they find Runners by the set's selector and tell templates apart by a label.
async fn arc_finds_its_runners(world: &World) -> Result<()> {
    let sets = api::<RunnerReplicaSet>(world).list(&ListParams::default()).await?;
    let runners = api::<Runner>(world).list(&ListParams::default()).await?;
    for set in &sets {
        let selector =
            set.spec.selector.clone().and_then(|selector| selector.match_labels).context("a set without a selector")?;
        ensure!(!selector.is_empty(), "a selector that selects everything");
        let hash = set.labels().get("runner-template-hash").context("a set without a hash")?;
        ensure!(selector.get("runner-template-hash") == Some(hash));
        let selects = |labels: &BTreeMap<String, String>| selector.iter().all(|(key, value)| labels.get(key) == Some(value));
        let template = set.spec.template.metadata.clone().and_then(|metadata| metadata.labels).unwrap_or_default();
        ensure!(selects(&template), "new Runners would not be found: ARC would make them without end");
        let owned: Vec<&Runner> = runners
            .iter()
            .filter(|runner| runner.owner_references().iter().any(|owner| Some(&owner.uid) == set.uid().as_ref()))
            .collect();
        ensure!(owned.iter().all(|runner| selects(runner.labels())), "a Runner that ARC does not find");
        let status = set.status.clone().context("a set without a status")?;
        ensure!(status.replicas == Some(i32::try_from(owned.len())?));
    }
    Ok(())
}

/// What ARC's Runner and pod controllers need.
async fn arc_knows_its_pods(world: &World) -> Result<()> {
    let pods = api::<Pod>(world).list(&ListParams::default()).await?;
    for runner in &api::<Runner>(world).list(&ListParams::default()).await? {
        ensure!(runner.finalizers() == ["runner.actions.summerwind.dev"], "{:?}", runner.finalizers());
        let phase = runner.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        ensure!(!phase.is_empty(), "a Runner that ARC takes for one it has not looked at yet");
        let pod = pods.iter().find(|pod| pod.name_any() == runner.name_any()).context("a Runner without a pod of its name")?;
        ensure!(
            pod.owner_references()
                .iter()
                .any(|owner| Some(&owner.uid) == runner.uid().as_ref() && owner.controller == Some(true))
        );
        ensure!(pod.labels().contains_key("actions-runner"), "a pod that ARC's pod controller passes over");
        let containers = pod.spec.as_ref().map(|spec| spec.containers.clone()).unwrap_or_default();
        let container = containers.iter().find(|container| container.name == "runner").context("no container named runner")?;
        ensure!(variable(container, "RUNNER_REPO").as_deref() == Some("acme/app"), "ARC reads the scope here");
        let names: Vec<&str> = container.env.iter().flatten().map(|variable| variable.name.as_str()).collect();
        ensure!(["RUNNER_ORG", "RUNNER_ENTERPRISE"].iter().all(|name| names.contains(name)), "{names:?}");
        ensure!(variable(container, "RUNNER_EPHEMERAL").as_deref() == Some("true"), "ARC would ask a busy one every minute");
        ensure!(variable(container, "RUNNER_NAME").as_deref() == Some(runner.name_any().as_str()));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn arc_can_go_on_with_what_is_left() -> Result<()> {
    let (mut world, options) = arc::without_operator(&[]).await?;
    arc::fleet(&world, "web", 2).await?;
    arc::start(&mut world, &options).await?;
    arc::taken_over(&world, "web", 2).await?;
    apply(&world, &deployment("own", 2)).await?;
    settled(&world, 4).await?;
    arc::taken_over(&world, "own", 2).await?;
    until::<Runner>(&world, "a phase of each Runner", |all| {
        all.iter().all(|one| one.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running")))
    })
    .await?;
    until::<RunnerReplicaSet>(&world, "the count in the status of each set", |all| {
        all.iter().all(|one| one.status.as_ref().is_some_and(|status| status.replicas == Some(2)))
    })
    .await?;
    let operator = world.operator.take().context("no operator")?;
    operator.terminate().await;

    arc_finds_its_runners(&world).await?;
    arc_knows_its_pods(&world).await?;
    let pods = api::<Pod>(&world).list(&ListParams::default()).await?;
    let held = pods.iter().filter(|pod| !pod.finalizers().is_empty()).count();
    ensure!(held == 2, "ARC's own pods keep what ARC put on them, {held} of 2 do");

    // What ARC does not know, by the commands of the document.
    for command in commands("kubectl delete") {
        let arguments: Vec<&str> = command.split_whitespace().skip(1).collect();
        let output = world.plane.kubectl(&arguments).await?;
        ensure!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let ours = |labels: &BTreeMap<String, String>| labels.keys().any(|key| key.starts_with("actions.summerwind.dev/"));
    let secrets = kube::Api::<Secret>::all(world.client.clone()).list(&ListParams::default()).await?;
    let maps = kube::Api::<ConfigMap>::all(world.client.clone()).list(&ListParams::default()).await?;
    ensure!(secrets.iter().all(|secret| !ours(secret.labels())), "tokens are left");
    ensure!(maps.iter().all(|map| !ours(map.labels())), "records of policies are left");
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn there_and_back_and_there_again_restarts_nothing() -> Result<()> {
    let (mut world, options) = arc::without_operator(&[]).await?;
    arc::fleet(&world, "web", 2).await?;
    let before = arc::everything(&world).await?;
    for _ in 0..2 {
        arc::start(&mut world, &options).await?;
        arc::taken_over(&world, "web", 2).await?;
        let operator = world.operator.take().context("no operator")?;
        operator.terminate().await;
        ensure!(arc::everything(&world).await? == before, "objects were exchanged");
    }
    arc::start(&mut world, &options).await?;
    end(world).await
}
