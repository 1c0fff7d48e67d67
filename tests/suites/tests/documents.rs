//! What readers copy from the documentation: manifests are accepted as they stand. Commands are run by the suite `chart`.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use pacer_harness::controlplane::Apply;
use pacer_harness::world::World;
use pacer_suites::{page, world};

const GETTING_STARTED: &str = "docs/getting-started.md";

/// Pages whose manifests stand for themselves. Others show parts of one, or have gaps for the reader to fill.
const PAGES: [&str; 5] = ["README.md", GETTING_STARTED, "docs/policy-sets.md", "docs/security.md", "docs/tenancy.md"];

fn read(page: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    std::fs::read_to_string(path).with_context(|| page.to_owned())
}

/// The blocks of YAML that are manifests of Kubernetes, without those that leave something out.
fn manifests(page: &str) -> Vec<&str> {
    page::in_language(page, "yaml").filter(|block| block.contains("apiVersion: ") && !block.contains(" ...")).collect()
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
