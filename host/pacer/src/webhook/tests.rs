use axum::body::Bytes;
use axum::http::HeaderName;
use clap::Parser;
use tower::ServiceExt;

use crate::verb::{Command, Pacer};

use super::*;

/// Takes webhooks without a secret.
const OPEN: &str = "--insecure-no-webhook-secret";

/// A server whose Kubernetes never answers.
async fn front(arguments: &[&str]) -> anyhow::Result<Arc<Front>> {
    let silence = tower::service_fn(|_: Request<kube::client::Body>| std::future::pending::<Result<Response, std::io::Error>>());
    Ok(server(arguments, Client::new(silence, "default"), &Metrics::default()).await?.front)
}

async fn server(arguments: &[&str], client: Client, metrics: &Metrics) -> anyhow::Result<Server> {
    let arguments = ["pacer", "webhook", "--webhook-addr=127.0.0.1:0"].iter().chain(arguments);
    let Command::Webhook(arguments) = Pacer::try_parse_from(arguments)?.command else { bail!("another verb") };
    let setting = Setting {
        address: &arguments.webhook_addr,
        namespace: "",
        proof: Proof::OfOwnCredentials,
        common_labels: &[],
        receiver: &arguments.receiver,
        github: &arguments.github,
        client,
        precedence: Precedence::default(),
        metrics: metrics.receiver().clone(),
        connections: metrics.connections(HttpServer::Webhook),
    };
    Server::new(setting).await
}

async fn ask(front: &Arc<Front>, method: Method, headers: &[(&'static str, &str)], body: Body) -> (Response, String) {
    let mut request = Request::builder().method(method).uri("/any/path").body(body).unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    let response = router(front.clone()).oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    (Response::from_parts(parts, Body::empty()), text)
}

/// A body whose length is not announced.
fn pieces(count: usize, size: usize) -> Body {
    Body::from_stream(futures::stream::iter((0..count).map(move |_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; size])))))
}

#[tokio::test]
async fn every_path_tells_that_the_server_runs() {
    let front = front(&[OPEN]).await.unwrap();
    for (method, expected) in [(Method::GET, "webhook server is running\n"), (Method::HEAD, "")] {
        let (response, text) = ask(&front, method, &[], Body::empty()).await;
        assert_eq!((response.status(), text.as_str()), (StatusCode::OK, expected));
    }
    let (response, _) = ask(&front, Method::PUT, &[], Body::empty()).await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(response.headers()[header::ALLOW], "GET, HEAD, POST");
}

#[tokio::test]
async fn deliveries_without_a_secret_are_taken_unless_one_is_configured() {
    let open = front(&["--github-webhook-secret-token=", OPEN]).await.unwrap();
    for (event, expected) in [("ping", "pong"), ("push", ""), ("not_invented_yet", "")] {
        let (response, text) = ask(&open, Method::POST, &[("x-github-event", event)], Body::from("{}")).await;
        assert_eq!((response.status(), text.as_str()), (StatusCode::OK, expected), "{event}");
    }
    let (response, _) = ask(&open, Method::POST, &[], Body::from("{}")).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let closed = front(&["--github-webhook-secret-token=s3cret"]).await.unwrap();
    let (response, text) = ask(&closed, Method::POST, &[("x-github-event", "ping")], Body::from("{}")).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert!(text.contains("not signed") && !text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn large_bodies_are_refused_before_they_fill_the_memory() {
    let front = front(&["--webhook-body-limit=100000", OPEN]).await.unwrap();
    let event = ("x-github-event", "ping");
    let (response, _) = ask(&front, Method::POST, &[event, ("content-length", "100001")], Body::from("{}")).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE, "by what is announced");
    let (response, _) = ask(&front, Method::POST, &[event], pieces(11, 10_000)).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE, "by what arrives");
    let (response, _) = ask(&front, Method::POST, &[event], pieces(10, 10_000)).await;
    assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY, "blanks are no JSON");
    let _all = front.room.clone().try_acquire_many_owned(u32::try_from(LARGE_BODIES_KIB).unwrap()).unwrap();
    let (response, _) = ask(&front, Method::POST, &[event], pieces(1, SMALL_BODY)).await;
    assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY, "a small one has room");
    let (response, _) = ask(&front, Method::POST, &[event], pieces(1, SMALL_BODY + 1)).await;
    assert_eq!(
        (response.status(), &response.headers()[header::RETRY_AFTER]),
        (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_given_up() {
    let front = front(&[OPEN]).await.unwrap();
    let trickle = futures::stream::unfold((), |()| async {
        tokio::time::sleep(BODY_STALL / 2).await;
        Some((Ok::<_, std::io::Error>(Bytes::from_static(b" ")), ()))
    });
    let stalled = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
    for (body, patience) in [(stalled, BODY_STALL), (Body::from_stream(trickle), BODY_DEADLINE)] {
        let begun = tokio::time::Instant::now();
        let (response, _) = ask(&front, Method::POST, &[("x-github-event", "ping")], body).await;
        assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
        assert!(begun.elapsed() < patience + Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn server_without_a_secret_does_not_start_unless_it_is_told_to() {
    for arguments in [&[][..], &["--github-webhook-secret-token="][..], &["--insecure-no-webhook-secret=false"][..]] {
        let refused = front(arguments).await.err().unwrap().to_string();
        assert!(
            refused.contains("--github-webhook-secret-file") && refused.contains("--insecure-no-webhook-secret"),
            "{refused}"
        );
    }
    assert!(front(&[OPEN]).await.is_ok());
    let secret = front(&["--github-webhook-secret-token=s3cret", OPEN]).await.unwrap();
    let (response, _) = ask(&secret, Method::POST, &[("x-github-event", "ping")], Body::from("{}")).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "the flag opens nothing that has a secret");
}

#[tokio::test]
async fn jobs_are_refused_until_the_autoscalers_are_known() {
    let front = front(&[OPEN]).await.unwrap();
    let job = r#"{"action": "queued", "workflow_job": {"id": 1}, "repository": {"full_name": "acme/app", "owner": {}}}"#;
    let (response, _) = ask(&front, Method::POST, &[("x-github-event", "workflow_job")], Body::from(job)).await;
    assert_eq!(
        (response.status(), &response.headers()[header::RETRY_AFTER]),
        (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
    );
    let waiting = job.replace("queued", "waiting");
    let (response, text) = ask(&front, Method::POST, &[("x-github-event", "workflow_job")], Body::from(waiting)).await;
    assert_eq!((response.status(), text.as_str()), (StatusCode::OK, ""));
}

#[tokio::test]
async fn secrets_come_from_files_as_well() {
    let directory = std::env::temp_dir();
    let file = directory.join(format!("pacer-webhook-secrets-{}", std::process::id()));
    std::fs::write(&file, "new\n\nold\r\n").unwrap();
    let flag = format!("--github-webhook-secret-file={}", file.display());
    let both = front(&[&flag]).await;
    std::fs::write(&file, "\n").unwrap();
    let none = front(&[&flag]).await;
    std::fs::remove_file(&file).unwrap();
    let (response, _) = ask(&both.unwrap(), Method::POST, &[("x-github-event", "ping")], Body::from("{}")).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    for broken in [none, front(&[&flag]).await] {
        let text = format!("{:#}", broken.err().unwrap());
        assert!(text.contains("--github-webhook-secret-file"), "{text}");
    }
}

/// An API server with one RunnerSet, made in a year that no type can hold, and nothing else.
async fn with_an_unreadable_set(request: Request<kube::client::Body>) -> Result<Response, std::io::Error> {
    if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
        return std::future::pending().await;
    }
    let metadata = serde_json::json!({"name": "bad", "namespace": "ci", "creationTimestamp": "10000-01-01T00:00:00Z"});
    let spec = serde_json::json!({"repository": "acme/app", "serviceName": "", "selector": {}, "template": {}});
    let sets = [serde_json::json!({"metadata": metadata, "spec": spec})];
    let items = if request.uri().path().ends_with("/runnersets") { sets.as_slice() } else { &[] };
    let list = serde_json::json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
    Ok(Response::new(Body::from(list.to_string())))
}

#[tokio::test]
async fn objects_that_cannot_be_read_are_counted_by_kind() {
    let metrics = Arc::new(Metrics::default());
    let counts = || {
        let text = metrics.text();
        let series = text.lines().filter_map(|line| line.strip_prefix("pacer_unreadable_objects"));
        series.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(counts(), [""; 0], "nothing is watched");
    let client = Client::new(tower::service_fn(with_an_unreadable_set), "default");
    let server = server(&[OPEN], client, &metrics).await.unwrap();
    let (front, stop) = (server.front.clone(), CancellationToken::new());
    let running = tokio::spawn(server.run(Health::new(metrics.clone()), stop.clone()));
    assert!(front.receiver.ready().await);
    let expected = [
        r#"{kind="HorizontalRunnerAutoscaler"} 0"#,
        r#"{kind="JobLedger"} 0"#,
        r#"{kind="RunnerDeployment"} 0"#,
        r#"{kind="RunnerSet"} 1"#,
    ];
    assert_eq!(counts(), expected);
    stop.cancel();
    running.await.unwrap().unwrap();
}
