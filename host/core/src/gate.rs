//! What a policy's answer must satisfy before anything looks at it.
//!
//! A structural lie (an index that was never offered, one thing named twice, more than was asked for) voids the whole answer: it says
//! that the policy misunderstood the question, so nothing else it says can be trusted either. Numbers out of range are clamped and texts
//! are scrubbed and shortened, because the intent is plain. What happens to single items afterwards (a runner became busy, a budget is
//! used up) is not decided here.

use std::collections::HashSet;

use crate::policy::{
    Attributes, CapacityPlan, CapacityRequest, Choice, RecoverRequest, Recovery, Reservation, RestartRequest, ScaleDownRequest,
    Verdict,
};

/// Longest reason that is kept, in bytes; the contract's figure. Longer ones are shortened.
pub const REASON_BYTES: usize = 256;

/// Most attributes kept per item of an answer; the first ones win.
pub const ATTRIBUTES: usize = 16;

/// Longest attribute key that is kept, in bytes; the length Kubernetes allows for the name of an annotation.
pub const KEY_BYTES: usize = 63;

/// Longest identifier of a reservation, in bytes; the length Kubernetes allows for a name.
pub const RESERVATION_ID_BYTES: usize = 253;

/// Reservations a plan may hold beyond one for each job and each reservation in force; leaves room for standing capacity.
pub const SPARE_RESERVATIONS: usize = 64;

/// Shortest and longest time after which a capacity policy is asked again, in seconds.
pub const LOOK_AGAIN: (u32, u32) = (5, 3_600);

/// Shortest and longest time after which a restart policy is asked again about a runner, in seconds.
pub const RESTART_LOOK_AGAIN: (u32, u32) = (5, 600);

/// Assumed when a restart policy wants to look again and doesn't say when, in seconds.
pub const LOOK_AGAIN_DEFAULT: u32 = 60;

/// Longest time a policy may put off a restart, in seconds; counted from the moment the runner got into its situation.
pub const RESTART_WAIT_MAX: u32 = 600;

/// Longest time a policy may put off a rerun of a job, in seconds.
pub const RERUN_WAIT_MAX: u32 = 3_600;

/// Shortest and longest life of a reservation, in seconds. A self-hosted job may run for five days, so a week outlasts any.
pub const EXPIRES: (u32, u32) = (1, 604_800);

/// Most runners that one reservation may hold when no autoscaler sets a maximum.
pub const REPLICAS_MAX: u32 = 10_000;

/// The actions of the contract's `verdict`.
pub const ACTIONS: [&str; 5] = ["keep", "look-again", "recreate", "replace", "quarantine"];

/// The actions of the contract's verdict about a dead job.
pub const RECOVERIES: [&str; 2] = ["rerun", "leave"];

/// A structural lie, for which the whole answer is void.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// More items than were asked for.
    #[error("{count} {what} were returned and at most {most} were asked for")]
    TooMany {
        /// What was returned, in the plural.
        what: &'static str,
        /// How many items were returned.
        count: usize,
        /// How many were allowed.
        most: usize,
    },
    /// An index outside the list that was offered.
    #[error("index {index} is outside the {len} {what} that were offered")]
    OutOfRange {
        /// What was offered, in the plural.
        what: &'static str,
        /// The index returned.
        index: u32,
        /// Length of the list offered.
        len: usize,
    },
    /// One item named twice.
    #[error("{what} {item} is named more than once")]
    Duplicate {
        /// What was named, in the singular.
        what: &'static str,
        /// Its index or identifier.
        item: String,
    },
    /// A verdict that isn't one of [`ACTIONS`].
    #[error("action {action:?} for subject {index} is none of keep, look-again, recreate, replace and quarantine")]
    UnknownAction {
        /// Index of the subject.
        index: u32,
        /// The action, scrubbed and shortened.
        action: String,
    },
    /// A verdict about a dead job that isn't one of [`RECOVERIES`].
    #[error("action {action:?} for job {index} is neither rerun nor leave")]
    UnknownRecovery {
        /// Index of the job.
        index: u32,
        /// The action, scrubbed and shortened.
        action: String,
    },
    /// A job that was not part of the request.
    #[error("reservation {reservation:?} is for job {job}, which the request does not contain")]
    UnknownJob {
        /// Identifier of the reservation.
        reservation: String,
        /// GitHub's job id.
        job: u64,
    },
    /// An identifier that can't be stored.
    #[error("reservation id {id:?} must have 1 to {RESERVATION_ID_BYTES} bytes and no control characters or invisible ones")]
    ReservationId {
        /// The identifier, scrubbed and shortened.
        id: String,
    },
}

/// One line of at most `most` bytes without control characters, runs of white space or invisible characters that reorder text.
///
/// For every text of a policy that reaches a log, an event, a status or a terminal. What was cut off is marked by `…`, which counts.
#[must_use]
pub fn scrub(text: &str, most: usize) -> String {
    const MARK: &str = "…";
    let mut line = String::with_capacity(text.len().min(most));
    let mut gap = false;
    for char in text.chars() {
        if char.is_control() || char.is_whitespace() || reorders(char) {
            gap = !line.is_empty();
            continue;
        }
        if std::mem::take(&mut gap) {
            line.push(' ');
        }
        line.push(char);
        if line.len() > most {
            break;
        }
    }
    if line.len() > most {
        let mark = if most < MARK.len() { "" } else { MARK };
        let room = most.saturating_sub(mark.len());
        let end = (0..=room).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
        line.truncate(end);
        line.truncate(line.trim_end().len());
        line.push_str(mark);
    }
    line
}

/// Zero-width and bidirectional control characters, which make a line read differently from what it says.
fn reorders(char: char) -> bool {
    matches!(char, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Checks which runners a policy wants removed: at most `surplus`, each a candidate, each once.
///
/// # Errors
///
/// The first structural lie found.
pub fn choices(request: &ScaleDownRequest, answer: Vec<Choice>) -> Result<Vec<Choice>, GateError> {
    let most = usize::try_from(request.surplus).unwrap_or(usize::MAX).min(request.candidates.len());
    at_most("choices", answer.len(), most)?;
    indices("candidate", "candidates", request.candidates.len(), answer.iter().map(|choice| choice.index))?;
    Ok(answer
        .into_iter()
        .map(|choice| Choice {
            index: choice.index,
            reason: scrub(&choice.reason, REASON_BYTES),
            attributes: attributes(choice.attributes),
        })
        .collect())
}

/// Checks what a policy wants done about runners: at most one known action for each subject.
///
/// `after` is cut to [`RESTART_LOOK_AGAIN`] for `look-again`, to [`RESTART_WAIT_MAX`] for `recreate` and `replace`, and dropped otherwise.
///
/// # Errors
///
/// The first structural lie found.
pub fn verdicts(request: &RestartRequest, answer: Vec<Verdict>) -> Result<Vec<Verdict>, GateError> {
    at_most("verdicts", answer.len(), request.subjects.len())?;
    indices("subject", "subjects", request.subjects.len(), answer.iter().map(|verdict| verdict.index))?;
    answer
        .into_iter()
        .map(|verdict| {
            let after = match verdict.action.as_str() {
                "look-again" => {
                    Some(verdict.after.unwrap_or(LOOK_AGAIN_DEFAULT).clamp(RESTART_LOOK_AGAIN.0, RESTART_LOOK_AGAIN.1))
                }
                "recreate" | "replace" => verdict.after.map(|after| after.min(RESTART_WAIT_MAX)),
                "keep" | "quarantine" => None,
                other => {
                    return Err(GateError::UnknownAction { index: verdict.index, action: scrub(other, 32) });
                }
            };
            Ok(Verdict {
                index: verdict.index,
                action: verdict.action,
                after,
                reason: scrub(&verdict.reason, REASON_BYTES),
                attributes: attributes(verdict.attributes),
            })
        })
        .collect()
}

/// Checks what a policy wants done about dead jobs: at most one known action for each.
///
/// `after` is cut to [`RERUN_WAIT_MAX`] for `rerun`, and dropped otherwise.
///
/// # Errors
///
/// The first structural lie found.
pub fn recoveries(request: &RecoverRequest, answer: Vec<Recovery>) -> Result<Vec<Recovery>, GateError> {
    at_most("verdicts", answer.len(), request.jobs.len())?;
    indices("job", "jobs", request.jobs.len(), answer.iter().map(|verdict| verdict.index))?;
    answer
        .into_iter()
        .map(|verdict| {
            if !RECOVERIES.contains(&verdict.action.as_str()) {
                return Err(GateError::UnknownRecovery { index: verdict.index, action: scrub(&verdict.action, 32) });
            }
            Ok(Recovery {
                index: verdict.index,
                after: verdict.after.filter(|_| verdict.action == "rerun").map(|after| after.min(RERUN_WAIT_MAX)),
                action: verdict.action,
                reason: scrub(&verdict.reason, REASON_BYTES),
                attributes: attributes(verdict.attributes),
            })
        })
        .collect()
}

/// Checks a plan: distinct reservations for jobs that exist, each job in one reservation.
///
/// Replicas are cut to the pool's maximum, life times to [`EXPIRES`], the ceiling to the pool's minimum and maximum, and the time to look
/// again to [`LOOK_AGAIN`]. That the sum respects the maximum is the business of whoever adds reservations up.
///
/// # Errors
///
/// The first structural lie found.
pub fn plan(request: &CapacityRequest, answer: CapacityPlan) -> Result<CapacityPlan, GateError> {
    let most = request.jobs.len().saturating_add(request.reservations.len()).saturating_add(SPARE_RESERVATIONS);
    at_most("reservations", answer.reservations.len(), most)?;
    let max = request.pool.max_replicas.unwrap_or(REPLICAS_MAX).min(REPLICAS_MAX);
    let min = request.pool.min_replicas.unwrap_or(0).min(max);
    // A reservation in force may outlive its jobs for a moment, so the jobs it names stay nameable.
    let known: HashSet<u64> = request
        .jobs
        .iter()
        .map(|job| job.id)
        .chain(request.reservations.iter().flat_map(|reservation| reservation.jobs.iter().copied()))
        .collect();
    let mut ids = HashSet::new();
    let mut jobs = HashSet::new();
    for reservation in &answer.reservations {
        reservation_id(&reservation.id)?;
        if !ids.insert(reservation.id.as_str()) {
            return Err(GateError::Duplicate { what: "reservation", item: reservation.id.clone() });
        }
        for &job in &reservation.jobs {
            if !known.contains(&job) {
                return Err(GateError::UnknownJob { reservation: reservation.id.clone(), job });
            }
            if !jobs.insert(job) {
                return Err(GateError::Duplicate { what: "job", item: job.to_string() });
            }
        }
    }
    Ok(CapacityPlan {
        reservations: answer.reservations.into_iter().map(|entry| reservation(entry, max)).collect(),
        ceiling: answer.ceiling.map(|ceiling| ceiling.clamp(min, max)),
        look_again: answer.look_again.map(|after| after.clamp(LOOK_AGAIN.0, LOOK_AGAIN.1)),
        attributes: attributes(answer.attributes),
    })
}

fn reservation(entry: Reservation, max: u32) -> Reservation {
    let expires = entry.expires.clamp(EXPIRES.0, EXPIRES.1);
    let latest = i32::try_from(expires).unwrap_or(i32::MAX);
    let earliest = i32::try_from(EXPIRES.1).unwrap_or(i32::MAX).saturating_neg();
    Reservation {
        id: entry.id,
        jobs: entry.jobs,
        replicas: entry.replicas.min(max),
        effective: entry.effective.clamp(earliest, latest),
        expires,
        reason: scrub(&entry.reason, REASON_BYTES),
        attributes: attributes(entry.attributes),
    }
}

fn reservation_id(id: &str) -> Result<(), GateError> {
    if id.is_empty() || id.len() > RESERVATION_ID_BYTES || id.chars().any(|char| char.is_control() || reorders(char)) {
        return Err(GateError::ReservationId { id: scrub(id, 64) });
    }
    Ok(())
}

fn at_most(what: &'static str, count: usize, most: usize) -> Result<(), GateError> {
    if count > most { Err(GateError::TooMany { what, count, most }) } else { Ok(()) }
}

fn indices(one: &'static str, many: &'static str, len: usize, indices: impl Iterator<Item = u32>) -> Result<(), GateError> {
    let mut seen = HashSet::new();
    for index in indices {
        if usize::try_from(index).map_or(true, |index| index >= len) {
            return Err(GateError::OutOfRange { what: many, index, len });
        }
        if !seen.insert(index) {
            return Err(GateError::Duplicate { what: one, item: index.to_string() });
        }
    }
    Ok(())
}

fn attributes(given: Attributes) -> Attributes {
    given
        .into_iter()
        .take(ATTRIBUTES)
        .map(|(key, value)| (scrub(&key, KEY_BYTES), scrub(&value, REASON_BYTES)))
        .filter(|(key, _)| !key.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::{Candidate, DeadJob, Job, Pool, Subject};

    fn scale_down(candidates: usize, surplus: u32) -> ScaleDownRequest {
        ScaleDownRequest { candidates: vec![Candidate::default(); candidates], surplus, ..Default::default() }
    }

    fn restart(subjects: usize) -> RestartRequest {
        RestartRequest { subjects: vec![Subject::default(); subjects], ..Default::default() }
    }

    fn capacity(jobs: &[u64]) -> CapacityRequest {
        CapacityRequest { jobs: jobs.iter().map(|&id| Job { id, ..Default::default() }).collect(), ..Default::default() }
    }

    fn choice(index: u32) -> Choice {
        Choice { index, reason: format!("reason {index}"), attributes: Vec::new() }
    }

    fn verdict(index: u32, action: &str, after: Option<u32>) -> Verdict {
        Verdict { index, action: action.into(), after, reason: "r".into(), attributes: Vec::new() }
    }

    fn held(id: &str, jobs: &[u64]) -> Reservation {
        Reservation { id: id.into(), jobs: jobs.into(), replicas: 1, expires: 60, ..Default::default() }
    }

    #[test]
    fn answer_is_void_when_its_structure_breaks_the_contract() {
        let offered = scale_down(3, 2);
        let lies = [
            (vec![choice(0), choice(1), choice(2)], GateError::TooMany { what: "choices", count: 3, most: 2 }),
            (vec![choice(3)], GateError::OutOfRange { what: "candidates", index: 3, len: 3 }),
            (vec![choice(u32::MAX)], GateError::OutOfRange { what: "candidates", index: u32::MAX, len: 3 }),
            (vec![choice(1), choice(1)], GateError::Duplicate { what: "candidate", item: "1".into() }),
        ];
        for (answer, lie) in lies {
            assert_eq!(choices(&offered, answer), Err(lie));
        }
        assert_eq!(choices(&offered, vec![choice(2), choice(0)]), Ok(vec![choice(2), choice(0)]));
        assert_eq!(choices(&scale_down(0, 5), vec![choice(0)]), Err(GateError::TooMany { what: "choices", count: 1, most: 0 }));
    }

    #[test]
    fn recoveries_know_their_actions_and_clamp_waits() {
        let offered = RecoverRequest { jobs: vec![DeadJob::default(); 2], ..RecoverRequest::default() };
        let recovery = |index, action: &str, after| Recovery { index, action: action.into(), after, ..Recovery::default() };
        assert_eq!(
            recoveries(&offered, vec![recovery(1, "rerun", Some(99_999)), recovery(0, "leave", Some(7))]),
            Ok(vec![recovery(1, "rerun", Some(RERUN_WAIT_MAX)), recovery(0, "leave", None)])
        );
        for (answer, lie) in [
            (vec![recovery(2, "rerun", None)], GateError::OutOfRange { what: "jobs", index: 2, len: 2 }),
            (
                vec![recovery(0, "rerun", None), recovery(0, "leave", None)],
                GateError::Duplicate { what: "job", item: "0".into() },
            ),
            (vec![recovery(0, "replace", None)], GateError::UnknownRecovery { index: 0, action: "replace".into() }),
            (vec![recovery(0, "rerun", None); 3], GateError::TooMany { what: "verdicts", count: 3, most: 2 }),
        ] {
            assert_eq!(recoveries(&offered, answer), Err(lie));
        }
    }

    #[test]
    fn verdicts_know_their_actions_and_clamp_waits() {
        let offered = restart(3);
        assert_eq!(
            verdicts(&offered, vec![verdict(0, "recrete\u{7}", None)]),
            Err(GateError::UnknownAction { index: 0, action: "recrete".into() })
        );
        let cases = [
            ("keep", Some(9), None),
            ("quarantine", Some(9), None),
            ("look-again", None, Some(LOOK_AGAIN_DEFAULT)),
            ("look-again", Some(0), Some(5)),
            ("look-again", Some(u32::MAX), Some(600)),
            ("recreate", None, None),
            ("recreate", Some(0), Some(0)),
            ("replace", Some(u32::MAX), Some(600)),
        ];
        for (action, after, expected) in cases {
            let passed = verdicts(&offered, vec![verdict(1, action, after)]).unwrap();
            assert_eq!(passed[0].after, expected, "{action} {after:?}");
        }
    }

    #[test]
    fn plans_name_known_jobs_once() {
        let offered = capacity(&[1, 2]);
        let plan_of = |reservations: Vec<Reservation>| CapacityPlan { reservations, ..Default::default() };
        let lies = [
            (vec![held("a", &[1]), held("a", &[2])], GateError::Duplicate { what: "reservation", item: "a".into() }),
            (vec![held("a", &[1]), held("b", &[1])], GateError::Duplicate { what: "job", item: "1".into() }),
            (vec![held("a", &[3])], GateError::UnknownJob { reservation: "a".into(), job: 3 }),
            (vec![held("", &[1])], GateError::ReservationId { id: String::new() }),
            (vec![held("a\nb", &[1])], GateError::ReservationId { id: "a b".into() }),
        ];
        for (reservations, lie) in lies {
            assert_eq!(plan(&offered, plan_of(reservations)), Err(lie));
        }
        let many = (0..67).map(|n| held(&n.to_string(), &[])).collect();
        assert_eq!(plan(&offered, plan_of(many)), Err(GateError::TooMany { what: "reservations", count: 67, most: 66 }));
        let carried = CapacityRequest { reservations: vec![held("old", &[9])], ..Default::default() };
        assert!(plan(&carried, plan_of(vec![held("old", &[9])])).is_ok());
    }

    #[test]
    fn plan_numbers_are_clamped() {
        let pool = Pool { min_replicas: Some(2), max_replicas: Some(5), ..Default::default() };
        let offered = CapacityRequest { pool, ..Default::default() };
        let wild = Reservation { replicas: u32::MAX, effective: i32::MAX, expires: u32::MAX, ..held("a", &[]) };
        let early = Reservation { effective: i32::MIN, expires: 0, ..held("b", &[]) };
        let answer =
            CapacityPlan { reservations: vec![wild, early], ceiling: Some(0), look_again: Some(0), attributes: Vec::new() };
        let passed = plan(&offered, answer).unwrap();
        assert_eq!(passed.reservations[0].replicas, 5);
        assert_eq!((passed.reservations[0].effective, passed.reservations[0].expires), (604_800, 604_800));
        assert_eq!((passed.reservations[1].effective, passed.reservations[1].expires), (-604_800, 1));
        assert_eq!((passed.ceiling, passed.look_again), (Some(2), Some(5)));
    }

    #[test]
    fn texts_become_one_clean_line() {
        let cases = [
            ("idle 14 min", 256, "idle 14 min"),
            ("  two\r\n\tlines  ", 256, "two lines"),
            ("\u{1b}[31mred\u{1b}[0m", 256, "[31mred [0m"),
            ("a\u{202e}b\u{200b}c", 256, "a b c"),
            ("abcdefgh", 6, "abc…"),
            ("äöüäöü", 8, "äö…"),
            ("abc", 2, "ab"),
            ("abc", 0, ""),
            ("\0\u{7}", 256, ""),
        ];
        for (text, most, expected) in cases {
            assert_eq!(scrub(text, most), expected, "{text:?} in {most}");
        }
    }

    #[test]
    fn attributes_are_bounded() {
        let loud = Choice {
            attributes: (0..100)
                .map(|n| (format!("key-{n}\n"), "v".repeat(1_000)))
                .chain([(String::new(), String::new())])
                .collect(),
            ..choice(0)
        };
        let passed = choices(&scale_down(1, 1), vec![loud]).unwrap();
        assert_eq!(passed[0].attributes.len(), ATTRIBUTES);
        assert_eq!(passed[0].attributes[3].0, "key-3");
        assert!(passed[0].attributes.iter().all(|(_, value)| value.len() <= REASON_BYTES));
    }

    fn any_choice() -> impl Strategy<Value = Choice> {
        (prop_oneof![0..12_u32, any::<u32>()], any::<String>(), proptest::collection::vec(any::<(String, String)>(), 0..3))
            .prop_map(|(index, reason, attributes)| Choice { index, reason, attributes })
    }

    fn any_verdict() -> impl Strategy<Value = Verdict> {
        let action = prop_oneof![proptest::sample::select(&ACTIONS[..]).prop_map(str::to_owned), any::<String>()];
        (prop_oneof![0..12_u32, any::<u32>()], action, any::<Option<u32>>(), any::<String>())
            .prop_map(|(index, action, after, reason)| Verdict { index, action, after, reason, attributes: Vec::new() })
    }

    fn any_reservation() -> impl Strategy<Value = Reservation> {
        let jobs = proptest::collection::vec(0..6_u64, 0..3);
        (any::<String>(), jobs, any::<u32>(), any::<i32>(), any::<u32>(), any::<String>()).prop_map(
            |(id, jobs, replicas, effective, expires, reason)| Reservation {
                id,
                jobs,
                replicas,
                effective,
                expires,
                reason,
                attributes: Vec::new(),
            },
        )
    }

    proptest! {
        #[test]
        fn passed_choices_are_sound(
            len in 0..10_usize,
            surplus in 0..12_u32,
            answer in proptest::collection::vec(any_choice(), 0..12),
        ) {
            let request = scale_down(len, surplus);
            if let Ok(passed) = choices(&request, answer.clone()) {
                prop_assert!(passed.len() <= len && passed.len() <= surplus as usize);
                prop_assert!(passed.iter().all(|choice| (choice.index as usize) < len));
                let distinct: HashSet<u32> = passed.iter().map(|choice| choice.index).collect();
                prop_assert_eq!(distinct.len(), passed.len());
                // All or nothing, in the policy's order.
                prop_assert!(passed.iter().map(|c| c.index).eq(answer.iter().map(|c| c.index)));
                prop_assert!(passed.iter().all(|c| c.reason.len() <= REASON_BYTES && !c.reason.chars().any(char::is_control)));
                prop_assert_eq!(choices(&request, passed.clone()), Ok(passed));
            }
        }

        #[test]
        fn choices_pass_when_they_keep_the_contract(len in 1..20_usize, picks in proptest::collection::hash_set(0..20_u32, 0..20)) {
            let answer: Vec<Choice> = picks.into_iter().filter(|&index| (index as usize) < len).map(choice).collect();
            prop_assert_eq!(choices(&scale_down(len, 20), answer.clone()), Ok(answer));
        }

        #[test]
        fn passed_verdicts_are_sound(len in 0..10_usize, answer in proptest::collection::vec(any_verdict(), 0..12)) {
            let request = restart(len);
            if let Ok(passed) = verdicts(&request, answer) {
                let distinct: HashSet<u32> = passed.iter().map(|verdict| verdict.index).collect();
                prop_assert_eq!(distinct.len(), passed.len());
                for verdict in &passed {
                    prop_assert!((verdict.index as usize) < len);
                    prop_assert!(ACTIONS.contains(&verdict.action.as_str()));
                    prop_assert!(verdict.after.is_none_or(|after| after <= 600));
                    prop_assert_eq!(verdict.action == "look-again", verdict.after.is_some_and(|after| after >= 5) && verdict.action == "look-again");
                }
                prop_assert_eq!(verdicts(&request, passed.clone()), Ok(passed));
            }
        }

        #[test]
        fn passed_plans_are_sound(
            jobs in proptest::collection::vec(0..6_u64, 0..6),
            max in any::<Option<u32>>(),
            min in any::<Option<u32>>(),
            reservations in proptest::collection::vec(any_reservation(), 0..6),
            ceiling in any::<Option<u32>>(),
            look_again in any::<Option<u32>>(),
        ) {
            let pool = Pool { min_replicas: min, max_replicas: max, ..Default::default() };
            let request = CapacityRequest { pool, ..capacity(&jobs) };
            let answer = CapacityPlan { reservations, ceiling, look_again, attributes: Vec::new() };
            if let Ok(passed) = plan(&request, answer) {
                let cap = max.unwrap_or(REPLICAS_MAX).min(REPLICAS_MAX);
                for reservation in &passed.reservations {
                    prop_assert!(reservation.replicas <= cap);
                    prop_assert!((EXPIRES.0..=EXPIRES.1).contains(&reservation.expires));
                    prop_assert!(i64::from(reservation.effective) <= i64::from(reservation.expires));
                    prop_assert!(reservation.jobs.iter().all(|job| jobs.contains(job)));
                }
                prop_assert!(passed.ceiling.is_none_or(|ceiling| ceiling <= cap));
                prop_assert_eq!(plan(&request, passed.clone()), Ok(passed));
            }
        }

        #[test]
        fn scrubbing_is_bounded_and_settles(text in any::<String>(), most in 0..300_usize) {
            let line = scrub(&text, most);
            prop_assert!(line.len() <= most);
            prop_assert!(!line.chars().any(|char| char.is_control() || reorders(char)));
            prop_assert_eq!(scrub(&line, most), line);
        }
    }
}
