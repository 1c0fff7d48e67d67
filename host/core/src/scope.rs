//! Where at GitHub a runner is registered.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A place at GitHub that has self-hosted runners of its own.
///
/// Where several are given, the order is repository, organization, enterprise (as ARC resolves it).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scope {
    /// `owner/name`.
    Repository {
        /// User or organization login.
        owner: String,
        /// Name without the owner.
        name: String,
    },
    /// Organization login.
    Organization(String),
    /// Enterprise slug.
    Enterprise(String),
}

/// Why a set of fields names no scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// None of the three fields is set.
    #[error("one of repository, organization and enterprise must be set")]
    Missing,
    /// A repository that is not `owner/name`.
    #[error("repository {0:?} must be owner/name, with exactly one slash")]
    Repository(String),
}

impl Scope {
    /// Resolves the three fields of a runner's configuration; empty strings count as absent.
    ///
    /// # Errors
    ///
    /// When none is set, or the repository is not `owner/name`.
    pub fn resolve(repository: Option<&str>, organization: Option<&str>, enterprise: Option<&str>) -> Result<Self, ScopeError> {
        let set = |field: Option<&str>| field.filter(|value| !value.is_empty()).map(str::to_owned);
        if let Some(repository) = set(repository) {
            return match repository.split_once('/') {
                Some((owner, name)) if !owner.is_empty() && !name.is_empty() && !name.contains('/') => {
                    Ok(Self::Repository { owner: owner.to_owned(), name: name.to_owned() })
                }
                _ => Err(ScopeError::Repository(repository)),
            };
        }
        set(organization).map(Self::Organization).or_else(|| set(enterprise).map(Self::Enterprise)).ok_or(ScopeError::Missing)
    }

    /// Path of the scope below GitHub's API base, without slashes at the ends: `orgs/acme`.
    #[must_use]
    pub fn api_path(&self) -> String {
        match self {
            Self::Repository { owner, name } => format!("repos/{owner}/{name}"),
            Self::Organization(organization) => format!("orgs/{organization}"),
            Self::Enterprise(enterprise) => format!("enterprises/{enterprise}"),
        }
    }

    /// Whether a repository is where runners of this scope may get jobs from. What belongs to an enterprise nobody can tell by its name.
    #[must_use]
    pub fn covers(&self, repository: &str) -> bool {
        let Some((owner, name)) = repository.split_once('/') else { return false };
        match self {
            Self::Repository { owner: of, name: called } => owner.eq_ignore_ascii_case(of) && name.eq_ignore_ascii_case(called),
            Self::Organization(of) => owner.eq_ignore_ascii_case(of),
            Self::Enterprise(_) => true,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repository { owner, name } => write!(f, "repository {owner}/{name}"),
            Self::Organization(organization) => write!(f, "organization {organization}"),
            Self::Enterprise(enterprise) => write!(f, "enterprise {enterprise}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_scope_wins() {
        let all = Scope::resolve(Some("acme/app"), Some("acme"), Some("corp")).unwrap();
        assert_eq!(all, Scope::Repository { owner: "acme".into(), name: "app".into() });
        assert_eq!(Scope::resolve(Some(""), Some("acme"), Some("corp")).unwrap(), Scope::Organization("acme".into()));
        assert_eq!(Scope::resolve(None, None, Some("corp")).unwrap().api_path(), "enterprises/corp");
    }

    #[test]
    fn malformed_scopes_are_refused() {
        for repository in ["acme", "acme/", "/app", "acme/app/x"] {
            assert_eq!(Scope::resolve(Some(repository), None, None), Err(ScopeError::Repository(repository.to_owned())),);
        }
        assert_eq!(Scope::resolve(None, Some(""), None), Err(ScopeError::Missing));
    }

    #[test]
    fn only_repositories_of_the_scope_are_covered() {
        let repository = Scope::Repository { owner: "acme".into(), name: "app".into() };
        let organization = Scope::Organization("acme".into());
        for (scope, name, expected) in [
            (&repository, "acme/app", true),
            (&repository, "Acme/App", true),
            (&repository, "acme/other", false),
            (&organization, "acme/other", true),
            (&organization, "evil/app", false),
            (&organization, "acme", false),
        ] {
            assert_eq!(scope.covers(name), expected, "{scope} {name}");
        }
    }
}
