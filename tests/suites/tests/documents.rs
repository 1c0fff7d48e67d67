//! What readers copy from the documentation: the first runner of the getting-started page does a job, and manifests are accepted as they stand.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pacer_api::{Runner, RunnerDeployment};
use pacer_harness::controlplane::Apply;
use pacer_harness::github::{JobSpec, Scope};
use pacer_harness::world::World;
use pacer_suites::{end_as_it_is, runners, succeeded, until, world};

const GETTING_STARTED: &str = "docs/getting-started.md";

/// Pages whose manifests stand for themselves. Others show parts of one, or have gaps for the reader to fill.
const PAGES: [&str; 5] = ["README.md", GETTING_STARTED, "docs/policy-sets.md", "docs/security.md", "docs/tenancy.md"];

fn read(page: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    std::fs::read_to_string(path).with_context(|| page.to_owned())
}

/// The blocks of YAML that are manifests of Kubernetes, without those that leave something out.
fn manifests(page: &str) -> Vec<&str> {
    let blocks = page.split("\n```yaml\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    blocks.filter(|block| block.contains("apiVersion: ") && !block.contains(" ...")).collect()
}

/// Namespaces that a manifest names.
fn namespaces(manifest: &str) -> impl Iterator<Item = &str> {
    manifest.lines().filter_map(|line| line.strip_prefix("  namespace: "))
}

async fn make_namespaces(world: &World, manifest: &str, made: &mut BTreeSet<String>) -> Result<()> {
    for namespace in namespaces(manifest) {
        if made.insert(namespace.to_owned()) {
            world.plane.namespace(namespace).await?;
        }
    }
    Ok(())
}

/// Those that every control plane of the suites has.
fn made_before() -> BTreeSet<String> {
    ["default", "actions-runner-system"].map(str::to_owned).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn first_runner_of_the_getting_started_page_does_a_job() -> Result<()> {
    let world = world(|_| {}).await?;
    world.github.add(&Scope::repository("OWNER", "REPOSITORY"));
    let page = read(GETTING_STARTED)?;
    let all = manifests(&page);
    let first = all.first().context("no manifest")?;
    world.plane.apply_text(first, Apply::ClientSide).await?;
    runners(&world, "the first runner", |counts| counts.online == 1).await?;

    // Found in the queue, as no webhook tells of it.
    world.github.queue_job(JobSpec::new("OWNER/REPOSITORY", ["first"]).lasting(Duration::from_secs(1)))?;
    succeeded(&world, 1).await?;
    runners(&world, "its successor", |counts| counts.online == 1).await?;

    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), first)?;
    let output = world.plane.kubectl(&["delete", "--filename", &file.path().to_string_lossy()]).await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    runners(&world, "no runner", |counts| counts.registered == 0).await?;
    until::<RunnerDeployment>(&world, "no RunnerDeployment", |all| all.is_empty()).await?;
    until::<Runner>(&world, "no Runner", |all| all.is_empty()).await?;
    end_as_it_is(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_of_the_documentation_are_accepted_by_the_api_server() -> Result<()> {
    let world = world(|options| {
        options.operator = None;
        options.nodes = None;
    })
    .await?;
    let mut made = made_before();
    let mut applied = 0;
    for page in PAGES {
        for manifest in manifests(&read(page)?) {
            make_namespaces(&world, manifest, &mut made).await.with_context(|| page.to_owned())?;
            let outcome = world.plane.apply_text(manifest, Apply::ServerSide).await;
            outcome.with_context(|| format!("{page}:\n{manifest}"))?;
            applied += 1;
        }
    }
    ensure!(applied >= 5, "{applied} manifests in {PAGES:?}");
    world.stop().await;
    Ok(())
}
