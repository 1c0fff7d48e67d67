//! Files, lives, cuts and redaction of traces, and their schema.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::file::{self, FileError, Writer};
use super::surroundings::{Budget, Listings, NodeFacts, NodeState, Room, ScopeListings, Window};
use super::*;

const SCHEMA: &str = include_str!("../../../docs/trace.schema.json");

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000_000 + seconds).unwrap()
}

/// One record of each kind.
fn every_kind() -> Vec<Record> {
    let runner: Arc<str> = "web-abc".into();
    let pool: Arc<str> = "ci/web".into();
    let settings = PoolSettings {
        pool: pool.clone(),
        labels: vec!["web".into()],
        ephemeral: true,
        max: 9,
        scale_down_delay_seconds: 600,
        job_life_seconds: 600,
        webhooks: true,
        idle_confirmation_seconds: Some(10),
        ramp_per_minute: std::num::NonZeroU32::new(30),
        policies: Some("mine".to_owned()),
        capacity_policy: Some("mine@sha256:0123456789ab".into()),
        refused: true,
        scope: Some("organization acme".into()),
        volumes: 1,
        surplus_volumes_deleted: true,
        unrecorded: vec!["metrics".to_owned()],
        ..PoolSettings::default()
    };
    let about = About {
        repository: "acme/app".into(),
        workflow: "build".into(),
        labels: Arc::from([Arc::from("web")]),
        attempt: 1,
        pool: Some(pool.clone()),
    };
    let decision = What::Decision { pool: pool.clone(), from: 0, to: 1, why: "reserved 1 for 1 job of acme/app".to_owned() };
    let what = [
        What::Pool(settings),
        What::JobQueued { job: 7, about },
        decision,
        What::RunnerCreated { runner: runner.clone(), pool },
        What::RunnerRegistered { runner: runner.clone() },
        What::JobAssigned { job: 7, runner: runner.clone() },
        What::JobStarted { job: 7, runner: Some(runner.clone()) },
        What::RunnerBusy { runner: runner.clone() },
        What::JobCompleted { job: 7 },
        What::RunnerIdle { runner: runner.clone() },
        What::RunnerEnded { runner, why: End::Finished },
        What::Resumed { since: at(3) },
        What::Checkpoint {},
    ];
    let surroundings = surroundings().into_iter().map(|(second, what)| Record { at: at(second), what });
    (0..).zip(what).map(|(second, what)| Record { at: at(second), what }).chain(surroundings).collect()
}

/// What is around the runner of [`every_kind`], and the receipt of its removal, with the second of each.
fn surroundings() -> [(i64, What); 8] {
    let node = |state| {
        let label = |text: &str| Some(Arc::from(text));
        let (zone, instance_type, capacity_type) = (label("north-1a"), label("m5.large"), label("spot"));
        What::Node(NodeFacts { node: "node-17".into(), state, zone, instance_type, capacity_type })
    };
    let room = |waiting: u32| {
        let lacking = if waiting > 0 { vec!["cpu".into()] } else { Vec::new() };
        let message = if waiting > 0 { "0/3 nodes are available: 3 Insufficient cpu." } else { "" };
        What::Room(Room { pool: "ci/web".into(), waiting, lacking, message: message.to_owned() })
    };
    let scope = ScopeListings {
        scope: "acme".into(),
        listings: 6,
        torn: 1,
        began: Some(at(6)),
        pages: 3,
        milliseconds: 812,
        runners: 240,
        failures: 2,
    };
    let window = Window {
        resource: "core".into(),
        owner: Some("acme".into()),
        limit: 5_000,
        used: 4_700,
        remaining: 300,
        resets_at: at(3_000),
    };
    let receipt = What::Receipt {
        pool: "ci/web".into(),
        decision: "scale-down".into(),
        policy: "native".into(),
        summary: "removed web-abc".to_owned(),
        receipt: Some("2".to_owned()),
    };
    [
        (3, receipt),
        (3, room(2)),
        (4, What::RunnerPlaced { runner: "web-abc".into(), node: "node-17".into() }),
        (4, node(NodeState::Ready)),
        (5, room(0)),
        (7, What::Listings(Listings { credentials: "ci/github".into(), scopes: vec![scope], more: 1 })),
        (
            7,
            What::Budget(Budget {
                credentials: "ci/github".into(),
                windows: vec![window],
                deferred: 4,
                held_back: 1,
                secondary_until: Some(at(60)),
            }),
        ),
        (9, node(NodeState::Leaving)),
    ]
}

pub(super) fn sample() -> Trace {
    Trace { header: Header::new(at(0)), records: every_kind() }
}

/// Whether a value is what a schema says, as far as this schema's words go. An unknown word fails.
fn fits(schema: &Value, root: &Value, value: &Value) -> Result<(), String> {
    let wrong = |why: String| Err(format!("{why}: {value}"));
    for (word, says) in schema.as_object().unwrap() {
        match word.as_str() {
            "$schema" | "$id" | "title" | "description" | "$defs" => {}
            "$ref" => fits(root.pointer(says.as_str().unwrap().trim_start_matches('#')).unwrap(), root, value)?,
            "const" => {
                if says != value {
                    return wrong(format!("is not {says}"));
                }
            }
            "enum" => {
                if !says.as_array().unwrap().contains(value) {
                    return wrong(format!("is none of {says}"));
                }
            }
            "type" => {
                let is = match says.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "integer" => value.is_u64(),
                    "boolean" => value.is_boolean(),
                    other => panic!("type {other}"),
                };
                if !is {
                    return wrong(format!("is no {says}"));
                }
            }
            "minimum" => assert!(value.as_u64() >= says.as_u64()),
            "format" => {
                assert_eq!(says, "date-time");
                if value.as_str().unwrap().parse::<Timestamp>().is_err() {
                    return wrong("is no time".to_owned());
                }
            }
            "required" => {
                for field in says.as_array().unwrap() {
                    if value.get(field.as_str().unwrap()).is_none() {
                        return wrong(format!("lacks {field}"));
                    }
                }
            }
            "properties" => {
                for (field, of) in says.as_object().unwrap() {
                    value.get(field).map_or(Ok(()), |value| fits(of, root, value))?;
                }
            }
            "unevaluatedProperties" | "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object).unwrap();
                if let Some(field) = value.as_object().unwrap().keys().find(|field| !known.contains_key(*field)) {
                    return wrong(format!("has {field}"));
                }
            }
            "items" => value.as_array().unwrap().iter().try_for_each(|item| fits(says, root, item))?,
            "oneOf" => {
                let fitting: Vec<_> = says.as_array().unwrap().iter().map(|one| fits(one, root, value)).collect();
                if fitting.iter().filter(|fit| fit.is_ok()).count() != 1 {
                    return wrong(format!("fits not exactly one: {fitting:?}"));
                }
            }
            other => panic!("the test does not know {other}"),
        }
    }
    Ok(())
}

#[test]
fn records_are_what_the_schema_says() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let check = |value: &Value| fits(&schema, &schema, value);
    check(&serde_json::to_value(Header::new(at(0))).unwrap()).unwrap();
    let mut kinds = Vec::new();
    for record in every_kind() {
        let value = serde_json::to_value(&record).unwrap();
        check(&value).unwrap();
        if !kinds.contains(&value["kind"]) {
            kinds.push(value["kind"].clone());
        }
        assert_eq!(serde_json::from_value::<Record>(value).unwrap(), record);
    }
    let told = schema["$defs"].as_object().unwrap().values().filter_map(|one| one.pointer("/properties/kind/const"));
    assert!(told.clone().all(|kind| kinds.contains(kind)), "{kinds:?}");
    assert_eq!(told.count(), kinds.len());
    for wrong in [
        json!({"at": "2026-01-01T00:00:00Z", "kind": "job-started"}),
        json!({"at": "yesterday", "kind": "checkpoint"}),
        json!({"at": "2026-01-01T00:00:00Z", "kind": "runner-ended", "runner": "a", "why": "bored"}),
        json!({"format": "pacer-trace", "version": 2, "started": "2026-01-01T00:00:00Z", "by": "x"}),
    ] {
        assert!(check(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_kind_of_a_later_program_is_kept_apart() {
    let record: Record =
        serde_json::from_value(json!({"at": "2026-01-01T00:00:00Z", "kind": "volume-lost", "volume": 3})).unwrap();
    assert_eq!(record.what, What::Unknown);
    let trace = Trace { header: Header::new(at(0)), records: vec![record] };
    assert_eq!(History::of(&trace).unknown, 1);
}

#[test]
fn lives_are_put_together_in_any_order_of_records() {
    let mut trace = sample();
    let history = History::of(&trace);
    assert_eq!(history.problems, []);
    let job = &history.jobs[&7];
    assert_eq!((job.queued, job.started, job.completed), (at(1), Some(at(6)), Some(at(8))));
    let runner = &history.runners["web-abc"];
    assert_eq!((runner.created, runner.registered, runner.ended), (at(3), Some(at(4)), Some((at(10), End::Finished))));
    assert_eq!((history.pools["ci/web"].decisions, history.ended, history.gaps.len()), (1, at(12), 1));
    trace.records.reverse();
    assert_eq!(History::of(&trace), history);
}

#[test]
fn what_can_t_have_been_so_is_named() {
    let mut trace = sample();
    trace.records.retain(|record| !matches!(record.what, What::Pool(_) | What::JobQueued { .. } | What::RunnerCreated { .. }));
    trace.records.push(Record { at: at(1), what: What::RunnerCreated { runner: "other".into(), pool: "ci/gone".into() } });
    trace.records.push(Record { at: at(0), what: What::RunnerEnded { runner: "other".into(), why: End::Unknown } });
    let problems: Vec<String> = History::of(&trace).problems.iter().map(ToString::to_string).collect();
    for part in ["job 7 has steps", "runner web-abc has steps", "pool ci/gone", "runner other has its steps in the wrong order"] {
        assert!(problems.iter().any(|problem| problem.contains(part)), "no {part} in {problems:?}");
    }
}

fn written(directory: &Path, name: &str) -> std::path::PathBuf {
    let path = directory.join(name);
    file::write(&path, &sample()).unwrap();
    path
}

#[test]
fn a_file_is_read_as_it_was_written_and_goes_on_where_it_was_torn() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["trace.jsonl", "trace.jsonl.zst"] {
        let path = written(directory.path(), name);
        assert_eq!(file::read(&path).unwrap().trace, sample(), "{name}");
        let whole = std::fs::read(&path).unwrap();
        let mut torn = whole.clone();
        torn.extend(whole.iter().take(20));
        std::fs::write(&path, torn).unwrap();
        let contents = file::read(&path).unwrap();
        assert_eq!((&contents.trace, contents.torn), (&sample(), 20), "{name}");
        let mut writer = Writer::append(&path, &contents).unwrap();
        let more = Record { at: at(99), what: What::Checkpoint {} };
        writer.record(&more).unwrap();
        writer.flush().unwrap();
        let again = file::read(&path).unwrap();
        assert_eq!(
            (again.trace.records.len(), again.trace.records.last(), again.torn),
            (sample().records.len() + 1, Some(&more), 0),
            "{name}"
        );
        assert!(Writer::create(&path, &Header::new(at(0))).is_err(), "a file that exists is not begun anew");
    }
    let sizes = ["trace.jsonl", "trace.jsonl.zst"].map(|name| std::fs::metadata(directory.path().join(name)).unwrap().len());
    assert!(sizes[1] < sizes[0], "{sizes:?}");
}

#[test]
fn device_that_never_ends_is_refused_at_its_beginning() {
    let directory = tempfile::tempdir().unwrap();
    let error = file::read(std::path::Path::new("/dev/zero")).unwrap_err();
    assert!(matches!(error, FileError::Long { line: 1, .. }), "{error}");
    let compressed = directory.path().join("zero.zst");
    std::os::unix::fs::symlink("/dev/zero", &compressed).unwrap();
    let error = file::read(&compressed).unwrap_err();
    assert!(matches!(error, FileError::NoHeader { .. }), "{error}");
}

#[test]
fn what_is_no_trace_is_refused_with_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.jsonl");
    let header = serde_json::to_string(&Header::new(at(0))).unwrap();
    for (text, part) in [
        ("", "is no trace"),
        ("hello\n", "is no trace"),
        (&header.replace("pacer-trace", "other"), "is no trace"),
        (&format!("{}\n", header.replace("\"version\":1", "\"version\":2")), "is a trace of version 2"),
        (&format!("{header}\n{{}}\n"), "line 2"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = file::read(&path).unwrap_err().to_string();
        assert!(error.contains(part), "{part} in {error}");
    }
    assert!(matches!(file::read(&directory.path().join("none")), Err(FileError::Io { .. })));
}

#[test]
fn redaction_hides_names_and_keeps_who_is_who() {
    let redacted = Redaction::new(b"key").apply(&sample());
    assert_eq!(redacted, Redaction::new(b"key").apply(&sample()), "the same key gives the same names");
    assert_ne!(redacted, Redaction::new(b"another").apply(&sample()));
    let text: String = redacted.records.iter().map(|record| serde_json::to_string(record).unwrap()).collect();
    for name in ["acme", "build", "web-abc", "reserved", "node-17", "north-1a", "ci/github", "0/3 nodes"] {
        assert!(!text.contains(name), "{name} in {text}");
    }
    assert!(redacted.header.redacted);
    let history = History::of(&redacted);
    assert_eq!((history.problems.len(), history.jobs.len(), history.runners.len()), (0, 1, 1));
    let runner = history.jobs[&7].runner.clone().unwrap();
    assert!(history.runners.contains_key(&runner), "the job is still its runner's");
    let node = history.runners[&runner].node.clone().unwrap();
    assert!(history.surroundings.nodes.contains_key(&node), "the node is still its runner's");
}

#[test]
fn a_part_knows_what_was_so_at_its_beginning() {
    let cut = sample().cut(at(5), at(9));
    let history = History::of(&cut);
    assert_eq!((history.started, history.ended, history.problems), (at(5), at(9), vec![]));
    assert_eq!(history.jobs[&7].queued, at(1), "it runs in this part");
    assert_eq!(history.runners["web-abc"].ended, None);
    assert_eq!(history.pools["ci/web"].settings[0].0, at(5));
    let surroundings = &history.surroundings;
    assert_eq!(surroundings.nodes["node-17"][0].0, at(5), "it was ready before");
    assert_eq!(surroundings.nodes["node-17"][1].1.state, NodeState::Leaving);
    let waiting: Vec<_> = surroundings.room["ci/web"].iter().map(|(at, room)| (*at, room.waiting)).collect();
    assert_eq!(waiting, [(at(5), 2), (at(5), 0)], "there is room again");
    let late = History::of(&sample().cut(at(11), at(12)));
    assert_eq!((late.jobs.len(), late.runners.len(), late.pools.len()), (0, 0, 1));
}

#[test]
fn what_runners_depend_on_is_summed_up() {
    let history = History::of(&sample());
    let told = &history.surroundings;
    assert_eq!(history.runners["web-abc"].node.as_deref(), Some("node-17"));
    let states: Vec<_> = told.nodes["node-17"].iter().map(|(at, node)| (*at, node.state)).collect();
    assert_eq!(states, [(at(4), NodeState::Ready), (at(9), NodeState::Leaving)]);
    assert_eq!((told.without_room("ci/web", at(99)), told.without_room("ci/app", at(99))), ((2, 2), (0, 0)));
    let github = &told.credentials["ci/github"];
    assert_eq!((github.listings, github.torn, github.longest, github.failures), (6, 1, 812, 2));
    assert_eq!((github.deferred, github.held_back), (4, 1));
    assert_eq!(github.lowest.as_ref().map(|(at, window)| (*at, window.left())), Some((at(7), 6)));
}

proptest! {
    #[test]
    fn any_part_of_a_trace_is_one(from in -2_i64..15, long in 0_i64..15) {
        let cut = sample().cut(at(from), at(from + long));
        let kinds: BTreeMap<_, _> = cut.records.iter().map(|record| (format!("{:?}", record.what), record.at)).collect();
        prop_assert!(kinds.values().all(|time| *time <= at(from + long)));
        prop_assert_eq!(History::of(&cut).problems.len(), 0);
    }
}
