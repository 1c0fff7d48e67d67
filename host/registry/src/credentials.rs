//! Credentials of registries, as `docker login` writes them and Secrets of type `kubernetes.io/dockerconfigjson` hold them.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use pacer_core::reference::Reference;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Largest file, in bytes.
const LARGEST: usize = 256 << 10;

/// Other names of Docker's registry.
const DOCKER: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// Names and passwords by the registry, and the path in it, that they are for.
#[derive(Clone, Default)]
pub struct Credentials(BTreeMap<String, Login>);

/// A name and its password.
#[derive(Clone)]
pub(crate) struct Login {
    user: String,
    password: SecretString,
}

/// Why there are no credentials. Says nothing of what is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// It has more than 256 KiB.
    #[error("it has more than {LARGEST} bytes")]
    Long,
    /// Not the JSON that it must be.
    #[error(
        "it is no JSON of the form {{\"auths\": {{\"registry.example\": {{\"auth\": \"...\"}}}}}} (line {line}, column {column})"
    )]
    Unreadable {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
}

#[derive(Deserialize)]
struct Auth {
    #[serde(default)]
    auth: Option<String>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
}

impl Credentials {
    /// Reads `config.json`. Entries without a name and password, such as those of credential helpers, are left out.
    ///
    /// # Errors
    ///
    /// When it is too long or not of that form.
    pub fn read(bytes: &[u8]) -> Result<Self, CredentialsError> {
        if bytes.len() > LARGEST {
            return Err(CredentialsError::Long);
        }
        let unreadable = |error: serde_json::Error| CredentialsError::Unreadable { line: error.line(), column: error.column() };
        // A list would do for a struct whose fields may be absent.
        let _object: BTreeMap<String, IgnoredAny> = serde_json::from_slice(bytes).map_err(unreadable)?;
        let File { auths } = serde_json::from_slice(bytes).map_err(unreadable)?;
        let logins = auths.into_iter().filter_map(|(registry, auth)| Some((place(&registry), auth.login()?)));
        Ok(Self(logins.collect()))
    }

    /// Those for an artifact: of the longest path that it is below.
    pub(crate) fn of(&self, reference: &Reference) -> Option<&Login> {
        let place = format!("{}/{}", alias(reference.registry()), reference.repository());
        let is_below = |of: &str| place.strip_prefix(of).is_some_and(|rest| rest.starts_with('/') || rest.is_empty());
        self.0.iter().filter(|(of, _)| is_below(of)).max_by_key(|(of, _)| of.len()).map(|(_, login)| login)
    }
}

impl Auth {
    fn login(self) -> Option<Login> {
        if let (Some(user), Some(password)) = (self.username.filter(|user| !user.is_empty()), self.password) {
            return Some(Login { user, password: SecretString::from(password) });
        }
        let decoded = STANDARD.decode(self.auth?.trim()).ok()?;
        let text = String::from_utf8(decoded).ok()?;
        let (user, password) = text.split_once(':')?;
        Some(Login { user: user.to_owned(), password: SecretString::from(password.trim_end_matches('\0')) })
    }
}

impl Login {
    /// The header that carries it.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let pair = format!("{}:{}", self.user, self.password.expose_secret());
        let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair))).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// Docker's registry under one name.
fn alias(registry: &str) -> &str {
    if DOCKER.contains(&registry) { "docker.io" } else { registry }
}

/// The registry, and the path in it, that an entry is for: `https://index.docker.io/v1/` is `docker.io`.
fn place(entry: &str) -> String {
    let rest = entry.trim().trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    let (registry, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (registry, path) = (alias(registry), path.trim_end_matches('/'));
    if matches!(path, "" | "v1" | "v2") { registry.to_owned() } else { format!("{registry}/{path}") }
}

/// The host that is called for a registry, and what a repository is called there.
pub(crate) fn server(reference: &Reference) -> (String, String) {
    let (registry, repository) = (reference.registry(), reference.repository());
    match alias(registry) {
        "docker.io" if !repository.contains('/') => ("registry-1.docker.io".to_owned(), format!("library/{repository}")),
        "docker.io" => ("registry-1.docker.io".to_owned(), repository.to_owned()),
        _ => (registry.to_owned(), repository.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(credentials: &Credentials, name: &str) -> Option<String> {
        let reference = Reference::parse(&format!("oci://{name}@sha256:{}", "0".repeat(64))).unwrap().unwrap();
        credentials.of(&reference).map(|login| format!("{}:{}", login.user, login.password.expose_secret()))
    }

    #[test]
    fn credentials_are_those_of_the_registry_and_the_longest_path() {
        let auth = |text: &str| STANDARD.encode(text);
        let file = format!(
            r#"{{"auths": {{
                "ghcr.io": {{"auth": "{}"}},
                "ghcr.io/acme": {{"username": "acme", "password": "b:c", "email": "x", "auth": "ignored"}},
                "https://index.docker.io/v1/": {{"auth": "{}"}},
                "registry.example:5000": {{"auth": "{}"}},
                "helper.example": {{}},
                "broken.example": {{"auth": "%"}}
            }}, "credHelpers": {{"x": "y"}}}}"#,
            auth("all:a"),
            auth("docker:d"),
            auth("port:e:f"),
        );
        let credentials = Credentials::read(file.as_bytes()).unwrap();
        for (name, login) in [
            ("ghcr.io/other/policy", Some("all:a")),
            ("ghcr.io/acme/policy", Some("acme:b:c")),
            ("ghcr.io/acme-inc/policy", Some("all:a")),
            ("docker.io/acme/policy", Some("docker:d")),
            ("registry-1.docker.io/policy", Some("docker:d")),
            ("registry.example:5000/policy", Some("port:e:f")),
            ("registry.example/policy", None),
            ("evil.ghcr.io/acme/policy", None),
            ("helper.example/policy", None),
            ("broken.example/policy", None),
        ] {
            assert_eq!(user(&credentials, name).as_deref(), login, "{name}");
        }
        let shown = format!("{credentials:?}");
        assert!(shown.contains("ghcr.io/acme") && !shown.contains("b:c"), "{shown}");
    }

    #[test]
    fn a_file_of_another_form_is_refused_without_a_word_of_it() {
        assert_eq!(
            Credentials::read(b"{\"auths\": \"secret\"}").unwrap_err().to_string(),
            "it is no JSON of the form {\"auths\": {\"registry.example\": {\"auth\": \"...\"}}} (line 1, column 18)"
        );
        assert_eq!(Credentials::read(&vec![b' '; LARGEST + 1]).unwrap_err(), CredentialsError::Long);
        assert!(Credentials::read(b"{}").unwrap().0.is_empty());
    }

    #[test]
    fn the_header_is_never_printed() {
        let credentials = Credentials::read(br#"{"auths": {"a.example": {"username": "u", "password": "p"}}}"#).unwrap();
        let reference = Reference::parse(&format!("oci://a.example/p@sha256:{}", "0".repeat(64))).unwrap().unwrap();
        let header = credentials.of(&reference).unwrap().header().unwrap();
        assert_eq!((header.as_bytes(), format!("{header:?}").as_str()), (&b"Basic dTpw"[..], "Sensitive"));
    }
}
