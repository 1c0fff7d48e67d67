//! A policy is tried on the trace of a burst, then decides for the same burst, and what was predicted is compared with what happened.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pacer_api::names::annotation;
use pacer_harness::child::Child;
use pacer_harness::operator::binary;
use serde_json::Value;

use super::{ON_DEMAND, ON_DEMAND_LABEL, burst, idle_again, policy_status};
use crate::manifest::{Manifests, policies};
use crate::proof::{Claim, Proofs};
use crate::stage::{NAMESPACE, Stage};

/// The policy, its file, and the ConfigMap in it.
const POLICY: &str = "few-at-a-time";
const SET: &str = "demand-policies";

/// How far a predicted wait may be off: a share of what happened, and seconds in any case. The difference between the policies is several times that.
const SHARE: f64 = 0.25;
const SECONDS: f64 = 2.0;

/// How long a recorder has to see what there is, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A trace that is being written.
#[derive(Debug)]
pub(crate) struct Recording {
    recorder: Child,
    file: PathBuf,
}

impl Recording {
    /// Starts `pacer record` and waits until it has seen the pool.
    pub(crate) async fn start(stage: &Stage<'_>, name: &str) -> Result<Self> {
        let directory = stage.world.plane.directory();
        let file = directory.join(format!("{name}.jsonl"));
        stage.announce("pacer", &["record", "--out", &format!("{name}.jsonl"), "-n", NAMESPACE]);
        let mut command = Command::new(binary().await?);
        command.args(["record", "-n", NAMESPACE, "--out"]).arg(&file).env("KUBECONFIG", stage.world.plane.kubeconfig_path());
        let recorder = Child::start("pacer record", &command, &directory.join(format!("{name}.log")))?;
        let recording = Self { recorder, file };
        recording.until(&format!("\"pool\":\"{NAMESPACE}/{ON_DEMAND_LABEL}\""), 1).await?;
        Ok(recording)
    }

    /// Waits until so many lines hold a text.
    async fn until(&self, text: &str, count: usize) -> Result<()> {
        let began = Instant::now();
        while self.lines(text) < count {
            ensure!(self.recorder.exit().is_none(), "pacer record ended: {}", self.recorder.log_tail(2_000));
            ensure!(began.elapsed() < PATIENCE, "the trace has {} of {count} lines with {text}", self.lines(text));
            // Another process's file announces nothing.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    fn lines(&self, text: &str) -> usize {
        std::fs::read_to_string(&self.file).unwrap_or_default().lines().filter(|line| line.contains(text)).count()
    }

    /// Waits until the burst is in it, ends the recorder, and returns the file.
    pub(crate) async fn finish(self) -> Result<PathBuf> {
        self.until("\"kind\":\"job-completed\"", ON_DEMAND).await?;
        self.until("\"kind\":\"runner-ended\"", ON_DEMAND).await?;
        match self.recorder.terminate(PATIENCE).await {
            Some(status) if status.success() => Ok(self.file.clone()),
            status => bail!("pacer record ended with {status:?}: {}", self.recorder.log_tail(2_000)),
        }
    }
}

/// Waits of a burst, in seconds.
#[derive(Clone, Copy, Debug)]
struct Waits {
    p50: f64,
    p95: f64,
}

impl Waits {
    fn near(self, other: Self) -> bool {
        let near = |one: f64, other: f64| (one - other).abs() <= (other * SHARE).max(SECONDS);
        near(self.p50, other.p50) && near(self.p95, other.p95)
    }

    fn text(self) -> String {
        format!("p50 {:.1} s, p95 {:.1} s", self.p50, self.p95)
    }
}

/// Tries the policy on the trace of the first burst, and then for real.
pub(crate) async fn forecast(stage: &Stage<'_>, trace: &Path, proofs: &mut Proofs) -> Result<()> {
    let file = policies().join(format!("{POLICY}.yaml"));
    stage.show(&Manifests::text_of_policy(&file)?);
    let (shown, path) = (format!("examples/demo/policies/{POLICY}.yaml"), file.to_string_lossy().into_owned());
    stage.announce("pacer", &["simulate", "--trace", "burst.jsonl", "--policies", &shown]);
    let trace = trace.to_string_lossy().into_owned();
    // So short a trace need not be within the bound that lets a simulation be believed; what it predicts is checked right after.
    let arguments = ["simulate", "--trace", &trace, "--policies", &path, "--allow-uncalibrated", "-o"];
    let (text, json) = ([&arguments[..], &["text"]].concat(), [&arguments[..], &["json"]].concat());
    let (text, json) = tokio::try_join!(stage.pacer_silently(&text), stage.pacer_silently(&json))?;
    stage.show(&text);
    let simulated: Value = serde_json::from_str(&json)?;
    let (recorded, predicted) = (waits_of(&simulated, 0)?, waits_of(&simulated, 1)?);
    stage.terminal.say(&format!("predicted under {POLICY}: {}, in place of {}", predicted.text(), recorded.text()));

    let recording = Recording::start(stage, "checked").await?;
    stage.kubectl(&["annotate", "hra", ON_DEMAND_LABEL, &format!("{}={SET}", annotation::POLICIES)]).await?;
    stage.kubectl_on(&["apply"], &path, &shown).await?;
    policy_status(stage, SET, &format!("{POLICY} to decide"), |status| {
        status.pointer("/phase").is_some_and(|phase| phase == "Active")
    })
    .await?;
    burst(stage, "PolicyCeiling", proofs).await?;
    idle_again(stage).await?;
    let checked = recording.finish().await?;
    let summary: Value =
        serde_json::from_str(&stage.pacer_silently(&["trace", "summary", &checked.to_string_lossy(), "-o", "json"]).await?)?;
    let figure = |name: &str| {
        summary.pointer(&format!("/total/{name}")).and_then(Value::as_f64).with_context(|| format!("no {name} in the summary"))
    };
    let measured = Waits { p50: figure("waitP50")?, p95: figure("waitP95")? };
    proofs.record(
        Claim::Predicted,
        predicted.near(measured) && !recorded.near(measured),
        format!("{} predicted, {} measured; {} before", predicted.text(), measured.text(), recorded.text()),
    );
    Ok(())
}

/// The waits of a contender, over all pools.
fn waits_of(simulated: &Value, contender: usize) -> Result<Waits> {
    let rows = simulated.pointer("/comparison/rows").and_then(Value::as_array).context("no comparison")?;
    let mean = |metric: &str| {
        let row = rows
            .iter()
            .find(|row| row.get("pool").is_some_and(Value::is_null) && row.get("metric").is_some_and(|it| it == metric));
        row.and_then(|row| row.pointer(&format!("/values/{contender}/mean"))?.as_f64()).with_context(|| format!("no {metric}"))
    };
    Ok(Waits { p50: mean("wait.p50")?, p95: mean("wait.p95")? })
}
