//! Which reservations the shipped policy keeps for jobs.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "also in what tests call")]

use std::collections::BTreeSet;

use pacer_policy_default::Default as Shipped;
use pacer_policy_sdk::capacity::{self, Job, Plan, Request, Reservation};
use pacer_policy_sdk::scenario::Scenario;
use proptest::prelude::*;

fn plan(scenario: &Scenario) -> Plan {
    scenario.plan::<Shipped>().expect("the policy answers")
}

/// Jobs, effective and expires of every reservation.
fn clocks(plan: &Plan) -> Vec<(Vec<u64>, i32, u32)> {
    plan.reservations.iter().map(|r| (r.jobs.clone(), r.effective, r.expires)).collect()
}

/// ARC's vectors: maximum 1, reservations of ten seconds made at t0 and t0 + 3 s for jobs 1 and 2, now t0 + 6 s. ARC counts events; here a
/// job that is over is missing from the jobs, and a new one is among them.
fn arc(jobs: &[u64], duration: u32) -> Vec<(Vec<u64>, i32, u32)> {
    let mut scenario = Scenario::pool("ci")
        .with_pool(|pool| pool.max_replicas = Some(1))
        .settings(&format!(r#"{{"reservationSeconds":{duration}}}"#))
        .reservation("job-1", &[1], 6, 4)
        .reservation("job-2", &[2], 3, 7);
    for id in jobs {
        scenario = scenario.job(*id, |job| job.queued = 6);
    }
    clocks(&plan(&scenario))
}

#[test]
fn agrees_with_arc() {
    let (r0, r1) = ((vec![1], -6, 4), (vec![2], 0, 10));
    assert_eq!(arc(&[1, 2, 3], 10), [r0.clone(), r1.clone(), (vec![3], 0, 10)], "scale up");
    assert_eq!(arc(&[1, 2, 3], 11), [r0.clone(), r1.clone(), (vec![3], 0, 11)], "scale up, other duration");
    assert_eq!(arc(&[2], 10), std::slice::from_ref(&r1), "scale down");
    assert_eq!(arc(&[2], 11), std::slice::from_ref(&r1), "scale down, other duration");
    assert_eq!(arc(&[1, 2], 10), [r0, r1], "extension only");
}

#[test]
fn a_reservation_that_expires_now_has_expired() {
    let scenario = Scenario::pool("ci").reservation("a", &[], 10, 0).reservation("b", &[], 10, 1);
    // As the policy says it: a scenario gives the time that the operator makes of it.
    let plan = answer(&scenario.capacity());
    assert_eq!(plan.reservations.iter().map(|r| r.id.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(plan.look_again, Some(1));
}

#[test]
fn every_job_holds_one_runner_until_it_is_done() {
    let queued = Scenario::pool("ci").job(8, |job| job.queued = 3).job(7, |job| job.queued = 5);
    let first = plan(&queued);
    assert_eq!(clocks(&first), [(vec![7], 0, 600), (vec![8], 0, 600)]);
    assert_eq!(first.reservations.iter().map(|r| r.reason.as_str()).collect::<Vec<_>>(), ["queued 5 s ago", "queued 3 s ago"]);
    assert_eq!(first.reservations.iter().map(|r| (r.id.as_str(), r.replicas)).collect::<Vec<_>>(), [("job-7", 1), ("job-8", 1)]);

    let running = Scenario::pool("ci")
        .job(7, |job| (job.state, job.started) = ("in-progress".into(), Some(40)))
        .reservation("job-7", &[7], 100, 500)
        .reservation("job-8", &[8], 100, 500);
    assert_eq!(clocks(&plan(&running)), [(vec![7], -100, 500)]);
    assert_eq!(plan(&Scenario::pool("ci").reservation("job-7", &[7], 100, 500)), Plan::default());
}

#[test]
fn a_running_job_keeps_its_runner_after_the_reservation_expired() {
    let scenario = Scenario::pool("ci").job(1, |job| (job.state, job.started) = ("in-progress".into(), Some(7_500)));
    let plan = plan(&scenario);
    assert_eq!(clocks(&plan), [(vec![1], 0, 600)]);
    assert_eq!(plan.reservations[0].reason, "in progress for 2 h 5 min");
}

#[test]
fn a_starved_job_is_asked_for_again() {
    let plan = plan(&Scenario::pool("ci").job(1, |job| job.queued = 2_100));
    assert_eq!(clocks(&plan), [(vec![1], 0, 600)]);
    assert_eq!(plan.reservations[0].reason, "queued for 35 min without a runner, asked again");
}

#[test]
fn jobs_are_given_up_in_the_end() {
    let scenario = Scenario::pool("ci")
        .job(1, |job| job.queued = 86_400)
        .job(2, |job| job.queued = 86_390)
        .job(3, |job| (job.state, job.started) = ("in-progress".into(), Some(432_000)))
        .job(4, |job| (job.state, job.started) = ("in-progress".into(), Some(431_980)))
        .job(5, |job| job.state = "completed".into())
        .reservation("job-3", &[3], 10, 590)
        .reservation("job-4", &[4], 10, 590);
    assert_eq!(clocks(&plan(&scenario)), [(vec![4], -10, 20), (vec![2], 0, 10)]);
}

#[test]
fn the_clock_of_a_running_job_does_not_start_again() {
    // Job 1 was reserved for first, but job 2 took the only runner.
    let scenario = Scenario::pool("ci")
        .with_pool(|pool| pool.max_replicas = Some(1))
        .job(1, |job| job.queued = 30)
        .job(2, |job| (job.state, job.started) = ("in-progress".into(), Some(5)))
        .reservation("job-1", &[1], 30, 570)
        .reservation("job-2", &[2], 20, 580);
    assert_eq!(clocks(&plan(&scenario)), [(vec![2], -20, 580), (vec![1], 0, 600)]);
}

#[test]
fn shared_reservations_shrink_with_their_jobs() {
    let mut shared = Scenario::pool("ci").job(1, |_| ()).job(3, |_| ()).reservation("many", &[1, 2, 3], 5, 95).capacity();
    shared.reservations[0].replicas = 3;
    shared.reservations.push(Reservation {
        id: "again".into(),
        jobs: vec![3],
        replicas: 1,
        expires: 50,
        ..Reservation::default()
    });
    let plan = capacity::answer::<Shipped>(&shared).expect("the policy answers");
    assert_eq!(clocks(&plan), [(vec![1, 3], -5, 95)]);
    assert_eq!(plan.reservations[0].replicas, 2);
}

#[test]
fn the_trigger_of_a_job_may_set_the_duration() {
    let fact = |seconds: &str| vec![("reservation-seconds".to_owned(), seconds.to_owned())];
    let mut request = Scenario::pool("ci")
        .job(1, |job| job.attributes = fact("1800"))
        .job(2, |_| ())
        .job(3, |j| j.attributes = fact("0"))
        .capacity();
    assert_eq!(
        capacity::answer::<Shipped>(&request).map(|p| clocks(&p)),
        Ok(vec![(vec![1], 0, 1_800), (vec![2], 0, 600), (vec![3], 0, 600)])
    );
    request.attributes = fact("90");
    assert_eq!(
        capacity::answer::<Shipped>(&request).map(|p| clocks(&p)),
        Ok(vec![(vec![1], 0, 1_800), (vec![2], 0, 90), (vec![3], 0, 600)])
    );
}

fn request() -> impl Strategy<Value = Request> {
    let job = (
        0..12_u64,
        prop::sample::select(vec!["queued", "in-progress", "completed"]),
        0..100_000_u32,
        prop::option::of(0..500_000_u32),
    );
    let job = job.prop_map(|(id, state, queued, started)| Job { id, state: state.into(), queued, started, ..Job::default() });
    let held = (prop::collection::vec(0..14_u64, 0..4), 0..5_u32, -900..100_i32, 0..900_u32);
    let held = held.prop_map(|(jobs, replicas, effective, expires)| Reservation {
        jobs,
        replicas,
        effective,
        expires,
        ..Reservation::default()
    });
    (prop::collection::vec(job, 0..12), prop::collection::vec(held, 0..8), prop::option::of(0..6_u32)).prop_map(
        |(mut jobs, mut held, max)| {
            let mut seen = BTreeSet::new();
            jobs.retain(|job| seen.insert(job.id));
            for (index, held) in held.iter_mut().enumerate() {
                held.id = format!("r{index}");
            }
            let mut request = Request { jobs, reservations: held, ..Request::default() };
            request.pool.max_replicas = max;
            request
        },
    )
}

fn answer(request: &Request) -> Plan {
    capacity::answer::<Shipped>(request).expect("the policy answers")
}

proptest! {
    #[test]
    fn every_open_job_is_covered_once(request in request()) {
        let plan = answer(&request);
        let mut covered: Vec<u64> = plan.reservations.iter().flat_map(|r| r.jobs.clone()).collect();
        covered.sort_unstable();
        let open = request.jobs.iter().filter(|job| match job.state.as_str() {
            "completed" => false,
            "in-progress" => job.started.unwrap_or(0) < 432_000,
            _ => job.queued < 86_400,
        });
        let mut open: Vec<u64> = open.map(|job| job.id).collect();
        open.sort_unstable();
        prop_assert_eq!(covered, open);
        prop_assert!(plan.reservations.iter().all(|r| r.jobs.is_empty() || r.replicas as usize == r.jobs.len()));
    }

    #[test]
    fn every_reservation_ends_and_the_plan_is_looked_at_by_then(request in request()) {
        let plan = answer(&request);
        prop_assert!(plan.reservations.iter().all(|r| (1..=86_400).contains(&r.expires)));
        prop_assert_eq!(plan.look_again, plan.reservations.iter().map(|r| r.expires).min());
    }

    #[test]
    fn order_of_the_input_does_not_matter(
        (request, jobs, held) in request().prop_flat_map(|request| {
            let (jobs, held) = (Just(request.jobs.clone()).prop_shuffle(), Just(request.reservations.clone()).prop_shuffle());
            (Just(request), jobs, held)
        }),
    ) {
        let expected = answer(&request);
        prop_assert_eq!(expected, answer(&Request { jobs, reservations: held, ..request }));
    }

    /// With room for everything, an answer that is in force is not changed by asking again.
    #[test]
    fn asking_again_changes_nothing(mut request in request()) {
        request.pool.max_replicas = None;
        let first = answer(&request);
        request.reservations = first.reservations.clone();
        let again = answer(&request);
        let sorted = |plan: Plan| {
            let mut reservations = plan.reservations;
            reservations.sort_by(|one, other| one.id.cmp(&other.id));
            reservations
        };
        prop_assert_eq!(sorted(first), sorted(again));
    }
}
