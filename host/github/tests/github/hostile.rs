//! Servers that answer with whatever takes the most memory.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Server, TOKEN, options, organization, reply};
use pacer_github::{AnswerMemory, Credentials, GitHub, Repository, Secret};
use serde_json::json;

/// What the answers of all such servers may hold together.
const MOST: usize = 64 << 20;

fn client(server: &Server, memory: &Arc<AnswerMemory>) -> GitHub {
    let options = options().for_foreign(Arc::clone(memory));
    GitHub::new(Credentials::Token(Secret::new(TOKEN)), server.endpoints(), &options).unwrap()
}

/// The number of the page that is asked for.
fn page(path: &str) -> u64 {
    path.split_once("&page=").and_then(|(_, number)| number.parse().ok()).unwrap_or(1)
}

#[tokio::test]
async fn answers_of_many_servers_hold_no_more_than_one_budget() {
    // A million runners, each page of 900 kB with a validator: it is cached, and so are its runners.
    let server = Server::start(|seen| {
        let number = page(&seen.path);
        let runner = |index: u64| {
            let name = format!("{}{number}-{index}", "n".repeat(9_000));
            json!({"id": number * 100 + index, "name": name, "status": "online", "busy": false})
        };
        let body = json!({"total_count": 1_000_000, "runners": (0..100).map(runner).collect::<Vec<_>>()});
        reply(200, &[("etag", &format!("\"{number}\""))], &body.to_string())
    })
    .await;
    let modest = Server::start(|_| reply(200, &[], r#"{"total_count":0,"runners":[]}"#)).await;
    let memory = Arc::new(AnswerMemory::default());
    let mut clients = Vec::new();
    while memory.refused() == 0 {
        let github = client(&server, &memory);
        // Incomplete, or refused for lack of room.
        let complete = github.list_runners(&organization()).await.is_ok_and(|listing| listing.complete);
        assert!(!complete && memory.held() <= MOST, "{} bytes", memory.held());
        clients.push(github);
        assert!(clients.len() < 50, "{} clients hold {} bytes", clients.len(), memory.held());
    }
    let refused = clients.last().unwrap().list_runners(&organization()).await.unwrap_err().to_string();
    assert!(refused.contains("hold 64 MiB together"), "{refused}");
    // Whose answers are small is served all the same.
    assert!(client(&modest, &memory).list_runners(&organization()).await.unwrap().complete);
    drop(clients);
    // What a client is made of ends in tasks of its own.
    for _ in 0..1_000 {
        if memory.held() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(memory.held() < 1 << 20, "{} bytes are held for nobody", memory.held());
}

#[tokio::test]
async fn jobs_of_a_run_are_read_up_to_a_size_whatever_number_is_promised() {
    let server = Server::start(|seen| {
        if !seen.path.contains("/jobs") {
            let run = json!({"id": 1, "status": "queued"});
            return reply(200, &[], &json!({"total_count": 1, "workflow_runs": [run]}).to_string());
        }
        let number = page(&seen.path);
        let job = |index: u64| {
            let label = "l".repeat(35_000);
            json!({"id": number * 100 + index, "status": "queued", "labels": [label], "created_at": "2026-01-01T00:00:00Z"})
        };
        let body = json!({"total_count": 1_000_000, "jobs": (0..100).map(job).collect::<Vec<_>>()});
        reply(200, &[], &body.to_string())
    })
    .await;
    let memory = Arc::new(AnswerMemory::default());
    let github = client(&server, &memory);
    let listing = github.queue(&Repository::new("acme", "app")).await.unwrap();
    assert!(!listing.complete && !listing.jobs.is_empty());
    assert!(memory.held() <= 16 << 20, "{} bytes", memory.held());
    let pages = server.seen().iter().filter(|seen| seen.path.contains("/jobs")).count();
    assert!(pages <= 4, "{pages} pages of 3.5 MB were read");
}

#[tokio::test]
async fn crowded_pages_of_runs_and_jobs_are_refused() {
    for crowded in ["runs", "jobs"] {
        let server = Server::start(move |seen| {
            let many = if seen.path.contains("/jobs") == (crowded == "jobs") { 5_000 } else { 1 };
            let entries = |form: fn(u64) -> serde_json::Value| (1..=many).map(form).collect::<Vec<_>>();
            let body = if seen.path.contains("/jobs") {
                json!({"total_count": many, "jobs": entries(|id| json!({"id": id, "status": "queued"}))})
            } else {
                json!({"total_count": many, "workflow_runs": entries(|id| json!({"id": id, "status": "queued"}))})
            };
            reply(200, &[], &body.to_string())
        })
        .await;
        let listed = client(&server, &Arc::default()).queue(&Repository::new("acme", "app")).await;
        assert!(listed.is_err() || listed.is_ok_and(|listing| listing.jobs.is_empty() && !listing.complete), "{crowded}");
    }
}
