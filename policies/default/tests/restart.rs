//! What the shipped policy does about runners that are not well.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "also in what tests call")]

use pacer_policy_default::Default as Shipped;
use pacer_policy_sdk::restart::{self, Request, Subject};
use pacer_policy_sdk::scenario::Scenario;
use pacer_policy_sdk::types::Quantiles;
use proptest::prelude::*;

type Change = fn(&mut Subject);

/// Action, `after`, and a part of the reason.
type Expected = (&'static str, Option<u32>, &'static str);

fn decided(situation: &str, cause: &str, change: Change) -> (String, Option<u32>, String) {
    let scenario = Scenario::pool("ci").subject("r", situation, cause, change);
    let mut verdicts = scenario.decide::<Shipped>().expect("the policy answers");
    let verdict = verdicts.pop().expect("one verdict per subject");
    (verdict.action, verdict.after, verdict.reason)
}

fn check(situation: &str, cause: &str, change: Change, (action, after, reason): Expected) {
    let (got_action, got_after, got_reason) = decided(situation, cause, change);
    assert_eq!((got_action.as_str(), got_after), (action, after), "{situation}, {cause}: {got_reason}");
    assert!(got_reason.contains(reason), "{situation}, {cause}: `{got_reason}` lacks `{reason}`");
}

const NO_CHANGE: Change = |_| ();

#[test]
fn a_runner_that_did_its_job_is_replaced_at_once() {
    check("ended", "completed", |s| s.was_registered = true, ("replace", Some(0), "its job is done"));
    check("ended", "completed", |s| (s.ephemeral, s.attempts) = (false, 9), ("replace", Some(0), "exited cleanly"));
}

#[test]
fn what_happened_to_a_runner_costs_nothing() {
    for situation in ["ended", "not-starting", "offline", "unregistered", "never-registered", "pod-missing"] {
        for cause in ["evicted", "node-lost", "pod-deleted"] {
            check(situation, cause, |s| s.attempts = 30, ("replace", Some(0), ""));
        }
    }
}

#[test]
fn waiting_for_room_gets_patient() {
    for cause in ["quota", "unschedulable"] {
        for (since, after) in [(0, 10), (25, 25), (4_000, 300)] {
            let scenario = Scenario::pool("ci").subject("r", "not-starting", cause, |s| s.since = since);
            let verdict = scenario.decide::<Shipped>().expect("the policy answers").remove(0);
            assert_eq!((verdict.action.as_str(), verdict.after), ("look-again", Some(after)), "{cause} since {since}");
        }
    }
    // Nobody makes the pod while it is only looked at.
    check("pod-missing", "quota", |s| s.attempts = 4, ("replace", Some(40), "quota is used up"));
}

#[test]
fn failures_back_off() {
    for (attempts, after) in [(0, 0), (1, 0), (2, 10), (3, 20), (4, 40), (6, 160), (7, 300), (40, 300), (u32::MAX, 300)] {
        let scenario = Scenario::pool("ci").subject("r", "ended", "unregistered-exit", |s| s.attempts = attempts);
        let verdict = scenario.decide::<Shipped>().expect("the policy answers").remove(0);
        assert_eq!((verdict.action.as_str(), verdict.after), ("replace", Some(after)), "attempt {attempts}");
    }
    check("ended", "exit", |s| (s.exit_code, s.age) = (Some(3), 12), ("replace", Some(0), "exit code 3 after 12 s"));
    check(
        "ended",
        "exit",
        |s| (s.exit_code, s.age, s.attempts) = (Some(3), 12, 4),
        ("replace", Some(40), "exit code 3 after 12 s; attempt 4, next one after 40 s"),
    );
    check("ended", "unknown", |s| s.attempts = 3, ("replace", Some(20), "nothing says why"));
    check(
        "ended",
        "never-started",
        |s| (s.attempts, s.message) = (3, "OutOfcpu: Pod was rejected".into()),
        ("replace", Some(20), "its pod never started: OutOfcpu: Pod was rejected; attempt 3, next one after 20 s"),
    );
    check("ended", "bad-credentials", NO_CHANGE, ("replace", Some(10), "refused its credentials"));
    check("ended", "config-error", |s| s.attempts = 3, ("replace", Some(20), "configuration is wrong"));
    check("pod-missing", "unknown", |s| s.attempts = 2, ("replace", Some(10), "its pod is gone"));
}

#[test]
fn a_registered_runner_fails_late_or_early() {
    check("ended", "exit", |s| (s.was_registered, s.age, s.attempts) = (true, 500, 5), ("replace", Some(0), ""));
    check("ended", "exit", |s| (s.was_registered, s.age, s.attempts) = (true, 20, 1), ("replace", Some(10), ""));
    check("ended", "oom-killed", |s| (s.was_registered, s.age) = (true, 500), ("replace", Some(0), "raise the memory limit"));
    check("ended", "oom-killed", |s| (s.age, s.attempts) = (20, 3), ("replace", Some(20), "raise the memory limit"));
}

#[test]
fn the_kubelet_tries_images_and_configurations_again() {
    check("not-starting", "image-pull", |s| s.since = 45, ("look-again", Some(45), "check image name and pull secret"));
    check("not-starting", "config-error", |s| s.since = 5, ("look-again", Some(10), "the kubelet tries again"));
    check("not-starting", "bad-credentials", |s| s.since = 900, ("look-again", Some(300), "credentials"));
    check("not-starting", "unknown", |s| s.since = 300, ("look-again", Some(600), "not ready for 5 min of at most 30 min"));
    check("not-starting", "unknown", |s| (s.since, s.attempts) = (1_800, 2), ("replace", Some(10), "not ready"));
}

#[test]
fn a_runner_that_never_registers_has_ten_minutes() {
    check("never-registered", "unknown", |s| s.since = 0, ("look-again", Some(600), "not registered"));
    check("never-registered", "unknown", |s| s.since = 599, ("look-again", Some(5), ""));
    check("never-registered", "unknown", |s| s.since = 600, ("replace", Some(0), "10 min, limit 10 min"));
    check("never-registered", "unknown", |s| (s.since, s.attempts) = (600, 5), ("replace", Some(80), "attempt 5"));
    check("never-registered", "unknown", |s| (s.since, s.github) = (900, "online".into()), ("keep", None, "lists it by now"));
    check(
        "never-registered",
        "unknown",
        |s| (s.since, s.github) = (900, "unknown".into()),
        ("look-again", Some(60), "can't be asked"),
    );
}

#[test]
fn slow_pools_have_longer_to_register() {
    for (samples, p99, action) in [(20, 400, "look-again"), (19, 400, "replace"), (50, 100, "replace")] {
        let scenario = Scenario::pool("ci")
            .with_pool(|pool| pool.start_time = Some(Quantiles { samples, p99, ..Quantiles::default() }))
            .subject("r", "never-registered", "unknown", |s| s.since = 700);
        assert_eq!(scenario.decide::<Shipped>().expect("the policy answers")[0].action, action, "{samples} samples, p99 {p99}");
    }
}

#[test]
fn contact_may_come_back() {
    check(
        "offline",
        "unknown",
        |s| (s.since, s.github) = (60, "offline".into()),
        ("look-again", Some(540), "offline at GitHub for 1 min"),
    );
    check("offline", "unknown", |s| (s.since, s.github) = (600, "offline".into()), ("replace", Some(0), "limit 10 min"));
    check("offline", "unknown", |s| (s.since, s.github) = (600, "online".into()), ("keep", None, "contact again"));
    check("unregistered", "unknown", |s| s.since = 59, ("look-again", Some(5), "finished, or removed at GitHub"));
    check("unregistered", "unknown", |s| s.since = 60, ("replace", Some(0), ""));
    check("unregistered", "unknown", |s| (s.since, s.ephemeral) = (60, false), ("replace", Some(0), "its registration gone"));
    check("unregistered", "unknown", |s| (s.since, s.github) = (60, "offline".into()), ("keep", None, "lists it again"));
}

#[test]
fn a_deprecated_version_is_not_tried_again() {
    for situation in ["ended", "never-registered", "not-starting", "offline"] {
        check(situation, "deprecated-version", |s| s.attempts = 2, ("quarantine", None, "update the runner image"));
    }
}

#[test]
fn a_runner_without_a_set_keeps_its_name() {
    check("ended", "completed", |s| s.stand_alone = true, ("recreate", Some(0), "its job is done"));
    check("ended", "unregistered-exit", |s| (s.stand_alone, s.attempts) = (true, 3), ("recreate", Some(20), ""));
    check("pod-missing", "pod-deleted", |s| s.stand_alone = true, ("recreate", Some(0), ""));
    check("offline", "unknown", |s| (s.stand_alone, s.since) = (true, 700), ("recreate", Some(0), ""));
    check("ended", "deprecated-version", |s| s.stand_alone = true, ("quarantine", None, ""));
    check("not-starting", "image-pull", |s| s.stand_alone = true, ("look-again", Some(10), ""));
}

#[test]
fn words_from_the_future_are_looked_at_again() {
    check("hibernating", "unknown", NO_CHANGE, ("look-again", Some(60), "situation `hibernating` is unknown"));
    check("ended", "cosmic-rays", |s| s.attempts = 3, ("replace", Some(20), ""));
}

#[test]
fn settings_move_the_limits() {
    let settings = r#"{"offlineTimeoutSeconds":60,"backoffSeconds":5,"maxBackoffSeconds":15}"#;
    let scenario = Scenario::pool("ci").settings(settings).subject("gone", "offline", "unknown", |s| s.since = 61).subject(
        "failing",
        "ended",
        "unregistered-exit",
        |s| s.attempts = 4,
    );
    let verdicts = scenario.decide::<Shipped>().expect("the policy answers");
    assert_eq!([verdicts[0].action.as_str(), verdicts[1].action.as_str()], ["replace", "replace"]);
    assert_eq!([verdicts[0].after, verdicts[1].after], [Some(0), Some(15)]);
}

#[test]
fn no_wait_is_announced_that_is_longer_than_the_operator_waits() {
    for settings in [r#"{"maxBackoffSeconds":3600}"#, r#"{"backoffSeconds":900,"maxBackoffSeconds":900}"#] {
        let scenario = Scenario::pool("ci").settings(settings).subject("r", "ended", "exit", |s| s.attempts = 40);
        let verdict = scenario.decide::<Shipped>().expect("the policy answers").remove(0);
        assert_eq!(verdict.after, Some(600));
        assert!(verdict.reason.ends_with("attempt 40, next one after 10 min"), "{}", verdict.reason);
    }
}

fn subject() -> impl Strategy<Value = Subject> {
    let word = |words: &'static [&'static str]| prop::sample::select(words).prop_map(str::to_owned);
    (
        word(&["ended", "never-registered", "not-starting", "offline", "unregistered", "pod-missing", "new"]),
        word(&[
            "completed",
            "exit",
            "unregistered-exit",
            "never-started",
            "evicted",
            "oom-killed",
            "node-lost",
            "image-pull",
            "quota",
            "unschedulable",
            "bad-credentials",
            "deprecated-version",
            "config-error",
            "pod-deleted",
            "unknown",
            "new",
        ]),
        word(&["unknown", "absent", "offline", "online", "new"]),
        prop::option::of(any::<i32>()),
        (any::<u32>(), any::<u32>(), any::<u32>()),
        (any::<bool>(), any::<bool>(), any::<bool>()),
    )
        .prop_map(
            |(situation, cause, github, exit_code, (since, age, attempts), (was_registered, ephemeral, stand_alone))| Subject {
                situation,
                cause,
                github,
                exit_code,
                since,
                age,
                attempts,
                was_registered,
                ephemeral,
                stand_alone,
                ..Subject::default()
            },
        )
}

proptest! {
    #[test]
    fn everybody_gets_one_verdict(subjects in prop::collection::vec(subject(), 0..20)) {
        let request = Request { subjects, ..Request::default() };
        let verdicts = restart::answer::<Shipped>(&request).expect("the policy answers");
        prop_assert_eq!(verdicts.len(), request.subjects.len());
        for ((index, verdict), subject) in (0_u32..).zip(&verdicts).zip(&request.subjects) {
            prop_assert_eq!(verdict.index, index);
            prop_assert!(!verdict.reason.is_empty() && verdict.reason.len() <= 256);
            let known = match verdict.action.as_str() {
                "keep" | "quarantine" => verdict.after.is_none(),
                "look-again" => verdict.after.is_some_and(|after| after > 0),
                "replace" => !subject.stand_alone && verdict.after.is_some_and(|after| after <= 300),
                "recreate" => subject.stand_alone && verdict.after.is_some_and(|after| after <= 300),
                _ => false,
            };
            prop_assert!(known, "{:?}", verdict);
        }
    }

    /// Time and failures make the policy neither quicker nor change its mind back.
    #[test]
    fn more_failures_never_shorten_the_wait(subject in subject(), more in any::<u32>()) {
        let later = Subject { attempts: subject.attempts.saturating_add(more), ..subject.clone() };
        let request = Request { subjects: vec![subject, later], ..Request::default() };
        let verdicts = restart::answer::<Shipped>(&request).expect("the policy answers");
        prop_assert_eq!(&verdicts[0].action, &verdicts[1].action);
        prop_assert!(verdicts[0].after <= verdicts[1].after);
    }
}
