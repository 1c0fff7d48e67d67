use std::time::Duration;

use pacer_core::ledger::{JobEvent, LIMIT, Terms};
use proptest::prelude::*;

use super::*;

const TERMS: Terms = Terms { queued: Duration::from_secs(600), limit: LIMIT };

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

fn event(id: u64, state: State, second: i64) -> JobEvent {
    JobEvent {
        id,
        state,
        at: at(second),
        queued_at: at(0),
        repository: Arc::from("acme/app"),
        workflow: Arc::from("build"),
        labels: Arc::from([Arc::from("self-hosted"), Arc::from("linux")]),
        attempt: 2,
        runner: (state != State::Queued).then(|| Arc::from("web-abcde")),
        origin: Arc::new(Origin { run: Some(7_000_000_001), branch: "main".into(), ..Origin::default() }),
    }
}

fn steps(id: u64) -> [JobEvent; 3] {
    [event(id, State::Queued, 0), event(id, State::InProgress, 5), event(id, State::Completed, 20)]
}

/// What a writer adds who knows nothing of the job but this event.
fn addition(event: &JobEvent) -> Additions {
    let mut ledger = Ledger::default();
    ledger.apply(event, &TERMS, at(30));
    let mut additions = Additions::default();
    ledger.all().for_each(|(id, job)| additions.put(id, job));
    additions
}

/// RFC 7396, as the API server applies it.
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

fn stored(patches: &[Additions]) -> JobLedgerSpec {
    let mut object = json!({"spec": {"autoscaler": "web"}});
    for patch in patches {
        merge(&mut object, &patch.patch());
    }
    serde_json::from_value(object["spec"].take()).unwrap()
}

#[test]
fn job_reads_as_a_person_would_write_it() {
    let [queued, started, completed] = steps(38_000_000_001).map(|event| addition(&event));
    let shown = |patches: &[Additions]| serde_json::to_value(stored(patches).jobs).unwrap()["38000000001"].clone();
    let workflow = shown(std::slice::from_ref(&queued))["workflow"].clone();
    assert_eq!(
        shown(&[queued.clone(), started.clone()]),
        json!({
            "workflow": workflow, "attempt": 2, "queued": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:10:30Z",
            "started": "2026-01-01T00:00:05Z", "runner": "web-abcde", "run": 7_000_000_001_u64, "branch": "main",
        })
    );
    assert_eq!(
        shown(&[queued, started, completed]),
        json!({
            "workflow": workflow, "attempt": 2, "queued": "2026-01-01T00:00:00Z", "runner": "web-abcde",
            "ended": "2026-01-01T00:00:20Z", "forget": "2026-01-01T00:05:30Z", "run": 7_000_000_001_u64, "branch": "main",
        })
    );
}

#[test]
fn what_is_written_is_read() {
    let mut ledger = Ledger::default();
    for (id, step) in [(1, 0), (2, 1), (3, 2)] {
        ledger.apply(&steps(id)[step], &TERMS, at(if step == 1 { 5 } else { 30 }));
    }
    let mut additions = Additions::default();
    ledger.all().for_each(|(id, job)| additions.put(id, job));
    assert_eq!(read([&stored(std::slice::from_ref(&additions))]), ledger, "patched");
    assert_eq!(read([&additions.spec("web").unwrap()]), ledger, "created");
    assert_eq!(stored(&[additions]).workflows.len(), 1, "what jobs have in common is kept once");
}

#[test]
fn job_that_is_removed_leaves_its_workflow_unused() {
    let mut gone = Additions::default();
    gone.remove(1);
    let spec = stored(&[addition(&steps(1)[0]), addition(&steps(2)[0]), gone.clone()]);
    assert_eq!((spec.has(1), spec.has(2), spec.unused_workflows().count()), (false, true, 0));
    let mut both = gone;
    both.remove(2);
    assert_eq!(stored(&[addition(&steps(1)[0]), both]).unused_workflows().count(), 1);
}

#[test]
fn texts_of_any_length_are_cut() {
    let long: Arc<str> = Arc::from("x".repeat(10_000));
    let huge = JobEvent {
        repository: long.clone(),
        workflow: long.clone(),
        labels: std::iter::repeat_n(long.clone(), 1_000).collect(),
        runner: Some(long.clone()),
        origin: Arc::new(Origin {
            run: Some(u64::MAX >> 1),
            branch: long.clone(),
            event: long.clone(),
            actor: long.clone(),
            environment: long,
        }),
        ..event(1, State::InProgress, 0)
    };
    let size = serde_json::to_string(&addition(&huge).patch()).unwrap().len();
    assert!(size < 20_000, "{size} bytes");
}

#[test]
fn jobs_of_long_names_take_little_room() {
    let mut additions = Additions::default();
    for id in 0..100 {
        let event = JobEvent {
            repository: Arc::from("an-organization-with-a-long-name/a-repository-with-a-long-name"),
            workflow: Arc::from("a workflow with a long name (linux, x64, release)"),
            labels: (0..8).map(|label| Arc::from(format!("a-label-with-a-long-name-{label}"))).collect(),
            ..event(38_000_000_000 + id, State::InProgress, 5)
        };
        additions.extend(addition(&event));
    }
    let size = serde_json::to_string(&additions.spec("web").unwrap()).unwrap().len();
    assert!(size < 25_000, "{size} bytes for 100 jobs");
}

#[test]
fn writers_who_know_different_things_of_an_origin_put_them_together() {
    let webhook = Origin { run: Some(9), branch: "main".into(), environment: "live".into(), ..Origin::default() };
    let listing = Origin { run: Some(9), branch: "main".into(), event: "push".into(), ..Origin::default() };
    let told = |origin: &Origin, step: usize| addition(&JobEvent { origin: Arc::new(origin.clone()), ..steps(1)[step].clone() });
    for patches in [[told(&webhook, 0), told(&listing, 1)], [told(&listing, 1), told(&webhook, 0)]] {
        let job = stored(&patches).job(1).unwrap();
        assert_eq!((job.state, &*job.origin), (State::InProgress, &webhook.or(&listing)));
    }
}

#[test]
fn names_differ_by_autoscaler_and_shard() {
    let uid = "0f8fad5b-d9cb-469f-a165-70867728950e";
    assert_eq!(name("web", uid, 0), "web-0f8fad5bd9cb-00");
    assert_eq!(name("web", uid, 255), "web-0f8fad5bd9cb-ff");
    assert_eq!(name("web", "7c9e6679", 0), "web-7c9e6679-00");
    let long = name(&format!("{}-{}", "a".repeat(199), "b".repeat(53)), uid, 3);
    assert_eq!(long, format!("{}-0f8fad5bd9cb-03", "a".repeat(199)));
}

proptest! {
    /// Invariant 1, for writers that know nothing of each other: any order and repetition of one job's events is read as the same jobs.
    #[test]
    fn order_of_blind_writers_does_not_matter(picks in prop::collection::vec((0_u64..4, 0_usize..3), 1..24).prop_flat_map(|picks| {
        let twice: Vec<_> = picks.iter().chain(&picks).copied().collect();
        (Just(picks), Just(twice).prop_shuffle())
    })) {
        let seen = |picks: &[(u64, usize)]| {
            let patches: Vec<Additions> = picks.iter().map(|(id, step)| addition(&steps(*id)[*step])).collect();
            read([&stored(&patches)])
        };
        prop_assert_eq!(seen(&picks.0), seen(&picks.1));
    }

    /// The same events, spread over objects in any way, are the same jobs.
    #[test]
    fn object_that_holds_a_job_does_not_matter(picks in prop::collection::vec((0_u64..4, 0_usize..3, 0_usize..3), 1..24)) {
        let of = |object: Option<usize>| {
            let here = picks.iter().filter(|(_, _, shard)| object.is_none_or(|object| *shard == object));
            stored(&here.map(|(id, step, _)| addition(&steps(*id)[*step])).collect::<Vec<_>>())
        };
        let spread: Vec<JobLedgerSpec> = (0..3).map(|object| of(Some(object))).collect();
        prop_assert_eq!(read(&spread), read([&of(None)]));
    }

    /// Changes that go out together come to the same as one after the other.
    #[test]
    fn changes_of_one_batch_are_applied_in_order(picks in prop::collection::vec((0_u64..3, 0_usize..4), 1..16)) {
        let change = |(id, step): &(u64, usize)| match steps(*id).get(*step) {
            Some(event) => addition(event),
            None => {
                let mut gone = Additions::default();
                gone.remove(*id);
                gone
            }
        };
        let changes: Vec<Additions> = picks.iter().map(change).collect();
        let mut batch = Additions::default();
        changes.iter().cloned().for_each(|later| batch.extend(later));
        prop_assert_eq!(read([&stored(&[batch])]), read([&stored(&changes)]));
    }
}
