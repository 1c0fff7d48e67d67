//! Policy sets in ConfigMaps: which one decides for which pool, how a new one is staged and activated; and receipts of decisions.
//!
//! ```text
//! watch of one ConfigMap -> 200 ms -> pull -> Bundle::parse -> stage -> activate -> history -> status, Events, conditions
//!                                       |          |              |         ^
//!                                       +----------+--- refused --+         +-- roll back: its circuit breaker opens soon after
//!                                                          |
//!                                               the last known good stays active
//! ```
//!
//! Only a set that names modules in registries is pulled, before it waits for its turn to be staged, and only what no record of it holds.
//!
//! That a content is being staged is in its status before that begins, so that no later process tries what this one died of.
//!
//! A policy set is watched by its name while a pool asks for it: the cluster's default (`--policies`), and those that annotations of the
//! same namespace name. No other ConfigMap is ever read. What a pool's own policy set says nothing about is taken from the cluster's
//! default, and what neither says from the shipped policy. One [`Generation`] is made per policy set and read at the beginning of a
//! reconcile; everything else happens beside reconciles. Which objects ask for which set, and which are reconciled when one changes, is
//! the operator's to know: it passes the first to [`supervisor::run`] and is told the second.
//!
//! Read first: [`PolicySets`], then [`supervisor::run`].

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use kube::Client;
use pacer_cluster::events::Events;
use pacer_cluster::object::ObjectKey;
use pacer_core::reference::Reference;
use pacer_core::tenancy::Refusal;
use pacer_policy::{Decision, Generation, PolicyHost, StagedSet};
use pacer_registry::{Registries, VerificationKeys};
use tokio::sync::{mpsc, watch};

use crate::places::Place;
use crate::pull::Puller;

pub mod condition;
mod content;
pub mod history;
mod lifecycle;
mod places;
mod prospects;
mod pull;
pub mod receipts;
pub mod report;
pub mod supervisor;
mod trial;

pub use prospects::{PoolName, Prospects, SimulationTotals};

/// Name of the default set in the operator's own namespace, unless `--policies` says otherwise.
pub const DEFAULT_NAME: &str = "pacer-policies";

/// Most policy sets that are watched at once. Each costs a watch and the memory of its compiled policies. Namespaces share these places.
pub const MOST: usize = 200;

/// How long a start waits for the policy sets that pools ask for before their pools are scaled up without them.
const START_PATIENCE: Duration = Duration::from_secs(15);

/// Settings, fixed for as long as the process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The cluster's default policy set; none where `--policies` is empty.
    pub default: Option<ObjectKey>,
    /// The operator's own namespace, where the history is kept.
    pub namespace: String,
    /// Only the shipped policies decide, whatever ConfigMaps say.
    pub builtin_only: bool,
    /// Another process tells how the default set fares: nothing about it is written here, neither its status nor its history nor Events.
    pub default_is_anothers: bool,
}

/// Which content of a policy set decides, for conditions, metrics and people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Its newest content.
    Active,
    /// Its newest content, but for policies that keep failing: their circuit breakers are open.
    Degraded,
    /// The last known good one, because the newest is refused or gone.
    LastGood,
    /// An earlier one, because the policies of the newest kept failing.
    RolledBack,
    /// None: it is refused or missing, and there is no earlier one.
    Refused,
    /// None, and none is needed: the cluster has no default policy set.
    Missing,
    /// None: its annotation switches it off.
    Disabled,
    /// None yet: it is there, and its content is being checked.
    Staging,
}

impl Phase {
    /// All of them, for metrics.
    pub const ALL: [Self; 8] = [
        Self::Active,
        Self::Degraded,
        Self::LastGood,
        Self::RolledBack,
        Self::Refused,
        Self::Missing,
        Self::Disabled,
        Self::Staging,
    ];

    /// The word in statuses and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Degraded => "Degraded",
            Self::LastGood => "LastGood",
            Self::RolledBack => "RolledBack",
            Self::Refused => "Refused",
            Self::Missing => "Missing",
            Self::Disabled => "Disabled",
            Self::Staging => "Staging",
        }
    }
}

/// Why the newest content of a policy set is not active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// One CamelCase word of a closed set.
    pub reason: &'static str,
    /// What is wrong and what to do.
    pub message: String,
}

/// What a policy set contributes to decisions, and why.
#[derive(Clone, Debug)]
pub struct View {
    /// The active policies; none when it contributes none.
    pub staged: Option<Arc<StagedSet>>,
    /// Which content they are of.
    pub phase: Phase,
    /// Why its newest content is not active; none when it is.
    pub failure: Option<Failure>,
}

impl View {
    /// Whether a policy of it is in shadow.
    #[must_use]
    pub fn has_shadow(&self) -> bool {
        self.staged.as_ref().is_some_and(|staged| Decision::ALL.into_iter().any(|decision| staged.shadow(decision).is_some()))
    }

    /// Its policies whose circuit breaker is open, with the decision they are for.
    #[must_use]
    pub fn failing(&self) -> Vec<(Decision, String)> {
        let Some(staged) = &self.staged else { return Vec::new() };
        Decision::ALL
            .into_iter()
            .filter_map(|decision| {
                let standing = staged.enforced(decision)?;
                standing.health.open_since.map(|_| (decision, standing.policy))
            })
            .collect()
    }
}

/// What policy sets need of the cluster.
#[derive(Clone)]
pub struct Cluster {
    /// Watches their ConfigMaps; writes their status and history.
    pub client: Client,
    /// Publishes Events about them.
    pub events: Events,
    /// Learns of each policy set whose contribution has changed, so that whatever depends on it is reconciled.
    pub changed: mpsc::Sender<ObjectKey>,
}

/// Totals since the process began.
#[derive(Debug, Default)]
pub struct Totals {
    /// Contents that were activated.
    pub activations: AtomicU64,
    /// Contents that were refused.
    pub refusals: AtomicU64,
    /// Contents that were rolled back.
    pub rollbacks: AtomicU64,
}

/// The policy sets of all pools.
pub struct PolicySets {
    host: Arc<PolicyHost>,
    options: Options,
    /// Those that a pool asks for.
    wanted: watch::Sender<BTreeSet<ObjectKey>>,
    active: RwLock<Active>,
    /// Grows with every change of `active`.
    version: watch::Sender<u64>,
    totals: Totals,
    /// How many sets a namespace may have.
    limit: OnceLock<Limit>,
    /// For modules in registries.
    puller: Arc<Puller>,
    prospects: Prospects,
}

impl fmt::Debug for PolicySets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy sets at change {}", *self.version.borrow())
    }
}

/// See [`PolicySets::limit`].
type Limit = Box<dyn Fn(&str) -> Option<u32> + Send + Sync>;

struct Active {
    views: HashMap<ObjectKey, View>,
    /// For pools that ask for no policy set, or for one that is not staged yet.
    general: Arc<Generation>,
    /// For pools that ask for this policy set.
    own: HashMap<ObjectKey, Arc<Generation>>,
}

impl PolicySets {
    /// The shipped policies decide until policy sets are activated. What these name in registries is pulled by `registries`.
    #[must_use]
    pub fn new(host: Arc<PolicyHost>, registries: Registries, options: Options) -> Self {
        if let Some(default) = &options.default {
            host.reserve_for(&default.namespace);
        }
        let wanted = options.default.clone().filter(|_| !options.builtin_only).into_iter().collect();
        let active = Active { views: HashMap::new(), general: host.generation(), own: HashMap::new() };
        Self {
            host,
            options,
            wanted: watch::Sender::new(wanted),
            active: RwLock::new(active),
            version: watch::Sender::new(0),
            totals: Totals::default(),
            limit: OnceLock::new(),
            puller: Arc::new(Puller::new(registries)),
            prospects: Prospects::default(),
        }
    }

    /// By which keys modules of registries have to be signed.
    fn keys(&self) -> &VerificationKeys {
        self.puller.keys()
    }

    /// Says how many policy sets a namespace may have, beside the cluster's default; only the first call counts.
    pub fn limit(&self, of_namespace: impl Fn(&str) -> Option<u32> + Send + Sync + 'static) {
        let _first = self.limit.set(Box::new(of_namespace));
    }

    /// Says from where the sets of a namespace may come, beside the cluster's default; only the first call counts.
    pub fn admit_pulls(&self, of_namespace: impl Fn(&str, &Reference) -> Result<(), Refusal> + Send + Sync + 'static) {
        self.puller.admit(Box::new(of_namespace));
    }

    fn limit_of(&self, namespace: &str) -> Option<u32> {
        self.limit.get().and_then(|limit| limit(namespace))
    }

    /// Whether one more of this namespace would be too many.
    fn is_full(&self, wanted: &BTreeSet<ObjectKey>, namespace: &str) -> bool {
        let Some(most) = self.limit_of(namespace) else { return false };
        let own = wanted.iter().filter(|key| key.namespace == namespace && !self.is_default(key)).count();
        u32::try_from(own).unwrap_or(u32::MAX) >= most
    }

    /// Of these, as many of each namespace as it may have, the first by name.
    fn within_limits(&self, wanted: &BTreeSet<ObjectKey>) -> BTreeSet<ObjectKey> {
        let mut kept = BTreeSet::new();
        for key in wanted {
            if self.is_default(key) || !self.is_full(&kept, &key.namespace) {
                kept.insert(key.clone());
            }
        }
        kept
    }

    /// The host that loads policies and holds the generation in force.
    #[must_use]
    pub fn host(&self) -> &Arc<PolicyHost> {
        &self.host
    }

    /// What happened since the process began.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// What fleets would be by now if policies in shadow decided.
    #[must_use]
    pub fn prospects(&self) -> &Prospects {
        &self.prospects
    }

    /// Changes with every change of what a policy set contributes.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Whether any policy set has a policy in shadow.
    #[must_use]
    pub fn has_shadows(&self) -> bool {
        self.read().views.values().any(View::has_shadow)
    }

    /// The policy set whose policies in shadow are compared where this one is asked for: that one, or the cluster's default.
    #[must_use]
    pub fn shadowed_by(&self, namespace: &str, set: Option<&str>) -> Option<ObjectKey> {
        let active = self.read();
        let has_shadow = |key: &ObjectKey| active.views.get(key).is_some_and(View::has_shadow);
        self.key(namespace, set).filter(has_shadow).or_else(|| self.options.default.clone().filter(has_shadow))
    }

    /// Whether ConfigMaps have no say.
    #[must_use]
    pub fn builtin_only(&self) -> bool {
        self.options.builtin_only
    }

    /// The policies of pools that ask for no policy set. Take it once per reconcile.
    #[must_use]
    pub fn generation(&self) -> Arc<Generation> {
        Arc::clone(&self.read().general)
    }

    /// The policies of a pool that asks for the policy set of this name in its namespace; those of [`Self::generation`] until that is staged.
    /// Take it once per reconcile.
    #[must_use]
    pub fn generation_for(&self, namespace: &str, set: Option<&str>) -> Arc<Generation> {
        let Some(key) = self.key(namespace, set) else { return self.generation() };
        self.want(&key);
        let active = self.read();
        Arc::clone(active.own.get(&key).unwrap_or(&active.general))
    }

    /// Whether a policy set that a pool asks for, or the cluster's default one, is still being staged for the first time in this process, so that
    /// others than it would decide. Read it before the generation.
    #[must_use]
    pub fn awaits(&self, namespace: &str, set: Option<&str>) -> bool {
        if self.builtin_only() {
            return false;
        }
        let own = self.key(namespace, set);
        own.iter().for_each(|key| self.want(key));
        let wanted = self.wanted.borrow();
        let active = self.read();
        let is_new = |key: &ObjectKey| active.views.get(key).is_none_or(|view| view.phase == Phase::Staging);
        own.iter().chain(&self.options.default).any(|key| wanted.contains(key) && is_new(key))
    }

    /// What the policy set of this name contributes; none until it has been staged or refused once.
    #[must_use]
    pub fn view(&self, namespace: &str, set: &str) -> Option<View> {
        let key = self.key(namespace, Some(set))?;
        self.want(&key);
        self.read().views.get(&key).cloned()
    }

    /// Whether a policy set is watched, or soon will be; not when [`MOST`] others are and its namespace has its share of them.
    #[must_use]
    pub fn follows(&self, namespace: &str, set: &str) -> bool {
        self.key(namespace, Some(set)).is_some_and(|key| self.wanted.borrow().contains(&key))
    }

    /// All policy sets that have been staged or refused, by name.
    #[must_use]
    pub fn views(&self) -> Vec<(ObjectKey, View)> {
        let mut views: Vec<_> = self.read().views.iter().map(|(key, view)| (key.clone(), view.clone())).collect();
        views.sort_by(|one, other| one.0.cmp(&other.0));
        views
    }

    fn key(&self, namespace: &str, set: Option<&str>) -> Option<ObjectKey> {
        let name = set.map(str::trim).filter(|name| !name.is_empty() && !self.options.builtin_only)?;
        Some(ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// Whether it is the cluster's default.
    #[must_use]
    pub fn is_default(&self, key: &ObjectKey) -> bool {
        self.options.default.as_ref() == Some(key)
    }

    /// Whether this process tells how a set fares.
    fn tells(&self, key: &ObjectKey) -> bool {
        !(self.options.default_is_anothers && self.is_default(key))
    }

    /// Asks for a policy set, which the supervisor watches from then on.
    fn want(&self, key: &ObjectKey) {
        if self.wanted.borrow().contains(key) {
            return;
        }
        self.wanted.send_if_modified(|wanted| {
            if !self.is_default(key) && self.is_full(wanted, &key.namespace) {
                return false;
            }
            match places::place(wanted, &key.namespace, self.options.default.as_ref(), MOST) {
                Place::Free => {}
                Place::InsteadOf(other) => {
                    tracing::warn!(set = %other, instead = %key, "policy set not watched any more, so that another namespace has its share");
                    wanted.remove(&other);
                }
                Place::None => return false,
            }
            wanted.insert(key.clone())
        });
    }

    /// Waits until all policy sets that are asked for have been staged or refused once.
    async fn settled(&self) {
        let mut version = self.version.subscribe();
        loop {
            let all = {
                let wanted = self.wanted.borrow();
                let active = self.read();
                wanted.iter().all(|key| active.views.contains_key(key))
            };
            if all || version.changed().await.is_err() {
                return;
            }
        }
    }

    /// Makes what a policy set contributes the active policies of its pools. Calls in flight finish on the generation that they began with.
    fn publish(&self, key: &ObjectKey, view: View) {
        {
            let mut active = self.active.write().unwrap_or_else(PoisonError::into_inner);
            active.views.insert(key.clone(), view);
            self.compose(&mut active, key);
        }
        self.version.send_modify(|version| *version = version.wrapping_add(1));
    }

    /// Forgets a policy set that no pool asks for.
    fn withdraw(&self, key: &ObjectKey) {
        let mut active = self.active.write().unwrap_or_else(PoisonError::into_inner);
        active.views.remove(key);
        active.own.remove(key);
    }

    fn compose(&self, active: &mut Active, changed: &ObjectKey) {
        let default = self.options.default.as_ref().and_then(|key| active.views.get(key)).cloned();
        let default = default.as_ref().and_then(|view| view.staged.as_deref());
        let own = |view: &View| match (&view.staged, view.phase) {
            // Switched off by hand: not even the cluster's default may stand in.
            (_, Phase::Disabled) => self.host.compose(&[]),
            (Some(own), _) => match default {
                Some(default) => self.host.compose(&[own, default]),
                None => self.host.compose(&[own]),
            },
            (None, _) => self.host.compose(default.as_slice()),
        };
        if self.is_default(changed) {
            active.general = self.host.compose(default.as_slice());
            active.own = active.views.iter().map(|(key, view)| (key.clone(), own(view))).collect();
        } else if let Some(view) = active.views.get(changed) {
            let generation = own(view);
            active.own.insert(changed.clone(), generation);
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Active> {
        self.active.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(total: &AtomicU64) {
        total.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use pacer_policy::Counters;

    use super::*;

    #[test]
    fn namespace_gets_its_sets_watched_when_another_one_names_as_many_as_may_be() {
        let host = Arc::new(PolicyHost::new(Arc::new(Counters::default())));
        let default = ObjectKey::new("own", DEFAULT_NAME);
        let options = Options {
            default: Some(default.clone()),
            namespace: "own".to_owned(),
            builtin_only: false,
            default_is_anothers: false,
        };
        let registries = Registries::new(VerificationKeys::default(), 0);
        let sets = &PolicySets::new(host, registries, options);
        let ask = |namespace: &'static str| {
            (0..MOST).filter(move |number| {
                let name = format!("set-{number}");
                let _asked = sets.generation_for(namespace, Some(&name));
                sets.follows(namespace, &name)
            })
        };
        assert_eq!(ask("greedy").count(), MOST - 1);
        assert_eq!(ask("modest").take(3).count(), 3);
        assert_eq!(sets.wanted.borrow().len(), MOST);
        assert!(sets.wanted.borrow().contains(&default));
    }

    #[test]
    fn pool_awaits_its_policy_set_and_the_default_one_until_each_has_been_looked_at() {
        let default = ObjectKey::new("own", DEFAULT_NAME);
        let sets = |builtin_only| {
            let options =
                Options { default: Some(default.clone()), namespace: "own".to_owned(), builtin_only, default_is_anothers: false };
            let host = Arc::new(PolicyHost::new(Arc::new(Counters::default())));
            PolicySets::new(host, Registries::new(VerificationKeys::default(), 0), options)
        };
        assert!(!sets(true).awaits("ci", Some("opinions")));
        let sets = sets(false);
        let found = |phase| View { staged: None, phase, failure: None };
        assert!(sets.awaits("ci", None));
        sets.publish(&default, found(Phase::Missing));
        assert!(!sets.awaits("ci", None));
        assert!(sets.awaits("ci", Some("opinions")));
        let own = ObjectKey::new("ci", "opinions");
        for (phase, awaited) in
            [(Phase::Staging, true), (Phase::Refused, false), (Phase::Active, false), (Phase::Disabled, false)]
        {
            sets.publish(&own, found(phase));
            assert_eq!(sets.awaits("ci", Some("opinions")), awaited, "{phase:?}");
        }
        assert!(!sets.awaits("ci", None));
        // One that is not watched decides nothing, however long somebody waits.
        sets.limit(|_| Some(1));
        assert!(!sets.awaits("ci", Some("one too many")));
    }
}
