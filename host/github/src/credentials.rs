//! How the client proves who it is.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use base64::Engine as _;
use http::HeaderValue;

use crate::endpoints::Endpoints;
use crate::jwt::AppKey;
use crate::secret::{Secret, TOKEN_BEGINNINGS};

/// One complete way to authenticate at GitHub.
///
/// `Debug` shows names and ids, never a secret.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// Personal access token, classic or fine-grained.
    Token(Secret),
    /// GitHub App.
    App {
        /// App id (decimal) or client id (`Iv...`), the issuer of the App's JWTs.
        app_id: String,
        /// Installation to act as. Without one it is looked up per scope, so that one App serves several organizations.
        installation_id: Option<u64>,
        /// RSA key that the App's JWTs are signed with.
        private_key: AppKey,
    },
    /// User name and password, for proxies in front of the API that authenticate on their own.
    Basic {
        /// Name of the user that the proxy authenticates.
        username: String,
        /// Password of that user; see [`CredentialParts::basic_password`].
        password: Secret,
    },
}

/// The settings that credentials are assembled from; empty texts count as absent.
#[derive(Clone, Debug, Default)]
pub struct CredentialParts {
    /// `github_token`.
    pub token: Option<Secret>,
    /// `github_app_id`: decimal, or the App's client id.
    pub app_id: Option<String>,
    /// `github_app_installation_id`: decimal; may be absent.
    pub app_installation_id: Option<String>,
    /// `github_app_private_key`: PEM text, or the path of a PEM file where [`KeyFiles::Allowed`].
    pub app_private_key: Option<Secret>,
    /// `github_basicauth_username`.
    pub basic_username: Option<String>,
    /// `github_basicauth_password`.
    pub basic_password: Option<Secret>,
}

/// Whether a private key may be given as the path of a file, which ARC allows everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFiles {
    /// For the operator's own settings.
    Allowed,
    /// For Secrets of tenants: a path there would let them borrow a key that is mounted into the operator.
    Refused,
}

/// Kind of credentials, without anything secret; decides which permission an error asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CredentialKind {
    /// Personal access token.
    Token,
    /// GitHub App.
    App,
    /// User name and password.
    Basic,
}

/// Why settings make no credentials. Never contains a secret.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// Nothing usable is set.
    #[error(
        "no GitHub credentials: set github_token, or github_app_id and github_app_private_key, or github_basicauth_username and github_basicauth_password"
    )]
    Missing,
    /// A GitHub App with a part missing.
    #[error("incomplete GitHub App credentials: {missing} is not set; set it, or set github_token instead")]
    AppIncomplete {
        /// Name of the absent setting.
        missing: &'static str,
    },
    /// Not an App id.
    #[error("github_app_id {value:?} is neither a decimal App id nor a client id (Iv...): copy it from the App's settings page")]
    AppId {
        /// Value of the setting; its length alone where it is too long to be an id, or contains a token.
        value: String,
    },
    /// Not an installation id.
    #[error(
        "github_app_installation_id {value:?} is not a decimal number: copy it from the end of the installation's URL, or leave it out to have it looked up"
    )]
    InstallationId {
        /// Value of the setting; its length alone where it is too long to be an id, or contains a token.
        value: String,
    },
    /// The key's file cannot be read.
    #[error("cannot read github_app_private_key from the file {path}: {source}", path = path.display())]
    KeyFile {
        /// Path that the setting gives.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// The key cannot be used.
    #[error("github_app_private_key is not usable: {reason}; paste the whole .pem file that GitHub generated for the App")]
    Key {
        /// What is wrong with it.
        reason: String,
    },
    /// A token or password with characters that no HTTP header can carry.
    #[error("{setting} contains line breaks or control characters: paste it again, without them")]
    Unprintable {
        /// Name of the setting.
        setting: &'static str,
    },
}

impl Credentials {
    /// Chooses in ARC's order: basic when both of its parts are set, then token, then App.
    ///
    /// # Errors
    ///
    /// When nothing is set, or what is set is incomplete or malformed.
    pub fn from_parts(parts: CredentialParts, files: KeyFiles) -> Result<Self, CredentialsError> {
        let CredentialParts { token, app_id, app_installation_id, app_private_key, basic_username, basic_password } = parts;
        let text = |part: Option<String>| part.map(|part| part.trim().to_owned()).filter(|part| !part.is_empty());
        let secret = |part: Option<Secret>| part.filter(|part| !part.expose().trim().is_empty());
        let (basic_username, basic_password) = (text(basic_username), secret(basic_password));
        if let (Some(username), Some(password)) = (basic_username, basic_password) {
            return Ok(Self::Basic { username, password });
        }
        if let Some(token) = secret(token) {
            let token = token.expose().trim();
            if token.chars().any(|c| c.is_control() || c.is_whitespace() || !c.is_ascii()) {
                return Err(CredentialsError::Unprintable { setting: "github_token" });
            }
            return Ok(Self::Token(Secret::new(token)));
        }
        let (app_id, app_private_key) = (text(app_id), secret(app_private_key));
        let app_installation_id = text(app_installation_id);
        match (app_id, app_private_key) {
            (Some(app_id), Some(key)) => Self::app(app_id, app_installation_id, &key, files),
            (None, Some(_)) => Err(CredentialsError::AppIncomplete { missing: "github_app_id" }),
            (Some(_), None) => Err(CredentialsError::AppIncomplete { missing: "github_app_private_key" }),
            (None, None) if app_installation_id.is_some() => Err(CredentialsError::AppIncomplete { missing: "github_app_id" }),
            (None, None) => Err(CredentialsError::Missing),
        }
    }

    fn app(app_id: String, installation_id: Option<String>, key: &Secret, files: KeyFiles) -> Result<Self, CredentialsError> {
        let decimal = app_id.parse::<u64>().is_ok();
        let client_id = app_id.starts_with("Iv") && app_id.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
        if !decimal && !client_id {
            return Err(CredentialsError::AppId { value: told(app_id) });
        }
        let installation_id = installation_id
            .map(|value| value.parse::<u64>().map_err(|_| CredentialsError::InstallationId { value: told(value) }))
            .transpose()?;
        let pem = pem_text(key, files)?;
        let private_key = AppKey::from_pem(pem.expose()).map_err(|reason| CredentialsError::Key { reason })?;
        Ok(Self::App { app_id, installation_id, private_key })
    }

    /// The kind of these credentials, without anything secret.
    #[must_use]
    pub fn kind(&self) -> CredentialKind {
        match self {
            Self::Token(_) => CredentialKind::Token,
            Self::App { .. } => CredentialKind::App,
            Self::Basic { .. } => CredentialKind::Basic,
        }
    }

    /// Value of the `Authorization` header where it never changes; none for an App.
    pub(crate) fn fixed_header(&self) -> Option<Result<HeaderValue, CredentialsError>> {
        let (value, setting) = match self {
            Self::Token(token) => (format!("Bearer {}", token.expose()), "github_token"),
            Self::Basic { username, password } => {
                let pair = format!("{username}:{}", password.expose());
                let pair = base64::engine::general_purpose::STANDARD.encode(pair);
                (format!("Basic {pair}"), "github_basicauth_username")
            }
            Self::App { .. } => return None,
        };
        Some(match HeaderValue::try_from(value) {
            Ok(mut value) => {
                value.set_sensitive(true);
                Ok(value)
            }
            Err(_) => Err(CredentialsError::Unprintable { setting }),
        })
    }

    /// Identifies these credentials at an instance.
    pub(crate) fn at(&self, endpoints: &Endpoints) -> ClientId {
        ClientId(self.fingerprint(), endpoints.clone())
    }

    /// Equal for equal credentials within this process, and useless outside it: the hash is keyed at random.
    fn fingerprint(&self) -> u64 {
        static KEYED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        match self {
            Self::Token(token) => KEYED.hash_one(("token", token.expose())),
            Self::Basic { username, password } => KEYED.hash_one(("basic", username, password.expose())),
            Self::App { app_id, installation_id, private_key } => {
                KEYED.hash_one(("app", app_id, installation_id, private_key.public_der()))
            }
        }
    }
}

/// Equal for clients with equal credentials at the same instance, within one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(u64, Endpoints);

impl fmt::Display for CredentialKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Token => "personal access token",
            Self::App => "GitHub App",
            Self::Basic => "user name and password",
        })
    }
}

/// The PEM text itself, read from a file when the setting names one.
fn pem_text(key: &Secret, files: KeyFiles) -> Result<Secret, CredentialsError> {
    let text = key.expose();
    if text.contains("-----BEGIN") {
        return Ok(key.clone());
    }
    let path = Path::new(text.trim());
    if files == KeyFiles::Allowed && path.is_file() {
        return std::fs::read_to_string(path)
            .map(Secret::new)
            .map_err(|source| CredentialsError::KeyFile { path: path.to_owned(), source });
    }
    let reason = match files {
        KeyFiles::Allowed => "it is neither PEM text nor the path of an existing file",
        KeyFiles::Refused => "it is not PEM text",
    };
    Err(CredentialsError::Key { reason: reason.to_owned() })
}

/// Longest value that is quoted: an id of either kind has at most twenty letters and digits.
const QUOTED: usize = 32;

/// What stands where an id should, as errors quote it. Somebody may have put a key or a token there, which must not be told.
fn told(value: String) -> String {
    let is_secret = value.len() > QUOTED || TOKEN_BEGINNINGS.iter().any(|token| value.contains(token));
    if is_secret { format!("({} bytes, not quoted)", value.len()) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PKCS1: &str = include_str!("../tests/keys/app-pkcs1.pem");
    const PKCS8: &str = include_str!("../tests/keys/app-pkcs8.pem");
    const SHORT: &str = include_str!("../tests/keys/short.pem");
    const ELLIPTIC: &str = include_str!("../tests/keys/elliptic.pem");

    fn app(id: &str, installation: &str, key: &str) -> CredentialParts {
        CredentialParts {
            app_id: Some(id.into()),
            app_installation_id: Some(installation.into()),
            app_private_key: Some(key.into()),
            ..CredentialParts::default()
        }
    }

    fn read(parts: CredentialParts) -> Result<Credentials, CredentialsError> {
        Credentials::from_parts(parts, KeyFiles::Refused)
    }

    #[test]
    fn basic_comes_before_token_and_token_before_app() {
        let all = CredentialParts {
            token: Some(" tok\n".into()),
            basic_username: Some("ann".into()),
            basic_password: Some("pw".into()),
            ..app("1", "2", PKCS1)
        };
        assert_eq!(read(all.clone()).unwrap().kind(), CredentialKind::Basic);
        let no_password = CredentialParts { basic_password: Some("".into()), ..all.clone() };
        let Credentials::Token(token) = read(no_password).unwrap() else { panic!("not a token") };
        assert_eq!(token.expose(), "tok");
        let no_token = CredentialParts { token: None, basic_username: None, ..all };
        let Credentials::App { app_id, installation_id, .. } = read(no_token).unwrap() else { panic!("not an app") };
        assert_eq!((app_id.as_str(), installation_id), ("1", Some(2)));
    }

    #[test]
    fn keys_may_be_text_in_both_forms_with_escaped_line_breaks_or_a_file() {
        for key in [PKCS1.to_owned(), PKCS8.to_owned(), PKCS1.replace('\n', "\\n")] {
            let Credentials::App { installation_id, .. } = read(app("Iv23liAbC", "", &key)).unwrap() else {
                panic!("not an app")
            };
            assert_eq!(installation_id, None);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        std::fs::write(&path, PKCS1).unwrap();
        let parts = app("1", "2", path.to_str().unwrap());
        assert!(Credentials::from_parts(parts.clone(), KeyFiles::Allowed).is_ok());
        assert!(matches!(read(parts), Err(CredentialsError::Key { .. })), "tenants cannot name files");
    }

    #[test]
    fn unusable_settings_are_explained_without_secrets() {
        let damaged = PKCS1.replace("MII", "AAA");
        let table = [
            (CredentialParts::default(), "no GitHub credentials"),
            (CredentialParts { app_private_key: None, ..app("1", "2", "") }, "github_app_private_key is not set"),
            (CredentialParts { app_id: None, ..app("", "2", PKCS1) }, "github_app_id is not set"),
            (CredentialParts { app_id: None, app_private_key: None, ..app("", "2", "") }, "github_app_id is not set"),
            (app("my app", "2", PKCS1), "\"my app\" is neither"),
            (app("1", "two", PKCS1), "\"two\" is not a decimal"),
            (app("1", "2", "hunter2"), "not PEM text"),
            (app("1", "2", &damaged), "github_app_private_key is not usable"),
            (app("1", "2", SHORT), "shorter than 2,048 bits"),
            (app("1", "2", ELLIPTIC), "not an RSA key"),
            (CredentialParts { token: Some("a\nhunter2".into()), ..CredentialParts::default() }, "github_token contains"),
        ];
        for (parts, expected) in table {
            let error = read(parts).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(text.contains(expected), "{text}");
            assert!(!text.contains("hunter2") && !text.contains(PKCS1.lines().nth(2).unwrap()), "{text}");
        }
        let error = Credentials::from_parts(app("1", "2", "/absent/key.pem"), KeyFiles::Allowed).unwrap_err();
        assert!(error.to_string().contains("nor the path of an existing file"), "{error}");
    }

    #[test]
    fn fingerprints_tell_credentials_apart() {
        let token = |text: &str| Credentials::Token(text.into()).fingerprint();
        assert_eq!(token("a"), token("a"));
        assert_ne!(token("a"), token("b"));
        let app = |installation: &str, key| read(app("1", installation, key)).unwrap().fingerprint();
        assert_eq!(app("2", PKCS1), app("2", PKCS8), "the same key in two forms");
        assert_ne!(app("2", PKCS1), app("3", PKCS1));
    }

    #[test]
    fn key_or_token_in_the_place_of_an_id_is_not_quoted() {
        for secret in ["MIIEowIBAAKCAQEAx9bYq7m0yQ5kVfJm2dQ2p3oC1rWm", "ghp_0123456789", "github_pat_11AA"] {
            let id = || Some(secret.to_owned());
            let parts = |app_id, app_installation_id| CredentialParts {
                app_id,
                app_installation_id,
                app_private_key: Some(Secret::from("x".to_owned())),
                ..CredentialParts::default()
            };
            for parts in [parts(id(), None), parts(Some("1".to_owned()), id())] {
                let error = Credentials::from_parts(parts, KeyFiles::Refused).unwrap_err();
                let said = format!("{error} {error:?}");
                assert!(!said.contains(secret) && said.contains("not quoted"), "{said}");
            }
        }
    }
}
