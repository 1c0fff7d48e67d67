//! A recorded day, and every sentence that `pacer explain` says in it of jobs, of the pool and of its runners. They are made by the functions that
//! print them, from objects as the operator leaves them, and compared with what happens in the simulation by rules of this test's own.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use pacer_api::job_ledger::Additions;
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, Runner, RunnerReplicaSet};
use pacer_core::at_work::Work;
use pacer_core::facts::{Container, PodPhase, Remote, RunnerFacts};
use pacer_core::phase::{self, Phase};
use pacer_core::policy::CapacityRequest;
use pacer_operator::target::Target;
use pacer_policy::record::{Change, Done, Item, Pool, VERSION, id};
use pacer_policy::{Answer, Decision, Inquiry, Receipt, Record};
use pacer_simulate::{JobSeen, Policies, RunnerSeen, Scenario, Sight, Story, watch};
use pacer_trace::{About, End, Header, History, PoolSettings, Trace, What};
use serde_json::json;

use super::place::Place;
use super::{job, pool, runner};
use crate::archive::{Archive, Shelf, ago};
use crate::overview;

const MIN: u32 = 1;
const MAX: u32 = 6;

/// Runners that have been gone for longer are asked about no more.
const GONE: SignedDuration = SignedDuration::from_mins(3);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000_000 + seconds).unwrap()
}

fn moment(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap()
}

/// When jobs come and how long they run, in seconds: bursts in the morning, single jobs all day, a matrix at noon, one in the evening while another
/// one runs, nothing at night.
fn work() -> Vec<(i64, i64)> {
    let hour = 3_600;
    let mut work: Vec<(i64, i64)> = (0..4).map(|job| (7 * hour + job * 20, 90)).collect();
    work.extend((0..30).map(|job| (8 * hour + job * 600, 40 + job * 17 % 400)));
    work.extend((0..20).map(|job| (12 * hour + job / 5, 120 + job * 7)));
    work.extend([(18 * hour, 900), (18 * hour + 60, 5), (18 * hour + 61, 5), (22 * hour, 1_800)]);
    work.sort_unstable();
    work
}

/// Of a pool whose runners start within seconds; half of them may fail instead.
fn scenario(ephemeral: bool, delay: u64, failing: bool) -> Scenario {
    let settings = PoolSettings {
        pool: "ci/web".into(),
        labels: vec!["web".into()],
        ephemeral,
        min: MIN,
        max: MAX,
        replicas: MIN,
        scale_down_delay_seconds: delay,
        job_life_seconds: 600,
        webhooks: true,
        ..PoolSettings::default()
    };
    let record = |seconds, what| pacer_trace::Record { at: at(seconds), what };
    let mut records = vec![record(0, What::Pool(settings))];
    for (index, took) in [8, 12, 31].into_iter().enumerate() {
        let runner: Arc<str> = format!("sample-{index}").into();
        records.push(record(-500, What::RunnerCreated { runner: runner.clone(), pool: "ci/web".into() }));
        records.push(record(-500 + took, What::RunnerRegistered { runner: runner.clone() }));
        records.push(record(-1, What::RunnerEnded { runner, why: End::Removed }));
    }
    // One that worked, and was there for some seconds more.
    let about = || {
        let labels: [Arc<str>; 2] = ["self-hosted".into(), "web".into()];
        About { repository: "acme/app".into(), workflow: "build".into(), labels: labels.into(), attempt: 1, pool: None }
    };
    let worker = || Arc::<str>::from("worker");
    records.extend([
        record(-400, What::RunnerCreated { runner: worker(), pool: "ci/web".into() }),
        record(-400, What::JobQueued { job: 1_000, about: about() }),
        record(-388, What::RunnerRegistered { runner: worker() }),
        record(-388, What::JobStarted { job: 1_000, runner: Some(worker()) }),
        record(-300, What::JobCompleted { job: 1_000 }),
        record(-296, What::RunnerEnded { runner: worker(), why: End::Finished }),
    ]);
    for index in 0..if failing { 4 } else { 0 } {
        let runner: Arc<str> = format!("failed-{index}").into();
        records.push(record(-499, What::RunnerCreated { runner: runner.clone(), pool: "ci/web".into() }));
        records.push(record(-480, What::RunnerEnded { runner, why: End::Failed }));
    }
    for (job, (queue, runs)) in (1..).zip(work()) {
        records.push(record(queue, What::JobQueued { job, about: about() }));
        records.push(record(queue + 5, What::JobStarted { job, runner: None }));
        records.push(record(queue + 5 + runs, What::JobCompleted { job }));
    }
    records.push(record(100_000, What::Checkpoint {}));
    Scenario::of(&History::of(&Trace { header: Header::new(at(0)), records })).unwrap()
}

fn record(at: Timestamp, input: Option<Inquiry>, answer: Answer, items: Vec<Item>, change: Option<Change>) -> Record {
    let decision = match answer {
        Answer::ScaleDown(_) => Decision::ScaleDown,
        Answer::Restart(_) => Decision::Restart,
        Answer::Capacity(_) => Decision::Capacity,
        Answer::Recover(_) => Decision::Recover,
    };
    let pool = Pool { kind: "RunnerDeployment".into(), namespace: "ci".into(), name: "web".into() };
    let receipt = Receipt::unasked(decision, 0);
    Record { version: VERSION, id: id(at, 0), at, pool, receipt, input, answer, items, change, superseded: 0 }
}

/// Receipts of what has been decided, as they come.
#[derive(Default)]
struct Receipts {
    records: Vec<Record>,
    numbers: usize,
    decided: usize,
    removed: usize,
}

impl Receipts {
    fn follow(&mut self, sight: &Sight<'_>) {
        let story = sight.story().unwrap();
        for number in &story.numbers[self.numbers..] {
            let (from, to) = (number.from, number.decision.desired);
            // As the operator does: one that changes nothing is not worth a receipt.
            if from != to {
                let input = Inquiry::Capacity(CapacityRequest { pool: sight.pool(0), ..CapacityRequest::default() });
                let change = Change { from, to, reason: number.decision.reason.to_string() };
                let answer = Answer::Capacity(number.plan.clone());
                self.records.push(record(moment(number.at), Some(input), answer, Vec::new(), Some(change)));
            }
        }
        for one in &story.decided[self.decided..] {
            let (input, answer) = (Some(one.inquiry.clone()), one.answer.clone());
            self.records.push(record(moment(one.at), input, answer, one.items.clone(), None));
        }
        for one in story.removed[self.removed..].iter().filter(|one| matches!(one.done, Done::Spare { .. })) {
            let items = vec![Item::new(one.name.to_string(), one.done.clone())];
            self.records.push(record(moment(one.at), None, Answer::ScaleDown(Vec::new()), items, None));
        }
        (self.numbers, self.decided, self.removed) = (story.numbers.len(), story.decided.len(), story.removed.len());
        self.records.sort_by_key(|record| record.at);
    }
}

/// What the operator has left in the cluster.
struct Objects {
    target: Target,
    autoscaler: HorizontalRunnerAutoscaler,
    ledger: JobLedger,
    set: RunnerReplicaSet,
    runners: Vec<Runner>,
    pods: Vec<Pod>,
}

fn owned_by(kind: &str, name: &str, uid: &str) -> serde_json::Value {
    json!([{"apiVersion": "actions.summerwind.dev/v1alpha1", "kind": kind, "name": name, "uid": uid, "controller": true}])
}

impl Objects {
    fn of(sight: &Sight<'_>) -> Self {
        let (now, pool) = (sight.now(), sight.pool(0));
        let mut additions = Additions::default();
        sight.ledger(0).unwrap().all().for_each(|(id, job)| additions.put(id, job));
        let ledger = json!({
            "metadata": {"name": "web-h1-00", "namespace": "ci", "ownerReferences": owned_by("HorizontalRunnerAutoscaler", "web", "h-1")},
            "spec": additions.spec("web").unwrap(),
        });
        let deployment = json!({
            "metadata": {"name": "web", "namespace": "ci", "uid": "d-1"},
            "spec": {"replicas": pool.desired, "template": {"spec": {"repository": "acme/app", "ephemeral": pool.ephemeral}}},
        });
        let there: Vec<RunnerSeen<'_>> = sight.runners().filter(|runner| runner.gone.is_none()).collect();
        Self {
            target: Target::Deployment(Arc::new(serde_json::from_value(deployment).unwrap())),
            autoscaler: autoscaler(sight),
            ledger: serde_json::from_value(ledger).unwrap(),
            set: set(sight, &there),
            runners: there.iter().map(|runner| runner_object(runner, now)).collect(),
            pods: there.iter().map(pod).collect(),
        }
    }
}

fn autoscaler(sight: &Sight<'_>) -> HorizontalRunnerAutoscaler {
    let mut numbers = sight.story().unwrap().numbers.iter().rev();
    let newest = numbers.next();
    let scaling = newest.map(|number| {
        json!({"type": "Scaling", "status": "True", "reason": number.decision.reason.word(), "message": number.decision.reason.to_string(),
               "lastTransitionTime": moment(number.at).to_string()})
    });
    let raised = newest.into_iter().chain(numbers).find(|number| number.decision.desired > number.from);
    let object = json!({
        "metadata": {"name": "web", "namespace": "ci", "uid": "h-1"},
        "spec": {"scaleTargetRef": {"name": "web"}, "minReplicas": MIN, "maxReplicas": MAX, "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}}]},
        "status": {
            "desiredReplicas": newest.map(|number| number.decision.desired),
            "lastSuccessfulScaleOutTime": raised.map(|number| moment(number.at).to_string()),
            "conditions": scaling.into_iter().collect::<Vec<_>>(),
        },
    });
    serde_json::from_value(object).unwrap()
}

fn set(sight: &Sight<'_>, there: &[RunnerSeen<'_>]) -> RunnerReplicaSet {
    let counts = phase::counts(there.iter().map(|runner| runner.assessment.phase));
    let object = json!({
        "metadata": {"name": "web-1", "namespace": "ci", "uid": "s-1", "ownerReferences": owned_by("RunnerDeployment", "web", "d-1")},
        "spec": {"replicas": sight.pool(0).desired, "selector": {}, "template": {"spec": {"repository": "acme/app"}}},
        "status": {
            "replicas": there.len(), "busyReplicas": counts.busy, "idleReplicas": counts.idle, "readyReplicas": 0, "availableReplicas": 0,
            "failedAttempts": Some(sight.attempts(0)).filter(|attempts| *attempts > 0), "backoffUntil": sight.next_attempt(0).map(|until| Timestamp::from_second(until.as_second()).unwrap().to_string()),
        },
    });
    serde_json::from_value(object).unwrap()
}

fn phase_of(runner: &RunnerSeen<'_>) -> &'static str {
    match runner.facts.pod.as_ref().map(|pod| pod.phase) {
        Some(PodPhase::Succeeded) => "Succeeded",
        Some(PodPhase::Failed) => "Failed",
        _ => "Running",
    }
}

fn runner_object(seen: &RunnerSeen<'_>, now: Timestamp) -> Runner {
    let job = seen.job.map(|job| Arc::from(job.to_string()));
    // What events say: the simulation goes by what the agent does.
    let facts = RunnerFacts {
        job_over: seen.facts.reports_job.filter(|_| seen.job.is_none()).map(|_| now),
        reports_job: seen.facts.reports_job.filter(|_| seen.job.is_some()),
        ..seen.facts.clone()
    };
    let work = Work::of(&facts, seen.assessment.phase, job, &Work::default(), now);
    let ready = if matches!(seen.assessment.phase, Phase::Idle(_) | Phase::Busy) { "True" } else { "False" };
    let object = json!({
        "metadata": {"name": seen.name, "namespace": "ci", "uid": seen.name, "creationTimestamp": seen.created.to_string(),
                     "ownerReferences": owned_by("RunnerReplicaSet", "web-1", "s-1")},
        "spec": {"repository": "acme/app"},
        "status": {
            "phase": phase_of(seen), "busy": work.busy, "job": work.job,
            "reason": seen.assessment.trouble.as_ref().map(|trouble| trouble.cause.as_str()),
            "conditions": [{"type": "Ready", "status": ready, "reason": "Registered", "message": "",
                            "lastTransitionTime": seen.created.to_string()}],
        },
    });
    serde_json::from_value(object).unwrap()
}

fn pod(seen: &RunnerSeen<'_>) -> Pod {
    let state = match seen.facts.pod.as_ref().map(|pod| &pod.container) {
        Some(Container::Terminated { exit_code, .. }) => json!({"terminated": {"exitCode": exit_code}}),
        _ => json!({"running": {"startedAt": seen.created.to_string()}}),
    };
    let object = json!({
        "metadata": {"name": seen.name, "namespace": "ci", "creationTimestamp": seen.created.to_string()},
        "status": {"phase": phase_of(seen), "containerStatuses": [
            {"name": "runner", "ready": true, "restartCount": 0, "image": "i", "imageID": "", "state": state},
        ]},
    });
    serde_json::from_value(object).unwrap()
}

/// What was said at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
struct Said {
    now: Timestamp,
    jobs: Vec<String>,
    pool: String,
    /// The line of `pacer status`.
    status: String,
    /// Name of each runner, and what `pacer explain` says about it.
    runners: Vec<(String, String)>,
}

fn say(sight: &Sight<'_>, receipts: &[Record]) -> Said {
    let (now, objects) = (sight.now(), Objects::of(sight));
    let records: Vec<&Record> = receipts.iter().collect();
    let asked = sight.runners().filter(|runner| runner.gone.is_none_or(|gone| now.duration_since(gone) < GONE));
    let asked: Vec<String> = asked.map(|runner| runner.name.to_owned()).collect();
    let runners = asked.into_iter().map(|name| {
        let live = objects.runners.iter().find(|runner| runner.metadata.name.as_ref() == Some(&name));
        let text = runner::Story::new(&name, "ci", live, &records, Vec::new()).text(now);
        (name, text)
    });
    let runners = runners.collect();
    let shelf = Shelf { records: receipts.to_vec(), ..Shelf::default() };
    let key = |pod: &Pod| ("ci".to_owned(), pod.metadata.name.clone().unwrap());
    let place = Place {
        autoscalers: vec![objects.autoscaler.clone()],
        job_ledgers: vec![objects.ledger.clone()],
        targets: vec![objects.target.clone()],
        sets: vec![objects.set.clone()],
        runners: objects.runners.clone(),
        pods: Some(objects.pods.iter().map(|pod| (key(pod), pod.clone())).collect()),
        receipts: Some(Archive { shelves: vec![shelf], ..Archive::default() }),
        unread: String::new(),
    };
    let rows = overview::rows(&place.targets, &place.autoscalers, &place.job_ledgers, &place.sets);
    let status = overview::screen(&rows, false, "ci", now);
    let found = pool::Found {
        target: Some(objects.target),
        autoscalers: vec![objects.autoscaler],
        job_ledgers: vec![objects.ledger],
        sets: vec![objects.set],
        runners: objects.runners,
        set: None,
    };
    Said {
        now,
        jobs: job::stories(&place, now).iter().map(|story| story.text(now)).collect(),
        pool: pool::Story::new(&found, &records, now).text(now),
        status: status.lines().last().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" "),
        runners,
    }
}

/// How a runner is at a moment.
#[derive(Clone, Debug)]
struct Worker {
    there: bool,
    online: bool,
    job: Option<u64>,
    /// It has had a job, and takes no other.
    spent: bool,
}

/// How everything is at a moment.
#[derive(Clone, Debug)]
struct Truth {
    wanted: u32,
    jobs: BTreeMap<u64, (Timestamp, Option<Timestamp>, Option<String>, bool)>,
    workers: BTreeMap<String, Worker>,
    number: u32,
    reason: String,
    decided: Timestamp,
    raised: Option<Timestamp>,
    attempts: u32,
}

impl Truth {
    fn of(sight: &Sight<'_>, ephemeral: bool) -> Self {
        let given: Vec<JobSeen<'_>> = sight.jobs().collect();
        let worker = |runner: RunnerSeen<'_>| {
            let worker = Worker {
                there: runner.gone.is_none(),
                online: matches!(runner.facts.remote, Remote::Online { .. }),
                job: runner.job,
                spent: ephemeral && given.iter().any(|job| job.runner == Some(runner.name)),
            };
            (runner.name.to_owned(), worker)
        };
        let numbers = &sight.story().unwrap().numbers;
        let newest = numbers.last().unwrap();
        let raised = numbers.iter().rev().find(|number| number.decision.desired > number.from);
        Self {
            wanted: sight.pool(0).desired,
            jobs: given.iter().map(|job| (job.id, (job.queued, job.started, job.runner.map(str::to_owned), job.over))).collect(),
            workers: sight.runners().map(worker).collect(),
            number: newest.decision.desired,
            reason: newest.decision.reason.to_string(),
            decided: moment(newest.at),
            raised: raised.map(|number| moment(number.at)),
            attempts: sight.attempts(0)
                + u32::from(sight.next_attempt(0).is_some_and(|at| at.as_second() > sight.now().as_second())),
        }
    }

    fn waiting(&self) -> Vec<(Timestamp, u64)> {
        let waits = self.jobs.iter().filter(|(_, (_, started, _, over))| started.is_none() && !over);
        let mut waiting: Vec<(Timestamp, u64)> = waits.map(|(id, (queued, ..))| (*queued, *id)).collect();
        waiting.sort_unstable();
        waiting
    }

    fn busy(&self) -> u32 {
        count(self.workers.values().filter(|worker| worker.there && worker.job.is_some()))
    }
}

fn count<T>(all: impl Iterator<Item = T>) -> u32 {
    u32::try_from(all.count()).unwrap()
}

/// What was said that only later moments prove.
#[derive(Default)]
struct Claims {
    /// A runner is made between these moments.
    coming: Vec<(Timestamp, Timestamp, String)>,
    /// A job starts by then, nine times out of ten.
    starts: Vec<(u64, Timestamp)>,
}

/// A line of a text, behind its title.
fn line<'a>(text: &'a str, title: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(title)).map(str::trim)
}

fn number(text: &str) -> Option<u32> {
    text.split(|letter: char| !letter.is_ascii_digit()).find(|part| !part.is_empty())?.parse().ok()
}

/// The moment that a clock shows in the hour to come.
fn clock(text: &str, now: Timestamp) -> Option<Timestamp> {
    let mut seconds = (0..3_600).map(|second| now + SignedDuration::from_secs(second));
    seconds.find(|at| text.contains(&at.strftime("%H:%M:%SZ").to_string()))
}

/// What is wrong with what was said of a job that waits.
fn waits(id: u64, why: &str, text: &str, truth: &Truth, said: &Said, claims: &mut Claims) -> Option<String> {
    let (now, waiting) = (said.now, truth.waiting());
    let place = waiting.iter().position(|(_, other)| *other == id)?;
    let named = why.split(' ').skip_while(|word| *word != "runner").nth(1).and_then(|name| truth.workers.get(name));
    let is_true = if why.ends_with("is online and idle: GitHub has to give it the job") {
        named.is_some_and(|worker| worker.there && worker.online && worker.job.is_none() && !worker.spent)
    } else if why.ends_with("has started and has not registered at GitHub yet") || why.ends_with("is starting") {
        named.is_some_and(|worker| worker.there && !worker.online && !worker.spent)
    } else if why == "a runner for it is about to be made" {
        claims.coming.push((now, now + SignedDuration::from_secs(20), format!("{now}: {text}")));
        true
    } else if why.ends_with("taken by another job, and no more are wanted") {
        truth.busy() == 1 && truth.wanted <= 1
    } else if why.starts_with("all ") && why.ends_with("taken by other jobs, and no more are wanted") {
        number(why) == Some(truth.busy()) && truth.wanted <= truth.busy()
    } else if let Some(reason) = why.strip_prefix("the maximum is reached: ") {
        reason == truth.reason && truth.number == MAX
    } else if let Some(reason) = why.strip_prefix("the autoscaler has not counted it in: ") {
        reason == truth.reason && truth.jobs.get(&id).is_some_and(|(queued, ..)| *queued >= truth.decided)
    } else if why.contains(" failed to start: a place is filled again by ") {
        // One that comes online ends the back-off, so that it may be earlier.
        let until = clock(why, now)?;
        claims.coming.push((now, until + SignedDuration::from_secs(20), format!("{now}: {text}")));
        number(why) == Some(truth.attempts)
    } else {
        false
    };
    let told =
        line(text, "place").is_some_and(|told| told == format!("{} of {} that wait for this pool", place + 1, waiting.len()));
    if let Some(starts) = line(text, "starts")
        && let Some((_, rest)) = starts.split_once("nine times out of ten within ")
    {
        let seconds = number(rest)?
            * if rest.contains(" min ") {
                60
            } else if rest.contains(" h ") {
                3_600
            } else {
                1
            };
        claims.starts.push((id, now + SignedDuration::from_secs(seconds.into())));
    }
    (!is_true || !told).then(|| format!("place {place} of {}", waiting.len()))
}

fn wrong_of_jobs(said: &Said, truth: &Truth, claims: &mut Claims) -> Vec<String> {
    let mut found = Vec::new();
    let mut told = Vec::new();
    for text in &said.jobs {
        let head = text.lines().next().unwrap().strip_prefix("Job ").unwrap().trim_end_matches('.');
        let (of, why) = head.split_once(": ").unwrap();
        let (id, state) = of.split_once(' ').unwrap();
        let id: u64 = id.parse().unwrap();
        told.push(id);
        let Some((queued, started, runner, over)) = truth.jobs.get(&id) else {
            found.push(format!("no such job: {text}"));
            continue;
        };
        let wrong = match (state, started, over) {
            ("waits", None, false) => waits(id, why, text, truth, said, claims),
            ("runs", Some(_), false) => {
                let named = runner.as_ref().is_some_and(|runner| why == format!("it runs on runner {runner}"));
                (!named).then(|| "another runner".to_owned())
            }
            ("is over", _, true) => (why != "it is over").then(|| "another end".to_owned()),
            _ => Some("another state".to_owned()),
        };
        found.extend(wrong.map(|wrong| format!("{wrong}: {text}")));
        if !line(text, "queued").is_some_and(|told| told.contains(&queued.strftime("%H:%M:%S").to_string())) {
            found.push(format!("queued at {queued}: {text}"));
        }
    }
    let silent = truth.jobs.iter().filter(|(id, (.., over))| !over && !told.contains(id));
    found.extend(silent.map(|(id, job)| format!("nothing is said of job {id}: {job:?}")));
    found
}

fn wrong_of_pool(said: &Said, truth: &Truth, claims: &mut Claims) -> Vec<String> {
    let are = |number: u32| if number == 1 { "is" } else { "are" };
    let there = || truth.workers.values().filter(|worker| worker.there);
    let (exist, online) = (count(there()), count(there().filter(|worker| worker.online)));
    let wanted = truth.wanted;
    let head = format!(
        "RunnerDeployment ci/web: {wanted} {} {} wanted, {exist} {}, {online} {} online.",
        if wanted == 1 { "runner" } else { "runners" },
        are(wanted),
        if exist == 1 { "exists" } else { "exist" },
        are(online)
    );
    let mut lines = vec![
        head,
        format!("Why {wanted}"),
        format!("  HorizontalRunnerAutoscaler web ({MIN} to {MAX}) wants {}", truth.number),
        format!("  because: {}", truth.reason),
    ];
    let running = truth.jobs.values().filter(|(_, started, _, over)| started.is_some() && !over).count();
    let waiting = truth.waiting().len();
    if waiting + running > 0 {
        lines.push(format!("  jobs known from webhooks: {waiting} waiting, {running} running"));
    }
    lines.extend(truth.raised.map(|raised| format!("  raised last at {raised}")));
    let mut found: Vec<String> = Vec::new();
    let why = said.pool.split_once("Held back").unwrap().0;
    let told: Vec<&str> = why.lines().filter(|line| !line.is_empty()).collect();
    if told != lines {
        found.push(format!("{lines:#?} is true: {}", said.pool));
    }
    let held = said.pool.split_once("Held back\n").unwrap().1.split_once("\n\nWho decides").unwrap().0;
    let failed = match truth.attempts {
        1 => "RunnerReplicaSet web-1: 1 runner failed to start: a place is filled again by ".to_owned(),
        attempts => format!("RunnerReplicaSet web-1: {attempts} runners in a row failed to start: a place is filled again by "),
    };
    match held.trim() {
        "nothing" => {}
        held if held.starts_with(&failed) => {
            let until: Timestamp = held[failed.len()..].parse().unwrap();
            if until <= said.now {
                found.push(format!("it is {} already: {held}", said.now));
            }
            // Where nobody waits, the number may be lowered before.
            if waiting > 0 {
                claims.coming.push((said.now, until + SignedDuration::from_secs(20), format!("{}: {held}", said.now)));
            }
        }
        held => found.push(format!("held back is {held:?}")),
    }
    let last = said.pool.split_once("Last decisions\n").unwrap().1;
    for line in last.lines() {
        let done = line.split(';').filter_map(|part| part.split_once("removed ").or_else(|| part.split_once("cleared away ")));
        let names = done.flat_map(|(_, names)| names.split([' ', ',']).take_while(|word| *word != "by"));
        for name in names.filter(|name| truth.workers.get(*name).is_some_and(|worker| worker.there)) {
            found.push(format!("{name} is there: {line}"));
        }
    }
    found
}

fn wrong_of_runners(said: &Said, truth: &Truth) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in &said.runners {
        let Some(worker) = truth.workers.get(name) else { continue };
        let jobs = || truth.jobs.values().filter(|(_, started, runner, _)| started.is_some() && runner.as_ref() == Some(name));
        let head = text.lines().next().unwrap_or_default();
        let is_true = if worker.there {
            let now = text.lines().find(|line| line.starts_with("Now: ")).unwrap_or_default();
            let works = now.contains("runs a job") || now.contains("runs job");
            let removed = head.contains("was removed") || head.contains("cleared away") || head.contains("was told to go");
            now.contains("it exists") && works == worker.job.is_some() && !removed
        } else {
            let gone = text.contains("Now: no Runner of this name exists.");
            gone && if head.contains("was removed because fewer runners were wanted") {
                // Between jobs, which only a runner that has several of them is.
                worker.job.is_none() && !worker.spent
            } else if head.contains("had done its job and was cleared away") {
                worker.spent && jobs().all(|(.., over)| *over) && jobs().next().is_some()
            } else if head.contains("it had not started by then") {
                jobs().next().is_none() && !worker.online
            } else if head.contains("it had ended") {
                jobs().all(|(.., over)| *over)
            } else if head.contains("was given up") {
                jobs().next().is_none()
            } else {
                false
            }
        };
        found.extend((!is_true).then(|| format!("{}: {worker:?}: {text}", said.now)));
    }
    found
}

/// What is wrong with what only later moments prove.
fn wrong_of_status(said: &Said, truth: &Truth) -> Vec<String> {
    let there = || truth.workers.values().filter(|worker| worker.there);
    let (exist, online) = (count(there()), count(there().filter(|worker| worker.online)));
    // One that has had its job can't be proved to have no other.
    let busy = count(there().filter(|worker| worker.job.is_some() || worker.spent));
    let waiting = truth.waiting();
    let first = waiting.first().map_or_else(String::new, |(queued, _)| format!(", first {}", ago(*queued, said.now)));
    let line = format!(
        "RunnerDeployment/web {} {exist} {online} {busy} {}{first} default {}",
        truth.wanted,
        waiting.len(),
        truth.reason
    );
    if said.status == line { Vec::new() } else { vec![format!("{line:?} is true of the pool: {:?}", said.status)] }
}

fn wrong_of_claims(claims: &Claims, story: &Story, made: &[Timestamp]) -> Vec<String> {
    let made_in = |from: &Timestamp, to: &Timestamp| made.iter().any(|at| at >= from && at < to);
    let coming = claims.coming.iter().filter(|(from, to, _)| !made_in(from, to));
    let mut found: Vec<String> = coming.map(|(.., text)| format!("nobody was made: {text}")).collect();
    let started: BTreeMap<u64, Timestamp> = story.started.iter().map(|(job, at, _)| (*job, moment(*at))).collect();
    let late = claims.starts.iter().filter(|(job, latest)| started.get(job).is_none_or(|at| at > latest)).count();
    if late * 10 > claims.starts.len() {
        found.push(format!("{late} of {} jobs started later than nine times out of ten", claims.starts.len()));
    }
    found
}

/// A day, moment by moment.
struct Day {
    moments: Vec<(Said, Truth)>,
    story: Story,
    /// When runners were made.
    made: Vec<Timestamp>,
}

fn day(ephemeral: bool, delay: u64, failing: bool) -> Day {
    let (mut receipts, mut moments, mut made) = (Receipts::default(), Vec::new(), Vec::new());
    let story = watch(&scenario(ephemeral, delay, failing), &Policies::builtin().unwrap(), 7, |sight| {
        receipts.follow(sight);
        made = sight.runners().map(|runner| runner.created).collect();
        moments.push((say(sight, &receipts.records), Truth::of(sight, ephemeral)));
    });
    Day { moments, story, made }
}

/// What was said at a moment and is not so.
fn wrong(said: &Said, truth: &Truth, claims: &mut Claims) -> Vec<String> {
    let status = wrong_of_status(said, truth);
    let all = [wrong_of_jobs(said, truth, claims), wrong_of_pool(said, truth, claims), wrong_of_runners(said, truth), status];
    all.into_iter().flatten().map(|wrong| format!("{}: {wrong}", said.now)).collect()
}

#[test]
fn every_explanation_of_a_recorded_day_is_true() {
    for (ephemeral, delay, failing) in [(true, 0, false), (true, 300, true), (false, 300, false)] {
        let Day { moments, story, made } = day(ephemeral, delay, failing);
        let mut claims = Claims::default();
        let mut found: Vec<String> = moments.iter().flat_map(|(said, truth)| wrong(said, truth, &mut claims)).collect();
        found.extend(wrong_of_claims(&claims, &story, &made));
        let first: Vec<&String> = found.iter().take(8).collect();
        assert!(
            found.is_empty(),
            "ephemeral {ephemeral}, delay {delay}, failing {failing}: {} of them, as {first:#?}",
            found.len()
        );
        // There was something to say.
        let said = |words: &str| {
            moments.iter().any(|(said, _)| {
                let runners = said.runners.iter().map(|(_, text)| text);
                said.jobs.iter().chain([&said.pool]).chain(runners).any(|text| text.contains(words))
            })
        };
        for words in
            ["has not registered at GitHub yet", "the maximum is reached", "it runs on runner", "Now: it exists", "Why 6"]
        {
            assert!(said(words), "nobody said {words:?}");
        }
        assert!(!failing || said("failed to start: a place is filled again by"), "nothing failed");
        assert!(!ephemeral || said("had done its job and was cleared away"), "nobody was cleared away");
        assert!(ephemeral || said("was removed because fewer runners were wanted"), "nobody went");
        assert!(claims.starts.len() > 20 && moments.len() > 100, "{} moments", moments.len());
    }
}

#[test]
fn an_explanation_that_is_not_true_is_found() {
    let days = [day(true, 300, true), day(false, 300, false)];
    let moments = || days.iter().flat_map(|day| &day.moments);
    for (what, from, to) in [
        ("a place in the queue", "place      2 of ", "place      1 of "),
        ("how many wait", "that wait for this pool", "or more that wait for this pool"),
        ("a job that runs", " waits: ", " runs: "),
        ("a job that waits", " runs: ", " waits: "),
        ("the end of a job", " runs: ", " is over: "),
        ("another runner", "it runs on runner web-", "it runs on runner xweb-"),
        (
            "an idle runner",
            "has started and has not registered at GitHub yet",
            "is online and idle: GitHub has to give it the job",
        ),
        ("the maximum", "the maximum is reached: clamped", "the maximum is reached: not clamped"),
        ("how many failed", " waits: 1 runner failed to start", " waits: 7 runners in a row failed to start"),
    ] {
        let lie = |said: &Said| Said { jobs: said.jobs.iter().map(|text| text.replacen(from, to, 1)).collect(), ..said.clone() };
        assert_found(what, moments(), lie);
    }
    for (what, from, to) in [
        ("how many are wanted", "6 runners are wanted", "5 runners are wanted"),
        ("how many are online", "6 are online", "5 are online"),
        ("whose reason it is", "because: reserved", "because: minReplicas, not reserved"),
        ("how many jobs run", " running\n", " or more running\n"),
        ("when it was raised", "raised last at 2001", "raised last at 2002"),
        ("how many failed", " runners in a row failed to start", "0 runners in a row failed to start"),
        ("what is held back", "Held back\n  nothing", "Held back\n  something"),
    ] {
        assert_found(what, moments(), |said| Said { pool: said.pool.replacen(from, to, 1), ..said.clone() });
    }
    for (what, from, to) in [
        ("how many are busy", " 6 6 6 6 ", " 6 6 6 5 "),
        ("how many wait", ", first ", "0, first "),
        ("why it is that number", " default ", " default not "),
    ] {
        assert_found(what, moments(), |said| Said { status: said.status.replacen(from, to, 1), ..said.clone() });
    }
    for (what, from, to) in [
        ("that it runs a job", ", and runs job ", ", and idles, not job "),
        ("that it is there", "Now: it exists", "Now: no Runner of this name exists."),
        ("that it is gone", "Now: no Runner of this name exists.", "Now: it exists"),
        ("why it went", "had done its job and was cleared away", "was removed because fewer runners were wanted"),
        ("that it was idle", "was removed because fewer runners were wanted", "had done its job and was cleared away"),
    ] {
        assert_found(what, moments(), |said| {
            let runners = said.runners.iter().map(|(name, text)| (name.clone(), text.replacen(from, to, 1)));
            Said { runners: runners.collect(), ..said.clone() }
        });
    }
    // A runner that is said to come and does not, and jobs that start late.
    let now = moments().next().unwrap().0.now;
    let claims = Claims { coming: vec![(now, now, "a lie".to_owned())], ..Claims::default() };
    assert_eq!(wrong_of_claims(&claims, &days[0].story, &days[0].made).len(), 1);
    let claims = Claims { starts: vec![(1, Timestamp::UNIX_EPOCH)], ..Claims::default() };
    assert_eq!(wrong_of_claims(&claims, &days[0].story, &days[0].made).len(), 1);
}

fn assert_found<'a>(what: &str, mut moments: impl Iterator<Item = &'a (Said, Truth)>, lie: impl Fn(&Said) -> Said) {
    let told = moments.find_map(|(said, truth)| Some((lie(said), truth)).filter(|(lie, _)| lie != said));
    let (lie, truth) = told.unwrap_or_else(|| panic!("nobody says {what}"));
    assert!(!wrong(&lie, truth, &mut Claims::default()).is_empty(), "nobody found out {what}");
}
