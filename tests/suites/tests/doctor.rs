//! `pacer doctor` on an installation as it is shipped: each thing is broken, found with its cure, cured, and not found any more.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pacer_harness::controlplane::Apply;
use pacer_harness::github::{Effect, Fault, RouteKind, Routes};
use pacer_harness::operator::binary;
use pacer_harness::world::World;
use pacer_suites::manifests::shipped;
use pacer_suites::{PATIENCE, apply, deployment, end_as_it_is, kubectl, runners, world};
use serde_json::{Value, json};

mod github;
mod installation;

/// Namespace of the operator.
const OPERATOR: &str = "actions-runner-system";

/// Exit code when something has to be cured.
const SICK: i32 = 3;

/// What a run said, and its exit code.
struct Said {
    report: Value,
    code: Option<i32>,
}

impl Said {
    fn findings(&self) -> Vec<&Value> {
        self.report.get("findings").and_then(Value::as_array).into_iter().flatten().collect()
    }

    /// The findings whose text contains this, as what and cure.
    fn about(&self, word: &str) -> Vec<(&str, &str)> {
        let found = self.findings().into_iter().filter(|finding| finding.to_string().contains(word));
        found.filter_map(|finding| Some((finding.get("what")?.as_str()?, finding.get("cure")?.as_str()?))).collect()
    }

    /// What was looked at and is well.
    fn healthy(&self) -> String {
        self.report.get("healthy").map(Value::to_string).unwrap_or_default()
    }

    /// The only finding, as severity, what and cure.
    fn only(&self) -> Result<(&str, &str, &str)> {
        let [finding] = self.findings()[..] else { anyhow::bail!("one finding was expected: {:#}", self.report) };
        let text = |field: &str| finding.get(field).and_then(Value::as_str).with_context(|| format!("no {field} in {finding}"));
        ensure!(!text("why")?.is_empty() && !text("object")?.is_empty(), "{finding}");
        Ok((text("severity")?, text("what")?, text("cure")?))
    }
}

async fn doctor(world: &World) -> Result<Said> {
    let said = async {
        loop {
            let output = tokio::process::Command::new(binary().await?)
                .args(["doctor", "--output=json", "--kubeconfig"])
                .arg(world.plane.kubeconfig_path())
                // A token on the desk of whoever asks is not the operator's.
                .env("GITHUB_TOKEN", "of-somebody-else")
                .output()
                .await?;
            let report: serde_json::Result<Value> = serde_json::from_slice(&output.stdout);
            let report = report.with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
            // A kind whose definition has just changed is not served for a moment.
            if report.get("unread").and_then(Value::as_array).is_some_and(Vec::is_empty) {
                return anyhow::Ok(Said { report, code: output.status.code() });
            }
        }
    };
    tokio::time::timeout(PATIENCE, said).await.context("something stays unread")?
}

/// Asks until nothing is found: controllers need a moment to count.
async fn until_silent(world: &World) -> Result<()> {
    let mut last = Value::Null;
    let silent = async {
        loop {
            make_ready(world).await?;
            let said = doctor(world).await?;
            if said.findings().is_empty() {
                ensure!(said.code == Some(0), "{:?}: {:#}", said.code, said.report);
                return Ok(());
            }
            last = said.report;
            // Other processes announce nothing.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, silent).await;
    outcome.with_context(|| format!("findings remain: {last:#}"))?
}

/// Asks until something is found that contains this: what it is about may need a moment.
async fn until_told(world: &World, word: &str) -> Result<Said> {
    until_said(world, word, |said| !said.about(word).is_empty()).await
}

/// Asks until that is said.
async fn until_said(world: &World, what: &str, is_so: impl Fn(&Said) -> bool) -> Result<Said> {
    let mut last = Value::Null;
    let told = async {
        loop {
            let said = doctor(world).await?;
            if is_so(&said) {
                return anyhow::Ok(said);
            }
            last = said.report;
            // Other processes announce nothing.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, told).await.with_context(|| format!("not said: {what}; {last:#}"))?
}

/// Runs a command that was printed.
async fn run(world: &World, command: &str) -> Result<()> {
    let words: Vec<&str> = command.strip_prefix("kubectl ").with_context(|| command.to_owned())?.split_whitespace().collect();
    kubectl(world, &words).await.map(drop)
}

/// `pacer crds apply`, which doctor names as a cure.
async fn apply_definitions(world: &World) -> Result<String> {
    let mut command = tokio::process::Command::new(binary().await?);
    let output = command.args(["crds", "apply", "--kubeconfig"]).arg(world.plane.kubeconfig_path()).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Says of the operator's pods what a kubelet would: no node runs them here, the operator is a process.
async fn make_ready(world: &World) -> Result<()> {
    let selector = "--selector=app.kubernetes.io/name=pacer";
    let pods = kubectl(world, &["get", "pods", "--namespace", OPERATOR, selector, "--output=name"]).await?;
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}).to_string();
    for pod in pods.lines() {
        // One that was scaled away meanwhile is not there any more.
        let _ = world
            .plane
            .kubectl(&["patch", pod, "--namespace", OPERATOR, "--subresource=status", "--type=merge", "--patch", &status])
            .await?;
    }
    Ok(())
}

fn credentials(token: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "controller-manager", "namespace": OPERATOR},
        "stringData": {"github_token": token},
    })
    .to_string()
}

/// A cluster with what `deploy/` installs, a fleet, and an operator that acts.
async fn installed() -> Result<World> {
    installed_with(&[]).await
}

/// The same, where the process of the operator has these arguments too.
async fn installed_with(arguments: &[&str]) -> Result<World> {
    let world = world(|options| {
        options.plane.controllers = ["deployment-controller", "replicaset-controller"].map(str::to_owned).to_vec();
        if let Some(operator) = &mut options.operator {
            operator.args.extend(arguments.iter().map(|&argument| argument.to_owned()));
        }
    })
    .await?;
    world.plane.apply_text(&credentials(world.github.pat()), Apply::ServerSide).await?;
    world.plane.apply(&shipped("base/deployment.yaml"), Apply::ServerSide).await?;
    add_argument(&world, &format!("--github-url={}", world.github.api_url())).await?;
    apply(&world, &deployment("web", 1)).await?;
    runners(&world, "a runner", |count| count.online == 1).await?;
    Ok(world)
}

/// Gives the Deployment of the operator one more argument.
async fn add_argument(world: &World, argument: &str) -> Result<()> {
    let more = json!([{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": argument}]).to_string();
    kubectl(world, &["patch", "deployment", "pacer", "--namespace", OPERATOR, "--type=json", "--patch", &more]).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn installation_that_is_broken_is_told_with_the_cure_and_silent_after_it() -> Result<()> {
    let world = installed().await?;
    until_silent(&world).await?;

    // Nobody runs.
    kubectl(&world, &["scale", "deployment", "pacer", "--namespace", OPERATOR, "--replicas=0"]).await?;
    let said = doctor(&world).await?;
    let (severity, what, cure) = said.only()?;
    ensure!((severity, said.code) == ("problem", Some(SICK)) && what.contains("replicas are ready"), "{:#}", said.report);
    run(&world, cure).await?;
    until_silent(&world).await?;

    // A right is missing, one of those that may be left out first.
    for (role, resource, severity, code) in [("pacer-nodes", "nodes", "warning", 0), ("pacer", "events", "problem", SICK)] {
        let role_now: Value = serde_json::from_str(&kubectl(&world, &["get", "clusterrole", role, "--output=json"]).await?)?;
        let rules = role_now.get("rules").and_then(Value::as_array).context("rules")?;
        let names = |rule: &Value| rule.pointer("/resources/0").and_then(Value::as_str) == Some(resource);
        let fewer: Vec<&Value> = rules.iter().filter(|rule| !names(rule)).collect();
        ensure!(fewer.len() + 1 == rules.len(), "{rules:?}");
        let patch = json!([{"op": "replace", "path": "/rules", "value": fewer}]).to_string();
        kubectl(&world, &["patch", "clusterrole", role, "--type=json", "--patch", &patch]).await?;
        let said = doctor(&world).await?;
        let (told, what, cure) = said.only()?;
        ensure!((told, said.code) == (severity, Some(code)) && what.contains(resource), "{:#}", said.report);
        ensure!(cure.contains(role) && cure.contains("deploy/base/rbac.yaml"), "{cure}");
        kubectl(
            &world,
            &["apply", "--server-side", "--force-conflicts", "--filename", &shipped("base/rbac.yaml").to_string_lossy()],
        )
        .await?;
        until_silent(&world).await?;
    }

    // Another version's definition.
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/workDir";
    let patch = json!([{"op": "remove", "path": path}]).to_string();
    kubectl(&world, &["patch", "crd", "runners.actions.summerwind.dev", "--type=json", "--patch", &patch]).await?;
    let said = doctor(&world).await?;
    let (severity, what, cure) = said.only()?;
    ensure!((severity, said.code) == ("warning", Some(0)) && what.contains("not the one of this version"), "{:#}", said.report);
    ensure!(cure == "pacer crds apply", "{cure}");
    let said = apply_definitions(&world).await?;
    ensure!(said.contains("runners.actions.summerwind.dev renewed"), "{said}");
    until_silent(&world).await?;
    let said = apply_definitions(&world).await?;
    ensure!(said.lines().count() == 6 && said.lines().all(|line| line.ends_with(" unchanged")), "{said}");

    // An autoscaler of nothing.
    let autoscaler = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": "lost", "namespace": "default"},
        "spec": {"scaleTargetRef": {"name": "nothing"}, "minReplicas": 0, "maxReplicas": 1},
    });
    apply(&world, &autoscaler).await?;
    kubectl(&world, &["wait", "hra/lost", "--for=condition=Accepted=false", "--timeout=120s"]).await?;
    let said = doctor(&world).await?;
    let problem = said.findings().into_iter().find(|finding| finding.to_string().contains("TargetNotFound"));
    let cure = problem.and_then(|problem| problem.get("cure")?.as_str()).with_context(|| format!("{:#}", said.report))?;
    ensure!(said.code == Some(SICK) && cure.contains("`kubectl -n default get rdeploy,runnersets`"), "{:#}", said.report);
    kubectl(&world, &["delete", "hra", "lost"]).await?;
    until_silent(&world).await?;

    end_as_it_is(world).await
}

/// Secrets are seeded wherever people leave them.
#[tokio::test(flavor = "multi_thread")]
async fn support_bundle_has_what_helps_and_no_secret() -> Result<()> {
    let world = installed().await?;
    let flag = json!([{
        "op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--github-webhook-secret-token=seeded-in-a-flag",
    }]);
    kubectl(&world, &["patch", "deployment", "pacer", "--namespace", OPERATOR, "--type=json", "--patch", &flag.to_string()])
        .await?;
    let mut fleet = deployment("secretive", 1);
    let spec = fleet.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut).context("a spec")?;
    spec.insert("env".to_owned(), json!([{"name": "NPM_TOKEN", "value": "seeded-in-a-variable"}]));
    world.plane.apply_text(&fleet.to_string(), Apply::ClientSide).await?;
    runners(&world, "its runner", |count| count.online == 2).await?;

    let directory = tempfile::tempdir()?;
    let file = directory.path().join("bundle.tar.gz");
    let write = async || -> Result<std::process::Output> {
        let mut command = tokio::process::Command::new(binary().await?);
        command.args(["doctor", "--kubeconfig"]).arg(world.plane.kubeconfig_path()).arg("--bundle").arg(&file);
        Ok(command.output().await?)
    };
    let output = write().await?;
    ensure!(file.exists(), "{}", String::from_utf8_lossy(&output.stderr));
    let unpacked = tokio::process::Command::new("tar").args(["-xzOf"]).arg(&file).output().await?;
    let text = String::from_utf8(unpacked.stdout)?;
    for seed in ["seeded-in-a-flag", "seeded-in-a-variable", world.github.pat()] {
        ensure!(!text.contains(seed), "{seed} is in the bundle");
    }
    let listed = tokio::process::Command::new("tar").args(["-tzf"]).arg(&file).output().await?;
    let names = String::from_utf8(listed.stdout)?;
    for name in [
        "doctor.json",
        "doctor.txt",
        "version.txt",
        "runners.json",
        "runner-pods.json",
        "events.json",
        "operator/deployments.json",
    ] {
        ensure!(names.contains(&format!("pacer-bundle/{name}\n")), "{name} is not in {names}");
    }
    for wanted in ["NPM_TOKEN", "\"secretive\"", "--github-webhook-secret-token=[redacted]", "the API server answers"] {
        ensure!(text.contains(wanted), "{wanted} is not in the bundle");
    }
    // Nothing is written over.
    let again = write().await?;
    ensure!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains("not written over"), "{again:?}");
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_github_refuses_are_told_for_each_fleet_and_never_shown() -> Result<()> {
    let world = installed().await?;
    until_silent(&world).await?;

    let wrong = "ghp_wrongwrongwrong";
    world.plane.apply_text(&credentials(wrong), Apply::ServerSide).await?;
    let said = doctor(&world).await?;
    let (severity, what, cure) = said.only()?;
    ensure!((severity, said.code) == ("problem", Some(SICK)) && what.contains("401") && !cure.is_empty(), "{:#}", said.report);
    ensure!(said.report.to_string().contains("RunnerDeployment default/web"), "{:#}", said.report);
    ensure!(!said.report.to_string().contains(wrong), "the token is in the report");

    kubectl(&world, &["delete", "secret", "controller-manager", "--namespace", OPERATOR]).await?;
    let said = doctor(&world).await?;
    let (severity, what, cure) = said.only()?;
    ensure!((severity, said.code) == ("problem", Some(SICK)) && what.contains("no GitHub credentials"), "{:#}", said.report);
    let (create, _restart) = cure.split_once("; ").context("two commands")?;
    run(&world, &create.replace("TOKEN", world.github.pat())).await?;
    until_silent(&world).await?;

    // The fleet's repository is not one that the credentials may see.
    let elsewhere = json!({"spec": {"template": {"spec": {"repository": "acme/secret"}}}}).to_string();
    kubectl(&world, &["patch", "rdeploy", "web", "--type=merge", "--patch", &elsewhere]).await?;
    let said = doctor(&world).await?;
    let listed = said.findings().into_iter().find(|finding| finding.to_string().contains("repository acme/secret"));
    ensure!(listed.is_some() && said.code == Some(SICK), "{:#}", said.report);
    let back = json!({"spec": {"template": {"spec": {"repository": "acme/app"}}}}).to_string();
    kubectl(&world, &["patch", "rdeploy", "web", "--type=merge", "--patch", &back]).await?;
    until_silent(&world).await?;

    // Nobody answers.
    world.github.inject(Fault::new(Routes::of(RouteKind::ListRunners), Effect::Reset).always());
    let said = until_told(&world, "cannot be listed").await?;
    let (severity, what, cure) = said.only()?;
    ensure!((severity, said.code) == ("problem", Some(SICK)), "{:#}", said.report);
    ensure!(!what.contains("401") && !cure.is_empty(), "{:#}", said.report);
    world.github.clear_faults();
    until_silent(&world).await?;
    end_as_it_is(world).await
}

/// The bindings of the roles that `--metrics-authorization` needs are taken away one by one.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_that_nobody_can_have_are_told_with_the_cure_and_silent_after_it() -> Result<()> {
    let world = installed().await?;
    let reviews = shipped("metrics-authorization/rbac.yaml");
    let give = async || world.plane.apply(&reviews, Apply::ServerSide).await;
    // Nothing is asked of those who do not use it.
    until_silent(&world).await?;
    for flag in ["--metrics-tls", "--metrics-authorization"] {
        add_argument(&world, flag).await?;
    }

    let said = doctor(&world).await?;
    let account = "system:serviceaccount:actions-runner-system:pacer";
    for resource in ["tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io"] {
        let [(what, cure)] = said.about(resource)[..] else { anyhow::bail!("{resource}: {:#}", said.report) };
        ensure!(what == format!("may not create {resource}"), "{what}");
        ensure!(cure.contains("pacer-metrics-reviews") && cure.contains("deploy/metrics-authorization/rbac.yaml"), "{cure}");
    }
    ensure!(said.about(account).len() == 2 && said.code == Some(SICK), "{:#}", said.report);
    // The role for whoever scrapes is not there either.
    let [(what, cure)] = said.about("\"ClusterRole pacer-metrics-reader\"")[..] else { anyhow::bail!("{:#}", said.report) };
    ensure!(
        what == "no ServiceAccount may get the path /metrics" && cure.contains("deploy/metrics-authorization/rbac.yaml"),
        "{cure}"
    );
    give().await?;

    let said = doctor(&world).await?;
    let (severity, _, cure) = said.only()?;
    ensure!((severity, said.code) == ("warning", Some(0)) && cure.contains("pacer-metrics-reader"), "{:#}", said.report);
    run(&world, &cure.replace("NAMESPACE:NAME", "monitoring:prometheus-k8s")).await?;
    until_silent(&world).await?;

    // The webhook server serves metrics of its own, with rights of its own.
    world.plane.apply(&shipped("webhook/rbac.yaml"), Apply::ServerSide).await?;
    world.plane.apply(&shipped("webhook/deployment.yaml"), Apply::ServerSide).await?;
    for flag in ["--metrics-tls", "--metrics-authorization"] {
        let more = json!([{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": flag}]).to_string();
        kubectl(&world, &["patch", "deployment", "pacer-webhook", "--namespace", OPERATOR, "--type=json", "--patch", &more])
            .await?;
    }
    until_silent(&world).await?;
    let fewer = json!([{"op": "remove", "path": "/subjects/1"}]).to_string();
    kubectl(&world, &["patch", "clusterrolebinding", "pacer-metrics-reviews", "--type=json", "--patch", &fewer]).await?;
    let said = doctor(&world).await?;
    ensure!(said.findings().len() == 2 && said.about(":pacer-webhook").len() == 2, "{:#}", said.report);
    kubectl(&world, &["apply", "--server-side", "--force-conflicts", "--filename", &reviews.to_string_lossy()]).await?;
    until_silent(&world).await?;
    end_as_it_is(world).await
}
