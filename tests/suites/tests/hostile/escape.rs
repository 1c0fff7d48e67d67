//! The process that answers a user's policy, as a real operator runs it. What such a process tries when it is told to escape is in
//! `host/pacer/tests/jail.rs`; that it would be the same here follows from what the kernel says of it.

use std::fs;

use anyhow::{Context, Result, ensure};
use pacer_suites::{apply, brisk_world, deployment, end_as_it_is, scale, settled};

use super::contents::{SET, put_set, said};
use crate::guest::Guest;

/// A value of `/proc/PID/status`.
fn status(process: u32, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix(field)?.strip_prefix(':')?.trim().to_owned()))
}

/// What a process has open.
fn open_in(process: &str) -> Result<Vec<String>> {
    let files = fs::read_dir(format!("/proc/{process}/fd"))?.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    Ok(files.map(|file| file.to_string_lossy().into_owned()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn process_that_answers_for_a_policy_of_a_user_holds_nothing() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    apply(&world, &deployment("web", 2)).await?;
    settled(&world, 2).await?;
    put_set(&world, "actions-runner-system", SET, Guest::choosing(&[(0, "of a user")]).component()).await?;
    said(&world, "actions-runner-system", SET, |status| status["phase"] == "Active").await?;
    scale(&world, "web", 1).await?;
    settled(&world, 1).await?;
    let operator = world.operator.as_ref().context("no operator")?;
    // The check at the start, in which such a process tries all that it must not have.
    let metrics = operator.metrics().await?;
    ensure!(metrics.lines().any(|line| line == "pacer_policy_isolation{level=\"full\"} 1"), "it is not locked in fully");

    let children = operator.children()?;
    let left_open = open_in("self")?;
    ensure!(!children.is_empty(), "nobody answers for policies");
    for child in children {
        // A filter of system calls, and no privileges that would undo it.
        ensure!(status(child, "Seccomp").as_deref() == Some("2"), "{child}: {:?}", status(child, "Seccomp"));
        ensure!(status(child, "NoNewPrivs").as_deref() == Some("1"), "{child}");
        let environment = fs::read(format!("/proc/{child}/environ"))?;
        ensure!(environment == b"MALLOC_ARENA_MAX=1\0", "{child}: {}", String::from_utf8_lossy(&environment));
        ensure!(fs::read_to_string(format!("/proc/{child}/oom_score_adj"))?.trim() == "1000", "{child}");
        let open = open_in(&child.to_string())?;
        // Whoever started this test may have left something open to everybody. It is of no use there: reading and writing it is denied.
        let known = |file: &String| file.starts_with("socket:") || file == "/dev/null" || left_open.contains(file);
        ensure!(open.iter().all(known), "{child} has {open:?} open");
        let limits = fs::read_to_string(format!("/proc/{child}/limits"))?;
        for limit in ["Max open files            0", "Max processes             0", "Max file size             0"] {
            ensure!(limits.contains(limit), "{child}: {limit} is not in\n{limits}");
        }
        ensure!(limits.lines().any(|line| line.starts_with("Max address space") && !line.contains("unlimited")), "{limits}");
    }
    end_as_it_is(world).await
}
