//! Answers of any kind to every call: an error or a result, never a panic, and nothing without an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use jiff::Timestamp;
use pacer_core::scope::Scope;
use pacer_github::{
    CheckName, ClientOptions, CredentialParts, Credentials, Endpoints, Error, GitHub, HookOwner, JitRequest, KeyFiles,
    ProxyRules, Repository, Secret, Transport, Webhook,
};

const TOKEN: &str = "ghp_TokenThatMustNeverBeShown";

const KEY: &str = include_str!("../keys/app-pkcs1.pem");

/// Byte that separates the answers of a script.
const END: u8 = 0x1e;

/// Most answers that a script has; then it begins anew.
const ANSWERS: usize = 6;

/// Most requests that the calls of one test may come to.
const REQUESTS: usize = 20_000;

/// For each call a script: its name, and what is answered in turn, each with its status, its headers and its body.
const SCRIPTS: [&str; 19] = [
    "token\n201\ndate: Thu, 01 Jan 2026 00:00:00 GMT\n\n{\"token\":\"secret\",\"expires_at\":\"2026-01-01T00:00:00Z\"}",
    "runners\n200\netag: \"tag\"\nlink: <http://127.0.0.1:1/orgs/acme/actions/runners?per_page=100&page=2>; rel=\"next\"\n\n{\"total_count\":101,\"runners\":[{\"id\":1,\"name\":\"a\",\"os\":\"linux\",\"status\":\"online\",\"busy\":false,\"labels\":[{\"id\":1,\"name\":\"x\",\"type\":\"custom\"}]},{\"id\":2,\"name\":\"b\",\"status\":\"offline\",\"busy\":true}]}\u{1e}200\netag: \"last\"\n\n{\"total_count\":101,\"runners\":[]}\u{1e}304\netag: \"tag\"\n\n\u{1e}304\n\n",
    "remove\n204\n\n",
    "remove\n422\n\n{\"message\":\"Bad request - Runner \\\"a\\\" is still running a job\"}",
    "job\n200\n\n{\"id\":9,\"run_id\":7,\"run_attempt\":1,\"status\":\"in_progress\",\"created_at\":\"2026-01-01T00:00:00Z\",\"started_at\":null,\"labels\":[\"x\"],\"runner_name\":\"a\",\"workflow_name\":\"ci\"}",
    "queue\n200\netag: W/\"tag\"\nx-ratelimit-limit: 5000\nx-ratelimit-remaining: 4999\nx-ratelimit-reset: 1790000000\nx-ratelimit-resource: core\n\n{\"total_count\":1,\"workflow_runs\":[{\"id\":7,\"name\":\"ci\",\"status\":\"queued\",\"run_attempt\":1,\"created_at\":\"2026-01-01T00:00:00Z\",\"updated_at\":\"2026-01-01T00:00:01Z\"}],\"jobs\":[{\"id\":9,\"run_id\":7,\"run_attempt\":1,\"status\":\"queued\",\"created_at\":\"2026-01-01T00:00:00Z\",\"labels\":[]}]}",
    "groups\n200\n\n{\"total_count\":1,\"runner_groups\":[{\"id\":1,\"name\":\"Default\",\"visibility\":\"all\",\"default\":true}]}",
    "visible\n200\n\n{\"total_count\":1,\"runner_groups\":[{\"id\":2,\"name\":\"gpu\",\"visibility\":\"selected\",\"default\":false}]}",
    "jit\n201\n\n{\"runner\":{\"id\":3,\"name\":\"a\",\"os\":\"unknown\",\"status\":\"offline\",\"busy\":false,\"labels\":[]},\"encoded_jit_config\":\"e30=\"}",
    "agent\n200\n\n[{\"os\":\"linux\",\"architecture\":\"x64\",\"download_url\":\"https://github.com/x\",\"filename\":\"actions-runner-linux-x64-2.330.0.tar.gz\"}]",
    "hooks\n200\n\n[{\"id\":5,\"active\":true,\"events\":[\"workflow_job\"],\"config\":{\"url\":\"https://hooks.example/\"}}]",
    "deliveries\n200\nlink: <http://127.0.0.1:1/x?cursor=v1_1>; rel=\"next\", <http://127.0.0.1:1/x>; rel=\"first\"\n\n[{\"id\":3,\"guid\":\"g\",\"delivered_at\":\"2026-01-01T00:00:00Z\",\"redelivery\":false,\"status\":\"OK\",\"status_code\":200,\"event\":\"workflow_job\",\"action\":\"queued\"}]",
    "repositories\n200\n\n[{\"name\":\"app\",\"owner\":{\"login\":\"acme\"},\"archived\":false,\"disabled\":false}]",
    "runs\n200\n\n{\"total_count\":1,\"workflow_runs\":[{\"id\":7,\"status\":\"completed\"}]}",
    "past\n200\n\n{\"total_count\":1,\"jobs\":[{\"id\":9,\"run_attempt\":1,\"name\":\"build\",\"workflow_name\":\"ci\",\"conclusion\":\"success\",\"created_at\":\"2026-01-01T00:00:00Z\",\"started_at\":\"2026-01-01T00:00:05Z\",\"completed_at\":\"2026-01-01T00:01:00Z\",\"labels\":[\"x\"],\"runner_name\":\"a\"}]}",
    "reported\n200\n\n{\"status\":\"queued\",\"name\":\"build\",\"head_sha\":\"0123456789abcdef0123456789abcdef01234567\"}",
    "check\n200\n\n{\"total_count\":1,\"check_runs\":[{\"id\":11,\"name\":\"n\",\"external_id\":\"e\"}]}",
    "end\n200\n\n{\"id\":9,\"run_id\":7,\"run_attempt\":1,\"status\":\"completed\",\"conclusion\":\"failure\",\"head_branch\":\"main\",\"created_at\":\"2026-01-01T00:00:00Z\",\"completed_at\":\"2026-01-01T00:01:00Z\",\"labels\":[],\"steps\":[{\"name\":\"s\",\"status\":\"completed\",\"conclusion\":\"failure\",\"number\":1}]}",
    "installations\n200\nlink: <>; rel=next, <\n\n[{\"id\":1,\"account\":{\"login\":\"acme\"},\"repository_selection\":\"all\",\"suspended_at\":null,\"permissions\":{\"checks\":\"write\"},\"html_url\":\"https://github.com/x\"}]",
];

/// Refusals, which answer any call.
const REFUSALS: [&str; 4] = [
    "any\n403\nretry-after: 60\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 1790000000\n\n{\"message\":\"You have exceeded a secondary rate limit\",\"documentation_url\":\"https://docs.github.com/rest\"}",
    "any\n401\n\n{\"message\":\"Bad credentials\"}",
    "any\n301\nlocation: http://127.0.0.1/elsewhere\n\n{\"message\":\"Moved Permanently\",\"url\":\"http://[\"}",
    "any\n503\nretry-after: Thu, 01 Jan 1970 00:00:00 GMT\n\n<html>",
];

#[derive(Clone, Debug)]
struct Answer {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Bytes,
}

/// Three lines of an answer are enough: a status, headers, an empty one; the rest is the body.
fn answer(bytes: &[u8]) -> Answer {
    let (status, mut rest) = line(bytes);
    let status = std::str::from_utf8(status).ok().and_then(|status| status.parse().ok()).unwrap_or(200);
    let mut headers = Vec::new();
    loop {
        let (header, after) = line(rest);
        rest = after;
        let Some(colon) = header.iter().position(|&byte| byte == b':') else { break };
        let name = String::from_utf8_lossy(&header[..colon]).into_owned();
        headers.push((name, header[colon + 1..].trim_ascii().to_vec()));
    }
    Answer { status, headers, body: Bytes::copy_from_slice(rest) }
}

fn line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|&byte| byte == b'\n');
    end.map_or((bytes, &[]), |end| (&bytes[..end], &bytes[end + 1..]))
}

/// A GitHub that gives these answers in turn, again and again.
fn github(credentials: Credentials, answers: Vec<Answer>, asked: Arc<AtomicUsize>) -> GitHub {
    let transport = Transport::new(tower::service_fn(move |_: http::Request<Bytes>| {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        let Answer { status, headers, body } = answers[number % answers.len()].clone();
        let mut response = http::Response::new(body);
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
        for (name, value) in headers {
            let (name, value) = (http::HeaderName::try_from(name), http::HeaderValue::try_from(value));
            if let (Ok(name), Ok(value)) = (name, value) {
                response.headers_mut().append(name, value);
            }
        }
        async move { Ok(response) }
    }));
    let endpoints = Endpoints::resolve(Some("http://127.0.0.1:1"), None, None, None).unwrap();
    let options = ClientOptions { proxy: ProxyRules::Direct, ..ClientOptions::default() };
    GitHub::with_transport(credentials, endpoints, &options, transport).unwrap()
}

fn credentials(call: &str) -> Credentials {
    if call != "installations" && call != "deliveries" {
        return Credentials::Token(Secret::new(TOKEN));
    }
    let parts =
        CredentialParts { app_id: Some("4242".into()), app_private_key: Some(Secret::new(KEY)), ..CredentialParts::default() };
    Credentials::from_parts(parts, KeyFiles::Refused).unwrap()
}

/// Makes the call of this name; none where no call has it.
async fn call(github: &GitHub, name: &str) -> Option<Result<(), Error>> {
    let (scope, repository) = (Scope::Organization("acme".to_owned()), Repository::new("acme", "app"));
    Some(match name {
        "token" => github.create_registration_token(&scope).await.map(drop),
        "runners" => github.list_runners(&scope).await.map(drop),
        "remove" => github.remove_runner(&scope, 1).await.map(drop),
        "job" => github.job(&repository, 9).await.map(drop),
        "queue" => github.queue(&repository).await.map(drop),
        "groups" => github.runner_groups(&scope).await.map(drop),
        "visible" => github.runner_groups_visible_to("acme", "app").await.map(drop),
        "jit" => {
            let request = JitRequest { name: "a", runner_group_id: 1, labels: vec!["x".to_owned()], work_folder: "_work" };
            github.register_just_in_time(&scope, &request).await.map(drop)
        }
        "agent" => github.newest_agent(&scope).await.map(drop),
        "hooks" => github.hooks(&HookOwner::Repository(repository)).await.map(drop),
        "deliveries" => match github.deliveries(&Webhook::App, None).await {
            Ok(page) => github.deliveries(&Webhook::App, page.next.as_ref()).await.map(drop),
            Err(error) => Err(error),
        },
        "repositories" => match github.repositories("acme", None).await {
            Ok(page) => github.repositories("acme", page.next.as_ref()).await.map(drop),
            Err(error) => Err(error),
        },
        "runs" => github.past_runs(&repository, (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH), None).await.map(drop),
        "past" => github.past_jobs(&repository, 7, None).await.map(drop),
        "reported" => github.reported_job(&repository, 9).await.map(drop),
        "check" => {
            let name = CheckName { commit: "0123456789abcdef0123456789abcdef01234567", name: "n", external_id: "e" };
            github.find_check_run(&repository, name).await.map(drop)
        }
        "end" => match github.job_end(&repository, 9).await {
            Ok(_) => github.run_end(&repository, 7).await.map(drop),
            Err(error) => Err(error),
        },
        "installations" => github.installations().await.map(drop),
        "any" => github.app_hook_url().await.map(drop),
        _ => return None,
    })
}

#[test]
fn every_call_ends_in_an_error_or_a_result_whatever_is_answered() {
    pacer_fuzz::bytes!(SCRIPTS.into_iter().chain(REFUSALS), |bytes| {
        let (name, script) = line(bytes);
        let Ok(name) = std::str::from_utf8(name) else { return false };
        let answers = script.split(|&byte| byte == END).take(ANSWERS).map(answer).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let asked = Arc::<AtomicUsize>::default();
        let ended: Vec<_> = runtime.block_on(async {
            let github = github(credentials(name), answers, Arc::clone(&asked));
            // Twice, so that what was kept is compared with what comes next.
            [call(&github, name).await, call(&github, name).await].into_iter().flatten().collect()
        });
        for error in ended.iter().filter_map(|ended| ended.as_ref().err()) {
            let text = format!("{error} {error:?}");
            assert!(!text.contains(TOKEN), "{text}");
        }
        assert!(asked.load(Ordering::Relaxed) < REQUESTS);
        // A refusal is an answer as well.
        !ended.is_empty()
    });
}
