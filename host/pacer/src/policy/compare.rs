//! `diff`: the same requests to two policies.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use pacer_policy::{Jail, Policy};
use serde_json::Value;

use super::case::{self, Case};
use super::settings::{self, SettingsArgument};
use super::source::{Source, jail};
use crate::archive::{Archive, Filter};
use crate::cluster::{self, ClusterArguments};
use crate::plain;
use crate::report::Report;
use crate::table;

/// Arguments of `pacer policy diff`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// A component, or `builtin`.
    one: Source,
    /// Another component, or `builtin`.
    other: Source,
    /// A directory of cases or receipts, or a single one. Expected answers are ignored.
    #[arg(required_unless_present = "receipts", conflicts_with = "receipts")]
    requests: Option<PathBuf>,
    /// Uses the receipts in the cluster instead of files: what would the other policy have done?
    #[arg(long)]
    receipts: bool,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// YAML or JSON file with settings of the first policy. Default: those of the case.
    #[arg(long, value_name = "FILE")]
    settings_one: Option<PathBuf>,
    /// YAML or JSON file with settings of the second policy. Default: those of the case.
    #[arg(long, value_name = "FILE")]
    settings_other: Option<PathBuf>,
    /// Also compares the reasons.
    #[arg(long)]
    reasons: bool,
    /// Exits with an error if answers differ.
    #[arg(long)]
    exit_code: bool,
}

/// One side of the comparison.
struct Side {
    policy: Policy,
    settings: SettingsArgument,
    fuel: u64,
}

impl Side {
    fn new(jail: &Jail, source: &Source, settings: Option<&PathBuf>) -> Result<Self> {
        // Unreadable settings are found before anything is asked.
        settings::read(settings.map(PathBuf::as_path))?;
        Ok(Self { policy: source.load(jail)?, settings: SettingsArgument::of(settings.cloned()), fuel: 0 })
    }

    /// What is compared, and what is shown.
    fn answer(&mut self, jail: &Jail, case: &Case, reasons: bool) -> Result<(Value, String)> {
        let outcome = case.ask(jail, &self.policy, &self.settings)?;
        self.fuel = self.fuel.saturating_add(outcome.fuel);
        let rows = outcome.answer.as_ref().map(|answer| case::rows(&case.inquiry, answer)).unwrap_or_default();
        let (mut value, shown) = match case.named(&outcome) {
            Ok(value) if rows.is_empty() => (value, "nothing\n".to_owned()),
            Ok(value) => (value, table::left(&rows)),
            Err(error) => (Value::String(error.clone()), format!("no answer: {error}\n")),
        };
        if !reasons {
            case::forget_reasons(&mut value);
        }
        Ok((value, shown))
    }
}

/// `pacer policy diff`.
pub(crate) fn diff(arguments: &Arguments) -> Result<Report> {
    ensure!(
        arguments.receipts || arguments.filter == Filter::default(),
        "--pool, --runner, --decision and --last choose among receipts, and have no effect without --receipts"
    );
    let cases = cases(arguments)?;
    let jail = jail()?;
    let mut one = Side::new(&jail, &arguments.one, arguments.settings_one.as_ref())?;
    let mut other = Side::new(&jail, &arguments.other, arguments.settings_other.as_ref())?;
    let mut text = String::new();
    let (mut compared, mut differing) = (0_usize, 0_usize);
    for case in &cases {
        let decision = case.inquiry.decision();
        if !(one.policy.takes(decision) && other.policy.takes(decision)) {
            continue;
        }
        compared += 1;
        let (left, shown_left) = one.answer(&jail, case, arguments.reasons)?;
        let (right, shown_right) = other.answer(&jail, case, arguments.reasons)?;
        if left != right {
            differing += 1;
            text.push_str(&format!("{} ({decision})\n", case.path.display()));
            text.push_str(&marked('-', &shown_left));
            text.push_str(&marked('+', &shown_right));
        }
    }
    ensure!(compared > 0, "no request is about a decision that both policies take");
    text.push_str(&format!(
        "- {}: fuel {}\n+ {}: fuel {}\n",
        one.policy,
        table::number(one.fuel),
        other.policy,
        table::number(other.fuel)
    ));
    text.push_str(&format!("{} of {compared} answers are the same\n", compared - differing));
    let failure = (arguments.exit_code && differing > 0).then(|| format!("{differing} of {compared} answers differ"));
    Ok(Report { text, notes: String::new(), failure })
}

fn cases(arguments: &Arguments) -> Result<Vec<Case>> {
    match &arguments.requests {
        Some(requests) => Case::all(requests),
        None => cluster::with(&arguments.cluster, async |cluster| {
            let archive = Archive::read(&cluster).await?;
            let records = arguments.filter.of(&archive);
            // One that lost its input can't be asked again.
            let whole = records.iter().filter(|record| record.input.is_some());
            let path = |id: &str| PathBuf::from(format!("receipt {}", plain::line(id)));
            let cases = whole.map(|record| Case::of_record(&path(&record.id), record)).collect::<Result<Vec<_>>>()?;
            ensure!(!cases.is_empty(), "no receipt is as wanted: {}", archive.gaps(jiff::Timestamp::now()));
            Ok(cases)
        })
        .context("reading receipts"),
    }
}

fn marked(mark: char, lines: &str) -> String {
    lines.lines().map(|line| format!("  {mark} {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_make_a_difference() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        let case = r#"{"decision":"scale-down","request":{"candidates":[{"name":"a","idle":70,"age":1},{"name":"b","idle":65,"age":9}],"surplus":1}}"#;
        std::fs::write(place("case.json"), case).unwrap();
        std::fs::write(place("fine.yaml"), "idleBucketSeconds: 1").unwrap();
        let arguments = |settings_other| Arguments {
            one: Source::Builtin,
            other: Source::Builtin,
            requests: Some(directory.path().to_owned()),
            receipts: false,
            filter: Filter::default(),
            cluster: ClusterArguments::default(),
            settings_one: None,
            settings_other,
            reasons: false,
            exit_code: true,
        };
        let same = diff(&arguments(None)).unwrap();
        assert!(same.failure.is_none() && same.text.ends_with("1 of 1 answers are the same\n"), "{}", same.text);
        let differs = diff(&arguments(Some(place("fine.yaml")))).unwrap();
        assert_eq!(differs.failure.as_deref(), Some("1 of 1 answers differ"));
        assert!(differs.text.contains("  - b  ") && differs.text.contains("  + a  "), "{}", differs.text);
    }
}
