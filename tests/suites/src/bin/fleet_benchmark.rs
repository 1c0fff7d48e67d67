//! What fleets cost: times, API server writes, GitHub calls, processor time and memory of the operator, in one table.
//!
//! ```text
//! fleet-benchmark [--runners 200,1000] [--idle-seconds 60] [--scenes fleets,scale-down,rollout,burst,latency,tenants,large,repositories,steady,facts,calibration,page] [--json]
//! fleet-benchmark --before OLD.json,... --now NEW.json,...
//! ```
//!
//! Every scene has a world of its own: real API server, simulated GitHub and nodes that answer at once, the operator with its shipped
//! defaults. The operator is what `cargo build -p pacer` makes, or `PACER_BIN`; figures of an unoptimised one say little about time and
//! memory. Ends with an error when a hard limit is missed or a scene does not get to its end; missed wishes only show in the table.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, ValueEnum};

#[path = "fleet_benchmark/burst.rs"]
mod burst;
#[path = "fleet_benchmark/calibration.rs"]
mod calibration;
#[path = "fleet_benchmark/changes.rs"]
mod changes;
#[path = "fleet_benchmark/comparison.rs"]
mod comparison;
#[path = "fleet_benchmark/estimates.rs"]
mod estimates;
#[path = "fleet_benchmark/facts.rs"]
mod facts;
#[path = "fleet_benchmark/figure.rs"]
mod figure;
#[path = "fleet_benchmark/fleet.rs"]
mod fleet;
#[path = "fleet_benchmark/large.rs"]
mod large;
#[path = "fleet_benchmark/latency.rs"]
mod latency;
#[path = "fleet_benchmark/meter.rs"]
mod meter;
#[path = "fleet_benchmark/repositories.rs"]
mod repositories;
#[path = "fleet_benchmark/steady.rs"]
mod steady;
#[path = "fleet_benchmark/tenants.rs"]
mod tenants;
#[path = "fleet_benchmark/viewers.rs"]
mod viewers;

use figure::table;

/// Measures fleets of runners on the test control plane.
#[derive(Debug, Parser)]
#[command(name = "fleet-benchmark")]
struct Arguments {
    /// Sizes of the fleets that go from nothing to online and back.
    #[arg(long, value_delimiter = ',', default_value = "200,1000", value_parser = clap::value_parser!(u32).range(1..=5_000))]
    runners: Vec<u32>,
    /// How long each fleet is watched doing nothing.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    idle_seconds: u64,
    /// Jobs that are queued at once in a burst.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    jobs: u32,
    /// How long each of them takes.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    job_seconds: u64,
    /// Tenants with credentials of their own.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(3..=500))]
    tenants: u32,
    /// Runners of each of them.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    tenant_runners: u32,
    /// Runners of the large installation.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=20_000))]
    large_runners: u32,
    /// Repositories with one set of credentials.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    repositories: u32,
    /// Open jobs beside which events come at a steady rate.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(200..=40_000))]
    open_jobs: u32,
    /// How long they come, with few and with all jobs open.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    steady_seconds: u64,
    /// How jobs come to the pools that are recorded and simulated.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "burst,steady,schedule,maximum,failing")]
    loads: Vec<calibration::Kind>,
    /// Pools of each of these loads.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=9))]
    seeds: u64,
    /// What to measure.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "fleets,scale-down,rollout,burst,latency,tenants")]
    scenes: Vec<Scene>,
    /// Print the figures as JSON.
    #[arg(long)]
    json: bool,
    /// Measure nothing: figures of another operator, as JSON, to be compared.
    #[arg(long, value_delimiter = ',', requires = "now")]
    before: Vec<PathBuf>,
    /// The figures that are compared with these.
    #[arg(long, value_delimiter = ',', requires = "before")]
    now: Vec<PathBuf>,
}

/// Jobs of the scene of single jobs.
const SINGLES: u32 = 40;

/// One kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scene {
    /// From nothing to online, idle, and back to nothing.
    Fleets,
    /// 100 to 40 runners while 30 are busy.
    ScaleDown,
    /// A new template for 100 idle and 20 busy runners.
    Rollout,
    /// Many jobs at once, each with its webhook.
    Burst,
    /// Single jobs, one after the other.
    Latency,
    /// Many credentials, one of them revoked and one whose GitHub hardly answers.
    Tenants,
    /// Ten thousand idle runners, and single jobs meanwhile. Measured when asked for, as the following ones.
    Large,
    /// Hundreds of idle repositories with one set of credentials.
    Repositories,
    /// Fifty events a second, with few jobs open and with twenty thousand.
    Steady,
    /// Idle fleets with a policy that reads no fact and with one that reads all, of the sizes of the fleets.
    Facts,
    /// What the simulator makes of recorded loads, and how well it predicts another policy. Takes some six minutes, and is measured when asked for.
    Calibration,
    /// What the page costs beside ten viewers, of the sizes of the fleets.
    Page,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if !arguments.before.is_empty() {
        let (table, is_worse) = comparison::compare(&arguments.before, &arguments.now)?;
        write!(std::io::stdout().lock(), "{table}")?;
        return Ok(if is_worse { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    let mut figures = Vec::new();
    let mut failures = Vec::new();
    let idle = Duration::from_secs(arguments.idle_seconds);
    for scene in &arguments.scenes {
        match scene {
            Scene::Fleets => {
                for size in &arguments.runners {
                    note(&format!("{size} runners"))?;
                    keep(fleet::measure(*size, idle, &mut figures).await, &mut failures);
                }
            }
            Scene::ScaleDown => {
                note("scale-down")?;
                keep(changes::scale_down(&mut figures).await, &mut failures);
            }
            Scene::Rollout => {
                note("rollout")?;
                keep(changes::rollout(&mut figures).await, &mut failures);
            }
            Scene::Tenants => {
                note(&format!("{} tenants", arguments.tenants))?;
                keep(tenants::measure(arguments.tenants, arguments.tenant_runners, idle, &mut figures).await, &mut failures);
            }
            Scene::Burst => {
                note(&format!("burst of {} jobs", arguments.jobs))?;
                let lasting = Duration::from_secs(arguments.job_seconds);
                keep(burst::measure(arguments.jobs, lasting, &mut figures).await, &mut failures);
            }
            Scene::Large => {
                note(&format!("{} idle runners", arguments.large_runners))?;
                keep(large::measure(arguments.large_runners, idle, &mut figures).await, &mut failures);
            }
            Scene::Repositories => {
                note(&format!("{} repositories", arguments.repositories))?;
                keep(repositories::measure(arguments.repositories, idle, &mut figures).await, &mut failures);
            }
            Scene::Steady => {
                note(&format!("steady events beside {} open jobs", arguments.open_jobs))?;
                let lasting = Duration::from_secs(arguments.steady_seconds);
                keep(steady::measure(arguments.open_jobs, lasting, &mut figures).await, &mut failures);
            }
            Scene::Facts => {
                for size in &arguments.runners {
                    note(&format!("facts for {size} runners"))?;
                    keep(facts::measure(*size, idle, &mut figures).await, &mut failures);
                }
            }
            Scene::Calibration => {
                note("calibration of the simulator")?;
                keep(calibration::measure(&arguments.loads, arguments.seeds, &mut figures).await, &mut failures);
            }
            Scene::Page => {
                for size in &arguments.runners {
                    note(&format!("page over {size} runners"))?;
                    keep(viewers::measure(*size, idle, &mut figures).await, &mut failures);
                }
            }
            Scene::Latency => {
                note("single jobs")?;
                keep(latency::measure(SINGLES, &mut figures).await, &mut failures);
            }
        }
    }
    let mut output = std::io::stdout().lock();
    if arguments.json {
        writeln!(output, "{}", serde_json::to_string_pretty(&figures)?)?;
    } else {
        write!(output, "{}", table(&figures))?;
    }
    failures.extend(figures.iter().filter(|figure| figure.breaks_a_limit()).map(ToString::to_string));
    for failure in &failures {
        note(&format!("FAILED: {failure}"))?;
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A scene that fails does not keep the others from being measured.
fn keep(outcome: Result<()>, failures: &mut Vec<String>) {
    if let Err(error) = outcome {
        failures.push(format!("{error:#}"));
    }
}

/// Progress, beside the table.
fn note(text: &str) -> std::io::Result<()> {
    writeln!(std::io::stderr().lock(), "{text}")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
        let arguments = Arguments::parse_from(["fleet-benchmark"]);
        assert_eq!((arguments.runners, arguments.idle_seconds, arguments.scenes.len()), (vec![200, 1000], 60, 6));
        let arguments = Arguments::parse_from(["fleet-benchmark", "--runners", "50", "--scenes=rollout"]);
        assert_eq!((arguments.runners, arguments.scenes), (vec![50], vec![Scene::Rollout]));
    }
}
