use proptest::prelude::*;

use super::*;
use crate::facts::{Container, FLAG_PATIENCE, Flag, PodFacts, PodPhase, Remote, Worker};
use crate::phase::assess;

const NOW: i64 = 1_000_000;
const CONFIRMATION: Duration = Duration::from_secs(10);

fn ago(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW - seconds).unwrap()
}

fn online(busy: bool, idle: u64) -> Remote {
    Remote::Online { id: 7, flag: Flag::of(busy, Duration::from_secs(idle)) }
}

fn runner(name: &str, node: &str, remote: Remote) -> RunnerFacts {
    let pod = PodFacts {
        created: ago(300),
        phase: PodPhase::Running,
        node: Some(node.into()),
        ready_since: Some(ago(290)),
        container: Container::Running { since: Some(ago(295)) },
        worker: Worker::Absent { since: None },
        ..PodFacts::default()
    };
    RunnerFacts {
        name: name.into(),
        created: ago(310),
        current: true,
        ephemeral: true,
        known_id: Some(7),
        had_pod: true,
        pod: Some(pod),
        remote,
        ..RunnerFacts::default()
    }
}

fn idle(name: &str) -> RunnerFacts {
    runner(name, "node-a", online(false, 60))
}

fn unwatched(facts: &mut RunnerFacts) {
    facts.pod.as_mut().unwrap().worker = Worker::Unknown;
    facts.remote = online(false, FLAG_PATIENCE.as_secs());
}

fn assessed(facts: impl IntoIterator<Item = RunnerFacts>) -> Vec<(RunnerFacts, Assessment)> {
    facts.into_iter().map(|facts| (assess(&facts, ago(0)), facts)).map(|(assessment, facts)| (facts, assessment)).collect()
}

#[test]
fn who_is_offered() {
    let with = |change: fn(&mut RunnerFacts)| {
        let mut facts = idle("r");
        change(&mut facts);
        facts
    };
    let pod = |change: fn(&mut PodFacts)| {
        let mut facts = idle("r");
        change(facts.pod.as_mut().unwrap());
        facts
    };
    let ok = |seconds| Ok(Duration::from_secs(seconds));
    // Name, facts, whether only outdated ones are wanted.
    let cases = [
        ("idle", idle("r"), false, ok(60)),
        ("idle just long enough", with(|r| r.remote = online(false, 10)), false, ok(10)),
        ("idle for too short a time", with(|r| r.remote = online(false, 9)), false, Err(Withheld::Unconfirmed)),
        ("GitHub's late flag is all there is", pod(|pod| pod.worker = Worker::Unknown), false, Err(Withheld::Unconfirmed)),
        ("that flag, for long enough", with(unwatched), false, ok(FLAG_PATIENCE.as_secs())),
        ("outdated", with(|r| r.current = false), false, ok(60)),
        ("outdated, outdated wanted", with(|r| r.current = false), true, ok(60)),
        ("current, outdated wanted", idle("r"), true, Err(Withheld::Current)),
        ("protected", with(|r| r.protected = true), false, Err(Withheld::Protected)),
        ("protected and outdated", with(|r| (r.protected, r.current) = (true, false)), true, Err(Withheld::Protected)),
        ("busy", with(|r| r.remote = online(true, 0)), false, Err(Withheld::NotIdle)),
        ("an event tells of its job", with(|r| r.reports_job = Some(Timestamp::UNIX_EPOCH)), false, Err(Withheld::NotIdle)),
        ("its hook reports a job", with(|r| r.hook_reports_job = true), false, Err(Withheld::NotIdle)),
        ("no listing that proves anything", with(|r| r.remote = Remote::Unknown), false, Err(Withheld::NotIdle)),
        (
            "offline",
            with(|r| r.remote = Remote::Offline { id: 7, busy: false, since: CONFIRMATION }),
            false,
            Err(Withheld::NotIdle),
        ),
        ("not listed", with(|r| r.remote = Remote::Absent { since: CONFIRMATION }), false, Err(Withheld::NotIdle)),
        ("leaving", with(|r| r.deleting = Some(ago(1))), false, Err(Withheld::NotIdle)),
        ("no pod", with(|r| r.pod = None), false, Err(Withheld::NotIdle)),
        ("pod being deleted", pod(|pod| pod.deleting = Some(ago(1))), false, Err(Withheld::NotIdle)),
        ("pod ended", pod(|pod| pod.phase = PodPhase::Succeeded), false, Err(Withheld::NotIdle)),
        ("node gone", pod(|pod| pod.node_gone = true), false, Err(Withheld::NotIdle)),
    ];
    for (name, facts, outdated_only, expected) in cases {
        let assessment = assess(&facts, ago(0));
        assert_eq!(eligible(&facts, &assessment, CONFIRMATION, outdated_only), expected, "{name}");
        let offer = offer(&[(facts, assessment)], &BTreeMap::new(), Pool::default(), 1, CONFIRMATION, outdated_only, ago(0));
        assert_eq!(offer.is_some(), expected.is_ok(), "{name}");
    }
}

#[test]
fn an_offer_leads_back_to_its_runners() {
    let runners = assessed([
        runner("busy-on-b", "node-b", online(true, 0)),
        runner("idle-on-b", "node-b", online(false, 30)),
        RunnerFacts { deleting: Some(ago(5)), ..runner("leaving-on-c", "node-c", online(false, 30)) },
        RunnerFacts { current: false, last_job_end: Some(ago(95)), ..runner("idle-on-a", "node-a", online(false, 90)) },
        RunnerFacts { protected: true, ..runner("protected-on-a", "node-a", online(false, 90)) },
    ]);
    let pool = Pool { name: "web".into(), desired: 1, ..Pool::default() };
    let cordoned = NodeFacts { created: Some(ago(7_200)), cordoned: true, ..NodeFacts::default() };
    let known = BTreeMap::from([("node-a".to_owned(), cordoned)]);
    let offer = offer(&runners, &known, pool.clone(), 9, CONFIRMATION, false, ago(0)).unwrap();
    assert_eq!(offer.runners, [1, 3]);
    let request = offer.request;
    assert_eq!((request.now, request.surplus, request.pool), (1_000_000.0, 2, pool), "no more are asked for than are offered");
    let candidate = |name: &str, idle, node, current| Candidate {
        name: name.into(),
        idle,
        age: 300,
        node: Some(node),
        current,
        ..Candidate::default()
    };
    let worked = Candidate { last_job_end: Some(95), ..candidate("idle-on-a", 90, 0, false) };
    assert_eq!(request.candidates, [candidate("idle-on-b", 30, 1, true), worked]);
    let node = |name: &str, runners, busy| Node { name: name.into(), runners, busy, ..Node::default() };
    let draining = Node { draining: true, age: Some(7_200), ..node("node-a", 2, 0) };
    assert_eq!(request.nodes, [draining, node("node-b", 2, 1)], "a protected one counts, a leaving one does not");
}

#[test]
fn where_a_runner_ended_is_told_and_takes_no_place_there() {
    let ended = |mut facts: RunnerFacts| {
        facts.pod.as_mut().unwrap().phase = PodPhase::Failed;
        facts
    };
    let runners = assessed([ended(runner("ended", "node-b", Remote::Unknown)), runner("idle", "node-a", online(false, 30))]);
    assert_eq!(node_names(&runners), ["node-a", "node-b"].into());
    let (nodes, index) = nodes(&runners, &BTreeMap::new(), ago(0));
    assert_eq!(
        nodes.iter().map(|node| (node.name.as_str(), node.runners, node.busy)).collect::<Vec<_>>(),
        [("node-a", 1, 0), ("node-b", 0, 0)]
    );
    assert_eq!(index["node-b"], 1);
}

#[test]
fn nothing_is_asked_without_surplus_or_candidates() {
    assert!(offer(&assessed([idle("r")]), &BTreeMap::new(), Pool::default(), 0, CONFIRMATION, false, ago(0)).is_none());
    assert!(offer(&[], &BTreeMap::new(), Pool::default(), 3, CONFIRMATION, false, ago(0)).is_none());
}

#[test]
fn times_are_whole_seconds_and_never_negative() {
    assert_eq!([since(ago(7), ago(0)), since(ago(-7), ago(0)), since(ago(0), ago(0))], [7, 0, 0]);
    assert_eq!(seconds(Duration::from_millis(1999)), 1);
    assert_eq!(seconds(Duration::from_secs(u64::MAX)), u32::MAX);
    assert!((unix(Timestamp::from_millisecond(1_500).unwrap()) - 1.5).abs() < f64::EPSILON);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn offers_are_sound(
        kinds in proptest::collection::vec((0..6_u8, 0..30_u64, 0..3_u8, any::<(bool, bool)>()), 0..20),
        surplus in 0..25_u32,
        outdated_only: bool,
    ) {
        let runners = assessed(kinds.into_iter().enumerate().map(|(index, (kind, idle, node, (current, protected)))| {
            let remote = match kind {
                0 => Remote::Unknown,
                1 => Remote::Absent { since: Duration::from_secs(idle) },
                2 => Remote::Offline { id: 7, busy: false, since: Duration::from_secs(idle) },
                3 => online(true, 0),
                _ => online(false, idle),
            };
            RunnerFacts { current, protected, ..runner(&index.to_string(), &format!("node-{node}"), remote) }
        }));
        if let Some(offer) = offer(&runners, &BTreeMap::new(), Pool::default(), surplus, CONFIRMATION, outdated_only, ago(0)) {
            let request = &offer.request;
            prop_assert_eq!(request.candidates.len(), offer.runners.len());
            prop_assert!(request.surplus >= 1 && request.surplus <= surplus && request.surplus as usize <= request.candidates.len());
            prop_assert_eq!(request.nodes.iter().map(|node| node.runners).sum::<u32>() as usize,
                runners.iter().filter(|(_, assessment)| assessment.phase.is_alive()).count());
            for (candidate, index) in request.candidates.iter().zip(&offer.runners) {
                let (facts, assessment) = &runners[*index];
                prop_assert_eq!(&candidate.name, &facts.name);
                prop_assert_eq!(assessment.phase, Phase::Idle(Duration::from_secs(u64::from(candidate.idle))));
                prop_assert!(candidate.idle >= 10 && !facts.protected && !(outdated_only && facts.current));
                let node = &request.nodes[candidate.node.unwrap() as usize];
                prop_assert_eq!(Some(&node.name), facts.pod.as_ref().unwrap().node.as_ref());
                prop_assert!(node.busy < node.runners);
            }
        }
    }
}
