//! Components that were built when a version of the contract was released: whatever this host has become since, they are accepted and decide
//! as they did. `fixtures/README.md` says how they were made. A fixture is never built anew; a new version of the contract gets a directory.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pacer_core::policy::{Candidate, CapacityRequest, Counts, Job, Pool, RestartRequest, ScaleDownRequest, Subject};
use pacer_core::reads::Reads;
use pacer_policy::{Bundle, Counters, Decision, Generation, PolicyHost};

mod child;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// In force as a ConfigMap would put it, with everything that staging tries.
async fn in_force(host: &PolicyHost, fixture: &str, entry: &str) -> Arc<Generation> {
    let module = std::fs::read(fixtures().join(fixture)).unwrap_or_else(|error| panic!("{fixture}: {error}"));
    let data = BTreeMap::from([("policies.yaml".to_owned(), entry.to_owned())]);
    let bundle = Bundle::parse(host, "default", &data, &BTreeMap::from([("m".to_owned(), module)])).await;
    let bundle = bundle.unwrap_or_else(|error| panic!("{fixture}: {error}"));
    let staged = bundle.stage(host).await.unwrap_or_else(|error| panic!("{fixture}: {error}"));
    host.compose(&[&staged])
}

/// The youngest first, by name where they are of an age; one was hardly idle.
async fn newest_first(generation: &Generation) -> Vec<(u32, String)> {
    let candidate = |name: &str, age: u32, idle: u32| Candidate { name: name.to_owned(), age, idle, ..Candidate::default() };
    let candidates = vec![candidate("c", 900, 600), candidate("b", 60, 600), candidate("a", 900, 600), candidate("d", 5, 1)];
    let request = ScaleDownRequest { candidates, surplus: 3, now: 1_700_000_000.0, ..ScaleDownRequest::default() };
    assert_eq!(generation.reads(Decision::ScaleDown), Reads::default(), "it declares nothing");
    // A policy in shadow may ask for facts that this one never heard of.
    let mut asked_for = request.clone();
    let told = vec![("last-job-repository".to_owned(), "acme/app".to_owned()), ("label:a/b".to_owned(), String::new())];
    asked_for.candidates.iter_mut().for_each(|candidate| candidate.attributes.clone_from(&told));
    asked_for.attributes = told;
    let mut answers = Vec::new();
    for request in [request, asked_for] {
        let evaluation = generation.scale_down(request).await;
        assert_eq!(evaluation.fault, None);
        answers.push(evaluation.answer.into_iter().map(|choice| (choice.index, choice.reason)).collect::<Vec<_>>());
    }
    assert_eq!(answers[0], answers[1]);
    answers.remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_built_for_0_1_0_load_and_decide() {
    let host = child::host(&Arc::new(Counters::default()));
    let choice = |index: u32, reason: &str| (index, reason.to_owned());
    for (fixture, entry, expected) in [
        (
            "0.1.0/newest-first-in-wat.wasm.gz",
            "scale-down: {module: m}",
            [choice(3, "5 s old"), choice(1, "60 s old"), choice(2, "900 s old")],
        ),
        (
            "0.1.0/newest-first-in-c.wasm.gz",
            "scale-down: {module: m}",
            [choice(3, "5 s old"), choice(1, "60 s old"), choice(2, "900 s old")],
        ),
        (
            "0.1.0/newest-first-in-zig.wasm.gz",
            "scale-down: {module: m, settings: {minIdleSeconds: 60}}",
            [choice(1, "60 s old"), choice(2, "900 s old"), choice(0, "900 s old")],
        ),
        (
            "0.1.0/newest-first-in-rust.wasm.gz",
            "scale-down: {module: m, settings: {minIdleSeconds: 60}}",
            [choice(1, "60 s old"), choice(2, "900 s old"), choice(0, "900 s old")],
        ),
    ] {
        let generation = in_force(&host, fixture, entry).await;
        assert_eq!(newest_first(&generation).await, expected, "{fixture}");
    }

    let generation = in_force(&host, "0.1.0/warm-spare.wasm.gz", "capacity: {module: m, settings: {spare: 2}}").await;
    let job = Job { id: 4_294_967_296, state: "queued".to_owned(), ..Job::default() };
    let pool = Pool { counts: Counts { busy: 3, ..Counts::default() }, ..Pool::default() };
    let plan = generation.capacity(CapacityRequest { jobs: vec![job], pool, ..CapacityRequest::default() }).await;
    assert_eq!(plan.fault, None);
    let held: Vec<_> = plan.answer.reservations.iter().map(|held| (held.id.as_str(), held.replicas)).collect();
    assert_eq!((held, plan.answer.look_again), (vec![("job-4294967296", 1), ("warm-spare", 4)], Some(30)));

    let generation = in_force(&host, "0.1.0/reason-aware.wasm.gz", "restart: {module: m}").await;
    let subject = |situation: &str, cause: &str, attempts: u32| Subject {
        situation: situation.to_owned(),
        cause: cause.to_owned(),
        attempts,
        ..Subject::default()
    };
    let subjects = vec![subject("ended", "evicted", 9), subject("ended", "exit", 3), subject("not-starting", "image-pull", 3)];
    let verdicts = generation.restart(RestartRequest { subjects, ..RestartRequest::default() }).await;
    assert_eq!(verdicts.fault, None);
    let said: Vec<_> = verdicts.answer.iter().map(|verdict| (verdict.action.as_str(), verdict.after)).collect();
    assert_eq!(said, [("replace", Some(0)), ("replace", Some(20)), ("quarantine", None)]);
}

#[test]
fn every_fixture_is_asked_something() {
    let asked = include_str!("frozen.rs");
    let mut found = BTreeSet::new();
    for version in std::fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap()).filter(|entry| entry.path().is_dir()) {
        for fixture in std::fs::read_dir(version.path()).unwrap() {
            let name = format!("{}/{}", version.file_name().display(), fixture.unwrap().file_name().display());
            assert!(asked.contains(&format!("\"{name}\"")), "{name} is in no test");
            found.insert(name);
        }
    }
    assert_eq!(found.len(), 6, "{found:?}");
}
