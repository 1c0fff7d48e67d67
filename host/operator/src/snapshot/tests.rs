//! Differences between snapshots, and the form that the page reads.

use std::time::Instant;

use pacer_core::estimate::Estimate;
use proptest::prelude::*;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_795_000_000 + second).unwrap()
}

fn runner(name: &str, state: State, since: i64) -> Runner {
    Runner {
        namespace: "ci".into(),
        name: name.into(),
        pool: Some("RunnerDeployment/ci/web".into()),
        node: Some("node-1".into()),
        state,
        since: at(since),
        created: at(0),
        ephemeral: true,
        protected: false,
        job: None,
        trouble: None,
    }
}

fn section<T>(entries: impl IntoIterator<Item = (String, T)>) -> Section<T> {
    entries.into_iter().map(|(key, value)| (key, Arc::new(value))).collect()
}

/// A snapshot with something of everything, as the tests of the page use it.
fn sample() -> Snapshot {
    let busy = Runner {
        job: Some(RunningJob { id: 38_000_000_001, repository: "acme/app".into(), workflow: "build".into(), since: at(100) }),
        ..runner("web-1-a", State::Busy, 100)
    };
    let message = "0/3 nodes are available: 3 Insufficient cpu.";
    let stuck =
        Trouble { situation: "not-starting".into(), cause: "unschedulable".into(), message: message.into(), since: at(40) };
    let pending = Runner { node: None, trouble: Some(stuck), ..runner("web-1-c", State::Pending, 30) };
    let runners = [busy, runner("web-1-b", State::Idle, 90), pending];
    let reason = |word: &str, text: &str| Some(Reason { word: word.into(), text: text.into() });
    let job = |id, state| Job {
        id,
        autoscaler: "web-scaler".into(),
        pool: Some("RunnerDeployment/ci/web".into()),
        repository: "acme/app".into(),
        workflow: "build".into(),
        labels: vec!["self-hosted".into(), "linux".into()],
        attempt: 1,
        state,
        queued: at(95),
        since: at(100),
        runner: None,
        place: None,
        waiting: None,
        reason: None,
        reason_since: None,
        estimate: None,
    };
    let running = Job { runner: Some("web-1-a".into()), ..job(38_000_000_001, JobState::Running) };
    let waiting = Job {
        since: at(95),
        reason: reason("PodPending", &format!("no node takes the pod of runner web-1-c: {message}")),
        place: Some(1),
        waiting: Some(1),
        reason_since: Some(at(97)),
        estimate: Some(Estimate { likely: at(160), latest: at(400) }),
        ..job(38_000_000_002, JobState::Queued)
    };
    let pool = Pool {
        kind: "RunnerDeployment".into(),
        namespace: "ci".into(),
        name: "web".into(),
        labels: vec!["linux".into()],
        min: Some(1),
        max: Some(3),
        desired: 3,
        actual: 3,
        counts: Counts { busy: 1, idle: 1, pending: 1, ..Counts::default() },
        autoscaler: Some("web-scaler".into()),
        policies: None,
        limit: reason("MaxReplicas", "5 are wanted, the maximum is 3"),
        online_after: Some(Quantiles { samples: 20, p50: 12, p90: 40, p99: 90 }),
    };
    let decision = Decision {
        at: at(110),
        pool: "RunnerDeployment/ci/web".into(),
        decision: "scale-down".into(),
        policy: "default@sha256:0123456789ab".into(),
        summary: "removed web-1-z".into(),
        items: vec![Item { runner: "web-1-z".into(), text: "was removed because fewer runners were wanted".into() }],
        more: 0,
    };
    let budget =
        Budget { resource: "core".into(), owner: Some("acme".into()), limit: 5_000, remaining: 4_321, resets_at: at(3_000) };
    let credentials = Credentials {
        name: "default".into(),
        kind: "token".into(),
        budgets: vec![budget],
        secondary_until: None,
        held_back: 0,
        calls: [
            ("success", 12),
            ("not_modified", 40),
            ("rate_limited", 0),
            ("refused", 0),
            ("server_error", 0),
            ("no_answer", 0),
        ]
        .map(|(outcome, calls)| (outcome.to_owned(), calls))
        .into(),
    };
    let listing =
        Listing { credentials: "default".into(), scope: "acme".into(), at: Some(at(118)), runners: 3, failures: 0, error: None };
    let failure = Failure {
        at: at(40),
        namespace: "ci".into(),
        runner: "web-1-c".into(),
        pool: "RunnerDeployment/ci/web".into(),
        situation: "not-starting".into(),
        cause: "unschedulable".into(),
        message: message.into(),
    };
    let cause = Cause { cause: "unschedulable".into(), now: 1, total: 4, last: Some(at(40)) };
    let comparison = Comparison {
        at: at(110),
        pool: "RunnerDeployment/ci/web".into(),
        decision: "scale-down".into(),
        in_force: "default@sha256:0123456789ab".into(),
        shadow: "fullest-node-last@sha256:abcdef012345".into(),
        answered: "remove web-1-z (1 runner)".into(),
        would: "remove web-1-b (1 runner)".into(),
        agreement: Agreement::Differs,
    };
    let expense =
        |payer, jobs| Expense { payer, jobs, busy_minutes: 31.5, idle_minutes: 12.0, cost: Some(0.4213), unpriced_minutes: 0.0 };
    let figure = |metric: &str, unit: &str, recorded, in_force, shadow| Figure {
        metric: metric.into(),
        unit: unit.into(),
        recorded,
        in_force,
        shadow,
    };
    let figures = vec![figure("runners", "", 3.0, 3.0, 2.0), figure("wait.p95", "s", 40.0, 39.5, 61.25)];
    let simulation =
        Simulation { since: at(-3_600), jobs: 40, figures, wait_error: 0.5, runner_minutes_error: 0.01, refused: None };
    let refused = Simulation { since: at(0), refused: reason("NoJob", "no job has come in that time"), ..Simulation::default() };
    let bin = |from, jobs, p50, p95, max| WaitBin { from: at(from), jobs, p50, p95, max };
    let waits = |labels: &[&str], bins: Vec<WaitBin>| Waits {
        pool: "RunnerDeployment/ci/web".into(),
        labels: labels.iter().map(ToString::to_string).collect(),
        others: labels.is_empty(),
        jobs: 9,
        p50: 12,
        p95: 40,
        max: 95,
        bins,
    };
    // 1,795,000,000 is 100 s after the beginning of a span.
    let linux =
        waits(&["linux", "self-hosted"], vec![bin(-3_700, 4, 10, 31, 40), bin(-400, 3, 12, 40, 95), bin(-100, 2, 5, 9, 9)]);
    Snapshot {
        version: VERSION,
        number: 1,
        at: at(120),
        operator: Operator {
            role: Role::Acting,
            version: "0.1.0".into(),
            redeliveries: Redeliveries { asked: 5, delivered: 3, refused: 1, given_up: 0 },
            ..Operator::default()
        },
        pools: section([("RunnerDeployment/ci/web".into(), pool)]),
        runners: section(runners.map(|runner| (format!("ci/{}", runner.name), runner))),
        jobs: section([running, waiting].map(|job| (format!("ci/web-scaler/{}", job.id), job))),
        decisions: section([(grown(1), decision)]),
        credentials: section([("default".into(), credentials)]),
        listings: section([("default/acme".into(), listing)]),
        failures: section([(grown(1), failure)]),
        causes: section([("unschedulable".into(), cause)]),
        comparisons: section([(grown(1), comparison)]),
        expenses: section([("acme/app".into(), expense(Payer::Repository, 9)), ("nobody".into(), expense(Payer::Nobody, 0))]),
        waits: section([
            ("RunnerDeployment/ci/web".into(), waits(&[], vec![bin(-100, 9, 12, 40, 95)])),
            ("RunnerDeployment/ci/web linux,self-hosted".into(), linux),
        ]),
        simulations: section([("ci/api".into(), refused), ("ci/web".into(), simulation)]),
    }
}

/// Set `UPDATE_GOLDEN=1` to write it anew.
#[test]
fn page_reads_the_form_that_the_operator_writes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/page/three.json");
    let text = format!("{}\n", serde_json::to_string_pretty(&sample()).unwrap());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text, "tests/page/three.json is not what is written; see `make golden`");
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), sample());
}

#[test]
fn equal_snapshots_have_no_difference_and_a_gap_is_noticed() {
    let before = sample();
    let later = Snapshot { number: 2, at: at(121), ..before.clone() };
    assert_eq!(Delta::between(&before, &later), None);
    let after = Snapshot { operator: Operator { missing_webhooks: 1, ..before.operator.clone() }, ..later };
    let delta = Delta::between(&before, &after).unwrap();
    let mut behind = Snapshot { number: 0, ..before.clone() };
    assert!(!delta.clone().apply(&mut behind));
    assert_eq!(behind, Snapshot { number: 0, ..before });
    let text = serde_json::to_value(&delta).unwrap();
    assert_eq!((&text["changed"], &text["removed"]), (&serde_json::json!({}), &serde_json::json!({})));
}

fn fleet() -> impl Strategy<Value = Section<Runner>> {
    let state = prop_oneof![Just(State::Idle), Just(State::Busy), Just(State::Stopping)];
    proptest::collection::btree_map("[a-f]", (state, 0_i64..3), 0..6)
        .prop_map(|found| section(found.into_iter().map(|(name, (state, since))| (name.clone(), runner(&name, state, since)))))
}

proptest! {
    #[test]
    fn a_difference_leads_from_one_snapshot_to_the_other(before in fleet(), after in fleet(), same: bool) {
        let before = Snapshot { runners: before, ..sample() };
        let kept = if same { before.jobs.clone() } else { Section::new() };
        let after = Snapshot { number: 2, at: at(130), runners: after, jobs: kept, ..sample() };
        let Some(delta) = Delta::between(&before, &after) else {
            prop_assert_eq!(&before.runners, &after.runners);
            return Ok(());
        };
        // As the page gets it.
        let sent: Delta = serde_json::from_str(&serde_json::to_string(&delta).unwrap()).unwrap();
        let unchanged = before.runners.iter().filter(|(key, value)| after.runners.get(*key) == Some(*value)).count();
        prop_assert_eq!(sent.changed.runners.len(), after.runners.len() - unchanged);
        let mut followed = before;
        prop_assert!(sent.apply(&mut followed));
        prop_assert_eq!(followed, after);
    }
}

#[test]
fn fifty_changes_of_a_thousand_runners_are_few_bytes() {
    let all = |busy: usize| {
        let one =
            |n: usize| (format!("ci/web-{n}"), runner(&format!("web-{n}"), if n < busy { State::Busy } else { State::Idle }, 1));
        Snapshot { number: busy as u64, runners: section((0..1_000).map(one)), ..sample() }
    };
    let (before, after) = (all(0), all(50));
    let start = Instant::now();
    let delta = serde_json::to_string(&Delta::between(&before, &after).unwrap()).unwrap();
    println!("difference of 1,000 runners: {:?}, {} bytes", start.elapsed(), delta.len());
    assert!(delta.len() < 50 * 320, "{} bytes", delta.len());
}

#[test]
fn runners_beyond_the_room_are_left_out_by_name_and_counted() {
    let all = |count: usize| section((0..count).map(|number| (format!("ci/web-{number:06}"), runner("web", State::Idle, 0))));
    for (count, left_out) in [(0, 0), (RUNNERS, 0), (RUNNERS + 1, 1), (RUNNERS + 4_000, 4_000)] {
        let (shown, more) = shown(all(count));
        assert_eq!((shown.len(), more), (count - left_out, left_out));
        assert!(shown.keys().eq(all(count).keys().take(RUNNERS)));
    }
}
