//! Authentication of GitHub Apps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{Seen, Server, app, organization, reply, repository};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use pacer_core::scope::Scope;
use pacer_github::{Endpoint, ErrorKind, Outcome};
use ring::signature::{KeyPair, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};

const EMPTY: &str = r#"{"total_count":0,"runners":[]}"#;

fn installation_token(text: &str, lifetime: i64) -> String {
    let expires_at = Timestamp::now() + SignedDuration::from_secs(lifetime);
    format!(r#"{{"token":"{text}","expires_at":"{expires_at}","permissions":{{}}}}"#)
}

fn is_token_call(request: &Seen) -> bool {
    request.path.ends_with("/access_tokens")
}

/// The claims of a JWT whose signature fits the test's key.
fn verified(authorization: &str) -> serde_json::Value {
    let token = authorization.strip_prefix("Bearer ").unwrap();
    let (message, signature) = token.rsplit_once('.').unwrap();
    let (header, claims) = message.split_once('.').unwrap();
    let body: String = crate::support::PKCS1.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = base64::engine::general_purpose::STANDARD.decode(body).unwrap();
    let pair = RsaKeyPair::from_der(&der).unwrap();
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key().as_ref())
        .verify(message.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap())
        .unwrap();
    let json = |part: &str| serde_json::from_slice::<serde_json::Value>(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
    assert_eq!(json(header), serde_json::json!({"alg": "RS256", "typ": "JWT"}));
    json(claims)
}

#[tokio::test]
async fn the_app_signs_and_its_installation_calls() {
    let server = Server::start(|request| match is_token_call(request) {
        true => reply(201, &[], &installation_token("ghs_one", 3600)),
        false => reply(200, &[], EMPTY),
    })
    .await;
    let github = server.client_as(app(Some("77")));
    for _ in 0..3 {
        github.list_runners(&organization()).await.unwrap();
    }
    let seen = server.seen();
    assert_eq!(seen[0].line(), "POST /app/installations/77/access_tokens");
    assert_eq!(seen.iter().filter(|request| is_token_call(request)).count(), 1);
    assert_eq!(seen[1].header("authorization"), "Bearer ghs_one");
    let claims = verified(seen[0].header("authorization"));
    let now = Timestamp::now().as_second();
    let (issued, expires) = (claims["iat"].as_i64().unwrap(), claims["exp"].as_i64().unwrap());
    assert!((-65..=-60).contains(&(issued - now)), "{claims}");
    assert!(expires > now && expires - now <= 600 && expires - issued <= 600, "{claims}");
    assert_eq!(claims["iss"], "4242");
}

#[tokio::test]
async fn many_calls_at_once_fetch_one_token() {
    let server = Server::start(|request| match is_token_call(request) {
        true => reply(201, &[], &installation_token("ghs_one", 3600)),
        false => reply(200, &[], EMPTY),
    })
    .await;
    let github = server.client_as(app(Some("77")));
    let scopes: Vec<_> = (0..20).map(|n| Scope::Organization(format!("org{n}"))).collect();
    let results = futures::future::join_all(scopes.iter().map(|scope| github.list_runners(scope))).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(server.seen().iter().filter(|request| is_token_call(request)).count(), 1);
}

#[tokio::test]
async fn tokens_are_renewed_before_they_expire() {
    // lifetime of every token in seconds -> token calls for three listings
    for (lifetime, expected) in [(3_600, 1), (200, 3), (30, 3)] {
        let issued = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&issued);
        let server = Server::start(move |request| match is_token_call(request) {
            true => {
                let number = count.fetch_add(1, Ordering::SeqCst);
                reply(201, &[], &installation_token(&format!("ghs_{number}"), lifetime))
            }
            false => reply(200, &[], EMPTY),
        })
        .await;
        let github = server.client_as(app(Some("77")));
        for _ in 0..3 {
            github.list_runners(&organization()).await.unwrap();
        }
        assert_eq!(issued.load(Ordering::SeqCst), expected, "{lifetime}");
    }
}

#[tokio::test]
async fn a_token_that_still_holds_bridges_a_failing_renewal() {
    let issued = AtomicU64::new(0);
    let server = Server::start(move |request| match is_token_call(request) {
        true if issued.fetch_add(1, Ordering::SeqCst) == 0 => reply(201, &[], &installation_token("ghs_old", 200)),
        true => reply(500, &[], "{}"),
        false => reply(200, &[], EMPTY),
    })
    .await;
    let github = server.client_as(app(Some("77")));
    github.list_runners(&organization()).await.unwrap();
    github.list_runners(&organization()).await.unwrap();
    assert_eq!(server.seen().last().unwrap().header("authorization"), "Bearer ghs_old");
}

#[tokio::test]
async fn a_refused_token_is_not_used_again() {
    let issued = AtomicU64::new(0);
    let server = Server::start(move |request| match is_token_call(request) {
        true => {
            let number = issued.fetch_add(1, Ordering::SeqCst);
            reply(201, &[], &installation_token(&format!("ghs_{number}"), 3600))
        }
        false if request.header("authorization") == "Bearer ghs_0" => reply(401, &[], r#"{"message":"Bad credentials"}"#),
        false => reply(200, &[], EMPTY),
    })
    .await;
    let github = server.client_as(app(Some("77")));
    let error = github.list_runners(&organization()).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unauthorized);
    github.list_runners(&organization()).await.unwrap();
}

#[tokio::test]
async fn without_an_installation_id_each_owner_has_its_own() {
    let server = Server::start(|request| match request.path.as_str() {
        "/orgs/acme/installation" => reply(200, &[], r#"{"id":1}"#),
        "/repos/acme/app/installation" => reply(200, &[], r#"{"id":1}"#),
        "/enterprises/corp/installation" => reply(200, &[], r#"{"id":2}"#),
        "/orgs/other/installation" => reply(404, &[], r#"{"message":"Not Found"}"#),
        "/app/installations/1/access_tokens" => reply(201, &[], &installation_token("ghs_acme", 3600)),
        "/app/installations/2/access_tokens" => reply(201, &[], &installation_token("ghs_corp", 3600)),
        _ => reply(200, &[], EMPTY),
    })
    .await;
    let github = server.client_as(app(None));
    for scope in [organization(), organization(), repository(), Scope::Enterprise("corp".into())] {
        github.list_runners(&scope).await.unwrap();
    }
    let count = |endpoint| {
        let calls = github.calls();
        calls.iter().find(|it| it.endpoint == endpoint && it.outcome == Outcome::Success).unwrap().calls
    };
    assert_eq!((count(Endpoint::FindInstallation), count(Endpoint::InstallationToken)), (3, 2));
    assert_eq!(server.seen().last().unwrap().header("authorization"), "Bearer ghs_corp");

    let error = github.list_runners(&Scope::Organization("other".into())).await.unwrap_err();
    assert_eq!(error.endpoint(), Endpoint::FindInstallation);
    assert!(error.to_string().contains("not installed for organization other"), "{error}");
}

#[tokio::test]
async fn failures_of_the_app_itself_are_explained() {
    let table = [
        (401, "A JSON web token could not be decoded", "app id and private key belong together"),
        (404, "Integration not found", "github_app_installation_id"),
        (403, "This installation has been suspended", "not suspended"),
    ];
    for (status, message, advice) in table {
        let body = format!(r#"{{"message":"{message}"}}"#);
        let server = Server::start(move |_| reply(status, &[], &body)).await;
        let error = server.client_as(app(Some("77"))).list_runners(&organization()).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(message) && text.contains(advice), "{text}");
        assert!(text.contains("/app/installations/77/access_tokens"), "{text}");
        assert_eq!(server.lines().len(), 1);
    }
}
