//! Who may ask for what, and what is answered.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use serde_json::json;

use super::*;

/// A token of App `id` that was issued `issued` seconds from now and expires `expires` seconds from now.
pub(super) fn jwt(id: u64, issued: i64, expires: i64) -> String {
    let now = jiff::Timestamp::now().as_second();
    sign(&json!({"alg": "RS256", "typ": "JWT"}), &json!({"iss": id.to_string(), "iat": now + issued, "exp": now + expires}))
}

fn sign(header: &Value, claims: &Value) -> String {
    let base64: String = APP_PRIVATE_KEY.lines().filter(|line| !line.starts_with("-----")).collect();
    let key = RsaKeyPair::from_der(&STANDARD.decode(base64).unwrap()).unwrap();
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", encode(header), encode(claims));
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).unwrap();
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[tokio::test]
async fn callers_are_identified_or_refused() {
    let github = github().await;
    github.add(&app());
    github.add_password(Person::admin("proxy"), "pass:word");
    let path = "repos/acme/app/actions/runners";
    let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
    let cases = [
        (format!("Bearer {}", github.pat()), 200, "user octocat"),
        (format!("token {}", github.pat()), 200, "user octocat"),
        (basic("proxy:pass:word"), 200, "user proxy"),
        (basic(&format!("anybody:{}", github.pat())), 200, "user octocat"),
        (basic("proxy:wrong"), 401, "Bad credentials"),
        ("Bearer ghp_nonsense".to_owned(), 401, "Bad credentials"),
        ("Bearer ghs_nonsense".to_owned(), 401, "Bad credentials"),
        ("Bearer a.b.c".to_owned(), 401, "A JSON web token could not be decoded"),
        ("Digest x".to_owned(), 401, "Requires authentication"),
    ];
    for (authorization, status, expected) in cases {
        let reply = Api::with(&github, &authorization).get(path).await;
        assert_eq!(reply.status.as_u16(), status, "{authorization}");
        let said = if status == 200 { github.calls().last().unwrap().caller.clone() } else { reply.message() };
        assert_eq!(said, expected);
    }
    let anonymous = Api { authorization: None, ..Api::of(&github) };
    assert_eq!(anonymous.get(path).await.message(), "Requires authentication");
    github.revoke(github.pat());
    assert_eq!(Api::of(&github).get(path).await.status, StatusCode::UNAUTHORIZED);
    github.stop().await;
}

#[tokio::test]
async fn apps_prove_themselves_by_signature_and_time() {
    let github = github().await;
    github.add_app(7);
    github.install_app(7, Installation::new(70, "acme"));
    let now = jiff::Timestamp::now().as_second();
    let rs256 = json!({"alg": "RS256"});
    let claims = |iss: Value, iat: i64, exp: i64| json!({"iss": iss, "iat": now + iat, "exp": now + exp});
    let forged = jwt(7, -10, 300).replace("eyJh", "eyJi");
    let (good, other_body) = (jwt(7, -10, 300), jwt(7, -10, 200));
    let swapped = {
        let signature = other_body.rsplit_once('.').unwrap().1;
        format!("{}.{signature}", good.rsplit_once('.').unwrap().0)
    };
    let cases = [
        (good.clone(), 200, ""),
        (sign(&rs256, &claims(json!(7), -60, 540)), 200, ""),
        (swapped, 401, "A JSON web token could not be decoded"),
        (forged, 401, "A JSON web token could not be decoded"),
        (sign(&json!({"alg": "none"}), &claims(json!(7), 0, 60)), 401, "A JSON web token could not be decoded"),
        (sign(&rs256, &claims(json!(8), 0, 60)), 404, "Integration not found"),
        (sign(&rs256, &claims(json!("seven"), 0, 60)), 401, "'Issuer' claim ('iss') must be an Integer"),
        (
            sign(&rs256, &claims(json!(7), 120, 300)),
            401,
            "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
        ),
        (
            sign(&rs256, &claims(json!(7), -700, -100)),
            401,
            "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires",
        ),
        (sign(&rs256, &claims(json!(7), 0, 900)), 401, "'Expiration time' claim ('exp') is too far in the future"),
    ];
    for (index, (token, status, message)) in cases.into_iter().enumerate() {
        let reply = Api::with(&github, &format!("Bearer {token}")).get("orgs/acme/installation").await;
        assert_eq!(reply.status.as_u16(), status, "case {index}");
        if status != 200 {
            assert_eq!(reply.message(), message, "case {index}");
        }
    }
    let as_app = Api::with(&github, &format!("Bearer {good}"));
    let found = as_app.get("orgs/acme/installation").await.json();
    assert_eq!((&found["id"], &found["account"]["login"]), (&json!(70), &json!("acme")));
    assert_eq!(as_app.get("orgs/absent/installation").await.status, StatusCode::NOT_FOUND);
    assert_eq!(as_app.post("app/installations/71/access_tokens").await.status, StatusCode::NOT_FOUND);
    assert_eq!(Api::of(&github).get("orgs/acme/installation").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(as_app.get("orgs/acme/actions/runners").await.message(), "Resource not accessible by integration");
    github.stop().await;
}

#[tokio::test]
async fn installation_tokens_live_for_a_while() {
    let github = github().await;
    github.add_app(7);
    github.install_app(7, Installation::new(70, "acme"));
    let as_app = Api::with(&github, &format!("Bearer {}", jwt(7, -10, 300)));
    let issue = async || {
        let reply = as_app.post("app/installations/70/access_tokens").await;
        assert_eq!(reply.status, StatusCode::CREATED);
        let body = reply.json();
        let expires: jiff::Timestamp = body["expires_at"].as_str().unwrap().parse().unwrap();
        let life = expires.duration_since(jiff::Timestamp::now()).as_secs();
        assert!((3500..=3600).contains(&life), "{life}");
        Api::with(&github, &format!("Bearer {}", body["token"].as_str().unwrap()))
    };
    let (first, path) = (issue().await, "orgs/acme/actions/runners");
    assert_eq!(first.get(path).await.status, StatusCode::OK);
    github.expire_installation_tokens();
    assert_eq!(first.get(path).await.message(), "Bad credentials");
    let second = issue().await;
    assert_eq!(second.get(path).await.status, StatusCode::OK);
    github.install_app(7, Installation { suspended: true, ..Installation::new(70, "acme") });
    assert_eq!(second.get(path).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(as_app.post("app/installations/70/access_tokens").await.status, StatusCode::FORBIDDEN);
    github.uninstall_app(70);
    assert_eq!(as_app.post("app/installations/70/access_tokens").await.status, StatusCode::NOT_FOUND);
    github.stop().await;
}

#[tokio::test]
async fn rights_decide_what_is_seen_and_done() {
    let github = github().await;
    github.add_enterprise("corp", &["acme"]);
    github.add(&app());
    github.add(&Scope::repository("acme", "other"));
    github.add(&Scope::organization("hidden"));
    github.add_app(7);
    let read = Installation::new(70, "acme")
        .with_repositories(["APP"])
        .with_permissions([("administration", Access::Read), ("organization_self_hosted_runners", Access::Write)]);
    github.install_app(7, read);
    let as_app = Api::with(&github, &format!("Bearer {}", jwt(7, -10, 300)));
    let token = as_app.post("app/installations/70/access_tokens").await.json()["token"].as_str().unwrap().to_owned();
    let repo_only = github.add_pat(Person::admin("hubot").with_scopes(["repo"]));
    let insider = github.add_pat(Person::admin("insider").seeing([Scope::organization("ACME")]));
    let list = |at: &str| (Method::GET, format!("{at}/actions/runners"));
    let token_of = |at: &str| (Method::POST, format!("{at}/actions/runners/registration-token"));
    let cases = [
        (&token, list("repos/acme/app"), 200),
        (&token, token_of("repos/acme/app"), 403),
        (&token, list("repos/acme/other"), 404),
        (&token, token_of("orgs/acme"), 201),
        (&token, list("orgs/hidden"), 404),
        (&token, list("enterprises/corp"), 404),
        (&token, (Method::GET, "repos/acme/app/actions/runs".to_owned()), 403),
        (&repo_only, token_of("repos/acme/app"), 201),
        (&repo_only, list("orgs/acme"), 403),
        (&repo_only, list("enterprises/corp"), 403),
        (&repo_only, (Method::GET, "repos/acme/app/actions/runs?status=queued".to_owned()), 200),
        (&insider, list("repos/acme/app"), 200),
        (&insider, list("orgs/acme"), 200),
        (&insider, list("orgs/hidden"), 404),
        (&insider, list("enterprises/corp"), 404),
        (&insider, list("repos/acme/absent"), 404),
        (&insider, (Method::GET, "repos/acme/app/unheard-of".to_owned()), 404),
    ];
    for (token, (method, path), status) in cases {
        let reply = Api::with(&github, &format!("Bearer {token}")).try_send(method, &path, None).await.unwrap();
        assert_eq!(reply.status.as_u16(), status, "{path}: {}", String::from_utf8_lossy(&reply.body));
        match status {
            403 if *token == repo_only => {
                assert_eq!(reply.header("x-oauth-scopes"), "repo");
                assert!(!reply.header("x-accepted-oauth-scopes").is_empty());
            }
            403 => assert_eq!(reply.message(), "Resource not accessible by integration"),
            404 => assert_eq!(reply.message(), "Not Found"),
            _ => {}
        }
    }
    github.stop().await;
}

#[tokio::test]
async fn runner_tokens_are_new_each_time_and_work_for_their_scope() {
    let github = github().await;
    github.add(&app());
    github.add(&Scope::organization("acme"));
    let api = Api::of(&github);
    let issue = async |path: &str| {
        let reply = api.post(path).await;
        assert_eq!(reply.status, StatusCode::CREATED);
        let expires: jiff::Timestamp = reply.json()["expires_at"].as_str().unwrap().parse().unwrap();
        let life = expires.duration_since(jiff::Timestamp::now()).as_secs();
        assert!((3500..=3600).contains(&life), "{life}");
        reply.json()["token"].as_str().unwrap().to_owned()
    };
    let first = issue("repos/acme/app/actions/runners/registration-token").await;
    let second = issue("repos/acme/app/actions/runners/registration-token").await;
    let removal = issue("repos/acme/app/actions/runners/remove-token").await;
    let organization = issue("orgs/acme/actions/runners/registration-token").await;
    assert_ne!(first, second);
    let request = |token: &str| Registration { token: token.to_owned(), ..registration(&github, &app(), "one") };
    for wrong in [&removal, &organization] {
        assert_eq!(github.register(request(wrong)).unwrap_err(), RegistrationRefused::NotFound);
    }
    let mut session = github.register(request(&first)).unwrap();
    assert_eq!(session.remove(&removal), Ok(()));
    let mut session = github.register(request(&second)).unwrap();
    assert_eq!(session.remove(&second), Ok(()), "a registration token removes too");
    github.stop().await;
}

#[tokio::test]
async fn listings_come_in_pages_with_links_to_follow() {
    let github = github().await;
    let sessions: Vec<Session> = (0..250).map(|index| runner(&github, &app(), &format!("runner-{index}"))).collect();
    for base in [github.api_url(), github.enterprise_api_url()] {
        let api = Api { base: base.clone(), ..Api::of(&github) };
        let (mut seen, mut next) = (Vec::new(), Some("repos/acme/app/actions/runners?per_page=100".to_owned()));
        while let Some(path) = next {
            let reply = api.get(&path).await;
            let body = reply.json();
            assert_eq!(body["total_count"], 250);
            seen.extend(body["runners"].as_array().unwrap().iter().map(|it| RunnerId(it["id"].as_u64().unwrap())));
            next = reply.link("next");
            assert!(next.as_ref().is_none_or(|next| next.starts_with(&format!("{base}repositories/"))), "{next:?}");
        }
        assert_eq!(seen, sessions.iter().map(Session::runner_id).collect::<Vec<_>>());
    }
    let api = Api::of(&github);
    let sizes = [
        ("", 30),
        ("?per_page=1000", 100),
        ("?per_page=100&page=3", 50),
        ("?page=99", 0),
        ("?name=RUNNER-7", 1),
        ("?name=runner", 0),
    ];
    for (query, size) in sizes {
        let body = api.get(&format!("repos/acme/app/actions/runners{query}")).await.json();
        assert_eq!(body["runners"].as_array().unwrap().len(), size, "{query}");
    }
    assert_eq!(github.count(RouteKind::ListRunners).requests, 12);
    github.stop().await;
}

#[tokio::test]
async fn deletion_follows_the_truth() {
    let github = github().await;
    let mut idle = runner(&github, &app(), "idle");
    let busy = runner(&github, &app(), "busy");
    github.add(&Scope::repository("acme", "other"));
    let running = job(&github);
    let mut busy = if github.job(running).unwrap().runner.unwrap().id == idle.runner_id() {
        std::mem::replace(&mut idle, busy)
    } else {
        busy
    };
    let api = Api::of(&github);
    let path = |id: RunnerId| format!("repos/acme/app/actions/runners/{id}");
    github.show_busy(busy.runner_id(), false);
    assert_eq!(api.get(&path(busy.runner_id())).await.json()["busy"], false, "the flag lies");
    let refused = api.delete(&path(busy.runner_id())).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.message().contains("is still running a job"), "{}", refused.message());
    github.show_busy(idle.runner_id(), true);
    let elsewhere = format!("repos/acme/other/actions/runners/{}", idle.runner_id());
    assert_eq!(api.delete(&elsewhere).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.delete(&path(idle.runner_id())).await.status, StatusCode::NO_CONTENT);
    assert_eq!(idle.next().await, Event::Removed);
    assert_eq!(api.delete(&path(idle.runner_id())).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.get(&path(idle.runner_id())).await.status, StatusCode::NOT_FOUND);
    assert_eq!((github.busy_deletes_refused(), github.runners().deleted), (1, 1));
    assert!(matches!(busy.next().await, Event::Job { .. }));
    assert!(busy.finish(running, Conclusion::Success));
    github.stop().await;
}

#[tokio::test]
async fn runs_and_jobs_show_what_waits_and_what_runs() {
    let github = github().await;
    let first = github.queue_job(JobSpec::new("acme/app", ["linux"])).unwrap();
    let run = github.job(first).unwrap().run;
    let second = github.queue_job(JobSpec::new("acme/app", ["gpu"]).in_run(run)).unwrap();
    let alone = github.queue_job(JobSpec::new("acme/app", ["gpu"])).unwrap();
    let api = Api::of(&github);
    let runs = async |status: &str| {
        let body = api.get(&format!("repos/acme/app/actions/runs?status={status}&per_page=100")).await.json();
        let runs = body["workflow_runs"].as_array().unwrap();
        assert_eq!(body["total_count"].as_u64().unwrap(), runs.len() as u64);
        runs.iter().map(|run| RunId(run["id"].as_u64().unwrap())).collect::<Vec<_>>()
    };
    let other = github.job(alone).unwrap().run;
    assert_eq!((runs("queued").await, runs("in_progress").await), (vec![other, run], vec![]));
    let mut session = runner(&github, &app(), "one");
    session.next().await;
    assert_eq!((runs("queued").await, runs("in_progress").await), (vec![other], vec![run]));
    let jobs = api.get(&format!("repos/acme/app/actions/runs/{run}/jobs?per_page=50")).await.json();
    let states: Vec<(u64, &str)> = jobs["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| (job["id"].as_u64().unwrap(), job["status"].as_str().unwrap()))
        .collect();
    assert_eq!(states, [(first.0, "in_progress"), (second.0, "queued")]);
    assert_eq!(jobs["jobs"][0]["runner_name"], "one");
    session.finish(first, Conclusion::Success);
    assert_eq!(runs("in_progress").await, [run], "one of its jobs waits still");
    github.cancel_job(second);
    assert_eq!((runs("in_progress").await, runs("completed").await, runs("waiting").await), (vec![], vec![run], vec![]));
    assert_eq!(api.get(&format!("repos/acme/app/actions/runs/{run}")).await.json()["conclusion"], "cancelled");
    assert_eq!(api.get(&format!("repos/acme/app/actions/jobs/{first}")).await.json()["conclusion"], "success");
    assert_eq!(api.get("repos/acme/app/actions/runs/1/jobs").await.status, StatusCode::NOT_FOUND);
    github.stop().await;
}

#[tokio::test]
async fn groups_are_listed_by_whom_they_serve() {
    let github = github().await;
    github.add_enterprise("corp", &["acme"]);
    github.add(&app());
    github.add(&Scope::repository("acme", "other"));
    let org = Scope::organization("acme");
    github.add_group(&org, "app only", GroupVisibility::Selected(["app".to_owned()].into()));
    github.add_group(&Scope::enterprise("corp"), "shared", GroupVisibility::Selected(["acme".to_owned()].into()));
    github.add_group(&Scope::enterprise("corp"), "foreign", GroupVisibility::Selected(["else".to_owned()].into()));
    let api = Api::of(&github);
    let groups = async |path: &str| {
        let body = api.get(path).await.json();
        let groups = body["runner_groups"].as_array().unwrap().iter();
        groups.map(|it| (it["name"].as_str().unwrap().to_owned(), it["inherited"] == true)).collect::<Vec<_>>()
    };
    let named =
        |names: &[(&str, bool)]| names.iter().map(|(name, inherited)| ((*name).to_owned(), *inherited)).collect::<Vec<_>>();
    let path = "orgs/acme/actions/runner-groups?per_page=100&visible_to_repository=";
    assert_eq!(
        groups(&format!("{path}app")).await,
        named(&[("Default", false), ("app only", false), ("Default", true), ("shared", true)])
    );
    assert_eq!(groups(&format!("{path}other")).await, named(&[("Default", false), ("Default", true), ("shared", true)]));
    assert_eq!(
        groups("enterprises/corp/actions/runner-groups").await,
        named(&[("Default", false), ("shared", false), ("foreign", false)])
    );
    assert_eq!(api.get("repos/acme/app/actions/runner-groups").await.status, StatusCode::NOT_FOUND);
    github.stop().await;
}
