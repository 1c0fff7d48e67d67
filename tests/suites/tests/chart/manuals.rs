//! The commands of the pages about installation and operations, as they stand, with the real kubectl, helm and pacer on the real control plane.
//!
//! Words within a sentence that are a command, such as `helm rollback pacer`, are run like those of blocks. The README and the page for beginners are
//! followed block by block in `pages`; what stands within their sentences is in [`WITHIN_SENTENCES`].

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use pacer_api::RunnerDeployment;
use pacer_harness::github::{Hook, Scope};
use pacer_harness::objects;
use pacer_harness::operator::Operator;
use pacer_harness::world::World;
use pacer_suites::webhook::{SECRET, receive_itself};
use pacer_suites::{PATIENCE, apply, autoscaler, deployment, end_as_it_is, queue, runners, running, until};
use serde_json::json;

use super::helm::{self, NAMESPACE};
use super::installation::{bare, define_foreign, start, uid};
use super::pages::{Desk, cluster, read, runner_of};
use super::pod;
use super::reader::{BEGINNERS, README, Reader, commands};

/// Commands within sentences of pages that are followed block by block: where they are run, or why nowhere.
const WITHIN_SENTENCES: &[(&str, &str, &str)] = &[
    (README, "kubectl apply -k deploy", "run here, as docs/install.md has it"),
    (README, "pacer run --webhook-addr=:8000", "the name of a flag; the suites `webhooks` and `autoscaling` run it"),
    (
        README,
        "kubectl annotate runner NAME actions.summerwind.dev/protected=true",
        "the suite `flows` protects runners by that annotation",
    ),
    (README, "pacer webhook", "the name of a process; the suite `webhooks` runs it"),
    (README, "pacer policy new", "run by the test of docs/policies.md, `host/pacer/tests/tutorial.rs`"),
    (README, "pacer policy replay", "the suite `receipts` runs it"),
    (README, "pacer explain", "the block above it has its verbs"),
    (README, "pacer man DIRECTORY", "`make release-check` runs it"),
    (README, "make bench", "takes a release build and an hour"),
    (README, "make bench ARGS='--runners 1000 --scenes fleets'", "takes a release build and minutes"),
    (README, "make bench ARGS='--scenes large'", "takes a release build and minutes"),
    (README, "make bench ARGS='--scenes steady'", "takes a release build and minutes"),
    (README, "make bench ARGS='--scenes scale-down,rollout'", "takes a release build and minutes"),
    (README, "make bench ARGS='--scenes burst,latency'", "takes a release build and minutes"),
    (README, "make bench ARGS='--scenes tenants'", "takes a release build and minutes"),
    (README, "make bench-policy", "takes a release build"),
    (README, "make docs", "CI runs it"),
    (BEGINNERS, "make demo", "the README has it in a block, where `pages` looks whether the target is there"),
    (BEGINNERS, "pacer doctor", "run here, as docs/install.md has it"),
    (BEGINNERS, "kubectl describe runners", "`pages` runs it beside the block that it is about"),
];

#[test]
fn commands_within_sentences_are_those_that_are_listed() -> Result<()> {
    for path in [README, BEGINNERS] {
        let (_, within) = commands(&read(path)?);
        let listed: BTreeSet<String> =
            WITHIN_SENTENCES.iter().filter(|(page, ..)| *page == path).map(|(_, command, _)| (*command).to_owned()).collect();
        ensure!(within == listed, "{path}, in its sentences or listed here: {:?}", within.symmetric_difference(&listed));
    }
    // What is said to be run here is.
    for (path, command, why) in WITHIN_SENTENCES {
        let Some(elsewhere) = why.strip_prefix("run here, as ").and_then(|why| why.split(' ').next()) else { continue };
        let (of_blocks, within) = commands(&read(elsewhere)?);
        ensure!(of_blocks.contains(*command) || within.contains(*command), "{path}: {elsewhere} has no {command}");
    }
    Ok(())
}

/// The pages install for github.com, which no test reaches: that is all that the doctor finds wrong.
async fn doctor(reader: &mut Reader, desk: &Desk<'_>, command: &str, fleet: &str) -> Result<()> {
    let said = reader.ends(desk, command, 3, fleet).await?;
    let mut found = said.lines().filter(|line| ["PROBLEM ", "warning "].iter().any(|it| line.starts_with(it)));
    ensure!(found.all(|line| line.contains(fleet)), "{said}");
    Ok(())
}

pub(crate) async fn stop(operators: &[Operator]) {
    for operator in operators {
        operator.terminate().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_installation_page_work_as_they_stand() -> Result<()> {
    let mut reader = Reader::of("docs/install.md")?;
    let world = cluster().await?;
    world.github.add(&Scope::repository("example", "repository"));
    let desk = Desk::new(&world, "desk", &[("<registry>", "registry.example/team"), ("<token>", world.github.pat())]).await?;
    desk.has_a_cluster()?;
    for command in [
        "make image ARCH=arm64",
        "make image",
        "docker build --file deploy/image/Dockerfile --tag <registry>/pacer:0.1.0 target/image-root",
        "docker push <registry>/pacer:0.1.0",
    ] {
        reader.runs(&desk, command, "").await?;
    }
    reader.runs(&desk, "kubectl create namespace actions-runner-system", "created").await?;
    let secret =
        "kubectl create secret generic controller-manager --namespace=actions-runner-system --from-literal=github_token=<token>";
    reader.runs(&desk, secret, "created").await?;
    let install =
        "helm install pacer deploy/chart --namespace actions-runner-system --set pacer.image.repository=<registry>/pacer";
    let operators = desk.install(reader.takes(install)?).await?;
    reader.runs(&desk, "kubectl apply -f examples/runnerdeployment.yaml", "created").await?;
    runners(&world, "two runners", |counts| counts.online == 2).await?;

    doctor(&mut reader, &desk, "pacer doctor", "repository example/repository").await?;
    reader.ends(&desk, "pacer doctor --bundle support.tar.gz", 3, "").await?;
    let bundle = std::fs::read(desk.directory.join("support.tar.gz"))?;
    ensure!(bundle.starts_with(&[0x1f, 0x8b]), "no archive");

    reader.runs(&desk, "pacer crds apply", "").await?;
    let definitions = "kubectl apply --server-side --force-conflicts --filename=deploy/chart/crds";
    reader.runs(&desk, definitions, "serverside-applied").await?;
    let upgrade = "helm upgrade pacer deploy/chart --namespace actions-runner-system --reset-then-reuse-values";
    reader.runs(&desk, upgrade, "REVISION: 2").await?;

    reader.runs(&desk, "pacer drain", "would be deleted").await?;
    ensure!(world.github.runners().online == 2, "only counted, and runners are gone");
    reader.runs(&desk, "pacer drain --all-namespaces --yes", "no runner objects are left").await?;
    ensure!(world.github.runners().registered == 0, "{:?}", world.github.runners());
    stop(&operators).await;
    reader.runs(&desk, "helm uninstall pacer --namespace actions-runner-system", "uninstalled").await?;
    reader.runs(&desk, "kubectl delete --filename=deploy/chart/crds", "deleted").await?;
    // The suite has no policy set here; `installation` deletes records by this label.
    let records = "kubectl -n actions-runner-system delete configmaps --selector=actions.summerwind.dev/policy-record-of";
    reader.runs(&desk, records, "No resources found").await?;

    reader.runs(&desk, "kubectl apply -k deploy", "deployment.apps/pacer created").await?;
    let operator = start(&world, NAMESPACE, "pacer", "leading").await?;
    desk.try_to_run("kubectl apply -f examples/runnerdeployment.yaml").await?;
    runners(&world, "two runners again", |counts| counts.online == 2).await?;
    operator.terminate().await;
    end_as_it_is(world).await?;

    take_over_from_arc(&mut reader).await?;
    reader.closes()
}

/// The part of the page for those who have a release of ARC's chart.
async fn take_over_from_arc(reader: &mut Reader) -> Result<()> {
    let world = bare().await?;
    define_foreign(&world).await?;
    let arc = helm::repository("tests/helm/arc").to_string_lossy().into_owned();
    let values = "authSecret.create=true,githubWebhookServer.enabled=true,githubWebhookServer.secret.create=true";
    let secrets = "authSecret.github_token=a-token,githubWebhookServer.secret.github_webhook_secret_token=a-secret";
    let install = ["install", "arc", &arc, "--namespace", NAMESPACE, "--set", values, "--set-string", secrets];
    helm::succeed(Some(&world.plane), &install)?;
    let words = [("<arc's release>", "arc"), ("<its namespace>", NAMESPACE), ("<registry>", "registry.example/team")];
    let desk = Desk::new(&world, "desk", &words).await?;
    desk.has_a_cluster()?;
    let service = ("service", "arc-actions-runner-controller-github-webhook-server");
    let before = uid(&world, service.0, service.1).await?;

    // ARC's controller is still there, which it says to be the first thing to be done.
    reader.ends(&desk, "pacer adopt --dry-run", 3, "actions-runner-controller").await?;
    reader.runs(&desk, "pacer crds | kubectl apply --server-side --force-conflicts --filename=-", "serverside-applied").await?;
    let upgrade = "helm upgrade <arc's release> deploy/chart --namespace <its namespace> --reset-then-reuse-values --set \
                   pacer.image.repository=<registry>/pacer";
    reader.runs(&desk, upgrade, "REVISION: 2").await?;
    ensure!(uid(&world, service.0, service.1).await? == before, "GitHub's webhook lost its address");
    start(&world, NAMESPACE, "arc-actions-runner-controller-pacer", "leading").await?.terminate().await;
    reader.runs(&desk, "helm rollback <arc's release> --namespace <its namespace>", "Rollback was a success").await?;
    ensure!(uid(&world, service.0, service.1).await? == before, "GitHub's webhook lost its address on the way back");
    end_as_it_is(world).await
}

/// The operator as the pod of `kubectl apply -k deploy`, which receives webhooks as well, so that somebody tells it of jobs.
async fn operator_with_webhooks(world: &World) -> Result<Operator> {
    let mut options =
        pacer_harness::world::Options { operator: Some(pod::options(world, NAMESPACE, "pacer").await?), ..Default::default() };
    receive_itself(&mut options);
    let options = options.operator.context("no options")?;
    let operator = Operator::start(&world.plane, &world.github, &options).await?;
    operator.until_ready("leading", PATIENCE).await?;
    let address = operator.webhook_address().context("no address for webhooks")?;
    let owner = Scope::repository("acme", "app").into();
    world.github.add_hook(Hook { owner, url: format!("http://{address}/"), secret: SECRET.to_owned() });
    Ok(operator)
}

/// Says of the operator's pods what a kubelet would: no node runs them here, the operator is a process.
async fn pods_are_ready(world: &World, count: usize) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), NAMESPACE);
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    for pod in objects::until(pods.clone(), "", PATIENCE, |all: &[&Pod]| all.len() == count).await? {
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await?;
    }
    Ok(())
}

/// The operator as `kubectl apply -k deploy` installs it.
pub(crate) async fn installed(world: &World, desk: &Desk<'_>) -> Result<Operator> {
    let installed = desk.try_to_run("kubectl apply -k deploy").await?;
    ensure!(installed.code == Some(0), "{}", installed.text);
    let credentials = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "controller-manager", "namespace": NAMESPACE},
        "stringData": {"github_token": world.github.pat()},
    });
    apply(world, &credentials).await?;
    let operator = operator_with_webhooks(world).await?;
    pods_are_ready(world, 2).await?;
    Ok(operator)
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_operations_page_work_as_they_stand() -> Result<()> {
    let mut reader = Reader::of("docs/operations.md")?;
    let world = cluster().await?;
    let mut desk = Desk::new(&world, "desk", &[]).await?;
    desk.has_a_cluster()?;
    let operator = installed(&world, &desk).await?;
    apply(&world, &deployment("web", 2)).await?;
    apply(&world, &autoscaler("web", 2, 4)).await?;
    runners(&world, "two runners", |counts| counts.online == 2).await?;
    let jobs = queue(&world, "web", 1, Duration::from_secs(600))?;
    running(&world, 1).await?;
    let [job] = jobs.as_slice() else { bail!("{jobs:?}") };

    reader.runs(&desk, "kubectl -n actions-runner-system get deployments", "pacer").await?;
    doctor(&mut reader, &desk, "pacer doctor", "repository acme/app").await?;
    reader.runs(&desk, "pacer status -A", "web").await?;
    reader.runs(&desk, "pacer explain queue -A", "").await?;
    reader.runs_with(&mut desk, "pacer explain job ID", &[("ID", &job.0.to_string())], "web").await?;
    let name = runner_of(&world, "web").await?;
    let words = [("NAME", name.as_str()), ("NS", pacer_suites::NAMESPACE)];
    reader.runs_with(&mut desk, "pacer explain runner NAME -n NS", &words, &name).await?;
    reader.runs(&desk, "kubectl get runners", &name).await?;
    reader.runs(&desk, "kubectl -n actions-runner-system get leases", "actions-runner-controller").await?;

    let ask = "kubectl auth can-i create tokenreviews --as=system:serviceaccount:NS:NAME";
    desk.words = vec![("NS:NAME", format!("{NAMESPACE}:pacer"))];
    reader.ends(&desk, ask, 1, "no").await?;
    // What the component brings that the page names.
    let roles = desk.try_to_run("kubectl apply -f deploy/metrics-authorization/rbac.yaml").await?;
    ensure!(roles.code == Some(0), "{}", roles.text);
    reader.runs(&desk, ask, "yes").await?;
    desk.words.clear();
    let bind = "kubectl create clusterrolebinding prometheus-pacer --clusterrole=pacer-metrics-reader --serviceaccount=monitoring:prometheus-k8s";
    reader.runs(&desk, bind, "created").await?;

    reader.runs(&desk, "kubectl -n actions-runner-system rollout restart deployment/pacer", "restarted").await?;
    reader.runs(&desk, "kubectl -n actions-runner-system scale deployment/pacer --replicas=0", "scaled").await?;
    operator.terminate().await;
    // Whoever stops everything harms no job.
    ensure!(world.github.jobs().in_progress == 1, "{:?}", world.github.jobs());
    end_as_it_is(world).await?;

    upgrade_and_back(&mut reader).await?;
    reader.closes()
}

/// The part of the page for those who have installed with Helm.
async fn upgrade_and_back(reader: &mut Reader) -> Result<()> {
    let world = bare().await?;
    helm::succeed(Some(&world.plane), &["install", "pacer", &helm::chart(), "--namespace", NAMESPACE])?;
    let desk = Desk::new(&world, "desk", &[]).await?;
    desk.has_a_cluster()?;
    reader.runs(&desk, "pacer crds apply", "").await?;
    let upgrade = "helm upgrade pacer deploy/chart --namespace actions-runner-system --reset-then-reuse-values";
    reader.runs(&desk, upgrade, "REVISION: 2").await?;
    reader.runs(&desk, "helm rollback pacer --namespace actions-runner-system", "Rollback was a success").await?;
    let mut tenants = Reader::of_blocks("docs/tenancy.md")?;
    tenants.runs(&desk, &format!("{upgrade} --set pacer.tenancy.configMap=pacer-tenancy"), "REVISION: 4").await?;
    let flags = "{.items[*].spec.template.spec.containers[0].args}";
    let said = desk.try_to_run(&format!("kubectl -n {NAMESPACE} get deployments -o jsonpath='{flags}'")).await?.text;
    ensure!(said.contains("\"--tenancy=pacer-tenancy\""), "{said}");
    tenants.closes()?;
    // Definitions are still served.
    until::<RunnerDeployment>(&world, "no RunnerDeployment", |all| all.is_empty()).await?;
    end_as_it_is(world).await
}
