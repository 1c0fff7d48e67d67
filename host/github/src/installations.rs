//! Where a GitHub App is installed.

use jiff::Timestamp;
use serde::Deserialize;

use crate::call::{Endpoint, Subject};
use crate::client::GitHub;
use crate::error::Error;

/// One installation of a GitHub App.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppInstallation {
    /// GitHub's id.
    pub id: u64,
    /// Login of the organization or user, or slug of the enterprise.
    pub account: String,
    /// Whether it sees every repository of the account, or a selection.
    pub all_repositories: bool,
    /// Whether its tokens are refused.
    pub suspended: bool,
    /// Whether it may write check runs.
    pub writes_checks: bool,
    /// Where people change it.
    pub page: String,
}

#[derive(Deserialize)]
struct Wire {
    id: u64,
    account: Option<WireAccount>,
    #[serde(default)]
    repository_selection: Option<String>,
    #[serde(default)]
    suspended_at: Option<Timestamp>,
    #[serde(default)]
    permissions: WirePermissions,
    #[serde(default)]
    html_url: String,
}

/// The permissions that somebody asks about.
#[derive(Default, Deserialize)]
struct WirePermissions {
    #[serde(default)]
    checks: Option<String>,
}

/// A user, an organization, or an enterprise, which has no login.
#[derive(Deserialize)]
struct WireAccount {
    #[serde(default)]
    login: Option<String>,
    #[serde(default)]
    slug: Option<String>,
}

impl GitHub {
    /// All installations of the GitHub App that the credentials are of.
    ///
    /// # Errors
    ///
    /// As GitHub refuses, and without the App's credentials; see [`crate::ErrorKind`].
    pub async fn installations(&self) -> Result<Vec<AppInstallation>, Error> {
        let pages: Vec<Vec<Wire>> =
            self.get_all(Endpoint::ListInstallations, Subject::App, "installations", "per_page=100").await?;
        Ok(pages.into_iter().flatten().map(Wire::read).collect())
    }
}

impl Wire {
    fn read(self) -> AppInstallation {
        let account = self.account.and_then(|account| account.login.or(account.slug));
        AppInstallation {
            id: self.id,
            account: account.unwrap_or_else(|| "an account that is gone".to_owned()),
            all_repositories: self.repository_selection.as_deref() == Some("all"),
            suspended: self.suspended_at.is_some(),
            writes_checks: self.permissions.checks.as_deref() == Some("write"),
            page: self.html_url,
        }
    }
}
