//! Scopes, hosts and registries as a tenancy lists them.

use std::fmt;
use std::str::FromStr;

use crate::reference::{Reference, is_path, is_registry};
use crate::scope::Scope;

/// Scopes that an entry lists, as people write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopePattern {
    /// `acme`: the organization, not its repositories.
    Organization(String),
    /// `acme/app`.
    Repository {
        /// Login of the owner.
        owner: String,
        /// Name without the owner.
        name: String,
    },
    /// `acme/*`: every repository of that owner, not the organization itself.
    RepositoriesOf(String),
    /// `enterprise:corp`.
    Enterprise(String),
}

/// What can't be read as a scope or a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text is no scope.
    #[error(
        "{0:?} is no scope: write an organization (acme), a repository (acme/app), all of an owner (acme/*) or enterprise:corp"
    )]
    Scope(String),
    /// The text is no GitHub host.
    #[error("{0:?} is no host: write it as in a URL, without scheme and path: ghe.example.com, or ghe.example.com:8443")]
    Host(String),
    /// The text is no registry.
    #[error(
        "{0:?} is no registry: write its host with the port, if it has one, and may be the beginning of a repository: registry.example:5000/team"
    )]
    Registry(String),
}

impl ScopePattern {
    /// Whether it is among these. Names have no case at GitHub.
    #[must_use]
    pub fn covers(&self, scope: &Scope) -> bool {
        match (self, scope) {
            (Self::Organization(listed), Scope::Organization(wanted)) | (Self::Enterprise(listed), Scope::Enterprise(wanted)) => {
                listed.eq_ignore_ascii_case(wanted)
            }
            (Self::Repository { owner, name }, Scope::Repository { owner: wanted_owner, name: wanted }) => {
                owner.eq_ignore_ascii_case(wanted_owner) && name.eq_ignore_ascii_case(wanted)
            }
            (Self::RepositoriesOf(listed), Scope::Repository { owner, .. }) => listed.eq_ignore_ascii_case(owner),
            _ => false,
        }
    }

    /// How a scope is listed alone.
    #[must_use]
    pub fn of(scope: &Scope) -> Self {
        match scope.clone() {
            Scope::Repository { owner, name } => Self::Repository { owner, name },
            Scope::Organization(organization) => Self::Organization(organization),
            Scope::Enterprise(enterprise) => Self::Enterprise(enterprise),
        }
    }
}

impl fmt::Display for ScopePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Organization(organization) => f.write_str(organization),
            Self::Repository { owner, name } => write!(f, "{owner}/{name}"),
            Self::RepositoriesOf(owner) => write!(f, "{owner}/*"),
            Self::Enterprise(enterprise) => write!(f, "enterprise:{enterprise}"),
        }
    }
}

impl FromStr for ScopePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let name = |part: &str| is_name(part).then(|| part.to_owned());
        let read = || match (text.strip_prefix("enterprise:"), text.split_once('/')) {
            (Some(enterprise), _) => name(enterprise).map(Self::Enterprise),
            (None, Some((owner, "*"))) => name(owner).map(Self::RepositoriesOf),
            (None, Some((owner, repository))) => Some(Self::Repository { owner: name(owner)?, name: name(repository)? }),
            (None, None) => name(text).map(Self::Organization),
        };
        read().ok_or_else(|| PatternError::Scope(text.to_owned()))
    }
}

/// Names of accounts and repositories; nothing that could be mistaken for a pattern or a path.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// A GitHub host that an entry lists, in lower case, with its port unless that is the scheme's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(String);

impl Host {
    /// Whether this host is meant. Whoever lists `github.com` means its API at `api.github.com` as well.
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        host == self.0 || host.strip_prefix("api.") == Some(self.0.as_str())
    }
}

impl FromStr for Host {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let (name, port) = text.rsplit_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
        let is_host = is_name(name) && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
        if is_host { Ok(Self(text.to_ascii_lowercase())) } else { Err(PatternError::Host(text.to_owned())) }
    }
}

/// Where policies may come from: a registry, or the repositories of one that begin with these words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryPattern {
    registry: String,
    /// Empty for all of them.
    repository: String,
}

impl RegistryPattern {
    /// Whether an artifact lies there. `ghcr.io/acme` means `ghcr.io/acme` and what is below it, and not `ghcr.io/acme-evil`.
    #[must_use]
    pub fn covers(&self, reference: &Reference) -> bool {
        let rest = reference.repository().strip_prefix(&self.repository);
        self.registry == reference.registry()
            && rest.is_some_and(|rest| self.repository.is_empty() || rest.is_empty() || rest.starts_with('/'))
    }

    /// How the repository of an artifact is listed alone.
    #[must_use]
    pub fn of(reference: &Reference) -> Self {
        Self { registry: reference.registry().to_owned(), repository: reference.repository().to_owned() }
    }
}

impl fmt::Display for RegistryPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.registry)?;
        if self.repository.is_empty() { Ok(()) } else { write!(f, "/{}", self.repository) }
    }
}

impl FromStr for RegistryPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let (registry, repository) = text.split_once('/').unwrap_or((text, ""));
        let is_sound = is_registry(registry) && (is_path(repository) || !text.contains('/'));
        if !is_sound {
            return Err(PatternError::Registry(text.to_owned()));
        }
        Ok(Self { registry: registry.to_owned(), repository: repository.to_owned() })
    }
}
