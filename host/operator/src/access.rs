//! GitHub as one object sees it: credentials, scope, and the shared listing of that scope.
//!
//! Tenants share nothing here but the process: each set of credentials has a client, cache and budget of its own, and one whose GitHub is slow
//! takes few of the reconciles that run at once ([`Access::permit`]).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::{Api, Client, ResourceExt};
use pacer_api::{Runner, RunnerConfig};
use pacer_cluster::answer::status;
use pacer_core::name::is_subdomain;
use pacer_core::policy::ApiBudget;
use pacer_core::polling::Pace;
use pacer_core::scope::Scope;
use pacer_github::runner_list::{Changes, Haste, Health, RunnerListHandle, RunnerListView, RunnerLists};
use pacer_github::{AnswerMemory, ClientId, ClientOptions, CredentialParts, Credentials, Endpoints, GitHub, KeyFiles, Secret};
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::error::Error;
use crate::pool::api_budget;
use crate::tenancy::Tenancies;

#[cfg(test)]
pub(crate) mod fixture;

/// How long what was read from a credentials Secret is used before it is read again.
const SECRET_AGE: Duration = Duration::from_secs(30);

/// A client that nobody holds and whose Secret nobody has asked for so long is dropped.
const SECRET_UNUSED: Duration = Duration::from_secs(15 * 60);

/// Changes of listings that wait to be passed on; a full queue makes the listing wait, and no news get lost.
const NEWS: usize = 64;

/// Runners of a scope to look at because of a listing.
#[derive(Clone, Debug)]
pub struct RunnerListNews {
    scope: Scope,
    /// None for all of them.
    names: Option<HashSet<String>>,
}

impl RunnerListNews {
    /// Where they register.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Their names; none for all of them.
    #[must_use]
    pub fn names(&self) -> Option<&HashSet<String>> {
        self.names.as_ref()
    }

    /// Whether a runner of that name and configuration has to be looked at.
    #[must_use]
    pub fn concerns(&self, name: &str, config: &RunnerConfig) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(name)) && config.scope().is_ok_and(|scope| scope == self.scope)
    }
}

/// Why runners can't be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Somebody has to change credentials or rights; otherwise it may end by itself.
    pub refused: bool,
    /// What GitHub said, or did not.
    pub message: String,
}

/// GitHub, for one scope and one set of credentials. Cheap to clone.
#[derive(Clone)]
pub struct Access {
    shared: Arc<Shared>,
    /// Its calls are paid by the namespace.
    github: GitHub,
    key: Arc<str>,
}

/// The listing of a scope, for those who look at how GitHub is.
#[derive(Clone)]
pub struct ScopeListing {
    /// Names the credentials, not their value: see [`credentials_key`].
    pub credentials: Arc<str>,
    /// Client with these credentials.
    pub github: GitHub,
    /// The organization, repository or enterprise whose runners are listed.
    pub scope: Scope,
    /// The last good listing.
    pub view: Option<Arc<RunnerListView>>,
    /// Whether listing fails: failures since the last good listing, and the last error.
    pub health: Health,
}

struct Shared {
    /// Names the credentials of the first object that asked.
    credentials: Arc<str>,
    github: GitHub,
    scope: Scope,
    runner_list: RunnerListHandle,
    /// Names that wait for any newer listing, changed or not.
    waiting: Arc<Mutex<HashSet<String>>>,
    permits: Arc<Permits>,
    _stop: DropGuard,
}

impl Access {
    /// Client with these credentials; the namespace of the object pays for its calls.
    #[must_use]
    pub fn github(&self) -> &GitHub {
        &self.github
    }

    /// The organization, repository or enterprise whose runners are listed.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.shared.scope
    }

    /// GitHub's rate limit for these credentials, as its newest answer told.
    #[must_use]
    pub fn budget(&self) -> Option<ApiBudget> {
        self.shared.github.budget(&self.shared.scope).as_ref().map(api_budget)
    }

    /// Names the credentials, not their value: see [`credentials_key`].
    #[must_use]
    pub fn credentials_key(&self) -> &str {
        &self.key
    }

    /// The newest good listing; none before the first.
    #[must_use]
    pub fn view(&self) -> Option<Arc<RunnerListView>> {
        self.shared.runner_list.latest().borrow().clone()
    }

    /// Why runners can't be listed, if they can't. The text is the same for as long as the reason is.
    #[must_use]
    pub fn outage(&self) -> Option<Outage> {
        outage(&self.shared.runner_list.health().borrow())
    }

    /// The right of one reconcile to wait for GitHub; none when so many do already that the objects of others would have to wait as well.
    #[must_use]
    pub fn permit(&self) -> Option<Permit> {
        Permits::take(&self.shared.permits)
    }

    /// This runner, which has `waited` so long for what a listing may show, is looked at again after the next one. That is asked for soon, and
    /// less so the longer it has waited.
    pub fn await_listing(&self, name: &str, why: Haste, waited: Duration) {
        lock(&self.shared.waiting).insert(name.to_owned());
        self.shared.runner_list.hurry(why, waited, self.github.payer());
    }
}

/// Names the credentials of a runner configuration, not their value: `default`, or namespace and Secret.
#[must_use]
pub fn credentials_key(namespace: &str, config: &RunnerConfig) -> String {
    config.credentials_secret().map_or_else(|| "default".to_owned(), |secret| format!("{namespace}/{secret}"))
}

fn outage(health: &Health) -> Option<Outage> {
    let error = health.error.as_ref()?;
    // One that passes by itself is worth a word once it has not.
    let refused = !error.is_transient();
    (refused || health.failures >= LASTING).then(|| Outage { refused, message: format!("{error:#}") })
}

/// Failed listings in a row after which an outage is more than a moment.
const LASTING: u32 = 2;

/// A wait for GitHub that lasts longer than this makes a tenant a slow one.
const SLOW: Duration = Duration::from_secs(2);

/// Reconciles that wait for GitHub with the same credentials.
#[derive(Debug)]
struct Permits {
    /// How many reconciles may wait at once while GitHub is not slow.
    most: usize,
    waits: Mutex<Waits>,
}

#[derive(Debug, Default)]
struct Waits {
    /// Since when each of them waits for an answer.
    since: Vec<(u64, Instant)>,
    numbers: u64,
    /// The last answer took too long.
    slow: bool,
}

impl Waits {
    /// One at a time while GitHub is slow: enough to notice when it no longer is.
    fn allows(&self, most: usize, now: Instant) -> bool {
        let slow = self.slow || self.since.iter().any(|(_, since)| now.saturating_duration_since(*since) > SLOW);
        self.since.len() < if slow { 1 } else { most }
    }

    fn begin(&mut self, now: Instant) -> u64 {
        self.numbers = self.numbers.wrapping_add(1);
        self.since.push((self.numbers, now));
        self.numbers
    }

    /// An answer came; whoever waits for several goes on.
    fn answered(&mut self, number: u64, now: Instant) {
        if let Some((_, since)) = self.since.iter_mut().find(|(known, _)| *known == number) {
            self.slow = now.saturating_duration_since(*since) > SLOW;
            *since = now;
        }
    }

    fn end(&mut self, number: u64, now: Instant) {
        self.answered(number, now);
        self.since.retain(|(known, _)| *known != number);
    }
}

impl Permits {
    fn take(permits: &Arc<Self>) -> Option<Permit> {
        let now = Instant::now();
        let mut waits = lock(&permits.waits);
        let number = waits.allows(permits.most, now).then(|| waits.begin(now))?;
        Some(Permit { permits: Arc::clone(permits), number })
    }
}

/// See [`Access::permit`].
#[derive(Debug)]
pub struct Permit {
    permits: Arc<Permits>,
    number: u64,
}

impl Permit {
    /// One of several calls was answered.
    pub fn answered(&self) {
        lock(&self.permits.waits).answered(self.number, Instant::now());
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.permits.waits).end(self.number, Instant::now());
    }
}

/// A reconcile that gets no permit is tried again after this.
pub const NEXT_PERMIT: Duration = Duration::from_secs(2);

/// A client made from a Secret.
struct FromSecret {
    github: GitHub,
    /// Namespace that the Secret was read from.
    place: String,
    version: Option<String>,
    /// When the Secret was read last.
    read: tokio::time::Instant,
    /// When somebody was given the client last.
    used: tokio::time::Instant,
}

impl FromSecret {
    /// Whether it has had no use for so long that its connections, its token and its cache may go.
    fn is_unused(&self) -> bool {
        self.used.elapsed() >= SECRET_UNUSED && !self.github.is_shared()
    }
}

/// What is known about one Secret, behind its own lock: one reader at a time, and nobody waits for another Secret.
type SecretSlot = Arc<AsyncMutex<Option<FromSecret>>>;

/// All accesses of the process.
pub struct Accesses {
    client: Client,
    endpoints: Endpoints,
    options: ClientOptions,
    default: Option<GitHub>,
    /// Of clients of servers that namespaces chose.
    memory: Arc<AnswerMemory>,
    tenancies: Arc<Tenancies>,
    /// Of the reconciles of a kind that run at once, so many may wait for the same GitHub.
    most_waiting: usize,
    secrets: AsyncMutex<HashMap<(String, String), SecretSlot>>,
    runner_lists: RunnerLists,
    held: Mutex<HashMap<(ClientId, Scope), Arc<Shared>>>,
    permits: Mutex<HashMap<ClientId, Arc<Permits>>>,
    news: mpsc::Sender<RunnerListNews>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Accesses {
    /// Accesses with these endpoints; `default` serves objects that name no credentials; what `tenancies` refuses is never called;
    /// `concurrency` reconciles of a kind run at once. The receiver gets the news of all listings.
    #[must_use]
    pub fn new(
        client: Client,
        endpoints: Endpoints,
        options: ClientOptions,
        default: Option<GitHub>,
        tenancies: Arc<Tenancies>,
        concurrency: u16,
        stop: CancellationToken,
    ) -> (Self, mpsc::Receiver<RunnerListNews>) {
        let (news, receiver) = mpsc::channel(NEWS);
        let accesses = Self {
            client,
            endpoints,
            options,
            default,
            memory: Arc::default(),
            tenancies,
            most_waiting: usize::from(concurrency.saturating_mul(3) / 4).max(1),
            secrets: AsyncMutex::default(),
            runner_lists: RunnerLists::new(Pace::default(), stop.clone()),
            held: Mutex::default(),
            permits: Mutex::default(),
            news,
            tasks: TaskTracker::new(),
            stop,
        };
        (accesses, receiver)
    }

    /// What namespaces may do.
    #[must_use]
    pub fn tenancies(&self) -> &Arc<Tenancies> {
        &self.tenancies
    }

    /// What answers of servers that namespaces chose hold in memory.
    #[must_use]
    pub fn answer_memory(&self) -> &AnswerMemory {
        &self.memory
    }

    /// Endpoints of those who name none.
    #[must_use]
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// The access of a runner configuration, whether its namespace may still have new runners of it or only has old ones:
    /// [`Tenancies::admits`] tells.
    ///
    /// # Errors
    ///
    /// When it names no scope, or its credentials are missing, unusable, or name a host that its namespace may not use.
    pub async fn get(&self, namespace: &str, config: &RunnerConfig) -> Result<Access, Error> {
        let scope = config.scope()?;
        let github = self.github(namespace, config.credentials_secret()).await?;
        Ok(self.access(namespace, config, scope, github))
    }

    /// The access of a Runner: [`Self::get_to_stop`] once it is deleted, [`Self::get`] before.
    ///
    /// # Errors
    ///
    /// As those two.
    pub async fn of(&self, runner: &Runner) -> Result<Access, Error> {
        let (namespace, config) = (runner.namespace().unwrap_or_default(), &runner.spec.config);
        match runner.metadata.deletion_timestamp {
            Some(_) => self.get_to_stop(&namespace, config).await,
            None => self.get(&namespace, config).await,
        }
    }

    /// As [`Self::get`], for a Runner that is to go: where its credentials are gone or unusable, with the last ones that were there. A namespace loses
    /// its Secrets before its Runners, and whoever deletes both at once means the Runners.
    ///
    /// # Errors
    ///
    /// As [`Self::get`], where no credentials are known either.
    pub async fn get_to_stop(&self, namespace: &str, config: &RunnerConfig) -> Result<Access, Error> {
        let scope = config.scope()?;
        let secret = config.credentials_secret();
        let github = match self.github(namespace, secret).await {
            Err(error @ Error::Credentials(_)) => self.last_good(namespace, secret).await.ok_or(error)?,
            outcome => outcome?,
        };
        Ok(self.access(namespace, config, scope, github))
    }

    /// The client that a Secret made when it was last read, where the namespace may still use it.
    async fn last_good(&self, namespace: &str, secret: Option<&str>) -> Option<GitHub> {
        let slot = self.secrets.lock().await.get(&(namespace.to_owned(), secret?.to_owned()))?.clone();
        let place = self.tenancies.credentials_namespace(namespace).ok()?;
        let mut known = slot.lock().await;
        let known = known.as_mut().filter(|known| self.is_admitted(namespace, &place, known))?;
        known.used = tokio::time::Instant::now();
        Some(known.github.paid_by(Some(self.tenancies.payer(namespace))))
    }

    /// Whether a namespace may use what its Secret made. A right may have been taken away since.
    fn is_admitted(&self, namespace: &str, place: &str, known: &FromSecret) -> bool {
        known.place == place && self.tenancies.admits_hosts(namespace, known.github.endpoints(), &self.endpoints).is_ok()
    }

    fn access(&self, namespace: &str, config: &RunnerConfig, scope: Scope, github: GitHub) -> Access {
        let key: Arc<str> = Arc::from(credentials_key(namespace, config));
        let id = (github.id().clone(), scope.clone());
        let mut held = lock(&self.held);
        let shared = held.entry(id).or_insert_with(|| self.open(key.clone(), github.clone(), scope)).clone();
        if let Some(payer) = github.payer() {
            shared.runner_list.share(payer);
        }
        Access { shared, github, key }
    }

    /// The scopes that are listed, with whichever credentials.
    #[must_use]
    pub fn scopes(&self) -> HashSet<Scope> {
        lock(&self.held).keys().map(|(_, scope)| scope.clone()).collect()
    }

    /// The access of a configuration whose scope is listed already: no listing begins. None where it is not listed with these credentials.
    ///
    /// # Errors
    ///
    /// As [`Self::get`].
    pub async fn listed(&self, namespace: &str, config: &RunnerConfig) -> Result<Option<Access>, Error> {
        let scope = config.scope()?;
        let github = self.github(namespace, config.credentials_secret()).await?;
        let shared = lock(&self.held).get(&(github.id().clone(), scope)).cloned();
        Ok(shared.map(|shared| Access { shared, github, key: Arc::from(credentials_key(namespace, config)) }))
    }

    /// [`Access::permit`], for calls about several scopes.
    #[must_use]
    pub fn permit(&self, github: &GitHub) -> Option<Permit> {
        Permits::take(&self.permits_of(github))
    }

    fn permits_of(&self, github: &GitHub) -> Arc<Permits> {
        let new = || Arc::new(Permits { most: self.most_waiting, waits: Mutex::default() });
        lock(&self.permits).entry(github.id().clone()).or_insert_with(new).clone()
    }

    /// The client of a credentials Secret, or the operator's own; the namespace pays for its calls.
    ///
    /// # Errors
    ///
    /// When the credentials are missing or unusable.
    pub async fn github(&self, namespace: &str, secret: Option<&str>) -> Result<GitHub, Error> {
        let github = match secret {
            Some(secret) => self.read_secret(namespace, secret).await?,
            None => self.default()?,
        };
        Ok(github.paid_by(Some(self.tenancies.payer(namespace))))
    }

    fn default(&self) -> Result<GitHub, Error> {
        self.default.clone().ok_or_else(|| {
            Error::Credentials(
                "no GitHub credentials: the operator was started without any and githubAPICredentialsFrom is not set; give the operator \
                 GITHUB_TOKEN, GITHUB_APP_ID with GITHUB_APP_PRIVATE_KEY, or GITHUB_BASICAUTH_USERNAME and _PASSWORD, or name a Secret in \
                 githubAPICredentialsFrom.secretRef"
                    .to_owned(),
            )
        })
    }

    async fn read_secret(&self, namespace: &str, name: &str) -> Result<GitHub, Error> {
        let place = self.tenancies.credentials_namespace(namespace)?;
        if !is_subdomain(name) {
            return Err(Error::Credentials(format!(
                "{name:?}, in githubAPICredentialsFrom.secretRef, is no name of a Secret: name one of namespace {place}"
            )));
        }
        let entry = self.secrets.lock().await.entry((namespace.to_owned(), name.to_owned())).or_default().clone();
        let mut known = entry.lock().await;
        // A client that nobody uses any more goes with its connections.
        known.take_if(|known| !self.is_admitted(namespace, &place, known));
        if let Some(known) = known.as_mut().filter(|known| known.read.elapsed() < SECRET_AGE) {
            known.used = tokio::time::Instant::now();
            return Ok(known.github.clone());
        }
        let secrets: Api<KubeSecret> = Api::namespaced(self.client.clone(), &place);
        let secret = secrets.get_opt(name).await.map_err(|error| match status(&error) {
            Some(answer) if answer.is_forbidden() => Error::Credentials(format!(
                "Secret {place}/{name}, named in githubAPICredentialsFrom.secretRef, can't be read: bind the operator's role with the right \
                 to get secrets in namespace {place} ({})",
                answer.message
            )),
            _ => error.into(),
        })?;
        let secret = secret.ok_or_else(|| {
            let why = if place == namespace {
                String::new()
            } else {
                format!(" (the tenancy file has the credentials of {namespace} lie in {place})")
            };
            Error::Credentials(format!(
                "Secret {place}/{name}, named in githubAPICredentialsFrom.secretRef, does not exist{why}; create it with github_token, or \
                 with github_app_id, github_app_installation_id and github_app_private_key"
            ))
        })?;
        let version = secret.metadata.resource_version.clone();
        if let Some(known) = known.as_mut().filter(|known| known.version == version) {
            let now = tokio::time::Instant::now();
            (known.read, known.used) = (now, now);
            return Ok(known.github.clone());
        }
        let unusable = |why| Error::Credentials(format!("Secret {place}/{name}: {why}"));
        let endpoints = endpoints_of(&secret, &self.endpoints).map_err(unusable)?;
        self.tenancies.admits_hosts(namespace, &endpoints, &self.endpoints)?;
        let github = build(&secret, endpoints, &self.endpoints, &self.options, &self.memory).map_err(unusable)?;
        let now = tokio::time::Instant::now();
        *known = Some(FromSecret { github: github.clone(), place, version, read: now, used: now });
        Ok(github)
    }

    fn open(&self, credentials: Arc<str>, github: GitHub, scope: Scope) -> Arc<Shared> {
        let runner_list = self.runner_lists.subscribe(&github, &scope);
        let waiting = Arc::<Mutex<HashSet<String>>>::default();
        let stop = self.stop.child_token();
        let (news, asking, mut changes, mut views) =
            (self.news.clone(), waiting.clone(), runner_list.changes(), runner_list.latest());
        let (mut health, of) = (runner_list.health(), scope.clone());
        let relay = async move {
            let mut said = None;
            loop {
                let names = tokio::select! {
                    changes = changes.next() => match changes {
                        Some(Changes::All) => None,
                        Some(Changes::Named(names)) => Some(names.iter().map(|name| name.to_string()).collect()),
                        None => return,
                    },
                    listed = views.changed() => match listed {
                        Ok(()) => Some(std::mem::take(&mut *lock(&asking))),
                        Err(_) => return,
                    },
                    checked = health.changed() => match checked {
                        // The beginning and the end of an outage are news to all.
                        Ok(()) => {
                            let now = outage(&health.borrow_and_update());
                            if now == said {
                                continue;
                            }
                            said = now;
                            None
                        }
                        Err(_) => return,
                    },
                };
                if names.as_ref().is_some_and(HashSet::is_empty) {
                    continue;
                }
                if news.send(RunnerListNews { scope: of.clone(), names }).await.is_err() {
                    return;
                }
            }
        };
        let guard = stop.clone().drop_guard();
        self.tasks.spawn(async move {
            stop.run_until_cancelled(relay).await;
        });
        let permits = self.permits_of(&github);
        Arc::new(Shared { credentials, github, scope, runner_list, waiting, permits, _stop: guard })
    }

    /// How GitHub is listed now, by credentials and scope.
    #[must_use]
    pub fn listings(&self) -> Vec<ScopeListing> {
        let of = |shared: &Arc<Shared>| ScopeListing {
            credentials: shared.credentials.clone(),
            github: shared.github.clone(),
            scope: shared.scope.clone(),
            view: shared.runner_list.latest().borrow().clone(),
            health: shared.runner_list.health().borrow().clone(),
        };
        lock(&self.held).values().map(of).collect()
    }

    /// Drops the clients that nobody holds and whose Secrets nobody has asked for lately, with their connections and caches.
    pub async fn forget_unused(&self) {
        let mut secrets = self.secrets.lock().await;
        secrets.retain(|_, slot| match slot.try_lock() {
            Ok(known) => known.as_ref().is_some_and(|known| !known.is_unused()),
            Err(_) => true,
        });
    }

    /// Drops the listings that none of these uses.
    pub fn retain(&self, used: &[Access]) {
        let mut by_listing: HashMap<*const Shared, (&Shared, Vec<&str>)> = HashMap::new();
        for access in used {
            let (_, payers) = by_listing.entry(Arc::as_ptr(&access.shared)).or_insert_with(|| (&access.shared, Vec::new()));
            payers.extend(access.github.payer().map(|payer| payer.name()));
        }
        lock(&self.held).retain(|_, shared| by_listing.contains_key(&Arc::as_ptr(shared)));
        for (shared, payers) in by_listing.values() {
            shared.runner_list.keep_payers(payers);
        }
        lock(&self.permits).retain(|_, permits| Arc::strong_count(permits) > 1);
    }

    /// Waits for all listings to end, which they do after the stop token is cancelled.
    pub async fn join(&self) {
        lock(&self.held).clear();
        self.tasks.close();
        self.tasks.wait().await;
        self.runner_lists.join().await;
    }
}

/// A client with the credentials in a Secret that `githubAPICredentialsFrom` names, at the GitHub that the Secret names or else at the operator's
/// own. Whether its namespace may use another one is the tenancy's to say.
///
/// # Errors
///
/// When the Secret makes no credentials; the text has no secret in it.
pub fn client_of_secret(secret: &KubeSecret, own: &Endpoints, options: &ClientOptions) -> Result<GitHub, String> {
    build(secret, endpoints_of(secret, own)?, own, options, &Arc::default())
}

fn build(
    secret: &KubeSecret,
    endpoints: Endpoints,
    own: &Endpoints,
    options: &ClientOptions,
    memory: &Arc<AnswerMemory>,
) -> Result<GitHub, String> {
    let text = |key| text(secret, key);
    let parts = CredentialParts {
        token: text("github_token").map(Secret::new),
        app_id: text("github_app_id"),
        app_installation_id: text("github_app_installation_id"),
        app_private_key: text("github_app_private_key").map(Secret::new),
        ..CredentialParts::default()
    };
    let credentials = Credentials::from_parts(parts, KeyFiles::Refused).map_err(|error| error.to_string())?;
    if endpoints == *own {
        return GitHub::new(credentials, endpoints, options).map_err(|error| error.to_string());
    }
    if endpoints.api().starts_with("http:") {
        tracing::warn!(
            namespace = secret.metadata.namespace,
            secret = secret.metadata.name,
            api = endpoints.api(),
            "credentials are sent without encryption: name the server by https"
        );
    }
    GitHub::new(credentials, endpoints, &options.for_foreign(memory.clone())).map_err(|error| error.to_string())
}

fn endpoints_of(secret: &KubeSecret, own: &Endpoints) -> Result<Endpoints, String> {
    let names = ["github_url", "github_enterprise_url", "github_upload_url", "github_runner_url"];
    let urls = names.map(|name| text(secret, name));
    if urls.iter().all(Option::is_none) {
        return Ok(own.clone());
    }
    let [url, enterprise, upload, runner] = &urls;
    Endpoints::resolve(url.as_deref(), enterprise.as_deref(), upload.as_deref(), runner.as_deref())
        .map_err(|error| error.to_string())
}

fn text(secret: &KubeSecret, key: &str) -> Option<String> {
    let bytes = &secret.data.as_ref()?.get(key)?.0;
    String::from_utf8(bytes.clone()).ok().map(|text| text.trim().to_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    fn config(repository: &str) -> RunnerConfig {
        RunnerConfig { repository: Some(repository.to_owned()), ..RunnerConfig::default() }
    }

    #[tokio::test]
    async fn listing_of_a_pool_without_runners_stays_and_none_begins_for_its_sake() {
        let silent = tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, kube::Error>>());
        let accesses = fixture::accesses(Client::new(silent, "ci"), fixture::github(&Arc::default()));
        drop(accesses.get("ci", &config("acme/app")).await.unwrap());
        let listed = accesses.listed("ci", &config("acme/app")).await.unwrap();
        let other = accesses.listed("ci", &config("acme/other")).await.unwrap();
        assert!(listed.is_some() && other.is_none());
        accesses.retain(&listed.into_iter().collect::<Vec<_>>());
        assert_eq!(accesses.listings().len(), 1);
        accesses.retain(&[]);
        assert!(accesses.listings().is_empty() && accesses.listed("ci", &config("acme/app")).await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_are_forgotten_when_they_have_not_been_used_for_long() {
        let exists = Arc::new(AtomicBool::new(true));
        let asked = exists.clone();
        let service = tower::service_fn(move |_: Request<Body>| {
            let (code, answer) = match asked.load(Ordering::Relaxed) {
                true => {
                    let meta = json!({"name": "own", "namespace": "ci", "resourceVersion": "1"});
                    (
                        StatusCode::OK,
                        json!({"kind": "Secret", "apiVersion": "v1", "metadata": meta, "data": {"github_token": "eA=="}}),
                    )
                }
                false => {
                    let status =
                        json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "no"});
                    (StatusCode::NOT_FOUND, status)
                }
            };
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap();
            async move { Ok::<_, kube::Error>(answer) }
        });
        let accesses = fixture::accesses(Client::new(service, "ci"), fixture::github(&Arc::default()));
        let ten_minutes = || tokio::time::advance(Duration::from_secs(600));
        let held = accesses.github("ci", Some("own")).await.unwrap();
        for _ in 0..3 {
            ten_minutes().await;
            accesses.forget_unused().await;
        }
        assert!(accesses.last_good("ci", Some("own")).await.is_some(), "somebody holds the client");
        drop(held);
        exists.store(false, Ordering::Relaxed);
        for round in 0..3 {
            ten_minutes().await;
            accesses.forget_unused().await;
            assert!(accesses.github("ci", Some("own")).await.is_err(), "the Secret is gone");
            assert!(accesses.last_good("ci", Some("own")).await.is_some(), "round {round}: it is asked for every ten minutes");
        }
        for _ in 0..2 {
            ten_minutes().await;
            accesses.forget_unused().await;
        }
        assert!(accesses.last_good("ci", Some("own")).await.is_none(), "nobody has asked for it lately");
    }

    #[test]
    fn a_slow_github_gets_one_reconcile_at_a_time() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut waits = Waits::default();
        let numbers: Vec<u64> = (0..11).map(|_| waits.begin(at(0))).collect();
        assert!(waits.allows(12, at(1)));
        let last = waits.begin(at(1));
        assert!(!waits.allows(12, at(1)), "as many as may");
        for number in &numbers[1..] {
            waits.end(*number, at(1));
        }
        assert!(waits.allows(12, at(2)), "answered in time");
        assert!(!waits.allows(12, at(3)), "the first has been waiting for long");
        waits.answered(numbers[0], at(3));
        assert!(waits.slow && !waits.allows(12, at(3)), "its answer took too long");
        waits.end(numbers[0], at(4));
        assert!(!waits.slow && waits.allows(12, at(2)), "the next one came soon");
        waits.end(last, at(9));
        assert!(waits.slow && waits.allows(12, at(9)), "one may see whether it still is");
        waits.begin(at(9));
        assert!(!waits.allows(12, at(9)));
    }

    #[test]
    fn permit_ends_with_its_holder() {
        let permits = Arc::new(Permits { most: 2, waits: Mutex::default() });
        let (first, second) = (Permits::take(&permits).unwrap(), Permits::take(&permits).unwrap());
        assert!(Permits::take(&permits).is_none());
        drop(first);
        let third = Permits::take(&permits).unwrap();
        drop((second, third));
        assert!(lock(&permits.waits).since.is_empty() && !lock(&permits.waits).slow);
    }

    #[test]
    fn news_concern_the_runners_of_their_scope() {
        let scope = config("acme/app").scope().unwrap();
        let all = RunnerListNews { scope: scope.clone(), names: None };
        let named = RunnerListNews { scope, names: Some(HashSet::from(["a".to_owned()])) };
        assert!(all.concerns("b", &config("acme/app")) && !all.concerns("b", &config("acme/other")));
        assert!(named.concerns("a", &config("acme/app")) && !named.concerns("b", &config("acme/app")));
        assert!(!named.concerns("a", &config("acme/other")) && !named.concerns("a", &RunnerConfig::default()));
    }
}
