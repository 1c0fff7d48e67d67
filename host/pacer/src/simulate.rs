//! `pacer simulate`: a trace again in virtual time, policies side by side.

mod receipts;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use pacer_api::duration;
use pacer_policy::yaml;
use pacer_simulate::{
    Bound, Calibration, Comparison, Condition, Contender, Policies, RunnerPrices, Scenario, Spread, recorded, simulate as run,
};
use pacer_trace::{History, read};
use serde_json::json;

use self::receipts::Receipts;
use crate::file;
use crate::policy::contender;
use crate::report::Report;
use crate::table;

/// How often progress is told.
const TELL: Duration = Duration::from_secs(5);

/// Largest file with prices, in bytes: the operator reads such a table from a ConfigMap.
const PRICE_BYTES: usize = 1 << 20;

/// Arguments of `pacer simulate`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// The trace: a file, or a directory of them.
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// A policy set to try: policies.yaml, a directory that holds it, or a manifest with its ConfigMap. Repeatable.
    #[arg(long, value_name = "FILE")]
    policies: Vec<PathBuf>,
    /// The policy set that was active during the recording. Default: the shipped policy.
    #[arg(long, value_name = "FILE")]
    recorded_policies: Option<PathBuf>,
    /// Receipts from the time of the trace, as written by `pacer policy receipts --save`: a directory, or a single one. Each policy set is asked the
    /// recorded questions.
    #[arg(long, value_name = "PATH")]
    receipts: Option<PathBuf>,
    /// Seed of the random numbers. The same seed gives the same output.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Number of runs per policy, with consecutive seeds. The figures are their means.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1_000), value_name = "NUMBER")]
    seeds: u16,
    /// Assumed start time of runners in a pool for which the trace has none, for example an imported one.
    #[arg(long, default_value = "30s", value_parser = duration::parse, value_name = "DURATION")]
    assumed_start: Duration,
    /// YAML file with the price of a runner-hour per pool ("ci/web: 0.19"; "*" for all others). Adds costs to the comparison.
    #[arg(long, value_name = "FILE")]
    runner_prices: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    /// Exits with an error if another policy's total meets this condition: 'FIGURE > LIMIT' or 'FIGURE < LIMIT'. LIMIT is a value (300), a difference from
    /// the recorded policy (+50), or a share of it (+10%). Repeatable.
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Condition>,
    /// Compares even if the simulation does not reproduce the recorded figures.
    #[arg(long)]
    allow_uncalibrated: bool,
}

/// How a comparison is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    #[default]
    Text,
    /// For scripts.
    Json,
    /// For a pull request.
    Markdown,
}

/// `pacer simulate`.
pub(crate) fn simulate(arguments: &Arguments) -> Result<Report> {
    let began = Instant::now();
    let prices = arguments.runner_prices.as_deref().map(prices).transpose()?.unwrap_or_default();
    if let Some(condition) = arguments.fail_if.iter().find(|condition| condition.needs_prices() && prices.is_empty()) {
        bail!("--fail-if '{condition}' needs to know what runners cost: give --runner-prices FILE");
    }
    let receipts = arguments.receipts.as_deref().map(Receipts::read).transpose()?;
    let history = History::of(&read(&arguments.trace)?.trace);
    let first = match &arguments.recorded_policies {
        Some(path) => Policies::of("recorded".to_owned(), contender::load(path)?),
        None => Policies::builtin(),
    };
    let first = first.context("starting the runtime")?;
    let scenario =
        Scenario::assuming(&history, arguments.assumed_start).with_context(|| arguments.trace.display().to_string())?;
    let scenario = scenario.without_pauses(&history, &first);
    let missing = if prices.is_empty() { Vec::new() } else { prices.missing(scenario.pools()) };
    ensure!(missing.is_empty(), "--runner-prices has no price of {}, and none of \"*\"", missing.join(", "));
    let mut notes: String = scenario.notes().iter().map(|note| format!("note: {note}\n")).collect();
    let others = first.others(&history);
    for (decision, policy, count) in &others {
        notes.push_str(&format!(
            "note: {policy} made {count} of the recorded {decision} decisions, but {} is simulated as the recorded policy; \
             give the policy set that was active by --recorded-policies\n",
            first.name()
        ));
    }
    let mut progress = Progress::of(arguments, &scenario);
    let mut contenders = vec![compete(&scenario, &first, arguments, &prices, &mut progress)];
    let mut sets = vec![first];
    let measured = recorded(&history, &scenario);
    // Where no runner was recorded there is nothing to compare with: GitHub's history says how long jobs waited, but not for what.
    let calibration = contenders.first().filter(|_| !history.runners.is_empty());
    let calibration = calibration.map(|first| Calibration::of(first, &measured, Bound::default()));
    if calibration.is_none() {
        notes.push_str(
            "note: the trace has no runners, so nothing says how true this is; policies are compared with each other\n",
        );
    }
    let believed = calibration.as_ref().is_none_or(Calibration::holds) || arguments.allow_uncalibrated;
    if believed {
        for path in &arguments.policies {
            let policies = Policies::of(path.display().to_string(), contender::load(path)?).context("starting the runtime")?;
            contenders.push(compete(&scenario, &policies, arguments, &prices, &mut progress));
            sets.push(policies);
        }
    }
    for condition in &arguments.fail_if {
        if let Some(figure) = condition.unknown_figure(&contenders) {
            bail!(
                "--fail-if '{condition}' can't be judged: {} has no data for {figure}; remove the condition, or record what it needs \
                 (docs/simulate.md)",
                arguments.trace.display()
            );
        }
    }
    let answered = receipts.map(|receipts| receipts.ask(&sets)).unwrap_or_default();
    for (policies, faults) in sets.iter().map(|policies| (policies, policies.faults())).filter(|(_, faults)| *faults > 0) {
        notes.push_str(&format!(
            "note: {} failed {faults} times and the shipped policy decided instead; the result depends on this machine\n",
            policies.name()
        ));
    }
    let pools: Vec<&str> = scenario.pools().collect();
    let comparison = Comparison::of(&contenders, &pools);
    let met = || {
        let first = contenders.first()?;
        let others = contenders.iter().skip(usize::from(contenders.len() > 1));
        others.flat_map(|other| arguments.fail_if.iter().filter_map(|condition| condition.met(other, first))).next()
    };
    let failure = if believed {
        met()
    } else {
        let bound = Bound::default();
        Some(format!(
            "the simulation with the recorded policy is off by more than {:.0} % or {} s (waits) and {:.0} % (runner-minutes), and by more than \
             chance from seed to seed explains, so it can't tell about others: give the policy that was in force by --recorded-policies, \
             record for longer, or insist by --allow-uncalibrated",
            bound.wait * 100.0,
            bound.wait_seconds,
            bound.minutes * 100.0
        ))
    };
    let compared = [rows(&comparison), receipts::rows(&answered)].concat();
    let text = match arguments.output {
        Output::Json => {
            let shown = json!({
                "jobs": scenario.jobs(), "seed": arguments.seed, "seeds": arguments.seeds, "notes": scenario.notes(),
                "calibration": calibration.as_ref().map(|calibration| {
                    json!({"holds": calibration.holds(), "bound": calibration.bound, "deviations": calibration.deviations})
                }),
                "comparison": comparison, "receipts": answered, "failure": failure,
            });
            format!("{shown:#}\n")
        }
        Output::Text => {
            let head = format!(
                "{} jobs, {} to {}, {} seeds from {}\n\n",
                table::number(scenario.jobs() as u64),
                history.started,
                history.ended,
                arguments.seeds,
                arguments.seed
            );
            let calibrated = calibration.as_ref().map(|calibration| table::right(&calibration_rows(calibration)) + "\n");
            head + &calibrated.unwrap_or_default() + &table::right(&compared)
        }
        Output::Markdown => {
            let calibrated = calibration.as_ref().map(|calibration| markdown(&calibration_rows(calibration)) + "\n");
            calibrated.unwrap_or_default() + &markdown(&compared)
        }
    };
    let events: u64 = contenders.iter().flat_map(|contender| &contender.runs).map(|run| run.events).sum();
    notes.push_str(&format!("{} events in {:.1} s\n", table::number(events), began.elapsed().as_secs_f64()));
    Ok(Report { text, notes, failure })
}

/// Reads `--runner-prices`.
fn prices(file: &Path) -> Result<RunnerPrices> {
    let named = || format!("--runner-prices {}", file.display());
    let text = file::read_text(file, PRICE_BYTES, "a table of prices").context("--runner-prices")?;
    let table = serde_saphyr::from_str(&text)
        .map_err(|error| {
            let mistake = yaml::Mistake::of(&error, &text);
            anyhow!("it is no table of pools and prices, as in \"ci/web: 0.19\": {mistake}")
        })
        .with_context(named)?;
    RunnerPrices::new(table).with_context(named)
}

/// Tells on standard error how far it is, when it takes long.
struct Progress {
    began: Instant,
    told: Instant,
    /// Jobs of all runs, and those of the runs that are over.
    total: usize,
    before: usize,
}

impl Progress {
    fn of(arguments: &Arguments, scenario: &Scenario) -> Self {
        let now = Instant::now();
        let runs = usize::from(arguments.seeds) * (1 + arguments.policies.len());
        Self { began: now, told: now, total: runs * scenario.arrivals(), before: 0 }
    }

    fn tell(&mut self, jobs: usize) {
        let done = self.before + jobs;
        if self.told.elapsed() < TELL || done == 0 {
            return;
        }
        self.told = Instant::now();
        let left = self.began.elapsed().as_secs() * (self.total - done.min(self.total)) as u64 / done as u64;
        let share = done * 100 / self.total.max(1);
        let _closed = writeln!(std::io::stderr(), "{share} % of all runs are done, some {left} s are left");
    }
}

fn compete(
    scenario: &Scenario,
    policies: &Policies,
    arguments: &Arguments,
    prices: &RunnerPrices,
    progress: &mut Progress,
) -> Contender {
    let seeds = (0..u64::from(arguments.seeds)).map(|more| arguments.seed.wrapping_add(more));
    let one = |seed| {
        let outcome = run(scenario, policies, seed, |jobs| progress.tell(jobs));
        progress.before += scenario.arrivals();
        outcome.at(prices)
    };
    let runs = seeds.map(one).collect();
    Contender { name: policies.name().to_owned(), runs, faults: policies.faults() }
}

fn calibration_rows(calibration: &Calibration) -> Vec<Vec<String>> {
    let mut rows = vec![["calibration", "recorded", "simulated", "off by", "allowed", ""].map(str::to_owned).to_vec()];
    for deviation in &calibration.deviations {
        let off = deviation.simulated - deviation.recorded;
        rows.push(vec![
            titled(deviation.pool.as_deref(), deviation.metric),
            format!("{:.2}", deviation.recorded),
            format!("{:.2}", deviation.simulated),
            format!("{off:+.2} ({})", percent(off, deviation.recorded)),
            format!("{:.2}", deviation.allowed),
            if deviation.within { "within the bound" } else { "too far" }.to_owned(),
        ]);
    }
    rows
}

fn rows(comparison: &Comparison) -> Vec<Vec<String>> {
    let title = comparison.contenders.iter().enumerate().map(|(index, name)| match index {
        0 => name.clone(),
        _ => format!("{name} (beside {})", comparison.contenders.first().map_or("", String::as_str)),
    });
    let mut rows = vec![std::iter::once(String::new()).chain(title).collect::<Vec<_>>()];
    for row in &comparison.rows {
        let base = row.values.first().copied().unwrap_or_default();
        let cells = row.values.iter().enumerate().map(|(index, value)| cell(*value, (index > 0).then_some(base)));
        let unit = if row.unit.is_empty() { String::new() } else { format!(" ({})", row.unit) };
        let labels = row.labels.as_ref().map(|labels| format!("[{labels}]"));
        let of = row.pool.as_deref().or(row.repository.as_deref()).or(labels.as_deref());
        rows.push(std::iter::once(titled(of, row.metric) + &unit).chain(cells).collect());
    }
    rows
}

fn titled(pool: Option<&str>, metric: &str) -> String {
    pool.map_or_else(|| metric.to_owned(), |pool| format!("{pool} {metric}"))
}

/// The mean, the spread over seeds where there is one, and the difference.
fn cell(value: Spread, base: Option<Spread>) -> String {
    let spread = if value.max - value.min > 0.005 { format!(" [{:.2}..{:.2}]", value.min, value.max) } else { String::new() };
    let difference = base.map_or_else(String::new, |base| format!(" {}", percent(value.mean - base.mean, base.mean)));
    format!("{:.2}{spread}{difference}", value.mean)
}

fn percent(off: f64, of: f64) -> String {
    match of.abs() < 0.005 {
        true if off.abs() < 0.005 => "+0.0 %".to_owned(),
        true => format!("{off:+.2}"),
        false => format!("{:+.1} %", off / of * 100.0),
    }
}

fn markdown(rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = |cells: &[String]| line(&cells.iter().map(|_| "---".to_owned()).collect::<Vec<_>>());
    rows.iter().enumerate().map(|(index, cells)| if index == 0 { line(cells) + &rule(cells) } else { line(cells) }).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;

    use super::*;
    use crate::policy::sample;

    const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../simulate/tests/golden/burst.jsonl");

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    /// What `--output json` prints of a trace.
    pub(crate) fn json_of(trace: &str) -> String {
        let line = ["simulate", "--trace", trace, "--seeds", "1", "--output", "json"];
        simulate(&Line::try_parse_from(line).unwrap().arguments).unwrap().text
    }

    fn pacer_simulate(more: &[&str]) -> Result<Report> {
        let line = ["simulate", "--trace", GOLDEN].iter().chain(more);
        simulate(&Line::try_parse_from(line).unwrap().arguments)
    }

    #[test]
    fn the_recorded_policy_gives_what_was_recorded_and_the_same_seed_the_same_bytes() {
        let report = pacer_simulate(&["--fail-if", "wait.p95 > 3600"]).unwrap();
        assert_eq!(report.failure, None, "{}", report.text);
        assert!(report.text.contains("within the bound") && !report.text.contains("too far"), "{}", report.text);
        assert_eq!(pacer_simulate(&["--fail-if", "wait.p95 > 3600"]).unwrap().text, report.text);
        let failed = pacer_simulate(&["--fail-if", "runner-minutes > 0"]).unwrap().failure.unwrap();
        assert!(failed.starts_with("runner-minutes > 0: runner-minutes of builtin is"), "{failed}");
        let json: serde_json::Value = serde_json::from_str(&pacer_simulate(&["-o", "json"]).unwrap().text).unwrap();
        assert_eq!((&json["calibration"]["holds"], &json["jobs"]), (&true.into(), &22.into()));
    }

    #[test]
    fn a_condition_on_what_the_trace_does_not_have_is_an_error() {
        for figure in ["volumes-made", "volumes-reused", "github-calls", "node-minutes", "nodes-freed"] {
            let error = pacer_simulate(&["--fail-if", &format!("{figure} > 10")]).unwrap_err().to_string();
            let says = format!("has no data for {figure}");
            assert!(error.starts_with(&format!("--fail-if '{figure} > 10' can't be judged")) && error.contains(&says), "{error}");
        }
    }

    #[test]
    fn another_policy_stands_beside_the_recorded_one() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("policies.yaml"), "capacity: builtin\n").unwrap();
        let path = directory.path().to_str().unwrap();
        let report = pacer_simulate(&["--policies", path, "--seeds", "1", "-o", "markdown"]).unwrap();
        assert_eq!(report.failure, None, "{}", report.text);
        assert!(report.text.contains("(beside builtin) |") && report.text.contains(" +0.0 % |"), "{}", report.text);
        let error = pacer_simulate(&["--policies", "none.yaml"]).unwrap_err().to_string();
        assert!(error.contains("none.yaml can't be read"), "{error}");
    }

    #[test]
    fn costs_are_compared_where_prices_are_given() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("prices.yaml");
        let with = |prices: &str, more: &[&str]| {
            std::fs::write(&file, prices).unwrap();
            pacer_simulate(&[&["--runner-prices", file.to_str().unwrap()], more].concat())
        };
        let number = |report: &Report, metric: &str| -> f64 {
            let json: serde_json::Value = serde_json::from_str(&report.text).unwrap();
            let rows = json["comparison"]["rows"].as_array().unwrap();
            rows.iter().find(|row| row["metric"] == metric).unwrap()["values"][0]["mean"].as_f64().unwrap()
        };
        let report = with("\"*\": 0.6\n", &["-o", "json", "--fail-if", "cost > 0"]).unwrap();
        assert!((number(&report, "cost") - number(&report, "runner-minutes") / 100.0).abs() < 1e-9, "{}", report.text);
        assert!(report.failure.unwrap().starts_with("cost > 0: cost of builtin is"));
        let refused = [
            (with("\"*\": -1\n", &[]), "it has to be a number from 0"),
            (with("elsewhere/web: 1\n", &[]), "has no price of "),
            (with("- 1\n", &[]), "it is no table of pools and prices"),
            (pacer_simulate(&["--fail-if", "cost > 0"]), "give --runner-prices FILE"),
        ];
        for (outcome, why) in refused {
            let error = format!("{:#}", outcome.unwrap_err());
            assert!(error.contains(why), "{error}");
        }
        assert!(!pacer_simulate(&[]).unwrap().text.contains("cost"));
    }

    #[test]
    fn what_was_asked_then_is_asked_of_each_policy_set() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        std::fs::create_dir(place("receipts")).unwrap();
        for (name, record) in [("a", sample::scale_down(5, 2)), ("b", sample::scale_down(3, 1))] {
            let file = place("receipts").join(name).with_extension("json");
            std::fs::write(file, serde_json::to_vec(&record).unwrap()).unwrap();
        }
        let other = "export const name = 'nobody';\nexport function scaleDown() { return []; }\n";
        std::fs::write(place("policies.yaml"), "scale-down: {module: nobody.js}\n").unwrap();
        std::fs::write(place("nobody.js"), other).unwrap();
        let (receipts, set) = (place("receipts"), directory.path().to_str().unwrap());
        let arguments = ["--receipts", receipts.to_str().unwrap(), "--policies", set, "--seeds", "1"];
        let report = pacer_simulate(&arguments).unwrap();
        let row = report.text.lines().find(|line| line.contains("scale-down answered as in the receipts")).unwrap();
        assert!(row.contains("2 of 2") && row.contains("0 of 2"), "{row}");
        let json: serde_json::Value =
            serde_json::from_str(&pacer_simulate(&[&arguments[..], &["-o", "json"]].concat()).unwrap().text).unwrap();
        assert_eq!(json["receipts"], json!([{"decision": "scale-down", "asked": 2, "same": [2, 0]}]));

        let unanswered = r#"{"decision":"restart","request":{"subjects":[]}}"#;
        std::fs::write(place("receipts").join("c.json"), unanswered).unwrap();
        let error = pacer_simulate(&arguments).unwrap_err().to_string();
        assert!(error.contains("c.json: answer: missing"), "{error}");
    }

    #[test]
    fn a_trace_whose_receipts_name_another_policy_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("other.jsonl");
        let receipt = |policy| {
            let record = json!({
                "at": "2026-11-23T15:11:00Z", "kind": "receipt", "pool": "default/web", "decision": "scale-down",
                "policy": policy, "summary": "",
            });
            format!("{record}\n")
        };
        let told = ["ours@sha256:0123456789ab", "native", "none"].map(receipt).concat();
        std::fs::write(&file, std::fs::read_to_string(GOLDEN).unwrap() + &told).unwrap();
        let line = ["simulate", "--trace", file.to_str().unwrap(), "--allow-uncalibrated"];
        let report = simulate(&Line::try_parse_from(line).unwrap().arguments).unwrap();
        let note = "note: ours@sha256:0123456789ab made 1 of the recorded scale-down decisions, but builtin is simulated";
        assert!(report.notes.contains(note) && report.notes.matches("of the recorded").count() == 1, "{}", report.notes);
    }

    #[test]
    fn nothing_is_compared_where_the_recorded_policy_gives_something_else() {
        let directory = tempfile::tempdir().unwrap();
        // The recorded pool is said to have started with a maximum that was not its own.
        let other = std::fs::read_to_string(GOLDEN).unwrap().replace("\"max\":8", "\"max\":1");
        let file = directory.path().join("other.jsonl");
        std::fs::write(&file, other).unwrap();
        let run = |more: &[&str]| {
            let line = ["simulate", "--trace", file.to_str().unwrap()];
            simulate(&Line::try_parse_from(line.iter().chain(more)).unwrap().arguments).unwrap()
        };
        let report = run(&["--policies", "none.yaml"]);
        assert!(report.failure.unwrap().contains("--allow-uncalibrated") && report.text.contains("too far"), "{}", report.text);
        assert_eq!(run(&["--allow-uncalibrated"]).failure, None);
    }
}
