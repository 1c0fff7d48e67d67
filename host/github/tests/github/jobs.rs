//! Listing a repository's jobs against a scripted GitHub on a real socket.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::support::{Seen, Server, reply, tagged};
use http::Response;
use pacer_core::recovery::{Ending, JobSeen, Reply, RunSeen};
use pacer_github::{Endpoint, ErrorKind, JobState, QueueListing, Repository, RunCounts};
use serde_json::{Value, json};

fn app() -> Repository {
    Repository::new("acme", "app")
}

/// Runs by status, and jobs by run.
#[derive(Clone, Default)]
struct Queue {
    queued: Vec<Value>,
    in_progress: Vec<Value>,
    jobs: BTreeMap<u64, Vec<Value>>,
}

fn run(id: u64, status: &str) -> Value {
    json!({
        "id": id, "name": "CI", "status": status, "run_attempt": 1, "created_at": "2027-01-15T08:00:00Z",
        "updated_at": "2027-01-15T08:00:01Z", "event": "push", "pull_requests": [],
    })
}

fn job(id: u64, run: u64, status: &str, labels: &[&str]) -> Value {
    json!({
        "id": id, "run_id": run, "run_attempt": 2, "status": status, "conclusion": null, "labels": labels,
        "created_at": "2027-01-15T08:00:00Z", "started_at": "2027-01-15T08:00:05Z", "completed_at": null, "name": "build",
        "workflow_name": "Nightly", "runner_name": if status == "queued" { "" } else { "runner-1" }, "steps": [],
    })
}

impl Queue {
    /// The content of what is asked for: at most `per_page` of its entries from the page on.
    fn page(&self, request: &Seen) -> Option<Value> {
        let (path, query) = request.path.split_once('?').unwrap();
        let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let (key, all) = match path.strip_prefix("/repos/acme/app/actions/runs").unwrap() {
            "" if value("status") == Some("queued") => ("workflow_runs", &self.queued),
            "" if value("status") == Some("in_progress") => ("workflow_runs", &self.in_progress),
            rest => {
                let id = rest.strip_prefix('/').unwrap().strip_suffix("/jobs").unwrap();
                assert_eq!(value("filter"), Some("latest"));
                ("jobs", self.jobs.get(&id.parse().unwrap())?)
            }
        };
        let (size, page) = (value("per_page").unwrap().parse().unwrap(), value("page").map_or(1, |page| page.parse().unwrap()));
        let entries: Vec<&Value> = all.iter().skip(size * (page - 1)).take(size).collect();
        Some(json!({"total_count": all.len(), key: entries}))
    }

    fn answer(&self, request: &Seen) -> Option<Response<String>> {
        let Some(page) = self.page(request) else { return reply(404, &[], r#"{"message":"Not Found"}"#) };
        let body = page.to_string();
        let tag = format!("W/\"{:x}\"", body.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31) ^ u64::from(byte)));
        tagged(request, &tag, &body)
    }
}

async fn server(queue: &Arc<Mutex<Queue>>) -> Server {
    let queue = Arc::clone(queue);
    Server::start(move |request| queue.lock().unwrap().answer(request)).await
}

async fn listed(queue: Queue) -> (QueueListing, Vec<String>) {
    let server = server(&Arc::new(Mutex::new(queue))).await;
    let listing = server.client().queue(&app()).await.unwrap();
    (listing, server.lines())
}

fn states(listing: &QueueListing) -> Vec<(u64, JobState)> {
    listing.jobs.iter().map(|job| (job.id, job.state)).collect()
}

#[tokio::test]
async fn jobs_of_queued_and_running_runs_are_listed() {
    let queue = Queue {
        queued: vec![run(1, "queued")],
        in_progress: vec![run(2, "in_progress")],
        jobs: BTreeMap::from([
            (1, vec![job(11, 1, "queued", &["self-hosted", "gpu"]), job(12, 1, "queued", &["self-hosted", "gpu"])]),
            (2, vec![job(21, 2, "in_progress", &["linux"]), job(22, 2, "completed", &[]), job(23, 2, "waiting", &["x"])]),
        ]),
    };
    let (listing, mut lines) = listed(queue).await;
    assert!(listing.complete && listing.changed);
    assert_eq!((listing.calls, listing.paid, listing.left), (5, 4, 0), "the queued runs are read once more, for free");
    assert_eq!(listing.runs, RunCounts { queued: 1, in_progress: 1, ..RunCounts::default() });
    use JobState::{Completed, InProgress, Other, Queued};
    assert_eq!(states(&listing), [(11, Queued), (12, Queued), (21, InProgress), (22, Completed), (23, Other)]);
    let [first, second, third, ..] = &*listing.jobs else { panic!("{listing:?}") };
    assert_eq!((first.run_id, first.attempt, &*first.workflow, &*first.repository), (1, 2, "Nightly", "acme/app"));
    assert_eq!((first.created_at.to_string().as_str(), first.started_at, &first.runner), ("2027-01-15T08:00:00Z", None, &None));
    assert_eq!(first.labels.iter().map(|label| &**label).collect::<Vec<_>>(), ["self-hosted", "gpu"]);
    assert!(Arc::ptr_eq(&first.labels, &second.labels));
    assert_eq!(
        (third.started_at.unwrap().to_string().as_str(), third.runner.as_deref()),
        ("2027-01-15T08:00:05Z", Some("runner-1"))
    );
    lines.sort();
    assert_eq!(
        lines,
        [
            "GET /repos/acme/app/actions/runs/1/jobs?filter=latest&per_page=100",
            "GET /repos/acme/app/actions/runs/2/jobs?filter=latest&per_page=100",
            "GET /repos/acme/app/actions/runs?status=in_progress&exclude_pull_requests=true&per_page=100",
            "GET /repos/acme/app/actions/runs?status=queued&exclude_pull_requests=true&per_page=100",
            "GET /repos/acme/app/actions/runs?status=queued&exclude_pull_requests=true&per_page=100",
        ]
    );
}

/// The inputs of ARC's metric that say something about listing; which labels count is decided elsewhere.
#[tokio::test]
async fn jobs_are_listed_as_arc_lists_them_when_runs_vary() {
    let labels = ["self-hosted", "custom"];
    let five = BTreeMap::from([
        (1, vec![job(11, 1, "queued", &labels), job(12, 1, "queued", &labels)]),
        (2, vec![job(21, 2, "in_progress", &labels), job(22, 2, "completed", &labels)]),
        (3, vec![job(31, 3, "in_progress", &labels), job(32, 3, "queued", &labels)]),
    ]);
    // queued runs, runs in progress, jobs -> queued and running jobs, jobs without labels, calls for jobs
    type Jobs = BTreeMap<u64, Vec<Value>>;
    type Row<'a> = (&'a str, &'a [u64], &'a [u64], Jobs, (usize, usize, usize));
    let table: [Row<'_>; 7] = [
        ("0: runs without ids", &[0], &[0, 0], Jobs::new(), (0, 0, 0)),
        ("5: one queued run without id", &[0], &[], Jobs::new(), (0, 0, 0)),
        ("9: three running without ids", &[], &[0, 0, 0], Jobs::new(), (0, 0, 0)),
        ("10: a run without jobs", &[1], &[], Jobs::from([(1, vec![])]), (0, 0, 1)),
        ("11: a hosted run", &[1], &[], Jobs::from([(1, vec![job(11, 1, "queued", &[])])]), (1, 1, 1)),
        ("12, 18, 19: five active jobs", &[1], &[2, 3], five, (5, 0, 3)),
        ("0 of the organization", &[], &[], Jobs::new(), (0, 0, 0)),
    ];
    for (name, queued, running, jobs, expected) in table {
        let runs = |ids: &[u64], status: &str| ids.iter().map(|id| run(*id, status)).collect();
        let queue = Queue { queued: runs(queued, "queued"), in_progress: runs(running, "in_progress"), jobs };
        let (listing, lines) = listed(queue).await;
        let active = listing.jobs.iter().filter(|job| matches!(job.state, JobState::Queued | JobState::InProgress));
        let unlabelled = listing.jobs.iter().filter(|job| job.labels.is_empty()).count();
        let asked = lines.iter().filter(|line| line.contains("/jobs")).count();
        assert_eq!((active.count(), unlabelled, asked), expected, "{name}");
        assert!(listing.complete, "{name}");
    }
}

#[tokio::test]
async fn runs_that_ended_or_are_unknown_are_counted_and_not_asked_for() {
    let queued = vec![run(1, "completed"), run(2, "waiting"), run(3, "queued"), run(4, "in_progress")];
    let jobs = BTreeMap::from([(3, vec![job(31, 3, "queued", &["x"])]), (4, vec![job(41, 4, "in_progress", &["x"])])]);
    let (listing, lines) = listed(Queue { queued, jobs, ..Queue::default() }).await;
    assert_eq!(listing.runs, RunCounts { queued: 1, in_progress: 1, completed: 1, other: 1 });
    assert_eq!(lines.iter().filter(|line| line.contains("/jobs")).count(), 2);
    assert!(listing.complete);
}

#[tokio::test]
async fn all_pages_of_runs_and_jobs_are_read_and_then_for_free() {
    let jobs: BTreeMap<u64, Vec<Value>> = (1..=50)
        .map(|id| (id, (0..if id == 50 { 230 } else { 1 }).map(|n| job(id * 1_000 + n, id, "queued", &["x"])).collect()))
        .collect();
    let mut runs: Vec<Value> = (1..=50).map(|id| run(id, "queued")).collect();
    runs.extend((51..=150).map(|id| run(id, "waiting")));
    let queue = Arc::new(Mutex::new(Queue { queued: runs, jobs, ..Queue::default() }));
    let server = server(&queue).await;
    let github = server.client();
    let first = github.queue(&app()).await.unwrap();
    assert_eq!((first.jobs.len(), first.complete, first.runs.other), (49 + 230, true, 100));
    assert_eq!((first.calls, first.paid), (2 + 1 + 2 + 49 + 3, 2 + 1 + 49 + 3));
    let second = github.queue(&app()).await.unwrap();
    assert_eq!((second.changed, second.paid, second.complete), (false, 0, true));
    assert!(Arc::ptr_eq(&first.jobs, &second.jobs));

    queue.lock().unwrap().jobs.get_mut(&7).unwrap().push(job(7_001, 7, "queued", &["x"]));
    let third = github.queue(&app()).await.unwrap();
    assert_eq!((third.changed, third.paid, third.jobs.len()), (true, 1, 280), "a run that looks the same can have other jobs");
}

#[tokio::test]
async fn a_run_whose_jobs_cannot_be_read_leaves_the_others() {
    let queued = vec![run(1, "queued"), run(2, "queued"), run(3, "queued")];
    let jobs = BTreeMap::from([(1, vec![job(11, 1, "queued", &["x"])]), (3, vec![job(31, 3, "queued", &["x"])])]);
    let queue = Arc::new(Mutex::new(Queue { queued, jobs, ..Queue::default() }));
    for status in [404, 500, 502] {
        let shown = Arc::clone(&queue);
        let server = Server::start(move |request| match request.path.contains("/runs/2/jobs") {
            true => reply(status, &[], r#"{"message":"no"}"#),
            false => shown.lock().unwrap().answer(request),
        })
        .await;
        let listing = server.client().queue(&app()).await.unwrap();
        assert_eq!((states(&listing).len(), listing.complete, listing.left), (2, false, 0), "{status}");
    }

    let server = server(&queue).await;
    let github = server.client();
    assert!(!github.queue(&app()).await.unwrap().complete);
    queue.lock().unwrap().jobs.insert(2, vec![job(21, 2, "queued", &["x"])]);
    let healed = github.queue(&app()).await.unwrap();
    assert_eq!((healed.complete, healed.jobs.len()), (true, 3));
    queue.lock().unwrap().jobs.remove(&2);
    let broken = github.queue(&app()).await.unwrap();
    assert_eq!((broken.complete, broken.jobs.len()), (false, 3), "what was known stays while it cannot be read");
    queue.lock().unwrap().queued.remove(1);
    let gone = github.queue(&app()).await.unwrap();
    assert_eq!((gone.complete, gone.jobs.len()), (true, 2));
}

#[tokio::test]
async fn limits_and_missing_rights_fail_the_listing() {
    type Headers = &'static [(&'static str, &'static str)];
    type Row = (&'static str, u16, Headers, fn(&ErrorKind) -> bool);
    let table: [Row; 5] = [
        ("/jobs", 403, &[("retry-after", "30")], |kind| matches!(kind, ErrorKind::RateLimited { secondary: true, .. })),
        ("/jobs", 403, &[], |kind| matches!(kind, ErrorKind::Forbidden { missing, .. } if missing.contains("Actions: read"))),
        ("/jobs", 401, &[], |kind| *kind == ErrorKind::Unauthorized),
        ("status=in_progress", 404, &[], |kind| matches!(kind, ErrorKind::NotVisible { .. })),
        ("status=queued", 502, &[], |kind| *kind == ErrorKind::Server),
    ];
    for (part, status, headers, expected) in table {
        let queue = Queue {
            queued: vec![run(1, "queued")],
            jobs: BTreeMap::from([(1, vec![job(11, 1, "queued", &["x"])])]),
            ..Queue::default()
        };
        let server = Server::start(move |request| match request.path.contains(part) {
            true => reply(status, headers, r#"{"message":"no"}"#),
            false => queue.answer(request),
        })
        .await;
        let error = server.client().queue(&app()).await.unwrap_err();
        assert!(expected(error.kind()), "{part} {status}: {error}");
        assert!(error.to_string().contains("repository acme/app"), "{error}");
    }
}

#[tokio::test]
async fn a_run_that_moves_between_the_lists_while_they_are_read_is_not_missed() {
    // A run's next job is queued after its first ended: it moves back from "in progress" to "queued".
    let asked = Mutex::new(0);
    let server = Server::start(move |request| {
        let mut asked = asked.lock().unwrap();
        *asked += 1;
        let (queued, in_progress) =
            if *asked == 1 { (vec![], vec![run(1, "in_progress")]) } else { (vec![run(1, "queued")], vec![]) };
        let jobs = BTreeMap::from([(1, vec![job(11, 1, "completed", &["x"]), job(12, 1, "queued", &["x"])])]);
        Queue { queued, in_progress, jobs }.answer(request)
    })
    .await;
    let listing = server.client().queue(&app()).await.unwrap();
    assert_eq!(states(&listing), [(11, JobState::Completed), (12, JobState::Queued)]);
    assert_eq!(listing.runs, RunCounts { queued: 1, ..RunCounts::default() });
}

#[tokio::test]
async fn pages_of_runs_that_do_not_fit_together_are_incomplete() {
    let server = Server::start(|request| {
        // One run ends between the first page and the second, so that the second starts one too late.
        let gone = usize::from(request.path.contains("&page=2"));
        let queued: Vec<Value> = (1..=150).skip(gone).map(|id| run(id, "waiting")).collect();
        Queue { queued, ..Queue::default() }.answer(request)
    })
    .await;
    let listing = server.client().queue(&app()).await.unwrap();
    assert_eq!((listing.complete, listing.runs.other), (false, 149));
}

#[tokio::test]
async fn one_job_is_looked_at() {
    let server = Server::start(|request| match request.path.as_str() {
        "/repos/acme/app/actions/jobs/11" => reply(200, &[], &job(11, 1, "in_progress", &["x"]).to_string()),
        "/repos/acme/app/actions/jobs/12" => reply(404, &[], r#"{"message":"Not Found"}"#),
        _ => reply(500, &[], ""),
    })
    .await;
    let github = server.client();
    let found = github.job(&app(), 11).await.unwrap().unwrap();
    assert_eq!((found.id, found.run_id, found.state, found.runner.as_deref()), (11, 1, JobState::InProgress, Some("runner-1")));
    assert_eq!(github.job(&app(), 12).await.unwrap(), None);
    let error = github.job(&app(), 13).await.unwrap_err();
    assert_eq!((error.endpoint(), error.kind()), (Endpoint::GetJob, &ErrorKind::Server));
}

#[tokio::test]
async fn ends_of_jobs_and_runs_are_told() {
    let server = Server::start(|request| {
        let ended = |status: &str, conclusion: Value| {
            json!({
                "id": 1, "run_id": 7, "runner_name": "r", "status": status, "conclusion": conclusion, "run_attempt": 2,
                "completed_at": if conclusion.is_null() { Value::Null } else { json!("2027-01-15T08:00:09Z") },
            })
        };
        match request.path.rsplit('/').next().unwrap() {
            "1" => reply(200, &[], &ended("in_progress", Value::Null).to_string()),
            "2" => reply(200, &[], &ended("completed", json!("failure")).to_string()),
            "3" => reply(200, &[], &ended("completed", json!("cancelled")).to_string()),
            "4" => reply(200, &[], &ended("completed", json!("timed_out")).to_string()),
            _ => reply(404, &[], r#"{"message":"Not Found"}"#),
        }
    })
    .await;
    let github = server.client();
    let at = "2027-01-15T08:00:09Z".parse().unwrap();
    for (id, ending) in [(1, None), (2, Some(Ending::Failure)), (3, Some(Ending::Cancelled)), (4, Some(Ending::Other))] {
        let job = github.job_end(&app(), id).await.unwrap().unwrap();
        assert_eq!(job, JobSeen { run: 7, runner: Some("r".to_owned()), ended: ending.map(|ending| (ending, at)) });
        let run = github.run_end(&app(), id).await.unwrap().unwrap();
        assert_eq!(run, RunSeen { attempt: 2, ended: ending });
    }
    assert_eq!((github.job_end(&app(), 5).await.unwrap(), github.run_end(&app(), 5).await.unwrap()), (None, None));
}

#[tokio::test]
async fn job_is_run_again_by_one_request_whose_answer_is_understood() {
    let server = Server::start(|request| match request.path.trim_start_matches("/repos/acme/app/actions/jobs/") {
        "1/rerun" => reply(201, &[], "{}"),
        "2/rerun" => reply(403, &[], r#"{"message":"The workflow run containing this job is already running"}"#),
        "3/rerun" => reply(403, &[], r#"{"message":"This workflow run cannot be retried"}"#),
        "4/rerun" => reply(403, &[], r#"{"message":"Resource not accessible by integration"}"#),
        "5/rerun" => reply(404, &[], r#"{"message":"Not Found"}"#),
        "6/rerun" => reply(502, &[], "<html>"),
        "7/rerun" => reply(403, &[("retry-after", "30")], r#"{"message":"You have exceeded a secondary rate limit."}"#),
        _ => reply(500, &[], ""),
    })
    .await;
    let github = server.client();
    let refused = |words: &str| Some(words.to_owned());
    for (id, expected) in [
        (1, Some(Reply::Accepted)),
        (2, Some(Reply::StillRuns)),
        (3, refused("This workflow run cannot be retried").map(Reply::Refused)),
        (4, refused("Resource not accessible by integration").map(Reply::Refused)),
        (5, refused("Not Found").map(Reply::Refused)),
        (7, None),
    ] {
        assert_eq!(github.rerun_job(&app(), id).await.ok(), expected, "{id}");
    }
    assert_eq!(server.lines().first().map(String::as_str), Some("POST /repos/acme/app/actions/jobs/1/rerun"));
    assert_eq!(server.lines().len(), 6, "each was sent once");
    let lost = server.client().rerun_job(&app(), 6).await.unwrap();
    assert!(matches!(lost, Reply::Lost(_)), "{lost:?}");
}

#[tokio::test]
async fn instances_that_say_less_are_understood() {
    let server = Server::start(|request| match request.path.contains("/jobs") {
        true => reply(200, &[], r#"{"total_count":1,"jobs":[{"id":5,"status":"queued","started_at":"2027-01-15T08:00:05Z"}]}"#),
        false if request.path.contains("queued") => {
            reply(200, &[], r#"{"total_count":1,"workflow_runs":[{"id":1,"name":"CI","status":"queued"}]}"#)
        }
        false => reply(200, &[], r#"{"total_count":0,"workflow_runs":[]}"#),
    })
    .await;
    let listing = server.client().queue(&app()).await.unwrap();
    let [job] = &*listing.jobs else { panic!("{listing:?}") };
    assert_eq!((job.run_id, job.attempt, &*job.workflow, job.labels.len()), (1, 1, "CI", 0));
    assert_eq!(job.created_at.to_string(), "2027-01-15T08:00:05Z");
}
