//! `pacer trace`: what a recorded trace says, and parts of it; and a trace of what GitHub remembers.

mod import;
mod surroundings;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::Subcommand;
use jiff::Timestamp;
use pacer_simulate::{Difference, Policies, Replay, Scenario, recorded};
use pacer_trace::{History, PoolSettings, Redaction, Trace, file};
use serde_json::json;

use crate::policy::contender;
use crate::report::{Format, Report};
use crate::table;

/// Problems that are shown; the rest is counted.
const SHOWN: usize = 20;

/// Least bytes of a key: shorter ones can be tried.
const KEY: usize = 16;

/// Most bytes of a key: more are a mistake, such as a device that never ends.
const LONGEST_KEY: usize = 64 << 10;

/// Verbs of `pacer trace`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Reads every record and reports contradictions.
    Check(FileArguments),
    /// Summarizes jobs, waits, runners and decisions per pool, lack of room in the cluster, and the health of GitHub.
    Summary(SummaryArguments),
    /// Replays recorded jobs and runners through this program's rules and reports where the resulting numbers differ from the recorded ones.
    Replay(ReplayArguments),
    /// Writes a time range of a trace to a new file.
    Cut(CutArguments),
    /// Writes a copy in which keyed hashes replace the names of repositories, workflows, runners, nodes, scopes and credentials.
    Redact(RedactArguments),
    /// Imports jobs of an organization or of repositories from GitHub's history into a new trace.
    Import(Box<import::Arguments>),
}

/// Arguments of `pacer trace check`.
#[derive(clap::Args, Debug)]
pub(crate) struct FileArguments {
    /// The trace. A name that ends in .zst is compressed.
    file: PathBuf,
}

/// Arguments of `pacer trace summary`.
#[derive(clap::Args, Debug)]
pub(crate) struct SummaryArguments {
    /// The trace.
    file: PathBuf,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
}

/// Arguments of `pacer trace replay`.
#[derive(clap::Args, Debug)]
pub(crate) struct ReplayArguments {
    /// The traces.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The policy set that was active during the recording. Default: the shipped policy.
    #[arg(long, value_name = "FILE")]
    recorded_policies: Option<PathBuf>,
    /// Fails if less than this share of the recorded changes can be compared.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    compared_at_least: u8,
    /// Fails only if more than this share of the compared numbers differs. A trace does not record when exactly the operator learned of an event.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    differing_at_most: u8,
}

/// Arguments of `pacer trace cut`.
#[derive(clap::Args, Debug)]
pub(crate) struct CutArguments {
    /// The trace.
    file: PathBuf,
    /// Start of the range, for example 2026-11-20T06:00:00Z. Default: start of the trace.
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// End of the range. Default: end of the trace.
    #[arg(long, value_name = "TIME")]
    to: Option<Timestamp>,
    /// The new file; it must not exist.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Arguments of `pacer trace redact`.
#[derive(clap::Args, Debug)]
pub(crate) struct RedactArguments {
    /// The trace.
    file: PathBuf,
    /// File with the key, at least 16 bytes. The same key gives the same hashes in every trace.
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// The new file; it must not exist.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Does what the verb says.
///
/// # Errors
///
/// When a file can't be read or written.
pub(crate) fn main(verb: &Verb) -> Result<Report> {
    match verb {
        Verb::Check(arguments) => check(arguments),
        Verb::Summary(arguments) => summary(arguments),
        Verb::Replay(arguments) => replay(arguments),
        Verb::Cut(arguments) => cut(arguments),
        Verb::Redact(arguments) => redact(arguments),
        Verb::Import(arguments) => import::import(arguments),
    }
}

fn check(arguments: &FileArguments) -> Result<Report> {
    let contents = pacer_trace::read(&arguments.file)?;
    let history = History::of(&contents.trace);
    let file = arguments.file.display();
    let mut text = format!(
        "{file}: version {}, {} records from {} to {}\n",
        contents.trace.header.version,
        table::number(contents.trace.records.len() as u64),
        history.started,
        history.ended
    );
    let mut notes = String::new();
    if contents.torn > 0 {
        notes.push_str(&format!(
            "the last {} bytes are torn off and left out; `pacer record` goes on before them\n",
            contents.torn
        ));
    }
    if history.unknown > 0 {
        notes.push_str(&format!("{} records are of kinds that this program does not know\n", history.unknown));
    }
    for (since, until) in &history.gaps {
        notes.push_str(&format!("nobody recorded from {since} to {until}\n"));
    }
    let problems = history.problems.len();
    for problem in history.problems.iter().take(SHOWN) {
        text.push_str(&format!("  {problem}\n"));
    }
    if problems > SHOWN {
        text.push_str(&format!("  and {} more\n", problems - SHOWN));
    }
    let failure = (problems > 0).then(|| format!("{file} contradicts itself in {problems} places"));
    Ok(Report { text, notes, failure })
}

fn summary(arguments: &SummaryArguments) -> Result<Report> {
    let trace = pacer_trace::read(&arguments.file)?.trace;
    let history = History::of(&trace);
    let scenario = Scenario::counted(&history);
    let (pools, total) = recorded(&history, &scenario);
    let decisions: u64 = history.pools.values().map(|pool| pool.decisions).sum();
    if arguments.output == Format::Json {
        let shown = json!({
            "started": history.started, "ended": history.ended, "records": trace.records.len(), "decisions": decisions,
            "total": total, "pools": pools, "settings": settings(&history), "notes": notes(&history, &scenario),
            "surroundings": surroundings::json(&history),
        });
        return Ok(Report::text(format!("{shown:#}\n")));
    }
    let mut rows = vec![
        ["pool", "jobs", "wait p50", "p95", "max", "runner-min", "idle-min", "starts", "failed", "removed", "bounds"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let all = (pools.len() > 1).then_some(("all".to_owned(), total));
    let last = settings(&history);
    for (name, figures) in pools.into_iter().chain(all) {
        let wait = |seconds: f64| if figures.jobs == 0 { "-".to_owned() } else { format!("{seconds:.1} s") };
        let bounds = last.get(name.as_str()).map_or_else(String::new, |settings| format!("{} to {}", settings.min, settings.max));
        rows.push(vec![
            name,
            table::number(figures.jobs),
            wait(figures.wait_p50),
            wait(figures.wait_p95),
            wait(figures.wait_max),
            format!("{:.1}", figures.runner_minutes),
            format!("{:.1}", figures.idle_minutes),
            table::number(figures.starts),
            table::number(figures.failed_starts),
            table::number(figures.removals),
            bounds,
        ]);
    }
    let table = if rows.len() > 1 { table::right(&rows) } else { String::new() };
    let head = format!(
        "{} records from {} to {}, {} changes of numbers\n",
        table::number(trace.records.len() as u64),
        history.started,
        history.ended,
        table::number(decisions)
    );
    let notes = notes(&history, &scenario).into_iter().map(|note| note + "\n").collect();
    Ok(Report { text: head + &table + &surroundings::text(&history), notes, failure: None })
}

/// The settings of each pool that were in force last.
fn settings(history: &History) -> BTreeMap<&str, &PoolSettings> {
    history.pools.iter().filter_map(|(name, life)| Some((name.as_ref(), &life.settings.last()?.1))).collect()
}

/// What limits how far the counts can be believed, and what there was nothing to count of.
fn notes(history: &History, scenario: &Scenario) -> Vec<String> {
    let counted = history.runners.len() as u64;
    let homeless = || {
        format!(
            "it has no settings of a pool, so that {} runner{} of it not counted",
            table::number(counted),
            if counted == 1 { " is" } else { "s are" }
        )
    };
    let no_pool = settings(history).is_empty().then(homeless);
    let no_job = history.jobs.is_empty().then(|| "it has no job, so that nothing is known of waits".to_owned());
    no_pool.into_iter().chain(no_job).chain(scenario.notes().iter().cloned()).collect()
}

fn replay(arguments: &ReplayArguments) -> Result<Report> {
    let policies = match &arguments.recorded_policies {
        Some(path) => Policies::of("recorded".to_owned(), contender::load(path)?),
        None => Policies::builtin(),
    };
    let policies = policies.context("starting the runtime")?;
    let (mut text, mut all) = (String::new(), Replay::default());
    for file in &arguments.files {
        let replay = pacer_simulate::replay(&pacer_trace::read(file)?.trace, &policies);
        if !replay.differences.is_empty() {
            text.push_str(&format!("{}: {}\n", file.display(), counts(&replay)));
        }
        for difference in replay.differences.iter().take(SHOWN) {
            let Difference { at, pool, recorded, decided } = difference;
            text.push_str(&format!("  {at} {pool}: {recorded} was recorded, {decided:?} came out\n"));
        }
        if replay.differences.len() > SHOWN {
            text.push_str(&format!("  and {} more\n", replay.differences.len() - SHOWN));
        }
        all.add(replay);
    }
    let of = match arguments.files.as_slice() {
        [file] => file.display().to_string(),
        files => format!("{} traces", table::number(files.len() as u64)),
    };
    text.push_str(&format!("{of}: {}\n", counts(&all)));
    for (why, count) in &all.uncompared {
        text.push_str(&format!("  {} not compared: {why}\n", table::number(*count)));
    }
    let (differences, least) = (all.differences.len(), u64::from(arguments.compared_at_least));
    let failure = if differences as u64 * 100 > all.compared() * u64::from(arguments.differing_at_most) {
        Some(format!(
            "{of}: {differences} numbers differ; give the policies that were in force by --recorded-policies, if they were others"
        ))
    } else if all.compared() * 100 < all.recorded * least || (all.recorded == 0 && least > 0) {
        let compared = table::number(all.compared());
        Some(format!("{of}: {compared} of the recorded changes are compared, fewer than {least} %"))
    } else {
        None
    };
    Ok(Report { text, notes: String::new(), failure })
}

fn counts(replay: &Replay) -> String {
    format!(
        "{} changes of numbers were recorded, of which {} are compared; {} come out of the recorded facts, those that lasted for a moment included",
        table::number(replay.recorded),
        table::number(replay.compared()),
        table::number(replay.decided)
    )
}

fn cut(arguments: &CutArguments) -> Result<Report> {
    let trace = pacer_trace::read(&arguments.file)?.trace;
    let history = History::of(&trace);
    let (from, to) = (arguments.from.unwrap_or(history.started), arguments.to.unwrap_or(history.ended));
    ensure!(from < to, "--from {from} is not before --to {to}");
    ensure!(
        from < history.ended && to > history.started,
        "{} goes from {} to {}: nothing of it is between {from} and {to}",
        arguments.file.display(),
        history.started,
        history.ended
    );
    write(&arguments.out, &trace.cut(from, to))
}

fn redact(arguments: &RedactArguments) -> Result<Report> {
    let key = &arguments.key_file;
    let bytes = crate::file::read(key, LONGEST_KEY, "a key").context("--key-file")?;
    ensure!(
        bytes.len() >= KEY,
        "--key-file {} has {} bytes and needs {KEY}: whoever guesses the key can try names; make one with \
         `head -c 32 /dev/urandom`",
        key.display(),
        bytes.len()
    );
    let trace = pacer_trace::read(&arguments.file)?.trace;
    write(&arguments.out, &Redaction::new(&bytes).apply(&trace))
}

fn write(path: &std::path::Path, trace: &Trace) -> Result<Report> {
    file::write(path, trace)?;
    Ok(Report::text(format!("{}: {} records\n", path.display(), table::number(trace.records.len() as u64))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small trace of the test control plane.
    const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../simulate/tests/golden/burst.jsonl");

    #[test]
    fn recorded_facts_give_the_recorded_numbers_and_others_do_not() {
        let directory = tempfile::tempdir().unwrap();
        // All but the three of its last moments.
        let report = replay(PathBuf::from(GOLDEN), 70);
        assert!(report.failure.is_none(), "{}", report.text);
        let text = std::fs::read_to_string(GOLDEN).unwrap();
        // Another maximum than was in force, and a number that nobody decided.
        for (name, from, to) in [("max.jsonl", "\"max\":8", "\"max\":6"), ("number.jsonl", "\"to\":6", "\"to\":5")] {
            assert!(text.contains(from), "{from} is not in the trace");
            let file = directory.path().join(name);
            std::fs::write(&file, text.replace(from, to)).unwrap();
            let report = replay(file.clone(), 70);
            assert!(report.failure.is_some_and(|failure| failure.contains("differ")), "{name}: {}", report.text);
            // They are told of all the same.
            let report = replay_with(file.clone(), 70, 100);
            assert!(report.failure.is_none() && report.text.contains("came out"), "{name}: {}", report.text);
            assert!(replay_with(file, 70, 5).failure.is_some(), "{name}");
        }
    }

    #[test]
    fn job_whose_beginning_nobody_saw_is_counted_all_the_same() {
        let text = std::fs::read_to_string(GOLDEN).unwrap();
        let directory = tempfile::tempdir().unwrap();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| line.contains("\"kind\":\"job-started\"")) {
            let file = directory.path().join(format!("{number}.jsonl"));
            std::fs::write(&file, text.replace(line, &line.replace("job-started", "job-assigned"))).unwrap();
            let report = replay(file, 70);
            assert!(report.failure.is_none(), "{line}: {}", report.text);
        }
    }

    #[test]
    fn numbers_that_something_unrecorded_decided_are_counted_and_not_compared() {
        let text = std::fs::read_to_string(GOLDEN).unwrap();
        let directory = tempfile::tempdir().unwrap();
        // With a number that nobody decided, so that comparing would fail.
        let wrong = text.replace("\"to\":6", "\"to\":5");
        for (name, reason, trace) in [
            ("metrics", "a field of the autoscaler", wrong.replace("\"max\":8", "\"max\":8,\"unrecorded\":[\"metrics\"]")),
            ("policy", "another policy", wrong.replace("\"max\":8", "\"max\":8,\"capacityPolicy\":\"mine@sha256:0123456789ab\"")),
        ] {
            assert_ne!(trace, wrong, "{name}");
            let file = directory.path().join(format!("{name}.jsonl"));
            std::fs::write(&file, trace).unwrap();
            let report = replay(file.clone(), 0);
            assert!(report.failure.is_none() && report.text.contains(reason), "{name}: {}", report.text);
            let failure = replay(file, 1).failure;
            assert!(failure.as_ref().is_some_and(|failure| failure.contains("fewer than 1 %")), "{name}: {failure:?}");
        }
    }

    fn replay(file: PathBuf, compared_at_least: u8) -> Report {
        replay_with(file, compared_at_least, 0)
    }

    fn replay_with(file: PathBuf, compared_at_least: u8, differing_at_most: u8) -> Report {
        let arguments = ReplayArguments { files: vec![file], recorded_policies: None, compared_at_least, differing_at_most };
        main(&Verb::Replay(arguments)).unwrap()
    }

    /// A trace of these records.
    fn written(directory: &std::path::Path, records: &[serde_json::Value]) -> PathBuf {
        let header = json!({"format": "pacer-trace", "version": 1, "started": "2026-01-01T00:00:00Z", "by": "a test"});
        let lines = std::iter::once(&header).chain(records).map(|line| format!("{line}\n"));
        let file = directory.join("trace.jsonl");
        std::fs::write(&file, lines.collect::<String>()).unwrap();
        file
    }

    #[test]
    fn trace_without_a_job_is_summarized_with_what_there_is() {
        let directory = tempfile::tempdir().unwrap();
        let at = |minute: u32| format!("2026-01-01T00:{minute:02}:00Z");
        let window = json!({"resource": "core", "limit": 5000, "used": 1000, "remaining": 4000, "resetsAt": at(30)});
        let github = [
            json!({"at": at(4), "kind": "listings", "credentials": "default", "scopes": [{"scope": "acme/app", "listings": 3}]}),
            json!({"at": at(4), "kind": "budget", "credentials": "default", "windows": [window]}),
        ];
        let pool = [
            json!({
                "at": at(0), "kind": "pool", "pool": "ci/web", "labels": ["web"], "ephemeral": true, "min": 1, "max": 8, "replicas": 1,
                "scaleDownDelaySeconds": 600, "jobLifeSeconds": 600, "webhooks": true,
            }),
            json!({"at": at(1), "kind": "decision", "pool": "ci/web", "from": 0, "to": 1}),
            json!({"at": at(1), "kind": "runner-created", "runner": "web-a", "pool": "ci/web"}),
            json!({"at": at(2), "kind": "runner-registered", "runner": "web-a"}),
            json!({"at": at(6), "kind": "checkpoint"}),
        ];
        let summary = |records: &[serde_json::Value], output| {
            main(&Verb::Summary(SummaryArguments { file: written(directory.path(), records), output })).unwrap()
        };
        let all = [&pool[..], &github].concat();
        let Report { text, notes, .. } = summary(&all, Format::Text);
        let row = text.lines().find(|line| line.contains("ci/web")).unwrap_or_else(|| panic!("{text}"));
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells, ["ci/web", "0", "-", "-", "-", "5.0", "4.0", "1", "0", "0", "1", "to", "8"], "{text}");
        assert!(text.contains("1 changes of numbers") && text.contains("3 listings"), "{text}");
        assert!(text.contains("4,000 of 5,000 calls of core left"), "{text}");
        assert!(notes.contains("it has no job"), "{notes}");
        let json: serde_json::Value = serde_json::from_str(&summary(&all, Format::Json).text).unwrap();
        assert_eq!((&json["settings"]["ci/web"]["max"], &json["pools"]["ci/web"]["starts"]), (&json!(8), &json!(1)), "{json:#}");
        // Not even a pool.
        let Report { text, notes, .. } = summary(&github, Format::Text);
        assert!(text.contains("3 listings") && !text.contains("wait p50"), "{text}");
        assert!(notes.contains("no settings of a pool") && notes.contains("it has no job"), "{notes}");
    }

    #[test]
    fn a_trace_is_checked_counted_cut_and_redacted() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let golden = PathBuf::from(GOLDEN);
        let report = main(&Verb::Check(FileArguments { file: golden.clone() })).unwrap();
        assert!(report.failure.is_none() && report.text.contains("version 1"), "{}", report.text);
        let report = main(&Verb::Summary(SummaryArguments { file: golden.clone(), output: Format::Text })).unwrap();
        assert!(report.text.contains("default/web    22"), "{}", report.text);
        let cut = |from: &str, to: Option<&str>, out: &str| {
            let time = |text: &str| text.parse().unwrap();
            main(&Verb::Cut(CutArguments { file: golden.clone(), from: Some(time(from)), to: to.map(time), out: at(out) }))
        };
        let error = cut("1999-01-01T00:00:00Z", Some("1999-01-02T00:00:00Z"), "none.jsonl").unwrap_err().to_string();
        assert!(error.contains("nothing of it is between"), "{error}");
        cut("1999-01-01T00:00:00Z", None, "all.jsonl.zst").unwrap();
        assert!(cut("1999-01-01T00:00:00Z", None, "all.jsonl.zst").is_err(), "nothing is overwritten");
        let (short, key) = (at("short"), at("key"));
        std::fs::write(&short, "1234").unwrap();
        std::fs::write(&key, [7; 32]).unwrap();
        let redact = |key_file: &PathBuf, out: &str| {
            main(&Verb::Redact(RedactArguments { file: at("all.jsonl.zst"), key_file: key_file.clone(), out: at(out) }))
        };
        assert!(redact(&short, "public.jsonl").unwrap_err().to_string().contains("needs 16"));
        redact(&key, "public.jsonl").unwrap();
        assert!(!std::fs::read_to_string(at("public.jsonl")).unwrap().contains("acme"));
        let report = main(&Verb::Check(FileArguments { file: at("public.jsonl") })).unwrap();
        assert!(report.failure.is_none(), "{}", report.text);
    }
}
