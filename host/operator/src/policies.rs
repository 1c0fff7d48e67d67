//! Policy sets in ConfigMaps: which one decides for which pool, and how a new one comes into force.
//!
//! ```text
//! watch of one ConfigMap -> 200 ms -> Bundle::parse -> stage -> publish -> record -> status, Events, conditions
//!                                         |              |         ^
//!                                         +--- refused --+         +-- roll back: its breaker opens soon after
//!                                                 |
//!                                         what was in force stays
//! ```
//!
//! A set is watched by its name while somebody asks for it: the cluster's default (`--policies`), and those that annotations of the same
//! namespace name. No other ConfigMap is ever read. What a pool's own set says nothing about is taken from the cluster's default, and
//! what neither says from the shipped policy. One [`Generation`] is made per set and read at the beginning of a reconcile; everything
//! else happens beside reconciles.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use pacer_policy::{Decision, Generation, PolicyHost, StagedSet};
use tokio::sync::watch;

pub mod condition;
mod keeper;
mod record;
pub mod report;
mod supervisor;

pub use record::{LABEL as RECORDS, parse as read_set};
pub(crate) use supervisor::prime;
pub use supervisor::run;

/// Name of the default set in the operator's own namespace, unless `--policies` says otherwise.
pub const DEFAULT_NAME: &str = "pacer-policies";

/// Most sets that are watched at once. Each costs a watch and the memory of its compiled policies.
pub const MOST: usize = 200;

/// How long a start waits for the sets that pools ask for before the shipped policy decides in their place.
pub const START_PATIENCE: Duration = Duration::from_secs(15);

/// A ConfigMap with a policy set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl SetKey {
    fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            ..ObjectReference::default()
        }
    }
}

impl fmt::Display for SetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What the operator is told about policies at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The cluster's default set.
    pub default: Option<SetKey>,
    /// The operator's own namespace, where good sets are kept.
    pub namespace: String,
    /// Only the shipped policies decide, whatever ConfigMaps say.
    pub builtin_only: bool,
}

/// Where a set stands, for conditions, metrics and people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Its content decides.
    Active,
    /// Its content decides, but some of its policies keep failing and are not asked.
    Degraded,
    /// An earlier content decides, because the newest is refused or gone.
    LastGood,
    /// An earlier content decides, because the policies of the newest kept failing.
    RolledBack,
    /// Nothing of it decides: it is refused or missing, and there is no earlier one.
    Refused,
    /// There is none, and nobody minds: it is the cluster's default.
    Missing,
    /// Its annotation says that it shall not decide.
    Disabled,
}

impl Phase {
    /// All of them, for metrics.
    pub const ALL: [Self; 7] =
        [Self::Active, Self::Degraded, Self::LastGood, Self::RolledBack, Self::Refused, Self::Missing, Self::Disabled];

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
        }
    }
}

/// Why the newest content of a set is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// One CamelCase word of a closed set.
    pub reason: &'static str,
    /// What is wrong and what to do.
    pub message: String,
}

/// What a set contributes, and why.
#[derive(Clone, Debug)]
pub struct View {
    /// The policies in force; none when it contributes nothing.
    pub staged: Option<Arc<StagedSet>>,
    /// Where it stands.
    pub phase: Phase,
    /// Why its newest content is not in force; none when it is.
    pub failure: Option<Failure>,
}

impl View {
    /// Its policies that are not asked because they keep failing.
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

/// Totals since the process began.
#[derive(Debug, Default)]
pub struct Totals {
    /// Contents that came into force.
    pub activations: AtomicU64,
    /// Contents that were refused.
    pub refusals: AtomicU64,
    /// Contents that were taken back.
    pub rollbacks: AtomicU64,
}

/// The policies of all pools.
pub struct Policies {
    host: Arc<PolicyHost>,
    options: Options,
    /// Sets that somebody asks for.
    wanted: watch::Sender<BTreeSet<SetKey>>,
    in_force: RwLock<InForce>,
    /// Grows with every change of what is in force.
    version: watch::Sender<u64>,
    totals: Totals,
}

struct InForce {
    views: HashMap<SetKey, View>,
    /// For pools that ask for no set, or for one that is not known yet.
    general: Arc<Generation>,
    /// For pools that ask for this set.
    own: HashMap<SetKey, Arc<Generation>>,
}

impl Policies {
    /// The shipped policies decide until sets come into force.
    #[must_use]
    pub fn new(host: Arc<PolicyHost>, options: Options) -> Self {
        let wanted = options.default.clone().filter(|_| !options.builtin_only).into_iter().collect();
        let in_force = InForce { views: HashMap::new(), general: host.generation(), own: HashMap::new() };
        Self {
            host,
            options,
            wanted: watch::Sender::new(wanted),
            in_force: RwLock::new(in_force),
            version: watch::Sender::new(0),
            totals: Totals::default(),
        }
    }

    /// The engine.
    #[must_use]
    pub fn host(&self) -> &Arc<PolicyHost> {
        &self.host
    }

    /// What happened since the process began.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Whether ConfigMaps have no say.
    #[must_use]
    pub fn builtin_only(&self) -> bool {
        self.options.builtin_only
    }

    /// The policies of pools that ask for no set. Take it once per reconcile.
    #[must_use]
    pub fn generation(&self) -> Arc<Generation> {
        Arc::clone(&self.read().general)
    }

    /// The policies of a pool that asks for the set of this name in its namespace; until that is known those of everybody else.
    #[must_use]
    pub fn generation_for(&self, namespace: &str, set: Option<&str>) -> Arc<Generation> {
        let Some(key) = self.key(namespace, set) else { return self.generation() };
        self.want(&key);
        let in_force = self.read();
        Arc::clone(in_force.own.get(&key).unwrap_or(&in_force.general))
    }

    /// What is known about the set of this name; none until it has been looked at.
    #[must_use]
    pub fn view(&self, namespace: &str, set: &str) -> Option<View> {
        let key = self.key(namespace, Some(set))?;
        self.want(&key);
        self.read().views.get(&key).cloned()
    }

    /// Whether a set is looked at, or will be; not when [`MOST`] others are.
    #[must_use]
    pub fn follows(&self, namespace: &str, set: &str) -> bool {
        self.key(namespace, Some(set)).is_some_and(|key| self.wanted.borrow().contains(&key))
    }

    /// All sets that have been looked at.
    #[must_use]
    pub fn views(&self) -> Vec<(SetKey, View)> {
        let mut views: Vec<_> = self.read().views.iter().map(|(key, view)| (key.clone(), view.clone())).collect();
        views.sort_by(|one, other| one.0.cmp(&other.0));
        views
    }

    fn key(&self, namespace: &str, set: Option<&str>) -> Option<SetKey> {
        let name = set.map(str::trim).filter(|name| !name.is_empty() && !self.options.builtin_only)?;
        Some(SetKey { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    fn is_default(&self, key: &SetKey) -> bool {
        self.options.default.as_ref() == Some(key)
    }

    /// Asks for a set; it is looked at soon.
    fn want(&self, key: &SetKey) {
        if self.wanted.borrow().contains(key) {
            return;
        }
        self.wanted.send_if_modified(|wanted| wanted.len() < MOST && wanted.insert(key.clone()));
    }

    /// Waits until all sets that are asked for have been looked at once.
    async fn settled(&self) {
        let mut version = self.version.subscribe();
        loop {
            let known = {
                let wanted = self.wanted.borrow();
                let in_force = self.read();
                wanted.iter().all(|key| in_force.views.contains_key(key))
            };
            if known || version.changed().await.is_err() {
                return;
            }
        }
    }

    /// Puts what a set contributes into force. Calls in flight finish on the generation that they began with.
    fn publish(&self, key: &SetKey, view: View) {
        {
            let mut in_force = self.in_force.write().unwrap_or_else(PoisonError::into_inner);
            in_force.views.insert(key.clone(), view);
            self.compose(&mut in_force, key);
        }
        self.version.send_modify(|version| *version = version.wrapping_add(1));
    }

    /// Forgets a set that nobody asks for.
    fn withdraw(&self, key: &SetKey) {
        let mut in_force = self.in_force.write().unwrap_or_else(PoisonError::into_inner);
        in_force.views.remove(key);
        in_force.own.remove(key);
    }

    fn compose(&self, in_force: &mut InForce, changed: &SetKey) {
        let default = self.options.default.as_ref().and_then(|key| in_force.views.get(key)).cloned();
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
            in_force.general = self.host.compose(default.as_slice());
            in_force.own = in_force.views.iter().map(|(key, view)| (key.clone(), own(view))).collect();
        } else if let Some(view) = in_force.views.get(changed) {
            let generation = own(view);
            in_force.own.insert(changed.clone(), generation);
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, InForce> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(total: &AtomicU64) {
        total.fetch_add(1, Ordering::Relaxed);
    }
}
