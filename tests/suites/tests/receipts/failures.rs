//! What policies are told of failures that happened before the operator was started.

use super::*;

/// Takes anybody, and asks for failures.
const ASKING: &str = r#"
export const name = "asking";
export const reads = ["failures"];
export function scaleDown({ candidates, surplus }) {
  return candidates.map((_, index) => ({ index, reason: "any" })).slice(0, surplus);
}
"#;

/// What the newest receipt of a scale-down says of failures: those of each node where there are any, and those of the image.
fn failures(world: &World) -> Result<(BTreeMap<String, String>, String)> {
    let told = newest(world, "scale-down")?;
    let nodes = told["input"]["nodes"].as_array().context("nodes")?;
    let of_node = |node: &Value| Some((node["name"].as_str()?.to_owned(), (*attributes(node).get("failures")?).to_owned()));
    let image = attributes(&told["input"]["pool"]).get("image-failures").map(|count| (*count).to_owned());
    Ok((nodes.iter().filter_map(of_node).filter(|(_, count)| count != "0").collect(), image.context("no failures of the image")?))
}

/// Has a runner fail, and waits until another one is there in its place. Returns its node.
async fn fail(world: &World, count: usize) -> Result<String> {
    let nodes = world.nodes.as_ref().context("no nodes")?;
    let victim = names(world).await?.into_iter().next().context("no runner")?;
    let node = nodes.node_of(NAMESPACE, &victim).context("its node")?;
    nodes.crash(NAMESPACE, &victim, 3).await?;
    until::<Runner>(world, "another one", |all| all.len() == count && all.iter().all(|one| one.name_any() != victim)).await?;
    settled(world, count).await?;
    Ok(node)
}

/// A new process stages the policies of pools anew; until it has, the shipped one decides, which asks for nothing.
async fn opinions_decide_again(world: &World) -> Result<()> {
    let operator = world.operator.as_ref().context("no operator")?;
    let is_active = |line: &str| {
        let words = ["pacer_policy_set_phase{", "set=\"opinions\"", "phase=\"Active\""];
        words.iter().all(|word| line.contains(word)) && line.ends_with(" 1")
    };
    let active = async {
        while !operator.metrics().await?.lines().any(is_active) {
            // Metrics announce nothing.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, active).await.context("waiting for the policy that asks, in the new process")?
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_the_last_hour_are_told_after_a_kill_of_the_operator() -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    // Wherever another one starts, it is on the node of which the policy is told.
    let nodes = world.nodes.as_ref().context("no nodes")?;
    for node in ["node-1", "node-2", "node-3"] {
        nodes.cordon(node, true).await?;
    }
    apply(&world, &opinions("scale-down: {module: policy.js}", ASKING)).await?;
    let mut web = deployment("web", 4);
    web["metadata"]["annotations"] = json!({annotation::POLICIES: "opinions"});
    apply(&world, &web).await?;
    settled(&world, 4).await?;
    opinions_decide(&world).await?;
    ensure!(fail(&world, 4).await? == "node-0", "it ran on another node");

    world.operator.as_mut().context("no operator")?.kill9().await;
    operator_again(&mut world).await?;
    opinions_decide_again(&world).await?;
    lower(&world, 3).await?;
    let one = (BTreeMap::from([("node-0".to_owned(), "1".to_owned())]), "1".to_owned());
    ensure!(failures(&world)? == one, "{:?}", failures(&world)?);

    // Its own count beside it, each once.
    fail(&world, 3).await?;
    lower(&world, 2).await?;
    let two = (BTreeMap::from([("node-0".to_owned(), "2".to_owned())]), "2".to_owned());
    ensure!(failures(&world)? == two, "{:?}", failures(&world)?);
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}
