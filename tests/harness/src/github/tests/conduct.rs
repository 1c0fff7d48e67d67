//! Conditional requests, limits, lies and faults.

use std::collections::BTreeSet;

use super::*;

const RUNNERS: &str = "repos/acme/app/actions/runners?per_page=100";

#[tokio::test]
async fn unchanged_answers_are_free() {
    let github = github().await;
    let mut session = runner(&github, &app(), "one");
    let api = Api::of(&github);
    let first = api.get(RUNNERS).await;
    assert_eq!(first.header("cache-control"), "private, max-age=60, s-maxage=60");
    assert!(first.header("etag").starts_with("W/\""));
    assert_eq!((first.header("x-ratelimit-limit"), first.header("x-ratelimit-remaining")), ("5000", "4999"));
    assert_eq!((first.header("x-ratelimit-used"), first.header("x-ratelimit-resource")), ("1", "core"));
    let reset: i64 = first.header("x-ratelimit-reset").parse().unwrap();
    assert!((3_500..=3_600).contains(&(reset - jiff::Timestamp::now().as_second())));
    let same = api.get_if_changed(RUNNERS, first.header("etag")).await;
    assert_eq!((same.status, same.body.len(), same.header("x-ratelimit-used")), (StatusCode::NOT_MODIFIED, 0, "1"));
    assert_eq!(same.header("etag"), first.header("etag"));
    let id = job(&github);
    let changed = api.get_if_changed(RUNNERS, first.header("etag")).await;
    assert_eq!((changed.status, changed.json()["runners"][0]["busy"].as_bool()), (StatusCode::OK, Some(true)));
    session.finish(id, Conclusion::Success);
    let empty = api.get_if_changed(RUNNERS, changed.header("etag")).await;
    assert_eq!(empty.json()["total_count"], 0);
    let count = github.count(RouteKind::ListRunners);
    assert_eq!(count, RouteCount { requests: 4, not_modified: 1, failed: 0 });
    let calls = github.calls();
    let call = calls.iter().find(|call| call.not_modified()).unwrap();
    assert_eq!((call.template, call.conditional), ("/repos/{owner}/{repo}/actions/runners", true));
    assert_eq!(call.path, format!("/{RUNNERS}"));
    github.reset_calls();
    assert_eq!((github.calls().len(), github.counts().len()), (0, 0));
    github.stop().await;
}

#[tokio::test]
async fn tags_are_of_the_page_and_not_of_the_moment() {
    let github = github().await;
    let mut sessions: Vec<Session> = (0..5).map(|index| runner(&github, &app(), &format!("runner-{index}"))).collect();
    let api = Api::of(&github);
    let pages = ["repos/acme/app/actions/runners?per_page=2&page=1", "repos/acme/app/actions/runners?per_page=2&page=2"];
    let (first, second) = (api.get(pages[0]).await, api.get(pages[1]).await);
    github.show_busy(sessions[2].runner_id(), true);
    assert_eq!(api.get_if_changed(pages[0], first.header("etag")).await.status, StatusCode::NOT_MODIFIED);
    assert_eq!(api.get_if_changed(pages[1], second.header("etag")).await.status, StatusCode::OK);
    github.show_busy(sessions[2].runner_id(), false);
    assert_eq!(api.get_if_changed(pages[1], second.header("etag")).await.status, StatusCode::NOT_MODIFIED);

    github.lie(Lies { tags: Tags::NeverEqual, ..Lies::default() });
    let tag = api.get(pages[0]).await.header("etag").to_owned();
    assert_eq!(api.get_if_changed(pages[0], &tag).await.status, StatusCode::OK);

    github.lie(Lies { tags: Tags::PerToken, ..Lies::default() });
    let tag = api.get(pages[0]).await.header("etag").to_owned();
    assert_eq!(api.get_if_changed(pages[0], &tag).await.status, StatusCode::NOT_MODIFIED);
    let other = Api::with(&github, &format!("Bearer {}", github.add_pat(Person::admin("hubot"))));
    assert_eq!(other.get_if_changed(pages[0], &tag).await.status, StatusCode::OK);
    sessions.clear();
    github.stop().await;
}

#[tokio::test]
async fn the_primary_limit_refuses_until_its_reset() {
    for (limit_is_429, status) in [(0.0, 403), (1.0, 429)] {
        let behaviour = Behaviour { limit_is_429, ..Behaviour::prompt() };
        let settings = Settings { rate_limit: 2, behaviour, ..Settings::prompt() };
        let github = SimGitHub::start(settings).await.unwrap();
        github.add(&app());
        let (api, other) = (Api::of(&github), Api::with(&github, &format!("Bearer {}", github.add_pat(Person::admin("hubot")))));
        let tag = api.get(RUNNERS).await.header("etag").to_owned();
        assert_eq!(api.get_if_changed(RUNNERS, &tag).await.status, StatusCode::NOT_MODIFIED);
        assert_eq!(api.get(RUNNERS).await.header("x-ratelimit-remaining"), "0");
        let refused = api.get(RUNNERS).await;
        assert_eq!((refused.status.as_u16(), refused.header("x-ratelimit-remaining")), (status, "0"));
        assert!(refused.message().starts_with("API rate limit exceeded for"), "{}", refused.message());
        assert_eq!(api.get("rate_limit").await.json()["resources"]["core"]["remaining"], 0);
        assert_eq!(other.get(RUNNERS).await.status, StatusCode::OK, "limits are each caller's own");
        github.refill_rate_limit();
        assert_eq!(api.get(RUNNERS).await.status, StatusCode::OK);
        github.exhaust_rate_limit(Duration::from_secs(60));
        let refused = other.get(RUNNERS).await;
        let reset: i64 = refused.header("x-ratelimit-reset").parse().unwrap();
        assert!((50..=61).contains(&(reset - jiff::Timestamp::now().as_second())));
        assert_eq!(github.budget("user hubot").remaining(), 0);
        github.stop().await;
    }
}

#[tokio::test]
async fn the_secondary_limit_counts_points() {
    let github = SimGitHub::start(Settings { points_per_minute: Some(11), ..Settings::prompt() }).await.unwrap();
    github.add(&app());
    let api = Api::of(&github);
    for _ in 0..2 {
        assert_eq!(api.post("repos/acme/app/actions/runners/remove-token").await.status, StatusCode::CREATED);
    }
    let refused = api.post("repos/acme/app/actions/runners/remove-token").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(refused.json()["documentation_url"].as_str().unwrap().ends_with("#about-secondary-rate-limits"));
    assert!((1..=60).contains(&refused.header("retry-after").parse::<u64>().unwrap()));
    assert_eq!(api.get(RUNNERS).await.status, StatusCode::OK, "one point is left");
    assert_eq!(api.get(RUNNERS).await.status, StatusCode::FORBIDDEN);
    github.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_busy_flag_lags_and_lies() {
    let github = github().await;
    let shown = |github: &SimGitHub, id: RunnerId| github.with(|state| state.runners[&id].shown_busy);
    let persistent = Registration { ephemeral: false, ..registration(&github, &app(), "one") };
    let mut session = github.register(persistent).unwrap();
    let id = session.runner_id();
    github.lie(Lies { busy_late_by: Duration::from_secs(3), ..Lies::default() });
    let first = job(&github);
    assert!(!shown(&github, id));
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(shown(&github, id));
    session.finish(first, Conclusion::Success);
    assert!(shown(&github, id), "late in both directions");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(!shown(&github, id));

    github.lie(Lies { busy_false_after: Some(Duration::from_secs(2)), ..Lies::default() });
    job(&github);
    assert!(shown(&github, id));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!shown(&github, id));
    assert_eq!(github.runners().busy, 1, "the job goes on");
    github.stop().await;
}

#[tokio::test]
async fn listings_omit_what_they_are_told_to() {
    let github = github().await;
    let _sessions: Vec<Session> = (0..3).map(|index| runner(&github, &app(), &format!("runner-{index}"))).collect();
    let api = Api::of(&github);
    let tag = api.get(RUNNERS).await.header("etag").to_owned();
    github.lie(Lies { omitted: BTreeSet::from(["runner-1".to_owned()]), ..Lies::default() });
    let reply = api.get_if_changed(RUNNERS, &tag).await;
    let names: Vec<String> =
        reply.json()["runners"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["runner-0", "runner-2"]);
    assert_eq!(api.get(&format!("{RUNNERS}&name=runner-1")).await.json()["total_count"], 0);
    github.lie(Lies::default());
    assert_eq!(api.get_if_changed(RUNNERS, &tag).await.status, StatusCode::NOT_MODIFIED);
    github.stop().await;
}

#[tokio::test]
async fn faults_meet_the_requests_they_are_meant_for() {
    let github = github().await;
    github.add(&app());
    github.add(&Scope::organization("acme"));
    let api = Api::of(&github);
    let at_app = || Routes::of(RouteKind::ListRunners).scope(Scope::repository("ACME", "app"));
    let fault = github.inject(Fault::new(at_app(), Effect::Status(502)).skip(1).times(2));
    let mut seen = Vec::new();
    for path in [RUNNERS, "orgs/acme/actions/runners", RUNNERS, RUNNERS, RUNNERS] {
        seen.push(api.get(path).await.status.as_u16());
    }
    assert_eq!((seen, github.fault_hits(fault)), (vec![200, 200, 502, 502, 200], 2));
    let fault = github.inject(Fault::new(Routes::all().path("per_page=7"), Effect::Status(403)).always());
    let refused = api.get("orgs/acme/actions/runners?per_page=7").await;
    assert_eq!((refused.status, refused.header("retry-after")), (StatusCode::FORBIDDEN, ""));
    assert_eq!(api.get(RUNNERS).await.status, StatusCode::OK);
    github.clear_fault(fault);
    assert_eq!(api.get("orgs/acme/actions/runners?per_page=7").await.status, StatusCode::OK);
    let effect = Effect::SecondaryLimit { retry_after: Duration::from_millis(1500) };
    github.inject(Fault::new(Routes::all(), effect));
    let limited = api.get(RUNNERS).await;
    assert_eq!((limited.status, limited.header("retry-after")), (StatusCode::FORBIDDEN, "2"));
    github.inject(Fault::new(Routes::all(), Effect::Status(500)).lasting(Duration::ZERO));
    assert_eq!(api.get(RUNNERS).await.status, StatusCode::OK, "its time is over");
    github.inject(Fault::new(Routes::all(), Effect::Status(500)).always());
    github.clear_faults();
    assert_eq!(api.get(RUNNERS).await.status, StatusCode::OK);
    github.stop().await;
}

#[tokio::test]
async fn answers_are_late_cut_short_or_slow() {
    let github = github().await;
    let session = runner(&github, &app(), "one");
    let api = Api::of(&github);
    let whole = api.get(RUNNERS).await;
    let pause = Duration::from_millis(30);
    let begun = Instant::now();
    github.inject(Fault::new(Routes::all(), Effect::Delay(pause)));
    assert_eq!(api.get(RUNNERS).await.body, whole.body);
    assert!(begun.elapsed() >= pause);

    github.inject(Fault::new(Routes::all(), Effect::TruncatedJson));
    let short = api.get(RUNNERS).await;
    assert!(serde_json::from_slice::<Value>(&short.body).is_err());
    assert_eq!((short.status, &short.body[..]), (StatusCode::OK, &whole.body[..whole.body.len() / 2]));

    let begun = Instant::now();
    github.inject(Fault::new(Routes::all(), Effect::SlowBody { pieces: 3, pause }));
    assert_eq!(api.get(RUNNERS).await.body, whole.body);
    assert!(begun.elapsed() >= 3 * pause);

    let fault = github.inject(Fault::new(Routes::all(), Effect::Hang));
    let patience = tokio::time::timeout(pause, api.try_send(Method::GET, RUNNERS, None)).await;
    assert!(patience.is_err());
    assert_eq!((github.fault_hits(fault), github.calls().last().unwrap().status), (1, 0));

    // Who gives up on a late answer does not know whether it was done.
    let path = format!("repos/acme/app/actions/runners/{}", session.runner_id());
    for (performed, left) in [(false, 1), (true, 0)] {
        let fault = Fault::new(Routes::of(RouteKind::DeleteRunner), Effect::Delay(SOON));
        github.inject(if performed { fault.performed() } else { fault });
        assert!(tokio::time::timeout(pause, api.try_send(Method::DELETE, &path, None)).await.is_err());
        assert_eq!(github.runners().registered, left);
    }
    github.stop().await;
}

#[tokio::test]
async fn a_connection_is_reset_before_or_after_the_deed() {
    let github = github().await;
    let session = runner(&github, &app(), "one");
    let path = format!("repos/acme/app/actions/runners/{}", session.runner_id());
    let api = Api::of(&github);
    let fault = Fault::new(Routes::of(RouteKind::DeleteRunner), Effect::Reset);
    github.inject(fault.clone());
    assert!(api.try_send(Method::DELETE, &path, None).await.is_none());
    assert_eq!(github.runners().registered, 1);
    github.inject(fault.performed());
    assert!(api.try_send(Method::DELETE, &path, None).await.is_none());
    assert_eq!(github.runners().registered, 0);
    assert_eq!(api.delete(&path).await.status, StatusCode::NOT_FOUND, "done, though nobody was told");
    github.inject(Fault::new(Routes::of(RouteKind::RegistrationToken), Effect::Status(502)).performed());
    let token = "repos/acme/app/actions/runners/registration-token";
    let before = github.with(|state| state.runner_tokens.len());
    assert_eq!(api.post(token).await.status, StatusCode::BAD_GATEWAY);
    assert_eq!(github.with(|state| state.runner_tokens.len()), before + 1);

    // The raw socket sees a reset, not an orderly end.
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    github.inject(Fault::new(Routes::all(), Effect::Reset));
    let mut socket = tokio::net::TcpStream::connect(github.0.address).await.unwrap();
    socket.write_all(b"GET /rate_limit HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let error = socket.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    github.stop().await;
}
