//! Every call against a scripted GitHub on a real socket.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Seen, Server, TOKEN, options, organization, page, reply, repository, runner, tagged};
use http::Response;
use pacer_core::scope::Scope;
use pacer_github::{ClientOptions, Credentials, Endpoint, Error, ErrorKind, GitHub, Outcome, Removal, Resource, Secret};

const TOKEN_ANSWER: &str = r#"{"token":"AREGTOKEN","expires_at":"2027-01-15T09:00:00.000+01:00"}"#;

fn calls(github: &GitHub, endpoint: Endpoint, outcome: Outcome) -> u64 {
    github.calls().into_iter().find(|count| count.endpoint == endpoint && count.outcome == outcome).unwrap().calls
}

#[tokio::test]
async fn registration_tokens_for_every_scope() {
    let server = Server::start(|_| reply(201, &[], TOKEN_ANSWER)).await;
    let github = server.client();
    for scope in [repository(), organization(), Scope::Enterprise("corp".into())] {
        let token = github.create_registration_token(&scope).await.unwrap();
        assert_eq!(token.token.expose(), "AREGTOKEN");
        assert_eq!(token.expires_at.to_string(), "2027-01-15T08:00:00Z");
        assert!(!format!("{token:?}").contains("AREGTOKEN"));
    }
    assert_eq!(
        server.lines(),
        [
            "POST /repos/acme/app/actions/runners/registration-token",
            "POST /orgs/acme/actions/runners/registration-token",
            "POST /enterprises/corp/actions/runners/registration-token",
        ]
    );
    let request = &server.seen()[0];
    assert_eq!(request.header("authorization"), format!("Bearer {TOKEN}"));
    assert_eq!(request.header("x-github-api-version"), "2022-11-28");
    assert_eq!(request.header("accept"), "application/vnd.github+json");
    assert!(request.header("user-agent").starts_with("pacer/"));
    assert_eq!(request.body, "");
}

#[tokio::test]
async fn an_api_base_with_a_path_is_kept() {
    let server = Server::start(|_| reply(201, &[], TOKEN_ANSWER)).await;
    let endpoints = pacer_github::Endpoints::resolve(None, Some(&server.url), None, None).unwrap();
    let github = GitHub::new(Credentials::Token(Secret::new(TOKEN)), endpoints, &options()).unwrap();
    github.create_registration_token(&organization()).await.unwrap();
    assert_eq!(server.lines(), ["POST /api/v3/orgs/acme/actions/runners/registration-token"]);
}

#[tokio::test]
async fn basic_credentials_are_sent_as_such() {
    let server = Server::start(|_| reply(201, &[], TOKEN_ANSWER)).await;
    let basic = Credentials::Basic { username: "ann".into(), password: Secret::new("pw") };
    server.client_as(basic).create_registration_token(&organization()).await.unwrap();
    assert_eq!(server.seen()[0].header("authorization"), "Basic YW5uOnB3");
}

#[tokio::test]
async fn a_large_fleet_is_listed_once_and_then_for_free() {
    let runners: Arc<Mutex<Vec<_>>> = Arc::new(Mutex::new((1..=950).map(|id| runner(id, false)).collect()));
    let shown = Arc::clone(&runners);
    let server = Server::start(move |request| {
        let body = page(request, &shown.lock().unwrap());
        let tag = format!("W/\"{:x}\"", body.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31) ^ u64::from(byte)));
        tagged(request, &tag, &body)
    })
    .await;
    let github = server.client();
    let first = github.list_runners(&organization()).await.unwrap();
    assert_eq!((first.runners.len(), first.pages, first.paid), (950, 10, 10));
    assert!(first.changed && first.complete);
    assert_eq!(first.runners[949].name.as_ref(), "runner-950");
    assert_eq!(*first.runners[0].labels, ["self-hosted", "gpu"]);
    assert!(first.runners[0].online && !first.runners[0].busy);

    let second = github.list_runners(&organization()).await.unwrap();
    assert_eq!((second.changed, second.pages, second.paid), (false, 10, 0));
    assert!(Arc::ptr_eq(&first.runners, &second.runners), "unchanged pages are not parsed again");
    assert!(second.fetched_at > first.fetched_at);
    assert_eq!(calls(&github, Endpoint::ListRunners, Outcome::NotModified), 10);
    assert!(github.cache().bytes > 100_000 && github.cache().entries == 10, "{:?}", github.cache());

    runners.lock().unwrap()[420] = runner(421, true);
    let third = github.list_runners(&organization()).await.unwrap();
    assert_eq!((third.changed, third.paid), (true, 1));
    assert!(third.runners[420].busy);
    let pages: Vec<_> = server.lines().into_iter().take(2).collect();
    assert_eq!(pages[0], "GET /orgs/acme/actions/runners?per_page=100");
    assert!(pages[1].starts_with("GET /orgs/acme/actions/runners?per_page=100&page="));
}

#[tokio::test]
async fn instances_that_ignore_the_page_size_are_listed_in_full() {
    let server = Server::start(|request| {
        let all: Vec<_> = (1..=70).map(|id| runner(id, false)).collect();
        let smaller = Seen { path: request.path.replace("per_page=100", "per_page=30"), ..request.clone() };
        reply(200, &[], &page(&smaller, &all))
    })
    .await;
    let listing = server.client().list_runners(&organization()).await.unwrap();
    assert_eq!((listing.runners.len(), listing.complete), (70, true));
}

#[tokio::test]
async fn pages_that_do_not_fit_together_are_read_again_and_then_said_to_be_incomplete() {
    for heals in [true, false] {
        let torn = AtomicBool::new(true);
        let server = Server::start(move |request| {
            // One runner disappears between the first page and the second, so that the second starts one too late.
            let all: Vec<_> = (1..=150).map(|id| runner(id, false)).collect();
            let second = request.path.contains("page=2");
            let gone = second && torn.load(Ordering::SeqCst);
            if second && heals {
                torn.store(false, Ordering::SeqCst);
            }
            reply(200, &[], &page(request, if gone { &all[1..] } else { &all }))
        })
        .await;
        let listing = server.client().list_runners(&organization()).await.unwrap();
        assert_eq!((listing.complete, listing.pages), (heals, 4));
        assert_eq!(listing.runners.len(), if heals { 150 } else { 149 });
    }
}

#[tokio::test]
async fn removal_is_told_from_refusal_when_github_answers() {
    let busy = r#"{"message":"Runner \"r\" is currently running a job and cannot be deleted."}"#;
    let wrong = r#"{"message":"Not Found"}"#;
    // DELETE, GET runner, GET runners -> outcome, calls
    type Expected = fn(&Result<Removal, Error>) -> bool;
    let kind = |result: &Result<Removal, Error>| result.as_ref().err().map(|error| error.kind().clone());
    let table: [(u16, u16, u16, Expected, usize); 10] = [
        (204, 0, 0, |it| *it.as_ref().unwrap() == Removal::Removed, 1),
        (422, 0, 0, |it| matches!(it.as_ref().unwrap(), Removal::Busy { message } if message.contains("running a job")), 1),
        (404, 404, 200, |it| *it.as_ref().unwrap() == Removal::Absent, 3),
        (404, 404, 404, |it| matches!(it.as_ref().unwrap_err().kind(), ErrorKind::NotVisible { .. }), 3),
        (404, 404, 403, |it| matches!(it.as_ref().unwrap_err().kind(), ErrorKind::Forbidden { .. }), 3),
        (404, 200, 0, |it| matches!(it.as_ref().unwrap_err().kind(), ErrorKind::NotVisible { .. }), 2),
        (404, 500, 0, |it| *it.as_ref().unwrap_err().kind() == ErrorKind::Server, 2),
        (403, 0, 0, |it| matches!(it.as_ref().unwrap_err().kind(), ErrorKind::Forbidden { .. }), 1),
        (502, 0, 0, |it| *it.as_ref().unwrap_err().kind() == ErrorKind::Server, 1),
        (200, 0, 0, |it| *it.as_ref().unwrap_err().kind() == ErrorKind::Decode, 1),
    ];
    for (delete, get, list, expected, count) in table {
        let server = Server::start(move |request| match request.line().as_str() {
            "DELETE /orgs/acme/actions/runners/7" => reply(delete, &[], if delete == 422 { busy } else { wrong }),
            "GET /orgs/acme/actions/runners/7" => reply(get, &[], wrong),
            "GET /orgs/acme/actions/runners?per_page=1" => reply(list, &[], r#"{"total_count":0,"runners":[]}"#),
            other => panic!("{other}"),
        })
        .await;
        let result = server.client().remove_runner(&organization(), 7).await;
        assert!(expected(&result), "{delete} {get} {list}: {:?}", kind(&result));
        assert_eq!(server.lines().len(), count, "{delete} {get} {list}");
    }
}

#[tokio::test]
async fn the_budget_is_read_from_headers_and_holds_calls_back_when_used_up() {
    let left = AtomicU64::new(2);
    let reset = (jiff::Timestamp::now().as_second() + 1_000).to_string();
    let server = Server::start(move |request| {
        if request.method == "POST" {
            let headers = [
                ("x-ratelimit-limit", "10000"),
                ("x-ratelimit-remaining", "9999"),
                ("x-ratelimit-reset", reset.as_str()),
                ("x-ratelimit-resource", "actions_runner_registration"),
            ];
            return reply(201, &headers, TOKEN_ANSWER);
        }
        let remaining = left.fetch_sub(1, Ordering::SeqCst) - 1;
        let remaining = remaining.to_string();
        let headers = [
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", remaining.as_str()),
            ("x-ratelimit-used", "4999"),
            ("x-ratelimit-reset", reset.as_str()),
            ("x-ratelimit-resource", "core"),
        ];
        reply(200, &headers, r#"{"total_count":0,"runners":[]}"#)
    })
    .await;
    let github = server.client();
    assert_eq!(github.budget(&organization()), None);
    github.list_runners(&organization()).await.unwrap();
    let budget = github.budget(&organization()).unwrap();
    assert_eq!((budget.resource, budget.limit, budget.remaining, budget.used), (Resource::Core, 5000, 1, 4999));
    assert!((990..=1_000).contains(&budget.resets_in().as_secs()));
    github.list_runners(&organization()).await.unwrap();

    let error = github.list_runners(&organization()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::RateLimited { secondary: false, .. }), "{error}");
    assert!(error.retry_after().unwrap() > Duration::from_secs(900));
    assert_eq!((server.lines().len(), github.held_back()), (2, 1));

    github.create_registration_token(&organization()).await.unwrap();
    github.create_registration_token(&organization()).await.unwrap();
    assert_eq!(github.budgets().len(), 2, "registrations have a budget of their own");
}

#[tokio::test]
async fn a_secondary_limit_stops_every_call_of_the_client() {
    let body = r#"{"message":"slow down","documentation_url":"https://docs.github.com/rest/x#about-secondary-rate-limits"}"#;
    let server = Server::start(move |_| reply(403, &[("retry-after", "30")], body)).await;
    let github = server.client();
    let error = github.remove_runner(&organization(), 1).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::RateLimited { secondary: true, .. }), "{error}");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(30)));
    let error = github.create_registration_token(&repository()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::RateLimited { secondary: true, .. }), "{error}");
    assert_eq!(server.lines().len(), 1);
    assert_eq!(calls(&github, Endpoint::RemoveRunner, Outcome::RateLimited), 1);
}

#[tokio::test]
async fn clients_of_the_same_token_share_a_minute_and_a_refusal() {
    const LIMITS: [(&str, &str); 3] =
        [("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "4000"), ("x-ratelimit-reset", "4102444800")];
    let server = Server::start(|_| reply(204, &LIMITS, "")).await;
    let options = options();
    let client = |token: &str| {
        let credentials = Credentials::Token(Secret::new(token.to_owned()));
        GitHub::new(credentials, server.endpoints(), &options.clone()).unwrap()
    };
    let (one, same, other) = (client(TOKEN), client(TOKEN), client("another"));
    let mut removed = 0;
    let deferred = loop {
        match one.remove_runner(&organization(), removed).await {
            Ok(_) => removed += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(deferred.kind(), ErrorKind::Deferred { .. }) && (100..180).contains(&removed), "{removed}: {deferred}");
    // A Secret that was written again is another client as well.
    drop(one);
    for client in [&same, &client(TOKEN)] {
        let error = client.remove_runner(&organization(), 1).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Deferred { .. }), "{error}");
    }
    other.remove_runner(&organization(), 1).await.unwrap();
}

#[tokio::test]
async fn wrong_credentials_are_explained() {
    type Headers = &'static [(&'static str, &'static str)];
    let table: [(u16, Headers, &str, &str); 3] = [
        (401, &[], "Bad credentials", "make a new one"),
        (403, &[("x-oauth-scopes", "repo")], "Must have admin rights", "admin:org"),
        (404, &[], "Not Found", "organization acme exists"),
    ];
    for (status, headers, message, advice) in table {
        let body = format!(r#"{{"message":"{message}","documentation_url":"https://docs.github.com/y"}}"#);
        let server = Server::start(move |_| reply(status, headers, &body)).await;
        let error = server.client().create_registration_token(&organization()).await.unwrap_err();
        let text = error.to_string();
        let url = format!("POST {}/orgs/acme/actions/runners/registration-token", server.url);
        for part in ["registration token for organization acme", message, advice, "https://docs.github.com/y", &url] {
            assert!(text.contains(part), "{status}: {part:?} is not in {text}");
        }
    }
}

#[tokio::test]
async fn answers_of_something_else_than_github_are_recognised() {
    let server = Server::start(|_| reply(200, &[], "<html>Sign in</html>")).await;
    let github = server.client();
    for error in [
        github.list_runners(&organization()).await.unwrap_err(),
        github.create_registration_token(&organization()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), &ErrorKind::Decode);
        assert!(error.to_string().contains("base of GitHub's REST API"), "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_was_cut_short_is_not_kept() {
    let cut = AtomicBool::new(true);
    let server = Server::start(move |request| {
        let whole = page(request, &[runner(1, false)]);
        let part = &whole[..whole.len() / 2];
        let body = if cut.swap(false, Ordering::SeqCst) { part } else { &whole };
        tagged(request, "W/\"same\"", body)
    })
    .await;
    let github = server.client();
    assert_eq!(github.list_runners(&organization()).await.unwrap_err().kind(), &ErrorKind::Decode);
    assert_eq!(github.list_runners(&organization()).await.unwrap().runners.len(), 1);
}

#[tokio::test]
async fn redirects_after_renames_are_followed_with_method_and_credentials() {
    let server = Server::start(|request| match request.path.as_str() {
        "/repos/acme/app/actions/runners/registration-token" => {
            reply(307, &[("location", "/repositories/7/actions/runners/registration-token")], "")
        }
        _ => reply(201, &[], TOKEN_ANSWER),
    })
    .await;
    server.client().create_registration_token(&repository()).await.unwrap();
    let last = server.seen()[1].clone();
    assert_eq!(last.line(), "POST /repositories/7/actions/runners/registration-token");
    assert!(last.header("authorization").contains(TOKEN));
}

#[tokio::test]
async fn names_that_would_change_the_path_are_never_sent() {
    let server = Server::start(|_| -> Option<Response<String>> { panic!("sent") }).await;
    let github = server.client();
    for name in ["..", "a/b", "a?b", "a b", "a%2fb", "", "ä"] {
        let error = github.list_runners(&Scope::Organization(name.into())).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Invalid, "{name}");
    }
    assert_eq!(server.lines().len(), 0);
}

#[tokio::test]
async fn silence_and_refused_connections_are_told_apart() {
    let server = Server::start(|_| None).await;
    let short = ClientOptions { deadline: Duration::from_millis(50), ..options() };
    let token = || Credentials::Token(Secret::new(TOKEN));
    let github = GitHub::new(token(), server.endpoints(), &short).unwrap();
    let error = github.list_runners(&organization()).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Timeout);
    assert_eq!(server.lines().len(), 1, "a call is never repeated");

    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let endpoints = pacer_github::Endpoints::resolve(Some(&url), None, None, None).unwrap();
    let github = GitHub::new(token(), endpoints, &options()).unwrap();
    let error = github.list_runners(&organization()).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Network);
    assert!(error.to_string().to_lowercase().contains("refused"), "{error}");
    assert_eq!(calls(&github, Endpoint::ListRunners, Outcome::NoAnswer), 1);
}

#[tokio::test]
async fn secrets_are_shown_nowhere() {
    let server = Server::start(|request| match request.method.as_str() {
        "POST" => reply(201, &[], TOKEN_ANSWER),
        _ => reply(403, &[], r#"{"message":"no"}"#),
    })
    .await;
    let credentials = Credentials::Token(Secret::new(TOKEN));
    let basic = Credentials::Basic { username: "ann".into(), password: Secret::new(TOKEN) };
    let app = crate::support::app(None);
    let github = server.client();
    let token = github.create_registration_token(&organization()).await.unwrap();
    let error = github.list_runners(&organization()).await.unwrap_err();
    let shown = format!(
        "{credentials:?} {basic:?} {app:?} {github:?} {:?} {token:?} {error} {error:?} {:#?}",
        github.id(),
        github.calls()
    );
    let key_line = crate::support::PKCS1.lines().nth(1).unwrap();
    for secret in [TOKEN, "AREGTOKEN", key_line, "TokenThat"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}
