//! GitHub's own example payloads, in every encoding, and whatever else may arrive.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "the helpers of tests fail like tests")]

use std::fmt::Write as _;

use http::{HeaderMap, HeaderValue, StatusCode};
use pacer_github::Secret;
use pacer_github::webhook::{Account, Event, JobAction, Ping, Refusal, SignatureError, Verifier, WorkflowJob, open};
use ring::hmac;
use serde_json::{Value, json};

const SECRET: &str = "swordfish";

fn verifier() -> Verifier {
    Verifier::new(&[Secret::from(SECRET)], false).unwrap()
}

fn examples(event: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(include_str!("examples.json")).unwrap();
    all.into_iter().filter(|example| example["event"] == event).map(|mut example| example["payload"].take()).collect()
}

fn headers(event: &str, content_type: &str, body: &[u8]) -> HeaderMap {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), body);
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("x-github-event", event),
        ("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958"),
        ("x-github-hook-id", "292430182"),
        ("content-type", content_type),
        ("x-hub-signature-256", &format!("sha256={}", hex::encode(tag))),
    ] {
        headers.insert(name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn read(event: &str, payload: &Value) -> Result<Event, Refusal> {
    let body = payload.to_string();
    open(&verifier(), &headers(event, "application/json", body.as_bytes()), body.as_bytes()).map(|delivery| delivery.event)
}

fn job(payload: &Value) -> WorkflowJob {
    match read("workflow_job", payload).unwrap() {
        Event::WorkflowJob(job) => *job,
        other => panic!("{other:?}"),
    }
}

fn form(payload: &Value) -> String {
    payload.to_string().bytes().fold(String::from("payload="), |mut text, byte| {
        if byte.is_ascii_alphanumeric() {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02x}").unwrap();
        }
        text
    })
}

#[test]
fn githubs_examples_of_jobs_say_what_they_say() {
    let jobs: Vec<WorkflowJob> = examples("workflow_job").iter().map(job).collect();
    use JobAction::{Completed, InProgress, Queued, Waiting};
    let facts: Vec<_> = jobs.iter().map(|job| (job.action, job.id, job.runner_id, job.repository.account)).collect();
    let (user, organization) = (Account::User, Account::Organization);
    assert_eq!(
        facts,
        [
            (InProgress, 2_832_853_555, Some(1), organization),
            (Completed, 289_782_451, Some(5), organization),
            (Completed, 289_782_451, Some(5), organization),
            (InProgress, 289_782_451, Some(5), organization),
            (InProgress, 14_541_957_942, Some(6), user),
            (Queued, 289_782_451, Some(5), organization),
            // Announced as queued, with the status of one that waits for an approval.
            (Waiting, 12_877_621_891, None, user),
            (Waiting, 12_877_621_891, None, user),
            (InProgress, 2_832_853_555, Some(1), organization),
        ]
    );
    let first = &jobs[0];
    assert_eq!((first.repository.owner.as_str(), first.repository.name.as_str()), ("octo-org", "example-workflow"));
    assert_eq!((first.labels.join(","), first.runner_name.as_deref()), ("gpu,db-app,dc-03".to_owned(), Some("my runner")));
    assert_eq!((first.attempt, first.workflow.as_str(), first.created_at), (1, "", None), "what old servers leave out");
    let failed = &jobs[1];
    assert_eq!((failed.conclusion.as_deref(), failed.workflow.as_str()), (Some("failure"), "CodeQL"));
    let times = [failed.created_at, failed.started_at, failed.completed_at].map(|at| at.unwrap().to_string());
    assert_eq!(times, ["2021-08-05T10:33:58Z", "2021-08-05T10:34:58Z", "2021-08-05T10:38:16Z"]);
}

#[test]
fn githubs_examples_of_pings_and_other_events_are_read() {
    let pings = examples("ping");
    assert_eq!(pings.len(), 5);
    for ping in &pings {
        assert!(matches!(read("ping", ping).unwrap(), Event::Ping(Ping { hook: Some(_), .. })));
    }
    assert_eq!(examples("push").len(), 1);
    for push in examples("push") {
        assert_eq!(read("push", &push).unwrap(), Event::Other("push".to_owned()));
    }
}

#[test]
fn forms_say_the_same_as_json() {
    for example in examples("workflow_job") {
        let body = form(&example);
        let headers = headers("workflow_job", "application/x-www-form-urlencoded; charset=utf-8", body.as_bytes());
        let delivery = open(&verifier(), &headers, body.as_bytes()).unwrap();
        assert_eq!(delivery.event, Event::WorkflowJob(Box::new(job(&example))));
        assert_eq!((delivery.guid.len(), delivery.hook.as_str()), (36, "292430182"));
        let unescaped = body.replace("%22", "\"");
        let changed = open(&verifier(), &headers, unescaped.as_bytes());
        assert!(matches!(changed, Err(Refusal::Signature(SignatureError::Mismatch))), "the signature is over the raw body");
    }
}

#[test]
fn fields_may_be_absent_null_or_unknown() {
    let small = json!({
        "action": "queued",
        "workflow_job": {"id": 1, "labels": null, "runner_name": "", "started_at": "", "completed_at": null, "new": {"x": []}},
        "repository": {"full_name": "acme/app", "owner": {"login": "acme"}},
        "enterprise": null,
    });
    let job = job(&small);
    assert_eq!((job.labels.len(), job.runner_name, job.started_at, job.enterprise), (0, None, None, None));
    assert_eq!(job.repository.account, Account::Organization);
    let mut corp = small;
    corp["enterprise"] = json!({"slug": "corp", "id": 1});
    corp["action"] = json!("paused");
    corp["repository"]["owner"]["type"] = json!("User");
    let job = self::job(&corp);
    assert_eq!((job.enterprise.as_deref(), job.action, job.repository.account), (Some("corp"), JobAction::Other, Account::User));
}

#[test]
fn repository_without_full_name_is_that_of_its_owner_and_name() {
    let with = |repository: Value| json!({"action": "queued", "workflow_job": {"id": 1}, "repository": repository});
    for full_name in [Value::Null, json!("")] {
        let owner = json!({"login": "acme", "type": "Organization"});
        let job = job(&with(json!({"name": "app", "full_name": full_name, "owner": owner})));
        assert_eq!((job.repository.owner.as_str(), job.repository.name.as_str()), ("acme", "app"));
    }
    let job = job(&with(json!({"name": "app", "owner": {"login": "acme"}})));
    assert_eq!((job.repository.owner.as_str(), job.repository.name.as_str()), ("acme", "app"));
    for repository in [
        json!({"owner": {"login": "acme"}}),
        json!({"name": "app", "owner": {}}),
        json!({"name": "", "owner": {"login": "acme"}}),
        json!({"name": "app/../x", "owner": {"login": "acme"}}),
    ] {
        let refusal = read("workflow_job", &with(repository.clone())).unwrap_err();
        assert_eq!(refusal.status(), StatusCode::UNPROCESSABLE_ENTITY, "{repository}");
        assert!(refusal.to_string().contains("the job's repository is not named"), "{repository}: {refusal}");
    }
}

#[test]
fn a_ping_tells_what_will_come() {
    for (events, expected) in
        [(json!(["push"]), false), (json!(["push", "workflow_job"]), true), (json!(["*"]), true), (json!([]), true)]
    {
        let ping = json!({"zen": "Design for failure.", "hook_id": 7, "hook": {"events": events}});
        let Event::Ping(ping) = read("ping", &ping).unwrap() else { panic!("a ping") };
        assert_eq!((ping.hook, ping.sends_jobs()), (Some(7), expected));
    }
}

#[test]
fn refusals_have_the_status_that_says_so() {
    let body = br#"{"zen": ""}"#;
    let status = |headers: &HeaderMap, body: &[u8]| open(&verifier(), headers, body).unwrap_err().status();
    let good = headers("ping", "application/json", body);
    assert!(open(&verifier(), &good, body).is_ok());
    let with = |name: &'static str, value: &str| {
        let mut headers = good.clone();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        headers
    };
    let mut nameless = good.clone();
    nameless.remove("x-github-event");
    assert_eq!(status(&nameless, body), StatusCode::BAD_REQUEST);
    for other in ["text/plain", "", "application/jsonx", "application"] {
        assert_eq!(status(&with("content-type", other), body), StatusCode::UNSUPPORTED_MEDIA_TYPE, "{other}");
    }
    assert_eq!(status(&with("x-hub-signature-256", "sha256=00"), body), StatusCode::UNAUTHORIZED);
    assert_eq!(status(&with("content-type", "application/x-www-form-urlencoded"), body), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(status(&headers("ping", "application/json", b"{"), b"{"), StatusCode::UNPROCESSABLE_ENTITY);
    for payload in [
        json!({}),
        json!([]),
        json!({"action": "queued", "workflow_job": {"id": -1}, "repository": {"full_name": "acme/app", "owner": {}}}),
        json!({"action": "queued", "workflow_job": {"id": 1}, "repository": {"full_name": "acme", "owner": {}}}),
    ] {
        assert_eq!(read("workflow_job", &payload).unwrap_err().status(), StatusCode::UNPROCESSABLE_ENTITY, "{payload}");
    }
    let mut untyped = good.clone();
    untyped.remove("content-type");
    assert!(open(&verifier(), &untyped, body).is_ok(), "what has no content type is JSON");
}
