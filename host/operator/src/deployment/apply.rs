//! Makes, scales and deletes the RunnerReplicaSets of a target.

use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::{Resource, ResourceExt};
use pacer_api::{RunnerReplicaSet, RunnerTemplate};
use pacer_cluster::answer::{ignore_not_found, precondition_held, status};
use pacer_cluster::clock::Clock;
use pacer_cluster::events::Reason;
use pacer_cluster::object::Uid;
use pacer_core::rollout::Rollout;
use serde_json::{Value, json};

use super::build::replica_set;
use super::{Memo, Sets, Targets};
use crate::error::Error;
use crate::target::Target;

impl Targets {
    pub(super) async fn create(&self, target: &Target, template: &RunnerTemplate, replicas: u32) -> Result<(), Error> {
        let set = replica_set(target, template, replicas);
        match self.cluster.api::<RunnerReplicaSet>(target.namespace()).create(&PostParams::default(), &set).await {
            Ok(made) => {
                let note = format!("created runnerreplicaset '{}' with {replicas} replicas", set.name_any());
                let about = Some(made.object_ref(&()));
                self.cluster.events.publish(Reason::RunnerReplicaSetCreated, &target.object_ref(), about, &note).await;
                Ok(())
            }
            // The watch is late: the name is a function of the template.
            Err(error) if status(&error).is_some_and(Status::is_already_exists) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Carries a rollout out.
    pub(super) async fn apply(&self, target: &Target, sets: &Sets, rollout: &Rollout, clock: Clock) -> Result<(), Error> {
        let replicas = i32::try_from(rollout.newest).unwrap_or(i32::MAX);
        let newest = &sets.newest;
        if newest.spec.replicas != Some(replicas) || newest.spec.effective_time.as_ref() != target.effective_time() {
            self.note(target, newest, rollout.newest, clock)?;
            let patch = json!({"spec": {"replicas": replicas, "effectiveTime": target.effective_time()}});
            self.scale(newest, &patch).await?;
        }
        for (set, wanted) in sets.old.iter().zip(&rollout.old) {
            if set.spec.replicas_or_default() != *wanted && set.meta().deletion_timestamp.is_none() {
                self.note(target, set, *wanted, clock)?;
                self.scale(set, &json!({"spec": {"replicas": wanted}})).await?;
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
        Ok(())
    }

    /// Remembers a number that is about to be sent, as long as the watch may not show it.
    fn note(&self, target: &Target, set: &RunnerReplicaSet, replicas: u32, clock: Clock) -> Result<(), Error> {
        let (uid, generation) = (Uid::of(set)?, set.metadata.generation.unwrap_or_default());
        let target = target.uid().ok_or(Error::Incomplete(target.kind().as_str(), "UID"))?;
        self.memory.memos.change(&target, |memo: &mut Memo| memo.asked.note(uid, generation, replicas, clock.now));
        Ok(())
    }

    async fn scale(&self, set: &RunnerReplicaSet, patch: &Value) -> Result<(), Error> {
        let api = self.cluster.beside::<RunnerReplicaSet>(set);
        ignore_not_found(api.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await)?;
        Ok(())
    }
}
