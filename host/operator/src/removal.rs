//! Removing runners: from GitHub, and their Runner objects. Whoever removes one does it here, so that what was done is known before any
//! listing or watch shows it.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use pacer_api::Runner;
use pacer_cluster::answer::precondition_held;
use pacer_cluster::clock::Clock;
use pacer_cluster::fence::{Fence, NotLeader};
use pacer_cluster::object::Uid;
use pacer_core::facts::RunnerFacts;
use pacer_core::stop::{IDLE_GRACE, PodDeletion};
use pacer_github::Removal;

use crate::access::Access;
use crate::error::Error;
use crate::published::Owned;

/// What this process has done to remove one runner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// When GitHub confirmed that it is not registered any more.
    pub unregistered: Option<Instant>,
    /// When GitHub last answered *busy*.
    pub refused_busy: Option<Instant>,
    /// The API server was asked to delete its object, successfully; the watch may be late to show it.
    pub deleted: Option<Timestamp>,
    /// How its pod was deleted last.
    pod: Option<PodDeleted>,
}

/// A pod was deleted as it was at a resource version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PodDeleted {
    version: String,
    how: PodDeletion,
}

/// Removes runners.
pub struct Removals {
    client: Client,
    fence: Fence,
    done: Owned<Uid, Removed>,
}

impl Removals {
    /// Removes while the fence holds.
    #[must_use]
    pub fn new(client: Client, fence: Fence) -> Self {
        Self { client, fence, done: Owned::default() }
    }

    /// What was done about a runner.
    #[must_use]
    pub fn of(&self, runner: &Uid) -> Removed {
        self.done.get(runner)
    }

    /// Whether a Runner is to go, also before the watch shows it.
    #[must_use]
    pub fn is_leaving(&self, runner: &Runner) -> bool {
        runner.metadata.deletion_timestamp.is_some() || Uid::of(runner).is_ok_and(|uid| self.of(&uid).deleted.is_some())
    }

    /// Asks GitHub to remove the registration `id` of a runner.
    ///
    /// # Errors
    ///
    /// When GitHub's answer says neither that it is gone nor that it is busy, or somebody else may act by now.
    pub async fn unregister(&self, access: &Access, runner: &Uid, id: u64, clock: Clock) -> Result<Removal, Error> {
        if !self.fence.holds() {
            return Err(NotLeader.into());
        }
        let removal = access.github().remove_runner(access.scope(), id).await?;
        match &removal {
            Removal::Removed | Removal::Absent => self.confirm(runner, clock),
            Removal::Busy { .. } => self.done.change(runner, |done| done.refused_busy = Some(clock.instant)),
        }
        Ok(removal)
    }

    /// A runner is known to be unregistered, for good.
    pub fn confirm(&self, runner: &Uid, clock: Clock) {
        self.done.change(runner, |done| done.unregistered = Some(clock.instant));
    }

    /// Deletes a Runner object that was observed with its UID.
    ///
    /// # Errors
    ///
    /// When the API server refuses for any reason but that it is gone or another one by now.
    pub async fn delete(&self, runner: Arc<Runner>, clock: Clock) -> Result<(), Error> {
        let uid = Uid::of(&*runner)?;
        let runners: Api<Runner> = Api::namespaced(self.client.clone(), &runner.namespace().unwrap_or_default());
        let only_this = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(uid.to_string()), resource_version: None }),
            ..DeleteParams::default()
        };
        precondition_held(runners.delete(&runner.name_any(), &only_this).await)?;
        self.done.change(&uid, |done| done.deleted = Some(clock.now));
        Ok(())
    }

    /// Deletes the pod of a runner as it was observed, once.
    ///
    /// # Errors
    ///
    /// When the API server refuses for any reason but that it is gone or another one by now.
    pub async fn delete_pod(&self, namespace: &str, runner: &RunnerFacts, how: PodDeletion) -> Result<(), Error> {
        let (Some(pod), Some(uid)) = (&runner.pod, Uid::new(&runner.uid)) else { return Ok(()) };
        let pod_uid = pod.uid.clone().ok_or(Error::Incomplete("Pod", "UID"))?;
        let asked = PodDeleted { version: pod.resource_version.clone(), how };
        if self.of(&uid).pod.as_ref() == Some(&asked) {
            return Ok(());
        }
        let unchanged = (how == PodDeletion::IfUnchanged).then(|| pod.resource_version.clone());
        let grace = match how {
            PodDeletion::Force => Some(0),
            PodDeletion::Graceful if !runner.own_grace => u32::try_from(IDLE_GRACE.as_secs()).ok(),
            PodDeletion::Graceful | PodDeletion::Patient | PodDeletion::IfUnchanged => None,
        };
        let params = DeleteParams {
            grace_period_seconds: grace,
            preconditions: Some(Preconditions { uid: Some(pod_uid), resource_version: unchanged }),
            ..DeleteParams::default()
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        // Where it changed or was replaced since, the step is decided anew.
        if precondition_held(pods.delete(&runner.name, &params).await)? {
            self.done.change(&uid, |done| done.pod = Some(asked));
        }
        Ok(())
    }

    /// Forgets a runner whose pod was made anew, or that is gone.
    pub fn forget(&self, runner: &Uid) {
        self.done.remove(runner);
    }

    /// Keeps what was done about these only.
    pub fn retain(&self, exists: impl Fn(&Uid) -> bool) {
        self.done.retain(|runner, _| exists(runner));
    }
}
