//! Runner groups, webhooks and deliveries against a scripted GitHub on a real socket.

use crate::support::{Server, app, reply};
use pacer_github::{ErrorKind, HookOwner, Repository, RunnerGroup, Webhook};
use serde_json::json;

fn repository() -> HookOwner {
    HookOwner::Repository(Repository::new("acme", "app"))
}

/// A `Link` header to the next page.
fn link(server_path: &str) -> String {
    format!("<https://api.github.com/repositories/7{server_path}>; rel=\"next\", <https://api.github.com/x?page=9>; rel=\"last\"")
}

#[tokio::test]
async fn visible_groups_of_all_pages() {
    let server = Server::start(|request| match request.path.as_str() {
        "/orgs/acme/actions/runner-groups?visible_to_repository=app&per_page=100" => {
            let next = link("/actions/runner-groups?visible_to_repository=app&per_page=100&page=2");
            let groups = json!([{"id": 1, "name": "Default", "default": true, "inherited": false, "visibility": "all"}]);
            reply(200, &[("link", &next)], &json!({"total_count": 2, "runner_groups": groups}).to_string())
        }
        "/orgs/acme/actions/runner-groups?visible_to_repository=app&per_page=100&page=2" => {
            let groups = json!([{"id": 2, "name": "gpu", "default": false, "inherited": true}]);
            reply(200, &[], &json!({"total_count": 2, "runner_groups": groups}).to_string())
        }
        "/orgs/acme/actions/runner-groups?visible_to_repository=a%26b&per_page=100" => reply(404, &[], "{}"),
        other => panic!("{other}"),
    })
    .await;
    let github = server.client();
    let groups = github.runner_groups_visible_to("acme", "app").await.unwrap();
    let group = |id, name: &str, default, inherited| RunnerGroup { id, name: name.into(), default, inherited };
    assert_eq!(groups, [group(1, "Default", true, false), group(2, "gpu", false, true)]);
    let error = github.runner_groups_visible_to("acme", "a&b").await.unwrap_err();
    assert!(error.to_string().contains("list the runner groups of organization acme"), "{error}");
}

#[tokio::test]
async fn a_hook_is_found_by_its_url() {
    let server = Server::start(|request| {
        let hook = |id: u64, url: &str| {
            json!({"type": "Repository", "id": id, "name": "web", "active": true, "events": ["workflow_job"],
                   "config": {"url": url, "content_type": "json", "insecure_ssl": "0", "secret": "********"}})
        };
        match request.path.as_str() {
            "/repos/acme/app/hooks?per_page=100" => {
                let hooks = json!([hook(1, "https://a/"), {"id": 2, "name": "old-service", "active": false, "events": []}]);
                reply(200, &[("link", &link("/hooks?per_page=100&page=2"))], &hooks.to_string())
            }
            "/repos/acme/app/hooks?per_page=100&page=2" => {
                reply(200, &[], &json!([hook(3, "https://b/?token=hush")]).to_string())
            }
            "/orgs/acme/hooks?per_page=100" => reply(200, &[], "[]"),
            other => panic!("{other}"),
        }
    })
    .await;
    let github = server.client();
    let hooks = github.hooks(&repository()).await.unwrap();
    assert_eq!(hooks.iter().map(|hook| (hook.id, hook.active)).collect::<Vec<_>>(), [(1, true), (2, false), (3, true)]);
    let found = hooks.iter().find(|hook| hook.url.as_deref() == Some("https://b/?token=hush")).unwrap();
    assert_eq!((found.id, found.events.as_slice()), (3, ["workflow_job".to_owned()].as_slice()));
    assert!(!format!("{hooks:?}").contains("hush"), "URLs of webhooks can carry passwords");
    assert!(github.hooks(&HookOwner::Organization("acme".into())).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_listing_without_end_is_an_error() {
    let server = Server::start(|_| reply(200, &[("link", &link("/hooks?page=2"))], "[]")).await;
    let error = server.client().hooks(&repository()).await.unwrap_err();
    assert!(error.to_string().contains("more than 100 pages"), "{error}");
    assert_eq!(server.lines().len(), 100);
}

fn delivery(id: u64, event: &str, action: Option<&str>, status: u16) -> serde_json::Value {
    json!({
        "id": id, "guid": format!("guid-{}", id / 10), "delivered_at": "2027-01-15T08:00:00Z", "redelivery": !id.is_multiple_of(10), "duration": 0.03,
        "status": "OK", "status_code": status, "event": event, "action": action, "installation_id": 1, "repository_id": 1,
        "throttled_at": null,
    })
}

#[tokio::test]
async fn deliveries_are_paged_and_asked_for_again() {
    let server = Server::start(|request| match request.line().as_str() {
        "GET /orgs/acme/hooks/5/deliveries?per_page=100" => {
            let page = json!([delivery(41, "workflow_job", Some("queued"), 502), delivery(30, "ping", None, 200)]);
            let next = "<https://api.github.com/organizations/9/hooks/5/deliveries?per_page=100&cursor=v1_30>; rel=\"next\"";
            reply(200, &[("link", next)], &page.to_string())
        }
        "GET /orgs/acme/hooks/5/deliveries?per_page=100&cursor=v1_30" => {
            reply(200, &[], &json!([delivery(20, "workflow_job", Some("completed"), 0)]).to_string())
        }
        "POST /orgs/acme/hooks/5/deliveries/41/attempts" => reply(202, &[], "{}"),
        "POST /orgs/acme/hooks/5/deliveries/42/attempts" => reply(404, &[], r#"{"message":"Not Found"}"#),
        "POST /orgs/acme/hooks/5/deliveries/43/attempts" => reply(200, &[], "<html>"),
        other => panic!("{other}"),
    })
    .await;
    let github = server.client();
    let hook = Webhook::Of { owner: HookOwner::Organization("acme".into()), hook: 5 };
    let first = github.deliveries(&hook, None).await.unwrap();
    let [missed, ping] = first.deliveries.as_slice() else { panic!("{first:?}") };
    assert_eq!(
        (missed.id, missed.guid.as_str(), missed.event.as_str(), missed.action.as_deref()),
        (41, "guid-4", "workflow_job", Some("queued"))
    );
    assert_eq!((missed.status_code, missed.succeeded(), missed.redelivery), (502, false, true));
    assert_eq!(
        (ping.action.as_deref(), ping.succeeded(), ping.delivered_at.to_string().as_str()),
        (None, true, "2027-01-15T08:00:00Z")
    );
    let second = github.deliveries(&hook, first.next.as_ref()).await.unwrap();
    assert_eq!((second.deliveries[0].id, second.next), (20, None));

    github.redeliver(&hook, 41).await.unwrap();
    let gone = github.redeliver(&hook, 42).await.unwrap_err();
    assert!(gone.to_string().contains("at most three days old") && gone.to_string().contains("admin:org_hook"), "{gone}");
    assert_eq!(github.redeliver(&hook, 43).await.unwrap_err().kind(), &ErrorKind::Decode);
    assert_eq!(server.lines().len(), 5, "nothing is sent twice");
}

#[tokio::test]
async fn the_apps_own_webhook_is_asked_by_the_app_itself() {
    let server = Server::start(|request| match request.line().as_str() {
        "GET /app/hook/deliveries?per_page=100" => {
            reply(200, &[], &json!([delivery(10, "workflow_job", Some("queued"), 502)]).to_string())
        }
        "POST /app/hook/deliveries/10/attempts" => reply(202, &[], "{}"),
        "GET /app/hook/config" => {
            reply(200, &[], r#"{"content_type":"json","insecure_ssl":"0","secret":"********","url":"https://hooks/"}"#)
        }
        other => panic!("{other}"),
    })
    .await;
    // Without an installation: there is none to be found for the App itself.
    let github = server.client_as(app(None));
    let page = github.deliveries(&Webhook::App, None).await.unwrap();
    github.redeliver(&Webhook::App, page.deliveries[0].id).await.unwrap();
    assert_eq!(github.app_hook_url().await.unwrap().as_deref(), Some("https://hooks/"));
    for request in server.seen() {
        let token = request.header("authorization").strip_prefix("Bearer ").unwrap().to_owned();
        assert_eq!(token.split('.').count(), 3, "a JWT");
    }
    let error = server.client().deliveries(&Webhook::App, None).await.unwrap_err();
    assert_eq!((error.kind(), error.scope()), (&ErrorKind::Invalid, None));
    assert!(
        error.to_string().contains("a webhook of the GitHub App") && error.to_string().contains("no App's credentials"),
        "{error}"
    );
    assert_eq!(server.lines().len(), 3, "refused before it is sent");
}
