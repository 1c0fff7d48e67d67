//! A scenario tells an author which rule of the contract the answer breaks.

use pacer_policy_sdk::capacity::{Plan, Reservation};
use pacer_policy_sdk::restart::{Action, Verdict};
use pacer_policy_sdk::scale_down::Choice;
use pacer_policy_sdk::scenario::{Decided, Recovered, Scenario};
use pacer_policy_sdk::{Capacity, Policy, Recover, Restart, ScaleDown, capacity, lifecycle, log, recover, restart, scale_down};

/// Answers what its settings say, right or wrong.
struct Parrot;

#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Says {
    choices: Vec<Choice>,
    verdicts: Vec<Verdict>,
    recoveries: Vec<recover::Verdict>,
    plan: Plan,
}

impl Policy for Parrot {
    type Settings = Says;
}

impl ScaleDown for Parrot {
    fn select(request: &scale_down::Request, settings: &Says) -> Result<Vec<Choice>, String> {
        log::debug("asked");
        if request.candidates.is_empty() { Err("nobody to choose from".into()) } else { Ok(settings.choices.clone()) }
    }
}

impl Restart for Parrot {
    fn decide(_: &restart::Request, settings: &Says) -> Result<Vec<Verdict>, String> {
        Ok(settings.verdicts.clone())
    }
}

impl Capacity for Parrot {
    fn plan(_: &capacity::Request, settings: &Says) -> Result<Plan, String> {
        Ok(settings.plan.clone())
    }
}

impl Recover for Parrot {
    fn recover(_: &recover::Request, settings: &Says) -> Result<Vec<recover::Verdict>, String> {
        Ok(settings.recoveries.clone())
    }
}

pacer_policy_sdk::export!(Parrot: scale_down, restart, capacity, recover);

fn select(settings: &str) -> Result<Vec<String>, String> {
    let scenario = Scenario::pool("ci").candidate("a", |_| ()).candidate("b", |_| ()).surplus(2).settings(settings);
    scenario.select::<Parrot>().map(|picked| picked.into_iter().map(|picked| picked.name).collect())
}

#[test]
fn choices_are_checked() {
    assert_eq!(select(r#"{"choices":[{"index":1},{"index":0,"reason":"idle"}]}"#), Ok(vec!["b".into(), "a".into()]));
    let long = format!(r#"{{"choices":[{{"index":0,"reason":"{}"}}]}}"#, "x".repeat(257));
    for (settings, says) in [
        (r#"{"choices":[{"index":2}]}"#, "there is no candidate 2, only 2 of them"),
        (r#"{"choices":[{"index":1},{"index":1}]}"#, "candidate 1 is there twice"),
        (r#"{"choices":[{},{},{}]}"#, "3 choices for a surplus of 2"),
        (r#"{"choices":[{"reason":"two\nlines"}]}"#, "a reason must be one line"),
        (r#"{"choices":[{"index":-1}]}"#, "settings are not usable: choices[0].index: invalid value: integer `-1`"),
        (r#"{"choices":[{"idx":1}]}"#, "settings are not usable: choices[0].idx: unknown field `idx`"),
        (&long, "a reason of 257 bytes, at most 256 are shown"),
    ] {
        let error = select(settings).unwrap_err();
        assert!(error.starts_with(says), "{error}");
    }
    assert_eq!(Scenario::pool("ci").select::<Parrot>(), Err("nobody to choose from".into()));
}

#[test]
fn verdicts_are_checked() {
    let scenario = Scenario::pool("ci").subject("a", "ended", "exit", |_| ());
    let says = |verdict: &str| scenario.clone().settings(&format!(r#"{{"verdicts":[{verdict}]}}"#)).decide::<Parrot>();
    let decided = Decided { name: "a".into(), action: "recreate".into(), after: Some(5), reason: "why".into() };
    assert_eq!(says(r#"{"action":"recreate","after":5,"reason":"why"}"#), Ok(vec![decided]));
    assert_eq!(says(r#"{"action":"restart"}"#), Err("`restart` is no action".into()));
    assert_eq!(says(r#"{"action":"keep","index":1}"#), Err("there is no subject 1, only 1 of them".into()));
    assert_eq!(says(r#"{"action":"keep"},{"action":"keep"}"#), Err("subject 0 is there twice".into()));
}

#[test]
fn recoveries_are_checked() {
    let scenario = Scenario::pool("ci").dead_job(7, "evicted", |job| job.ran = 60);
    let says = |verdict: &str| scenario.clone().settings(&format!(r#"{{"recoveries":[{verdict}]}}"#)).recovered::<Parrot>();
    let recovered = Recovered { id: 7, action: "rerun".into(), after: Some(5), reason: "why".into() };
    assert_eq!(says(r#"{"action":"rerun","after":5,"reason":"why"}"#), Ok(vec![recovered]));
    assert_eq!(says(r#"{"action":"keep"}"#), Err("`keep` is no action".into()));
    assert_eq!(says(r#"{"action":"leave","index":1}"#), Err("there is no job 1, only 1 of them".into()));
    assert_eq!(says(r#"{"action":"leave"},{"action":"rerun"}"#), Err("job 0 is there twice".into()));
    assert_eq!(scenario.recover().jobs[0].attempt, 1);
}

#[test]
fn actions_are_the_contracts() {
    for (action, name, after) in [
        (Action::Keep, "keep", None),
        (Action::LookAgain(5), "look-again", Some(5)),
        (Action::Recreate(0), "recreate", Some(0)),
        (Action::Replace(7), "replace", Some(7)),
        (Action::Quarantine, "quarantine", None),
    ] {
        let verdict = Verdict::new(3, action, "why");
        assert_eq!((verdict.index, verdict.action.as_str(), verdict.after, verdict.reason.as_str()), (3, name, after, "why"));
    }
}

#[test]
fn plans_are_checked() {
    let held = |id: &str, expires| Reservation { id: id.into(), replicas: 1, expires, ..Reservation::default() };
    let says = |reservations: Vec<Reservation>| {
        let settings = serde_json::json!({ "plan": Plan { reservations, ..Plan::default() } }).to_string();
        Scenario::pool("ci").settings(&settings).plan::<Parrot>().map(|plan| plan.reservations.len())
    };
    assert_eq!(says(vec![held("a", 5), held("b", 5)]), Ok(2));
    assert_eq!(says(vec![held("a", 5), held("a", 6)]), Err("reservation `a` is there twice".into()));
    assert_eq!(says(vec![held("a", 0)]), Err("reservation `a` is over before it starts".into()));
}

#[test]
fn scenarios_count_what_they_place() {
    let request = Scenario::pool("ci")
        .with_pool(|pool| pool.desired = 3)
        .now(1_767_225_600.0)
        .candidate_on("n1", "a", |candidate| candidate.idle = 60)
        .busy_on("n2", 2)
        .candidate_on("n2", "b", |_| ())
        .scale_down();
    let nodes: Vec<_> = request.nodes.iter().map(|node| (node.name.as_str(), node.runners, node.busy)).collect();
    assert_eq!(nodes, [("n1", 1, 0), ("n2", 3, 2)]);
    assert_eq!(request.candidates.iter().map(|c| c.node).collect::<Vec<_>>(), [Some(0), Some(1)]);
    assert_eq!((request.pool.counts.idle, request.pool.counts.busy, request.surplus), (2, 2, 1));
}

#[test]
fn the_description_is_the_packages() {
    let description = pacer_policy_sdk::description!(Parrot);
    let expected = lifecycle::Description {
        name: "sdk".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        summary: env!("CARGO_PKG_DESCRIPTION").into(),
        settings_schema: None,
        attributes: vec![],
    };
    assert_eq!(description, expected);
}

#[test]
fn the_description_lists_what_the_policy_reads() {
    struct Curious;
    impl Policy for Curious {
        type Settings = ();

        fn reads() -> &'static [&'static str] {
            &["node-labels", "last-job"]
        }
    }
    let declared = pacer_policy_sdk::description!(Curious).attributes;
    assert_eq!(declared, [("reads".to_owned(), "node-labels last-job".to_owned())]);
}
