//! The worked example of docs/replicas.md: what it says is computed here by the shipped policy and the operator's rules, step by step.
//!
//! `UPDATE_GOLDEN=1 cargo test --workspace --test replicas` writes it anew.

#![expect(clippy::unwrap_used, reason = "an example that cannot be computed has failed")]

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pacer_core::autoscale::{self, Bounds, Decision, Demand, Raises, Ramp};
use pacer_core::ledger::{About, Job, State};
use pacer_core::policy::{CapacityPlan, CapacityRequest, Pool};
use pacer_core::reads::Reads;
use pacer_core::reservation::{self, Held, InForce};
use pacer_core::scale_down::unix;
use pacer_policy::record::{Change, Pool as Owner, VERSION};
use pacer_policy::{Answer, Counters, PolicyHost, Record};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/replicas.md");
const BEGIN: &str = "<!-- computed: UPDATE_GOLDEN=1 cargo test --workspace --test replicas -->\n";
const END: &str = "<!-- end -->\n";

/// The autoscaler of the example, as its manifest on the page has it.
const BOUNDS: Bounds = Bounds { min: 1, max: 6 };
const DELAY: Duration = Duration::from_secs(300);
const PER_MINUTE: u32 = 3;

/// What is there at one moment of the example.
#[derive(Default)]
struct Scene {
    /// Time of the day.
    at: &'static str,
    /// What is known, in words.
    what: &'static str,
    /// Jobs that wait, and those that run.
    queued: u32,
    running: u32,
    /// Runners that exist and have not ended.
    live: u32,
    /// Minimum of a scheduled override that is in force.
    scheduled: Option<u32>,
    /// Runners of `spec.capacityReservations`.
    reserved: u32,
    /// Ceiling that another capacity policy adds to the plan.
    ceiling: Option<u32>,
}

fn day() -> Vec<Scene> {
    let scene = Scene::default;
    vec![
        Scene { at: "08:00:00", what: "nothing", live: 0, ..scene() },
        Scene { at: "08:01:00", what: "2 jobs are queued", queued: 2, live: 1, ..scene() },
        Scene { at: "08:01:30", what: "5 more jobs are queued; 2 run", queued: 5, running: 2, live: 3, ..scene() },
        Scene { at: "08:02:30", what: "a minute later", queued: 4, running: 3, live: 4, ..scene() },
        Scene { at: "08:04:00", what: "6 jobs are over, 1 runs; 3 runners exist", running: 1, live: 3, ..scene() },
        Scene { at: "08:08:00", what: "the same, when the delay is over", running: 1, live: 3, ..scene() },
        Scene { at: "08:10:00", what: "no job; somebody reserves 2 in the spec", live: 2, reserved: 2, ..scene() },
        Scene {
            at: "09:00:00",
            what: "no job; an override with `minReplicas: 3` begins",
            live: 1,
            scheduled: Some(3),
            ..scene()
        },
        Scene {
            at: "10:00:00",
            what: "4 jobs; a policy answers with `ceiling: 2`",
            queued: 4,
            live: 1,
            ceiling: Some(2),
            ..scene()
        },
    ]
}

/// A step of the example: what was planned and decided, and what the receipt of it says.
struct Step {
    scene: Scene,
    in_force: InForce,
    from: u32,
    decision: Decision,
    receipt: String,
}

fn time(at: &str) -> Timestamp {
    format!("2026-03-02T{at}Z").parse().unwrap()
}

fn job(state: State, now: Timestamp) -> Job {
    let about = About { repository: "acme/app".into(), workflow: "build".into(), labels: [Arc::from("web")].into(), attempt: 1 };
    let runner = (state == State::InProgress).then(|| Arc::from("web-x"));
    Job { state, since: now, queued: now, expires: now, about: Arc::new(about), runner, origin: Arc::default() }
}

fn steps() -> Vec<Step> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let host = PolicyHost::new(Arc::new(Counters::default()));
    let (mut held, mut raises, mut last_scale_out): (Vec<Held>, Raises, Option<Timestamp>) = Default::default();
    let (mut previous, mut steps) = (None, Vec::new());
    for scene in day() {
        let now = time(scene.at);
        let states = (0..scene.running).map(|_| State::InProgress).chain((0..scene.queued).map(|_| State::Queued));
        let jobs = (1..).zip(states).map(|(id, state)| (id, Arc::new(job(state, now)))).collect();
        let pool = Pool {
            namespace: "ci".to_owned(),
            name: "web".to_owned(),
            kind: "RunnerDeployment".to_owned(),
            min_replicas: Some(BOUNDS.min),
            max_replicas: Some(BOUNDS.max),
            desired: previous.unwrap_or(0),
            ..Pool::default()
        };
        let request = CapacityRequest {
            now: unix(now),
            pool,
            jobs: reservation::told(&jobs, BOUNDS.max, &Reads::default(), now).jobs,
            reservations: held.iter().filter_map(|held| held.at(now)).collect(),
            attributes: vec![("reservation-seconds".to_owned(), "600".to_owned())],
            ..CapacityRequest::default()
        };
        let evaluation = runtime.block_on(host.generation().capacity(request));
        assert!(evaluation.fault.is_none(), "{:?}", evaluation.fault);
        let plan = CapacityPlan { ceiling: scene.ceiling, ..evaluation.answer };
        held = Held::all(&plan, now);
        let in_force = InForce::of(&plan, now);
        let recent = raises.recent(now);
        let from: u32 = previous.unwrap_or(0);
        let decision = autoscale::decide(&Demand {
            bounds: BOUNDS,
            override_min: scene.scheduled,
            metric: None,
            jobs_added_to_min: true,
            planned: in_force.replicas,
            jobs: in_force.jobs,
            spec_reserved: scene.reserved,
            ceiling: plan.ceiling,
            previous,
            live: scene.live,
            last_scale_out,
            delay: DELAY,
            ramp: Ramp { per_minute: NonZeroU32::new(PER_MINUTE), recent: &recent },
            now,
        });
        raises.add(decision.raised, now);
        if decision.desired > from {
            last_scale_out = Some(now);
        }
        previous = Some(decision.desired);
        let change = Change { from, to: decision.desired, reason: decision.reason.to_string() };
        let record = Record {
            version: VERSION,
            id: pacer_policy::record::id(now, 0),
            at: now,
            pool: Owner { kind: "RunnerDeployment".to_owned(), namespace: "ci".to_owned(), name: "web".to_owned() },
            receipt: evaluation.receipt,
            input: None,
            answer: Answer::Capacity(plan),
            items: Vec::new(),
            change: Some(change),
            superseded: 0,
        };
        steps.push(Step { scene, in_force, from, decision, receipt: record.outcome() });
    }
    steps
}

fn table(steps: &[Step]) -> String {
    let mut text = String::from(
        "| at | what is new | planned | within bounds and ceiling | number | why | the receipt |\n\
         | --- | --- | --: | --: | --: | --- | --- |\n",
    );
    for Step { scene, in_force, from, decision, receipt } in steps {
        let arrow =
            if *from == decision.desired { decision.desired.to_string() } else { format!("{from} → {}", decision.desired) };
        writeln!(
            text,
            "| {} | {} | {} | {} | {arrow} | {} | {receipt} |",
            scene.at, scene.what, in_force.replicas, decision.computed, decision.reason,
        )
        .unwrap();
    }
    text
}

#[test]
fn the_worked_example_is_what_the_rules_compute() {
    let computed = table(&steps());
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (written, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(PAGE, format!("{before}{BEGIN}{computed}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(written, computed, "write it anew as the page says");
}

#[test]
fn every_rule_that_the_page_names_binds_somewhere_in_its_example() {
    let steps = steps();
    let reasons: Vec<String> = steps.iter().map(|step| step.decision.reason.to_string()).collect();
    for words in [
        "minReplicas",
        "of a scheduled override",
        "reserved 2 for 2 jobs",
        "by spec.capacityReservations",
        "clamped by maxReplicas",
        "clamped by the capacity policy's ceiling",
        "held at",
        "limited to 3 new runners per minute",
    ] {
        assert!(reasons.iter().any(|reason| reason.contains(words)), "no {words:?} in {reasons:#?}");
    }
    // Each step begins where the one before it ended, and the receipt has the same numbers.
    for pair in steps.windows(2) {
        let [before, after] = pair else { continue };
        assert_eq!(before.decision.desired, after.from);
    }
    for step in &steps {
        let runners =
            if step.decision.desired == 1 { "1 runner".to_owned() } else { format!("{} runners", step.decision.desired) };
        let same = step.from == step.decision.desired;
        let numbers = if same { format!("{runners}, as before; ") } else { format!("{} -> {runners}; ", step.from) };
        assert!(step.receipt.starts_with(&numbers), "{} of {}", step.receipt, step.scene.at);
    }
}
