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
    (router(Page { access: Arc::new(access), feed }), file)
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
