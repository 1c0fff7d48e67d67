//! Taking a runner down, one step per reconcile: [`pacer_core::stop`] decides, this acts.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Api, Resource, ResourceExt};
use pacer_api::Runner;
use pacer_api::names::finalizer;
use pacer_cluster::answer::ignore_not_found;
use pacer_cluster::events::Reason;
use pacer_cluster::live;
use pacer_cluster::owner::is_owned;
use pacer_core::rollout::Leaving;
use pacer_core::stop::{self, PodDeletion, Step, WaitReason};
use pacer_github::Removal;
use pacer_github::runner_list::Haste;
use serde_json::json;

use super::{Runners, Subject, linked};
use crate::access::{Access, NEXT_PERMIT};
use crate::arc;
use crate::error::Error;
use crate::observe::Observed;
use crate::removal::Registered;

/// How soon to look again for a pod that was made and that the watch has not shown.
const POD_RECHECK: Duration = Duration::from_secs(1);

impl Runners {
    /// Takes the next steps until one has to be waited for.
    pub(super) async fn stop(
        &self,
        of: Subject<'_>,
        access: Result<Access, Error>,
        mut observed: Observed,
    ) -> Result<Action, Error> {
        let limits = &self.settings.stop;
        if observed.facts.left_for_good() && observed.facts.unregistered.is_none() {
            // Remembered, since no listing will be newer than the deletion of its pod.
            self.memory.observer.removals.confirm(of.uid, of.clock);
            observed.facts.unregistered = Some(Duration::ZERO);
        }
        observed.facts.github_refuses = match &access {
            Ok(access) => access.outage().is_some_and(|outage| outage.refused),
            Err(error) => !matches!(error, Error::Kube(_)),
        };
        observed.facts.github_forbidden = matches!(access, Err(Error::NotAllowed(_)));
        let step = match (stop::next(&observed.facts, observed.refused_busy, limits, of.clock.now), &access) {
            (Step::Unregister { id }, Ok(access)) => {
                let Some(_permit) = access.permit() else { return Ok(Action::requeue(NEXT_PERMIT)) };
                let namespace = of.runner.namespace().unwrap_or_default();
                let registered = Registered { uid: of.uid, id, namespace: &namespace, facts: &observed.facts };
                match self.memory.observer.removals.unregister(access, registered, of.clock).await? {
                    Removal::Removed | Removal::Absent => {
                        tracing::info!(runner = %observed.facts.name, namespace = of.runner.namespace(), id, "runner unregistered");
                        observed.facts.unregistered = Some(Duration::ZERO);
                        stop::next(&observed.facts, None, limits, of.clock.now)
                    }
                    Removal::Busy { message } => {
                        if observed.refused_busy.is_none() {
                            let note = format!("the runner stays until its job is done: {message}");
                            self.cluster.events.publish(Reason::RunnerDraining, &of.runner.object_ref(&()), None, &note).await;
                        }
                        Step::Wait { why: WaitReason::Draining, recheck: stop::BUSY_RETRY }
                    }
                }
            }
            (step, _) => step,
        };
        self.take(of, access, &observed, step).await
    }

    async fn take(
        &self,
        of: Subject<'_>,
        access: Result<Access, Error>,
        observed: &Observed,
        step: Step,
    ) -> Result<Action, Error> {
        let namespace = of.runner.namespace().unwrap_or_default();
        match step {
            // Its pod may register yet, and nobody would remove that.
            Step::Release if self.may_have_pod(of, observed).await? => Ok(Action::requeue(POD_RECHECK)),
            Step::Release => {
                linked::remove(of.runner, &self.cluster).await?;
                self.release(of.runner).await?;
                self.memory.released.set(of.uid, of.runner.resource_version());
                Ok(Action::await_change())
            }
            Step::DeletePod(how) => {
                self.memory.observer.removals.delete_pod(&namespace, &observed.facts, how).await?;
                if how == PodDeletion::Force {
                    let note = format!("Forcefully deleted pod '{}': its node no longer answers for it", observed.facts.name);
                    self.cluster.events.publish(Reason::PodDeleted, &of.runner.object_ref(&()), None, &note).await;
                }
                Ok(Action::requeue(Duration::from_secs(5)))
            }
            Step::FreePod => {
                if let Some(pod) = self.cluster.stores.pod_of(of.runner) {
                    arc::finalizer::free(&self.cluster.client, &*pod).await?;
                }
                Ok(Action::requeue(Duration::from_secs(5)))
            }
            Step::Wait { why, recheck } => {
                if let Ok(access) = &access {
                    await_listing(of, access, observed, why);
                }
                let leaving = Leaving::of(observed.facts.pod.as_ref(), of.clock.now);
                if !why.is_passing() || leaving == Some(Leaving::Hangs) {
                    let note = waiting(why, access.as_ref().err(), observed, leaving);
                    self.memory.statuses.write_stopping(of, observed, why, &note).await?;
                }
                let hangs = match leaving {
                    Some(Leaving::Ends { hangs_at: Some(at) }) => {
                        Duration::try_from(at.duration_since(of.clock.now)).unwrap_or_default()
                    }
                    _ => recheck,
                };
                Ok(Action::requeue(recheck.min(hangs).min(self.settings.sync_period)))
            }
            Step::Unregister { id } => {
                // Only without credentials: with them the step was taken above.
                let note = match access {
                    Err(error) => format!(
                        "runner {id} can't be removed from GitHub: {error}; give the credentials back, or take the finalizer away by hand and remove the runner in GitHub's settings"
                    ),
                    Ok(_) => format!("runner {id} is to be removed from GitHub"),
                };
                self.memory.statuses.write_stopping(of, observed, WaitReason::ListingUnknown, &note).await?;
                Ok(Action::requeue(self.settings.sync_period))
            }
        }
    }

    /// Whether a pod of it was made that the watch has not shown, however late that is. One that is taken for failed is looked for.
    async fn may_have_pod(&self, of: Subject<'_>, observed: &Observed) -> Result<bool, Error> {
        if observed.pod_in_flight() {
            return Ok(true);
        }
        if observed.pod_sent.is_none() && !observed.pod_unanswered {
            return Ok(false);
        }
        let namespace = of.runner.namespace().unwrap_or_default();
        let pod = live::metadata::<Pod>(&self.cluster.client, &namespace, &observed.facts.name).await?;
        Ok(pod.is_some_and(|pod| is_owned(&pod, of.uid)))
    }

    /// Takes the finalizer away; others stay, they are not ours.
    async fn release(&self, runner: &Runner) -> Result<(), Error> {
        let left: Vec<&String> = runner.finalizers().iter().filter(|name| *name != finalizer::RUNNER).collect();
        let patch = json!({"metadata": {"resourceVersion": runner.resource_version(), "finalizers": left}});
        let runners: Api<Runner> = self.cluster.beside(runner);
        ignore_not_found(runners.patch_metadata(&runner.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await)?;
        Ok(())
    }
}

/// Hurries the listing that a stop waits for, if it waits for one.
pub(super) fn await_listing(of: Subject<'_>, access: &Access, observed: &Observed, why: WaitReason) {
    let haste = match why {
        // The event of its job's end is under way, and says the same.
        WaitReason::Finishing if observed.facts.reports_job.is_some() => return,
        WaitReason::ListingUnknown | WaitReason::Finishing => Haste::Removal,
        WaitReason::Registering => Haste::Registration,
        WaitReason::Draining | WaitReason::Confirming | WaitReason::Leaving | WaitReason::PodTerminating => return,
    };
    access.await_listing(&observed.facts.name, haste, observed.waited(of.clock));
}

fn waiting(why: WaitReason, credentials: Option<&Error>, observed: &Observed, leaving: Option<Leaving>) -> String {
    let name = &observed.facts.name;
    match (why, credentials) {
        (_, Some(error)) => format!("waiting for GitHub: {error}"),
        (WaitReason::Draining, _) => format!("{name} runs a job; it is removed as soon as the job is done"),
        (WaitReason::Registering, _) => {
            format!("{name} has started and may register any moment; it is removed as soon as GitHub lists it")
        }
        (WaitReason::ListingUnknown, _) => format!("waiting for a listing from GitHub that says whether {name} is registered"),
        (WaitReason::Finishing, _) => format!("{name} has done its job and removes itself from GitHub"),
        (WaitReason::Confirming, _) => format!("nothing may say for a moment that {name} runs a job before it is removed"),
        (WaitReason::Leaving, _) => format!("GitHub has removed {name}, which ends by itself"),
        (WaitReason::PodTerminating, _) if leaving == Some(Leaving::Hangs) => format!(
            "the pod of {name} should be gone and is not: no rollout waits for it any more, and it is deleted by force soon; look at its node and its finalizers"
        ),
        (WaitReason::PodTerminating, _) => format!("the pod of {name} takes its time to end"),
    }
}
