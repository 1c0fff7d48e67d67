//! The closed set of calls that pacer makes at GitHub.

use std::fmt;

use pacer_core::scope::Scope;

use crate::credentials::CredentialKind;

/// What a call is for. Closed, so that it can label metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// `POST .../actions/runners/registration-token`.
    RegistrationToken,
    /// `GET .../actions/runners`, one page.
    ListRunners,
    /// `GET .../actions/runners/{id}`.
    GetRunner,
    /// `DELETE .../actions/runners/{id}`.
    RemoveRunner,
    /// `GET .../installation`: which installation of an App serves a scope.
    FindInstallation,
    /// `POST app/installations/{id}/access_tokens`.
    InstallationToken,
}

impl Endpoint {
    /// Every endpoint, in the order of their indices.
    pub const ALL: [Self; 6] = [
        Self::RegistrationToken,
        Self::ListRunners,
        Self::GetRunner,
        Self::RemoveRunner,
        Self::FindInstallation,
        Self::InstallationToken,
    ];

    /// Name for metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RegistrationToken => "registration_token",
            Self::ListRunners => "list_runners",
            Self::GetRunner => "get_runner",
            Self::RemoveRunner => "remove_runner",
            Self::FindInstallation => "find_installation",
            Self::InstallationToken => "installation_token",
        }
    }

    /// Position in [`Endpoint::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// The call in words, to be put after "cannot".
    pub(crate) fn deed(self) -> &'static str {
        match self {
            Self::RegistrationToken => "create a registration token for",
            Self::ListRunners => "list the runners of",
            Self::GetRunner => "look at a runner of",
            Self::RemoveRunner => "remove a runner from",
            Self::FindInstallation => "find the GitHub App's installation for",
            Self::InstallationToken => "obtain the GitHub App's installation token for",
        }
    }

    /// Whether the call is made by the App itself, with a JWT, not by its installation.
    pub(crate) fn by_the_app(self) -> bool {
        matches!(self, Self::FindInstallation | Self::InstallationToken)
    }

    /// The permission that the call needs, as GitHub's pages name it.
    pub(crate) fn permission(self, scope: &Scope, credentials: CredentialKind) -> &'static str {
        let reads = matches!(self, Self::ListRunners | Self::GetRunner);
        match (self, scope, credentials) {
            (Self::FindInstallation, ..) => "the App to be installed there",
            (Self::InstallationToken, ..) => "an installation of this very App that is not suspended",
            (_, Scope::Repository { .. }, CredentialKind::App) if reads => {
                "the App's repository permission \"Administration: read\""
            }
            (_, Scope::Repository { .. }, CredentialKind::App) => {
                "the App's repository permission \"Administration: read and write\""
            }
            (_, Scope::Organization(_), CredentialKind::App) if reads => {
                "the App's organization permission \"Self-hosted runners: read\""
            }
            (_, Scope::Organization(_), CredentialKind::App) => {
                "the App's organization permission \"Self-hosted runners: read and write\""
            }
            (_, Scope::Enterprise(_), CredentialKind::App) => {
                "the App's enterprise permission for self-hosted runners, where GitHub offers it, or a token with the scope manage_runners:enterprise"
            }
            (_, Scope::Repository { .. }, _) => {
                "the token scope repo (classic) or the repository permission \"Administration: read and write\" (fine-grained), held by an administrator of the repository"
            }
            (_, Scope::Organization(_), _) => {
                "the token scope admin:org (classic) or the organization permission \"Self-hosted runners: read and write\" (fine-grained), held by an owner of the organization"
            }
            (_, Scope::Enterprise(_), _) => "the token scope manage_runners:enterprise, held by an owner of the enterprise",
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Travels with each request through the stack, as an extension.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) endpoint: Endpoint,
    pub(crate) scope: Scope,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_follow_the_list() {
        for (index, endpoint) in Endpoint::ALL.into_iter().enumerate() {
            assert_eq!(endpoint.index(), index, "{endpoint}");
        }
    }

    #[test]
    fn every_call_names_the_right_it_needs() {
        let repository = Scope::Repository { owner: "acme".into(), name: "app".into() };
        let organization = Scope::Organization("acme".into());
        let enterprise = Scope::Enterprise("corp".into());
        let table = [
            (Endpoint::RegistrationToken, &repository, CredentialKind::App, "Administration: read and write"),
            (Endpoint::ListRunners, &repository, CredentialKind::App, "Administration: read\""),
            (Endpoint::ListRunners, &repository, CredentialKind::Token, "scope repo"),
            (Endpoint::RemoveRunner, &organization, CredentialKind::App, "Self-hosted runners: read and write"),
            (Endpoint::ListRunners, &organization, CredentialKind::Token, "admin:org"),
            (Endpoint::ListRunners, &organization, CredentialKind::Basic, "admin:org"),
            (Endpoint::RemoveRunner, &enterprise, CredentialKind::Token, "manage_runners:enterprise"),
            (Endpoint::RemoveRunner, &enterprise, CredentialKind::App, "manage_runners:enterprise"),
            (Endpoint::InstallationToken, &enterprise, CredentialKind::App, "suspended"),
        ];
        for (endpoint, scope, credentials, wanted) in table {
            let permission = endpoint.permission(scope, credentials);
            assert!(permission.contains(wanted), "{endpoint} {scope}: {permission}");
        }
    }
}
