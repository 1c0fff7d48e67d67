//! Case files as [`pacer_policy_sdk::cases`] describes them, put to a built policy.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use pacer_policy::{Answer, Decision, Digest, Fault, Inquiry, Jail, Limits, NO_SETTINGS, Outcome, Policy, RAW_BYTES, Record};
use pacer_policy_sdk::cases::{self, Expected};
use pacer_policy_sdk::lifecycle::Problem;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::settings::SettingsArgument;
use crate::{file, plain};

/// Largest file with a case or a receipt, in bytes: what an operator writes of a receipt, and indented by `--save`.
pub(super) const CASE_BYTES: usize = 4 * RAW_BYTES;

/// A case of any decision.
pub(crate) struct Case {
    /// The file it is in.
    pub(crate) path: PathBuf,
    /// What it shows, in words.
    pub(crate) about: String,
    /// The request that is put to the policy.
    pub(crate) inquiry: Inquiry,
    /// Settings of its own, as JSON.
    pub(crate) settings: Option<String>,
    /// What must come of it.
    pub(crate) expected: Expected,
    /// Most instructions, in units of fuel.
    pub(crate) fuel_at_most: Option<u64>,
}

impl Case {
    /// Reads a file. `decision` is for a request on its own, which does not say what it is about.
    pub(crate) fn read(path: &Path, decision: Option<Decision>) -> Result<Self> {
        let text = file::read_text(path, CASE_BYTES, "a case or a receipt")?;
        // A receipt is a request with the answer that the operator used.
        if let Ok(record) = Record::read(text.as_bytes()) {
            return Self::of_record(path, &record);
        }
        Self::parse(path, &text, decision)
    }

    /// What was recorded, as a case.
    pub(crate) fn of_record(path: &Path, record: &Record) -> Result<Self> {
        Self::parse(path, &of_receipt(record)?.to_string(), None)
    }

    fn parse(path: &Path, text: &str, asked: Option<Decision>) -> Result<Self> {
        // The SDK's reader names fields; where it is no JSON at all, people look for a line.
        serde_json::from_str::<IgnoredAny>(text)
            .map_err(|error| anyhow::anyhow!("{}: it is no JSON: {error}", path.display()))?;
        let wrong = |problem: Problem| anyhow::anyhow!("{}: {}", path.display(), cases::one_line(&problem));
        let (decision, whole) = match cases::decision(text).map_err(wrong)? {
            Some(name) => {
                let decision: Decision = name.parse().ok().with_context(|| {
                    format!("{}: decision: {name:?} is none of scale-down, restart, capacity and recover", path.display())
                })?;
                ensure!(asked.is_none_or(|asked| asked == decision), "{}: it is about {decision}", path.display());
                (decision, true)
            }
            None => match asked {
                Some(decision) => (decision, false),
                None => bail!(
                    "{}: decision: missing; say scale-down, restart, capacity or recover there, or pass --decision for a request on its own",
                    path.display()
                ),
            },
        };
        // Read as a case, errors have their place in the file.
        let wrapped;
        let text = if whole || text.contains("\"request\"") {
            text
        } else {
            wrapped = format!("{{\"request\":{text}}}");
            &wrapped
        };
        match decision {
            Decision::ScaleDown => cases::read(text).map(|case| Self::of(path, case, Inquiry::ScaleDown)),
            Decision::Restart => cases::read(text).map(|case| Self::of(path, case, Inquiry::Restart)),
            Decision::Capacity => cases::read(text).map(|case| Self::of(path, case, Inquiry::Capacity)),
            Decision::Recover => cases::read(text).map(|case| Self::of(path, case, Inquiry::Recover)),
        }
        .map_err(wrong)
    }

    fn of<R>(path: &Path, case: cases::Case<R>, inquiry: impl FnOnce(R) -> Inquiry) -> Self {
        let cases::Case { about, settings, request, expected, fuel_at_most } = case;
        Self { path: path.to_owned(), about, inquiry: inquiry(request), settings, expected, fuel_at_most }
    }

    /// All files of a directory, or the one that is named.
    pub(crate) fn all(path: &Path) -> Result<Vec<Self>> {
        let files = cases::files(path).with_context(|| format!("{} can't be read", path.display()))?;
        ensure!(!files.is_empty(), "{} has no .json files: a case is a request with the answer it must get", path.display());
        files.iter().map(|file| Self::read(file, None)).collect()
    }

    /// Puts it to a policy. `settings` on the command line win over the case's.
    pub(crate) fn ask(&self, jail: &Jail, policy: &Policy, settings: &SettingsArgument) -> Result<Outcome> {
        let settings = settings.or(self.settings.as_deref(), self.inquiry.settings())?;
        Ok(ask(jail, policy, &self.inquiry, &settings, &Limits::default()))
    }

    /// What the recorded answer does: the answer without its reasons.
    ///
    /// # Errors
    ///
    /// Where the file has no answer.
    pub(crate) fn effect(&self) -> Result<Value> {
        let Expected::Answer(expected) = &self.expected else {
            bail!("{}: answer: missing; a receipt has the answer that the operator used", self.path.display());
        };
        let mut effect = expected.clone();
        forget_reasons(&mut effect);
        Ok(effect)
    }

    /// The answer in JSON, with the names of the runners; or the words of the policy that declines.
    pub(crate) fn named(&self, outcome: &Outcome) -> Result<Value, String> {
        match &outcome.answer {
            Ok(answer) => Ok(cases::named(answer, &self.inquiry.names())),
            Err(Fault::PolicyError(text)) => Err(text.clone()),
            Err(fault) => Err(fault.to_string()),
        }
    }
}

/// Takes the reasons out of an answer: they change nothing of what is done.
pub(crate) fn forget_reasons(answer: &mut Value) {
    match answer {
        Value::Array(items) => items.iter_mut().for_each(forget_reasons),
        Value::Object(fields) => {
            fields.remove("reason");
            fields.values_mut().for_each(forget_reasons);
        }
        _ => {}
    }
}

/// The decisions that a policy takes, in words.
pub(crate) fn takes(policy: &Policy) -> String {
    policy.decisions().into_iter().map(Decision::as_str).collect::<Vec<_>>().join(", ")
}

/// One call. A busy machine may steal a call's whole deadline, so that gets a second and a third chance.
pub(crate) fn ask(jail: &Jail, policy: &Policy, inquiry: &Inquiry, settings: &str, limits: &Limits) -> Outcome {
    let once = || policy.answer(jail, inquiry, settings, limits);
    let mut outcome = once();
    for _ in 0..2 {
        if outcome.answer != Err(Fault::Deadline) {
            break;
        }
        outcome = once();
    }
    outcome
}

/// What an answer says about each thing, one row for each: what, and why. Question and answer may be those of a receipt in the cluster.
pub(crate) fn rows(inquiry: &Inquiry, answer: &Answer) -> Vec<Vec<String>> {
    told(inquiry, answer).iter().map(|row| row.iter().map(|cell| plain::line(cell)).collect()).collect()
}

fn told(inquiry: &Inquiry, answer: &Answer) -> Vec<Vec<String>> {
    let names = inquiry.names();
    let name = |index: u32| names.get(index as usize).map_or_else(|| index.to_string(), |name| (*name).to_owned());
    let after =
        |after: Option<u32>| after.filter(|after| *after > 0).map_or_else(String::new, |after| format!(" after {after} s"));
    match answer {
        Answer::ScaleDown(choices) => choices.iter().map(|choice| vec![name(choice.index), choice.reason.clone()]).collect(),
        Answer::Restart(verdicts) => verdicts
            .iter()
            .map(|verdict| {
                vec![name(verdict.index), format!("{}{}", verdict.action, after(verdict.after)), verdict.reason.clone()]
            })
            .collect(),
        Answer::Recover(verdicts) => verdicts
            .iter()
            .map(|verdict| {
                vec![name(verdict.index), format!("{}{}", verdict.action, after(verdict.after)), verdict.reason.clone()]
            })
            .collect(),
        Answer::Capacity(plan) => {
            let held = plan.reservations.iter().map(|held| {
                let from = if held.effective > 0 { format!("from {} s ", held.effective) } else { String::new() };
                vec![held.id.clone(), format!("{} {from}until {} s", held.replicas, held.expires), held.reason.clone()]
            });
            let ceiling = plan.ceiling.map(|ceiling| vec!["ceiling".to_owned(), ceiling.to_string(), String::new()]);
            let again = plan.look_again.map(|after| vec!["look again".to_owned(), format!("after {after} s"), String::new()]);
            held.chain(ceiling).chain(again).collect()
        }
    }
}

/// A case: the request with the settings taken out of it, and the answer that the operator used.
pub(crate) fn of_receipt(record: &Record) -> Result<Value> {
    let id = plain::line(&record.id);
    let input = record.input.as_ref().with_context(|| match record.was_asked() {
        true => format!("receipt {id} has no input, because it was too large for the store (--receipts-bytes-per-pool)"),
        false => format!("receipt {id} has no input: no policy was asked ({})", plain::line(&record.outcome())),
    })?;
    let mut request = serde_json::to_value(input)?;
    if let Some(fields) = request.as_object_mut() {
        fields.remove("settings");
    }
    let settings: Value = serde_json::from_str(settings(record, input)?).unwrap_or_else(|_| json!({}));
    let at = Timestamp::from_second(record.at.as_second()).unwrap_or(record.at);
    let mut case = json!({
        "about": format!("{} at {at}, decided by {}: {}", record.pool, record.receipt.policy, record.outcome()),
        "decision": record.decision(),
        "request": request,
        "answer": cases::named(&record.answer, &input.names()),
    });
    // Settings of none are what a case without any has.
    if settings != json!({})
        && let Some(fields) = case.as_object_mut()
    {
        fields.insert("settings".to_owned(), settings);
    }
    Ok(case)
}

/// The settings that the policy which decided was given.
pub(crate) fn settings<'a>(record: &Record, input: &'a Inquiry) -> Result<&'a str> {
    let given = record.receipt.decisive().map(|attempt| attempt.settings_hash.as_str()).unwrap_or_default();
    [input.settings(), NO_SETTINGS]
        .into_iter()
        .find(|settings| Digest::of(settings.as_bytes()).to_string() == given)
        .with_context(|| {
            let id = plain::line(&record.id);
            format!("the settings in receipt {id} are not those that the policy was given: it was changed since")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, decision: Option<Decision>) -> Result<Case, String> {
        Case::parse(Path::new("case.json"), text, decision).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn cases_and_bare_requests_are_read() {
        let case = read(r#"{"decision":"scale-down","settings":{"a":1},"request":{"surplus":2},"answer":[]}"#, None).unwrap();
        assert_eq!((case.settings.as_deref(), case.inquiry.decision()), (Some(r#"{"a":1}"#), Decision::ScaleDown));
        let bare = read(r#"{"subjects":[{"name":"a"}],"settings":"{}"}"#, Some(Decision::Restart)).unwrap();
        assert_eq!((bare.inquiry.items(), bare.expected, bare.inquiry.settings()), (1, Expected::Anything, "{}"));
    }

    #[test]
    fn what_a_receipt_says_about_a_thing_is_one_row() {
        let request = r#"{"candidates":[{"name":"a\n\u001b[2Jb"}],"surplus":1}"#;
        let forged = read(request, Some(Decision::ScaleDown)).unwrap();
        let choice = pacer_core::policy::Choice { index: 0, reason: "c\r\n\u{1b}d".to_owned(), attributes: Vec::new() };
        assert_eq!(rows(&forged.inquiry, &Answer::ScaleDown(vec![choice])), [["a [2Jb", "c d"]]);
    }

    #[test]
    fn mistakes_name_file_and_field() {
        for (text, decision, says) in [
            ("{}", None, "case.json: decision: missing"),
            (r#"{"decision":"scaledown","request":{}}"#, None, "case.json: decision: \"scaledown\" is none of"),
            (r#"{"decision":"restart","request":{}}"#, Some(Decision::Capacity), "case.json: it is about restart"),
            (
                r#"{"decision":"restart","request":{"subjects":[{"nme":1}]}}"#,
                None,
                "case.json: request.subjects[0].nme: unknown field",
            ),
            (
                r#"{"candidates":[{"idle":"x"}]}"#,
                Some(Decision::ScaleDown),
                "case.json: request.candidates[0].idle: a whole number from 0 to 4294967295 is expected, found \"x\"",
            ),
            ("[]", None, "case.json: "),
            ("{\n \"request\": {,\n}", None, "case.json: it is no JSON: key must be a string at line 2 column 14"),
        ] {
            let error = read(text, decision).map(drop).unwrap_err();
            assert!(error.starts_with(says), "{error}");
        }
    }
}
