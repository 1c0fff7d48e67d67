//! What runners depend on: nodes, room in the cluster, and GitHub's listings and budgets.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Scopes that one record of listings tells, and windows that one record of a budget tells; the others are counted.
pub const TOLD: usize = 32;

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// It takes pods.
    Ready,
    /// Its kubelet is not ready, or does not report.
    NotReady,
    /// It is cordoned: it takes no more pods.
    Unschedulable,
    /// It has been announced that it is about to go.
    Leaving,
    /// There is no such node any more.
    Gone,
}

/// A node that runners are on, or were on a short while ago.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeFacts {
    /// Name of the node.
    pub node: Arc<str>,
    /// How it is from now on.
    pub state: NodeState,
    /// Its zone, where it has that label and the label may be passed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Arc<str>>,
    /// Its instance type, where it has that label and the label may be passed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<Arc<str>>,
    /// `spot` or `on-demand`, where its labels say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<Arc<str>>,
}

/// What the cluster has no room for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Room {
    /// `namespace/name` of the pool.
    pub pool: Arc<str>,
    /// Runners of the pool that no node takes or a quota holds back, from now on; 0 once there is room for all.
    pub waiting: u32,
    /// What is lacking, in words of `pacer_core::room::lacking`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<Arc<str>>,
    /// What the cluster said of one of them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Listings of runners since the record before, with one set of credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listings {
    /// Name of the credentials: `default`, or namespace and name of their Secret.
    pub credentials: Arc<str>,
    /// By scope; those that failed or were torn first.
    pub scopes: Vec<ScopeListings>,
    /// Number of further scopes, which are left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u32,
}

/// Listings of one scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScopeListings {
    /// Enterprise, organization or `owner/name`.
    pub scope: Arc<str>,
    /// Good ones since the record before.
    pub listings: u64,
    /// Those of them whose pages did not fit together.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub torn: u64,
    /// When the last good one began; none before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// Pages of that one.
    #[serde(default)]
    pub pages: u32,
    /// How long it took.
    #[serde(default)]
    pub milliseconds: u64,
    /// Number of runners in the last good listing.
    #[serde(default)]
    pub runners: u64,
    /// Failed ones since then.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
}

/// What GitHub lets one set of credentials ask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// Name of the credentials: `default`, or namespace and name of their Secret.
    pub credentials: Arc<str>,
    /// Hourly budgets, those with the smallest rest first.
    pub windows: Vec<Window>,
    /// Calls since the record before that had to wait for their turn, so that GitHub's limits of a minute are kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deferred: u64,
    /// Calls since the record before that were not sent because a limit of GitHub's stood.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_back: u64,
    /// Until when a secondary limit stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secondary_until: Option<Timestamp>,
}

/// One hourly budget of calls to GitHub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// GitHub's name of the budget, such as `core`.
    pub resource: Arc<str>,
    /// Whose installation is charged; none where the credentials have one budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Arc<str>>,
    /// Calls that GitHub allows per window.
    pub limit: u32,
    /// Calls charged in this window.
    pub used: u32,
    /// Calls left in this window.
    pub remaining: u32,
    /// When the window ends.
    pub resets_at: Timestamp,
}

impl Window {
    /// What is left of a hundred.
    #[must_use]
    pub fn left(&self) -> u32 {
        let left = u64::from(self.remaining.min(self.limit)).saturating_mul(100).checked_div(u64::from(self.limit));
        left.and_then(|left| u32::try_from(left).ok()).unwrap_or(100)
    }
}

pub(crate) fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// What a trace says of one set of credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialsLife {
    /// Good listings of runners.
    pub listings: u64,
    /// Those of them whose pages did not fit together.
    pub torn: u64,
    /// The longest of the listings that are told one by one, in milliseconds.
    pub longest: u64,
    /// The most failures in a row of a scope.
    pub failures: u32,
    /// The window with the smallest rest, and when that was so.
    pub lowest: Option<(Timestamp, Window)>,
    /// Calls that had to wait for their turn.
    pub deferred: u64,
    /// Calls that were not sent because a limit of GitHub's stood.
    pub held_back: u64,
}

/// What a trace says of nodes, of room for runners, and of listings and limits at GitHub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Nodes by name: what was said of each, and from when on.
    pub nodes: BTreeMap<Arc<str>, Vec<(Timestamp, NodeFacts)>>,
    /// By `namespace/name` of the pool, from when on.
    pub room: BTreeMap<Arc<str>, Vec<(Timestamp, Room)>>,
    /// By the name of the credentials.
    pub credentials: BTreeMap<Arc<str>, CredentialsLife>,
    /// By scope, pages of its listings, as if those between two records had as many as the last of them.
    pub pages: BTreeMap<Arc<str>, u64>,
}

impl Surroundings {
    pub(crate) fn add_node(&mut self, at: Timestamp, node: &NodeFacts) {
        self.nodes.entry(node.node.clone()).or_default().push((at, node.clone()));
    }

    pub(crate) fn add_room(&mut self, at: Timestamp, room: &Room) {
        self.room.entry(room.pool.clone()).or_default().push((at, room.clone()));
    }

    pub(crate) fn add_listings(&mut self, listings: &Listings) {
        let life = self.credentials.entry(listings.credentials.clone()).or_default();
        for one in &listings.scopes {
            life.listings = life.listings.saturating_add(one.listings);
            life.torn = life.torn.saturating_add(one.torn);
            life.longest = life.longest.max(one.milliseconds);
            life.failures = life.failures.max(one.failures);
            let pages = self.pages.entry(one.scope.clone()).or_default();
            *pages = pages.saturating_add(one.listings.saturating_mul(u64::from(one.pages)));
        }
    }

    pub(crate) fn add_budget(&mut self, at: Timestamp, budget: &Budget) {
        let life = self.credentials.entry(budget.credentials.clone()).or_default();
        life.deferred = life.deferred.saturating_add(budget.deferred);
        life.held_back = life.held_back.saturating_add(budget.held_back);
        for window in &budget.windows {
            if life.lowest.as_ref().is_none_or(|(_, lowest)| window.left() < lowest.left()) {
                life.lowest = Some((at, window.clone()));
            }
        }
    }

    /// For how many seconds a pool had runners without room up to a moment, and how many at most.
    #[must_use]
    pub fn without_room(&self, pool: &str, until: Timestamp) -> (u64, u32) {
        let Some(told) = self.room.get(pool) else { return (0, 0) };
        let ends = told.iter().skip(1).map(|(at, _)| *at).chain([until]);
        let spans = told.iter().zip(ends).filter(|((_, room), _)| room.waiting > 0);
        let seconds = spans.map(|((from, _), to)| u64::try_from(to.duration_since(*from).as_secs()).unwrap_or(0)).sum();
        (seconds, told.iter().map(|(_, room)| room.waiting).max().unwrap_or(0))
    }
}
