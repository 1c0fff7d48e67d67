//! The shipped component and the linked policy are the same program; this proves that they still answer the same.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::sync::LazyLock;

use pacer_core::policy::{
    Candidate, CapacityRequest, Counts, DeadJob, Job, Node, Pool, Quantiles, RecoverRequest, Reservation, RestartRequest,
    ScaleDownRequest, Subject,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use pacer_policy::{Answer, Fault, Inquiry, Limits, NO_SETTINGS, Policy, SHIPPED, rehearsal};

mod child;

use child::jail;

static SHIPPED_POLICY: LazyLock<Policy> = LazyLock::new(|| Policy::load(jail(), SHIPPED).unwrap());

/// Asks both and returns the answer they share.
fn agreed(inquiry: &Inquiry, settings: &str) -> Result<Answer, Fault> {
    let ask = || SHIPPED_POLICY.answer(jail(), inquiry, settings, &Limits::default());
    let mut outcome = ask();
    // A busy machine may steal a call's whole deadline, which says nothing about the policy.
    while outcome.answer == Err(Fault::Deadline) {
        outcome = ask();
    }
    let natively = inquiry.natively(settings);
    assert_eq!(outcome.answer, natively, "component and linked policy disagree");
    let again = ask();
    if again.answer != Err(Fault::Deadline) {
        assert_eq!((again.answer, again.fuel), (outcome.answer, outcome.fuel), "one request, two answers or efforts");
    }
    natively
}

fn name() -> impl Strategy<Value = String> {
    proptest::string::string_regex("[a-z][a-z0-9-]{0,12}").unwrap()
}

fn seconds() -> impl Strategy<Value = u32> {
    prop_oneof![0..600_u32, 0..100_000_u32, any::<u32>()]
}

fn attributes() -> impl Strategy<Value = Vec<(String, String)>> {
    vec((name(), any::<String>()), 0..2)
}

prop_compose! {
    fn pool()(
        name in name(),
        min_replicas in of(0..10_u32),
        max_replicas in of(0..40_u32),
        desired in 0..40_u32,
        idle in 0..40_u32,
        busy in 0..40_u32,
        ephemeral in any::<bool>(),
        times in of((0..100_u32, seconds())),
        arrivals in vec(0..9_u32, 0..5),
        attributes in attributes(),
    ) -> Pool {
        let quantiles = times.map(|(samples, p50)| Quantiles { samples, p50, p90: p50.saturating_mul(2), p99: p50.saturating_mul(3) });
        Pool {
            name,
            kind: "RunnerDeployment".into(),
            min_replicas,
            max_replicas,
            desired,
            counts: Counts { idle, busy, ..Default::default() },
            ephemeral,
            start_time: quantiles,
            run_time: quantiles,
            arrivals,
            attributes,
            ..Default::default()
        }
    }
}

prop_compose! {
    fn node()(name in name(), runners in 0..6_u32, busy in 0..3_u32, draining in any::<bool>(), age in of(seconds())) -> Node {
        Node { name, runners, busy, draining, age, attributes: Vec::new() }
    }
}

prop_compose! {
    // Nodes are sometimes out of range on purpose: both must cope in the same way.
    fn candidate()(
        name in name(),
        idle in seconds(),
        age in seconds(),
        node in of(0..5_u32),
        current in any::<bool>(),
        last_job_end in of(seconds()),
        attributes in attributes(),
    ) -> Candidate {
        Candidate { name, idle, age, node, current, last_job_end, attributes }
    }
}

prop_compose! {
    fn scale_down()(
        now in 0.0..4e9_f64,
        pool in pool(),
        nodes in vec(node(), 0..5),
        candidates in vec(candidate(), 0..30),
        surplus in 0..32_u32,
    ) -> ScaleDownRequest {
        ScaleDownRequest { now, pool, nodes, candidates, surplus, ..Default::default() }
    }
}

fn situation() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "ended",
        "never-registered",
        "not-starting",
        "offline",
        "unregistered",
        "pod-missing",
        "new-one",
    ])
}

fn cause() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
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
        "new-one",
    ])
}

prop_compose! {
    fn subject()(
        name in name(),
        situation in situation(),
        cause in cause(),
        exit_code in of(any::<i32>()),
        message in any::<String>(),
        github in proptest::sample::select(vec!["unknown", "absent", "offline", "online"]),
        (was_registered, ephemeral, stand_alone, current) in any::<(bool, bool, bool, bool)>(),
        since in seconds(),
        age in seconds(),
        attempts in prop_oneof![0..12_u32, any::<u32>()],
        node in of(0..5_u32),
    ) -> Subject {
        Subject {
            name,
            situation: situation.into(),
            cause: cause.into(),
            exit_code,
            message,
            github: github.into(),
            was_registered,
            since,
            age,
            attempts,
            ephemeral,
            stand_alone,
            current,
            node,
            attributes: Vec::new(),
        }
    }
}

prop_compose! {
    fn restart()(now in 0.0..4e9_f64, pool in pool(), nodes in vec(node(), 0..5), subjects in vec(subject(), 0..12)) -> RestartRequest {
        RestartRequest { now, pool, nodes, subjects, ..Default::default() }
    }
}

prop_compose! {
    fn job()(
        id in any::<u64>(),
        started in of(seconds()),
        queued in seconds(),
        repository in name(),
        attempt in 1..4_u32,
        runner in of(name()),
    ) -> Job {
        let state = if started.is_some() { "in-progress" } else { "queued" };
        Job { id, state: state.into(), queued, started, repository, attempt, runner, ..Default::default() }
    }
}

prop_compose! {
    fn capacity()(
        now in 0.0..4e9_f64,
        pool in pool(),
        jobs in vec(job(), 0..12),
        held in vec((0..12_usize, 0..3_u32, any::<i32>(), seconds()), 0..6),
    ) -> CapacityRequest {
        let reservations = held
            .into_iter()
            .filter_map(|(at, replicas, effective, expires)| {
                let job = jobs.get(at)?;
                let id = format!("job-{}", job.id);
                Some(Reservation { id, jobs: vec![job.id], replicas, effective, expires, ..Default::default() })
            })
            .collect();
        CapacityRequest { now, pool, jobs, reservations, ..Default::default() }
    }
}

#[test]
fn rehearsals_are_answered() {
    for (case, request) in rehearsal::scale_down() {
        let surplus = request.surplus as usize;
        let Ok(Answer::ScaleDown(answer)) = agreed(&Inquiry::ScaleDown(request), NO_SETTINGS) else { panic!("{case}") };
        assert_eq!(answer.len(), surplus, "{case}");
    }
    for (case, request) in rehearsal::restart() {
        let subjects = request.subjects.len();
        let Ok(Answer::Restart(answer)) = agreed(&Inquiry::Restart(request), NO_SETTINGS) else { panic!("{case}") };
        assert_eq!(answer.len(), subjects, "{case}");
    }
    for (case, request) in rehearsal::capacity() {
        let idle = request.jobs.is_empty();
        let Ok(Answer::Capacity(answer)) = agreed(&Inquiry::Capacity(request), NO_SETTINGS) else { panic!("{case}") };
        assert_eq!(answer.reservations.is_empty(), idle, "{case}");
    }
}

#[test]
fn wrong_settings_are_declined_by_both() {
    let [_, (_, request), _] = rehearsal::scale_down();
    let declined = agreed(&Inquiry::ScaleDown(request), "{\"noSuchSetting\": 1}");
    assert!(matches!(&declined, Err(Fault::PolicyError(text)) if text.contains("noSuchSetting")), "{declined:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn scale_down_is_the_same(request in scale_down()) {
        prop_assert!(agreed(&Inquiry::ScaleDown(request), NO_SETTINGS).is_ok());
    }

    #[test]
    fn restart_is_the_same(request in restart()) {
        prop_assert!(agreed(&Inquiry::Restart(request), NO_SETTINGS).is_ok());
    }

    #[test]
    fn recover_is_the_same(pool in pool(), jobs in vec((any::<u64>(), 0..4_u32, of(any::<u64>()), seconds(), name(), 0..6_usize), 0..12)) {
        let causes = ["node-lost", "evicted", "preempted", "oom-killed", "something-new", ""];
        let job = |(id, attempt, run, since, runner, cause): (u64, u32, Option<u64>, u32, String, usize)| DeadJob {
            id,
            attempt,
            run,
            since,
            runner,
            cause: causes[cause].to_owned(),
            recoveries: attempt.saturating_sub(1),
            ..DeadJob::default()
        };
        let jobs = jobs.into_iter().map(job).collect();
        let request = RecoverRequest { pool, jobs, ..RecoverRequest::default() };
        prop_assert!(agreed(&Inquiry::Recover(request), NO_SETTINGS).is_ok());
    }

    #[test]
    fn capacity_is_the_same(request in capacity()) {
        prop_assert!(agreed(&Inquiry::Capacity(request), NO_SETTINGS).is_ok());
    }
}
