//! The answers against GitHub's own description of them.

use serde_json::json;

use super::{
    super::{
        conformance::{Instance, answer_faults, event_faults, request_faults},
        payload,
    },
    *,
};

const RUNNERS: &str = "GET /repos/{owner}/{repo}/actions/runners";

#[test]
fn the_check_finds_wrong_answers() {
    for instance in [Instance::Cloud, Instance::Server] {
        let faults = |status, body: &Value| answer_faults(instance, RUNNERS, status, body.to_string().as_bytes());
        assert_eq!(faults(200, &json!({"total_count": 0, "runners": []})), Vec::<String>::new());
        assert_eq!(faults(403, &json!({"message": "Forbidden"})), Vec::<String>::new());
        for (status, bad) in [
            (200, json!({"total_count": 0})),
            (200, json!({"total_count": "0", "runners": []})),
            (200, json!({"total_count": 1, "runners": [{"id": 1}]})),
            (200, json!([])),
            (201, json!({"total_count": 0, "runners": []})),
            (404, json!("Not Found")),
        ] {
            assert_ne!(faults(status, &bad), Vec::<String>::new(), "{status} {bad}");
        }
        assert_ne!(answer_faults(instance, RUNNERS, 200, b"<html>"), Vec::<String>::new());
        assert_ne!(answer_faults(instance, RUNNERS, 304, b"{}"), Vec::<String>::new());
    }
    assert_ne!(event_faults(Instance::Cloud, "queued", &json!({"action": "queued"})), Vec::<String>::new());
}

#[test]
fn the_check_finds_wrong_requests() {
    let faults = |method: Method, template: &str, uri: &str| {
        request_faults(Instance::Cloud, &method, template, &uri.parse().unwrap(), false)
    };
    let (repository, runners) = ("/repos/{owner}/{repo}", "/repos/{owner}/{repo}/actions/runners");
    let right = [
        (Method::GET, runners.to_owned(), "/repos/acme/app/actions/runners?per_page=100&page=2"),
        (Method::GET, format!("{repository}/actions/runs"), "/repos/acme/app/actions/runs?status=queued&per_page=100"),
        (Method::GET, "/app/hook/deliveries".to_owned(), "/app/hook/deliveries?cursor=v1_9"),
    ];
    for (method, template, uri) in right {
        assert_eq!(faults(method, &template, uri), Vec::<String>::new(), "{uri}");
    }
    let wrong = [
        (Method::GET, String::new(), "/nowhere"),
        (Method::PUT, runners.to_owned(), "/repos/acme/app/actions/runners"),
        (Method::GET, runners.to_owned(), "/repos/acme/app/actions/runners?pagesize=3"),
        (Method::GET, runners.to_owned(), "/repos/acme/app/actions/runners?per_page=many"),
        (Method::GET, format!("{repository}/actions/runs"), "/repos/acme/app/actions/runs?status=sleeping"),
    ];
    for (method, template, uri) in wrong {
        assert_ne!(faults(method, &template, uri), Vec::<String>::new(), "{uri}");
    }
}

/// What is wrong is found while it happens, and told.
#[tokio::test]
async fn deviations_are_collected() {
    let github = github().await;
    let api = Api::of(&github);
    api.try_send(Method::GET, "repos/acme/app/actions/runners?per_page=100", None).await.unwrap();
    assert_eq!(github.deviations(), Vec::<String>::new());
    for path in ["repos/acme/app/actions/runners?pagesize=3", "repos/acme/app/dreams"] {
        api.try_send(Method::GET, path, None).await.unwrap();
    }
    let deviations = github.deviations();
    assert!(
        matches!(deviations.as_slice(), [one, other] if one.contains("pagesize") && other.contains("dreams")),
        "{deviations:?}"
    );
    github.stop().await;
}

#[tokio::test]
async fn every_answer_has_githubs_shape() {
    let github = github().await;
    github.add_enterprise("corp", &["acme"]);
    github.add_app(7);
    assert!(github.install_app(7, Installation::new(70, "acme")));
    github.add_group(&Scope::organization("acme"), "some", GroupVisibility::Selected(["app".to_owned()].into()));
    let hook = github.add_hook(Hook { owner: app().into(), url: "http://127.0.0.1:1/".into(), secret: "s".into() });
    let mut session = runner(&github, &app(), "one");
    let _other = runner(&github, &Scope::organization("acme"), "two");
    let _third = runner(&github, &Scope::enterprise("corp"), "three");
    let done = job(&github);
    session.finish(done, Conclusion::TimedOut);
    let running = job(&github);
    let queued = github.queue_job(JobSpec::new("acme/app", ["absent"])).unwrap();
    assert_eq!((github.jobs().in_progress, github.jobs().queued), (1, 1));
    github.ping(hook);
    github.wait_for(SOON, |view| view.deliveries().failed == 7).await.unwrap();
    let run = |id| github.job(id).unwrap().run;
    let delivery = github.deliveries().into_iter().find(|it| it.job.is_some()).unwrap().id;
    let runner = github.registrations(&Scope::organization("acme"))[0].id;

    github.add_hook(Hook { owner: HookOwner::App(7), url: "http://127.0.0.1:1/".into(), secret: String::new() });
    let (api, as_app) = (Api::of(&github), Api::with(&github, &format!("Bearer {}", api::jwt(7, -10, 300))));
    let checks = [
        (&api, Method::POST, "repos/acme/app/actions/runners/registration-token".to_owned()),
        (&api, Method::POST, "orgs/acme/actions/runners/registration-token".to_owned()),
        (&api, Method::POST, "enterprises/corp/actions/runners/registration-token".to_owned()),
        (&api, Method::POST, "repos/acme/app/actions/runners/remove-token".to_owned()),
        (&api, Method::GET, "repos/acme/app/actions/runners".to_owned()),
        (&api, Method::GET, "orgs/acme/actions/runners".to_owned()),
        (&api, Method::GET, "enterprises/corp/actions/runners".to_owned()),
        (&api, Method::GET, format!("orgs/acme/actions/runners/{runner}")),
        (&api, Method::GET, "repos/acme/app/actions/runners/downloads".to_owned()),
        (&api, Method::GET, "orgs/acme/actions/runners/downloads".to_owned()),
        (&api, Method::GET, "orgs/acme/actions/runner-groups".to_owned()),
        (&api, Method::GET, "enterprises/corp/actions/runner-groups".to_owned()),
        (&api, Method::GET, "repos/acme/app/actions/runs".to_owned()),
        (&api, Method::GET, format!("repos/acme/app/actions/runs/{}/jobs", run(done))),
        (&api, Method::GET, format!("repos/acme/app/actions/runs/{}/jobs", run(running))),
        (&api, Method::GET, format!("repos/acme/app/actions/runs/{}/jobs", run(queued))),
        (&api, Method::POST, format!("repos/acme/app/actions/jobs/{done}/rerun")),
        (&api, Method::GET, format!("repos/acme/app/commits/{}/check-runs?check_name=x&filter=all", payload::COMMIT)),
        (&as_app, Method::GET, "repos/acme/app/installation".to_owned()),
        (&as_app, Method::GET, "app/installations".to_owned()),
        (&as_app, Method::GET, "app/installations/70".to_owned()),
        (&as_app, Method::POST, "app/installations/70/access_tokens".to_owned()),
        (&api, Method::GET, format!("repos/acme/app/hooks/{hook}/deliveries")),
        (&api, Method::GET, format!("repos/acme/app/hooks/{hook}/deliveries/{delivery}")),
        (&api, Method::POST, format!("repos/acme/app/hooks/{hook}/deliveries/{delivery}/attempts")),
        (&api, Method::GET, "rate_limit".to_owned()),
        (&api, Method::GET, "repos/acme/app/hooks".to_owned()),
        (&as_app, Method::GET, "app/hook/config".to_owned()),
        (&as_app, Method::GET, "app/hook/deliveries".to_owned()),
    ];
    for (api, method, path) in checks {
        let reply = api.try_send(method, &path, None).await.unwrap();
        assert!(reply.status.is_success(), "{path}: {} {}", reply.status, reply.message());
        assert_eq!(github.deviations(), Vec::<String>::new(), "{path}");
    }
    let runners = api.get("enterprises/corp/actions/runners").await.json();
    assert_eq!(runners["runners"][0]["labels"][0], json!({"id": 1, "name": "self-hosted", "type": "read-only"}));

    for event in github.deliveries() {
        if let Some(action) = event.action {
            let body = github
                .with(|state| payload::job_event(&state.origin, &state.accounts, &event, state.accounts.find(&app()).unwrap()));
            assert_eq!(event_faults(Instance::Cloud, action.as_str(), &body), Vec::<String>::new());
        }
    }
    github.stop().await;
}
