//! Whether the simulator may be believed. Pools under five kinds of load, each with seeds of its own, are recorded and simulated.
//! Then another policy is simulated on that trace, put in force, and the same jobs come again: how far off was the prediction?

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment};
use pacer_harness::github::JobSpec;
use pacer_harness::nodes::{Affected, Trouble};
use pacer_harness::objects;
use pacer_harness::operator::binary;
use pacer_harness::world::World;
use pacer_suites::recorder::{Recorder, recorded};
use pacer_suites::{api, deployment, with_spec};
use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;
use tokio::time::{Instant, sleep_until};

use crate::burst::{hook, start};
use crate::estimates;
use crate::figure::{Figure, Page};
use crate::fleet::{self, PATIENCE, nodes};

/// Runs of the simulator whose mean is compared.
const RUNS: &str = "--seeds=5";

/// How long runners start, in seconds, beside what the API server takes.
const START: u64 = 3;

/// Starts of a pool that fail.
const FAILING: usize = 8;

/// The policy that is predicted: one runner more than there are jobs.
const OTHER: &str = include_str!("../../../../../examples/policies/text/waves.js");
const OTHER_SET: &str = "capacity: {module: policy.js}\n";

/// How jobs come to a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Twelve at once, and twelve more when the first are done.
    Burst,
    /// One after the other.
    Steady,
    /// The same, and a scheduled override raises the minimum in between.
    Schedule,
    /// Faster than the maximum lets runners be made.
    Maximum,
    /// As steady, and the first starts fail.
    Failing,
}

impl Kind {
    fn jobs(self) -> usize {
        match self {
            // With fewer, the 95th percentile is up to one start or two.
            Self::Failing => 40,
            Self::Burst | Self::Steady | Self::Schedule | Self::Maximum => 24,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::Steady => "steady",
            Self::Schedule => "schedule",
            Self::Maximum => "maximum",
            Self::Failing => "failing",
        }
    }
}

/// A pool and what comes to it.
#[derive(Clone, Debug)]
struct Load {
    kind: Kind,
    /// Of the pool, and the label of its jobs.
    name: String,
    /// After the beginning, and how long it takes.
    jobs: Vec<(Duration, Duration)>,
}

/// SplitMix64: the same seed gives the same jobs.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Milliseconds from the first to before the second.
    fn between(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.next() % (most - least))
    }
}

impl Load {
    fn new(kind: Kind, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut at = Duration::from_secs(2);
        let mut jobs = Vec::new();
        for number in 0..kind.jobs() {
            at = match kind {
                Kind::Burst if number == 12 => Duration::from_secs(70),
                Kind::Burst => at,
                Kind::Maximum => at + random.between(300, 1_500),
                Kind::Failing => at + random.between(1_000, 4_500),
                Kind::Steady | Kind::Schedule => at + random.between(1_500, 6_500),
            };
            jobs.push((at, random.between(5_000, 12_000)));
        }
        Self { kind, name: format!("{}-{seed}", kind.name()), jobs }
    }

    fn autoscaler(&self, began: Timestamp) -> Result<HorizontalRunnerAutoscaler> {
        let at = |seconds| (began + SignedDuration::from_secs(seconds)).to_string();
        let overrides = match self.kind {
            Kind::Schedule => json!([{"startTime": at(30), "endTime": at(75), "minReplicas": 6}]),
            Kind::Burst | Kind::Steady | Kind::Maximum | Kind::Failing => json!([]),
        };
        let most = if self.kind == Kind::Maximum { 4 } else { 20 };
        Ok(serde_json::from_value(json!({
            "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler",
            "metadata": {"name": self.name, "namespace": "default"},
            "spec": {
                "scaleTargetRef": {"name": self.name}, "minReplicas": 0, "maxReplicas": most, "scheduledOverrides": overrides,
                "scaleDownDelaySecondsAfterScaleOut": 0,
                "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}],
            },
        }))?)
    }
}

/// Records, simulates, predicts and records again.
///
/// # Errors
///
/// When a state is not reached; the figures so far are kept.
pub(crate) async fn measure(kinds: &[Kind], seeds: u64, figures: &mut Vec<Figure>) -> Result<()> {
    let loads: Vec<Load> = kinds.iter().flat_map(|kind| (1..=seeds).map(|seed| Load::new(*kind, seed))).collect();
    let world = start(|_| {}).await?;
    let outcome = compare(&world, &loads, figures).await;
    fleet::finish(world, outcome).await
}

async fn compare(world: &World, loads: &[Load], figures: &mut Vec<Figure>) -> Result<()> {
    hook(world)?;
    let delay = json!([{"name": "STARTUP_DELAY_IN_SECONDS", "value": START.to_string()}]);
    for load in loads {
        let pool = with_spec(deployment(&load.name, 0), "env", delay.clone());
        let pool: RunnerDeployment = serde_json::from_value(pool)?;
        api::<RunnerDeployment>(world).create(&PostParams::default(), &pool).await?;
    }
    let directory = tempfile::tempdir()?;
    let other = directory.path().join("other");
    std::fs::create_dir(&other)?;
    std::fs::write(other.join("policies.yaml"), OTHER_SET)?;
    std::fs::write(other.join("policy.js"), OTHER)?;

    let before = directory.path().join("recorded.jsonl");
    record(world, loads, &before).await?;
    let page = &mut Page::new("simulated as recorded".to_owned(), figures);
    let report = simulate(&before, &["--policies", &other.display().to_string()]).await?;
    for deviation in &report.calibration.deviations {
        page.deviation(&deviation.title(), deviation.simulated, deviation.recorded, Some(deviation.allowed));
    }

    estimates::told(world, &mut Page::new("estimates of starts".to_owned(), figures)).await?;

    put_in_force(world, loads).await?;
    let real = directory.path().join("real.jsonl");
    record(world, loads, &real).await?;
    // What was recorded is measured in the same way; that the other policy gives it as well is seen on the way.
    let measured = simulate(&real, &["--recorded-policies", &other.display().to_string()]).await?;
    let page = &mut Page::new("predicted for another policy".to_owned(), figures);
    for deviation in &measured.calibration.deviations {
        let predicted =
            report.predicted(deviation).with_context(|| format!("nothing was predicted for {}", deviation.title()))?;
        page.deviation(&deviation.title(), predicted, deviation.recorded, None);
    }
    Ok(())
}

/// Has the jobs of all pools come and go, and records that.
async fn record(world: &World, loads: &[Load], file: &Path) -> Result<()> {
    let before = world.github.jobs().succeeded;
    let autoscalers = api::<HorizontalRunnerAutoscaler>(world);
    let began = Timestamp::now();
    for load in loads {
        let patch = Patch::Apply(load.autoscaler(began)?);
        autoscalers.patch(&load.name, &PatchParams::apply("benchmark").force(), &patch).await?;
        if load.kind == Kind::Failing {
            let first = Affected { name_prefix: load.name.clone(), at_most: Some(FAILING), ..Affected::default() };
            nodes(world)?.inject(first, Trouble::ExitsAtOnce(1));
        }
    }
    let recorder = Recorder::start(world, file, &[]).await?;
    recorded(world, file, "pool", loads.len()).await?;
    let mut arrivals: Vec<(Duration, &str, Duration)> = Vec::new();
    for load in loads {
        arrivals.extend(load.jobs.iter().map(|(at, lasting)| (*at, load.name.as_str(), *lasting)));
    }
    arrivals.sort_unstable();
    let clock = Instant::now();
    for (at, pool, lasting) in &arrivals {
        sleep_until(clock + *at).await;
        world.github.queue_job(JobSpec::new("acme/app", [*pool]).lasting(*lasting))?;
    }
    world.github.wait_for(PATIENCE, |view| view.jobs().succeeded >= before + arrivals.len() as u64).await?;
    objects::until(api::<Runner>(world), "", PATIENCE, |all| all.is_empty()).await?;
    recorded(world, file, "job-completed", arrivals.len()).await?;
    recorder.stop().await
}

/// The report of `pacer simulate`.
async fn simulate(trace: &Path, arguments: &[&str]) -> Result<Report> {
    let mut command = Command::new(binary().await?);
    command.args(["simulate", "--allow-uncalibrated", "-o", "json", RUNS, "--trace"]).arg(trace).args(arguments);
    let output = command.output().await?;
    if !output.status.success() {
        bail!("pacer simulate: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Has all pools ask for the other policy, and waits until it decides.
async fn put_in_force(world: &World, loads: &[Load]) -> Result<()> {
    let set: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "other", "namespace": "default"}, "data": {"policies.yaml": OTHER_SET, "policy.js": OTHER},
    }))?;
    let maps: Api<ConfigMap> = api(world);
    maps.create(&PostParams::default(), &set).await?;
    let asked = Patch::Merge(json!({"metadata": {"annotations": {"actions.summerwind.dev/policies": "other"}}}));
    for load in loads {
        api::<RunnerDeployment>(world).patch(&load.name, &PatchParams::default(), &asked).await?;
    }
    objects::until(maps, "", PATIENCE, |all| {
        let status = |map: &ConfigMap| map.annotations().get("actions.summerwind.dev/policy-status").cloned().unwrap_or_default();
        all.iter().any(|map| map.name_any() == "other" && status(map).contains("\"phase\":\"Active\""))
    })
    .await?;
    Ok(())
}

/// What `pacer simulate` reports, as far as it is read here.
#[derive(Deserialize)]
struct Report {
    calibration: Calibration,
    comparison: Comparison,
}

#[derive(Deserialize)]
struct Calibration {
    deviations: Vec<Deviation>,
}

#[derive(Deserialize)]
struct Deviation {
    pool: Option<String>,
    metric: String,
    recorded: f64,
    simulated: f64,
    allowed: f64,
}

#[derive(Deserialize)]
struct Comparison {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    pool: Option<String>,
    metric: String,
    /// Of the recorded policy, and of the other.
    values: Vec<Mean>,
}

#[derive(Deserialize)]
struct Mean {
    mean: f64,
}

impl Report {
    /// What the other policy was to give.
    fn predicted(&self, of: &Deviation) -> Option<f64> {
        let row = self.comparison.rows.iter().find(|row| row.pool == of.pool && row.metric == of.metric)?;
        row.values.get(1).map(|value| value.mean)
    }
}

impl Deviation {
    fn title(&self) -> String {
        let pool = self.pool.as_deref().map_or("all pools", |pool| pool.trim_start_matches("default/"));
        format!("{pool}: {}", self.metric)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_give_jobs_of_their_own_and_each_the_same_ones() {
        let jobs = |kind, seed| Load::new(kind, seed).jobs;
        for kind in Kind::value_variants().iter().copied() {
            assert_eq!(jobs(kind, 1), jobs(kind, 1));
            assert_ne!(jobs(kind, 1), jobs(kind, 2));
            assert_eq!(jobs(kind, 1).len(), kind.jobs());
        }
    }
}
