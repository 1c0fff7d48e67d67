//! `test`: cases as files against the built policy.

use std::path::PathBuf;

use anyhow::Result;
use pacer_policy::{Jail, Policy};
use pacer_policy_sdk::cases::{differences, one_line};
use pacer_policy_sdk::lifecycle::Problem;

use super::case::{Case, takes};
use super::settings::SettingsArgument;
use super::source::{Source, jail};
use crate::plain;
use crate::report::Report;
use crate::table;

/// Arguments of `pacer policy test`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// The component, or `builtin`.
    file: Source,
    /// A directory of cases, or one case.
    cases: PathBuf,
    #[command(flatten)]
    settings: SettingsArgument,
}

/// `pacer policy test`.
pub(crate) fn test(arguments: &Arguments) -> Result<Report> {
    let cases = Case::all(&arguments.cases)?;
    let jail = jail()?;
    let policy = arguments.file.load(&jail)?;
    let mut text = String::new();
    let mut failed = 0_usize;
    for case in &cases {
        let (found, fuel) = problems(case, &jail, &policy, &arguments.settings)?;
        let path = case.path.display();
        if found.is_empty() {
            text.push_str(&format!("ok    {path} ({}, fuel {})\n", case.inquiry.decision(), table::number(fuel)));
            continue;
        }
        failed += 1;
        text.push_str(&format!(
            "FAIL  {path}{}\n",
            if case.about.is_empty() { String::new() } else { format!(": {}", plain::line(&case.about)) }
        ));
        for problem in &found {
            text.push_str(&format!("      {}\n", one_line(problem)));
        }
    }
    text.push_str(&format!("{policy}: {} passed, {failed} failed\n", cases.len() - failed));
    let failure = (failed > 0).then(|| format!("{failed} of {} cases failed", cases.len()));
    Ok(Report { text, notes: String::new(), failure })
}

/// Where the answer is not the expected one, and the fuel it took.
fn problems(case: &Case, jail: &Jail, policy: &Policy, settings: &SettingsArgument) -> Result<(Vec<Problem>, u64)> {
    if !policy.takes(case.inquiry.decision()) {
        let message = format!("it is about {}, and the policy takes {} only", case.inquiry.decision(), takes(policy));
        return Ok((vec![Problem::new("decision", message)], 0));
    }
    let outcome = case.ask(jail, policy, settings)?;
    let mut found = differences(&case.expected, &case.named(&outcome));
    if let Some(most) = case.fuel_at_most.filter(|most| outcome.fuel > *most) {
        let message = format!("it took {}, more than {}", table::number(outcome.fuel), table::number(most));
        found.push(Problem::new("fuel-at-most", message));
    }
    Ok((found, outcome.fuel))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tested(case: &str) -> Report {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("case.json"), case).unwrap();
        let arguments =
            Arguments { file: Source::Builtin, cases: directory.path().to_owned(), settings: SettingsArgument::default() };
        test(&arguments).unwrap()
    }

    #[test]
    fn the_shipped_cases_pass() {
        let cases = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/default/cases"));
        let report = test(&Arguments { file: Source::Builtin, cases, settings: SettingsArgument::default() }).unwrap();
        assert_eq!(report.failure, None, "{}", report.text);
        assert!(report.text.contains("5 passed, 0 failed"), "{}", report.text);
    }

    #[test]
    fn a_failure_names_case_and_field() {
        let head = r#""decision":"scale-down","request":{"candidates":[{"name":"a"},{"name":"b","idle":600}],"surplus":1}"#;
        let wrong = tested(&format!(r#"{{{head},"about":"a goes","answer":[{{"name":"a"}}]}}"#));
        assert_eq!(wrong.failure.as_deref(), Some("1 of 1 cases failed"));
        assert!(wrong.text.contains("case.json: a goes\n      answer[0].name: expected \"a\", got \"b\"\n"), "{}", wrong.text);
        let costly = tested(&format!(r#"{{{head},"answer":[{{"name":"b"}}],"fuel-at-most":10}}"#));
        assert!(costly.failure.is_some() && costly.text.contains("fuel-at-most: it took"), "{}", costly.text);
        let untested = tested(&format!("{{{head}}}"));
        assert!(untested.failure.is_some() && untested.text.contains("nothing is tested"), "{}", untested.text);
    }
}
