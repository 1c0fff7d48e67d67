//! Runs many seeds, and prints a short script for each failure.
//!
//! ```text
//! fuzz-fleet [SEEDS [FIRST]]       many seeds
//! fuzz-fleet replay FILE           one script, with what happens in it
//! fuzz-fleet defects [SEEDS]       which defects are found, and at which seed
//! fuzz-fleet confirmation [SEEDS]  how many jobs different idle confirmations cost
//! ```

use std::fs;
use std::io::{Write, stdout};
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context, Result};
use pacer_laboratory::fuzz::search;
use pacer_laboratory::minimise::minimise;
use pacer_laboratory::rules::{Defect, Rules};
use pacer_laboratory::script::Script;
use pacer_laboratory::world::run;

/// Failures that are made short; one defect fails at many seeds.
const FAILURES: usize = 10;

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *words.as_slice() {
        ["replay", file] => replay(file),
        ["defects"] => defects(1_000),
        ["defects", seeds] => defects(seeds.parse()?),
        ["confirmation"] => confirmation(10_000),
        ["confirmation", seeds] => confirmation(seeds.parse()?),
        [] => fuzz(100_000, 0),
        [seeds] => fuzz(seeds.parse().context("SEEDS")?, 0),
        [seeds, first, ..] => fuzz(seeds.parse().context("SEEDS")?, first.parse().context("FIRST")?),
    }
}

fn threads() -> usize {
    available_parallelism().map_or(1, usize::from)
}

fn fuzz(seeds: u64, first: u64) -> Result<ExitCode> {
    let mut out = stdout().lock();
    let report = search(first, seeds, Rules::default(), threads(), FAILURES, None);
    for (seed, violation) in &report.failures {
        let (script, violation) = minimise(&Script::of_seed(*seed), Rules::default(), violation);
        writeln!(out, "# seed {seed}: {violation}\n{script}")?;
        let directory = "target/laboratory";
        fs::create_dir_all(directory)?;
        let file = format!("{directory}/{}-{seed}.txt", violation.invariant.as_str());
        fs::write(&file, format!("# {violation}\n{script}"))?;
        writeln!(out, "# written to {file}; copied to tests/laboratory/scripts it is a test\n")?;
    }
    writeln!(out, "{}", report.line())?;
    Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn replay(file: &str) -> Result<ExitCode> {
    let script: Script = fs::read_to_string(file).with_context(|| file.to_owned())?.parse()?;
    let defect = std::env::var("DEFECT").ok();
    let defect = defect.and_then(|name| Defect::ALL.into_iter().find(|defect| format!("{defect:?}") == name));
    let outcome = run(&script, Rules { defect, ..Rules::default() }, true);
    let mut out = stdout().lock();
    for line in &outcome.trace {
        writeln!(out, "{line}")?;
    }
    match outcome.violation {
        Some(violation) => {
            writeln!(out, "{violation}")?;
            Ok(ExitCode::FAILURE)
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

fn defects(seeds: u64) -> Result<ExitCode> {
    let mut out = stdout().lock();
    for defect in Defect::ALL {
        let report = search(0, seeds, Rules::with(defect), threads(), 1, None);
        match report.failures.first() {
            Some((seed, violation)) => writeln!(out, "{defect:?}: seed {seed}, {violation}")?,
            None => writeln!(out, "{defect:?}: not found in {} seeds", report.seeds)?,
        }
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What `--idle-confirmation` is chosen by: the same worlds with a shorter and a longer one.
fn confirmation(seeds: u64) -> Result<ExitCode> {
    let mut out = stdout().lock();
    writeln!(
        out,
        "| confirmation | jobs | killed as nothing showed them yet | seeds with a violation |\n| --: | --: | --: | --: |"
    )?;
    for seconds in [0, 1, 2, 5, 7, 10, 15, 20, 30, 60] {
        let rules = Rules { confirmation: Duration::from_secs(seconds), ..Rules::default() };
        let report = search(0, seeds, rules, threads(), usize::MAX, None);
        writeln!(out, "| {seconds} s | {} | {} | {} |", report.jobs, report.unlucky, report.failures.len())?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}
