//! Answers of any kind to every call: an error or a result, never a panic, and nothing without an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use pacer_github::{Credentials, Endpoints, GitHub, Repository, Secret, Transport};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::support::{TOKEN, options, organization};

/// Answers that are in order, one of each kind.
const GOOD: [&str; 8] = [
    r#"{"total_count":2,"runners":[{"id":1,"name":"a","os":"linux","status":"online","busy":false,"labels":[{"id":1,"name":"x","type":"custom"}]},{"id":2,"name":"b","status":"offline","busy":true}]}"#,
    r#"{"total_count":1,"workflow_runs":[{"id":7,"name":"ci","status":"queued","run_attempt":1,"created_at":"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:01Z"}]}"#,
    r#"{"total_count":1,"jobs":[{"id":9,"run_id":7,"run_attempt":1,"status":"in_progress","created_at":"2026-01-01T00:00:00Z","started_at":null,"labels":["x"],"runner_name":"a","workflow_name":"ci"}]}"#,
    r#"{"id":9,"run_id":7,"run_attempt":1,"status":"queued","created_at":"2026-01-01T00:00:00Z","labels":[]}"#,
    r#"{"token":"secret","expires_at":"2026-01-01T00:00:00Z"}"#,
    r#"{"total_count":1,"runner_groups":[{"id":1,"name":"Default","visibility":"all","default":true}]}"#,
    r#"[{"id":3,"guid":"g","delivered_at":"2026-01-01T00:00:00Z","redelivery":false,"status":"OK","status_code":200,"event":"workflow_job","action":"queued"}]"#,
    r#"{"message":"Bad credentials","documentation_url":"https://docs.github.com/rest"}"#,
];

/// What a text is damaged with.
const PIECES: [&str; 18] = [
    "",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "\\",
    "null",
    "-1",
    "1e400",
    "18446744073709551616",
    "0",
    "[[[[[[[[",
    "\u{0}",
    "é",
    "true",
    "\"2026-99-01T00:00:00Z\"",
];

/// Headers that the client reads.
const NAMES: [&str; 11] = [
    "link",
    "etag",
    "last-modified",
    "retry-after",
    "date",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-resource",
    "x-accepted-github-permissions",
    "location",
];

/// What they may say.
const VALUES: [&str; 13] = [
    "",
    "<http://127.0.0.1/x?page=2>; rel=\"next\"",
    "<>; rel=next, <",
    "\"tag\"",
    "Thu, 01 Jan 1970 00:00:00 GMT",
    "18446744073709551616",
    "-1",
    "0",
    "60",
    "core",
    "administration=write",
    "http://127.0.0.1/elsewhere",
    "http://[",
];

fn body() -> impl Strategy<Value = Bytes> {
    let damaged = (select(&GOOD[..]), proptest::collection::vec((any::<Index>(), 0_usize..6, select(&PIECES[..])), 0..4))
        .prop_map(|(text, damages)| {
            let mut text: Vec<char> = text.chars().collect();
            for (place, length, piece) in damages {
                let place = place.index(text.len() + 1);
                text.splice(place..(place + length).min(text.len()), piece.chars());
            }
            Bytes::from(text.into_iter().collect::<String>())
        });
    prop_oneof![6 => damaged, 1 => any::<Vec<u8>>().prop_map(Bytes::from)]
}

fn header() -> impl Strategy<Value = (&'static str, String)> {
    (select(&NAMES[..]), prop_oneof![4 => select(&VALUES[..]).prop_map(str::to_owned), 1 => "[ -~]{0,40}"])
}

#[derive(Clone, Debug)]
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

fn answer() -> impl Strategy<Value = Answer> {
    let status = prop_oneof![4 => Just(200_u16), 2 => select(&[201, 204, 301, 304, 401, 403, 404, 422, 429, 500, 503, 599][..])];
    (status, proptest::collection::vec(header(), 0..4), body()).prop_map(|(status, headers, body)| Answer {
        status,
        headers,
        body,
    })
}

/// A GitHub that gives these answers in turn, again and again.
fn github(answers: Vec<Answer>, asked: Arc<AtomicUsize>) -> GitHub {
    let transport = Transport::new(tower::service_fn(move |_: http::Request<Bytes>| {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        let Answer { status, headers, body } = answers[number % answers.len()].clone();
        let mut response = http::Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(name, value);
        }
        let response = response.body(body).map_err(Into::into);
        async move { response }
    }));
    let endpoints = Endpoints::resolve(Some("http://127.0.0.1:1"), None, None, None).unwrap();
    GitHub::with_transport(Credentials::Token(Secret::new(TOKEN)), endpoints, &options(), transport).unwrap()
}

proptest! {
    #[test]
    fn every_call_ends_in_an_error_or_a_result_whatever_is_answered(answers in proptest::collection::vec(answer(), 1..5)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let asked = Arc::<AtomicUsize>::default();
        let texts = runtime.block_on(async {
            let github = github(answers, Arc::clone(&asked));
            let (scope, repository) = (organization(), Repository::new("acme", "app"));
            let mut texts = Vec::new();
            // Twice, so that what was kept is compared with what comes next.
            for _ in 0..2 {
                texts.push(github.create_registration_token(&scope).await.map(drop));
                texts.push(github.list_runners(&scope).await.map(drop));
                texts.push(github.remove_runner(&scope, 1).await.map(drop));
                texts.push(github.job(&repository, 9).await.map(drop));
                texts.push(github.queue(&repository).await.map(drop));
                texts.push(github.runner_groups_visible_to("acme", "app").await.map(drop));
                texts.push(github.app_hook_url().await.map(drop));
            }
            texts
        });
        for error in texts.into_iter().filter_map(Result::err) {
            let text = format!("{error} {error:?}");
            prop_assert!(!text.contains(TOKEN), "{text}");
        }
        prop_assert!(asked.load(Ordering::Relaxed) < 20_000);
    }
}
