//! A scripted GitHub on a real socket, and what the tests ask it with.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use http::{HeaderMap, Request, Response};
use pacer_core::scope::Scope;
use pacer_github::{ClientOptions, CredentialParts, Credentials, Endpoints, GitHub, KeyFiles, ProxyRules, Secret};

pub(crate) const TOKEN: &str = "ghp_TokenThatMustNeverBeShown";
pub(crate) const PKCS1: &str = include_str!("../keys/app-pkcs1.pem");

/// One request as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

pub(crate) struct Server {
    pub(crate) url: String,
    log: Arc<Mutex<Vec<Seen>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Answers every request with what `script` makes of it; none leaves it without an answer.
    pub(crate) async fn start(script: impl Fn(&Seen) -> Option<Response<String>> + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (log, script) = (Arc::<Mutex<Vec<Seen>>>::default(), Arc::new(script));
        let seen = Arc::clone(&log);
        let answer = move |request: Request<Body>| {
            let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
            async move {
                let (parts, body) = request.into_parts();
                let body = String::from_utf8(to_bytes(body, 1 << 20).await.unwrap().to_vec()).unwrap();
                let path = parts.uri.path_and_query().unwrap().to_string();
                let request = Seen { method: parts.method.to_string(), path, headers: parts.headers, body };
                seen.lock().unwrap().push(request.clone());
                match script(&request) {
                    Some(response) => response,
                    None => std::future::pending().await,
                }
            }
        };
        let router = Router::new().fallback(answer);
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, log, task }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().iter().map(Seen::line).collect()
    }

    pub(crate) fn client(&self) -> GitHub {
        self.client_as(Credentials::Token(Secret::new(TOKEN)))
    }

    pub(crate) fn client_as(&self, credentials: Credentials) -> GitHub {
        GitHub::new(credentials, self.endpoints(), &options()).unwrap()
    }

    pub(crate) fn endpoints(&self) -> Endpoints {
        Endpoints::resolve(Some(&self.url), None, None, None).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn options() -> ClientOptions {
    ClientOptions { proxy: ProxyRules::Direct, ..ClientOptions::default() }
}

pub(crate) fn app(installation: Option<&str>) -> Credentials {
    let parts = CredentialParts {
        app_id: Some("4242".into()),
        app_installation_id: installation.map(str::to_owned),
        app_private_key: Some(Secret::new(PKCS1)),
        ..CredentialParts::default()
    };
    Credentials::from_parts(parts, KeyFiles::Refused).unwrap()
}

pub(crate) fn reply(status: u16, headers: &[(&str, &str)], body: &str) -> Option<Response<String>> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    Some(response.body(body.to_owned()).unwrap())
}

/// A conditional answer: 304 when the request has the tag.
pub(crate) fn tagged(request: &Seen, tag: &str, body: &str) -> Option<Response<String>> {
    if request.header("if-none-match") == tag {
        return reply(304, &[("etag", tag)], "");
    }
    reply(200, &[("etag", tag)], body)
}

pub(crate) fn runner(id: u64, busy: bool) -> serde_json::Value {
    serde_json::json!({
        "id": id, "name": format!("runner-{id}"), "os": "linux", "status": "online", "busy": busy,
        "labels": [{"id": 1, "name": "self-hosted", "type": "read-only"}, {"name": "gpu", "type": "custom"}],
    })
}

/// The page that a request for runners asks for.
pub(crate) fn page(request: &Seen, runners: &[serde_json::Value]) -> String {
    let number = |name: &str, default: usize| {
        let query = request.path.split_once('?').map(|(_, query)| query).unwrap_or_default();
        let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        value.map_or(default, |value| value.parse().unwrap())
    };
    let (size, page) = (number("per_page", 30), number("page", 1));
    let part: Vec<_> = runners.iter().skip(size * (page - 1)).take(size).collect();
    serde_json::json!({ "total_count": runners.len(), "runners": part }).to_string()
}

pub(crate) fn organization() -> Scope {
    Scope::Organization("acme".into())
}

pub(crate) fn repository() -> Scope {
    Scope::Repository { owner: "acme".into(), name: "app".into() }
}
