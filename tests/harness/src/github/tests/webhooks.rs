//! Events as a receiver gets them.

use std::sync::Mutex;

use axum::{Router, routing::post};
use ring::hmac;
use tokio::sync::watch;

use super::{late::late, *};

struct Receiver {
    url: String,
    got: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
    status: watch::Sender<u16>,
    task: tokio::task::JoinHandle<()>,
}

const SECRET: &str = "it is a secret";

impl Receiver {
    async fn start() -> Self {
        let got: Arc<Mutex<Vec<(HeaderMap, Value)>>> = Arc::default();
        let (status, answers) = watch::channel(200_u16);
        let log = Arc::clone(&got);
        let receive = async move |headers: HeaderMap, body: bytes::Bytes| {
            let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), &body);
            assert_eq!(headers["x-hub-signature-256"], format!("sha256={}", hex::encode(signature)));
            log.lock().unwrap().push((headers, serde_json::from_slice(&body).unwrap()));
            StatusCode::from_u16(*answers.borrow()).unwrap()
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let app = Router::new().route("/hook", post(receive));
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, got, status, task }
    }

    fn hook(&self, owner: impl Into<HookOwner>) -> Hook {
        Hook { owner: owner.into(), url: self.url.clone(), secret: SECRET.to_owned() }
    }

    /// Action and job of every event, in order of arrival.
    fn events(&self) -> Vec<(String, u64)> {
        let got = self.got.lock().unwrap();
        let event = |body: &Value| (body["action"].as_str().unwrap().to_owned(), body["workflow_job"]["id"].as_u64().unwrap());
        got.iter().map(|(_, body)| event(body)).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn in_order() -> Delivering {
    Delivering { parallel: 1, ..Delivering::default() }
}

#[tokio::test]
async fn a_jobs_life_is_told_in_signed_events() {
    let (github, receiver) = (github().await, Receiver::start().await);
    github.add_enterprise("corp", &["acme"]);
    github.deliver(in_order());
    let hook = github.add_hook(receiver.hook(app()));
    let job = job(&github);
    let mut session = runner(&github, &app(), "one");
    session.next().await;
    session.finish(job, Conclusion::Success);
    github.queue_job(JobSpec::new("acme/other", ["linux"])).unwrap();
    github.wait_for(SOON, |view| view.deliveries().accepted == 3).await.unwrap();
    let told = ["queued", "in_progress", "completed"].map(|action| (action.to_owned(), job.0));
    assert_eq!(receiver.events(), told, "and nothing of other repositories");
    let got = receiver.got.lock().unwrap().clone();
    let (headers, body) = &got[2];
    assert_eq!(headers["x-github-event"], "workflow_job");
    assert_eq!(headers["x-github-hook-id"], hook.to_string());
    assert_eq!((&body["workflow_job"]["conclusion"], &body["workflow_job"]["runner_name"]), (&"success".into(), &"one".into()));
    assert_eq!((&body["organization"]["login"], &body["enterprise"]["slug"]), (&"acme".into(), &"corp".into()));
    assert_eq!(
        (&body["repository"]["full_name"], &body["repository"]["owner"]["type"]),
        (&"acme/app".into(), &"Organization".into())
    );
    assert_eq!(got[0].1["workflow_job"]["runner_id"], Value::Null);
    let guids: std::collections::BTreeSet<_> =
        got.iter().map(|(headers, _)| headers["x-github-delivery"].to_str().unwrap()).collect();
    assert_eq!(guids.len(), 3);
    github.ping(hook);
    github.wait_for(SOON, |view| view.deliveries().accepted == 4).await.unwrap();
    assert_eq!(receiver.got.lock().unwrap()[3].0["x-github-event"], "ping");
    github.stop().await;
}

#[tokio::test]
async fn hooks_hear_of_their_scope() {
    let (github, receiver) = (github().await, Receiver::start().await);
    github.add_enterprise("corp", &["acme"]);
    github.add_app(7);
    github.install_app(7, Installation::new(70, "acme").with_repositories(["app"]));
    let organization = github.add_hook(receiver.hook(Scope::organization("Acme")));
    let enterprise = github.add_hook(receiver.hook(Scope::enterprise("corp")));
    let by_app = github.add_hook(receiver.hook(HookOwner::App(7)));
    github.add_hook(receiver.hook(Scope::organization("else")));
    for repository in ["acme/app", "acme/other"] {
        github.queue_job(JobSpec::new(repository, ["linux"])).unwrap();
    }
    github.wait_for(SOON, |view| view.deliveries().accepted == 5).await.unwrap();
    let mut hooks: Vec<(HookId, Option<u64>)> = github.deliveries().iter().map(|it| (it.hook, it.installation)).collect();
    hooks.sort();
    assert_eq!(hooks, [(organization, None), (organization, None), (enterprise, None), (enterprise, None), (by_app, Some(70))]);
    let got = receiver.got.lock().unwrap().clone();
    assert_eq!(got.iter().filter(|(_, body)| body["installation"]["id"] == 70).count(), 1);
    github.remove_hook(organization);
    github.queue_job(JobSpec::new("acme/other", ["linux"])).unwrap();
    github.wait_for(SOON, |view| view.deliveries().accepted == 6).await.unwrap();
    github.stop().await;
}

#[tokio::test]
async fn events_are_doubled_dropped_delayed_and_reordered() {
    let (github, receiver) = (github().await, Receiver::start().await);
    github.add_hook(receiver.hook(app()));
    let queue = |count: usize| (0..count).map(|_| job(&github).0).collect::<Vec<_>>();
    let arrived = |receiver: &Receiver| {
        std::mem::take(&mut *receiver.got.lock().unwrap())
            .iter()
            .map(|(_, body)| body["workflow_job"]["id"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    let settle = async || github.wait_for(SOON, |view| view.deliveries().pending == 0).await.unwrap();

    github.deliver(Delivering { duplicate_every: Some(3), ..in_order() });
    let jobs = queue(3);
    settle().await;
    assert_eq!(arrived(&receiver), [jobs[0], jobs[1], jobs[2], jobs[2]]);

    github.deliver(Delivering { drop_every: Some(2), ..in_order() });
    let jobs = queue(4);
    settle().await;
    let got = arrived(&receiver);
    assert_eq!(got.len(), 2);
    let failed: Vec<Delivery> = github.deliveries().into_iter().filter(|it| it.status == 502).collect();
    assert!(failed.iter().all(|it| jobs.contains(&it.job_id().unwrap().0) && !got.contains(&it.job_id().unwrap().0)));
    assert_eq!(failed.len(), 2);

    let delay = Duration::from_millis(30);
    github.deliver(Delivering { delay, reorder_within: 10, ..in_order() });
    let (begun, jobs) = (Instant::now(), queue(20));
    settle().await;
    assert!(begun.elapsed() >= delay);
    let mut got = arrived(&receiver);
    assert_ne!(got, jobs);
    got.sort_unstable();
    assert_eq!(got, jobs, "each arrives once all the same");
    github.stop().await;
}

#[tokio::test]
async fn failed_deliveries_are_listed_and_delivered_again() {
    let (github, receiver) = (github().await, Receiver::start().await);
    github.deliver(in_order());
    let hook = github.add_hook(receiver.hook(app()));
    receiver.status.send(503).unwrap();
    let jobs: Vec<JobId> = (0..5).map(|_| job(&github)).collect();
    github.wait_for(SOON, |view| view.deliveries().failed == 5).await.unwrap();
    receiver.status.send(202).unwrap();
    let api = Api::of(&github);
    let (mut seen, mut next) = (Vec::new(), Some(format!("repos/acme/app/hooks/{hook}/deliveries?per_page=2")));
    while let Some(path) = next {
        let reply = api.get(&path).await;
        seen.extend(reply.json().as_array().unwrap().clone());
        next = reply.link("next");
    }
    assert_eq!(seen.len(), 5);
    assert!(seen.iter().all(|it| it["status_code"] == 503 && it["action"] == "queued" && it["redelivery"] == false));
    let (oldest, base) = (&seen[4], format!("repos/acme/app/hooks/{hook}/deliveries"));
    let detail = api.get(&format!("{base}/{}", oldest["id"])).await.json();
    assert_eq!(detail["request"]["payload"]["workflow_job"]["id"].as_u64(), Some(jobs[0].0));
    assert_eq!(detail["request"]["headers"]["x-github-delivery"], oldest["guid"]);
    assert_eq!(api.post(&format!("{base}/{}/attempts", oldest["id"])).await.status, StatusCode::ACCEPTED);
    github.wait_for(SOON, |view| view.deliveries().accepted == 1).await.unwrap();
    let newest = &api.get(&format!("{base}?redelivery=true")).await.json()[0];
    assert_eq!((&newest["guid"], &newest["status_code"]), (&oldest["guid"], &202.into()));
    {
        let got = receiver.got.lock().unwrap();
        assert_eq!((got[5].0["x-github-delivery"].to_str().unwrap(), &got[5].1), (oldest["guid"].as_str().unwrap(), &got[0].1));
    }
    assert_eq!(api.post(&format!("{base}/1/attempts")).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.get("repos/acme/app/hooks/1/deliveries").await.status, StatusCode::NOT_FOUND);
    github.stop().await;
}

#[tokio::test]
async fn hooks_are_listed_where_they_are_registered() {
    let github = github().await;
    let add = |owner: HookOwner, url: &str| github.add_hook(Hook { owner, url: url.to_owned(), secret: "s".to_owned() });
    let ours = add(app().into(), "http://127.0.0.1:1/ours");
    let theirs = add(Scope::organization("ACME").into(), "http://127.0.0.1:1/theirs");
    add(HookOwner::App(7), "http://127.0.0.1:1/app");
    let api = Api::of(&github);
    for (path, id, kind, url) in [
        ("repos/acme/app/hooks", ours, "Repository", "http://127.0.0.1:1/ours"),
        ("orgs/acme/hooks?per_page=100", theirs, "Organization", "http://127.0.0.1:1/theirs"),
    ] {
        let hooks = api.get(path).await.json();
        let [hook] = hooks.as_array().unwrap().as_slice() else { panic!("{hooks}") };
        assert_eq!((hook["id"].as_u64(), &hook["type"], &hook["config"]["url"]), (Some(id.0), &kind.into(), &url.into()));
        assert_ne!(hook["config"]["secret"], "s", "secrets are never shown");
    }
    for _ in 0..3 {
        add(app().into(), "http://127.0.0.1:1/more");
    }
    let first = api.get("repos/acme/app/hooks?per_page=3").await;
    let second = api.get(&first.link("next").unwrap()).await;
    assert_eq!((first.json().as_array().unwrap().len(), second.json().as_array().unwrap().len()), (3, 1));
    let stranger = github.add_pat(Person::admin("ann").with_scopes(["repo"]));
    let refused = Api::with(&github, &format!("Bearer {stranger}")).get("orgs/acme/hooks").await;
    assert_eq!((refused.status, refused.header("x-accepted-oauth-scopes")), (StatusCode::FORBIDDEN, "admin:org_hook"));
    github.stop().await;
}

#[tokio::test]
async fn an_unreachable_receiver_fails_a_delivery() {
    let github = github().await;
    github.add_hook(Hook { owner: app().into(), url: "http://127.0.0.1:1/".into(), secret: String::new() });
    job(&github);
    github.wait_for(SOON, |view| view.deliveries().failed == 1).await.unwrap();
    assert_eq!(github.deliveries()[0].status, 502);
    github.stop().await;
}

#[tokio::test]
async fn events_are_late_by_different_times_and_overtake_each_other() {
    let tail = Tail { median: Duration::from_millis(30), longest: Duration::from_millis(300) };
    let (github, receiver) = (late(|behaviour| behaviour.events_late = tail).await, Receiver::start().await);
    github.add_hook(receiver.hook(app()));
    let jobs: Vec<JobId> = (0..20).map(|_| job(&github)).collect();
    github.wait_for(SOON, |view| view.deliveries().accepted == 20).await.unwrap();
    let mut arrived: Vec<JobId> = receiver.events().into_iter().map(|(_, id)| JobId(id)).collect();
    assert_ne!(arrived, jobs);
    arrived.sort_unstable();
    assert_eq!(arrived, jobs, "each arrives once");
    github.stop().await;
}

#[tokio::test]
async fn an_event_that_is_asked_for_again_comes_after_newer_ones() {
    let late_by = Duration::from_millis(200);
    let (github, receiver) = (late(|behaviour| behaviour.redelivery_late = late_by..=late_by).await, Receiver::start().await);
    github.add_hook(receiver.hook(app()));
    let old = job(&github);
    github.wait_for(SOON, |view| view.deliveries().accepted == 1).await.unwrap();
    github.redeliver(github.deliveries()[0].id).unwrap();
    let new = job(&github);
    github.wait_for(SOON, |view| view.deliveries().accepted == 3).await.unwrap();
    assert_eq!(receiver.events(), [old, new, old].map(|id| ("queued".to_owned(), id.0)));
    github.stop().await;
}

#[tokio::test]
async fn a_job_that_waits_for_an_approval_is_told_three_times() {
    let (github, receiver) = (late(|behaviour| behaviour.waiting_twice_queued = true).await, Receiver::start().await);
    github.deliver(in_order());
    github.add_hook(receiver.hook(app()));
    let id = github.queue_job(JobSpec::new("acme/app", ["self-hosted"]).held(Hold::Approval)).unwrap();
    assert!(github.release_job(id));
    github.queue_job(JobSpec::new("acme/app", ["self-hosted"]).held(Hold::Concurrency)).unwrap();
    github.wait_for(SOON, |view| view.deliveries().accepted == 3).await.unwrap();
    let told: Vec<(Value, Value)> = {
        let got = receiver.got.lock().unwrap();
        got.iter().map(|(_, body)| (body["action"].clone(), body["workflow_job"]["status"].clone())).collect()
    };
    let expected = [("queued", "waiting"), ("waiting", "waiting"), ("queued", "queued")];
    assert_eq!(told, expected.map(|(action, status)| (action.into(), status.into())));
    assert_eq!(github.deviations(), Vec::<String>::new());
    github.stop().await;
}
