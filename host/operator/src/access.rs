//! GitHub as one object sees it: credentials, scope, and the shared listing of that scope.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::{Api, Client};
use pacer_api::RunnerConfig;
use pacer_core::scope::Scope;
use pacer_github::pace::Pace;
use pacer_github::roster::{Changes, Haste, RosterHandle, RosterView, Rosters};
use pacer_github::{ClientOptions, CredentialParts, Credentials, Endpoints, GitHub, KeyFiles, Secret};
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::error::Error;

/// How long what was read from a credentials Secret is used before it is read again.
const SECRET_AGE: Duration = Duration::from_secs(30);

/// Changes of listings that wait to be passed on; a full queue makes the listing wait, and no news get lost.
const NEWS: usize = 64;

/// Names of runners to look at because of a listing; none for all.
#[derive(Clone, Debug)]
pub struct RosterNews(Option<HashSet<String>>);

impl RosterNews {
    /// Whether a runner of that name has to be looked at.
    #[must_use]
    pub fn concerns(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|names| names.contains(name))
    }
}

/// GitHub, for one scope and one set of credentials. Cheap to clone.
#[derive(Clone)]
pub struct Access(Arc<Shared>);

struct Shared {
    github: GitHub,
    scope: Scope,
    key: String,
    roster: RosterHandle,
    /// Names that wait for any newer listing, changed or not.
    waiting: Arc<Mutex<HashSet<String>>>,
    _stop: DropGuard,
}

impl Access {
    /// The client.
    #[must_use]
    pub fn github(&self) -> &GitHub {
        &self.0.github
    }

    /// The scope.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.0.scope
    }

    /// Names the credentials, not their value: `default`, or namespace and Secret.
    #[must_use]
    pub fn credentials_key(&self) -> &str {
        &self.0.key
    }

    /// The newest listing.
    #[must_use]
    pub fn view(&self) -> Option<Arc<RosterView>> {
        self.0.roster.latest().borrow().clone()
    }

    /// This runner is looked at again after the next listing, which is asked for soon.
    pub fn await_listing(&self, name: &str, why: Haste) {
        lock(&self.0.waiting).insert(name.to_owned());
        self.0.roster.hurry(why);
    }
}

/// A client made from a Secret.
struct FromSecret {
    github: GitHub,
    version: Option<String>,
    read: Instant,
}

/// What is known about one Secret, behind its own lock: one reader at a time, and nobody waits for another Secret.
type SecretSlot = Arc<AsyncMutex<Option<FromSecret>>>;

/// All accesses of the process.
pub struct Accesses {
    client: Client,
    endpoints: Endpoints,
    options: ClientOptions,
    default: Option<GitHub>,
    secrets: AsyncMutex<HashMap<(String, String), SecretSlot>>,
    rosters: Rosters,
    held: Mutex<HashMap<(pacer_github::ClientId, Scope), Access>>,
    news: mpsc::Sender<RosterNews>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Accesses {
    /// Accesses with these endpoints; `default` serves objects that name no credentials. The receiver gets the news of all listings.
    #[must_use]
    pub fn new(
        client: Client,
        endpoints: Endpoints,
        options: ClientOptions,
        default: Option<GitHub>,
        stop: CancellationToken,
    ) -> (Self, mpsc::Receiver<RosterNews>) {
        let (news, receiver) = mpsc::channel(NEWS);
        let accesses = Self {
            client,
            endpoints,
            options,
            default,
            secrets: AsyncMutex::default(),
            rosters: Rosters::new(Pace::default(), stop.clone()),
            held: Mutex::default(),
            news,
            tasks: TaskTracker::new(),
            stop,
        };
        (accesses, receiver)
    }

    /// The access of a runner configuration.
    ///
    /// # Errors
    ///
    /// When it names no scope, or its credentials are missing or unusable.
    pub async fn get(&self, namespace: &str, config: &RunnerConfig) -> Result<Access, Error> {
        let scope = config.scope()?;
        let github = self.github(namespace, config.credentials_secret()).await?;
        let key = config.credentials_secret().map_or_else(|| "default".to_owned(), |secret| format!("{namespace}/{secret}"));
        let id = (github.id().clone(), scope.clone());
        let mut held = lock(&self.held);
        if let Some(access) = held.get(&id) {
            return Ok(access.clone());
        }
        let access = self.open(github, scope, key);
        held.insert(id, access.clone());
        Ok(access)
    }

    /// The client of a credentials Secret, or the operator's own.
    ///
    /// # Errors
    ///
    /// When the credentials are missing or unusable.
    pub async fn github(&self, namespace: &str, secret: Option<&str>) -> Result<GitHub, Error> {
        match secret {
            Some(secret) => self.read_secret(namespace, secret).await,
            None => self.default(),
        }
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
        let entry = self.secrets.lock().await.entry((namespace.to_owned(), name.to_owned())).or_default().clone();
        let mut known = entry.lock().await;
        if let Some(known) = known.as_ref().filter(|known| known.read.elapsed() < SECRET_AGE) {
            return Ok(known.github.clone());
        }
        let secrets: Api<KubeSecret> = Api::namespaced(self.client.clone(), namespace);
        let secret = secrets.get_opt(name).await?.ok_or_else(|| {
            Error::Credentials(format!(
                "Secret {namespace}/{name}, named in githubAPICredentialsFrom.secretRef, does not exist; create it with github_token, or \
                 with github_app_id, github_app_installation_id and github_app_private_key"
            ))
        })?;
        let version = secret.metadata.resource_version.clone();
        if let Some(known) = known.as_mut().filter(|known| known.version == version) {
            known.read = Instant::now();
            return Ok(known.github.clone());
        }
        let github = self.build(&secret).map_err(|why| Error::Credentials(format!("Secret {namespace}/{name}: {why}")))?;
        *known = Some(FromSecret { github: github.clone(), version, read: Instant::now() });
        Ok(github)
    }

    fn build(&self, secret: &KubeSecret) -> Result<GitHub, String> {
        let text = |key: &str| {
            let bytes = &secret.data.as_ref()?.get(key)?.0;
            String::from_utf8(bytes.clone()).ok().map(|text| text.trim().to_owned())
        };
        let parts = CredentialParts {
            token: text("github_token").map(Secret::new),
            app_id: text("github_app_id"),
            app_installation_id: text("github_app_installation_id"),
            app_private_key: text("github_app_private_key").map(Secret::new),
            ..CredentialParts::default()
        };
        let credentials = Credentials::from_parts(parts, KeyFiles::Refused).map_err(|error| error.to_string())?;
        let urls = [text("github_url"), text("github_enterprise_url"), text("github_upload_url"), text("github_runner_url")];
        let endpoints = if urls.iter().all(Option::is_none) {
            self.endpoints.clone()
        } else {
            let [url, enterprise, upload, runner] = &urls;
            Endpoints::resolve(url.as_deref(), enterprise.as_deref(), upload.as_deref(), runner.as_deref())
                .map_err(|error| error.to_string())?
        };
        GitHub::new(credentials, endpoints, &self.options).map_err(|error| error.to_string())
    }

    fn open(&self, github: GitHub, scope: Scope, key: String) -> Access {
        let roster = self.rosters.subscribe(&github, &scope);
        let waiting = Arc::<Mutex<HashSet<String>>>::default();
        let stop = self.stop.child_token();
        let (news, asking, mut changes, mut views) = (self.news.clone(), waiting.clone(), roster.changes(), roster.latest());
        let relay = async move {
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
                };
                if names.as_ref().is_some_and(HashSet::is_empty) {
                    continue;
                }
                if news.send(RosterNews(names)).await.is_err() {
                    return;
                }
            }
        };
        let guard = stop.clone().drop_guard();
        self.tasks.spawn(async move {
            stop.run_until_cancelled(relay).await;
        });
        Access(Arc::new(Shared { github, scope, key, roster, waiting, _stop: guard }))
    }

    /// Lets go of the listings that none of these uses.
    pub fn retain(&self, used: &[Access]) {
        lock(&self.held).retain(|_, access| used.iter().any(|used| Arc::ptr_eq(&used.0, &access.0)));
    }

    /// Waits for all listings to end, which they do after the stop token is cancelled.
    pub async fn join(&self) {
        lock(&self.held).clear();
        self.tasks.close();
        self.tasks.wait().await;
        self.rosters.join().await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
