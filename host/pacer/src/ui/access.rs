//! Who may see the page.
//!
//! Whoever reaches a loopback address is on the machine, or has the right to forward a port to the pod: nothing more is asked. Browsers are asked
//! for the name that they reached the server by, though: a page of somebody else whose name was pointed to the loopback address must not
//! read this one. Any other address takes a token, which is read from a file each time, so that a changed Secret counts at once.

use std::fmt;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use axum::http::{HeaderMap, StatusCode, header};
use ring::hmac;
use tokio::task::spawn_blocking;

/// Fewest characters of a token: what a generator of random texts gives easily, and a guess does not.
const FEWEST: usize = 16;

/// Most bytes of the file.
const MOST: u64 = 4_096;

/// Name of the cookie.
const COOKIE: &str = "pacer-ui";

/// What the cookie's value is made from, beside the token.
const PURPOSE: &[u8] = b"pacer ui cookie 1";

/// Who may see the page.
#[derive(Debug)]
pub(super) struct Access {
    /// None where everybody who reaches the address may.
    token_file: Option<PathBuf>,
}

/// Why somebody may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// No token, or a wrong one.
    Unknown,
    /// The server was reached by this name, which is not one of the loopback address.
    Name(String),
    /// The file can't be read.
    File(String),
}

impl Refused {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::UNAUTHORIZED,
            Self::Name(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::File(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str(
                "this page asks for the token of --ui-token-file: open it once with ?token=... behind its address, or send Authorization: Bearer ...",
            ),
            Self::Name(name) => write!(f, "this server is reached as localhost or 127.0.0.1, not as {name:?}"),
            Self::File(why) => write!(f, "the token of the page can't be read: {why}"),
        }
    }
}

impl Access {
    /// For a server with this address. Fails where others can reach it and no usable token is given.
    pub(super) async fn new(address: SocketAddr, token_file: Option<PathBuf>) -> anyhow::Result<Self> {
        ensure!(
            token_file.is_some() || address.ip().is_loopback(),
            "--ui-addr: others can reach {address}, so the page needs a token there: give --ui-token-file with a file that holds at least {FEWEST} \
             random characters, or listen on 127.0.0.1 and use kubectl port-forward"
        );
        let access = Self { token_file };
        if access.token_file.is_some() {
            access.token().await.context("--ui-token-file")?;
        }
        Ok(access)
    }

    /// Whether a request with these headers is answered.
    pub(super) async fn admit(&self, headers: &HeaderMap) -> Result<(), Refused> {
        if self.token_file.is_none() {
            return by_its_name(headers);
        }
        let token = self.token().await.map_err(|error| Refused::File(format!("{error:#}")))?;
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let cookie = cookie(headers).and_then(|value| hex::decode(value).ok());
        let by_bearer = bearer.is_some_and(|bearer| is_equal(bearer.as_bytes(), token.as_bytes()));
        let by_cookie = cookie.is_some_and(|cookie| hmac::verify(&key(&token), PURPOSE, &cookie).is_ok());
        if by_bearer || by_cookie { Ok(()) } else { Err(Refused::Unknown) }
    }

    /// The cookie that stands for the token from now on. It is no token itself, and ends with it.
    pub(super) async fn exchange(&self, given: &str, secure: bool) -> Result<String, Refused> {
        let token = self.token().await.map_err(|error| Refused::File(format!("{error:#}")))?;
        if !is_equal(given.as_bytes(), token.as_bytes()) {
            return Err(Refused::Unknown);
        }
        let value = hex::encode(hmac::sign(&key(&token), PURPOSE));
        let secure = if secure { "; Secure" } else { "" };
        Ok(format!("{COOKIE}={value}; HttpOnly; SameSite=Strict{secure}"))
    }

    async fn token(&self) -> anyhow::Result<String> {
        let path = self.token_file.clone().context("no token was asked for")?;
        let text = spawn_blocking(move || {
            let mut text = String::new();
            let file = std::fs::File::open(&path).with_context(|| format!("opening {}", path.display()))?;
            file.take(MOST).read_to_string(&mut text).with_context(|| format!("reading {}", path.display()))?;
            anyhow::Ok(text.trim().to_owned())
        });
        let token = text.await.context("reading was interrupted")??;
        ensure!(
            token.chars().count() >= FEWEST,
            "the token must have at least {FEWEST} characters; `openssl rand -hex 32` prints a good one"
        );
        Ok(token)
    }
}

fn key(token: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes())
}

/// In a time that tells nothing about where they differ.
fn is_equal(given: &[u8], expected: &[u8]) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, PURPOSE);
    hmac::verify(&key, given, hmac::sign(&key, expected).as_ref()).is_ok()
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(';'));
    all.filter_map(|pair| pair.trim().split_once('=')).find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

/// What browsers are made to say cannot be changed by the page that they show.
fn by_its_name(headers: &HeaderMap) -> Result<(), Refused> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is_loopback = name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if is_loopback { Ok(()) } else { Err(Refused::Name(host.chars().take(100).collect())) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn file(content: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file
    }

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[tokio::test]
    async fn an_address_that_others_reach_takes_a_good_token() {
        let everywhere: SocketAddr = "0.0.0.0:8090".parse().unwrap();
        let refused = Access::new(everywhere, None).await.unwrap_err().to_string();
        assert!(refused.contains("--ui-token-file") && refused.contains("127.0.0.1"), "{refused}");
        let short = Access::new(everywhere, Some(file("secret\n").path().into())).await.unwrap_err();
        assert!(format!("{short:#}").contains("at least 16 characters") && !format!("{short:#}").contains("secret"), "{short:#}");
        assert!(Access::new(everywhere, Some("/nowhere/token".into())).await.is_err());
        for loopback in ["127.0.0.1:8090", "[::1]:8090"] {
            assert!(Access::new(loopback.parse().unwrap(), None).await.is_ok(), "{loopback}");
        }
    }

    #[tokio::test]
    async fn the_token_admits_as_header_and_as_cookie_until_it_is_another() {
        let held = file(&format!("{TOKEN}\n"));
        let access = Access::new("127.0.0.1:1".parse().unwrap(), Some(held.path().into())).await.unwrap();
        let set = access.exchange(TOKEN, false).await.unwrap();
        assert!(set.contains("HttpOnly; SameSite=Strict") && !set.contains("Secure") && !set.contains(TOKEN), "{set}");
        assert!(access.exchange(TOKEN, true).await.unwrap().ends_with("; Secure"));
        assert_eq!(access.exchange("0123456789abcdeF", false).await, Err(Refused::Unknown));
        let cookie = set.split(';').next().unwrap();
        let (bearer, others) = (format!("Bearer {TOKEN}"), format!("theme=dark; {cookie}"));
        let known = [(header::AUTHORIZATION, bearer.as_str()), (header::COOKIE, cookie), (header::COOKIE, others.as_str())];
        for pair in &known {
            assert_eq!(access.admit(&headers(std::slice::from_ref(pair))).await, Ok(()), "{pair:?}");
        }
        for (name, value) in [
            (header::HOST, "localhost"),
            (header::AUTHORIZATION, TOKEN),
            (header::AUTHORIZATION, "Bearer "),
            (header::COOKIE, "pacer-ui="),
            (header::COOKIE, "pacer-ui=0123456789abcdef"),
        ] {
            assert_eq!(access.admit(&headers(&[(name, value)])).await, Err(Refused::Unknown), "{value}");
        }
        std::fs::write(held.path(), "fedcba9876543210").unwrap();
        for pair in &known {
            assert_eq!(access.admit(&headers(std::slice::from_ref(pair))).await, Err(Refused::Unknown), "{pair:?}");
        }
        std::fs::write(held.path(), "").unwrap();
        assert!(matches!(access.admit(&headers(&known[..1])).await, Err(Refused::File(_))));
    }

    #[tokio::test]
    async fn a_name_that_others_point_to_the_loopback_address_reads_nothing() {
        let access = Access::new("127.0.0.1:1".parse().unwrap(), None).await.unwrap();
        for host in ["localhost", "LocalHost:8090", "127.0.0.1:1", "[::1]:8090", "127.0.0.9"] {
            assert_eq!(access.admit(&headers(&[(header::HOST, host)])).await, Ok(()), "{host}");
        }
        for host in ["evil.example", "evil.example:8090", "10.0.0.1", "localhost.evil.example", ""] {
            assert!(matches!(access.admit(&headers(&[(header::HOST, host)])).await, Err(Refused::Name(_))), "{host}");
        }
    }
}

#[cfg(test)]
mod decoders {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn browser_is_let_in_by_the_name_of_this_machine_and_no_other() {
        pacer_fuzz::text!(["localhost:8080", "127.0.0.1", "[::1]:8080", "LOCALHOST"], |host| {
            let Ok(value) = HeaderValue::from_str(host) else { return false };
            let admitted = by_its_name(&HeaderMap::from_iter([(header::HOST, value)])).is_ok();
            let is_here = |text: &str| host.to_ascii_lowercase().contains(text);
            assert!(!admitted || is_here("localhost") || is_here("127.") || is_here(":"), "{host:?}");
            admitted
        });
    }

    #[test]
    fn cookie_is_found_or_not_whatever_is_sent() {
        pacer_fuzz::text!(["pacer-ui=00ff", "a=b; pacer-ui=00ff;c"], |text| {
            let Ok(value) = HeaderValue::from_str(text) else { return false };
            cookie(&HeaderMap::from_iter([(header::COOKIE, value)])).is_some()
        });
    }
}
