//! A scenario tells an author which rule of the contract the answer breaks.

use pacer_policy_sdk::capacity::{Plan, Reservation};
use pacer_policy_sdk::restart::{Action, Verdict};
use pacer_policy_sdk::scale_down::Choice;
use pacer_policy_sdk::scenario::{Decided, Recovered, Scenario};
use pacer_policy_sdk::{
    Capacity, Policy, Recover, Restart, ScaleDown, capacity, contract, lifecycle, log, recover, restart, scale_down,
};

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
        (r#"{"choices":[{"index":1},{"index":1}]}"#, "candidate 1 appears twice"),
        (r#"{"choices":[{},{},{}]}"#, "3 choices for a surplus of 2"),
        (r#"{"choices":[{"reason":"two\nlines"}]}"#, "a reason must be one line"),
        (
            r#"{"choices":[{"index":-1}]}"#,
            "settings are not usable: choices[0].index: a whole number from 0 to 4294967295 is expected, found -1",
        ),
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
    assert_eq!(says(r#"{"action":"restart"}"#), Err("`restart` is not an action".into()));
    assert_eq!(says(r#"{"action":"keep","index":1}"#), Err("there is no subject 1, only 1 of them".into()));
    assert_eq!(says(r#"{"action":"keep"},{"action":"keep"}"#), Err("subject 0 appears twice".into()));
}

#[test]
fn recoveries_are_checked() {
    let scenario = Scenario::pool("ci").dead_job(7, "evicted", |job| job.ran = 60);
    let says = |verdict: &str| scenario.clone().settings(&format!(r#"{{"recoveries":[{verdict}]}}"#)).recovered::<Parrot>();
    let recovered = Recovered { id: 7, action: "rerun".into(), after: Some(5), reason: "why".into() };
    assert_eq!(says(r#"{"action":"rerun","after":5,"reason":"why"}"#), Ok(vec![recovered]));
    assert_eq!(says(r#"{"action":"keep"}"#), Err("`keep` is not an action".into()));
    assert_eq!(says(r#"{"action":"leave","index":1}"#), Err("there is no job 1, only 1 of them".into()));
    assert_eq!(says(r#"{"action":"leave"},{"action":"rerun"}"#), Err("job 0 appears twice".into()));
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
    assert_eq!(says(vec![held("a", 5), held("a", 6)]), Err("reservation `a` appears twice".into()));
    assert_eq!(says(vec![held("a", 0)]), Err("reservation `a` is over before it starts".into()));
}

/// An answer, and what becomes of it: refused, taken as it is, or taken with its numbers cut.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    about: String,
    decision: String,
    request: serde_json::Value,
    answer: serde_json::Value,
    #[serde(default)]
    refused: bool,
    taken: Option<serde_json::Value>,
}

/// The operator's gate is tested with the same cases in `host/policy/tests/contract.rs`.
#[test]
fn answers_are_taken_cut_or_refused_as_by_the_operator() {
    fn judged<Q, A>(case: &Case, check: impl Fn(&Q, A) -> Result<A, String>)
    where
        Q: serde::de::DeserializeOwned,
        A: serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
    {
        let request: Q = serde_json::from_value(case.request.clone()).unwrap();
        let of = |answer: &serde_json::Value| serde_json::from_value::<A>(answer.clone()).unwrap();
        let expected = (!case.refused).then(|| of(case.taken.as_ref().unwrap_or(&case.answer)));
        let taken = check(&request, of(&case.answer));
        assert_eq!(taken.as_ref().ok(), expected.as_ref(), "{}, {}: {taken:?}", case.decision, case.about);
    }
    let cases: Vec<Case> = serde_json::from_str(include_str!("answers.json")).unwrap();
    assert!(cases.len() > 40);
    for case in &cases {
        match case.decision.as_str() {
            "capacity" => judged(case, contract::plan),
            "restart" => judged(case, contract::verdicts),
            "recover" => judged(case, contract::recoveries),
            "scale-down" => judged(case, contract::choices),
            other => panic!("{other} is no decision"),
        }
    }
}

#[test]
fn helpers_keep_within_the_operators_bounds() {
    for (action, after) in [
        (Action::LookAgain(0), 5),
        (Action::LookAgain(3_600), 600),
        (Action::Recreate(3_600), 600),
        (Action::Replace(u32::MAX), 600),
        (Action::Replace(600), 600),
    ] {
        assert_eq!(Verdict::new(0, action, "why").after, Some(after), "{action:?}");
    }
    assert_eq!(recover::Verdict::rerun(0, Some(7_200), "why").after, Some(3_600));
    assert_eq!(recover::Verdict::rerun(0, None, "why").after, None);
}

#[test]
fn texts_that_the_operator_would_change_are_mistakes() {
    let plan = |reason: &str, attributes: Vec<(String, String)>| {
        let held = Reservation { id: "a".into(), expires: 5, reason: reason.into(), attributes, ..Reservation::default() };
        let plan = Plan { reservations: vec![held], ..Plan::default() };
        contract::plan(&capacity::Request::default(), plan).map(drop)
    };
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(plan("why", vec![pair("team", "a")]), Ok(()));
    for (reason, attributes, says) in [
        ("a\u{202e}b", vec![], "a reason must be one line"),
        (&*"x".repeat(257), vec![], "a reason of 257 bytes, at most 256 are shown"),
        ("why", vec![pair("", "a")], "an attribute without a key"),
        ("why", vec![pair(&"k".repeat(64), "a")], "the key of an attribute of 64 bytes, at most 63 are shown"),
        ("why", vec![pair("team", "a\nb")], "the value of an attribute must be one line"),
        ("why", vec![pair("team", "a"); 17], "17 attributes, at most 16 are kept"),
    ] {
        let error = plan(reason, attributes).unwrap_err();
        assert!(error.starts_with(says), "{error}");
    }
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
