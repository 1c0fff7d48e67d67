//! What the doctor finds of the installation itself: who acts, the webhook server's rights, definitions, policy sets, ARC.

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use pacer_harness::controlplane::Apply;
use pacer_harness::world::World;
use pacer_suites::manifests::shipped;
use pacer_suites::{apply, end_as_it_is, kubectl};
use serde_json::{Value, json};

use super::{OPERATOR, SICK, add_argument, apply_definitions, doctor, installed, run, until_said, until_silent, until_told};

/// The operator's Deployment with the server that the fleet registers at.
async fn deploy(world: &World) -> Result<()> {
    world.plane.apply(&shipped("base/deployment.yaml"), Apply::ServerSide).await?;
    add_argument(world, &format!("--github-url={}", world.github.api_url())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn who_acts_is_told_and_that_nobody_does_and_that_there_is_no_deployment() -> Result<()> {
    let mut world = installed().await?;
    until_silent(&world).await?;
    let healthy = doctor(&world).await?.healthy();
    ensure!(healthy.contains(" holds Lease actions-runner-system/actions-runner-controller"), "{healthy}");

    // The replica that acted is gone.
    let operator = world.operator.as_ref().context("an operator")?;
    operator.terminate().await;
    let said = doctor(&world).await?;
    let (severity, what, cure) = said.only()?;
    ensure!((severity, said.code) == ("problem", Some(SICK)) && what == "nobody holds it", "{:#}", said.report);
    ensure!(cure.contains("kubectl logs deployment/pacer --namespace=actions-runner-system"), "{cure}");
    // Somebody holds it whose clock is off, or who died with it.
    for (minutes, severity, words) in
        [(5, "warning", "in the future of this machine's clock"), (-5, "problem", "other holds it and last renewed it")]
    {
        let renewed = (Timestamp::now() + SignedDuration::from_mins(minutes)).strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let lease = json!({"spec": {"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": renewed}}).to_string();
        let name = "actions-runner-controller";
        kubectl(&world, &["patch", "lease", name, "--namespace", OPERATOR, "--type=merge", "--patch", &lease]).await?;
        let said = doctor(&world).await?;
        let (told, what, _) = said.only()?;
        ensure!(told == severity && what.contains(words), "{:#}", said.report);
    }
    world.operator.as_mut().context("an operator")?.restart().await?;
    until_silent(&world).await?;

    // So is a kind that nothing here uses.
    kubectl(&world, &["delete", "crd", "runnersets.actions.summerwind.dev"]).await?;
    let said = until_told(&world, "does not exist").await?;
    let (severity, _, cure) = said.only()?;
    ensure!((severity, said.code, cure) == ("problem", Some(SICK), "pacer crds apply"), "{:#}", said.report);
    ensure!(said.report.to_string().contains("CustomResourceDefinition runnersets.actions.summerwind.dev"), "{:#}", said.report);
    apply_definitions(&world).await?;
    until_silent(&world).await?;

    kubectl(&world, &["delete", "deployment", "pacer", "--namespace", OPERATOR]).await?;
    let said = doctor(&world).await?;
    let (severity, what, cure) = said.only()?;
    ensure!((severity, said.code) == ("problem", Some(SICK)) && what.contains("has no Deployment"), "{:#}", said.report);
    ensure!(cure.contains("helm install pacer deploy/chart") && cure.contains("--operator-namespace"), "{cure}");
    deploy(&world).await?;
    until_silent(&world).await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_share_the_work_otherwise_than_the_deployment_says_are_told() -> Result<()> {
    let world = installed().await?;
    until_silent(&world).await?;
    // The process that acts has no shards.
    add_argument(&world, "--shards=2").await?;
    let said = until_told(&world, "this Deployment has --shards 2").await?;
    let [(what, cure)] = said.about("this Deployment has --shards 2")[..] else { anyhow::bail!("{:#}", said.report) };
    ensure!(what.starts_with("it is held by ") && cure.contains("give all replicas the same --shards"), "{:#}", said.report);
    let arguments = "--output=jsonpath={.spec.template.spec.containers[0].args}";
    let given = kubectl(&world, &["get", "deployment", "pacer", "--namespace", OPERATOR, arguments]).await?;
    let given: Vec<String> = serde_json::from_str(&given)?;
    let same: Vec<&String> = given.iter().filter(|argument| *argument != "--shards=2").collect();
    ensure!(same.len() + 1 == given.len(), "{given:?}");
    let patch = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": same}]).to_string();
    kubectl(&world, &["patch", "deployment", "pacer", "--namespace", OPERATOR, "--type=json", "--patch", &patch]).await?;
    until_silent(&world).await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_of_the_webhook_server_are_asked_for_where_it_runs() -> Result<()> {
    let world = installed().await?;
    world.plane.apply(&shipped("webhook/rbac.yaml"), Apply::ServerSide).await?;
    kubectl(&world, &["delete", "clusterrolebinding", "pacer-webhook"]).await?;
    // Nobody uses them yet.
    until_silent(&world).await?;
    world.plane.apply(&shipped("webhook/deployment.yaml"), Apply::ServerSide).await?;
    let said = doctor(&world).await?;
    let told = said.about("system:serviceaccount:actions-runner-system:pacer-webhook");
    for right in ["list, watch horizontalrunnerautoscalers", "create, list, patch, watch jobledgers"] {
        let named = told.iter().find(|(what, _)| what.starts_with(&format!("may not {right}.actions.summerwind.dev")));
        let (_, cure) = named.with_context(|| format!("{right}: {:#}", said.report))?;
        ensure!(cure.contains("deploy/webhook/rbac.yaml") && cure.contains("kubectl apply -k deploy/webhook"), "{cure}");
    }
    ensure!(told.len() == said.findings().len() && said.code == Some(SICK), "{:#}", said.report);
    world.plane.apply(&shipped("webhook/rbac.yaml"), Apply::ServerSide).await?;
    until_silent(&world).await?;
    let healthy = doctor(&world).await?.healthy();
    ensure!(healthy.contains("the operator and the webhook server have every right that they use"), "{healthy}");
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_set_that_no_pool_names_and_what_arc_left_are_told() -> Result<()> {
    let world = installed().await?;
    until_silent(&world).await?;
    let healthy = doctor(&world).await?.healthy();
    ensure!(healthy.contains("no policy set is in use"), "{healthy}");

    let set = |policies: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pacer-policies", "namespace": OPERATOR},
            "data": {"policies.yaml": policies},
        })
    };
    apply(&world, &set("scale-down: [")).await?;
    let said = until_told(&world, "the policy set is Refused").await?;
    let object = "\"object\":\"ConfigMap actions-runner-system/pacer-policies\"";
    let [(what, cure)] = said.about(object)[..] else { anyhow::bail!("{:#}", said.report) };
    ensure!(what.contains("PolicySetInvalid") && cure.contains("pacer policy configmap"), "{:#}", said.report);
    ensure!(said.code == Some(SICK), "{:#}", said.report);
    apply(&world, &set("scale-down: builtin\n")).await?;
    until_silent(&world).await?;
    let healthy = doctor(&world).await?.healthy();
    ensure!(healthy.contains("policy set actions-runner-system/pacer-policies: Active"), "{healthy}");

    // ARC runs, then lies about, stopped.
    let labels = json!({"app": "arc"});
    let arc: Value = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "arc-controller", "namespace": "default"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "manager", "image": "summerwind/actions-runner-controller", "command": ["/manager"]}]},
            },
        },
    });
    apply(&world, &arc).await?;
    let said = doctor(&world).await?;
    ensure!(said.code == Some(SICK), "{:#}", said.report);
    let cures = said.about("Deployment default/arc-controller");
    let stop = cures.iter().map(|(_, cure)| *cure).find(|cure| cure.contains("--replicas=0"));
    run(&world, stop.with_context(|| format!("{:#}", said.report))?).await?;
    let said = until_said(&world, "ARC has stopped", |said| said.code == Some(0)).await?;
    let (severity, _, cure) = said.only()?;
    ensure!(severity == "warning", "{:#}", said.report);
    run(&world, cure).await?;
    until_silent(&world).await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn tenancy_that_is_missing_or_broken_is_told_until_it_is_mended() -> Result<()> {
    let world = installed().await?;
    add_argument(&world, "--tenancy=tenants").await?;
    let object = "\"object\":\"ConfigMap actions-runner-system/tenants\"";
    let said = doctor(&world).await?;
    let [(what, cure)] = said.about(object)[..] else { anyhow::bail!("{:#}", said.report) };
    ensure!(what == "does not exist" && said.code == Some(SICK), "{:#}", said.report);
    let (create, _format) = cure.split_once("; ").context("a command and a page")?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("tenancy.yaml");
    std::fs::write(&file, "namespaces: [{names: [default], scopes: [acme/app]}]\n")?;
    run(&world, &create.replace("tenancy.yaml", &file.to_string_lossy())).await?;
    until_silent(&world).await?;

    let broken = json!({"data": {"tenancy.yaml": "namespaces: 1"}}).to_string();
    let patch = async |patch: &str| {
        let arguments = ["patch", "configmap", "tenants", "--namespace", OPERATOR, "--type=merge", "--patch", patch];
        kubectl(&world, &arguments).await
    };
    patch(&broken).await?;
    let said = doctor(&world).await?;
    let [(what, cure)] = said.about(object)[..] else { anyhow::bail!("{:#}", said.report) };
    ensure!(what.contains("namespaces") && said.code == Some(SICK), "{:#}", said.report);
    ensure!(cure.contains("kubectl edit configmap tenants --namespace actions-runner-system"), "{cure}");
    patch(&broken.replace("namespaces: 1", "namespaces: [{names: [default], scopes: [acme/app]}]")).await?;
    until_silent(&world).await?;
    end_as_it_is(world).await
}
