//! Runners that no set owns: nobody replaces them, so their pod is made again under the same name (arc-behaviour 10.3), after
//! the old one was taken down by the same steps as any other.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use pacer_api::Runner;
use pacer_api::names::annotation;
use pacer_cluster::answer::ignore_not_found;
use pacer_cluster::events::Reason;
use pacer_core::phase::Assessment;
use pacer_core::restart::Remedy;
use pacer_core::stop::{self, Step};
use pacer_github::Removal;
use pacer_policyset::receipts::Owner;

use super::stop::await_listing;
use super::{Runners, Subject, linked};
use crate::access::{Access, NEXT_PERMIT};
use crate::arc::finalizer;
use crate::decisions::RestartQuestion;
use crate::error::Error;
use crate::just_in_time;
use crate::observe::Observed;
use crate::pool;
use crate::removal::Registered;

/// A runner is looked at this long after each step.
const SOON: Duration = Duration::from_secs(1);

impl Runners {
    /// Asks the policy about a stand-alone Runner in trouble and follows. Returns when to go on, none when there is nothing to do.
    pub(super) async fn restart_stand_alone(
        &self,
        of: Subject<'_>,
        access: &Access,
        observed: &Observed,
        assessment: &Assessment,
    ) -> Result<Option<Duration>, Error> {
        // One that a RunnerDeployment keeps for its registration is nobody's to replace, either.
        let owned = of.runner.owner_references().iter().any(|owner| owner.controller == Some(true));
        if (owned && !observed.facts.registration_only)
            || assessment.trouble.is_none()
            || observed.facts.quarantined
            || observed.pod_in_flight()
        {
            return Ok(None);
        }
        let policies = &self.decisions.policies;
        let question = RestartQuestion {
            awaits_policies: policies.awaits("", None),
            generation: &policies.generation(),
            pool: pool::of_runner(of.runner, assessment, access.budget()),
            spec: &of.runner.spec,
            priority: of.runner.annotations().get(annotation::PRIORITY).cloned(),
            target: None,
            members: &[(observed.facts.clone(), assessment.clone())],
            about: of.runner.object_ref(&()),
            owner: Owner::runner(of.runner)?,
            attempts: of.runner.status.as_ref().and_then(|status| status.attempts).unwrap_or_default(),
            clock: of.clock,
        };
        let Some(decision) = self.decisions.restart(question).await.into_iter().next() else { return Ok(None) };
        let about = of.runner.object_ref(&());
        match decision.remedy {
            Remedy::Wait { recheck, .. } => Ok(Some(recheck)),
            Remedy::Quarantine => {
                self.memory.statuses.quarantine(of.runner, &decision.reason, of.clock).await?;
                self.cluster.events.publish(Reason::RunnerQuarantined, &about, None, &decision.reason).await;
                Ok(None)
            }
            Remedy::Recreate | Remedy::Replace => {
                if let Some(wait) = self.take_down(of, access, observed).await? {
                    return Ok(Some(wait));
                }
                let note = format!("pod made again: {}; policy {}", decision.reason, decision.policy);
                self.start_anew(of, assessment).await?;
                self.cluster.events.publish(Reason::PodRecreated, &about, None, &note).await;
                Ok(Some(SOON))
            }
        }
    }

    /// Takes the old runner down as any other, so that no job of it is cut short and its registration goes. Returns when to go on; none when
    /// nothing of it is left.
    async fn take_down(&self, of: Subject<'_>, access: &Access, observed: &Observed) -> Result<Option<Duration>, Error> {
        let removals = &self.memory.observer.removals;
        let namespace = of.runner.namespace().unwrap_or_default();
        if observed.facts.left_for_good() && observed.facts.unregistered.is_none() {
            // Remembered, since no listing will be newer than the deletion of its pod.
            removals.confirm(of.uid, of.clock);
        }
        match stop::next(&observed.facts, observed.refused_busy, &self.settings.stop, of.clock.now) {
            Step::Unregister { id } => {
                let Some(_permit) = access.permit() else { return Ok(Some(NEXT_PERMIT)) };
                let registered = Registered { uid: of.uid, id, namespace: &namespace, facts: &observed.facts };
                Ok(Some(match removals.unregister(access, registered, of.clock).await? {
                    Removal::Removed | Removal::Absent => SOON,
                    Removal::Busy { .. } => stop::BUSY_RETRY,
                }))
            }
            Step::DeletePod(how) => {
                removals.delete_pod(&namespace, &observed.facts, how).await?;
                Ok(Some(SOON))
            }
            Step::FreePod => {
                let seen = ObjectRef::new(&of.runner.name_any()).within(&namespace);
                if let Some(seen) = self.cluster.stores.pods.get(&seen) {
                    finalizer::free(&self.cluster.client, &*seen).await?;
                }
                Ok(Some(SOON))
            }
            Step::Wait { why, recheck } => {
                await_listing(of, access, observed, why);
                Ok(Some(recheck))
            }
            Step::Release => Ok(None),
        }
    }

    /// Forgets the old runner; the next reconcile finds none and makes one.
    async fn start_anew(&self, of: Subject<'_>, assessment: &Assessment) -> Result<(), Error> {
        let name = of.runner.name_any();
        linked::remove(of.runner, &self.cluster).await?;
        let failed = assessment.trouble.as_ref().is_some_and(|trouble| trouble.cause.is_failure());
        let attempts = of.runner.status.as_ref().and_then(|status| status.attempts).unwrap_or_default();
        let attempts = if failed { attempts.saturating_add(1) } else { 0 };
        // A new pod is a new registration: what was known about the old one must not pass for knowledge about the new one.
        let patch = Patch::Merge(serde_json::json!({ "status": {
            "runnerId": null, "registeredAt": null, "podUid": null, "phase": null, "reason": null, "message": null, "workflow": null,
            "attempts": attempts,
        }}));
        let runners = self.cluster.beside::<Runner>(&**of.runner);
        ignore_not_found(runners.patch_status(&name, &PatchParams::default(), &patch).await)?;
        if just_in_time::is_wanted(of.runner) {
            self.supplies.configurations.discard(of.runner, of.uid).await?;
        }
        self.memory.forget(of.uid);
        Ok(())
    }
}
