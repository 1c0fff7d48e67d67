//! A policy in Rust that fails at work: its own words, and the place, reach the people who ask.

use std::path::{Path, PathBuf};
use std::process::Command;

use pacer_harness::operator::binary;

use super::verbs::said;
use super::*;

/// What is written in the source of the policy that fails.
const SOURCE: &str = "tests/guests/panicking/src/lib.rs";

/// What cargo sets for the tests and must not reach a build for another target.
const HOST_ONLY: [&str; 4] = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR"];

/// The module as authors build theirs.
fn built() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let target = root.join("target/policies");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(&root).args(["build", "--locked", "-p", "pacer-policy-panicking", "--profile", "policy"]);
    cargo.args(["--target", "wasm32-unknown-unknown", "--target-dir"]).arg(&target);
    for name in HOST_ONLY {
        cargo.env_remove(name);
    }
    let output = cargo.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(target.join("wasm32-unknown-unknown/policy/pacer_policy_panicking.wasm"))
}

/// What `pacer explain runner` says.
async fn explained(world: &World, runner: &str) -> Result<String> {
    let mut command = Command::new(binary().await?);
    command.args(["explain", "runner", runner, "-n", NAMESPACE]).env("KUBECONFIG", world.plane.kubeconfig_path());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The line of the source that has this.
fn line_of(code: &str) -> Result<usize> {
    let source = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(SOURCE))?;
    Ok(1 + source.lines().position(|line| line.contains(code)).context("it is in the source")?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_in_rust_that_panics_is_quoted_with_its_place() -> Result<()> {
    let module = tokio::task::spawn_blocking(built).await??;
    let world = brisk_world(&[], |_| {}).await?;
    let directory = tempfile::tempdir()?;
    let file = |name: &str| directory.path().join(name).display().to_string();
    said(&world, &["componentize", &module.display().to_string(), "-o", &file("panicking.wasm")], true, &[]).await?;

    // What the author sees, for each way to fail.
    let index =
        format!("it panicked: index out of bounds: the len is 2 but the index is 2, at {SOURCE}:{}", line_of("candidates[")?);
    let value = format!("it panicked: with a value that is no text, at {SOURCE}:{}", line_of("panic_any(7)")?);
    let lines = format!("it panicked: one line and [31manother, at {SOURCE}:{}", line_of("another")?);
    let long = format!("…, at {SOURCE}:{}", line_of("too much ")?);
    for (how, says) in [
        ("index", index.as_str()),
        ("value", &value),
        ("lines", &lines),
        ("long", &long),
        ("trap", "it trapped: unreachable, in pacer_policy_panicking::gives_up"),
        ("depth", "it overflowed its stack, in pacer_policy_panicking::deeper"),
    ] {
        let request = json!({"candidates": [{"name": "a"}, {"name": "b"}], "surplus": 1});
        let case = json!({"decision": "scale-down", "settings": {"how": how}, "request": request, "answer": []});
        std::fs::write(file("case.json"), case.to_string())?;
        said(&world, &["test", &file("panicking.wasm"), &file("case.json")], false, &[says]).await?;
        let text = said(&world, &["run", &file("panicking.wasm"), "--input", &file("case.json")], false, &[says]).await?;
        ensure!(text.lines().all(|line| line.len() < 1_200) && !text.contains('\u{1b}'), "{text}");
    }
    std::fs::write(file("settings.json"), "{\"how\": \"always\"}")?;
    let always =
        format!("scale-down of 0 items gave no usable answer (panic): it panicked: of 0, at {SOURCE}:{}", line_of("of {}")?);
    said(&world, &["bench", &file("panicking.wasm"), "--settings", &file("settings.json")], false, &[&always]).await?;
    std::fs::write(file("policies.yaml"), "scale-down: {module: panicking.wasm, settings: {how: always}}\n")?;
    let refused = format!("fails on the empty request: it panicked: of 0, at {SOURCE}:{}", line_of("of {}")?);
    said(&world, &["check", &file("policies.yaml")], false, &[&refused]).await?;

    // What the people on call see.
    let sheet = "scale-down: {module: m, settings: {how: index}}\n";
    fleet(&world, 6).await?;
    put_files(&world, NAMESPACE, "opinions", sheet, vec![("m", std::fs::read(&module)?)]).await?;
    status(&world, NAMESPACE, "opinions", "the policy that fails", phase("Active")).await?;
    let place = format!(", at {SOURCE}:{}", line_of("candidates[")?);
    let mut removed = None;
    // A call has a second by the clock, in which a machine that is busy elsewhere may not run it. Then the next decision is asked for.
    for _ in 0..4 {
        one_less(&world).await?;
        let receipts = ["receipts", "-n", NAMESPACE, "--pool", "web", "--decision", "scale-down", "--last", "1", "-o", "json"];
        let receipt: Value = serde_json::from_str(&said(&world, &receipts, true, &[]).await?)?;
        let fault = &receipt["receipt"]["attempts"][0]["fault"];
        let text = fault["detail"].as_str().unwrap_or_default();
        if fault["kind"] == "panic" && text.starts_with("panic: index out of bounds: the len is ") && text.ends_with(&place) {
            removed = receipt["items"][0]["name"].as_str().map(str::to_owned);
            break;
        }
        ensure!(fault["kind"] == "deadline", "{receipt}");
    }
    let told = explained(&world, removed.as_deref().context("the deadline was always first")?).await?;
    ensure!(told.contains("failed: it panicked: index out of bounds: the len is ") && told.contains(&place), "{told}");
    event_in(&world, NAMESPACE, "PolicyFault", &place).await?;
    status(&world, NAMESPACE, "opinions", "the fault", |status| {
        let fault = status["decisions"]["scale-down"]["enforced"]["lastFault"].as_str();
        fault.is_some_and(|fault| fault.starts_with("it panicked: index out of bounds") && fault.ends_with(&place))
    })
    .await?;
    world.stop().await;
    Ok(())
}
