//! Webhooks and their deliveries, as GitHub keeps them for some days: what was missed can be delivered again.

use http::{Method, StatusCode};
use jiff::Timestamp;
use pacer_core::scope::Scope;
use serde::Deserialize;

use crate::call::{Endpoint, Subject};
use crate::client::{GitHub, success};
use crate::error::{Error, ErrorKind};
use crate::jobs::Repository;

/// Who has webhooks that can be listed. Those of enterprises cannot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HookOwner {
    /// A repository, by its owner and name.
    Repository(Repository),
    /// An organization, by its login.
    Organization(String),
}

/// A webhook that has deliveries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Webhook {
    /// The one of the GitHub App that the credentials are of.
    App,
    /// One of a repository or organization.
    Of {
        /// Repository or organization that the webhook belongs to.
        owner: HookOwner,
        /// GitHub's id; see [`GitHub::hooks`].
        hook: u64,
    },
}

/// A webhook in a list.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteHook {
    /// GitHub's id.
    pub id: u64,
    /// Where events are sent; may carry a password. None for services that are no webhooks.
    pub url: Option<String>,
    /// Whether events are sent.
    pub active: bool,
    /// Names of the events that are sent; `*` for all.
    pub events: Vec<String>,
}

/// One attempt of GitHub's to deliver an event.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RemoteDelivery {
    /// Id of the attempt; the event is asked for again by it.
    pub id: u64,
    /// Identifies the event, shared by all attempts: the `X-GitHub-Delivery` header.
    pub guid: String,
    /// When it was tried.
    pub delivered_at: Timestamp,
    /// Name of the event, such as `workflow_job`.
    pub event: String,
    /// What happened, such as `queued`; none for events of one kind only.
    #[serde(default)]
    pub action: Option<String>,
    /// What the receiver answered; 0 when it was not reached.
    #[serde(default)]
    pub status_code: u16,
    /// Whether somebody had asked for it again.
    #[serde(default)]
    pub redelivery: bool,
}

impl RemoteDelivery {
    /// Whether the receiver took it.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.status_code)
    }
}

/// Deliveries, the newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryPage {
    /// Deliveries of this page, at most 100.
    pub deliveries: Vec<RemoteDelivery>,
    /// Where older ones go on; none at the end.
    pub next: Option<DeliveryCursor>,
}

/// A place in a list of deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryCursor(String);

#[derive(Deserialize)]
struct WireHook {
    id: u64,
    #[serde(default)]
    active: bool,
    #[serde(default)]
    events: Vec<String>,
    #[serde(default)]
    config: WireConfig,
}

#[derive(Default, Deserialize)]
struct WireConfig {
    #[serde(default)]
    url: Option<String>,
}

impl GitHub {
    /// All webhooks of a repository or organization.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`ErrorKind`].
    pub async fn hooks(&self, owner: &HookOwner) -> Result<Vec<RemoteHook>, Error> {
        let pages: Vec<Vec<WireHook>> = self.get_all(Endpoint::ListHooks, owner, "hooks", "per_page=100").await?;
        let hook = |wire: WireHook| RemoteHook { id: wire.id, url: wire.config.url, active: wire.active, events: wire.events };
        Ok(pages.into_iter().flatten().map(hook).collect())
    }

    /// Where the webhook of the GitHub App sends its events; none when it has no URL. May carry a password.
    ///
    /// # Errors
    ///
    /// As GitHub refuses, and without the App's credentials; see [`ErrorKind`].
    pub async fn app_hook_url(&self) -> Result<Option<String>, Error> {
        let config: WireConfig = self.get(Endpoint::GetAppHook, &Webhook::App, "hook/config").await?.json()?;
        Ok(config.url.filter(|url| !url.is_empty()))
    }

    /// One page of a webhook's deliveries, the newest first, or those after (older than) a page.
    ///
    /// # Errors
    ///
    /// As GitHub refuses, and for the App's webhook without the App's credentials; see [`ErrorKind`].
    pub async fn deliveries(&self, hook: &Webhook, after: Option<&DeliveryCursor>) -> Result<DeliveryPage, Error> {
        let query = after.map_or("per_page=100", |cursor| cursor.0.as_str());
        let resource = format!("{}?{query}", hook.deliveries_path());
        let read = self.get(Endpoint::ListDeliveries, hook, &resource).await?;
        Ok(DeliveryPage { deliveries: read.json()?, next: read.next.map(DeliveryCursor) })
    }

    /// Asks for an event to be delivered again: GitHub queues another attempt, with the same `guid` and an id of its own.
    ///
    /// # Errors
    ///
    /// As [`GitHub::deliveries`].
    pub async fn redeliver(&self, hook: &Webhook, delivery: u64) -> Result<(), Error> {
        let resource = format!("{}/{delivery}/attempts", hook.deliveries_path());
        let (answer, attempt) = self.send(Method::POST, Endpoint::Redeliver, hook, &resource).await?;
        match success(answer, &attempt).await?.status() {
            StatusCode::ACCEPTED => Ok(()),
            status => Err(attempt.misanswered(ErrorKind::Decode, status, "expected 202; the event may not be delivered again")),
        }
    }
}

impl Webhook {
    /// Path of the deliveries below whoever has the webhook.
    fn deliveries_path(&self) -> String {
        match self {
            Self::App => "hook/deliveries".to_owned(),
            Self::Of { hook, .. } => format!("hooks/{hook}/deliveries"),
        }
    }
}

impl From<&HookOwner> for Subject {
    fn from(owner: &HookOwner) -> Self {
        match owner {
            HookOwner::Repository(repository) => repository.into(),
            HookOwner::Organization(login) => Scope::Organization(login.clone()).into(),
        }
    }
}

impl From<&Webhook> for Subject {
    fn from(hook: &Webhook) -> Self {
        match hook {
            Webhook::App => Self::App,
            Webhook::Of { owner, .. } => owner.into(),
        }
    }
}

impl std::fmt::Debug for RemoteHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, active, events, url: _ } = self;
        f.debug_struct("RemoteHook").field("id", id).field("active", active).field("events", events).finish_non_exhaustive()
    }
}
