//! What the API answers.

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    credential::{Access, Caller, Installation, Need, Refused},
    hook::{Delivery, HookOwner},
    job::{Conclusion, JobState, Run},
    limit::Budget,
    listing::{Listing, Page, Paging, Period, Query, cursor_link, tag_of},
    payload,
    place::{DeliveryId, Group, HookId, JobId, Place, PlaceId, RunId, RunnerId, Scope},
    route::{Route, RouteKind},
    runner::{DeletionRefused, RegistrationRefused, Runner},
    state::{RunnerToken, State},
};

/// A request to the API, taken apart.
pub(super) struct Asked<'a> {
    pub(super) method: &'a Method,
    /// Scheme, host and prefix under which the client knows the API.
    pub(super) base: String,
    /// Path below the base.
    pub(super) path: &'a str,
    pub(super) query: Query,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a [u8],
}

impl Asked<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// An answer before faults.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Bytes,
    pub(super) caller: String,
}

pub(super) const DOCUMENTATION: &str = "https://docs.github.com/rest";
/// The version of the agent that can be downloaded.
const NEWEST_AGENT: &str = "2.330.0";
const LIMITS_DOCUMENTATION: &str = "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api";

impl Answer {
    fn raw(status: StatusCode, body: Bytes) -> Self {
        Self { status, headers: Vec::new(), body, caller: String::new() }
    }

    pub(super) fn json(status: StatusCode, value: &Value) -> Self {
        Self::raw(status, Bytes::from(value.to_string()))
    }

    pub(super) fn error(status: StatusCode, message: &str, documentation: &str) -> Self {
        let body = json!({"message": message, "documentation_url": documentation, "status": status.as_str()});
        Self::json(status, &body)
    }

    fn not_found() -> Self {
        Self::error(StatusCode::NOT_FOUND, "Not Found", DOCUMENTATION)
    }

    pub(super) fn header(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The secondary rate limit's refusal, in today's form.
    pub(super) fn secondary_limit(retry_after: std::time::Duration) -> Self {
        let message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again. \
                       If you reach out to GitHub Support for help, please include the request ID.";
        let documentation = format!("{LIMITS_DOCUMENTATION}#about-secondary-rate-limits");
        let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
        Self::error(StatusCode::FORBIDDEN, message, &documentation).header("retry-after", seconds.to_string())
    }

    /// What a faulty GitHub says with this status.
    pub(super) fn fault(status: u16) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let message = match status {
            StatusCode::FORBIDDEN => "Forbidden",
            StatusCode::TOO_MANY_REQUESTS => "Too many requests",
            StatusCode::BAD_GATEWAY => "Server Error",
            StatusCode::SERVICE_UNAVAILABLE => "No server is currently available to service your request.",
            other => other.canonical_reason().unwrap_or("Error"),
        };
        Self::error(status, message, DOCUMENTATION)
    }
}

/// What a route asks of its caller.
fn need_of(route: &Route) -> Option<Need> {
    use RouteKind as K;
    let access = match route.kind {
        K::GetRunner
        | K::ListRunners
        | K::ListDownloads
        | K::ListGroups
        | K::ListHooks
        | K::ListDeliveries
        | K::GetDelivery
        | K::ListChecks => Access::Read,
        _ => Access::Write,
    };
    let runners = matches!(
        route.kind,
        K::ListRunners
            | K::GetRunner
            | K::DeleteRunner
            | K::RegistrationToken
            | K::JitConfig
            | K::RemoveToken
            | K::ListGroups
            | K::ListDownloads
    );
    let hooks = matches!(route.kind, K::ListHooks | K::ListDeliveries | K::GetDelivery | K::Redeliver);
    let need = |scopes, permission: &'static str, access| Some(Need { scopes, permission: Some((permission, access)) });
    match (route.scope.as_ref()?, runners, hooks) {
        (Scope::Repository { .. }, true, _) => need(&["repo"], "administration", access),
        (Scope::Organization(_), true, _) => need(&["admin:org"], "organization_self_hosted_runners", access),
        // An App cannot have rights to an enterprise's runners.
        (Scope::Enterprise(_), true, _) => {
            Some(Need { scopes: &["manage_runners:enterprise", "admin:enterprise"], permission: None })
        }
        (Scope::Repository { .. }, _, true) => need(&["admin:repo_hook", "repo"], "repository_hooks", access),
        (Scope::Organization(_), _, true) => need(&["admin:org_hook"], "organization_hooks", access),
        (Scope::Repository { .. }, ..) if is_check(route) => need(&["repo"], "checks", access),
        (Scope::Repository { .. }, ..) if route.kind == K::CreateStatus => need(&["repo", "repo:status"], "statuses", access),
        (Scope::Repository { .. }, ..) if route.kind == K::RerunJob => need(&["repo"], "actions", Access::Write),
        (Scope::Repository { .. }, ..) => need(&["repo"], "actions", Access::Read),
        // Every installation may read metadata.
        (Scope::Organization(_), ..) if route.kind == K::ListRepositories => need(&["repo"], "metadata", Access::Read),
        _ => Some(Need { scopes: &["admin:enterprise"], permission: None }),
    }
}

/// Whether it is about check runs.
fn is_check(route: &Route) -> bool {
    matches!(route.kind, RouteKind::ListChecks | RouteKind::CreateCheck | RouteKind::UpdateCheck)
}

/// What the App itself asks for, by its own token.
fn is_for_apps(route: &Route) -> bool {
    use RouteKind as K;
    match route.kind {
        K::FindInstallation | K::ListInstallations | K::GetInstallation | K::AccessToken | K::GetAppHook => true,
        K::ListDeliveries | K::GetDelivery | K::Redeliver => route.scope.is_none(),
        _ => false,
    }
}

impl State {
    /// Answers a request as GitHub would if nothing went wrong.
    pub(super) fn answer(&mut self, asked: &Asked<'_>, route: Option<&Route>) -> Answer {
        let now = self.now();
        let caller = match self.credentials.identify(asked.header("authorization"), now) {
            Ok(caller) => caller,
            Err("Integration not found") => return Answer::error(StatusCode::NOT_FOUND, "Integration not found", DOCUMENTATION),
            Err(message) => return Answer::error(StatusCode::UNAUTHORIZED, message, DOCUMENTATION),
        };
        let name = caller.name();
        let budget = self.budgets.budget(&name, now);
        let asks_limit = route.is_some_and(|route| route.kind == RouteKind::RateLimit);
        if budget.remaining() == 0 && !asks_limit {
            let is_429 = self.chance.happens(self.settings.behaviour.limit_is_429);
            let status = if is_429 { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::FORBIDDEN };
            let message = format!("API rate limit exceeded for {name}.");
            return limit_headers(Answer { caller: name, ..Answer::error(status, &message, LIMITS_DOCUMENTATION) }, budget);
        }
        let endpoint = route.map_or("", Route::template);
        let behaviour = &self.settings.behaviour;
        let points = if *asked.method == Method::GET { 1 } else { 5 };
        let creates = *asked.method == Method::POST;
        let purses = [
            (name.clone(), points, self.settings.points_per_minute),
            (format!("{name} at {} {endpoint}", asked.method), points, behaviour.points_per_endpoint),
            (format!("{name} creates"), 1, behaviour.creations.filter(|_| creates)),
        ];
        let purses = purses.into_iter().filter_map(|(purse, amount, limit)| Some((purse, amount, limit?)));
        if let Some(wait) = self.budgets.spend(&purses.collect::<Vec<_>>(), now) {
            let mut answer = Answer::secondary_limit(wait);
            let (is_429, tells_wait) = (behaviour.limit_is_429, behaviour.limit_tells_wait);
            if self.chance.happens(is_429) {
                answer.status = StatusCode::TOO_MANY_REQUESTS;
            }
            if !self.chance.happens(tells_wait) {
                answer.headers.retain(|(name, _)| *name != "retry-after");
            }
            return limit_headers(Answer { caller: name, ..answer }, budget);
        }
        let mut answer = match route {
            None => Answer::not_found(),
            Some(route) => self.perform(asked, route, &caller).unwrap_or_else(Answer::not_found),
        };
        if let Caller::Person(person) = &caller {
            let given: Vec<&str> = person.scopes.iter().map(String::as_str).collect();
            let accepted = route.and_then(need_of).map(|need| need.scopes.join(", ")).unwrap_or_default();
            answer = answer.header("x-oauth-scopes", given.join(", ")).header("x-accepted-oauth-scopes", accepted);
        }
        if *asked.method == Method::GET && answer.status == StatusCode::OK {
            answer = self.conditional(asked, answer);
        }
        if answer.status != StatusCode::NOT_MODIFIED && !asks_limit {
            self.budgets.charge(&name, now);
        }
        let budget = self.budgets.budget(&name, now);
        let id = self.number();
        let answer = answer
            .header("x-github-request-id", format!("{id:04X}:5C8E:{:X}", now.as_second()))
            .header("x-github-media-type", "github.v3; format=json".to_owned());
        limit_headers(Answer { caller: name, ..answer }, budget)
    }

    /// Tags a 200, or turns it into a 304 when the client has it already.
    fn conditional(&mut self, asked: &Asked<'_>, mut answer: Answer) -> Answer {
        use super::Tags;
        let per_token = self.settings.behaviour.tags_per_token;
        let tags = if per_token && self.lies.tags == Tags::OfContent { Tags::PerToken } else { self.lies.tags };
        let mut tag = match tags {
            Tags::OfContent => match answer.headers.iter().position(|(name, _)| *name == "etag") {
                Some(rendered) => answer.headers.remove(rendered).1,
                None => tag_of(&[&answer.body]),
            },
            Tags::PerToken => tag_of(&[&answer.body, asked.header("authorization").unwrap_or_default().as_bytes()]),
            Tags::NeverEqual => tag_of(&[&answer.body, &self.number().to_be_bytes()]),
        };
        answer.headers.retain(|(name, _)| *name != "etag");
        if per_token && self.chance.happens(0.5) {
            tag = tag.trim_start_matches("W/").to_owned();
        }
        let known = asked.header("if-none-match").is_some_and(|tags| {
            tags.split(',').any(|known| known.trim().trim_start_matches("W/") == tag.trim_start_matches("W/"))
        });
        if known {
            answer.status = StatusCode::NOT_MODIFIED;
            answer.body = Bytes::new();
            if per_token {
                answer.headers.retain(|(name, _)| *name != "link");
            }
        }
        answer
            .header("etag", tag)
            .header("cache-control", "private, max-age=60, s-maxage=60".to_owned())
            .header("vary", "Accept, Authorization, Cookie, X-GitHub-OTP,Accept-Encoding, Accept, X-Requested-With".to_owned())
    }

    fn perform(&mut self, asked: &Asked<'_>, route: &Route, caller: &Caller) -> Option<Answer> {
        if route.kind == RouteKind::RateLimit {
            let budget = self.budgets.budget(&caller.name(), self.now());
            return Some(rate_limit(budget));
        }
        if is_for_apps(route) {
            let Caller::App(app) = caller else {
                return Some(Answer::error(StatusCode::UNAUTHORIZED, "A JSON web token could not be decoded", DOCUMENTATION));
            };
            return self.perform_for_app(asked, route, *app);
        }
        let place = self.accounts.find(route.scope.as_ref()?)?;
        let need = need_of(route)?;
        if matches!(caller, Caller::Person(_)) && is_check(route) && route.kind != RouteKind::ListChecks {
            return Some(Answer::error(StatusCode::FORBIDDEN, "You must authenticate via a GitHub App.", DOCUMENTATION));
        }
        match self.credentials.permits(caller, &self.accounts, place, need) {
            Ok(()) => {}
            Err(Refused::Invisible) => return None,
            Err(Refused::Scope) => {
                let message = match route.scope {
                    Some(Scope::Repository { .. }) => "Must have admin rights to Repository.",
                    Some(Scope::Organization(_)) => "Must have admin rights to Organization.",
                    _ => "Must have admin rights to Enterprise.",
                };
                return Some(Answer::error(StatusCode::FORBIDDEN, message, DOCUMENTATION));
            }
            Err(Refused::Permission) => {
                let accepted = need.permission.map(|(name, access)| format!("{name}={}", access.as_str()));
                let answer = Answer::error(StatusCode::FORBIDDEN, "Resource not accessible by integration", DOCUMENTATION);
                return Some(answer.header("x-accepted-github-permissions", accepted.unwrap_or_default()));
            }
        }
        self.perform_at(asked, route, place)
    }

    fn register_just_in_time(&mut self, body: &[u8], place: PlaceId) -> Answer {
        #[derive(serde::Deserialize)]
        struct Wanted {
            name: String,
            runner_group_id: Option<u64>,
            labels: Vec<String>,
        }
        let invalid = |message: &str| Answer::error(StatusCode::UNPROCESSABLE_ENTITY, message, DOCUMENTATION);
        let Ok(wanted) = serde_json::from_slice::<Wanted>(body) else { return invalid("Invalid request.") };
        let Some(group) = wanted.runner_group_id else {
            return invalid("Invalid input: object is missing required key: runner_group_id");
        };
        if !(1..=100).contains(&wanted.labels.len()) {
            return invalid("Invalid request. labels must have 1 to 100 items.");
        }
        match self.enroll_ahead(place, &wanted.name, group, &wanted.labels) {
            Ok((runner, config)) => {
                let runner = self.runners.get(&runner).map(payload::runner);
                Answer::json(StatusCode::CREATED, &json!({"runner": runner, "encoded_jit_config": config}))
            }
            Err(RegistrationRefused::NameTaken(name)) => {
                let message = format!("Already exists - A runner with the name {name} already exists.");
                Answer::error(StatusCode::CONFLICT, &message, DOCUMENTATION)
            }
            Err(_) => Answer::not_found(),
        }
    }

    fn perform_at(&mut self, asked: &Asked<'_>, route: &Route, place: PlaceId) -> Option<Answer> {
        use RouteKind as K;
        match route.kind {
            K::RegistrationToken | K::RemoveToken => {
                let (token, expires_at) = self.issue_runner_token(place, route.kind == K::RemoveToken);
                let expires_at = expires_at.strftime("%Y-%m-%dT%H:%M:%S%.3f+00:00").to_string();
                Some(Answer::json(StatusCode::CREATED, &json!({"token": token, "expires_at": expires_at})))
            }
            K::JitConfig => Some(self.register_just_in_time(asked.body, place)),
            K::ListRunners => {
                let name = asked.query.get("name").filter(|name| !name.is_empty()).map(str::to_lowercase);
                self.list(asked, route, place, Listing::Runners { name })
            }
            K::ListRuns => {
                let state = match asked.query.get("status").filter(|status| !status.is_empty()) {
                    None => None,
                    Some(word) => match JobState::parse(word) {
                        Some(state) => Some(state),
                        // A status that no simulated run ever has.
                        None => return Some(Answer::json(StatusCode::OK, &json!({"total_count": 0, "workflow_runs": []}))),
                    },
                };
                let created = match asked.query.get("created").filter(|created| !created.is_empty()) {
                    None => None,
                    Some(text) => Some(Period::parse(text)?),
                };
                self.list(asked, route, place, Listing::Runs { state, created })
            }
            K::ListRunJobs => {
                let run = RunId(route.id);
                self.jobs.runs.get(&run).filter(|run| run.repository == place)?;
                self.list(asked, route, place, Listing::RunJobs { run })
            }
            K::GetRunner => {
                let runner = self.runners.get(&RunnerId(route.id)).filter(|runner| runner.place == place)?;
                Some(Answer::json(StatusCode::OK, &payload::runner(runner)))
            }
            K::DeleteRunner => self.delete(place, RunnerId(route.id)),
            K::GetRun => {
                let run = self.jobs.runs.get(&RunId(route.id)).filter(|run| run.repository == place)?;
                Some(Answer::raw(StatusCode::OK, Bytes::from(self.render_run(place, run)?)))
            }
            K::GetJob => {
                let job = self.jobs.all.get(&JobId(route.id)).filter(|job| job.repository == place)?;
                let name = self.accounts.get(place)?.scope.to_string();
                Some(Answer::json(StatusCode::OK, &payload::job(&self.origin, &name, job)))
            }
            K::RerunJob => Some(match self.rerun_job(place, JobId(route.id))? {
                Ok(_) => Answer::json(StatusCode::CREATED, &json!({})),
                Err(message) => Answer::error(StatusCode::FORBIDDEN, message, DOCUMENTATION),
            }),
            K::ListChecks => Some(self.list_checks(asked, place)),
            K::CreateCheck => Some(self.create_check(asked.body, place)),
            K::UpdateCheck => self.update_check(asked.body, place, route.id),
            K::CreateStatus => Some(self.create_status(asked)),
            K::ListGroups => self.list_groups(asked, route, place),
            K::ListRepositories => self.list_repositories(asked, route, place),
            K::ListDownloads => Some(Answer::json(StatusCode::OK, &payload::downloads(NEWEST_AGENT))),
            K::ListHooks => self.list_hooks(asked, route, place),
            K::ListDeliveries | K::GetDelivery | K::Redeliver => {
                let hook = HookId(route.id);
                let key = self.accounts.get(place)?.scope.key();
                match &self.hooks.get(hook)?.owner {
                    HookOwner::Scope(scope) if scope.key() == key => {}
                    _ => return None,
                }
                self.deliveries(asked, route, |delivery| delivery.hook == hook)
            }
            K::FindInstallation
            | K::ListInstallations
            | K::GetInstallation
            | K::AccessToken
            | K::GetAppHook
            | K::RateLimit
            | K::RegisterRunner => None,
        }
    }

    fn perform_for_app(&mut self, asked: &Asked<'_>, route: &Route, app: u64) -> Option<Answer> {
        match route.kind {
            RouteKind::FindInstallation => {
                let place = self.accounts.find(route.scope.as_ref()?)?;
                let found = self.credentials.installation_for(app, &self.accounts, place)?;
                Some(Answer::json(StatusCode::OK, &payload::installation(&self.origin, &self.accounts, app, found)))
            }
            RouteKind::ListInstallations => {
                let (all, paging) = (self.credentials.installations(app), Paging::of(&asked.query));
                let render = |found: &&Installation| payload::installation(&self.origin, &self.accounts, app, found);
                let page: Vec<Value> = all.iter().skip(paging.skip()).take(paging.per_page).map(render).collect();
                let answer = Answer::json(StatusCode::OK, &Value::Array(page));
                let url = format!("{}/app/installations", asked.base);
                Some(match paging.links(all.len(), &url, &asked.query) {
                    Some(links) => answer.header("link", links),
                    None => answer,
                })
            }
            RouteKind::GetInstallation => {
                let found = self.credentials.installation(app, route.id)?;
                Some(Answer::json(StatusCode::OK, &payload::installation(&self.origin, &self.accounts, app, found)))
            }
            RouteKind::AccessToken => {
                let found = self.credentials.installation(app, route.id)?;
                if found.suspended {
                    let message = "This installation has been suspended";
                    return Some(Answer::error(StatusCode::FORBIDDEN, message, DOCUMENTATION));
                }
                let (permissions, selection) = (payload::permissions(found), payload::selection(found));
                let expires_at = self.moment(self.settings.installation_token_lifetime);
                let token = format!("ghs_{}", self.secret(36));
                self.credentials.issue(token.clone(), app, route.id, expires_at);
                let body = json!({
                    "token": token,
                    "expires_at": payload::moment(expires_at),
                    "permissions": permissions,
                    "repository_selection": selection,
                });
                Some(Answer::json(StatusCode::CREATED, &body))
            }
            RouteKind::GetAppHook => {
                let hook = self.hooks.find(&HookOwner::App(app)).and_then(|hook| self.hooks.get(hook));
                let config = match hook {
                    Some(hook) => json!({"content_type": "json", "insecure_ssl": "0", "secret": "********", "url": hook.url}),
                    None => json!({"content_type": "json", "insecure_ssl": "0"}),
                };
                Some(Answer::json(StatusCode::OK, &config))
            }
            RouteKind::ListDeliveries | RouteKind::GetDelivery | RouteKind::Redeliver => {
                let owner = HookOwner::App(app);
                let hook = self.hooks.find(&owner)?;
                self.deliveries(asked, route, |delivery| delivery.hook == hook)
            }
            _ => None,
        }
    }

    /// A token for registration or removal; never the same twice.
    pub(super) fn issue_runner_token(&mut self, place: PlaceId, for_removal: bool) -> (String, Timestamp) {
        let token = self.secret(29).to_uppercase();
        let expires_at = self.moment(self.settings.registration_token_lifetime);
        self.runner_tokens.insert(token.clone(), RunnerToken { place, expires_at, for_removal });
        (token, expires_at)
    }

    /// Letters and digits that were not there before.
    pub(super) fn secret(&mut self, length: usize) -> String {
        let number = self.number();
        let digest = ring::digest::digest(&ring::digest::SHA256, format!("{} {number}", self.origin).as_bytes());
        let text = hex::encode(digest);
        text.get(..length).unwrap_or(&text).to_owned()
    }

    fn delete(&mut self, place: PlaceId, id: RunnerId) -> Option<Answer> {
        let name = self.runners.get(&id).map(|runner| runner.name.clone()).unwrap_or_default();
        match self.delete_runner(place, id) {
            Ok(()) => Some(Answer::raw(StatusCode::NO_CONTENT, Bytes::new())),
            Err(DeletionRefused::Unknown) => None,
            Err(DeletionRefused::Busy) => {
                let message = format!("Bad request - Runner \"{name}\" is still running a job\"");
                Some(Answer::error(StatusCode::UNPROCESSABLE_ENTITY, &message, DOCUMENTATION))
            }
        }
    }

    fn list(&mut self, asked: &Asked<'_>, route: &Route, place: PlaceId, listing: Listing) -> Option<Answer> {
        let (paging, at) = (Paging::of(&asked.query), self.accounts.get(place)?);
        let url = listing_url(asked, &at.scope, at.number, route);
        let (key, version) = ((place, listing, paging), at.version);
        let page = match self.pages.get(&key, version) {
            Some(page) => page,
            None => {
                let page = self.render(&key)?;
                self.pages.put(key, version, page.clone());
                page
            }
        };
        let answer = Answer::raw(StatusCode::OK, page.body).header("etag", page.tag);
        Some(match paging.links(page.total, &url, &asked.query) {
            Some(links) => answer.header("link", links),
            None => answer,
        })
    }

    fn render(&self, (place, listing, paging): &(PlaceId, Listing, Paging)) -> Option<Page> {
        let at = self.accounts.get(*place)?;
        let (total, key, items): (usize, &str, Vec<String>) = match listing {
            Listing::Runners { name } => {
                let shown = |runner: &&Runner| !self.lies.omitted.contains(&runner.name);
                let text = |runner: &Runner| payload::runner(runner).to_string();
                let (total, items) = match name {
                    Some(name) => {
                        let found = at.names.get(name).and_then(|id| self.runners.get(id)).filter(shown);
                        (usize::from(found.is_some()), found.into_iter().skip(paging.skip()).map(text).collect())
                    }
                    None if self.lies.omitted.is_empty() => {
                        let page = at.runners.iter().skip(paging.skip()).take(paging.per_page);
                        (at.runners.len(), page.filter_map(|id| self.runners.get(id)).map(text).collect())
                    }
                    None => {
                        let all: Vec<&Runner> = at.runners.iter().filter_map(|id| self.runners.get(id)).filter(shown).collect();
                        let page = all.iter().skip(paging.skip()).take(paging.per_page);
                        (all.len(), page.map(|runner| text(runner)).collect())
                    }
                };
                (total, "runners", items)
            }
            Listing::Runs { state, created } => {
                let runs = self.jobs.runs_of.get(place).and_then(|runs| runs.in_state(*state));
                let in_time = |run: &&Run| created.is_none_or(|created| created.has(run.created_at));
                let all = || runs.into_iter().flatten().rev().filter_map(|id| self.jobs.runs.get(id)).filter(in_time);
                // GitHub's own limit for a filtered listing.
                let most = if state.is_some() || created.is_some() { 1000 } else { usize::MAX };
                let page = all().take(most).skip(paging.skip()).take(paging.per_page);
                let items = page.filter_map(|run| self.render_run(*place, run)).collect();
                let total = if created.is_some() { all().count() } else { runs.map_or(0, std::collections::BTreeSet::len) };
                (total, "workflow_runs", items)
            }
            Listing::RunJobs { run } => {
                let (run, name) = (self.jobs.runs.get(run)?, at.scope.to_string());
                let page = run.jobs.iter().skip(paging.skip()).take(paging.per_page);
                let jobs = page.filter_map(|id| self.jobs.all.get(id));
                let items = jobs.map(|job| payload::job(&self.origin, &name, job).to_string()).collect();
                (run.jobs.len(), "jobs", items)
            }
        };
        let body = Bytes::from(format!("{{\"total_count\":{total},\"{key}\":[{}]}}", items.join(",")));
        Some(Page { total, tag: tag_of(&[&body]), body })
    }

    fn render_run(&self, place: PlaceId, run: &Run) -> Option<String> {
        let at = self.accounts.get(place)?;
        let conclusions = || run.jobs.iter().filter_map(|job| self.jobs.all.get(job)?.conclusion);
        let conclusion = (run.state == JobState::Completed)
            .then(|| conclusions().find(|conclusion| *conclusion != Conclusion::Success).unwrap_or(Conclusion::Success).as_str());
        let object = payload::run(&self.origin, &self.accounts, at, run, conclusion);
        let repository = payload::repository(&self.origin, &self.accounts, at).to_string();
        Some(payload::with_members(&object, &[("repository", &repository), ("head_repository", &repository)]))
    }

    fn list_groups(&self, asked: &Asked<'_>, route: &Route, place: PlaceId) -> Option<Answer> {
        let at = self.accounts.get(place)?;
        let all: Vec<Value> = match &at.scope {
            Scope::Organization(login) => {
                let visible = match asked.query.get("visible_to_repository").filter(|name| !name.is_empty()) {
                    None => None,
                    Some(name) => Some((self.accounts.find(&Scope::repository(login, name))?, name)),
                };
                let own = at.groups.iter().filter(|group| visible.is_none_or(|(_, name)| group.admits(name)));
                let above = at.parent.and_then(|parent| self.accounts.get(parent)).into_iter().flat_map(|it| it.groups.iter());
                let inherited = above.filter(|group| group.admits(login));
                let render = |group: &Group, inherited| payload::organization_group(&self.origin, login, group, inherited);
                own.map(|group| render(group, false)).chain(inherited.map(|group| render(group, true))).collect()
            }
            Scope::Enterprise(slug) => {
                let visible = asked.query.get("visible_to_organization").filter(|login| !login.is_empty());
                let groups = at.groups.iter().filter(|group| visible.is_none_or(|login| group.admits(login)));
                groups.map(|group| payload::enterprise_group(&self.origin, slug, group)).collect()
            }
            Scope::Repository { .. } => return None,
        };
        let paging = Paging::of(&asked.query);
        let page: Vec<&Value> = all.iter().skip(paging.skip()).take(paging.per_page).collect();
        let answer = Answer::json(StatusCode::OK, &json!({"total_count": all.len(), "runner_groups": page}));
        let url = listing_url(asked, &at.scope, at.number, route);
        Some(match paging.links(all.len(), &url, &asked.query) {
            Some(links) => answer.header("link", links),
            None => answer,
        })
    }

    fn list_repositories(&self, asked: &Asked<'_>, route: &Route, place: PlaceId) -> Option<Answer> {
        let (at, paging) = (self.accounts.get(place)?, Paging::of(&asked.query));
        let all: Vec<&Place> = self.accounts.repositories_of(place).collect();
        let page = all.iter().skip(paging.skip()).take(paging.per_page);
        let items = page.map(|repository| payload::repository(&self.origin, &self.accounts, repository)).collect();
        let answer = Answer::json(StatusCode::OK, &Value::Array(items));
        let url = listing_url(asked, &at.scope, at.number, route);
        Some(match paging.links(all.len(), &url, &asked.query) {
            Some(links) => answer.header("link", links),
            None => answer,
        })
    }

    fn list_hooks(&self, asked: &Asked<'_>, route: &Route, place: PlaceId) -> Option<Answer> {
        let at = self.accounts.get(place)?;
        let (all, paging) = (self.hooks.of(&at.scope), Paging::of(&asked.query));
        let page = all.iter().skip(paging.skip()).take(paging.per_page);
        let silence = |id: &HookId| self.hooks.silent.get(id).copied();
        let shown = page.map(|(id, hook)| payload::hook(&self.origin, &at.scope, *id, &hook.url, silence(id)));
        let items: Vec<Value> = shown.collect();
        let answer = Answer::json(StatusCode::OK, &Value::Array(items));
        let url = listing_url(asked, &at.scope, at.number, route);
        Some(match paging.links(all.len(), &url, &asked.query) {
            Some(links) => answer.header("link", links),
            None => answer,
        })
    }

    fn deliveries(&mut self, asked: &Asked<'_>, route: &Route, ours: impl Fn(&Delivery) -> bool) -> Option<Answer> {
        let id = DeliveryId(route.delivery);
        match route.kind {
            RouteKind::ListDeliveries => {
                let paging = Paging::of(&asked.query);
                let before = asked.query.get("cursor").and_then(|cursor| cursor.strip_prefix("v1_")?.parse::<u64>().ok());
                let redelivery = asked.query.get("redelivery").and_then(|flag| flag.parse::<bool>().ok());
                let mut found = self
                    .hooks
                    .tried()
                    .filter(|it| before.is_none_or(|before| it.id.0 < before))
                    .filter(|it| ours(it) && redelivery.is_none_or(|wanted| it.redelivery == wanted));
                let page: Vec<&Delivery> = found.by_ref().take(paging.per_page).collect();
                let more = found.next().is_some();
                let items: Vec<Value> = page.iter().map(|delivery| self.delivery_item(delivery)).collect();
                let answer = Answer::json(StatusCode::OK, &Value::Array(items));
                Some(match page.last().filter(|_| more) {
                    Some(last) => {
                        let url = format!("{}{}", asked.base, asked.path);
                        answer.header("link", cursor_link(&url, &asked.query, &format!("v1_{}", last.id)))
                    }
                    None => answer,
                })
            }
            RouteKind::GetDelivery => {
                let delivery = self.hooks.delivery(id).filter(|delivery| ours(delivery))?;
                let mut item = self.delivery_item(delivery);
                let headers = self.event_headers(delivery).into_iter().map(|(name, value)| (name.to_owned(), json!(value)));
                if let Value::Object(members) = &mut item {
                    let url = self.hooks.get(delivery.hook).map(|hook| hook.url.clone());
                    members.insert("url".to_owned(), json!(url.unwrap_or_default()));
                    let headers: serde_json::Map<String, Value> = headers.collect();
                    members.insert("request".to_owned(), json!({"headers": headers, "payload": self.event_body(delivery)}));
                    members.insert("response".to_owned(), json!({"headers": {}, "payload": ""}));
                }
                Some(Answer::json(StatusCode::OK, &item))
            }
            _ => {
                self.hooks.delivery(id).filter(|delivery| ours(delivery))?;
                self.redeliver(id)?;
                Some(Answer::json(StatusCode::ACCEPTED, &json!({})))
            }
        }
    }

    fn delivery_item(&self, delivery: &Delivery) -> Value {
        let repository = delivery.job.as_ref().and_then(|job| self.accounts.get(job.repository)).map(|place| place.number);
        let status = match delivery.status {
            200..300 => "OK".to_owned(),
            502 => "failed to connect to host".to_owned(),
            other => format!("Invalid HTTP Response: {other}"),
        };
        json!({
            "id": delivery.id.0,
            "guid": delivery.guid,
            "delivered_at": payload::moment(delivery.delivered_at.unwrap_or_default()),
            "redelivery": delivery.redelivery,
            "duration": delivery.duration.as_secs_f64(),
            "status": status,
            "status_code": delivery.status,
            "event": if delivery.job.is_some() { "workflow_job" } else { "ping" },
            "action": delivery.action.map(super::JobAction::as_str),
            "installation_id": delivery.installation,
            "repository_id": repository,
            "throttled_at": null,
        })
    }
}

/// Where `Link` headers point: GitHub writes numbers in place of the names of repositories and organizations.
fn listing_url(asked: &Asked<'_>, scope: &Scope, number: u64, route: &Route) -> String {
    let place = match scope {
        Scope::Repository { .. } => format!("repositories/{number}"),
        Scope::Organization(_) => format!("organizations/{number}"),
        Scope::Enterprise(_) => scope.api_path(),
    };
    let resource = match route.kind {
        RouteKind::ListRunners => "actions/runners".to_owned(),
        RouteKind::ListGroups => "actions/runner-groups".to_owned(),
        RouteKind::ListHooks => "hooks".to_owned(),
        RouteKind::ListRepositories => "repos".to_owned(),
        RouteKind::ListRunJobs => format!("actions/runs/{}/jobs", route.id),
        _ => "actions/runs".to_owned(),
    };
    format!("{}/{place}/{resource}", asked.base)
}

fn rate_limit(budget: Budget) -> Answer {
    let one = json!({
        "limit": budget.limit,
        "used": budget.used,
        "remaining": budget.remaining(),
        "reset": budget.reset.as_second(),
        "resource": "core",
    });
    let fixed = |limit: u32| json!({"limit": limit, "used": 0, "remaining": limit, "reset": budget.reset.as_second()});
    let resources = json!({"core": one, "search": fixed(30), "actions_runner_registration": fixed(10_000)});
    Answer::json(StatusCode::OK, &json!({"resources": resources, "rate": one}))
}

fn limit_headers(answer: Answer, budget: Budget) -> Answer {
    answer
        .header("x-ratelimit-limit", budget.limit.to_string())
        .header("x-ratelimit-remaining", budget.remaining().to_string())
        .header("x-ratelimit-used", budget.used.to_string())
        .header("x-ratelimit-reset", budget.reset.as_second().to_string())
        .header("x-ratelimit-resource", "core".to_owned())
}
