//! One decision of a set changed from the command line, and what the operator made of it.

use std::path::Path;
use std::process::Command;

use pacer_harness::operator::binary;

use super::*;

/// What `pacer policy` says, and whether it ends well.
pub(crate) async fn policy(world: &World, arguments: &[&str]) -> Result<(bool, String)> {
    let mut command = Command::new(binary().await?);
    command.arg("policy").args(arguments).env("KUBECONFIG", world.plane.kubeconfig_path());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Ok((output.status.success(), text))
}

/// As [`policy`], where it has to end in this way and say all of that.
pub(crate) async fn said(world: &World, arguments: &[&str], well: bool, parts: &[&str]) -> Result<String> {
    let (ended_well, text) = policy(world, arguments).await?;
    ensure!(ended_well == well, "pacer policy {arguments:?}: {text}");
    for part in parts {
        ensure!(text.contains(part), "no {part:?} in what pacer policy {arguments:?} says: {text}");
    }
    Ok(text)
}

async fn set_of(world: &World) -> Result<ConfigMap> {
    Ok(Api::<ConfigMap>::namespaced(world.client.clone(), OWN).get("pacer-policies").await?)
}

fn sheet(set: &ConfigMap) -> &str {
    set.data.as_ref().and_then(|data| data.get("policies.yaml")).map_or("", String::as_str)
}

fn component(directory: &Path, name: &str, guest: &Guest) -> Result<String> {
    let path = directory.join(name);
    std::fs::write(&path, guest.component())?;
    Ok(path.display().to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_decision_is_set_promoted_switched_off_and_taken_back_and_the_others_stay() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let directory = std::env::temp_dir().join(format!("pacer-verbs-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let first = component(directory.as_path(), "first.wasm", &Guest::choosing(&[(0, "the first")]))?;
    let second = component(directory.as_path(), "second.wasm", &Guest::choosing(&[(0, "the second")]))?;
    apply(&world, &deployment("web", 4)).await?;
    settled(&world, 4).await?;

    said(
        &world,
        &["set", "scale-down", &first],
        false,
        &["there is no ConfigMap actions-runner-system/pacer-policies", "--create"],
    )
    .await?;
    let parts = ["scale-down: not mentioned -> guest.wasm.gz", "in force after", "scale-down by guest@sha256:"];
    said(&world, &["set", "scale-down", &first, "--create"], true, &parts).await?;
    said(&world, &["set", "restart", "builtin"], true, &["restart: not mentioned -> builtin", "in force"]).await?;
    goes(&world, "the first").await?;

    // Nothing is changed without need, nor by a dry run.
    let before = set_of(&world).await?;
    said(&world, &["set", "restart", "builtin"], true, &["nothing to change"]).await?;
    said(&world, &["set", "scale-down", &second, "--dry-run"], true, &["would change", "guest.wasm.gz"]).await?;
    let after = set_of(&world).await?;
    ensure!((&before.data, &before.binary_data) == (&after.data, &after.binary_data), "{after:?}");

    // In shadow beside the one that decides, then promoted.
    said(
        &world,
        &["set", "scale-down", &second, "--mode", "shadow"],
        true,
        &["scale-down in shadow: not mentioned ->", "in shadow by"],
    )
    .await?;
    ensure!(set_of(&world).await?.binary_data.is_some_and(|modules| modules.len() == 2));
    said(&world, &["promote", "scale-down"], true, &["scale-down in shadow: ", "-> not mentioned", "in force"]).await?;
    let promoted = set_of(&world).await?;
    ensure!(sheet(&promoted).contains("restart: builtin") && !sheet(&promoted).contains("shadow"), "{}", sheet(&promoted));
    ensure!(promoted.binary_data.is_some_and(|modules| modules.len() == 1), "the module that nobody names is gone");
    goes(&world, "the second").await?;
    said(&world, &["promote", "scale-down"], false, &["no policy in shadow for scale-down"]).await?;

    // One decision off and on; then all.
    said(&world, &["disable", "scale-down"], true, &["-> builtin", "in force"]).await?;
    goes(&world, ": idle ").await?;
    said(&world, &["enable", "scale-down"], true, &["builtin -> ", "in force"]).await?;
    said(&world, &["disable"], true, &["the set is switched off", "the shipped policies decide after"]).await?;
    status(&world, OWN, "pacer-policies", "the set switched off", phase("Disabled")).await?;
    said(&world, &["enable"], true, &["the set is switched on", "in force after"]).await?;

    // What the operator would refuse is not sent; a pool that nobody has is told from a set.
    let refused = directory.join("settings.yaml");
    std::fs::write(&refused, "idleBucketSeconds: soon\n")?;
    let settings = refused.display().to_string();
    said(&world, &["set", "restart", "--settings", &settings], false, &["left as it is", "PolicySettingsInvalid", "what to do"])
        .await?;
    said(&world, &["disable", "--set", "nobody"], false, &["there is no ConfigMap default/nobody"]).await?;
    said(&world, &["disable", "-n", "default"], false, &["--namespace has no effect on the cluster's default set"]).await?;

    // The content before: the policy that a set of other words had.
    let third = component(directory.as_path(), "third.wasm", &Guest::choosing(&[(0, "the third")]))?;
    said(&world, &["set", "scale-down", &third], true, &["in force"]).await?;
    said(&world, &["rollback", "scale-down"], true, &["back to sha256:", "in force"]).await?;
    scale(&world, "web", 4).await?;
    settled(&world, 4).await?;
    goes(&world, "the second").await?;

    // A set that nobody asks for gets no word.
    put(&world, NAMESPACE, "unasked", "restart: builtin\n", &[]).await?;
    let silent = ["disable", "--set", "unasked", "-n", NAMESPACE, "--timeout", "1s"];
    said(
        &world,
        &silent,
        false,
        &["is changed, but within 1 s the operator has said nothing about this set", "does a pool ask for this set"],
    )
    .await?;
    std::fs::remove_dir_all(&directory)?;
    end_as_it_is(world).await
}
