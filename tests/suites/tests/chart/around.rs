//! The commands of the pages that look at a fleet at work and at what was recorded of it, as they stand, with the real kubectl and pacer.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use pacer_api::Runner;
use pacer_harness::github::Scope;
use pacer_harness::operator::Operator;
use pacer_harness::world::World;
use pacer_harness::{http, objects};
use pacer_suites::{
    PATIENCE, apply, autoscaler, deployment, end_as_it_is, event, no_open_jobs, put, queue, runners, running, settled, succeeded,
    until, with_spec,
};
use serde_json::{Value, json};

use super::helm::NAMESPACE;
use super::manuals::installed;
use super::pages::{Desk, cluster, runner_of};
use super::reader::Reader;

/// What `kubectl logs` says of a Deployment that it has found. No pod of the operator is on a node here, and such pods have no log.
const FOUND: &str = "using pod/pacer-";

/// What `kubectl port-forward` says of a Deployment whose pod it has found, and which is on no node.
const NO_NODE: &str = "does not have a host assigned";

/// The same object in another namespace.
fn in_namespace(object: Value, namespace: &str) -> Value {
    put(object, "/metadata", "namespace", json!(namespace))
}

/// The name of the newest receipt that a policy left, in the list that people see.
async fn newest_receipt(desk: &Desk<'_>) -> Result<String> {
    let said = desk.run("pacer policy receipts --decision scale-down --last 1").await?;
    let name = said.lines().find_map(|line| line.split_once(" scale-down ")?.0.split_whitespace().next());
    Ok(name.with_context(|| said.clone())?.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_pages_that_look_at_a_fleet_work_as_they_stand() -> Result<()> {
    let world = cluster().await?;
    let mut desk = Desk::new(&world, "desk", &[]).await?;
    desk.has_a_cluster()?;
    let operator = installed(&world, &desk).await?;
    apply(&world, &deployment("web", 3)).await?;
    runners(&world, "three runners", |counts| counts.online == 3).await?;
    let first = runner_of(&world, "web").await?;
    // Somebody deletes the pod of one.
    desk.run(&format!("kubectl delete pod {first}")).await?;
    event(&world, "RunnerReplaced", |_| true).await?;
    runners(&world, "three runners again", |counts| counts.online == 3 && counts.registered == 3).await?;
    // One runner too many: a policy says which goes.
    apply(&world, &deployment("web", 2)).await?;
    runners(&world, "two runners", |counts| counts.registered == 2).await?;
    event(&world, "RunnerRemoved", |_| true).await?;
    apply(&world, &autoscaler("web", 2, 4)).await?;
    let jobs = queue(&world, "web", 1, Duration::from_secs(600))?;
    running(&world, 1).await?;
    let [job] = jobs.as_slice() else { bail!("{jobs:?}") };

    receipts(&mut desk, &first, &job.0.to_string()).await?;
    alerts(&mut desk).await?;
    let troubles = troubles(&world, &mut desk, &first).await?;
    numbers(&world, &desk).await?;
    let mut reader = Reader::of_blocks("docs/security.md")?;
    let label = "kubectl label namespace actions-runner-system pod-security.kubernetes.io/enforce=restricted";
    let said = reader.runs(&desk, label, "labeled").await?;
    // Of pods that are there already and would be refused, the API server warns.
    ensure!(!said.contains("Warning"), "{said}");
    reader.closes()?;
    ensure!(world.github.cancel_job(*job), "the job is over");
    running(&world, 0).await?;
    hangs(&world, &mut desk, troubles, operator).await?;
    end_as_it_is(world).await
}

async fn receipts(desk: &mut Desk<'_>, runner: &str, job: &str) -> Result<()> {
    let mut reader = Reader::of_blocks("docs/receipts.md")?;
    reader.runs_with(desk, "pacer explain runner NAME", &[("NAME", runner)], runner).await?;
    reader.runs_with(desk, "pacer explain pool NAME", &[("NAME", "web")], "web").await?;
    reader.runs_with(desk, "pacer explain job ID", &[("ID", job)], "web").await?;
    // GitHub's event that the job has begun may still be on its way.
    desk.run("until pacer explain queue | grep 'No job waits'; do sleep 0.5; done").await?;
    reader.runs(desk, "pacer explain queue", "No job waits").await?;
    desk.watch(reader.takes("pacer status -A --watch")?, "web").await?;
    reader.runs(desk, "pacer policy receipts", "scale-down").await?;
    let receipt = newest_receipt(desk).await?;
    reader.runs_with(desk, "pacer policy replay RECEIPT", &[("RECEIPT", &receipt)], "bytes").await?;
    reader.runs(desk, "pacer policy receipts --case cases", "").await?;
    let tested = desk.run("pacer policy test builtin cases").await?;
    ensure!(tested.contains(" 0 failed") && !tested.contains(" 0 passed"), "{tested}");
    let annotate = "kubectl annotate hra web actions.summerwind.dev/report-waiting-jobs-after=10m";
    reader.runs(desk, annotate, "annotated").await?;
    reader.closes()
}

async fn alerts(desk: &mut Desk<'_>) -> Result<()> {
    let mut reader = Reader::of_blocks("docs/alerts.md")?;
    reader.runs(desk, "kubectl -n actions-runner-system get pods", "pacer-").await?;
    reader.runs(desk, "kubectl -n actions-runner-system logs deployment/pacer --tail=50", FOUND).await?;
    let lease = "kubectl -n actions-runner-system get lease actions-runner-controller -o yaml";
    reader.runs(desk, lease, "renewTime").await?;
    reader.runs_with(desk, "kubectl describe rrs -n NS", &[("NS", "default")], "web-").await?;
    let words = [("NS", "default"), ("NAME", "web")];
    reader.runs_with(desk, "kubectl describe runners -n NS -l runner-deployment-name=NAME", &words, "web-").await?;
    let replaced = "kubectl get events -A --field-selector reason=RunnerReplaced";
    reader.runs(desk, replaced, "replaced runner").await?;
    reader.closes()
}

/// All but what those run whose runners hang in deletion.
async fn troubles(world: &World, desk: &mut Desk<'_>, runner: &str) -> Result<Reader> {
    let mut reader = Reader::of_blocks("docs/troubleshooting.md")?;
    let words = [("NAME", "web"), ("NS", "default")];
    desk.run("kubectl wait rdeploy/web --for=condition=Ready --timeout=300s").await?;
    reader.runs_with(desk, "pacer explain pool NAME -n NS", &words, "web").await?;
    reader.runs_with(desk, "pacer explain runner NAME -n NS", &[("NAME", runner), ("NS", "default")], runner).await?;
    reader.runs_with(desk, "kubectl describe rdeploy NAME -n NS", &words, "Conditions").await?;
    // A pool with which something is wrong: it is told, and the other one is not.
    apply(world, &with_spec(deployment("broken", 1), "repository", json!("acme/none"))).await?;
    let warnings = "kubectl get events -A --field-selector type=Warning";
    desk.run(&format!("until {warnings} | grep broken; do sleep 0.2; done")).await?;
    reader.runs(desk, warnings, "broken").await?;
    desk.run("kubectl wait rdeploy/broken --for=condition=Ready=false --timeout=300s").await?;
    let conditions = reader.finds("kubectl get rdeploy,rrs,runnersets,runners,hra -A -o json | jq ")?;
    let said = reader.runs(desk, &conditions, "RunnerDeployment default/broken: Ready ").await?;
    ensure!(!said.contains("RunnerDeployment default/web: Ready"), "{said}");
    desk.run("kubectl delete rdeploy broken").await?;
    reader.runs(desk, "kubectl -n actions-runner-system get pods", "pacer-").await?;
    let lease = reader.finds("kubectl -n actions-runner-system get lease ")?;
    reader.runs(desk, &lease, "_").await?;
    reader.runs(desk, "kubectl -n actions-runner-system logs deployment/pacer --tail=50", FOUND).await?;
    reader.runs(desk, "pacer policy status -A", "the shipped policies decide everything").await?;
    let of_pool = reader.finds("kubectl -n NS get rdeploy NAME -o jsonpath=")?;
    reader.runs_with(desk, &of_pool, &words, "Ready True").await?;
    reader.runs_with(desk, "kubectl get events -n NS --sort-by=.metadata.creationTimestamp", &words, "RunnerRemoved").await?;
    Ok(reader)
}

/// Runners that hang in deletion because no operator runs.
async fn hangs(world: &World, desk: &mut Desk<'_>, mut reader: Reader, operator: Operator) -> Result<()> {
    operator.terminate().await;
    let name = runner_of(world, "web").await?;
    desk.run(&format!("kubectl delete runner {name} --wait=false")).await?;
    let patch = reader.finds("kubectl -n NS patch runner NAME ")?;
    let is_it = |runner: &&Runner| runner.metadata.name.as_deref() == Some(name.as_str());
    let hangs = |all: &[&Runner]| all.iter().any(|runner| is_it(runner) && runner.metadata.deletion_timestamp.is_some());
    until::<Runner>(world, "a runner that hangs", hangs).await?;
    reader.runs_with(desk, &patch, &[("NS", "default"), ("NAME", &name)], "patched").await?;
    until::<Runner>(world, "the runner gone", |all| !all.iter().any(is_it)).await?;
    reader.closes()
}

async fn numbers(world: &World, desk: &Desk<'_>) -> Result<()> {
    let mut reader = Reader::of_blocks("docs/replicas.md")?;
    desk.run("kubectl create namespace ci").await?;
    apply(world, &in_namespace(with_spec(deployment("web", 1), "labels", json!(["ci"])), "ci")).await?;
    apply(world, &in_namespace(autoscaler("web", 1, 3), "ci")).await?;
    queue(world, "ci", 3, Duration::from_secs(1))?;
    succeeded(world, 3).await?;
    // Nobody waits for a receipt but who reads it.
    desk.run("until pacer policy receipts --pool web -n ci --decision capacity; do sleep 0.5; done").await?;
    reader.runs(desk, "kubectl get hra -n ci", "WHY").await?;
    reader.runs(desk, "pacer explain pool web -n ci", "web").await?;
    reader.runs(desk, "pacer policy receipts --pool web -n ci --decision capacity", "capacity").await?;
    let scaled = "kubectl get events -n ci --field-selector reason=Scaled";
    let events: Api<Event> = Api::namespaced(world.client.clone(), "ci");
    let told = |all: &[&Event]| all.iter().any(|event| event.reason.as_deref() == Some("Scaled"));
    world.check(objects::until(events, "", PATIENCE, told).await).await?;
    reader.runs(desk, scaled, "Scaled").await?;
    reader.closes()
}

/// What the page says on its port.
async fn served(path: &str) -> Result<String> {
    let (head, body) = http::get("127.0.0.1:8090", path).await?;
    ensure!(head.contains(" 200 OK"), "{head}");
    Ok(body)
}

/// Jobs of the record. A simulation that is too far off is refused, and what becomes of few jobs is chance.
const JOBS: usize = 12;

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_pages_about_records_of_a_fleet_work_as_they_stand() -> Result<()> {
    let world = cluster().await?;
    world.github.add(&Scope::organization("acme"));
    let mut desk = Desk::new(&world, "desk", &[]).await?;
    desk.has_a_cluster()?;
    let operator = installed(&world, &desk).await?;
    let mut trace = Reader::of_blocks("docs/trace.md")?;
    // A runner that is there, and jobs that come one after the other: how long the first pods take tells more of the machine than of the fleet.
    apply(&world, &with_spec(deployment("web", 1), "ephemeral", json!(false))).await?;
    apply(&world, &autoscaler("web", 1, 1)).await?;
    settled(&world, 1).await?;
    let began = desk.run("date -u +%FT%TZ").await?;
    let mut recorder = desk.start(trace.takes("pacer record --out week.jsonl.zst -A")?)?;
    // The recorder says nothing while it works, but for its file.
    desk.run("until [ -s week.jsonl.zst ]; do sleep 0.1; done").await?;
    for done in 1..=JOBS {
        queue(&world, "web", 1, Duration::from_secs(1))?;
        succeeded(&world, done).await?;
    }
    no_open_jobs(&world).await?;
    desk.run(&format!("kill -INT {}", recorder.id().context("the recorder has ended")?)).await?;
    ensure!(recorder.wait().await?.success(), "the recorder did not end well");
    let ended = desk.run("date -u +%FT%TZ").await?;

    trace.runs(&desk, "pacer trace check week.jsonl.zst", "records from").await?;
    trace.runs(&desk, "pacer trace summary week.jsonl.zst", "default/web").await?;
    let page = desk.begin(trace.takes("pacer ui --trace week.jsonl.zst")?, "http://127.0.0.1:8090/").await?;
    let told = served("/snapshot.json").await?;
    ensure!(told.contains("RunnerDeployment/default/web"), "{told}");
    end(page).await?;
    trace.runs(&desk, "pacer trace replay week.jsonl.zst", "come out of the recorded facts").await?;
    // The moments of the page are those of a week that nobody recorded here.
    let words = [("2026-11-20T06:00:00Z", began.trim()), ("2026-11-20T18:00:00Z", ended.trim())];
    let cut = trace.finds("pacer trace cut week.jsonl.zst ")?;
    trace.runs_with(&mut desk, &cut, &words, " records").await?;
    desk.write("key", "a key of at least sixteen characters")?;
    trace.runs(&desk, "pacer trace redact friday.jsonl --key-file key --out public.jsonl", " records").await?;
    let (friday, public) = (desk.run("cat friday.jsonl").await?, desk.run("cat public.jsonl").await?);
    ensure!(friday.contains("acme/app") && !public.contains("acme/app"), "{public}");
    ensure!(friday.lines().count() == public.lines().count(), "records are lost");
    // The operator's directory, as `kubectl cp` leaves it.
    desk.run("mkdir trace && cp week.jsonl.zst trace/trace-20261120T060000Z.jsonl.zst").await?;
    trace.runs(&desk, "pacer trace summary trace", "default/web").await?;

    let mut simulation = Reader::of_blocks("docs/simulate.md")?;
    desk.run("mkdir candidate").await?;
    desk.write("candidate/policies.yaml", "scale-down: builtin\n")?;
    simulation.runs(&desk, "pacer simulate --trace week.jsonl.zst", "wait").await?;
    let compare = simulation.finds("pacer simulate --trace week.jsonl.zst --policies ")?;
    simulation.runs(&desk, &compare, "| ").await?;
    simulation.closes()?;
    // The same condition the other way round is met by a set that changes nothing.
    let other = desk.try_to_run(&compare.replace("wait.p95 > +10%", "wait.p95 > -10%")).await?;
    ensure!(other.code.is_some_and(|code| code != 0), "{}", other.text);

    // From GitHub's history, with the token in the same shell.
    desk.variables.push(("GITHUB_URL", world.github.api_url()));
    let token = format!("GITHUB_TOKEN={}", world.github.pat());
    desk.words.push(("GITHUB_TOKEN=...", token));
    let commands = ["export GITHUB_TOKEN=...", "pacer trace import --organization acme --since 336h --out acme.jsonl.zst"];
    trace.takes(commands[0])?;
    trace.takes(commands[1])?;
    desk.run(&commands.join("\n")).await?;
    trace.runs(&desk, "pacer simulate --trace acme.jsonl.zst --assumed-start 45s --policies ./candidate", "wait").await?;
    trace.closes()?;

    look_at_the_page(&desk).await?;
    operator.terminate().await;
    end_as_it_is(world).await
}

async fn look_at_the_page(desk: &Desk<'_>) -> Result<()> {
    let mut reader = Reader::of_blocks("docs/page.md")?;
    reader.runs(desk, "kubectl -n actions-runner-system get deployments", "pacer").await?;
    let forward = reader.finds("kubectl -n actions-runner-system port-forward deployment/NAME 8090")?;
    let said = desk.try_to_run(&forward.replace("NAME", "pacer")).await?;
    ensure!(said.code == Some(1) && said.text.contains(NO_NODE), "{}", said.text);
    let lease = reader.finds("kubectl -n actions-runner-system get lease ")?;
    reader.runs(desk, &lease, "_").await?;
    let secret = reader.finds("kubectl -n actions-runner-system create secret generic pacer-ui ")?;
    reader.runs(desk, &secret, "created").await?;
    let token =
        desk.run(&format!("kubectl -n {NAMESPACE} get secret pacer-ui -o jsonpath='{{.data.token}}' | base64 -d")).await?;
    ensure!(token.len() == 64, "the page asks for sixteen characters: {token}");
    end(desk.begin(reader.takes("pacer ui --trace week.jsonl.zst")?, "http://127.0.0.1:8090/").await?).await?;
    desk.write("patient.yaml", "scale-down: builtin\n")?;
    desk.write("eager.yaml", "scale-down: builtin\n")?;
    let simulate = reader.finds("pacer simulate --trace week.jsonl.zst --policies patient.yaml ")?;
    reader.runs(desk, &simulate, "").await?;
    let report = "pacer ui --trace week.jsonl.zst --report report.json";
    let page = desk.begin(reader.takes(report)?, "http://127.0.0.1:8090/").await?;
    let told = served("/report.json").await?;
    ensure!(told.contains("patient.yaml") && told.contains("eager.yaml"), "{told}");
    end(page).await?;
    reader.closes()
}

async fn end(mut page: tokio::process::Child) -> Result<()> {
    Ok(page.kill().await?)
}
