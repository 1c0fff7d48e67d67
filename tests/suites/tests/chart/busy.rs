//! Upgrades and removals while runners are at work.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use kube::{Api, ResourceExt};
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment, RunnerReplicaSet};
use pacer_harness::controlplane::Apply;
use pacer_harness::github::RouteKind;
use pacer_harness::objects;
use pacer_harness::operator::binary;
use pacer_harness::world::World;
use pacer_suites::arc::{self, LONG};
use pacer_suites::{PATIENCE, api, apply, deployment, end, end_as_it_is, kubectl, queue, runners, running, settled, succeeded};
use serde_json::json;

use super::helm::{self, NAMESPACE};
use super::installation::{KINDS, bare, define_foreign, everything, start, uid};

/// What the release is called, and what its Deployment, and the Service that GitHub posts to.
const RELEASE: &str = "arc";
const OPERATOR: &str = "arc-actions-runner-controller-pacer";
const WEBHOOKS: &str = "arc-actions-runner-controller-github-webhook-server";

/// The definitions, as they have to be there before an upgrade of ARC.
async fn define(world: &World) -> Result<()> {
    world.plane.apply(&helm::repository("deploy/chart/crds"), Apply::ServerSide).await?;
    kubectl(world, &["wait", "--for=condition=Established", "--timeout=60s", "customresourcedefinitions", "--all"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_of_arc_with_busy_runners_restarts_none_and_loses_no_job_back_and_forth() -> Result<()> {
    let mut world = bare().await?;
    define_foreign(&world).await?;
    define(&world).await?;
    // First, because nobody answers the admission webhooks of the stand-in.
    arc::fleet(&world, "web", 6).await?;
    let of_arc = helm::repository("tests/helm/arc").to_string_lossy().into_owned();
    let token =
        format!("authSecret.github_token={},githubWebhookServer.secret.github_webhook_secret_token=a-secret", world.github.pat());
    let switches = "authSecret.create=true,githubWebhookServer.enabled=true,githubWebhookServer.secret.create=true";
    let install = ["install", RELEASE, &of_arc, "--namespace", NAMESPACE, "--set", switches, "--set-string", &token];
    helm::succeed(Some(&world.plane), &install)?;
    let service = uid(&world, "service", WEBHOOKS).await?;

    queue(&world, "web", 3, LONG)?;
    running(&world, 3).await?;
    let before = arc::everything(&world).await?;
    world.github.reset_calls();

    // There, back, and there again, all within the jobs.
    for way in ["there", "again"] {
        let chart = helm::chart();
        let upgrade = ["upgrade", RELEASE, &chart, "--namespace", NAMESPACE, "--reset-then-reuse-values"];
        helm::succeed(Some(&world.plane), &upgrade)?;
        ensure!(uid(&world, "service", WEBHOOKS).await? == service, "{way}: GitHub's webhook lost its address");
        world.operator = Some(start(&world, NAMESPACE, OPERATOR, "leading").await?);
        arc::taken_over(&world, "web", 6).await?;
        ensure!(arc::everything(&world).await? == before, "{way}: sets, Runners or pods were exchanged");
        ensure!(world.github.jobs().in_progress == 3, "{way}: {:?}", world.github.jobs());
        if way == "there" {
            helm::succeed(Some(&world.plane), &["rollback", RELEASE, "1", "--namespace", NAMESPACE])?;
            world.operator.take().context("no operator")?.terminate().await;
            ensure!(uid(&world, "service", WEBHOOKS).await? == service, "back: GitHub's webhook lost its address");
            ensure!(arc::everything(&world).await? == before, "back: sets, Runners or pods were exchanged");
        }
    }
    let (deleted, registered) = (world.github.count(RouteKind::DeleteRunner).requests, world.github.runners().ever_registered);
    ensure!((deleted, registered) == (0, 6), "{deleted} deletions and {registered} registrations");
    succeeded(&world, 3).await?;
    settled(&world, 6).await?;
    ensure!(world.github.jobs().lost == 0 && world.github.busy_deletes_refused() == 0, "{:?}", world.github.jobs());
    end(world).await
}

/// How long the job takes that an uninstallation waits for.
const JOB: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn uninstallation_drains_first_when_asked_to_and_leaves_only_definitions() -> Result<()> {
    let mut world = bare().await?;
    let credentials = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "controller-manager", "namespace": NAMESPACE},
        "stringData": {"github_token": world.github.pat()},
    });
    world.plane.apply_text(&credentials.to_string(), Apply::ServerSide).await?;
    let before = everything(&world, KINDS).await?;
    let chart = helm::chart();
    let install = ["install", RELEASE, &chart, "--namespace", NAMESPACE, "--set", "pacer.drainOnUninstall=true"];
    helm::succeed(Some(&world.plane), &install)?;
    world.operator = Some(start(&world, NAMESPACE, OPERATOR, "leading").await?);
    apply(&world, &deployment("web", 2)).await?;
    let autoscaler = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": "web", "namespace": pacer_suites::NAMESPACE},
        "spec": {"scaleTargetRef": {"name": "web"}, "minReplicas": 2, "maxReplicas": 4},
    });
    apply(&world, &autoscaler).await?;
    runners(&world, "two runners", |count| count.online == 2).await?;
    queue(&world, "web", 1, JOB)?;
    running(&world, 1).await?;

    let mut uninstall = tokio::process::Command::from(helm::command(
        Some(&world.plane),
        &["uninstall", RELEASE, "--namespace", NAMESPACE, "--timeout", "10m"],
    )?);
    let uninstall =
        uninstall.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).kill_on_drop(true).spawn()?;
    carry_out_the_drain(&world).await?;
    // Whatever it had to wait for has ended well, and the operator was there until then.
    ensure!(world.github.jobs().succeeded == 1 && world.github.busy_deletes_refused() == 0, "{:?}", world.github.jobs());
    ensure!(world.github.runners().registered == 0, "runners are still registered: {:?}", world.github.runners());
    let output = uninstall.wait_with_output().await?;
    ensure!(output.status.success(), "helm uninstall: {}", String::from_utf8_lossy(&output.stderr));
    world.operator.take().context("no operator")?.terminate().await;

    let kinds = "horizontalrunnerautoscalers,runnerdeployments,runnersets,runnerreplicasets,runners,pods,jobs";
    let left = everything(&world, kinds).await?;
    ensure!(left.is_empty(), "{left:?}");
    let mut left = everything(&world, KINDS).await?;
    // The garbage collector takes what belonged to a fleet some time after it.
    left.retain(|object| !object.contains(&format!(" {} ", pacer_suites::NAMESPACE)) || before.contains(object));
    assert_eq!(left, before);
    let definitions = kubectl(&world, &["get", "customresourcedefinitions", "--output=name"]).await?;
    ensure!(definitions.matches("actions.summerwind.dev").count() == 6, "{definitions}");
    end_as_it_is(world).await
}

/// Does what a node and the controller of Jobs would: runs the pod of the hook's Job, and says that it has ended well.
async fn carry_out_the_drain(world: &World) -> Result<()> {
    let jobs: Api<Job> = Api::namespaced(world.client.clone(), NAMESPACE);
    let found = objects::until(jobs, "", PATIENCE, |all| !all.is_empty()).await;
    let job = world.check(found).await?.into_iter().next().context("no Job")?;
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.clone()).context("a Job without a pod")?;
    let account = pod.service_account_name.context("no account")?;
    let arguments = pod.containers.into_iter().next().and_then(|container| container.args).context("no arguments")?;
    ensure!(api::<RunnerDeployment>(world).get_opt("web").await?.is_some(), "something went before the drain");
    let output = tokio::process::Command::new(binary().await?)
        .args(&arguments)
        .arg("--kubeconfig")
        .arg(world.plane.kubeconfig_for_service_account(NAMESPACE, &account).await?)
        .kill_on_drop(true)
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    ensure!(said.contains("runners with a job finish it") && said.ends_with("no runner objects are left\n"), "{said}");
    for (kind, count) in [
        ("autoscalers", api::<HorizontalRunnerAutoscaler>(world).list(&kube::api::ListParams::default()).await?.items.len()),
        ("sets", api::<RunnerReplicaSet>(world).list(&kube::api::ListParams::default()).await?.items.len()),
        ("Runners", api::<Runner>(world).list(&kube::api::ListParams::default()).await?.items.len()),
    ] {
        ensure!(count == 0, "{count} {kind} are left");
    }
    let now = "2026-01-01T00:00:00Z";
    let condition = |name: &str| json!({"type": name, "status": "True", "lastTransitionTime": now, "lastProbeTime": now});
    let status = json!({"status": {
        "startTime": now, "completionTime": now, "succeeded": 1, "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    }});
    let name = job.name_any();
    kubectl(
        world,
        &[
            "patch",
            "job",
            &name,
            "--namespace",
            NAMESPACE,
            "--subresource=status",
            "--type=merge",
            "--patch",
            &status.to_string(),
        ],
    )
    .await?;
    Ok(())
}
