//! From a method and a path to what is asked for.

use http::Method;

use super::place::{Accounts, Scope};

/// What a request can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RouteKind {
    /// GET a scope's runners.
    ListRunners,
    /// GET the agents that a scope's runners may be installed with.
    ListDownloads,
    /// GET one runner.
    GetRunner,
    /// DELETE one runner.
    DeleteRunner,
    /// POST for a registration token.
    RegistrationToken,
    /// POST to register a runner ahead of its agent.
    JitConfig,
    /// POST for a removal token.
    RemoveToken,
    /// GET an organization's or enterprise's runner groups.
    ListGroups,
    /// GET an organization's repositories.
    ListRepositories,
    /// GET a repository's workflow runs.
    ListRuns,
    /// GET one workflow run.
    GetRun,
    /// GET a run's jobs.
    ListRunJobs,
    /// GET one job.
    GetJob,
    /// POST to run a job again.
    RerunJob,
    /// GET the check runs of a commit.
    ListChecks,
    /// POST a check run.
    CreateCheck,
    /// PATCH a check run.
    UpdateCheck,
    /// POST a commit status.
    CreateStatus,
    /// GET the app's installation of a scope.
    FindInstallation,
    /// GET all installations of the app.
    ListInstallations,
    /// GET an installation by its number.
    GetInstallation,
    /// POST for an installation's access token.
    AccessToken,
    /// GET a repository's or organization's webhooks.
    ListHooks,
    /// GET the configuration of the app's webhook.
    GetAppHook,
    /// GET a webhook's deliveries.
    ListDeliveries,
    /// GET one delivery.
    GetDelivery,
    /// POST to deliver again.
    Redeliver,
    /// GET the caller's rate limit.
    RateLimit,
    /// An agent's registration, which is no request to the API but can be made to fail like one.
    RegisterRunner,
}

impl RouteKind {
    /// Whether it lists what large organizations have very much of.
    pub(super) fn has_long_pages(self) -> bool {
        matches!(self, Self::ListRunners | Self::ListRuns | Self::ListRunJobs | Self::ListDeliveries)
    }
}

/// What a request asks for, and about which scope and objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) kind: RouteKind,
    pub(super) scope: Option<Scope>,
    /// Runner, run, job, installation or hook number.
    pub(super) id: u64,
    /// Delivery number.
    pub(super) delivery: u64,
}

/// What the segments before the resource say.
enum Below {
    Repository,
    Organization,
    Enterprise,
    App,
}

impl Route {
    /// Reads a path without its `/api/v3` prefix; numbers in place of names (as in `Link` headers) are looked up.
    pub(super) fn parse(method: &Method, path: &str, accounts: &Accounts) -> Option<Self> {
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let by_number = |number: &str| {
            let place = accounts.find_number(number.parse().ok()?)?;
            accounts.get(place).map(|place| place.scope.clone())
        };
        let (below, scope, rest) = match segments.as_slice() {
            ["rate_limit"] if method == Method::GET => return Some(Self::new(RouteKind::RateLimit, None, 0)),
            ["repos", owner, name, rest @ ..] => (Below::Repository, Some(Scope::repository(*owner, *name)), rest),
            ["repositories", number, rest @ ..] => (Below::Repository, Some(by_number(number)?), rest),
            ["orgs", login, rest @ ..] => (Below::Organization, Some(Scope::organization(*login)), rest),
            ["organizations", number, rest @ ..] => (Below::Organization, Some(by_number(number)?), rest),
            ["users", login, "installation"] => {
                (Below::Organization, Some(Scope::organization(*login)), ["installation"].as_slice())
            }
            ["enterprises", slug, rest @ ..] => (Below::Enterprise, Some(Scope::enterprise(*slug)), rest),
            ["app", rest @ ..] => (Below::App, None, rest),
            _ => return None,
        };
        let (get, post, delete) = (method == Method::GET, method == Method::POST, method == Method::DELETE);
        let patch = method == Method::PATCH;
        let number = |text: &str| text.parse::<u64>().ok();
        let repository = matches!(below, Below::Repository);
        let (kind, id, delivery) = match (&below, rest) {
            (Below::App, ["installations"]) if get => (RouteKind::ListInstallations, 0, 0),
            (Below::App, ["installations", id]) if get => (RouteKind::GetInstallation, number(id)?, 0),
            (Below::App, ["installations", id, "access_tokens"]) if post => (RouteKind::AccessToken, number(id)?, 0),
            (Below::App, ["hook", "config"]) if get => (RouteKind::GetAppHook, 0, 0),
            (Below::App, ["hook", "deliveries"]) if get => (RouteKind::ListDeliveries, 0, 0),
            (Below::App, ["hook", "deliveries", id]) if get => (RouteKind::GetDelivery, 0, number(id)?),
            (Below::App, ["hook", "deliveries", id, "attempts"]) if post => (RouteKind::Redeliver, 0, number(id)?),
            (Below::App, _) => return None,
            (_, ["actions", "runners"]) if get => (RouteKind::ListRunners, 0, 0),
            (_, ["actions", "runners", "registration-token"]) if post => (RouteKind::RegistrationToken, 0, 0),
            (_, ["actions", "runners", "generate-jitconfig"]) if post => (RouteKind::JitConfig, 0, 0),
            (_, ["actions", "runners", "remove-token"]) if post => (RouteKind::RemoveToken, 0, 0),
            (_, ["actions", "runners", "downloads"]) if get => (RouteKind::ListDownloads, 0, 0),
            (_, ["actions", "runners", id]) if get => (RouteKind::GetRunner, number(id)?, 0),
            (_, ["actions", "runners", id]) if delete => (RouteKind::DeleteRunner, number(id)?, 0),
            (_, ["actions", "runner-groups"]) if get && !repository => (RouteKind::ListGroups, 0, 0),
            (Below::Organization, ["repos"]) if get => (RouteKind::ListRepositories, 0, 0),
            (_, ["actions", "runs"]) if get && repository => (RouteKind::ListRuns, 0, 0),
            (_, ["actions", "runs", id]) if get && repository => (RouteKind::GetRun, number(id)?, 0),
            (_, ["actions", "runs", id, "jobs"]) if get && repository => (RouteKind::ListRunJobs, number(id)?, 0),
            (_, ["actions", "jobs", id]) if get && repository => (RouteKind::GetJob, number(id)?, 0),
            (_, ["actions", "jobs", id, "rerun"]) if post && repository => (RouteKind::RerunJob, number(id)?, 0),
            (_, ["commits", _, "check-runs"]) if get && repository => (RouteKind::ListChecks, 0, 0),
            (_, ["check-runs"]) if post && repository => (RouteKind::CreateCheck, 0, 0),
            (_, ["check-runs", id]) if patch && repository => (RouteKind::UpdateCheck, number(id)?, 0),
            (_, ["statuses", _]) if post && repository => (RouteKind::CreateStatus, 0, 0),
            (_, ["installation"]) if get => (RouteKind::FindInstallation, 0, 0),
            (Below::Repository | Below::Organization, ["hooks"]) if get => (RouteKind::ListHooks, 0, 0),
            (_, ["hooks", id, "deliveries"]) if get => (RouteKind::ListDeliveries, number(id)?, 0),
            (_, ["hooks", id, "deliveries", delivery]) if get => (RouteKind::GetDelivery, number(id)?, number(delivery)?),
            (_, ["hooks", id, "deliveries", delivery, "attempts"]) if post => {
                (RouteKind::Redeliver, number(id)?, number(delivery)?)
            }
            _ => return None,
        };
        Some(Self { delivery, ..Self::new(kind, scope, id) })
    }

    pub(super) fn new(kind: RouteKind, scope: Option<Scope>, id: u64) -> Self {
        Self { kind, scope, id, delivery: 0 }
    }

    /// The path with its names and numbers replaced, as GitHub's documentation writes it.
    pub(super) fn template(&self) -> &'static str {
        use RouteKind as K;
        macro_rules! scoped {
            ($rest:literal) => {
                match &self.scope {
                    Some(Scope::Repository { .. }) => concat!("/repos/{owner}/{repo}/", $rest),
                    Some(Scope::Organization(_)) => concat!("/orgs/{org}/", $rest),
                    Some(Scope::Enterprise(_)) => concat!("/enterprises/{enterprise}/", $rest),
                    None => concat!("/app/", $rest),
                }
            };
        }
        match self.kind {
            K::ListRunners => scoped!("actions/runners"),
            K::GetRunner | K::DeleteRunner => scoped!("actions/runners/{runner_id}"),
            K::RegistrationToken => scoped!("actions/runners/registration-token"),
            K::JitConfig => scoped!("actions/runners/generate-jitconfig"),
            K::RemoveToken => scoped!("actions/runners/remove-token"),
            K::ListGroups => scoped!("actions/runner-groups"),
            K::ListRepositories => scoped!("repos"),
            K::ListRuns => scoped!("actions/runs"),
            K::GetRun => scoped!("actions/runs/{run_id}"),
            K::ListRunJobs => scoped!("actions/runs/{run_id}/jobs"),
            K::GetJob => scoped!("actions/jobs/{job_id}"),
            K::RerunJob => scoped!("actions/jobs/{job_id}/rerun"),
            K::ListChecks => scoped!("commits/{ref}/check-runs"),
            K::CreateCheck => scoped!("check-runs"),
            K::UpdateCheck => scoped!("check-runs/{check_run_id}"),
            K::CreateStatus => scoped!("statuses/{sha}"),
            K::ListDownloads => scoped!("actions/runners/downloads"),
            K::ListInstallations => "/app/installations",
            K::FindInstallation => scoped!("installation"),
            K::GetInstallation => "/app/installations/{installation_id}",
            K::AccessToken => "/app/installations/{installation_id}/access_tokens",
            K::ListHooks => scoped!("hooks"),
            K::GetAppHook => "/app/hook/config",
            K::ListDeliveries if self.scope.is_none() => "/app/hook/deliveries",
            K::GetDelivery if self.scope.is_none() => "/app/hook/deliveries/{delivery_id}",
            K::Redeliver if self.scope.is_none() => "/app/hook/deliveries/{delivery_id}/attempts",
            K::ListDeliveries => scoped!("hooks/{hook_id}/deliveries"),
            K::GetDelivery => scoped!("hooks/{hook_id}/deliveries/{delivery_id}"),
            K::Redeliver => scoped!("hooks/{hook_id}/deliveries/{delivery_id}/attempts"),
            K::RateLimit => "/rate_limit",
            K::RegisterRunner => "/actions/runner-registration",
        }
    }
}
