//! A kernel that can't lock in the processes that run policies: they run, and everybody is told; or the operator refuses to start.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pacer_api::condition::{ConditionType, Verdict};
use pacer_api::names::annotation;
use pacer_harness::operator::OperatorError;
use pacer_suites::{NAMESPACE, PATIENCE, apply, brisk_world, deployment, settled};
use seccompiler::{SeccompAction, SeccompFilter, apply_filter};
use serde_json::json;

use super::{condition, figure, goes, phase, put, status};
use crate::guest::Guest;

/// Runs something where the kernel seems to have neither Landlock nor seccomp, for it and for whatever it starts.
fn without_locks(what: impl AsyncFnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let run = move || -> Result<()> {
        let absent = [libc::SYS_landlock_create_ruleset, libc::SYS_seccomp].map(|call| (call, Vec::new()));
        let errno = SeccompAction::Errno(u32::try_from(libc::ENOSYS)?);
        let filter = SeccompFilter::new(BTreeMap::from(absent), SeccompAction::Allow, errno, std::env::consts::ARCH.try_into()?)?;
        let program: seccompiler::BpfProgram = filter.try_into()?;
        // Of this thread, and so of those that it starts.
        apply_filter(&program)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(what())
    };
    thread::spawn(run).join().map_err(|_| anyhow::anyhow!("it panicked"))?
}

#[test]
fn policies_run_and_everybody_is_told_where_the_kernel_has_no_locks() -> Result<()> {
    without_locks(async || {
        let mut world = brisk_world(&[], |_| {}).await?;
        let mut web = deployment("web", 3);
        web["metadata"]["annotations"] = json!({annotation::POLICIES: "opinions"});
        apply(&world, &web).await?;
        settled(&world, 3).await?;
        put(&world, NAMESPACE, "opinions", "scale-down: {module: m}\n", &[("m", &Guest::choosing(&[(0, "of a loose one")]))])
            .await?;
        let said = status(&world, NAMESPACE, "opinions", "the set", phase("Active")).await?;
        ensure!(said["isolation"].as_str().is_some_and(|level| level.starts_with("none (missing: Landlock, seccomp")), "{said}");
        let message = condition(&world, ConditionType::PolicyIsolated, Verdict::False, "LocksMissing").await?;
        ensure!(message.contains("missing: Landlock, seccomp") && message.contains("--require-policy-isolation"), "{message}");
        ensure!(figure(&world, "pacer_policy_isolation{level=\"none\"}").await == 1, "the metric says something else");
        ensure!(figure(&world, "pacer_policy_isolation{level=\"full\"}").await == 0, "the metric says two things");
        goes(&world, "of a loose one").await?;

        let operator = world.operator.as_mut().context("no operator")?;
        ensure!(
            operator.logs().contains("policies run in processes that are not locked in fully"),
            "{}",
            operator.log_tail(4_000)
        );
        operator.terminate().await;
        let log = match operator.restart_with(&["--require-policy-isolation"]).await {
            Err(OperatorError::NotReady { log, .. }) => log,
            Err(other) => return Err(other.into()),
            // It serves metrics before it looks.
            Ok(()) => {
                let exited = async {
                    while operator.exit().is_none() {
                        // Nobody announces the end of a process.
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                };
                ensure!(tokio::time::timeout(PATIENCE, exited).await.is_ok(), "it goes on: {}", operator.log_tail(4_000));
                ensure!(operator.exit().is_some_and(|status| !status.success()), "it ended well");
                operator.logs()
            }
        };
        ensure!(log.contains("policies are not isolated: none"), "{log}");
        world.stop().await;
        Ok(())
    })
}
