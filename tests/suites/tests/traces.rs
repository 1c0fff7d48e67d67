//! Recording a cluster, and running the record again: what `pacer record`, `pacer trace` and `pacer simulate` say of a burst.

#![allow(
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test whose scene can't be set has failed; its figures are for people"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pacer_api::Runner;
use pacer_harness::world::World;
use pacer_suites::webhook::hooked_world;
use pacer_suites::{NAMESPACE, PATIENCE, apply, deployment, queue, until, with_spec};
use serde_json::{Value, json};

/// How long the runners of this suite start, in seconds, beside what the API server takes.
const START: u64 = 3;

fn binary() -> PathBuf {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/debug/pacer");
    std::env::var_os("PACER_BIN").map_or_else(|| PathBuf::from(built), PathBuf::from)
}

/// What `pacer` prints, and whether it ends well.
async fn pacer(arguments: &[&str]) -> Result<(bool, String, String)> {
    let mut command = Command::new(binary());
    command.args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.success(), text(&output.stdout), text(&output.stderr)))
}

/// A recorder that ends with this.
struct Recorder(Child);

impl Recorder {
    fn start(world: &World, file: &Path) -> Result<Self> {
        let child = Command::new(binary())
            .args(["record", "-n", NAMESPACE, "--idle-confirmation=0s", "--out"])
            .arg(file)
            .env("KUBECONFIG", world.plane.kubeconfig_path())
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }

    /// Ends it as a service manager does.
    async fn stop(mut self) -> Result<()> {
        ensure!(Command::new("kill").arg(self.0.id().to_string()).status()?.success(), "the recorder is gone");
        let status = loop {
            if let Some(status) = self.0.try_wait()? {
                break status;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        ensure!(status.success(), "the recorder ended with {status}");
        Ok(())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// Waits until the file holds so many records of a kind.
async fn recorded(world: &World, file: &Path, kind: &str, count: usize) -> Result<()> {
    let began = Instant::now();
    let word = format!("\"kind\":\"{kind}\"");
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let found = text.lines().filter(|line| line.contains(&word)).count();
        if found >= count {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            world.check(Err::<(), _>(format!("{found} of {count} records {kind}"))).await?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_burst_is_reproduced_by_the_simulator() -> Result<()> {
    let world = hooked_world(&[]).await?;
    let delay = json!([{"name": "STARTUP_DELAY_IN_SECONDS", "value": START.to_string()}]);
    apply(&world, &with_spec(deployment("web", 0), "env", delay)).await?;
    apply(
        &world,
        &json!({
            "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler",
            "metadata": {"name": "web", "namespace": NAMESPACE},
            "spec": {
                "scaleTargetRef": {"name": "web"}, "minReplicas": 0, "maxReplicas": 8, "scaleDownDelaySecondsAfterScaleOut": 0,
                "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}],
            },
        }),
    )
    .await?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("burst.jsonl");
    let path = file.to_str().context("a path")?;
    let recorder = Recorder::start(&world, &file)?;
    recorded(&world, &file, "pool", 1).await?;

    // A burst that the maximum lets in two waves, then one of another length, and the recorder is started again in between.
    queue(&world, "web", 16, Duration::from_secs(12))?;
    recorded(&world, &file, "job-completed", 16).await?;
    recorder.stop().await?;
    let recorder = Recorder::start(&world, &file)?;
    recorded(&world, &file, "resumed", 1).await?;
    queue(&world, "web", 6, Duration::from_secs(8))?;
    recorded(&world, &file, "job-completed", 22).await?;
    until::<Runner>(&world, "no runner", |all| all.is_empty()).await?;
    recorded(&world, &file, "runner-ended", 22).await?;
    recorder.stop().await?;
    if let Some(golden) = std::env::var_os("PACER_GOLDEN_TRACE") {
        std::fs::copy(&file, golden)?;
    }

    let (well, text, notes) = pacer(&["trace", "check", path]).await?;
    ensure!(well && notes.contains("nobody recorded from"), "{text}{notes}");
    let (well, text, notes) = pacer(&["trace", "summary", path, "-o", "json"]).await?;
    ensure!(well, "{text}{notes}");
    let summary: Value = serde_json::from_str(&text)?;
    ensure!(summary["total"]["jobs"] == 22 && summary["total"]["starts"] == 22, "{summary:#}");

    let arguments = ["simulate", "--trace", path, "-o", "json", "--seeds=5"];
    let (well, text, notes) = pacer(&arguments).await?;
    let simulated: Value = serde_json::from_str(&text).with_context(|| notes.clone())?;
    println!("calibration: {:#}", simulated["calibration"]);
    ensure!(well && simulated["calibration"]["holds"] == true, "{text}{notes}");
    ensure!(pacer(&arguments).await?.1 == text, "the same seed gives the same bytes");
    world.stop().await;
    Ok(())
}
