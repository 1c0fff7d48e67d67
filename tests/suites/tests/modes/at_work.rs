//! What `kubectl get runners` says of jobs, where webhooks tell of them and where nothing but the pods and listings does.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use pacer_api::{Runner, RunnerStatus};
use pacer_harness::github::Scope;
use pacer_harness::operator::binary;
use pacer_suites::webhook::{hook, receive};
use pacer_suites::{NAMESPACE, apply, brisk_world, deployment, end, queue, settled, succeeded, until, with_spec};
use serde_json::json;

fn is_of(runner: &Runner, pool: &str) -> bool {
    runner.name_any().starts_with(&format!("{pool}-"))
}

fn says(runner: &Runner, busy: bool) -> bool {
    runner.status.as_ref().is_some_and(|status| status.busy == Some(busy))
}

fn job(status: &RunnerStatus) -> Option<&str> {
    status.job.as_deref()
}

#[tokio::test(flavor = "multi_thread")]
async fn runners_say_whether_they_work_and_on_which_job_where_that_is_told() -> Result<()> {
    let world = brisk_world(&[], receive).await?;
    hook(&world, Scope::repository("acme", "app"))?;
    // Events reach pools with an autoscaler.
    for pool in ["told", "untold"] {
        apply(&world, &with_spec(deployment(pool, 2), "ephemeral", json!(false))).await?;
    }
    let autoscaler = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": "told", "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"name": "told"}, "minReplicas": 2, "maxReplicas": 2,
            "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}],
        },
    });
    apply(&world, &autoscaler).await?;
    settled(&world, 4).await?;
    until::<Runner>(&world, "4 that say that they are idle", |all| all.len() == 4 && all.iter().all(|one| says(one, false)))
        .await?;

    let lasting = Duration::from_secs(60);
    let jobs = [queue(&world, "told", 1, lasting)?, queue(&world, "untold", 1, lasting)?].concat();
    let id = jobs.first().context("no job")?.0.to_string();
    let all = until::<Runner>(&world, "one at work in each pool", |all| {
        ["told", "untold"].iter().all(|pool| all.iter().filter(|one| is_of(one, pool) && says(one, true)).count() == 1)
    })
    .await?;
    for one in &all {
        let status = one.status.as_ref().context("no status")?;
        let expected = (says(one, true) && is_of(one, "told")).then_some(id.as_str());
        ensure!(job(status) == expected, "{}: {status:?}", one.name_any());
        ensure!(status.node_name.is_some() && status.state_since >= status.registered_at, "{}: {status:?}", one.name_any());
    }
    let output = Command::new(world.plane.kubectl_path())
        .args(["get", "runners", "-n", NAMESPACE])
        .env("KUBECONFIG", world.plane.kubeconfig_path())
        .output()?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let header = told.lines().next().unwrap_or_default();
    ensure!(["BUSY", "JOB", "NODE", "STATE-AGE"].iter().all(|column| header.contains(column)), "{told}");
    let row = told.lines().find(|line| line.contains(&id)).unwrap_or_default();
    ensure!(row.contains("true") && row.starts_with("told-"), "{told}");

    // Under the name of a plugin, the program is one of kubectl's commands.
    let plugins = tempfile::tempdir()?;
    std::os::unix::fs::symlink(binary().await?.canonicalize()?, plugins.path().join("kubectl-pacer"))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([plugins.path().to_owned()].into_iter().chain(std::env::split_paths(&path)))?;
    let output = Command::new(world.plane.kubectl_path())
        .args(["pacer", "status", "-n", NAMESPACE])
        .env("KUBECONFIG", world.plane.kubeconfig_path())
        .env("PATH", path)
        .output()?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success() && told.contains("told"), "{told}{}", String::from_utf8_lossy(&output.stderr));

    succeeded(&world, 2).await?;
    until::<Runner>(&world, "4 that are idle again", |all| {
        let is_idle = |one: &&Runner| says(one, false) && one.status.as_ref().is_some_and(|status| job(status).is_none());
        all.len() == 4 && all.iter().all(is_idle)
    })
    .await?;
    end(world).await
}
