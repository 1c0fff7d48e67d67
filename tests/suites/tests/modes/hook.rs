//! `--runner-status-update-hook`: runners say what they do, and only about themselves.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use pacer_api::{Runner, RunnerStatus};
use pacer_harness::github::{Effect, Fault, Lies, RouteKind, Routes};
use pacer_suites::{
    NAMESPACE, apply, brisk_world, delete, delete_all, deployment, end, queue, runners, running, scale, settled, succeeded,
    until, with_spec,
};
use serde_json::json;

use super::{as_account, is_forbidden};

fn phase(runner: &Runner) -> Option<&str> {
    runner.status.as_ref()?.phase.as_deref()
}

fn known(status: &RunnerStatus) -> bool {
    status.runner_id.is_some() && !status.conditions.is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_says_it_works_is_not_offered_however_late_github_is() -> Result<()> {
    let world = brisk_world(&["--runner-status-update-hook"], |_| {}).await?;
    world.github.lie(Lies { busy_late_by: Duration::from_secs(600), ..Lies::default() });
    // Persistent, so that the end of a job is reported, too.
    apply(&world, &with_spec(deployment("web", 6), "ephemeral", json!(false))).await?;
    settled(&world, 6).await?;
    until::<Runner>(&world, "6 that wait", |all| {
        all.len() == 6 && all.iter().all(|one| phase(one) == Some("Idle") && one.status.as_ref().is_some_and(known))
    })
    .await?;
    queue(&world, "web", 3, Duration::from_secs(15))?;
    running(&world, 3).await?;
    let at_work = |one: &Runner| {
        let workflow = one.status.as_ref().and_then(|status| status.workflow.as_ref());
        phase(one) == Some("Running") && workflow.is_some_and(|workflow| workflow.repository.as_deref() == Some("acme/app"))
    };
    let all = until::<Runner>(&world, "3 that say so", |all| all.iter().filter(|one| at_work(one)).count() == 3).await?;
    let busy: BTreeSet<String> = all.iter().filter(|one| at_work(one)).map(|one| one.name_any()).collect();

    scale(&world, "web", 3).await?;
    runners(&world, "3 left", |counts| counts.registered == 3).await?;
    let left: BTreeSet<String> =
        until::<Runner>(&world, "3 Runners", |all| all.len() == 3).await?.iter().map(ResourceExt::name_any).collect();
    ensure!(left == busy, "{left:?} were left, {busy:?} worked");
    let asked = world.github.busy_deletes_refused();
    ensure!(asked == 0, "{asked} busy runners were asked to go");
    succeeded(&world, 3).await?;
    let done = until::<Runner>(&world, "3 that wait again", |all| all.iter().all(|one| phase(one) == Some("Idle"))).await?;
    ensure!(done.iter().all(|one| one.status.as_ref().is_some_and(known)), "the operator's own words are gone");
    scale(&world, "web", 0).await?;
    runners(&world, "none", |counts| counts.registered == 0).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_may_speak_of_itself_alone_and_its_rights_go_with_it() -> Result<()> {
    let mut world = brisk_world(&["--runner-status-update-hook"], |_| {}).await?;
    apply(&world, &deployment("web", 2)).await?;
    settled(&world, 2).await?;
    let all = until::<Runner>(&world, "2 that wait", |all| {
        all.len() == 2 && all.iter().all(|one| phase(one) == Some("Idle") && one.status.as_ref().is_some_and(known))
    })
    .await?;
    let [one, other] = all.as_slice() else { anyhow::bail!("{} runners", all.len()) };
    let client = as_account(&world, &one.name_any()).await?;
    let runners_api: Api<Runner> = Api::namespaced(client.clone(), NAMESPACE);
    let said = Patch::Merge(json!({"status": {"message": "hello"}}));
    let params = PatchParams::default();
    runners_api.patch_status(&one.name_any(), &params, &said).await.context("its own status")?;
    ensure!(is_forbidden(runners_api.patch_status(&other.name_any(), &params, &said).await), "another's status");
    let protect = Patch::Merge(json!({"metadata": {"annotations": {"actions.summerwind.dev/protected": "true"}}}));
    ensure!(is_forbidden(runners_api.patch(&one.name_any(), &params, &protect).await), "its own object");
    ensure!(is_forbidden(runners_api.list(&ListParams::default()).await), "all Runners");
    ensure!(is_forbidden(Api::<Pod>::namespaced(client, NAMESPACE).list(&ListParams::default()).await), "pods");

    // What a job writes there leads to nobody else's removal, not even by an operator that knows nothing else.
    world.operator.as_ref().context("no operator")?.kill9().await;
    let id = other.status.as_ref().and_then(|status| status.runner_id).context("no id")?;
    let lie = Patch::Merge(json!({"status": {"runnerId": id}}));
    runners_api.patch_status(&one.name_any(), &params, &lie).await?;
    delete::<Runner>(&world, &one.name_any()).await?;
    let silence = Fault::new(Routes::of(RouteKind::ListRunners), Effect::Status(502)).always();
    let silence = world.github.inject(silence);
    world.operator.as_mut().context("no operator")?.restart().await?;
    until::<Runner>(&world, "one that waits for GitHub", |all| {
        let conditions = all.iter().filter_map(|one| one.status.as_ref()).flat_map(|status| &status.conditions);
        conditions.into_iter().any(|one| one.type_ == "Stopping" && one.reason == "WaitingForGitHub")
    })
    .await?;
    ensure!(world.github.runners().deleted == 0, "somebody was removed on the word of a job");
    world.github.clear_fault(silence);
    until::<Runner>(&world, "another in its place", |all| all.len() == 2 && all.iter().all(|it| it.name_any() != one.name_any()))
        .await?;
    settled(&world, 2).await?;
    let kept = until::<Runner>(&world, "the other one", |all| all.iter().any(|it| it.name_any() == other.name_any())).await?;
    ensure!(kept.iter().any(|it| it.uid() == other.uid()), "the other one was removed");

    delete_all(&world).await?;
    until::<ServiceAccount>(&world, "no account", |all| all.iter().all(|one| one.name_any() == "default")).await?;
    until::<Role>(&world, "no role", |all| all.is_empty()).await?;
    until::<RoleBinding>(&world, "no binding", |all| all.is_empty()).await?;
    end(world).await
}
