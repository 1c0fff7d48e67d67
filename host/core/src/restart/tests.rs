use proptest::prelude::*;

use super::*;
use crate::phase::Situation;

const NOW: i64 = 1_000_000;

const LIMITS: RestartLimits = RestartLimits {
    look_min: Duration::from_secs(2),
    look_max: Duration::from_secs(600),
    backoff_base: Duration::from_secs(10),
    backoff_max: Duration::from_secs(300),
};

const ACTIONS: [&str; 5] = ["keep", "look-again", "recreate", "replace", "quarantine"];

const CAUSES: [Cause; 14] = [
    Cause::Completed,
    Cause::Exit,
    Cause::UnregisteredExit,
    Cause::NeverStarted,
    Cause::Evicted,
    Cause::OomKilled,
    Cause::NodeLost,
    Cause::ImagePull,
    Cause::Quota,
    Cause::Unschedulable,
    Cause::DeprecatedVersion,
    Cause::ConfigError,
    Cause::PodDeleted,
    Cause::Unknown,
];

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn trouble(cause: Cause, seconds: i64) -> Trouble {
    Trouble { situation: Situation::Ended, cause, since: at(NOW - seconds), exit_code: None, message: "ended".into() }
}

fn verdict(action: &str, after: Option<u32>) -> Verdict {
    Verdict { action: action.into(), after, ..Verdict::default() }
}

/// Waits, and then acts.
fn wait(seconds: u64) -> Remedy {
    Remedy::Wait { recheck: Duration::from_secs(seconds.max(2)), acts: Some(at(NOW + i64::try_from(seconds).unwrap())) }
}

fn look_again(seconds: u64) -> Remedy {
    Remedy::Wait { recheck: Duration::from_secs(seconds), acts: None }
}

#[test]
fn remedy_is_bounded_when_a_verdict_is_given() {
    // Action, after, cause, seconds in the situation, stand-alone, attempts.
    let cases = [
        ("replace", None, Cause::Completed, 0, false, 0, Remedy::Replace),
        ("replace", Some(0), Cause::Evicted, 0, false, 9, Remedy::Replace),
        ("replace", Some(30), Cause::Evicted, 0, false, 0, wait(30)),
        ("replace", Some(30), Cause::Evicted, 29, false, 0, wait(1)),
        ("replace", Some(30), Cause::Evicted, 30, false, 0, Remedy::Replace),
        // The operator lengthens what the policy says, and never shortens it below its own back-off.
        ("replace", None, Cause::Exit, 0, false, 1, wait(10)),
        ("replace", Some(3), Cause::Exit, 0, false, 1, wait(10)),
        ("replace", Some(3), Cause::Exit, 4, false, 2, wait(16)),
        ("replace", Some(50), Cause::Exit, 4, false, 2, wait(46)),
        ("replace", None, Cause::UnregisteredExit, 0, false, 5, wait(160)),
        ("replace", None, Cause::OomKilled, 299, false, 60, wait(1)),
        ("replace", None, Cause::OomKilled, 300, false, 60, Remedy::Replace),
        // What happens to healthy pools waits for nothing, however often it happens.
        ("replace", None, Cause::NodeLost, 0, false, 60, Remedy::Replace),
        ("replace", Some(u32::MAX), Cause::Completed, 599, false, 0, wait(1)),
        ("replace", Some(u32::MAX), Cause::Completed, 600, false, 0, Remedy::Replace),
        // A clock that was set back.
        ("replace", Some(30), Cause::Evicted, -100, false, 0, wait(30)),
        // A set makes another, a Runner on its own keeps its name.
        ("recreate", None, Cause::Completed, 0, false, 0, Remedy::Replace),
        ("recreate", None, Cause::Completed, 0, true, 0, Remedy::Recreate),
        ("replace", None, Cause::Completed, 0, true, 0, Remedy::Recreate),
        ("recreate", None, Cause::Exit, 0, true, 3, wait(40)),
        ("quarantine", None, Cause::DeprecatedVersion, 0, false, 1, Remedy::Quarantine),
        ("quarantine", Some(60), Cause::Completed, 0, true, 0, Remedy::Quarantine),
        ("keep", None, Cause::Exit, 0, false, 1, look_again(600)),
        ("look-again", Some(45), Cause::Exit, 9000, false, 1, look_again(45)),
        ("look-again", Some(0), Cause::Exit, 0, false, 1, look_again(2)),
        ("look-again", Some(u32::MAX), Cause::Exit, 0, false, 1, look_again(600)),
        ("look-again", None, Cause::Exit, 0, false, 1, look_again(600)),
        ("explode", Some(1), Cause::Exit, 0, false, 1, look_again(2)),
    ];
    for (action, after, cause, seconds, stand_alone, attempts, expected) in cases {
        let remedy = remedy(Some(&verdict(action, after)), &trouble(cause, seconds), stand_alone, attempts, &LIMITS, at(NOW));
        assert_eq!(remedy, expected, "{action} after {after:?}, {cause:?} for {seconds} s, attempt {attempts}");
    }
    assert_eq!(
        remedy(None, &trouble(Cause::Exit, 0), false, 1, &LIMITS, at(NOW)),
        look_again(600),
        "no answer: look again later"
    );
}

#[test]
fn bounds_that_contradict_each_other_do_not_panic() {
    let limits = RestartLimits { look_min: Duration::from_secs(60), look_max: Duration::from_secs(1), ..LIMITS };
    for action in ACTIONS {
        let remedy = remedy(Some(&verdict(action, Some(30))), &trouble(Cause::Exit, 0), false, 1, &limits, at(NOW));
        let waits = matches!(remedy, Remedy::Wait { recheck, .. } if recheck == limits.look_min);
        assert!(waits || action == "quarantine", "{action}: {remedy:?}");
    }
}

#[test]
fn back_off_doubles_up_to_its_limit() {
    let delays: Vec<u64> = [0, 1, 2, 3, 4, 5, 6, 7, 21, u32::MAX].map(|attempts| backoff(attempts, &LIMITS).as_secs()).to_vec();
    assert_eq!(delays, [10, 10, 20, 40, 80, 160, 300, 300, 300, 300]);
}

#[test]
fn next_attempt_is_the_first_that_fills_the_place_of_a_failed_runner() {
    let decided = [
        (Cause::Exit, wait(40)),
        (Cause::ImagePull, wait(20)),
        // Not a failed start.
        (Cause::Evicted, wait(10)),
        (Cause::Exit, look_again(5)),
        (Cause::Exit, Remedy::Replace),
    ];
    let next = |count| next_attempt(decided.iter().skip(count).map(|(cause, remedy)| (*cause, remedy)));
    assert_eq!([next(0), next(1), next(2)], [Some(at(NOW + 20)), Some(at(NOW + 20)), None]);
}

/// ARC made 46 pods in 15 s of a runner that fails at once.
#[test]
fn a_pool_that_always_fails_slows_down() {
    let mut time = 0;
    let mut count = 0;
    let mut made = Vec::new();
    while time < 3600 {
        made.push(time);
        let failed = at(NOW + time);
        let trouble = Trouble { since: failed, ..trouble(Cause::UnregisteredExit, 0) };
        let always = verdict("replace", None);
        // Looked at every second: asking often gains nothing.
        while remedy(Some(&always), &trouble, false, count + 1, &RestartLimits::default(), at(NOW + time)) != Remedy::Replace {
            time += 1;
        }
        count = attempts(count, false, [trouble.cause]);
    }
    assert!(made.len() < 22, "{made:?}");
    assert!(made.iter().zip(made.iter().skip(1)).all(|(a, b)| b - a <= 300), "and goes on trying: {made:?}");
}

#[test]
fn attempts_count_steps_that_failed() {
    use Cause::{Completed, Evicted, Exit, ImagePull, NodeLost, Quota};
    let cases = [
        (0, false, vec![], 0),
        (4, false, vec![], 4),
        (4, false, vec![Exit], 5),
        // Many runners that fail together are one attempt.
        (4, false, vec![Exit, ImagePull, Exit], 5),
        (4, false, vec![Completed, Evicted, NodeLost, Quota], 4),
        (4, true, vec![Completed], 0),
        (4, true, vec![], 0),
        (4, true, vec![Exit], 1),
        (u32::MAX, false, vec![Exit], u32::MAX),
    ];
    for (before, came_online, causes, expected) in cases {
        assert_eq!(attempts(before, came_online, causes.clone()), expected, "{before} {came_online} {causes:?}");
    }
}

#[test]
fn unseen_ends_are_believed_after_one_was_seen_and_not_for_ever() {
    enum Step {
        Seen,
        Unseen(u32),
    }
    use Step::{Seen, Unseen};
    for (steps, expected) in [
        (vec![], false),
        (vec![Unseen(1)], false),
        (vec![Seen], true),
        (vec![Seen, Unseen(49)], true),
        (vec![Seen, Unseen(20), Unseen(30)], false),
        (vec![Seen, Unseen(u32::MAX), Seen], true),
        (vec![Seen, Unseen(40), Seen, Unseen(40)], true),
    ] {
        let mut registering = Registering::default();
        for step in &steps {
            match step {
                Seen => registering.seen(),
                Unseen(count) => registering.ended_unseen(*count),
            }
        }
        assert_eq!(registering.holds(), expected, "{registering:?}");
    }
}

#[test]
fn only_causes_of_its_own_making_are_failures() {
    let failures: Vec<&str> = CAUSES.into_iter().filter(|cause| cause.is_failure()).map(Cause::as_str).collect();
    let expected =
        ["exit", "unregistered-exit", "never-started", "oom-killed", "image-pull", "deprecated-version", "config-error"];
    assert_eq!(failures, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    /// However often it is asked: the due time stays, and waits stay within the bounds.
    #[test]
    fn asking_again_moves_nothing(
        action in proptest::sample::select(vec!["recreate", "replace"]),
        after in proptest::option::of(0..2000_u32),
        cause in proptest::sample::select(CAUSES.to_vec()),
        attempts in 0..40_u32,
        stand_alone: bool,
        steps in proptest::collection::vec(1..120_i64, 1..20),
    ) {
        let verdict = verdict(action, after);
        let trouble = trouble(cause, 0);
        let mut time = NOW;
        let failed = if cause.is_failure() { backoff(attempts, &LIMITS).as_secs() } else { 0 };
        let due = NOW + i64::try_from(u64::from(after.unwrap_or_default()).max(failed).min(600)).unwrap();
        for step in steps {
            match remedy(Some(&verdict), &trouble, stand_alone, attempts, &LIMITS, at(time)) {
                Remedy::Wait { recheck, acts } => {
                    prop_assert_eq!(acts, Some(at(due)));
                    prop_assert!(recheck >= LIMITS.look_min && recheck <= LIMITS.look_max);
                    // The least wait may push the last look past it.
                    let look = time + i64::try_from(recheck.as_secs()).unwrap();
                    prop_assert!(time < due && (look == due || look - time == 2), "at {time}: {look}, {due}");
                    time += step;
                }
                other => {
                    prop_assert_eq!(other, if stand_alone { Remedy::Recreate } else { Remedy::Replace });
                    prop_assert!(time >= due, "at {time}, {due}");
                    return Ok(());
                }
            }
        }
    }

    #[test]
    fn back_off_grows_and_is_bounded(attempts in 0..100_u32, base in 0..1000_u64, max in 0..10_000_u64) {
        let limits = RestartLimits { backoff_base: Duration::from_secs(base), backoff_max: Duration::from_secs(max), ..LIMITS };
        prop_assert!(backoff(attempts, &limits) <= backoff(attempts + 1, &limits));
        prop_assert!(backoff(attempts, &limits) <= limits.backoff_max);
    }
}
