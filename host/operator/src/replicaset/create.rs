//! Making runners.

use futures::{StreamExt, stream};
use kube::api::PostParams;
use kube::{Resource, ResourceExt};
use pacer_api::autoscaler::ScaleTargetKind;
use pacer_api::{Runner, RunnerReplicaSet};
use pacer_cluster::answer::status;
use pacer_cluster::events::Reason;
use pacer_cluster::live;
use pacer_cluster::object::Uid;
use pacer_core::facts::RunnerFacts;

use super::observe::Fleet;
use super::{ReplicaSets, Subject};
use crate::arc::statefulset;
use crate::error::Error;
use crate::settings::FAN_OUT;
use crate::target::{Target, owner_of};
use crate::template;

impl ReplicaSets {
    /// Whether a RunnerReplicaSet makes runners that are missing.
    pub(super) fn makes_runners(&self, of: Subject<'_>) -> bool {
        !(self.is_superseded(of.set) || self.has_pods_to_adopt(of.set) || self.is_gone(of))
    }

    /// Whether it is gone and the watch has not shown that. Asked only where somebody else deletes its runners, as the garbage collector does then.
    async fn is_abandoned(&self, of: Subject<'_>, fleet: &Fleet) -> Result<bool, Error> {
        let removals = &self.runners.observer.removals;
        let by_others = |facts: &RunnerFacts| {
            facts.deleting.is_some() && Uid::new(&facts.uid).is_some_and(|uid| removals.of(&uid).deleted.is_none())
        };
        if !fleet.members.iter().any(|(facts, _)| by_others(facts)) {
            return Ok(false);
        }
        let (namespace, name) = (of.set.namespace().unwrap_or_default(), of.set.name_any());
        let live = live::metadata_of::<RunnerReplicaSet>(&self.cluster.client, &namespace, &name, of.uid.as_str()).await?;
        let gone = live.is_none_or(|live| live.deletion_timestamp.is_some());
        if gone {
            tracing::info!(set = name, namespace, "no runners made: the set was deleted, and the watch has not shown that yet");
            self.memory.memos.change(of.uid, |memo| memo.gone = true);
        }
        Ok(gone)
    }

    /// Whether it is known to be gone: a look, or the write of a status, said so. Its runners are deleted one after the other then, and each would be
    /// replaced for as long as the watch does not show why.
    fn is_gone(&self, of: Subject<'_>) -> bool {
        self.memory.memos.read(of.uid, |memo| memo.gone).unwrap_or_default()
    }

    /// Whether idle runners of it have been to go already, and all others are to go as well: a rollout takes them one after the other.
    pub(super) fn goes_whole(&self, of: Subject<'_>) -> bool {
        let has_begun = self.memory.memos.read(of.uid, |memo| memo.surplus_since.is_some()).unwrap_or_default();
        has_begun && self.is_superseded(of.set)
    }

    /// Whether its owner has moved on to another template. Such a RunnerReplicaSet makes no more runners: the owner has not come to lower its
    /// number yet, or it would have nothing to make.
    fn is_superseded(&self, set: &RunnerReplicaSet) -> bool {
        let Some(target) = self.cluster.stores.target_of(set) else { return false };
        let wanted = target.template(&self.settings.common_labels);
        template::revision(set) != wanted.revision() && set.spec.template.meaning() != wanted.meaning()
    }

    /// Whether runners that ARC left are yet to be taken over by its RunnerSet: they are among those that are desired.
    fn has_pods_to_adopt(&self, set: &RunnerReplicaSet) -> bool {
        let Some(owner) = owner_of(set).filter(|owner| owner.target.kind == ScaleTargetKind::RunnerSet) else { return false };
        !statefulset::pods(&self.cluster.stores, &owner.target.namespace, &owner.target.name).is_empty()
    }

    /// Makes so many runners, which are all that are missing if the increase is `complete`.
    ///
    /// # Errors
    ///
    /// When the API server refused one of them; the others are made.
    pub(super) async fn create(&self, of: Subject<'_>, fleet: &mut Fleet, count: u32, complete: bool) -> Result<(), Error> {
        if self.is_abandoned(of, fleet).await? {
            return Ok(());
        }
        let target = self.cluster.stores.target_of(of.set);
        let runners: Vec<Runner> = (0..count).map(|_| self.named(of.set, target.as_ref())).collect();
        let runners = self.with_room(of, runners);
        let namespace = of.set.namespace().unwrap_or_default();
        let rooms = &self.github.tenancies().rooms;
        let give_back = |name: &str| rooms.give_back(&namespace, name);
        let give_back = &give_back;
        let api = self.cluster.beside::<Runner>(of.set);
        let (api, memos, precedence) = (&api, &self.memory.memos, &self.cluster.precedence);
        let created: Vec<Result<Runner, kube::Error>> = stream::iter(runners)
            .map(|runner| async move {
                let _turn = precedence.turn().await;
                // Remembered before it is sent: an answer that is lost may still mean a runner.
                let name = runner.name_any();
                memos.change(of.uid, |memo| memo.in_flight.insert(name.clone(), of.clock.instant));
                let result = api.create(&PostParams::default(), &runner).await;
                if let Err(error) = &result
                    && status(error).is_some()
                {
                    give_back(&name);
                    memos.change(of.uid, |memo| memo.in_flight.remove(&name));
                }
                result
            })
            .buffer_unordered(FAN_OUT)
            .collect()
            .await;
        let count = |of: fn(&Result<Runner, kube::Error>) -> bool| {
            u32::try_from(created.iter().filter(|result| of(result)).count()).unwrap_or(u32::MAX)
        };
        let made = count(Result::is_ok);
        // One whose answer was lost may exist, and takes room until it is known not to.
        let unanswered = count(|result| result.as_ref().is_err_and(|error| status(error).is_none()));
        fleet.in_flight = fleet.in_flight.saturating_add(made).saturating_add(unanswered);
        if made > 0 {
            let desired = of.set.spec.replicas_or_default();
            tracing::info!(set = of.set.name_any(), namespace = of.set.namespace(), created = made, desired, "runners created");
            // What an autoscaler asks for it tells itself, with the reason.
            if !owner_of(of.set).is_some_and(|owner| self.cluster.stores.is_scaled(&owner.target)) {
                let note = format!("created {made} runners; {desired} are wanted");
                // Related to one of them, or the note of an earlier increase would stand for this one.
                let about = created.iter().find_map(|result| result.as_ref().ok()).map(|runner| runner.object_ref(&()));
                self.cluster.events.publish(Reason::RunnersCreated, &of.set.object_ref(&()), about, &note).await;
            }
        }
        created.into_iter().try_for_each(|result| result.map(drop))?;
        // Only a complete increase counts as meeting the demand; see `pacer_core::replacement`.
        if complete {
            fleet.scaled.up = Some(of.clock.now);
            memos.change(of.uid, |memo| memo.scaled.up = Some(of.clock.now));
        }
        Ok(())
    }

    /// A Runner under a fresh name: one of a RunnerSet is named like the pod of a StatefulSet.
    fn named(&self, set: &RunnerReplicaSet, target: Option<&Target>) -> Runner {
        let random = self.runners.seed.draw();
        match target {
            Some(Target::Set(owner)) => {
                let ordinal = owner.spec.ordinal();
                let name = pacer_core::name::stateful_runner(&owner.name_any(), random, ordinal);
                template::runner(set, name, Some(ordinal))
            }
            _ => template::runner(set, pacer_core::name::runner(&set.name_any(), random), None),
        }
    }
}
