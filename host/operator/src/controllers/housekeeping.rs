//! Once per sync period: forgets what belongs to objects that are gone, closes listings nobody needs, removes unused tokens and accounts.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::core::Status;
use kube::runtime::reflector::Store;
use kube::{Resource, ResourceExt};
use pacer_api::{Runner, RunnerConfig, RunnerReplicaSet};
use pacer_cluster::answer::status;
use pacer_cluster::object::Uid;

use super::Operator;
use crate::access::credentials_key;
use crate::error::Error;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::target::Target;
use crate::token::{Need, Tokens};
use crate::usage::Pool;

/// UIDs of the objects that exist.
struct Existing {
    runners: HashSet<String>,
    sets: HashSet<String>,
    targets: HashSet<String>,
    autoscalers: HashSet<String>,
}

impl Existing {
    fn of(stores: &Stores) -> Self {
        Self {
            runners: uids(&stores.runners),
            sets: uids(&stores.sets),
            targets: stores.targets().iter().filter_map(|target| target.meta().uid.clone()).collect(),
            autoscalers: uids(&stores.autoscalers),
        }
    }

    fn has(&self, uid: &Uid) -> bool {
        [&self.runners, &self.sets, &self.targets, &self.autoscalers].iter().any(|all| all.contains(uid.as_str()))
    }
}

fn uids<K: Resource<DynamicType = ()> + Clone>(store: &Store<K>) -> HashSet<String> {
    store.state().iter().filter_map(|object| object.uid()).collect()
}

/// Those that people scale, whether or not they have runners.
fn pools(stores: &Stores) -> HashSet<Pool> {
    stores.targets().iter().map(|target| Pool::of(&target.reference())).collect()
}

/// Secrets with tokens by namespace and name.
struct NeededTokens {
    settings: Arc<Settings>,
    /// By runners.
    used: BTreeSet<(String, String)>,
    /// By runners that may be made.
    awaited: BTreeSet<(String, String)>,
}

impl NeededTokens {
    fn need(&self, namespace: &str, name: &str) -> Need {
        let secret = (namespace.to_owned(), name.to_owned());
        // Of other shards nothing is known here.
        if !self.settings.serves(namespace) {
            return Need::Now;
        }
        match (self.used.contains(&secret), self.awaited.contains(&secret)) {
            (true, _) => Need::Now,
            (false, true) => Need::Soon,
            (false, false) => Need::Never,
        }
    }
}

impl Operator {
    /// Keeps order for as long as it is polled.
    pub(super) async fn keep_house(&self) {
        loop {
            tokio::time::sleep(self.settings.sync_period.max(Duration::from_secs(1))).await;
            self.sweep().await;
        }
    }

    async fn sweep(&self) {
        self.sweep_accounts().await;
        let stores = &self.cluster.stores;
        let existing = Existing::of(stores);
        self.runners.retain(|uid| existing.has(uid));
        let pools = pools(stores);
        self.runners.memory.usage.retain(|uid| existing.has(uid), |pool| pools.contains(pool), Timestamp::now());
        self.sets.retain(|uid| existing.has(uid), Timestamp::now());
        self.targets.retain(|uid| existing.has(uid), Instant::now());
        self.autoscalers.retain(|uid| existing.has(uid));
        self.runtime.failures.retain(|uid| existing.has(uid));
        self.supplies.configurations.retain(|uid| existing.has(uid));
        self.supplies.claims.sweep().await;
        let tenancies = self.github.tenancies();
        let runners = stores.runners.state();
        let mut accesses = Vec::new();
        let mut complete = true;
        for runner in &runners {
            let namespace = runner.namespace().unwrap_or_default();
            let had_pod = runner.status.as_ref().is_some_and(|status| status.pod_uid.is_some() || status.runner_id.is_some());
            if !had_pod && tenancies.admits(&namespace, &runner.spec.config).is_err() {
                continue;
            }
            match self.github.of(runner).await {
                Ok(access) => accesses.push(access),
                // Its listing may be needed in a moment.
                Err(Error::Kube(_)) => complete = false,
                Err(_) => {}
            }
        }
        // A pool without runners is looked at all the same, and each look would begin the listing anew.
        let of_set = |set: Arc<RunnerReplicaSet>| (set.namespace().unwrap_or_default(), set.spec.template.spec.config.clone());
        let of_target = |target: Target| (target.namespace().to_owned(), Arc::new(target.config().clone()));
        let of_targets = stores.targets().into_iter().map(of_target);
        let pools: Vec<_> = stores.sets.state().into_iter().map(of_set).chain(of_targets).collect();
        let listed = self.github.scopes();
        for (namespace, config) in
            pools.into_iter().filter(|(_, config)| config.scope().is_ok_and(|scope| listed.contains(&scope)))
        {
            if tenancies.admits(&namespace, &config).is_err() {
                continue;
            }
            match self.github.listed(&namespace, &config).await {
                Ok(access) => accesses.extend(access),
                Err(Error::Kube(_)) => complete = false,
                Err(_) => {}
            }
        }
        if complete {
            // A listing that began meanwhile begins once more, which costs a call.
            self.github.retain(&accesses);
        }
        self.github.forget_unused().await;
        tenancies.forget_bills();
        let needs = |namespace: Option<&str>| {
            let tokens = self.needed_tokens(namespace);
            move |namespace: &str, name: &str| tokens.need(namespace, name)
        };
        let swept = self.supplies.tokens.sweep(self.settings.namespace.as_deref(), needs, Timestamp::now()).await;
        if let Err(error) = swept {
            tracing::warn!(%error, "unused registration tokens not deleted");
        }
    }

    /// Who needs which tokens now, in one namespace or in all.
    fn needed_tokens(&self, namespace: Option<&str>) -> NeededTokens {
        let stores = &self.cluster.stores;
        // Which token a runner uses is known without its credentials: those of one tenant must not keep the tokens of the others.
        let token = |namespace: &str, config: &RunnerConfig| {
            let name = Tokens::name(&credentials_key(namespace, config), &config.scope().ok()?);
            Some((namespace.to_owned(), name))
        };
        let of_runner = |runner: &Arc<Runner>| token(&runner.namespace().unwrap_or_default(), &runner.spec.config);
        let tenancies = self.github.tenancies();
        let of_set = |set: &Arc<RunnerReplicaSet>| {
            let (own, config) = (set.namespace().unwrap_or_default(), &set.spec.template.spec.config);
            let is_asked_for = namespace.is_none_or(|namespace| namespace == own) && tenancies.admits(&own, config).is_ok();
            if is_asked_for { token(&own, config) } else { None }
        };
        let runners = namespace.map_or_else(|| stores.runners.state(), |namespace| stores.runners_in(namespace));
        NeededTokens {
            settings: self.settings.clone(),
            used: runners.iter().filter_map(of_runner).collect(),
            awaited: stores.sets.state().iter().filter_map(of_set).collect(),
        }
    }

    async fn sweep_accounts(&self) {
        let uses = |namespace: Option<&str>| {
            let settings = self.settings.clone();
            let used = self.cluster.stores.shared_accounts(settings.pod.status_hook, namespace);
            move |namespace: &str, name: &str| {
                !settings.serves(namespace) || used.contains(&(namespace.to_owned(), name.to_owned()))
            }
        };
        match self.supplies.accounts.sweep(self.settings.namespace.as_deref(), uses).await {
            Ok(()) => {}
            // An installation may come without the right to make any.
            Err(error) if status(&error).is_some_and(Status::is_forbidden) => tracing::debug!(%error, "accounts not swept"),
            Err(error) => tracing::warn!(%error, "accounts of runners that are gone not deleted"),
        }
    }
}
