//! What the tenancy allows a RunnerReplicaSet.

use std::collections::HashSet;

use kube::{Resource, ResourceExt};
use pacer_api::RunnerReplicaSet;
use pacer_core::fleet::Plan;
use pacer_core::phase::Phase;
use pacer_core::tenancy::{Quota, Refusal};

use super::observe::Fleet;
use super::{ReplicaSets, Subject};
use crate::target::owner_of;

impl ReplicaSets {
    /// Whether a RunnerReplicaSet may make runners: its scope, its credentials, and the number of fleets in its namespace.
    pub(super) fn admitted(&self, set: &RunnerReplicaSet) -> Result<(), Refusal> {
        let (tenancies, namespace) = (self.github.tenancies(), set.namespace().unwrap_or_default());
        tenancies.admits(&namespace, &set.spec.template.spec.config)?;
        let quotas = tenancies.quotas(&namespace)?;
        let Some(most) = quotas.fleets else { return Ok(()) };
        if quotas.exceeds_fleets(self.place_among_fleets(set, &namespace)) {
            return Err(Refusal::Quota { namespace, quota: Quota::Fleets, most });
        }
        Ok(())
    }

    /// How many fleets of the namespace are older than the one that this RunnerReplicaSet belongs to.
    fn place_among_fleets(&self, set: &RunnerReplicaSet, namespace: &str) -> usize {
        let stores = &self.cluster.stores;
        let (targets, alone) = (stores.targets_in(namespace), stores.sets_alone_in(namespace));
        let owner = owner_of(set).map_or_else(|| set.uid().unwrap_or_default(), |owner| owner.uid.to_string());
        let mut fleets: Vec<_> = targets
            .iter()
            .map(|target| target.meta())
            .chain(alone.iter().map(|other| other.meta()))
            .map(|meta| (meta.creation_timestamp.as_ref().map(|time| time.0), meta.uid.clone().unwrap_or_default()))
            .collect();
        fleets.sort_unstable();
        fleets.iter().position(|(_, uid)| *uid == owner).unwrap_or_default()
    }

    /// A plan as far as the namespace has room for it, and why it has no more.
    pub(super) fn bounded(&self, of: Subject<'_>, plan: Plan) -> (Plan, Option<Refusal>) {
        let namespace = of.set.namespace().unwrap_or_default();
        let Some(most) = self.most_runners(&namespace) else { return (plan, None) };
        let taken = self.github.tenancies().rooms.taken(&namespace, &self.names(&namespace), of.clock.instant);
        let bounded = plan.clone().within(Some(most.saturating_sub(taken)));
        let full = (bounded != plan).then_some(Refusal::Quota { namespace, quota: Quota::Runners, most });
        (bounded, full)
    }

    /// Why a RunnerReplicaSet that is not as wanted may have to wait for GitHub, if that is its namespace's own doing.
    pub(super) fn waits_for_calls(&self, of: Subject<'_>, fleet: &Fleet) -> Option<Refusal> {
        let settled = fleet.members.len() == usize::try_from(of.set.spec.replicas_or_default()).unwrap_or(usize::MAX)
            && fleet.members.iter().all(|(_, assessment)| matches!(assessment.phase, Phase::Idle(_) | Phase::Busy));
        (!settled).then(|| self.github.tenancies().calls_put_off(&of.set.namespace().unwrap_or_default()))?
    }

    /// Of these new runners, those that the namespace has room for, whoever else makes some at the same time.
    pub(super) fn with_room<T: ResourceExt>(&self, of: Subject<'_>, mut runners: Vec<T>) -> Vec<T> {
        let namespace = of.set.namespace().unwrap_or_default();
        if let Some(most) = self.most_runners(&namespace) {
            let names: Vec<String> = runners.iter().map(ResourceExt::name_any).collect();
            let rooms = &self.github.tenancies().rooms;
            runners.truncate(rooms.take(&namespace, &names, &self.names(&namespace), most, of.clock.instant));
        }
        runners
    }

    fn most_runners(&self, namespace: &str) -> Option<u32> {
        // One that is refused makes no runners at all.
        self.github.tenancies().quotas(namespace).ok()?.runners
    }

    fn names(&self, namespace: &str) -> HashSet<String> {
        self.cluster.stores.runners_in(namespace).iter().map(|runner| runner.name_any()).collect()
    }
}
