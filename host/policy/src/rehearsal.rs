//! Ordinary requests that a policy must be able to answer before it is trusted with real ones: nothing, one thing, a typical number.

use pacer_core::policy::{
    ApiBudget, Candidate, CapacityRequest, Counts, DeadJob, Job, Node, Pool, Quantiles, RecoverRequest, Reservation,
    RestartRequest, ScaleDownRequest, Subject,
};
use pacer_core::recovery::Proof;

use crate::load::NO_SETTINGS;

/// A point in time that looks like one, in Unix seconds.
const NOW: f64 = 1_800_000_000.0;

/// How many things a typical request is about.
const TYPICAL: u32 = 24;

/// Situations and causes of the contract, as they occur together.
const ILLS: [(&str, &str, &str); 8] = [
    ("ended", "completed", "absent"),
    ("ended", "exit", "offline"),
    ("ended", "evicted", "offline"),
    ("never-registered", "unknown", "absent"),
    ("not-starting", "image-pull", "absent"),
    ("offline", "node-lost", "offline"),
    ("unregistered", "unknown", "absent"),
    ("pod-missing", "pod-deleted", "unknown"),
];

fn of_all_sizes<T>(request: impl Fn(u32) -> T) -> [(&'static str, T); 3] {
    [("empty", request(0)), ("single", request(1)), ("typical", request(TYPICAL))]
}

/// Requests for scale-down, by their size.
#[must_use]
pub fn scale_down() -> [(&'static str, ScaleDownRequest); 3] {
    of_all_sizes(scale_down_of)
}

/// A request about `count` things.
#[must_use]
pub fn scale_down_of(count: u32) -> ScaleDownRequest {
    let candidates: Vec<Candidate> = (0..count)
        .map(|n| Candidate {
            name: format!("runner-{n}"),
            idle: 60 + n * 37 % 600,
            age: 3_600 + n,
            node: (n % 5 != 4).then_some(n % 4),
            current: n % 3 != 0,
            last_job_end: (n % 2 == 0).then_some(60 + n),
            attributes: vec![("zone".to_owned(), format!("z{}", n % 3))],
        })
        .collect();
    ScaleDownRequest {
        now: NOW,
        settings: NO_SETTINGS.to_owned(),
        pool: pool(count),
        nodes: nodes(count),
        candidates,
        surplus: count.div_ceil(3),
        attributes: Vec::new(),
    }
}

/// Requests for restart, by their size.
#[must_use]
pub fn restart() -> [(&'static str, RestartRequest); 3] {
    of_all_sizes(restart_of)
}

/// A request about `count` things.
#[must_use]
pub fn restart_of(count: u32) -> RestartRequest {
    let subjects = (0..count)
        .zip(ILLS.iter().cycle())
        .map(|(n, &(situation, cause, github))| Subject {
            name: format!("runner-{n}"),
            situation: situation.to_owned(),
            cause: cause.to_owned(),
            exit_code: (situation == "ended").then(|| i32::from(cause != "completed")),
            message: "message of the cluster".to_owned(),
            github: github.to_owned(),
            was_registered: github != "absent",
            since: n * 61,
            age: 30 + n * 61,
            attempts: n % 5,
            ephemeral: n % 4 != 0,
            stand_alone: n % 7 == 0,
            current: n % 3 != 0,
            node: (n % 5 != 4).then_some(n % 4),
            attributes: Vec::new(),
        })
        .collect();
    RestartRequest {
        now: NOW,
        settings: NO_SETTINGS.to_owned(),
        pool: pool(count),
        nodes: nodes(count),
        subjects,
        attributes: Vec::new(),
    }
}

/// Requests for capacity, by their size.
#[must_use]
pub fn capacity() -> [(&'static str, CapacityRequest); 3] {
    of_all_sizes(capacity_of)
}

/// A request about `count` things.
#[must_use]
pub fn capacity_of(count: u32) -> CapacityRequest {
    let jobs: Vec<Job> = (0..count)
        .map(|n| Job {
            id: 7_000_000_000 + u64::from(n),
            state: if n % 2 == 0 { "queued" } else { "in-progress" }.to_owned(),
            queued: 10 + n * 13,
            started: (n % 2 == 1).then_some(5 + n),
            repository: "octo/app".to_owned(),
            workflow: "ci".to_owned(),
            labels: vec!["self-hosted".to_owned(), "linux".to_owned()],
            attempt: 1,
            runner: (n % 2 == 1).then(|| format!("runner-{n}")),
            attributes: Vec::new(),
        })
        .collect();
    let reservations = jobs
        .iter()
        .take(jobs.len() / 3)
        .map(|job| Reservation {
            id: format!("job-{}", job.id),
            jobs: vec![job.id],
            replicas: 1,
            effective: -30,
            expires: 600,
            reason: "queued".to_owned(),
            attributes: Vec::new(),
        })
        .collect();
    CapacityRequest { now: NOW, settings: NO_SETTINGS.to_owned(), pool: pool(count), jobs, reservations, attributes: Vec::new() }
}

/// Requests for recover, by their size.
#[must_use]
pub fn recover() -> [(&'static str, RecoverRequest); 3] {
    of_all_sizes(recover_of)
}

/// A request about `count` things.
#[must_use]
pub fn recover_of(count: u32) -> RecoverRequest {
    let jobs = (0..count)
        .zip(Proof::ALL.into_iter().cycle())
        .map(|(n, cause)| DeadJob {
            id: 7_000_000_000 + u64::from(n),
            run: (n % 2 == 0).then_some(8_000_000_000 + u64::from(n)),
            attempt: 1 + n % 3,
            repository: "octo/app".to_owned(),
            workflow: "ci".to_owned(),
            labels: vec!["self-hosted".to_owned(), "linux".to_owned()],
            runner: format!("runner-{n}"),
            cause: cause.as_str().to_owned(),
            message: "message of the cluster".to_owned(),
            since: 5 + n,
            ran: 30 + n * 61,
            recoveries: n % 3,
            node: (n % 5 != 4).then_some(n % 4),
            attributes: Vec::new(),
        })
        .collect();
    RecoverRequest {
        now: NOW,
        settings: NO_SETTINGS.to_owned(),
        pool: pool(count),
        nodes: nodes(count),
        jobs,
        attributes: Vec::new(),
    }
}

fn pool(count: u32) -> Pool {
    let quantiles = Quantiles { samples: count, p50: 20, p90: 45, p99: 90 };
    Pool {
        namespace: "runners".to_owned(),
        name: "linux".to_owned(),
        kind: "RunnerDeployment".to_owned(),
        labels: vec!["self-hosted".to_owned(), "linux".to_owned()],
        min_replicas: Some(0),
        max_replicas: Some(count.saturating_mul(2).max(1)),
        desired: count,
        counts: Counts { pending: 1, starting: 1, idle: count, busy: count / 2, stopping: 0 },
        last_scale_up: Some(120),
        last_scale_down: None,
        revision: "5d9c7b".to_owned(),
        ephemeral: true,
        budget: Some(ApiBudget { limit: 5_000, remaining: 4_200, resets_in: 1_800 }),
        start_time: Some(quantiles),
        run_time: Some(quantiles),
        arrivals: vec![2, 0, 3, 1],
        attributes: Vec::new(),
    }
}

fn nodes(count: u32) -> Vec<Node> {
    (0..4)
        .map(|n| Node {
            name: format!("node-{n}"),
            runners: count / 4 + 1,
            busy: (n % 3).min(count / 4 + 1),
            draining: n == 3,
            age: Some(86_400 * n),
            attributes: Vec::new(),
        })
        .collect()
}
