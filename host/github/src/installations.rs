//! Where a GitHub App is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::Deserialize;

use crate::call::{Endpoint, Subject};
use crate::client::GitHub;
use crate::error::Error;

/// A permission of a GitHub App that is read, or read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AppPermission {
    /// Of a repository: check runs.
    Checks,
    /// Of a repository: its self-hosted runners, among others.
    Administration,
    /// Of an organization: its self-hosted runners.
    SelfHostedRunners,
}

impl AppPermission {
    /// Every permission that somebody asks about.
    const ALL: [Self; 3] = [Self::Checks, Self::Administration, Self::SelfHostedRunners];

    /// As GitHub's answers name it.
    const fn key(self) -> &'static str {
        match self {
            Self::Checks => "checks",
            Self::Administration => "administration",
            Self::SelfHostedRunners => "organization_self_hosted_runners",
        }
    }
}

impl fmt::Display for AppPermission {
    /// As GitHub's settings name it, with what it is a permission of.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Checks => "the repository permission \"Checks: read and write\"",
            Self::Administration => "the repository permission \"Administration: read and write\"",
            Self::SelfHostedRunners => "the organization permission \"Self-hosted runners: read and write\"",
        })
    }
}

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
    /// What it may write, of what somebody asks about.
    pub writes: BTreeSet<AppPermission>,
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
    permissions: BTreeMap<String, String>,
    #[serde(default)]
    html_url: String,
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
        let permissions = self.permissions;
        let is_written = |one: &AppPermission| permissions.get(one.key()).is_some_and(|access| access == "write");
        let writes = AppPermission::ALL.into_iter().filter(is_written).collect();
        AppInstallation {
            id: self.id,
            account: account.unwrap_or_else(|| "an account that is gone".to_owned()),
            all_repositories: self.repository_selection.as_deref() == Some("all"),
            suspended: self.suspended_at.is_some(),
            writes,
            page: self.html_url,
        }
    }
}
