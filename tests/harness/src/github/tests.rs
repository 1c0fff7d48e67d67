//! Agents and jobs without HTTP on a paused clock; the API, faults and webhooks through a real client.

use std::time::Duration;

use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

use super::*;

mod agents;
mod api;
mod conduct;
mod late;
mod load;
mod schema;
mod webhooks;

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(20);

async fn github() -> SimGitHub {
    SimGitHub::start(Settings::prompt()).await.unwrap()
}

fn app() -> Scope {
    Scope::repository("acme", "app")
}

fn registration(github: &SimGitHub, scope: &Scope, name: &str) -> Registration {
    Registration {
        url_path: scope.to_string(),
        token: github.registration_token(scope),
        name: name.to_owned(),
        ephemeral: true,
        ..Registration::default()
    }
}

fn runner(github: &SimGitHub, scope: &Scope, name: &str) -> Session {
    github.register(registration(github, scope, name)).unwrap()
}

fn job(github: &SimGitHub) -> JobId {
    github.queue_job(JobSpec::new("acme/app", ["self-hosted"])).unwrap()
}

/// A client of the API.
struct Api {
    client: Client<HttpConnector, Full<bytes::Bytes>>,
    base: String,
    authorization: Option<String>,
}

struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: bytes::Bytes,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn message(&self) -> String {
        self.json()["message"].as_str().unwrap().to_owned()
    }

    /// The URL of the `Link` with this relation.
    fn link(&self, rel: &str) -> Option<String> {
        let link = self.header("link").split(", ").find(|link| link.ends_with(&format!("rel=\"{rel}\"")))?;
        Some(link.split_once('>')?.0.trim_start_matches('<').to_owned())
    }
}

impl Api {
    fn of(github: &SimGitHub) -> Self {
        Self::with(github, &format!("Bearer {}", github.pat()))
    }

    fn with(github: &SimGitHub, authorization: &str) -> Self {
        Self {
            client: Client::builder(TokioExecutor::new()).build_http(),
            base: github.api_url(),
            authorization: Some(authorization.to_owned()),
        }
    }

    async fn try_send(&self, method: Method, path: &str, tag: Option<&str>) -> Option<Reply> {
        let url = if path.starts_with("http://") { path.to_owned() } else { format!("{}{path}", self.base) };
        let mut request = Request::builder().method(method).uri(url);
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        if let Some(tag) = tag {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        let (parts, body) = self.client.request(request.body(Full::default()).unwrap()).await.ok()?.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some(Reply { status: parts.status, headers: parts.headers, body })
    }

    async fn get(&self, path: &str) -> Reply {
        self.try_send(Method::GET, path, None).await.unwrap()
    }

    async fn get_if_changed(&self, path: &str, tag: &str) -> Reply {
        self.try_send(Method::GET, path, Some(tag)).await.unwrap()
    }

    async fn post(&self, path: &str) -> Reply {
        self.try_send(Method::POST, path, None).await.unwrap()
    }

    async fn delete(&self, path: &str) -> Reply {
        self.try_send(Method::DELETE, path, None).await.unwrap()
    }
}
