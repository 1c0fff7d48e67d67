//! Hostile policies through the operator: whatever a ConfigMap holds, the fleet goes on, and status, metric and Event say what is wrong.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use pacer_suites::{NAMESPACE, apply, brisk_world, deployment, no_busy_kill, scale, settled};
use serde_json::Value;

use super::{OWN, event_in, figure, goes, metric, metrics, one_less, phase, put, put_files, status};
use crate::guest::Guest;

/// The default set of the operator.
const SET: &str = "pacer-policies";

const ENFORCED: &str = "scale-down: {module: m}\n";

fn component(text: &str) -> Result<Vec<u8>> {
    wat::parse_str(text).context("a component as text")
}

/// Five MiB in five KiB.
fn bomb() -> Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&vec![0; 5 << 20])?;
    Ok(packed.finish()?)
}

/// What is refused before it decides anything, with the reason.
fn refused() -> Result<Vec<(&'static str, Vec<u8>, &'static str)>> {
    let good = Guest::choosing(&[(0, "never")]);
    let whole = good.component();
    let half = whole.get(..whole.len() / 2).unwrap_or_default().to_vec();
    let forever = "(loop $again (br $again)) unreachable";
    Ok(vec![
        ("a core module", component("(module)")?, "PolicyNotAComponent"),
        ("native code", b"\x7fELF\x02\x01\x01\0rest".to_vec(), "PolicyIsNativeCode"),
        ("a truncated component", half, "PolicyInvalid"),
        ("a bomb", bomb()?, "PolicyDecompressionBomb"),
        ("damaged gzip", b"\x1f\x8bdamaged".to_vec(), "PolicyCompressionInvalid"),
        ("memory64", component("(component (core module (memory i64 1)))")?, "PolicyInvalid"),
        ("two memories", component("(component (core module (memory 1) (memory 1)))")?, "PolicyInvalid"),
        ("WASI", component(r#"(component (import "wasi:cli/environment@0.2.3" (instance)))"#)?, "PolicyImportDenied"),
        ("another import", component(r#"(component (import "steal" (func)))"#)?, "PolicyImportDenied"),
        (
            "another contract",
            component(r#"(component (instance $none) (export "pacer:policy/scale-down@0.3.0" (instance $none)))"#)?,
            "PolicyContractVersion",
        ),
        (
            "other records",
            good.clone().contract("        surplus: u32,\n", "        surplus: u64,\n").component(),
            "PolicyTypeMismatch",
        ),
        (
            "a loop at the start",
            good.clone().with("(func $start (loop $again (br $again))) (start $start)").component(),
            "PolicyStartFailed",
        ),
        ("too much memory", good.clone().memory("(memory (export \"memory\") 1000)").component(), "PolicyStartFailed"),
        ("a loop in describe", good.describing(forever).component(), "PolicyDescribeFailed"),
        ("a loop on ordinary requests", Guest::select(forever).unrehearsed().component(), "PolicySmokeFailed"),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_refused_is_named_and_the_set_before_it_decides() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    apply(&world, &deployment("web", 3)).await?;
    settled(&world, 3).await?;
    put(&world, OWN, SET, ENFORCED, &[("m", &Guest::choosing(&[(0, "the good one")]))]).await?;
    let good = status(&world, OWN, SET, "the good set", phase("Active")).await?;
    for (refusals, (what, module, reason)) in (1..).zip(refused()?) {
        put_files(&world, OWN, SET, ENFORCED, vec![("m", module)]).await?;
        metric(&world, "pacer_policy_set_refusals_total", |count| count == refusals).await.context(what)?;
        let said = status(&world, OWN, SET, what, |status| status["lastError"]["reason"] == reason).await?;
        ensure!(said["phase"] == "LastGood" && said["digest"] == good["digest"], "{what}: {said}");
        event_in(&world, OWN, "PolicyRefused", reason).await.context(what)?;
    }
    // Settings that the policy itself refuses.
    put(&world, OWN, SET, "capacity: {module: builtin, settings: {noSuchSetting: 1}}\n", &[]).await?;
    status(&world, OWN, SET, "refused settings", |status| status["lastError"]["reason"] == "PolicySettingsInvalid").await?;
    event_in(&world, OWN, "PolicyRefused", "noSuchSetting").await?;
    goes(&world, "the good one").await?;
    scale(&world, "web", 0).await?;
    settled(&world, 0).await?;
    world.stop().await;
    Ok(())
}

/// What passes every check and turns against the host afterwards, with the kind of the fault and its text.
fn hostile() -> Vec<(Guest, &'static str, &'static str)> {
    let bomb = "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 64)) (i32.const -1)))) unreachable";
    let deep = Guest::select("(call $deep (i32.const 0))")
        .with("(func $deep (param i32) (result i32) (i32.add (call $deep (i32.add (local.get 0) (i32.const 1))) (i32.const 1)))");
    let large = Guest::returning(true, 131_072, 8 << 20, "(drop (memory.grow (i32.const 130)))");
    vec![
        (Guest::select("(loop $again (br $again)) unreachable"), "fuel", "it used up its budget of instructions"),
        (Guest::select(bomb), "memory", "it asked for more memory than it may have"),
        (deep, "stack", "it overflowed its stack"),
        (Guest::select("unreachable"), "panic", "it trapped: unreachable"),
        (large, "hostcall-data", "it returned more data than it may"),
        (Guest::choosing(&[(99, "a")]), "invalid-output", "index 99 is outside"),
        (Guest::returning(true, 2_164, 6, ""), "policy-error", "it answered with an error: wrong!"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_fails_at_work_is_named_and_the_shipped_policy_decides() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    apply(&world, &deployment("web", 12)).await?;
    settled(&world, 12).await?;
    let text = "scale-down: {module: m, limits: {fuel: 1000000}}\n";
    let mut before = Value::Null;
    for (guest, kind, says) in hostile() {
        put(&world, OWN, SET, text, &[("m", &guest)]).await?;
        let active = status(&world, OWN, SET, kind, |status| status["phase"] == "Active" && status["digest"] != before).await?;
        before = active["digest"].clone();
        let began = Instant::now();
        let faults = |kind: &str| format!("pacer_policy_faults_total{{kind=\"{kind}\"}}");
        // A call has a second by the clock, in which a machine that is busy elsewhere may not run it. Then the next decision is asked for.
        loop {
            let late = figure(&world, &faults("deadline")).await;
            one_less(&world).await?;
            let one_of = [faults(kind), faults("deadline")];
            metrics(&world, &one_of, |counts| counts[0] > 0 || counts[1] > late).await.context(kind)?;
            if figure(&world, &faults(kind)).await > 0 {
                break;
            }
        }
        println!("{kind}: one less after {:?}", began.elapsed());
        event_in(&world, NAMESPACE, "PolicyFault", says).await.context(kind)?;
        let named = |status: &Value| {
            status["decisions"]["scale-down"]["enforced"]["lastFault"].as_str().is_some_and(|fault| fault.contains(says))
        };
        status(&world, OWN, SET, says, named).await?;
    }
    no_busy_kill(&world).await?;
    world.stop().await;
    Ok(())
}
