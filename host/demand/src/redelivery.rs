//! Redelivery: webhooks that no receiver took are asked for again.
//!
//! ```text
//! autoscalers with a trigger -> credentials -> webhooks with our URL -> their deliveries --Backlog--> which to ask for -> GitHub delivers again
//! ```
//!
//! GitHub itself does not try twice. What was missed while no receiver was there is found in the list of deliveries and asked for, as far as the
//! credentials may read it; polling finds the rest. The leader alone does this, at its own pace, and leaves GitHub's limits to others: the
//! deliveries are listed once per period, one event is asked for per second at most, and nothing at all while little is left of the budget.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use pacer_cluster::fence::Fence;
use pacer_core::redelivery::{Attempt, Backlog, Due, Limits, Outcome, Worth, same_address};
use pacer_core::scope::Scope;
use pacer_github::{ClientId, CredentialKind, Error, ErrorKind, GitHub, HookOwner, RemoteDelivery, Repository, Webhook};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// How long a list of webhooks is used, unless it lacks ours.
const HOOKS_AGE: Duration = Duration::from_secs(600);

/// How long credentials that may not read webhooks are not asked again.
const DENIED_AGE: Duration = Duration::from_secs(3_600);

/// Pages of a hundred deliveries that are read at a time.
const PAGES: usize = 30;

/// Events that are asked for at most in one go, one per second of the period: GitHub takes some 80 requests a minute that change something.
const BATCH: u64 = 60;

/// Nothing is done while less than one in so many calls is left.
const SPARE: u32 = 4;

/// Which missed webhooks are asked for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// URLs that our webhooks send to (`--webhook-url`); without any, nothing is asked for again.
    pub urls: Vec<String>,
    /// How often deliveries are listed (`--redelivery-period`).
    pub period: Duration,
    /// How old an event may be (`--redelivery-age`).
    pub age: Duration,
    /// How often one event is asked for (`--redelivery-attempts`).
    pub attempts: u32,
}

impl Settings {
    fn limits(&self) -> Limits {
        Limits {
            age: SignedDuration::try_from(self.age).unwrap_or(SignedDuration::MAX),
            attempts: self.attempts,
            batch: usize::try_from(self.period.as_secs().clamp(1, BATCH)).unwrap_or(1),
        }
    }

    fn is_ours(&self, url: &str) -> bool {
        self.urls.iter().any(|ours| same_address(ours, url))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

/// All that may become of a failed delivery.
const OUTCOMES: [&str; 4] = ["delivered", "given_up", "asked", "refused"];

/// Failed deliveries by what became of them, since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Times that GitHub was asked to deliver one again.
    pub asked: u64,
    /// Missed events that a receiver took after GitHub had been asked to deliver them again.
    pub delivered: u64,
    /// GitHub does not deliver them again.
    pub refused: u64,
    /// They failed as often as they may, or are too old.
    pub given_up: u64,
}

/// The figures; clones share them.
#[derive(Clone, Debug)]
pub struct RedeliveryMetrics {
    events: Family<Labels, Counter>,
    waiting: Gauge,
}

impl RedeliveryMetrics {
    /// Registers the series of missed deliveries.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self { events: Family::default(), waiting: Gauge::default() };
        let help = "Failed webhook deliveries: asked for again, delivered then, refused by GitHub, given up";
        registry.register("pacer_webhook_redeliveries", help, metrics.events.clone());
        // There from the start, so that an alert finds the series before the first failure.
        for outcome in OUTCOMES {
            drop(metrics.events.get_or_create(&Labels { outcome }));
        }
        let help = "Failed webhook deliveries that are still to be delivered again";
        registry.register("pacer_webhook_deliveries_missing", help, metrics.waiting.clone());
        metrics
    }

    /// Failed deliveries that are still to be delivered again.
    #[must_use]
    pub fn missing(&self) -> u64 {
        u64::try_from(self.waiting.get()).unwrap_or_default()
    }

    /// What became of failed deliveries.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let of = |outcome| self.events.get_or_create(&Labels { outcome }).get();
        Totals { asked: of("asked"), delivered: of("delivered"), refused: of("refused"), given_up: of("given_up") }
    }

    fn count(&self, outcome: &'static str, number: u32) {
        if number > 0 {
            self.events.get_or_create(&Labels { outcome }).inc_by(u64::from(number));
        }
    }
}

/// Where webhooks may be, and who may look at them.
struct Source {
    github: GitHub,
    place: Place,
    /// The runners are there, so that the credentials are expected to see it; an owner of a repository may be a person.
    expected: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// The App of the credentials.
    App,
    /// A repository or organization.
    Owner(HookOwner),
}

/// One webhook, whoever reads it: the instance, and for an App's own webhook the credentials, since that has no id.
type Key = (String, Option<ClientId>, Webhook);

/// Where autoscalers with a trigger expect jobs from: the scope of their runners, and its credentials.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Client with the credentials of these runners.
    pub github: GitHub,
    /// Where the runners of the autoscalers register.
    pub scope: Scope,
}

/// The search for missed events.
pub struct Redelivery {
    settings: Settings,
    fence: Fence,
    metrics: RedeliveryMetrics,
    /// Our webhooks per place, and until when that is believed.
    hooks: HashMap<(ClientId, Place), (Vec<Webhook>, Instant)>,
    backlogs: HashMap<Key, Backlog>,
    /// No webhook has our URL, and that was logged.
    missing_logged: bool,
}

impl Redelivery {
    /// A search that asks GitHub for nothing while the fence does not hold.
    #[must_use]
    pub fn new(settings: Settings, fence: Fence, metrics: RedeliveryMetrics) -> Self {
        let (hooks, backlogs) = (HashMap::new(), HashMap::new());
        Self { settings, fence, metrics, hooks, backlogs, missing_logged: false }
    }

    /// Searches for as long as it is polled, in the webhooks of what `origins` lists; never, without a URL.
    pub async fn run<F, Fut>(mut self, origins: F)
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Vec<Origin>>,
    {
        if self.settings.urls.is_empty() {
            return std::future::pending().await;
        }
        loop {
            self.search(sources(origins().await)).await;
            tokio::time::sleep(self.settings.period.max(Duration::from_secs(1))).await;
        }
    }

    async fn search(&mut self, sources: Vec<Source>) {
        let known: HashSet<_> = sources.iter().map(|source| (source.github.id().clone(), source.place.clone())).collect();
        self.hooks.retain(|place, _| known.contains(place));
        let (mut ours, mut all_known) = (HashSet::new(), true);
        for source in &sources {
            let webhooks = self.webhooks(source).await;
            all_known &= webhooks.is_some();
            for webhook in webhooks.unwrap_or_default() {
                let of_app = (webhook == Webhook::App).then(|| source.github.id().clone());
                let key = (source.github.endpoints().api().to_owned(), of_app, webhook.clone());
                if ours.insert(key.clone()) && has_spare(&source.github, &source.place) {
                    let mut backlog = self.backlogs.remove(&key).unwrap_or_default();
                    match self.replay(&source.github, &webhook, &mut backlog).await {
                        // The others have their turn in the next search.
                        Err(error) if error.deferral().is_some() => {
                            tracing::debug!(webhook = %Shown(&webhook), %error, "missed webhooks not asked for yet");
                        }
                        Err(error) => {
                            tracing::warn!(webhook = %Shown(&webhook), %error, "missed webhooks not asked for; tried again");
                        }
                        Ok(()) => {}
                    }
                    self.backlogs.insert(key, backlog);
                }
            }
        }
        self.backlogs.retain(|key, _| ours.contains(key));
        let limits = self.settings.limits();
        let waiting: usize = self.backlogs.values().map(|backlog| backlog.waiting(&limits)).sum();
        self.metrics.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        if all_known && self.is_newly_missing(!sources.is_empty(), !ours.is_empty()) {
            tracing::warn!(
                webhook_url = self.settings.urls.join(","),
                "no webhook that can be seen sends workflow_job events to --webhook-url: none that are missed can be asked for again; compare \
                 the flag with the webhook's settings"
            );
        }
    }

    /// Whether to log that no webhook has our URL: when one is needed, once until one is found.
    fn is_newly_missing(&mut self, needed: bool, found: bool) -> bool {
        let missing = needed && !found;
        let logged = std::mem::replace(&mut self.missing_logged, missing);
        missing && !logged
    }

    /// Our webhooks in a place; none until GitHub has answered once. Empty where the credentials may not list them, which is no failure: polling
    /// finds what was missed.
    async fn webhooks(&mut self, source: &Source) -> Option<Vec<Webhook>> {
        let key = (source.github.id().clone(), source.place.clone());
        if let Some((webhooks, until)) = self.hooks.get(&key)
            && *until > Instant::now()
        {
            return Some(webhooks.clone());
        }
        let (webhooks, age) = match list(source, &self.settings).await {
            Ok(webhooks) => (webhooks, HOOKS_AGE),
            Err(error) if error.is_transient() => {
                tracing::debug!(%error, "webhooks not listed; tried again");
                return self.hooks.get(&key).map(|(webhooks, _)| webhooks.clone());
            }
            Err(error) if !source.expected => {
                tracing::debug!(%error, "webhooks not listed");
                (Vec::new(), DENIED_AGE)
            }
            Err(error) => {
                tracing::info!(
                    %error,
                    "webhooks can't be listed with these credentials, so that events that are missed there are not asked for again; polling \
                     finds their jobs, if the autoscaler has a metric"
                );
                (Vec::new(), DENIED_AGE)
            }
        };
        self.hooks.insert(key, (webhooks.clone(), Instant::now() + age));
        Some(webhooks)
    }

    /// Reads what was delivered since the last time, and asks for what was not.
    async fn replay(&self, github: &GitHub, webhook: &Webhook, backlog: &mut Backlog) -> Result<(), Error> {
        let (limits, now) = (self.settings.limits(), Timestamp::now());
        let deliveries = read(github, webhook, backlog.since(&limits, now)).await?;
        let attempts: Vec<Attempt<'_>> = deliveries.iter().map(attempt).collect();
        let recorded = backlog.record(&attempts, &limits, now);
        self.metrics.count("delivered", recorded.delivered);
        self.metrics.count("given_up", recorded.given_up);
        if recorded.given_up > 0 || recorded.overlooked > 0 {
            tracing::warn!(
                webhook = %Shown(webhook), given_up = recorded.given_up, overlooked = recorded.overlooked,
                "missed webhooks are not asked for any more; polling finds their jobs, if the autoscaler has a metric"
            );
        }
        let due = backlog.due(&limits, now);
        let mut asked = 0;
        let outcome = self.ask(github, webhook, &due, backlog, &mut asked).await;
        self.metrics.count("asked", asked);
        if asked > 0 {
            let missing = backlog.waiting(&limits);
            tracing::info!(webhook = %Shown(webhook), asked, missing, "missed webhooks asked for again");
        }
        outcome
    }

    async fn ask(
        &self,
        github: &GitHub,
        webhook: &Webhook,
        due: &[Due],
        backlog: &mut Backlog,
        asked: &mut u32,
    ) -> Result<(), Error> {
        for event in due {
            if !self.fence.holds() {
                return Ok(());
            }
            match github.redeliver(webhook, event.id).await {
                Ok(()) => *asked += 1,
                // Of this one only: GitHub keeps deliveries for three days, and some it never delivers again.
                Err(error) if matches!(error.kind(), ErrorKind::NotVisible { .. } | ErrorKind::Invalid | ErrorKind::Decode) => {
                    self.metrics.count("refused", 1);
                    tracing::warn!(webhook = %Shown(webhook), delivery = %event.guid, %error, "GitHub does not deliver it again");
                }
                Err(error) => return Err(error),
            }
            backlog.asked(&event.guid, Timestamp::now());
        }
        Ok(())
    }
}

/// The places where the webhooks of these scopes may be, each once.
fn sources(origins: Vec<Origin>) -> Vec<Source> {
    let (mut sources, mut seen) = (Vec::new(), HashSet::new());
    for Origin { github, scope } in origins {
        for (place, expected) in places(&github, &scope) {
            if seen.insert((github.id().clone(), place.clone())) {
                sources.push(Source { github: github.clone(), place, expected });
            }
        }
    }
    sources
}

/// Where the events of a scope's jobs may come from, as far as GitHub lists it (not from enterprises), and whether to expect an answer.
fn places(github: &GitHub, scope: &Scope) -> Vec<(Place, bool)> {
    let mut places = Vec::new();
    if github.credentials() == CredentialKind::App {
        places.push((Place::App, true));
    }
    match scope {
        Scope::Repository { owner, name } => {
            places.push((Place::Owner(HookOwner::Repository(Repository::new(owner, name))), true));
            places.push((Place::Owner(HookOwner::Organization(owner.clone())), false));
        }
        Scope::Organization(login) => places.push((Place::Owner(HookOwner::Organization(login.clone())), true)),
        Scope::Enterprise(_) => {}
    }
    places
}

async fn list(source: &Source, settings: &Settings) -> Result<Vec<Webhook>, Error> {
    match &source.place {
        Place::App => {
            let url = source.github.app_hook_url().await?;
            Ok(url.filter(|url| settings.is_ours(url)).map(|_| Webhook::App).into_iter().collect())
        }
        Place::Owner(owner) => {
            let hooks = source.github.hooks(owner).await?;
            let sends_jobs = |events: &[String]| events.iter().any(|event| event == "*" || event == EVENT);
            let ours = hooks.into_iter().filter(|hook| {
                hook.active && sends_jobs(&hook.events) && hook.url.as_deref().is_some_and(|url| settings.is_ours(url))
            });
            Ok(ours.map(|hook| Webhook::Of { owner: owner.clone(), hook: hook.id }).collect())
        }
    }
}

/// The event that is of use.
const EVENT: &str = "workflow_job";

/// Whether enough is left of the hourly limit. An App's own calls have one that nobody else uses.
fn has_spare(github: &GitHub, place: &Place) -> bool {
    let scope = match place {
        Place::App => return true,
        Place::Owner(HookOwner::Organization(login)) => Scope::Organization(login.clone()),
        Place::Owner(HookOwner::Repository(repository)) => repository.scope(),
    };
    let Some(budget) = github.budget(&scope) else { return true };
    budget.resets_in().is_zero() || budget.remaining.saturating_mul(SPARE) >= budget.limit
}

async fn read(github: &GitHub, webhook: &Webhook, since: Timestamp) -> Result<Vec<RemoteDelivery>, Error> {
    let (mut all, mut cursor) = (Vec::new(), None);
    for _ in 0..PAGES {
        let page = github.deliveries(webhook, cursor.as_ref()).await?;
        let is_last = page.deliveries.last().is_none_or(|oldest| oldest.delivered_at < since);
        all.extend(page.deliveries.into_iter().filter(|delivery| delivery.delivered_at >= since));
        cursor = page.next;
        if is_last || cursor.is_none() {
            return Ok(all);
        }
    }
    tracing::warn!(
        webhook = %Shown(webhook), read = all.len(), %since,
        "there are more deliveries than are read at a time; older ones that failed are not asked for"
    );
    Ok(all)
}

fn attempt(delivery: &RemoteDelivery) -> Attempt<'_> {
    let worth = match (delivery.event.as_str(), delivery.action.as_deref()) {
        (EVENT, Some("queued")) => Worth::Urgent,
        (EVENT, Some("in_progress" | "completed")) => Worth::Useful,
        _ => Worth::Nothing,
    };
    Attempt {
        id: delivery.id,
        guid: &delivery.guid,
        at: delivery.delivered_at,
        worth,
        outcome: Outcome::of(delivery.status_code),
        again: delivery.redelivery,
    }
}

/// A webhook in words. Its URL may hold a password.
struct Shown<'a>(&'a Webhook);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Webhook::App => f.write_str("of the GitHub App"),
            Webhook::Of { owner: HookOwner::Organization(login), hook } => write!(f, "{hook} of organization {login}"),
            Webhook::Of { owner: HookOwner::Repository(repository), hook } => write!(f, "{hook} of repository {repository}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_those_of_the_metric() {
        let metrics = RedeliveryMetrics::register(&mut Registry::default());
        for (number, outcome) in (1..).zip(OUTCOMES) {
            metrics.count(outcome, number);
        }
        assert_eq!(metrics.totals(), Totals { delivered: 1, given_up: 2, asked: 3, refused: 4 });
    }

    #[test]
    fn missing_webhook_is_logged_once_when_one_is_needed() {
        let settings = Settings { urls: Vec::new(), period: Duration::ZERO, age: Duration::ZERO, attempts: 0 };
        let metrics = RedeliveryMetrics::register(&mut Registry::default());
        let mut redelivery = Redelivery::new(settings, Fence::open(), metrics);
        for (needed, found, expected, what) in [
            (false, false, false, "no autoscaler yet"),
            (true, false, true, "the first autoscaler, and no webhook"),
            (true, false, false, "as before"),
            (true, true, false, "a webhook"),
            (true, false, true, "it is gone"),
            (false, false, false, "so is the autoscaler"),
            (true, false, true, "another one"),
        ] {
            assert_eq!(redelivery.is_newly_missing(needed, found), expected, "{what}");
        }
    }
}
