//! Authors test their policies with the SDK's checks of answers, so these are the gate's.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test whose scene can't be set has failed")]

use std::fmt::Debug;

use pacer_core::gate::{self, GateError};
use pacer_core::restart::RestartLimits;
use pacer_core::{allowed, fit, pool};
use pacer_policy::{COMPRESSED_BYTES, Limits, RAW_BYTES, TEXT_BYTES};
use pacer_policy_sdk::limits;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// An answer, and what becomes of it: refused, taken as it is, or taken with its numbers cut.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    about: String,
    decision: String,
    request: Value,
    answer: Value,
    #[serde(default)]
    refused: bool,
    taken: Option<Value>,
}

fn judged<Q, A>(case: &Case, check: impl Fn(&Q, A) -> Result<A, GateError>)
where
    Q: DeserializeOwned,
    A: DeserializeOwned + PartialEq + Debug,
{
    let request: Q = serde_json::from_value(case.request.clone()).unwrap();
    let of = |answer: &Value| serde_json::from_value::<A>(answer.clone()).unwrap();
    let expected = (!case.refused).then(|| of(case.taken.as_ref().unwrap_or(&case.answer)));
    let taken = check(&request, of(&case.answer));
    assert_eq!(taken.as_ref().ok(), expected.as_ref(), "{}, {}: {taken:?}", case.decision, case.about);
}

/// The cases of the SDK's own test.
#[test]
fn gate_takes_cuts_and_refuses_what_the_sdk_does() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../../policies/sdk/tests/answers.json")).unwrap();
    assert!(cases.len() > 40);
    for case in &cases {
        match case.decision.as_str() {
            "capacity" => judged(case, gate::plan),
            "restart" => judged(case, gate::verdicts),
            "recover" => judged(case, gate::recoveries),
            "scale-down" => judged(case, gate::choices),
            other => panic!("{other} is no decision"),
        }
    }
}

#[test]
fn bounds_of_the_sdk_are_the_operators() {
    assert_eq!(limits::RESTART_LOOK_AGAIN, gate::RESTART_LOOK_AGAIN);
    assert_eq!(limits::LOOK_AGAIN_DEFAULT, gate::LOOK_AGAIN_DEFAULT);
    assert_eq!(limits::RESTART_WAIT_MAX, gate::RESTART_WAIT_MAX);
    assert_eq!(limits::RERUN_WAIT_MAX, gate::RERUN_WAIT_MAX);
    assert_eq!(limits::LOOK_AGAIN, gate::LOOK_AGAIN);
    assert_eq!(limits::EXPIRES, gate::EXPIRES);
    assert_eq!(limits::REPLICAS_MAX, gate::REPLICAS_MAX);
    assert_eq!(limits::SPARE_RESERVATIONS, gate::SPARE_RESERVATIONS);
    assert_eq!(limits::RESERVATION_ID_BYTES, gate::RESERVATION_ID_BYTES);
    assert_eq!(limits::REASON_BYTES, gate::REASON_BYTES);
    assert_eq!(limits::ATTRIBUTES, gate::ATTRIBUTES);
    assert_eq!(limits::KEY_BYTES, gate::KEY_BYTES);
    let operator = RestartLimits::default();
    assert_eq!(operator.look_max.as_secs(), u64::from(gate::RESTART_LOOK_AGAIN.1));
    assert_eq!(operator.look_max.max(operator.backoff_max).as_secs(), u64::from(gate::RESTART_WAIT_MAX));
}

/// A number as the documentation has it: 10,000.
fn number(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

fn bytes(bytes: usize) -> String {
    let (unit, name) = if bytes < 1 << 20 { (1 << 10, "KiB") } else { (1 << 20, "MiB") };
    assert_eq!(bytes % unit, 0);
    format!("{} {name}", bytes / unit)
}

#[test]
fn documentation_and_contract_have_the_bounds_of_an_answer() {
    let (look, wait) = (gate::RESTART_LOOK_AGAIN, gate::RESTART_WAIT_MAX);
    let (again, expires) = (gate::LOOK_AGAIN, gate::EXPIRES);
    let documentation = include_str!("../../../docs/policies.md");
    for row in [
        format!("| `after` of `look-again` | {} to {} s; {} s if it is absent |", look.0, look.1, gate::LOOK_AGAIN_DEFAULT),
        format!("| `after` of `recreate` and `replace` | 0 to {wait} s, counted from"),
        format!("| `after` of `rerun` | 0 to {} s |", number(gate::RERUN_WAIT_MAX)),
        format!("| `look-again` of a plan | {} to {} s |", again.0, number(again.1)),
        format!("| `expires` of a reservation | {} to {} s |", expires.0, number(expires.1)),
        format!("| `replicas` of a reservation | at most `max-replicas` of the pool, or {} without", number(gate::REPLICAS_MAX)),
        format!("| reason | one line of {} bytes |", gate::REASON_BYTES),
        format!(
            "| attributes of an item | {}, with keys of {} bytes and values of {} bytes |",
            gate::ATTRIBUTES,
            gate::KEY_BYTES,
            gate::REASON_BYTES
        ),
        format!("is asked about\n  again after {} s at the latest", look.1),
        format!("longer than {} bytes, or contains control characters", gate::RESERVATION_ID_BYTES),
        format!("has more than {} reservations beyond one for each job", gate::SPARE_RESERVATIONS),
        format!("and at most {} s.", RestartLimits::default().backoff_max.as_secs()),
    ] {
        assert!(documentation.contains(&row), "docs/policies.md lacks {row:?}");
    }
    for contract in [include_str!("../../../wit/policy/v0.1.0/policy.wit"), include_str!("../../../wit/policy/v0.2.0/policy.wit")]
    {
        for words in [
            format!("about this runner, {} to {}; none is {}.", look.0, look.1, gate::LOOK_AGAIN_DEFAULT),
            format!("in its situation first (see `since`), 0 to {wait}; none is 0."),
            format!("Seconds from now, {} to {}.", expires.0, number(expires.1)),
            format!("even if nothing happens, {} to {}.", again.0, number(again.1)),
            format!("at most {} without one.", number(gate::REPLICAS_MAX)),
            format!("of the request, and {} more.", gate::SPARE_RESERVATIONS),
            format!("1 to {} bytes without control characters", gate::RESERVATION_ID_BYTES),
            format!("at most {} bytes.", gate::REASON_BYTES),
        ] {
            assert!(contract.contains(&words), "a contract lacks {words:?}");
        }
    }
    let recover = include_str!("../../../wit/policy/v0.2.0/policy.wit");
    assert!(recover.contains(&format!("to wait first, 0 to {};", number(gate::RERUN_WAIT_MAX))));
}

#[test]
fn documentation_has_the_limits_of_a_call() {
    let (default, highest) = (Limits::default(), Limits::highest());
    let text = default.of_text();
    let deadline = default.deadline().as_millis();
    let clock = Limits::LONGEST.as_secs();
    let (hostcall, line) = (bytes(default.hostcall()), bytes(default.log_line()));
    let documentation = include_str!("../../../docs/policies.md");
    for text in [
        format!(
            "| {}, plus {} per item | never more than {} |",
            number(default.fuel(0)),
            number(default.fuel(1) - default.fuel(0)),
            number(Limits::FUEL_CAP)
        ),
        format!("twice the fuel of a component: {}, and {} per item.", number(text.fuel(0)), number(text.fuel(1) - text.fuel(0))),
        format!(
            "| processor time, including the start of the instance ([twice for a text](#javascript-as-text)) | {deadline} ms | {deadline} ms |"
        ),
        format!("twice the processor time, {} ms", text.deadline().as_millis()),
        format!("| time by the clock | {clock} s | {clock} s |"),
        format!("| memory | {} | {} |", bytes(default.memory()), bytes(highest.memory())),
        format!("| answer, error and log together | {hostcall} | {hostcall} |"),
        format!("| log lines, {line} each | {0} | {0} |", default.log_lines()),
        format!("| module | {}, and ", bytes(RAW_BYTES)),
        format!("| module, compressed | {0} | {0} |", bytes(COMPRESSED_BYTES)),
        format!("A text may have {}.", bytes(TEXT_BYTES)),
        format!(
            "at most {0} labels and\n{0} annotations of an object, and no value of more than {1} bytes",
            allowed::MOST,
            allowed::VALUE
        ),
        format!("These attributes cover {} pools", pool::OTHERS),
        format!("| number, {} at most |", number(fit::MOST)),
        format!("the {} combinations with the most room", fit::SHAPES),
    ] {
        assert!(documentation.contains(&text), "docs/policies.md lacks {text:?}");
    }
}
