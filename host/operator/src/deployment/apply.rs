//! Makes, scales and deletes the RunnerReplicaSets of a target.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Resource, ResourceExt};
use pacer_api::{RunnerReplicaSet, RunnerTemplate};
use pacer_cluster::answer::{ignore_not_found, is_already_exists, precondition_held};
use pacer_cluster::clock::Clock;
use pacer_cluster::events::Reason;
use pacer_cluster::live;
use pacer_cluster::object::Uid;
use pacer_core::rollout::Rollout;
use serde_json::{Value, json};

use super::build::replica_set;
use super::{Memo, Replicas, Sets, Targets};
use crate::error::Error;
use crate::refusal::Refusal;
use crate::target::Target;

/// A RunnerReplicaSet that has the name of one that a target wants.
enum Namesake {
    /// It is the target's, or on its way out: the watch shows that soon.
    Ours,
    /// It is somebody else's; this is whose, and what to do.
    Foreign(String),
}

impl Targets {
    /// Makes the RunnerReplicaSet of a template, or adopts it: `kubectl delete --cascade=orphan` leaves one without an owner. What else keeps it from
    /// being made is told in the target's status.
    pub(super) async fn create(
        &self,
        target: &Target,
        template: &RunnerTemplate,
        replicas: u32,
        clock: Clock,
    ) -> Result<(), Error> {
        let set = replica_set(target, template, replicas);
        match self.cluster.api::<RunnerReplicaSet>(target.namespace()).create(&PostParams::default(), &set).await {
            Ok(made) => {
                let note = format!("created runnerreplicaset '{}' with {replicas} replicas", set.name_any());
                let about = Some(made.object_ref(&()));
                self.cluster.events.publish(Reason::RunnerReplicaSetCreated, &target.object_ref(), about, &note).await;
                Ok(())
            }
            // The name is a function of the target's name and its template.
            Err(error) if is_already_exists(&error) => match self.namesake(target, &set).await? {
                Namesake::Ours => Ok(()),
                Namesake::Foreign(why) => self.write_refusal(target, &why, clock).await,
            },
            Err(error) => {
                let error = Error::from(error);
                if let Some(refusal) = error.refusal() {
                    let why = format!("the API server refuses RunnerReplicaSet '{}': {refusal}", set.name_any());
                    self.write_refusal(target, &why, clock).await?;
                }
                Err(error)
            }
        }
    }

    /// Looks at the RunnerReplicaSet that has the name of `wanted` already, and adopts it if it was the target's and has no owner.
    async fn namesake(&self, target: &Target, wanted: &RunnerReplicaSet) -> Result<Namesake, Error> {
        let (client, namespace, name) = (&self.cluster.client, target.namespace(), wanted.name_any());
        let Some(found) = live::object::<RunnerReplicaSet>(client, namespace, &name).await? else { return Ok(Namesake::Ours) };
        if found.meta().deletion_timestamp.is_some() {
            return Ok(Namesake::Ours);
        }
        let owners = found.owner_references();
        let is_targets = |owner: &OwnerReference| target.uid().is_some_and(|uid| owner.uid == uid.as_str());
        match owners.iter().find(|owner| owner.controller == Some(true)) {
            Some(owner) if is_targets(owner) => return Ok(Namesake::Ours),
            Some(owner) => {
                let why = format!(
                    "RunnerReplicaSet '{name}', which this template needs, exists and belongs to {} '{}'; rename one of the two",
                    owner.kind, owner.name
                );
                return Ok(Namesake::Foreign(why));
            }
            None => {}
        }
        let of_it = found.labels().get(target.name_label()).is_some_and(|owner| owner == target.name());
        if !of_it || found.spec.template.meaning() != wanted.spec.template.meaning() {
            let why =
                format!("RunnerReplicaSet '{name}', which this template needs, exists and has no owner; delete or rename it");
            return Ok(Namesake::Foreign(why));
        }
        let owners: Vec<OwnerReference> = owners.iter().cloned().chain(target.owner_ref()).collect();
        let patch = json!({"metadata": {"resourceVersion": found.resource_version(), "ownerReferences": owners}});
        let api = self.cluster.api::<RunnerReplicaSet>(namespace);
        if precondition_held(api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&patch)).await)? {
            tracing::info!(set = name, namespace, owner = target.name(), "RunnerReplicaSet without an owner adopted");
        }
        Ok(Namesake::Ours)
    }

    /// Carries a rollout out. Returns why the API server refuses a number, where it does: what comes after that number waits for it.
    pub(super) async fn apply(
        &self,
        target: &Target,
        sets: &Sets,
        rollout: &Rollout,
        clock: Clock,
    ) -> Result<Option<String>, Error> {
        let uid = target.uid().ok_or(Error::Incomplete(target.kind().as_str(), "UID"))?;
        let before = self.memory.memos.read(&uid, |memo| memo.refused.clone()).flatten();
        let wanted = Replicas { newest: rollout.newest, old: rollout.old.clone() };
        if let Some(refusal) = before.as_ref().filter(|refusal| refusal.pause(&wanted, clock.instant).is_some()) {
            return Ok(Some(refusal.why().to_owned()));
        }
        let refused = self.carry_out(target, sets, rollout, clock).await?;
        let refusal = refused.clone().map(|why| Refusal::new(before.as_ref(), wanted, why, clock.instant));
        self.memory.memos.change(&uid, |memo| memo.refused = refusal);
        if let Some(why) = refused.as_deref().filter(|why| before.is_none_or(|before| before.why() != *why)) {
            self.cluster.events.publish(Reason::ScalingRefused, &target.object_ref(), None, why).await;
        }
        Ok(refused)
    }

    async fn carry_out(&self, target: &Target, sets: &Sets, rollout: &Rollout, clock: Clock) -> Result<Option<String>, Error> {
        let replicas = i32::try_from(rollout.newest).unwrap_or(i32::MAX);
        let newest = &sets.newest;
        if newest.spec.replicas != Some(replicas) || newest.spec.effective_time.as_ref() != target.effective_time() {
            self.note(target, newest, rollout.newest, clock)?;
            let patch = json!({"spec": {"replicas": replicas, "effectiveTime": target.effective_time()}});
            if let Some(why) = self.scale(newest, rollout.newest, &patch).await? {
                return Ok(Some(why));
            }
        }
        for (set, wanted) in sets.old.iter().zip(&rollout.old) {
            if set.spec.replicas_or_default() != *wanted && set.meta().deletion_timestamp.is_none() {
                self.note(target, set, *wanted, clock)?;
                if let Some(why) = self.scale(set, *wanted, &json!({"spec": {"replicas": wanted}})).await? {
                    return Ok(Some(why));
                }
            }
        }
        for set in rollout.delete.iter().filter_map(|index| sets.old.get(*index)) {
            let unchanged = DeleteParams {
                preconditions: Some(Preconditions { uid: set.uid(), resource_version: set.resource_version() }),
                ..DeleteParams::default()
            };
            let api = self.cluster.api::<RunnerReplicaSet>(target.namespace());
            if precondition_held(api.delete(&set.name_any(), &unchanged).await)? {
                let note = format!("deleted runnerreplicaset '{}': it is empty", set.name_any());
                let about = Some(set.object_ref(&()));
                self.cluster.events.publish(Reason::RunnerReplicaSetDeleted, &target.object_ref(), about, &note).await;
            }
        }
        Ok(None)
    }

    /// Remembers a number that is about to be sent, as long as the watch may not show it.
    fn note(&self, target: &Target, set: &RunnerReplicaSet, replicas: u32, clock: Clock) -> Result<(), Error> {
        let (uid, generation) = (Uid::of(set)?, set.metadata.generation.unwrap_or_default());
        let target = target.uid().ok_or(Error::Incomplete(target.kind().as_str(), "UID"))?;
        self.memory.memos.change(&target, |memo: &mut Memo| memo.asked.note(uid, generation, replicas, clock.now));
        Ok(())
    }

    /// Returns why the API server refuses it, where it does.
    async fn scale(&self, set: &RunnerReplicaSet, replicas: u32, patch: &Value) -> Result<Option<String>, Error> {
        let (api, name) = (self.cluster.beside::<RunnerReplicaSet>(set), set.name_any());
        let sent = ignore_not_found(api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await);
        let Err(error) = sent.map_err(Error::from) else { return Ok(None) };
        let Some(words) = error.refusal() else { return Err(error) };
        Ok(Some(format!(
            "the API server refuses to set RunnerReplicaSet '{name}' to {replicas} replicas: {words}; the set keeps {}, and the operator tries again: change the \
             admission policy, quota or role that refuses it",
            set.spec.replicas_or_default()
        )))
    }
}
