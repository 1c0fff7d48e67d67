//! Answers of the page's server, without a network.

use std::io::Write as _;

use axum::http::HeaderName;
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::*;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

async fn page(token: bool) -> (Router, tempfile::NamedTempFile) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(TOKEN.as_bytes()).unwrap();
    let address = "127.0.0.1:8090".parse().unwrap();
    let access = Access::new(address, token.then(|| file.path().to_owned())).await.unwrap();
    let feed = Feed::new(Metrics::default().connections(HttpServer::Page));
    (router(Page { access: Arc::new(access), source: Source::Live(feed) }), file)
}

async fn ask(router: &Router, method: &str, uri: &str, headers: &[(HeaderName, &str)]) -> Response {
    let request =
        headers.iter().fold(Request::builder().method(method).uri(uri), |request, (name, value)| request.header(name, *value));
    router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

fn of<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

#[tokio::test]
async fn every_answer_forbids_what_the_page_does_not_need() {
    let (router, _file) = page(false).await;
    let host = [(header::HOST, "localhost:8090")];
    for (method, uri, status) in [
        ("GET", "/", 200),
        ("HEAD", "/", 200),
        ("GET", "/app.js", 200),
        ("GET", "/nothing", 404),
        ("GET", "/a/b", 404),
        ("POST", "/", 405),
        ("DELETE", "/events", 405),
    ] {
        let response = ask(&router, method, uri, &host).await;
        assert_eq!(response.status(), status, "{method} {uri}");
        let policy = of(&response, "content-security-policy");
        assert!(policy.starts_with("default-src 'none';") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(of(&response, "x-content-type-options"), "nosniff");
        assert_eq!(of(&response, "referrer-policy"), "no-referrer");
        assert_eq!(of(&response, "cache-control"), "no-store");
    }
    assert_eq!(of(&ask(&router, "PUT", "/", &host).await, "allow"), "GET, HEAD");
    assert_eq!(of(&ask(&router, "GET", "/app.css", &host).await, "content-type"), "text/css; charset=utf-8");
    assert_eq!(ask(&router, "GET", "/", &[(header::HOST, "evil.example")]).await.status(), StatusCode::MISDIRECTED_REQUEST);
}

async fn text(response: Response) -> String {
    String::from_utf8_lossy(&response.into_body().collect().await.unwrap().to_bytes()).into_owned()
}

#[tokio::test]
async fn trace_is_shown_as_it_was_at_the_moment_that_is_asked_for() {
    let access = Arc::new(Access::new("127.0.0.1:8090".parse().unwrap(), None).await.unwrap());
    let past = Arc::new(Past::of(past::tests::trace()));
    let page_of = |report| Page { access: access.clone(), source: Source::Past(past.clone(), report) };
    let router = router(page_of(None));
    let host = [(header::HOST, "localhost:8090")];
    let index = text(ask(&router, "GET", "/", &host).await).await;
    assert!(index.contains("<body data-from=\"2026-01-01T00:00:00Z\" data-to=\"2026-01-01T00:09:00Z\">"), "{index}");
    assert_eq!(ask(&router, "GET", "/past.js", &host).await.status(), StatusCode::OK);
    for (at, left) in [("?at=2026-01-01T00:05:00Z", 4_000), ("", 100)] {
        let shown = text(ask(&router, "GET", &format!("/snapshot.json{at}"), &host).await).await;
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["credentials"]["default"]["budgets"][0]["remaining"], left, "{at}: {shown:#}");
    }
    assert_eq!(ask(&router, "GET", "/snapshot.json?at=noon", &host).await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(ask(&router, "GET", "/events", &host).await.status(), StatusCode::NOT_FOUND);
    // The report is there where one was given.
    assert_eq!(ask(&router, "GET", "/report.json", &host).await.status(), StatusCode::NOT_FOUND);
    let reported = super::router(page_of(Some(report::tests::report())));
    assert!(text(ask(&reported, "GET", "/", &host).await).await.contains("data-to=\"2026-01-01T00:09:00Z\" data-report>"));
    let shown: serde_json::Value = serde_json::from_str(&text(ask(&reported, "GET", "/report.json", &host).await).await).unwrap();
    assert_eq!(shown["comparison"]["contenders"], serde_json::json!(["builtin", "one.yaml"]));
    let (live, _file) = page(false).await;
    let response = ask(&live, "GET", "/snapshot.json?at=2026-01-01T00:05:00Z", &host).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert!(!text(ask(&live, "GET", "/", &host).await).await.contains("data-from"));
}

#[tokio::test]
async fn a_link_with_the_token_becomes_a_cookie() {
    let (router, _file) = page(true).await;
    for uri in ["/", "/app.js", "/events", "/snapshot.json", "/?token=wrong", "/events?token=0123456789abcdef0123456789abcdef"] {
        let response = ask(&router, "GET", uri, &[(header::HOST, "localhost")]).await;
        assert_eq!((response.status(), of(&response, "www-authenticate")), (StatusCode::UNAUTHORIZED, "Bearer"), "{uri}");
        let text = response.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&text).contains("?token="), "{uri}");
    }
    let response = ask(&router, "GET", &format!("/?token={TOKEN}"), &[]).await;
    assert_eq!((response.status(), of(&response, "location")), (StatusCode::SEE_OTHER, "./"));
    let cookie = of(&response, "set-cookie").split(';').next().unwrap_or_default().to_owned();
    for uri in ["/", "/app.js"] {
        assert_eq!(ask(&router, "GET", uri, &[(header::COOKIE, &cookie)]).await.status(), StatusCode::OK, "{uri}");
    }
    assert_eq!(ask(&router, "POST", "/", &[]).await.status(), StatusCode::METHOD_NOT_ALLOWED);
}
