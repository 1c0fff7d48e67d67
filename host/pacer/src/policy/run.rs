//! `run`: one request, one answer, as the operator would use it.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use pacer_policy::{Decision, Level, Limits, Outcome};
use serde_json::json;

use super::case::{self, Case};
use super::settings::SettingsArgument;
use super::source::{Source, jail};
use crate::report::Report;
use crate::table;

/// Arguments of `pacer policy run`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// The component, or `builtin`.
    file: Source,
    /// A case, or a bare request.
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// Decision that a bare request is about: scale-down, restart, capacity or recover.
    #[arg(long)]
    decision: Option<Decision>,
    #[command(flatten)]
    settings: SettingsArgument,
    /// Prints everything as one JSON object.
    #[arg(long)]
    json: bool,
}

/// `pacer policy run`.
pub(crate) fn run(arguments: &Arguments) -> Result<Report> {
    let case = Case::read(&arguments.input, arguments.decision)?;
    if let Some(why) = case.inquiry.contradiction() {
        bail!("{}: no operator would ask this: {why}", arguments.input.display());
    }
    let jail = jail()?;
    let policy = arguments.file.load(&jail)?;
    let about = case.inquiry.decision();
    ensure!(
        policy.takes(about),
        "{} is about {about}, and {policy} takes {} only",
        arguments.input.display(),
        case::takes(&policy)
    );
    let outcome = case.ask(&jail, &policy, &arguments.settings)?;
    let failure =
        outcome.answer.as_ref().err().map(|fault| format!("{policy} gave no usable answer ({}): {fault}", fault.kind()));
    let text = if arguments.json {
        let shown = json!({
            "policy": policy.to_string(),
            "decision": case.inquiry.decision(),
            "answer": case.named(&outcome).ok(),
            "fault": outcome.answer.as_ref().err(),
            "fuel": outcome.fuel,
            "duration-us": u64::try_from(outcome.duration.as_micros()).unwrap_or(u64::MAX),
            "peak-memory": outcome.peak_memory,
            "log": outcome.log,
            "log-dropped": outcome.log_dropped,
        });
        format!("{shown:#}\n")
    } else {
        let mut text = format!("{} by {policy}\n", case.inquiry.decision());
        if let Ok(answer) = &outcome.answer {
            let rows = case::rows(&case.inquiry, answer);
            text.push_str(if rows.is_empty() { "nothing\n" } else { "" });
            text.push_str(&table::left(&rows));
        }
        for line in &outcome.log {
            let level = match line.level {
                Level::Debug => "debug",
                Level::Info => "info",
                Level::Warn => "warn",
            };
            text.push_str(&format!("log {level}: {}\n", line.message));
        }
        let limits = policy.limits(Limits::default());
        text + &effort(&outcome, limits.fuel(case.inquiry.items()), &limits)
    };
    Ok(Report { text, notes: String::new(), failure })
}

/// What a call took of what it may take.
fn effort(outcome: &Outcome, fuel: u64, limits: &Limits) -> String {
    format!(
        "fuel {} of {} ({}), {:.2} ms of {} ms, {} of {}\n",
        table::number(outcome.fuel),
        table::number(fuel),
        table::percent(outcome.fuel, fuel),
        outcome.duration.as_secs_f64() * 1e3,
        limits.deadline().as_millis(),
        table::bytes(outcome.peak_memory),
        table::bytes(limits.memory()),
    )
}
