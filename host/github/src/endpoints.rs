//! Which URLs a GitHub instance is reached under.

use std::fmt;

use http::Uri;

/// Base URLs of one GitHub instance; both end in a slash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoints {
    api: String,
    runners: String,
}

/// A URL setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} {shown:?} is not usable: {reason}; write it like {example}")]
pub struct EndpointsError {
    setting: &'static str,
    shown: String,
    reason: &'static str,
    example: &'static str,
}

impl Endpoints {
    /// Applies ARC's rules; empty texts count as absent.
    ///
    /// With `enterprise_url`, the API lies at that URL with `api/v3/` appended (unless its path ends so already, or its host starts
    /// with `api.` or contains `.api.`), runners register at the same URL without `api/v3/`, and the other three are ignored.
    /// Otherwise the API is `github_url` or `https://api.github.com/`, and runners register at `runner_github_url` or
    /// `https://github.com/`. `upload_url` is only checked: nothing that pacer does uploads.
    ///
    /// # Errors
    ///
    /// When a URL is not an absolute `http` or `https` URL, or carries a user name, a query or a fragment.
    pub fn resolve(
        github_url: Option<&str>,
        enterprise_url: Option<&str>,
        upload_url: Option<&str>,
        runner_github_url: Option<&str>,
    ) -> Result<Self, EndpointsError> {
        let set = |value: Option<&'_ str>| value.map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned);
        if let Some(url) = set(enterprise_url) {
            let base = Base::parse("github_enterprise_url", &url, "https://github.example.com")?;
            let suffixed = base.path.ends_with("/api/v3/") || base.host.starts_with("api.") || base.host.contains(".api.");
            let api = if suffixed { base.to_string() } else { format!("{base}api/v3/") };
            // What only ends alike, as in /old-api/v3, is a path of its own.
            let above = base.path.strip_suffix("api/v3/").filter(|above| above.ends_with('/'));
            let path = above.unwrap_or(&base.path).to_owned();
            return Ok(Self { api, runners: Base { path, ..base }.to_string() });
        }
        if let Some(url) = set(upload_url) {
            Base::parse("github_upload_url", &url, "https://uploads.github.com")?;
        }
        let base = |setting, value, default: &'static str| match set(value) {
            Some(url) => Base::parse(setting, &url, default).map(|base| base.to_string()),
            None => Ok(format!("{default}/")),
        };
        Ok(Self {
            api: base("github_url", github_url, "https://api.github.com")?,
            runners: base("github_runner_url", runner_github_url, "https://github.com")?,
        })
    }

    /// Base of the REST API.
    #[must_use]
    pub fn api(&self) -> &str {
        &self.api
    }

    /// The hosts of both, in lower case, with a port unless that is the scheme's own.
    #[must_use]
    pub fn hosts(&self) -> [String; 2] {
        [&self.api, &self.runners].map(|url| host(url))
    }

    /// Base that runners register under: their `GITHUB_URL`.
    #[must_use]
    pub fn runners(&self) -> &str {
        &self.runners
    }
}

impl Default for Endpoints {
    fn default() -> Self {
        Self { api: "https://api.github.com/".to_owned(), runners: "https://github.com/".to_owned() }
    }
}

fn host(url: &str) -> String {
    let uri = url.parse::<Uri>().unwrap_or_default();
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    let own = if uri.scheme_str() == Some("http") { 80 } else { 443 };
    match uri.port_u16().filter(|port| *port != own) {
        Some(port) => format!("{host}:{port}"),
        None => host,
    }
}

struct Base {
    scheme: String,
    host: String,
    path: String,
}

impl Base {
    fn parse(setting: &'static str, url: &str, example: &'static str) -> Result<Self, EndpointsError> {
        // A user name or password that someone put into the URL must not come back in the message.
        let shown = match url.rsplit_once('@') {
            Some((_, rest)) => format!("...@{rest}"),
            None => url.to_owned(),
        };
        let error = |reason| EndpointsError { setting, shown: shown.clone(), reason, example };
        if url.contains('#') {
            return Err(error("it has a fragment"));
        }
        let uri = url.parse::<Uri>().map_err(|_| error("it is not a URL"))?;
        let scheme = match uri.scheme_str() {
            Some(scheme @ ("http" | "https")) => scheme.to_owned(),
            Some(_) => return Err(error("its scheme is neither https nor http")),
            None => return Err(error("it has no scheme")),
        };
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        if host.contains('@') {
            return Err(error("it carries a user name"));
        }
        if uri.query().is_some() {
            return Err(error("it has a query"));
        }
        let mut path = uri.path().to_owned();
        if !path.ends_with('/') {
            path.push('/');
        }
        Ok(Self { scheme, host, path })
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.host, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_follow_the_rules_of_arc() {
        // github_url, enterprise_url, runner_github_url -> api, runners
        let table = [
            ("", "", "", "https://api.github.com/", "https://github.com/"),
            ("http://api.local:8080", "", "", "http://api.local:8080/", "https://github.com/"),
            ("http://proxy/github", "", "http://proxy/git", "http://proxy/github/", "http://proxy/git/"),
            ("", "https://ghe.corp", "", "https://ghe.corp/api/v3/", "https://ghe.corp/"),
            ("", "https://ghe.corp/", "https://other", "https://ghe.corp/api/v3/", "https://ghe.corp/"),
            ("https://x", "https://ghe.corp/api/v3", "", "https://ghe.corp/api/v3/", "https://ghe.corp/"),
            ("", "https://ghe.corp/api/v3/", "", "https://ghe.corp/api/v3/", "https://ghe.corp/"),
            ("", "https://corp/github", "", "https://corp/github/api/v3/", "https://corp/github/"),
            ("", "https://corp/github/api/v3", "", "https://corp/github/api/v3/", "https://corp/github/"),
            ("", "https://corp/old-api/v3", "", "https://corp/old-api/v3/api/v3/", "https://corp/old-api/v3/"),
            ("", "https://api.corp.ghe.com", "", "https://api.corp.ghe.com/", "https://api.corp.ghe.com/"),
            ("", "https://eu.api.corp", "", "https://eu.api.corp/", "https://eu.api.corp/"),
            ("", "https://ghe.corp:8443", "", "https://ghe.corp:8443/api/v3/", "https://ghe.corp:8443/"),
            ("", "https://apix.corp", "", "https://apix.corp/api/v3/", "https://apix.corp/"),
            (" https://a ", "  ", " ", "https://a/", "https://github.com/"),
        ];
        for (url, enterprise, runner, api, runners) in table {
            let endpoints = Endpoints::resolve(Some(url), Some(enterprise), None, Some(runner)).unwrap();
            assert_eq!((endpoints.api(), endpoints.runners()), (api, runners), "{url:?} {enterprise:?} {runner:?}");
        }
        assert_eq!(Endpoints::resolve(None, None, None, None).unwrap(), Endpoints::default());
    }

    #[test]
    fn hosts_have_a_port_where_it_says_something() {
        for (url, expected) in [
            ("https://GHE.corp", "ghe.corp"),
            ("https://ghe.corp:443/x", "ghe.corp"),
            ("http://ghe.corp:80", "ghe.corp"),
            ("https://ghe.corp:80", "ghe.corp:80"),
            ("http://[::1]:8080", "[::1]:8080"),
        ] {
            let endpoints = Endpoints::resolve(None, Some(url), None, None).unwrap();
            assert_eq!(endpoints.hosts(), [expected, expected], "{url}");
        }
    }

    #[test]
    fn unusable_urls_say_which_setting_is_wrong() {
        for (url, reason) in [
            ("api.github.com", "no scheme"),
            ("ftp://github.com", "scheme"),
            ("https://a b", "not a URL"),
            ("https://h/?token=x", "query"),
            ("https://h/#f", "fragment"),
            ("https://user:hunter2@h/", "user name"),
        ] {
            let error = Endpoints::resolve(Some(url), None, None, None).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("github_url"), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let error = Endpoints::resolve(None, None, Some("nope"), None).unwrap_err().to_string();
        assert!(error.contains("github_upload_url"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn bases_end_in_a_slash_and_resolving_again_changes_nothing(path in "(/[a-z]{1,4}){0,3}/?", port in 1_u16..) {
            let url = format!("https://ghe.corp:{port}{path}");
            let once = Endpoints::resolve(None, Some(&url), None, None).unwrap();
            let twice = Endpoints::resolve(None, Some(once.api()), None, None).unwrap();
            proptest::prop_assert_eq!(&once, &twice);
            proptest::prop_assert!(once.api().ends_with("/api/v3/") && once.runners().ends_with('/'));
        }
    }
}
