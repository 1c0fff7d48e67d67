//! Runs `cases/*.json`: a decision, a request and the answer to it, in the contract's terms.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "also in what tests call")]

use std::path::Path;

use pacer_policy_default::Default as Shipped;
use pacer_policy_sdk::capacity::{self, Plan};
use pacer_policy_sdk::restart::{self, Verdict};
use pacer_policy_sdk::scale_down::{self, Choice};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(tag = "decision", rename_all = "kebab-case", deny_unknown_fields)]
enum Case {
    ScaleDown { request: scale_down::Request, answer: Vec<Choice> },
    Restart { request: restart::Request, answer: Vec<Verdict> },
    Capacity { request: capacity::Request, answer: Plan },
}

#[test]
fn all_cases() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut decisions = [0; 3];
    for entry in std::fs::read_dir(directory).expect("there is a directory of cases") {
        let path = entry.expect("it can be listed").path();
        let name = path.display();
        let text = std::fs::read_to_string(&path).expect("a case can be read");
        match serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}")) {
            Case::ScaleDown { request, answer } => {
                assert_eq!(scale_down::answer::<Shipped>(&request), Ok(answer), "{name}");
                decisions[0] += 1;
            }
            Case::Restart { request, answer } => {
                assert_eq!(restart::answer::<Shipped>(&request), Ok(answer), "{name}");
                decisions[1] += 1;
            }
            Case::Capacity { request, answer } => {
                assert_eq!(capacity::answer::<Shipped>(&request), Ok(answer), "{name}");
                decisions[2] += 1;
            }
        }
    }
    assert!(decisions.iter().all(|count| *count > 0), "every decision has a case: {decisions:?}");
}
