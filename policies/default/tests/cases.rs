//! Runs `cases/*.json` natively; `pacer policy test builtin policies/default/cases` runs them in the sandbox.

use pacer_policy_default::Default as Shipped;
use pacer_policy_sdk::cases;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cases");

#[test]
fn scale_down() {
    assert_eq!(cases::scale_down::<Shipped>(CASES), Ok(1));
}

#[test]
fn restart() {
    assert_eq!(cases::restart::<Shipped>(CASES), Ok(2));
}

#[test]
fn capacity() {
    assert_eq!(cases::capacity::<Shipped>(CASES), Ok(1));
}

#[test]
fn recover() {
    assert_eq!(cases::recover::<Shipped>(CASES), Ok(1));
}

/// The cases that `one_per_job` of every other language passes as well.
#[test]
fn one_per_job_plans_as_in_other_languages() {
    let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/policies/all/cases");
    assert_eq!(cases::capacity::<Shipped>(shared), Ok(6));
}
