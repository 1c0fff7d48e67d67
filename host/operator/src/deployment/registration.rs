//! The registration that a deployment keeps while it wants no runners: a Runner whose pod registers and ends.
//!
//! It belongs to the deployment and to none of its sets, so that nothing that counts, scales or rolls out runners sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};
use pacer_api::names::{annotation, finalizer, label};
use pacer_api::{Runner, RunnerDeployment, RunnerSpec, RunnerTemplate};
use pacer_cluster::answer::status;
use pacer_cluster::clock::Clock;
use pacer_cluster::events::Reason;
use pacer_cluster::object::Uid;
use pacer_core::registration::{self, Fleet, Plan, Registration};

use super::Targets;
use crate::error::Error;
use crate::published::IN_FLIGHT;

impl Targets {
    /// Makes and removes it as the deployment wants. Returns whether the last runner that works has to stay until it is registered.
    ///
    /// # Errors
    ///
    /// When the API server refuses.
    pub(super) async fn keep_registration(
        &self,
        deployment: &RunnerDeployment,
        template: &RunnerTemplate,
        online: u32,
        clock: Clock,
    ) -> Result<bool, Error> {
        let opted_in = deployment.spec.registration_only_at_zero == Some(true);
        let uid = Uid::of(deployment)?;
        let runners = self.cluster.stores.registrations_of(&uid);
        if !opted_in && runners.is_empty() {
            return Ok(false);
        }
        let revision = template.revision();
        let describe = |runner: &Arc<Runner>| Registration {
            current: runner.annotations().get(label::RUNNER_TEMPLATE_HASH).is_some_and(|made_of| *made_of == revision),
            registered: runner.status.as_ref().is_some_and(|status| status.runner_id.is_some()),
            leaving: self.memory.removals.is_leaving(runner),
        };
        let mut registrations: Vec<Registration> = runners.iter().map(describe).collect();
        if self.is_in_flight(&uid, &runners, clock) {
            registrations.push(Registration { current: true, ..Registration::default() });
        }
        let desired = deployment.spec.replicas_or_default();
        let Plan { create, remove, hold_last } =
            registration::plan(&Fleet { opted_in, desired, online, registrations: &registrations });
        for gone in remove.iter().filter_map(|index| runners.get(*index)) {
            self.memory.removals.delete(gone.clone(), clock).await?;
            let note = format!("removed registration-only runner {}: it is not needed any more", gone.name_any());
            let about = Some(gone.object_ref(&()));
            self.cluster.events.publish(Reason::RunnerRemoved, &deployment.object_ref(&()), about, &note).await;
        }
        if create {
            let name = pacer_core::name::registration(&deployment.name_any(), self.memory.seed.draw());
            // Remembered before it is sent: an answer that is lost may still mean a runner.
            self.memory.memos.change(&uid, |memo| memo.registration = Some((name.clone(), clock.instant)));
            self.make_registration(deployment, &uid, runner_of(deployment, template, &revision, name)).await?;
        }
        Ok(hold_last)
    }

    /// Whether one was made that the watch has not shown.
    fn is_in_flight(&self, deployment: &Uid, seen: &[Arc<Runner>], clock: Clock) -> bool {
        self.memory.memos.change(deployment, |memo| {
            memo.registration.take_if(|(name, since)| {
                let late = clock.instant.saturating_duration_since(*since) >= IN_FLIGHT;
                late || seen.iter().any(|runner| runner.name_any() == *name)
            });
            memo.registration.is_some()
        })
    }

    async fn make_registration(&self, deployment: &RunnerDeployment, uid: &Uid, runner: Runner) -> Result<(), Error> {
        let error = match self.cluster.beside::<Runner>(deployment).create(&PostParams::default(), &runner).await {
            Ok(made) => {
                let name = made.name_any();
                let note = format!(
                    "created registration-only runner {name}: no runner is wanted, and jobs must find their labels registered"
                );
                let about = Some(made.object_ref(&()));
                self.cluster.events.publish(Reason::RunnersCreated, &deployment.object_ref(&()), about, &note).await;
                return Ok(());
            }
            Err(error) => error,
        };
        if status(&error).is_some() {
            self.memory.memos.change(uid, |memo| memo.registration = None);
        }
        Err(error.into())
    }
}

/// Labels of its own it has none, so that no selector finds it.
fn runner_of(deployment: &RunnerDeployment, template: &RunnerTemplate, revision: &str, name: String) -> Runner {
    Runner {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: deployment.namespace(),
            annotations: Some(BTreeMap::from([
                (annotation::REGISTRATION_ONLY.to_owned(), "true".to_owned()),
                (label::RUNNER_TEMPLATE_HASH.to_owned(), revision.to_owned()),
            ])),
            finalizers: Some(vec![finalizer::RUNNER.to_owned()]),
            owner_references: deployment.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: registering(&template.spec),
        status: None,
    }
}

/// What is left of a runner that only registers: its labels and scope, image and surroundings; no docker, no jobs, nothing beside it.
fn registering(spec: &RunnerSpec) -> RunnerSpec {
    let mut spec = spec.clone();
    // GitHub forgets an ephemeral runner after a day without contact, and any other after two weeks.
    let config = Arc::make_mut(&mut spec.config);
    config.ephemeral = Some(false);
    config.docker_enabled = Some(false);
    config.dockerd_within_runner_container = None;
    config.container_mode = None;
    let pod = Arc::make_mut(&mut spec.pod);
    pod.work_volume_claim_template = None;
    pod.sidecar_containers = None;
    spec
}

#[cfg(test)]
mod tests {
    use pacer_api::runner::Docker;

    use super::*;

    #[test]
    fn it_registers_like_the_others_and_does_nothing_else() {
        let spec: RunnerSpec = serde_json::from_value(serde_json::json!({
            "organization": "acme", "labels": ["gpu"], "group": "g", "image": "i", "containerMode": "kubernetes",
            "workVolumeClaimTemplate": {"storageClassName": "c", "accessModes": ["ReadWriteOnce"], "resources": {}},
            "sidecarContainers": [{"name": "proxy"}], "nodeSelector": {"a": "b"},
        }))
        .unwrap();
        let template = RunnerTemplate { metadata: None, spec: spec.clone() };
        let mut deployment = RunnerDeployment::default();
        (deployment.metadata.name, deployment.metadata.uid) = (Some("fleet".to_owned()), Some("u".to_owned()));
        let runner = runner_of(&deployment, &template, "rev", "fleet-registration-x".to_owned());
        let config = &runner.spec.config;
        assert_eq!((config.labels(), config.group(), config.image()), (&["gpu".to_owned()][..], Some("g"), Some("i")));
        assert_eq!((config.docker(), config.is_ephemeral(), config.is_kubernetes_mode()), (Docker::None, false, false));
        assert_eq!((&runner.spec.pod.sidecar_containers, &runner.spec.pod.node_selector), (&None, &spec.pod.node_selector));
        assert!(runner.metadata.labels.is_none() && crate::pod::is_registration_only(&runner));
    }
}
