//! Cases as files: a request, the settings, and what the answer must be. `pacer policy test` runs the same files against the built policy.
//!
//! ```json
//! {
//!   "about": "the youngest goes first",
//!   "decision": "scale-down",
//!   "settings": { "minIdleSeconds": 60 },
//!   "request": { "candidates": [{ "name": "a", "idle": 90 }, { "name": "b", "idle": 5 }], "surplus": 2 },
//!   "answer": [{ "name": "a" }]
//! }
//! ```
//!
//! Names are the contract's, in kebab case; facts that are left out of a request are zero, empty or absent. An answer need not be written
//! out: what an object leaves out is not compared, but lists must have as many items. Choices and verdicts may be told by the `name` of
//! their runner. `error` instead of `answer` is part of what the policy says when it declines. `fuel-at-most` bounds the instructions,
//! which only the built policy has.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::lifecycle::Problem;
use crate::{Capacity, Recover, Restart, ScaleDown, capacity, contract, json, recover, restart, scale_down};

/// A case whose request is an `R`.
#[derive(Clone, Debug, PartialEq)]
pub struct Case<R> {
    /// What it shows, in words.
    pub about: String,
    /// Settings as JSON, when the case has its own.
    pub settings: Option<String>,
    /// Request that the policy is given.
    pub request: R,
    /// What must come of it.
    pub expected: Expected,
    /// Most instructions, in units of fuel.
    pub fuel_at_most: Option<u64>,
}

/// What must come of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// An answer with at least this in it.
    Answer(Value),
    /// An error with this in it.
    Error(String),
    /// Nothing in particular: a recorded request.
    Anything,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Head {
    decision: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File<R> {
    #[serde(default, rename = "decision")]
    _decision: IgnoredAny,
    #[serde(default)]
    about: String,
    settings: Option<Value>,
    request: R,
    answer: Option<Value>,
    error: Option<String>,
    fuel_at_most: Option<u64>,
}

/// The decision that a file names.
///
/// # Errors
/// When it is not a JSON object, or its `decision` is no text.
pub fn decision(text: &str) -> Result<Option<String>, Problem> {
    parse::<Head>(text).map(|head| head.decision)
}

/// Reads a case whose decision is known.
///
/// # Errors
/// What is wrong, with its place in the file.
pub fn read<R: DeserializeOwned>(text: &str) -> Result<Case<R>, Problem> {
    let file: File<R> = parse(text)?;
    let expected = match (file.answer, file.error) {
        (Some(_), Some(_)) => return Err(Problem::new("error", "there is an `answer` as well: a policy gives one of the two")),
        (Some(answer), None) => Expected::Answer(answer),
        (None, Some(error)) => Expected::Error(error),
        (None, None) => Expected::Anything,
    };
    let settings = file.settings.map(|settings| settings.to_string());
    Ok(Case { about: file.about, settings, request: file.request, expected, fuel_at_most: file.fuel_at_most })
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    json::read(text)
}

/// The `.json` files of a directory by name; a file stands for itself.
///
/// # Errors
/// When it can't be listed.
pub fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// An answer as JSON in which choices and verdicts carry the `name` of what they are about.
#[must_use]
pub fn named(answer: &impl Serialize, names: &[&str]) -> Value {
    // Plain structs always serialise.
    let mut answer = serde_json::to_value(answer).unwrap_or_default();
    for item in answer.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        let index = item.get("index").and_then(Value::as_u64).and_then(|index| usize::try_from(index).ok());
        if let Some(name) = index.and_then(|index| names.get(index)) {
            item.insert("name".to_owned(), Value::from(*name));
        }
    }
    answer
}

/// Where an answer is not what was expected; the paths begin with `answer` or `error`.
#[must_use]
pub fn differences(expected: &Expected, answer: &Result<Value, String>) -> Vec<Problem> {
    let mut found = Vec::new();
    match (expected, answer) {
        (Expected::Anything, _) => {
            found.push(Problem::new("", "there is neither `answer` nor `error`, so nothing is tested: add one"));
        }
        (Expected::Answer(expected), Ok(answer)) => compare("answer", expected, answer, &mut found),
        (Expected::Answer(_), Err(error)) => found.push(Problem::new("answer", format!("it answered with an error: {error}"))),
        (Expected::Error(part), Err(error)) if error.contains(part) => {}
        (Expected::Error(part), Err(error)) => found.push(Problem::new("error", format!("expected {part:?} in {error:?}"))),
        (Expected::Error(part), Ok(answer)) => {
            found.push(Problem::new("error", format!("expected {part:?}, got the answer {answer}")));
        }
    }
    found
}

fn compare(path: &str, expected: &Value, actual: &Value, found: &mut Vec<Problem>) {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            for (key, expected) in expected {
                compare(&format!("{path}.{key}"), expected, actual.get(key).unwrap_or(&Value::Null), found);
            }
        }
        (Value::Array(expected), Value::Array(actual)) if expected.len() == actual.len() => {
            for (index, (expected, actual)) in expected.iter().zip(actual).enumerate() {
                compare(&format!("{path}[{index}]"), expected, actual, found);
            }
        }
        (Value::Array(expected), Value::Array(actual)) => {
            let (expected, got) = (expected.len(), actual.len());
            found.push(Problem::new(path, format!("expected {expected} items, got {got}: {}", Value::Array(actual.clone()))));
        }
        (Value::Number(expected), Value::Number(actual)) if expected.as_f64() == actual.as_f64() => {}
        (expected, actual) if expected == actual => {}
        (expected, actual) => found.push(Problem::new(path, format!("expected {expected}, got {actual}"))),
    }
}

/// Runs the cases of a directory that are about scale-down, natively, and returns how many there are.
///
/// # Errors
/// Every difference, one per line, with file and field. No case at all is an error too.
pub fn scale_down<P: ScaleDown>(directory: impl AsRef<Path>) -> Result<usize, String> {
    run(directory.as_ref(), "scale-down", |request: &mut scale_down::Request, settings| {
        request.settings = settings.unwrap_or_else(|| std::mem::take(&mut request.settings));
        let choices = contract::choices(request, scale_down::answer::<P>(request)?)?;
        Ok(named(&choices, &names(&request.candidates, |candidate| &candidate.name)))
    })
}

/// As [`scale_down()`], of the cases about restart.
///
/// # Errors
/// As [`scale_down()`].
pub fn restart<P: Restart>(directory: impl AsRef<Path>) -> Result<usize, String> {
    run(directory.as_ref(), "restart", |request: &mut restart::Request, settings| {
        request.settings = settings.unwrap_or_else(|| std::mem::take(&mut request.settings));
        let verdicts = contract::verdicts(request, restart::answer::<P>(request)?)?;
        Ok(named(&verdicts, &names(&request.subjects, |subject| &subject.name)))
    })
}

/// As [`scale_down()`], of the cases about capacity.
///
/// # Errors
/// As [`scale_down()`].
pub fn capacity<P: Capacity>(directory: impl AsRef<Path>) -> Result<usize, String> {
    run(directory.as_ref(), "capacity", |request: &mut capacity::Request, settings| {
        request.settings = settings.unwrap_or_else(|| std::mem::take(&mut request.settings));
        let plan = contract::plan(request, capacity::answer::<P>(request)?)?;
        Ok(named(&plan, &[]))
    })
}

/// As [`scale_down()`], of the cases about recover; verdicts may be told by the `name` of the runner that the job died with.
///
/// # Errors
/// As [`scale_down()`].
pub fn recover<P: Recover>(directory: impl AsRef<Path>) -> Result<usize, String> {
    run(directory.as_ref(), "recover", |request: &mut recover::Request, settings| {
        request.settings = settings.unwrap_or_else(|| std::mem::take(&mut request.settings));
        let verdicts = contract::recoveries(request, recover::answer::<P>(request)?)?;
        Ok(named(&verdicts, &names(&request.jobs, |job| &job.runner)))
    })
}

fn names<T>(items: &[T], name: impl Fn(&T) -> &String) -> Vec<&str> {
    items.iter().map(|item| name(item).as_str()).collect()
}

fn run<R: DeserializeOwned>(
    directory: &Path,
    about: &str,
    answer: impl Fn(&mut R, Option<String>) -> Result<Value, String>,
) -> Result<usize, String> {
    let unreadable = |path: &Path, error: io::Error| format!("{} can't be read: {error}", path.display());
    let mut count = 0;
    let mut found = Vec::new();
    for path in files(directory).map_err(|error| unreadable(directory, error))? {
        let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?;
        let mut tell = |problem: Problem| found.push(format!("{}: {}", path.display(), one_line(&problem)));
        match decision(&text) {
            Ok(decision) if decision.as_deref() != Some(about) => continue,
            Ok(_) => {}
            Err(problem) => {
                tell(problem);
                continue;
            }
        }
        count += 1;
        match read::<R>(&text) {
            Ok(mut case) => {
                let answer = answer(&mut case.request, case.settings);
                differences(&case.expected, &answer).into_iter().for_each(tell);
            }
            Err(problem) => tell(problem),
        }
    }
    match (count, found.is_empty()) {
        (0, true) => Err(format!("{} has no case about {about}", directory.display())),
        (_, true) => Ok(count),
        (_, false) => Err(found.join("\n")),
    }
}

/// `path: message`, or the message alone where there is no path.
#[must_use]
pub fn one_line(problem: &Problem) -> String {
    if problem.path.is_empty() { problem.message.clone() } else { format!("{}: {}", problem.path, problem.message) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_out_is_not_compared() {
        let actual = json!([{ "index": 1, "name": "b", "reason": "idle", "after": null }]);
        for (expected, says) in [
            (json!([{ "name": "b" }]), None),
            (json!([{ "index": 1.0, "after": null, "never": null }]), None),
            (json!([{ "name": "a" }]), Some("answer[0].name: expected \"a\", got \"b\"")),
            (json!([]), Some("answer: expected 0 items, got 1")),
            (json!({ "name": "b" }), Some("answer: expected {")),
        ] {
            let found = differences(&Expected::Answer(expected.clone()), &Ok(actual.clone()));
            match says {
                None => assert_eq!(found, [], "{expected}"),
                Some(says) => assert!(found.len() == 1 && one_line(&found[0]).starts_with(says), "{found:?}"),
            }
        }
    }

    #[test]
    fn errors_are_expected_in_part() {
        let declined = Err("settings are not usable: spare".to_owned());
        assert_eq!(differences(&Expected::Error("spare".into()), &declined), []);
        assert_eq!(differences(&Expected::Error("other".into()), &declined)[0].path, "error");
        assert_eq!(differences(&Expected::Error("spare".into()), &Ok(json!([])))[0].path, "error");
        assert_eq!(differences(&Expected::Answer(json!([])), &declined)[0].path, "answer");
        assert_eq!(differences(&Expected::Anything, &declined).len(), 1);
    }

    #[test]
    fn mistakes_in_a_file_have_a_place() {
        for (text, path, says) in [
            (r#"{"decision":"scale-down","request":{"candidates":[{"nme":"a"}]}}"#, "request.candidates[0].nme", "unknown field"),
            (
                r#"{"decision":"scale-down","request":{"surplus":-1}}"#,
                "request.surplus",
                "a whole number from 0 to 4294967295 is expected, found -1",
            ),
            (r#"{"decision":"scale-down","requests":{}}"#, "requests", "unknown field"),
            (r#"{"decision":"scale-down"}"#, "", "missing field `request`"),
            (r#"{"request":{},"answer":[],"error":"x"}"#, "error", "an `answer` as well"),
        ] {
            let problem = read::<scale_down::Request>(text).unwrap_err();
            assert_eq!(problem.path, path, "{text}: {}", problem.message);
            assert!(problem.message.contains(says), "{}", problem.message);
        }
        assert_eq!(decision(r#"{"decision":"restart","request":7}"#), Ok(Some("restart".into())));
        assert_eq!(decision("{}"), Ok(None));
    }
}
