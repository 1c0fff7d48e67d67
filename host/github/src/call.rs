//! The closed set of calls that pacer makes at GitHub.

use std::fmt;
use std::sync::Arc;

use pacer_core::allowance::Purpose;
use pacer_core::scope::Scope;

use crate::credentials::CredentialKind;
use crate::payer::Payer;

/// What a call is for. Closed, so that it can label metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// `POST .../actions/runners/registration-token`.
    RegistrationToken,
    /// `POST .../actions/runners/generate-jitconfig`.
    JitConfig,
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
    /// `GET .../actions/runs`, one page.
    ListRuns,
    /// `GET .../actions/runs/{id}/jobs`, one page.
    ListRunJobs,
    /// `GET .../actions/jobs/{id}`.
    GetJob,
    /// `GET .../actions/runs/{id}`.
    GetRun,
    /// `POST .../actions/jobs/{id}/rerun`.
    RerunJob,
    /// `GET .../actions/runner-groups`, one page.
    ListRunnerGroups,
    /// `GET .../hooks`, one page.
    ListHooks,
    /// `GET .../hooks/{id}/deliveries` or `app/hook/deliveries`, one page.
    ListDeliveries,
    /// `POST .../deliveries/{id}/attempts`.
    Redeliver,
    /// `GET app/hook/config`.
    GetAppHook,
    /// `GET orgs/{organization}/repos`, one page.
    ListRepositories,
    /// `GET app/installations`, one page.
    ListInstallations,
    /// `GET .../actions/runners/downloads`.
    ListAgents,
    /// `GET .../actions/jobs/{id}`, for what a report of the job needs.
    GetReportedJob,
    /// `GET .../commits/{commit}/check-runs`, one page.
    ListCheckRuns,
    /// `POST .../check-runs`.
    CreateCheckRun,
    /// `PATCH .../check-runs/{id}`.
    UpdateCheckRun,
    /// `POST .../statuses/{commit}`.
    CreateCommitStatus,
}

/// Largest answer that is read, in bytes, unless the endpoint has larger ones.
pub(crate) const LARGEST_ANSWER: usize = 1 << 20;

/// Kinds of things that GitHub gives rights to.
enum Right {
    Runners,
    Jobs,
    Hooks,
    Checks,
    Statuses,
}

impl Endpoint {
    /// Every endpoint, in the order of their indices.
    pub const ALL: [Self; 25] = [
        Self::RegistrationToken,
        Self::JitConfig,
        Self::ListRunners,
        Self::GetRunner,
        Self::RemoveRunner,
        Self::FindInstallation,
        Self::InstallationToken,
        Self::ListRuns,
        Self::ListRunJobs,
        Self::GetJob,
        Self::GetRun,
        Self::RerunJob,
        Self::ListRunnerGroups,
        Self::ListHooks,
        Self::ListDeliveries,
        Self::Redeliver,
        Self::GetAppHook,
        Self::ListRepositories,
        Self::ListInstallations,
        Self::ListAgents,
        Self::GetReportedJob,
        Self::ListCheckRuns,
        Self::CreateCheckRun,
        Self::UpdateCheckRun,
        Self::CreateCommitStatus,
    ];

    /// Name for metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RegistrationToken => "registration_token",
            Self::JitConfig => "jit_config",
            Self::ListRunners => "list_runners",
            Self::GetRunner => "get_runner",
            Self::RemoveRunner => "remove_runner",
            Self::FindInstallation => "find_installation",
            Self::InstallationToken => "installation_token",
            Self::ListRuns => "list_runs",
            Self::ListRunJobs => "list_run_jobs",
            Self::GetJob => "get_job",
            Self::GetRun => "get_run",
            Self::RerunJob => "rerun_job",
            Self::ListRunnerGroups => "list_runner_groups",
            Self::ListHooks => "list_hooks",
            Self::ListDeliveries => "list_deliveries",
            Self::Redeliver => "redeliver",
            Self::GetAppHook => "get_app_hook",
            Self::ListRepositories => "list_repositories",
            Self::ListInstallations => "list_installations",
            Self::ListAgents => "list_agents",
            Self::GetReportedJob => "get_reported_job",
            Self::ListCheckRuns => "list_check_runs",
            Self::CreateCheckRun => "create_check_run",
            Self::UpdateCheckRun => "update_check_run",
            Self::CreateCommitStatus => "create_commit_status",
        }
    }

    /// What it is for, and so whose turn it is.
    pub(crate) fn purpose(self) -> Purpose {
        match self {
            Self::RegistrationToken
            | Self::JitConfig
            | Self::FindInstallation
            | Self::InstallationToken
            | Self::GetRunner
            | Self::GetJob => Purpose::Start,
            Self::ListRunners | Self::ListRuns | Self::ListRunJobs | Self::ListRunnerGroups | Self::ListAgents => {
                Purpose::Listing
            }
            Self::RemoveRunner
            | Self::GetRun
            | Self::RerunJob
            | Self::ListHooks
            | Self::ListDeliveries
            | Self::Redeliver
            | Self::GetAppHook
            | Self::ListRepositories
            | Self::ListInstallations => Purpose::Removal,
            Self::GetReportedJob
            | Self::ListCheckRuns
            | Self::CreateCheckRun
            | Self::UpdateCheckRun
            | Self::CreateCommitStatus => Purpose::Report,
        }
    }

    /// Largest answer that is read, in bytes: a page of 100 runners has some 60 kB, and one of runs has the repository in each of them.
    pub(crate) fn largest(self) -> usize {
        match self {
            Self::ListRuns | Self::ListRunJobs | Self::ListRepositories => 4 << 20,
            _ => LARGEST_ANSWER,
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
            Self::JitConfig => "register a runner just in time for",
            Self::ListRunners => "list the runners of",
            Self::GetRunner => "look at a runner of",
            Self::RemoveRunner => "remove a runner from",
            Self::FindInstallation => "find the GitHub App's installation for",
            Self::InstallationToken => "obtain the GitHub App's installation token for",
            Self::ListRuns => "list the workflow runs of",
            Self::ListRunJobs => "list the jobs of a workflow run of",
            Self::GetJob => "look at a workflow job of",
            Self::GetRun => "look at a workflow run of",
            Self::RerunJob => "have a workflow job run again of",
            Self::ListRunnerGroups => "list the runner groups of",
            Self::ListHooks => "list the webhooks of",
            Self::ListDeliveries => "list the deliveries of a webhook of",
            Self::Redeliver => "ask for another delivery by a webhook of",
            Self::GetAppHook => "look at the webhook of",
            Self::ListRepositories => "list the repositories of",
            Self::ListInstallations => "list the installations of",
            Self::ListAgents => "list the runner agents for",
            Self::GetReportedJob => "look at a workflow job that is to be reported of",
            Self::ListCheckRuns => "list the check runs of a commit of",
            Self::CreateCheckRun => "make a check run on a commit of",
            Self::UpdateCheckRun => "change a check run on a commit of",
            Self::CreateCommitStatus => "set the status of a commit of",
        }
    }

    fn right(self) -> Right {
        match self {
            Self::ListRuns
            | Self::ListRunJobs
            | Self::GetJob
            | Self::GetReportedJob
            | Self::GetRun
            | Self::RerunJob
            | Self::ListRepositories => Right::Jobs,
            Self::ListCheckRuns | Self::CreateCheckRun | Self::UpdateCheckRun => Right::Checks,
            Self::CreateCommitStatus => Right::Statuses,
            Self::ListHooks | Self::ListDeliveries | Self::Redeliver | Self::GetAppHook => Right::Hooks,
            Self::RegistrationToken
            | Self::JitConfig
            | Self::ListRunners
            | Self::GetRunner
            | Self::RemoveRunner
            | Self::FindInstallation
            | Self::InstallationToken
            | Self::ListRunnerGroups
            | Self::ListInstallations
            | Self::ListAgents => Right::Runners,
        }
    }

    /// Whether an App's permission to read is enough.
    fn reads(self) -> bool {
        !matches!(
            self,
            Self::RegistrationToken
                | Self::JitConfig
                | Self::RemoveRunner
                | Self::RerunJob
                | Self::Redeliver
                | Self::CreateCheckRun
                | Self::UpdateCheckRun
                | Self::CreateCommitStatus
        )
    }

    /// The permission that the call needs, as GitHub's pages name it.
    pub(crate) fn permission(self, subject: &Subject, credentials: CredentialKind) -> &'static str {
        let scope = match (self, subject) {
            (Self::FindInstallation, _) => return "the App to be installed there",
            (Self::InstallationToken, _) => return "an installation of this very App that is not suspended",
            (_, Subject::App) => return "the App's own id and private key",
            (_, Subject::Scope(scope)) => scope,
        };
        match credentials {
            CredentialKind::App => self.permission_of_app(scope),
            CredentialKind::Token | CredentialKind::Basic => self.permission_of_token(scope),
        }
    }

    fn permission_of_app(self, scope: &Scope) -> &'static str {
        match (self.right(), scope, self.reads()) {
            (Right::Jobs, _, true) => "the App's repository permission \"Actions: read\"",
            (Right::Jobs, _, false) => "the App's repository permission \"Actions: read and write\"",
            (Right::Checks, _, true) => "the App's repository permission \"Checks: read\"",
            (Right::Checks, _, false) => "the App's repository permission \"Checks: read and write\"",
            (Right::Statuses, ..) => "the App's repository permission \"Commit statuses: read and write\"",
            (Right::Runners, Scope::Repository { .. }, true) => "the App's repository permission \"Administration: read\"",
            (Right::Runners, Scope::Repository { .. }, false) => {
                "the App's repository permission \"Administration: read and write\""
            }
            (Right::Runners, Scope::Organization(_), true) => "the App's organization permission \"Self-hosted runners: read\"",
            (Right::Runners, Scope::Organization(_), false) => {
                "the App's organization permission \"Self-hosted runners: read and write\""
            }
            (Right::Runners, Scope::Enterprise(_), _) => {
                "the App's enterprise permission for self-hosted runners, where GitHub offers it, or a token with the scope manage_runners:enterprise"
            }
            (Right::Hooks, Scope::Repository { .. }, true) => "the App's repository permission \"Webhooks: read\"",
            (Right::Hooks, Scope::Repository { .. }, false) => "the App's repository permission \"Webhooks: read and write\"",
            (Right::Hooks, _, true) => "the App's organization permission \"Webhooks: read\"",
            (Right::Hooks, _, false) => "the App's organization permission \"Webhooks: read and write\"",
        }
    }

    fn permission_of_token(self, scope: &Scope) -> &'static str {
        match (self.right(), scope) {
            (Right::Jobs, _) if self.reads() => {
                "the token scope repo (classic) or the repository permission \"Actions: read\" (fine-grained)"
            }
            (Right::Jobs, _) => {
                "the token scope repo (classic) or the repository permission \"Actions: read and write\" (fine-grained)"
            }
            (Right::Checks, _) => "a GitHub App: tokens can't write check runs",
            (Right::Statuses, _) => {
                "the token scope repo:status (classic) or the repository permission \"Commit statuses: read and write\" (fine-grained)"
            }
            (Right::Runners, Scope::Repository { .. }) => {
                "the token scope repo (classic) or the repository permission \"Administration: read and write\" (fine-grained), held by an administrator of the repository"
            }
            (Right::Runners, Scope::Organization(_)) => {
                "the token scope admin:org (classic) or the organization permission \"Self-hosted runners: read and write\" (fine-grained), held by an owner of the organization"
            }
            (Right::Runners, Scope::Enterprise(_)) => {
                "the token scope manage_runners:enterprise, held by an owner of the enterprise"
            }
            (Right::Hooks, Scope::Repository { .. }) => {
                "the token scope admin:repo_hook (classic) or the repository permission \"Webhooks: read and write\" (fine-grained), held by an administrator of the repository"
            }
            (Right::Hooks, _) => {
                "the token scope admin:org_hook (classic) or the organization permission \"Webhooks: read and write\" (fine-grained), held by an owner of the organization"
            }
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a call is about: the first part of its path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// A repository, organization or enterprise.
    Scope(Scope),
    /// The GitHub App that the credentials are of.
    App,
}

impl Subject {
    /// Path below the API base, without slashes at the ends.
    pub(crate) fn path(&self) -> String {
        match self {
            Self::Scope(scope) => scope.api_path(),
            Self::App => "app".to_owned(),
        }
    }

    /// The names that the path is made of.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Self::Scope(Scope::Repository { owner, name }) => vec![owner, name],
            Self::Scope(Scope::Organization(name) | Scope::Enterprise(name)) => vec![name],
            Self::App => Vec::new(),
        }
    }
}

impl From<&Scope> for Subject {
    fn from(scope: &Scope) -> Self {
        Self::Scope(scope.clone())
    }
}

impl From<Scope> for Subject {
    fn from(scope: Scope) -> Self {
        Self::Scope(scope)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scope(scope) => scope.fmt(f),
            Self::App => f.write_str("the GitHub App"),
        }
    }
}

/// Travels with each request through the stack, as an extension.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) endpoint: Endpoint,
    pub(crate) subject: Subject,
    /// Its turn was granted together with others'.
    pub(crate) granted: bool,
    /// Whose quota it counts in; nobody's when none.
    pub(crate) payer: Option<Arc<dyn Payer>>,
}

impl Call {
    pub(crate) fn new(endpoint: Endpoint, subject: impl Into<Subject>) -> Self {
        Self { endpoint, subject: subject.into(), granted: false, payer: None }
    }

    /// Whether the call is made by the App itself, with a JWT, not by its installation.
    pub(crate) fn by_the_app(&self) -> bool {
        self.subject == Subject::App || matches!(self.endpoint, Endpoint::FindInstallation | Endpoint::InstallationToken)
    }
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
        use CredentialKind::{App, Basic, Token};
        let repository = Subject::Scope(Scope::Repository { owner: "acme".into(), name: "app".into() });
        let organization = Subject::Scope(Scope::Organization("acme".into()));
        let enterprise = Subject::Scope(Scope::Enterprise("corp".into()));
        let table = [
            (Endpoint::RegistrationToken, &repository, App, "Administration: read and write"),
            (Endpoint::ListRunners, &repository, App, "Administration: read\""),
            (Endpoint::ListRunners, &repository, Token, "scope repo"),
            (Endpoint::RemoveRunner, &organization, App, "Self-hosted runners: read and write"),
            (Endpoint::ListRunners, &organization, Token, "admin:org"),
            (Endpoint::ListRunners, &organization, Basic, "admin:org"),
            (Endpoint::RemoveRunner, &enterprise, Token, "manage_runners:enterprise"),
            (Endpoint::RemoveRunner, &enterprise, App, "manage_runners:enterprise"),
            (Endpoint::InstallationToken, &enterprise, App, "suspended"),
            (Endpoint::ListRuns, &repository, App, "Actions: read\""),
            (Endpoint::GetJob, &repository, Token, "Actions: read\""),
            (Endpoint::RerunJob, &repository, App, "Actions: read and write"),
            (Endpoint::RerunJob, &repository, Token, "Actions: read and write"),
            (Endpoint::CreateCheckRun, &repository, App, "Checks: read and write"),
            (Endpoint::ListCheckRuns, &repository, App, "Checks: read\""),
            (Endpoint::UpdateCheckRun, &repository, Token, "GitHub App"),
            (Endpoint::CreateCommitStatus, &repository, Token, "repo:status"),
            (Endpoint::CreateCommitStatus, &repository, App, "Commit statuses: read and write"),
            (Endpoint::GetReportedJob, &repository, App, "Actions: read\""),
            (Endpoint::ListRunnerGroups, &organization, App, "Self-hosted runners: read\""),
            (Endpoint::ListRunnerGroups, &organization, Token, "admin:org"),
            (Endpoint::ListHooks, &repository, App, "Webhooks: read\""),
            (Endpoint::Redeliver, &repository, App, "repository permission \"Webhooks: read and write"),
            (Endpoint::Redeliver, &organization, App, "organization permission \"Webhooks: read and write"),
            (Endpoint::ListDeliveries, &repository, Token, "admin:repo_hook"),
            (Endpoint::ListDeliveries, &organization, Token, "admin:org_hook"),
            (Endpoint::Redeliver, &Subject::App, App, "private key"),
        ];
        for (endpoint, subject, credentials, wanted) in table {
            let permission = endpoint.permission(subject, credentials);
            assert!(permission.contains(wanted), "{endpoint} {subject}: {permission}");
        }
    }
}
