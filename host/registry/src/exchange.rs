//! Requests of one pull: bounded, redirected within limits, with credentials for the registry alone.

use std::error::Error;
use std::io;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, LOCATION, USER_AGENT, WWW_AUTHENTICATE};
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use pacer_connect::Client;
use pacer_core::gate::scrub;
use pacer_core::reference::is_loopback;
use rustls::CertificateError;
use serde::Deserialize;

use crate::challenge::{self, Challenge};
use crate::credentials::Login;
use crate::error::PullError;

/// Redirects that are followed for one request.
const HOPS: usize = 3;

/// Largest answer of a service that gives tokens, in bytes.
const TOKEN_BYTES: usize = 64 << 10;

/// Longest description of a failed connection, in bytes.
const WHY_BYTES: usize = 256;

/// What is asked for: for messages, and how much of it is read.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) what: &'static str,
    pub(crate) accept: &'static str,
    pub(crate) most: usize,
}

/// A repository for the time of one pull.
pub(crate) struct Exchange<'a> {
    pub(crate) client: &'a Client,
    /// As the policy set names it.
    pub(crate) registry: &'a str,
    /// The host that is called.
    pub(crate) server: String,
    pub(crate) repository: String,
    pub(crate) login: Option<&'a Login>,
    /// What the registry has asked for.
    pub(crate) authorization: Option<HeaderValue>,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Exchange<'_> {
    /// Gets something of the repository: `manifests/...` or `blobs/...`.
    pub(crate) async fn get(&mut self, path: &str, wanted: Wanted) -> Result<Bytes, PullError> {
        let scheme = if is_loopback(&self.server) { "http" } else { "https" };
        let uri = format!("{scheme}://{}/v2/{}/{path}", self.server, self.repository);
        let uri: Uri = uri.parse().map_err(|_| self.unreachable("its name makes no address"))?;
        let mut answer = self.send(uri.clone(), wanted, self.authorization.clone()).await?;
        if answer.status == StatusCode::UNAUTHORIZED && self.authorization.is_none() {
            self.authorization = Some(self.authorize(&answer.headers, &uri).await?);
            answer = self.send(uri, wanted, self.authorization.clone()).await?;
        }
        match answer.status {
            StatusCode::OK => Ok(answer.body),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.denied()),
            StatusCode::NOT_FOUND => Err(PullError::NotFound { registry: self.registry.to_owned(), what: wanted.what }),
            other => Err(self.status(other)),
        }
    }

    /// What the registry takes from now on.
    async fn authorize(&self, headers: &HeaderMap, asked: &Uri) -> Result<HeaderValue, PullError> {
        let unknown = || PullError::Challenge { registry: self.registry.to_owned() };
        let all = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| challenge::read(value.to_str().ok()?));
        let all: Vec<Challenge> = all.collect();
        let login = self.login.and_then(Login::header);
        let bearer = all.iter().find_map(|challenge| match challenge {
            Challenge::Bearer { realm, service } => Some((realm, service.as_deref())),
            Challenge::Basic => None,
        });
        let Some((realm, service)) = bearer else {
            return if all.is_empty() { Err(unknown()) } else { login.ok_or_else(|| self.denied()) };
        };
        let realm: Uri = realm.parse().map_err(|_| unknown())?;
        let host = realm.host().ok_or_else(unknown)?;
        if !(may_follow(asked, &realm) && is_near(&self.server, host)) {
            return Err(unknown());
        }
        let query = query(&realm, service, &self.repository);
        let mut parts = realm.clone().into_parts();
        let path = format!("{}?{query}", realm.path());
        parts.path_and_query = Some(path.parse().map_err(|_| unknown())?);
        let uri = Uri::from_parts(parts).map_err(|_| unknown())?;
        let wanted = Wanted { what: "token", accept: "application/json", most: TOKEN_BYTES };
        let answer = self.send(uri, wanted, login).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(self.denied()),
            other => return Err(self.status(other)),
        }
        let token: Token = serde_json::from_slice(&answer.body).map_err(|_| unknown())?;
        let token = token.token.or(token.access_token).ok_or_else(unknown)?;
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| unknown())?;
        value.set_sensitive(true);
        Ok(value)
    }

    async fn send(&self, mut uri: Uri, wanted: Wanted, mut authorization: Option<HeaderValue>) -> Result<Answer, PullError> {
        for _ in 0..=HOPS {
            let answer = self.send_once(&uri, wanted, authorization.clone()).await?;
            let Some(location) = location(&answer) else { return Ok(answer) };
            let target = target(&uri, location).ok_or_else(|| self.redirected("to where nothing is"))?;
            if !may_follow(&uri, &target) {
                return Err(self.redirected("away from TLS"));
            }
            if target.scheme() != uri.scheme() || target.authority() != uri.authority() {
                authorization = None;
            }
            uri = target;
        }
        Err(self.redirected("from one place to the next, too often"))
    }

    async fn send_once(&self, uri: &Uri, wanted: Wanted, authorization: Option<HeaderValue>) -> Result<Answer, PullError> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = uri.clone();
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static(wanted.accept));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("pacer/", env!("CARGO_PKG_VERSION"))));
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization);
        }
        let answer = self.client.request(request).await.map_err(|error| self.unreachable(&cause(&error)))?;
        let (parts, body) = answer.into_parts();
        // Pages that explain an error are of no interest.
        let most = if parts.status.is_success() { wanted.most } else { 0 };
        let body = match Limited::new(body, most).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) if most == 0 => Bytes::new(),
            Err(error) if error.is::<LengthLimitError>() => return Err(PullError::TooLarge { what: wanted.what, most }),
            Err(_) => return Err(self.unreachable("the connection broke off")),
        };
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }

    fn unreachable(&self, why: &str) -> PullError {
        PullError::Unreachable { registry: self.registry.to_owned(), why: scrub(why, WHY_BYTES) }
    }

    fn denied(&self) -> PullError {
        PullError::Denied { registry: self.registry.to_owned(), given: self.login.is_some() }
    }

    fn status(&self, status: StatusCode) -> PullError {
        PullError::Status { registry: self.registry.to_owned(), status: status.as_u16() }
    }

    fn redirected(&self, whither: &'static str) -> PullError {
        PullError::Redirect(whither, self.registry.to_owned())
    }
}

/// What a service that gives tokens is told: what it had in its address, who sends us, and what the token is for.
fn query(realm: &Uri, service: Option<&str>, repository: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(realm.query().unwrap_or_default().to_owned());
    if let Some(service) = service {
        query.append_pair("service", service);
    }
    query.append_pair("scope", &format!("repository:{repository}:pull")).finish()
}

/// The innermost cause of an error, without what the other side wrote into its certificate.
fn cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let of_tls = innermost.downcast_ref::<io::Error>().and_then(io::Error::get_ref).and_then(|inner| inner.downcast_ref());
    match of_tls {
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })) => {
            "its certificate is for another name".to_owned()
        }
        _ => innermost.to_string(),
    }
}

fn location(answer: &Answer) -> Option<&str> {
    matches!(answer.status.as_u16(), 301 | 302 | 303 | 307 | 308).then(|| answer.headers.get(LOCATION)?.to_str().ok()).flatten()
}

/// Where a redirect leads.
pub(crate) fn target(from: &Uri, location: &str) -> Option<Uri> {
    // A host without a scheme would be taken for a path.
    let location = Some(location).filter(|location| !location.starts_with("//"))?;
    let location: Uri = location.parse().ok()?;
    let mut parts = location.into_parts();
    let base = from.clone().into_parts();
    if parts.authority.is_none() {
        // Only an absolute path is taken: what is relative to a path is of no use to a registry.
        parts.path_and_query.as_ref().filter(|path| path.as_str().starts_with('/'))?;
        (parts.scheme, parts.authority) = (base.scheme, base.authority);
    } else if parts.scheme.is_none() {
        parts.scheme = base.scheme;
    }
    Uri::from_parts(parts).ok()
}

/// Whether a place may be gone to from another one: by TLS, or without it on this machine from this machine.
pub(crate) fn may_follow(from: &Uri, to: &Uri) -> bool {
    let is_plain_here = |uri: &Uri| uri.scheme() == Some(&Scheme::HTTP) && uri.host().is_some_and(is_loopback);
    let has_host = to.host().is_some_and(|host| !host.is_empty());
    has_host && (to.scheme() == Some(&Scheme::HTTPS) || is_plain_here(from) && is_plain_here(to))
}

/// Whether a service that gives tokens belongs to a registry: the same host, or one of the same domain.
fn is_near(server: &str, host: &str) -> bool {
    let own = server.rsplit_once(':').filter(|_| !server.ends_with(']')).map_or(server, |(host, _)| host);
    if own.eq_ignore_ascii_case(host) {
        return true;
    }
    let is_address = own.starts_with('[') || own.split('.').all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    let Some((_, domain)) = own.split_once('.').filter(|(_, domain)| domain.contains('.') && !is_address) else { return false };
    let host = host.to_ascii_lowercase();
    host == domain || host.strip_suffix(domain).is_some_and(|front| front.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::{DnsName, ServerName};

    use super::*;

    #[test]
    fn names_in_a_certificate_are_not_repeated() {
        let expected = ServerName::DnsName(DnsName::try_from("ghcr.io").unwrap());
        let wrong = CertificateError::NotValidForNameContext { expected, presented: vec!["what a registry says".to_owned()] };
        for (error, said) in [(wrong, "its certificate is for another name"), (CertificateError::Revoked, "Revoked")] {
            let error = io::Error::other(rustls::Error::InvalidCertificate(error));
            let said_of = cause(&error);
            assert!(said_of.contains(said) && !said_of.contains("what a registry says"), "{said_of}");
        }
    }

    #[test]
    fn tokens_are_fetched_in_the_domain_of_the_registry_alone() {
        for (server, host, near) in [
            ("ghcr.io", "ghcr.io", true),
            ("registry-1.docker.io", "auth.docker.io", true),
            ("registry.gitlab.com", "gitlab.com", true),
            ("registry.example.com:5000", "auth.example.com", true),
            ("127.0.0.1:5000", "127.0.0.1", true),
            ("[::1]:5000", "[::1]", true),
            ("ghcr.io", "evil.io", false),
            ("registry.example.com", "example.com.evil.io", false),
            ("registry.example.com", "evilexample.com", false),
            ("127.0.0.1:5000", "1.0.0.1", false),
            ("10.0.0.1", "9.0.0.1", false),
        ] {
            assert_eq!(is_near(server, host), near, "{server} {host}");
        }
    }

    #[test]
    fn redirects_keep_to_tls() {
        let followed = |from: &str, location: &str| {
            let from: Uri = from.parse().unwrap();
            target(&from, location).filter(|target| may_follow(&from, target)).map(|target| target.to_string())
        };
        let (far, here) = ("https://ghcr.io/v2/a/blobs/x", "http://127.0.0.1:5000/v2/a/blobs/x");
        for (from, location, target) in [
            (far, "https://cdn.example/x?sig=1", Some("https://cdn.example/x?sig=1")),
            (far, "/elsewhere", Some("https://ghcr.io/elsewhere")),
            (far, "//cdn.example/x", None),
            (far, "http://cdn.example/x", None),
            (far, "http://127.0.0.1:8080/metrics", None),
            (far, "file:///etc/passwd", None),
            (far, "elsewhere", None),
            (far, "", None),
            (here, "/elsewhere", Some("http://127.0.0.1:5000/elsewhere")),
            (here, "http://localhost:6000/x", Some("http://localhost:6000/x")),
            (here, "http://cdn.example/x", None),
            ("https://127.0.0.1:5000/v2/a/blobs/x", "http://127.0.0.1:8080/metrics", None),
            (here, "https://cdn.example/x", Some("https://cdn.example/x")),
        ] {
            assert_eq!(followed(from, location).as_deref(), target, "{from} {location}");
        }
    }
}
