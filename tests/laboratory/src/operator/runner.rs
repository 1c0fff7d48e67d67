//! One Runner, one pod, one registration: `host/operator/src/runner.rs`, `runner/stop.rs`, `removal.rs`, `token.rs`.

use std::time::Duration;

use pacer_core::allowance::{Cost, Purpose};
use pacer_core::facts::{PodFacts, Remote, RunnerFacts};
use pacer_core::phase::{self, Assessment, Phase, ToldBy};
use pacer_core::stop::{self, IDLE_GRACE, PodDeletion, Step, WaitReason};

use super::observe::{IN_FLIGHT, Known, Observed};
use super::{Halt, Operator, SYNC};
use crate::clock::{SECOND, elapsed, millis};
use crate::object::RunnerId;
use crate::outside::{Broken, Outside, Removal, Unanswered};
use crate::rules::Defect;

/// A registration token is used for so long.
const TOKEN: u64 = 50 * 60 * SECOND;

/// A runner that is younger shows no phase before it is online.
const QUIET_START: Duration = Duration::from_secs(60);

impl Operator {
    pub(super) fn reconcile_runner(&mut self, outside: &mut Outside, id: RunnerId) -> Result<Option<Duration>, Halt> {
        let Some(object) = outside.runners.seen(id).copied() else {
            self.known.remove(&id);
            self.jobs.remove(&id);
            return Ok(None);
        };
        let observed = self.observe(outside, id, &object);
        if observed.facts.deleting.is_some() {
            return self.stop_runner(outside, id, observed);
        }
        let assessment = self.rules.assess(&observed.facts, outside.clock.now);
        let next = match (&observed.facts.pod, assessment.phase) {
            (None, Phase::Pending) if !observed.pod_in_flight => self.make_pod(outside, id)?,
            _ => self.follow(outside, &observed, &assessment),
        };
        self.write_status(outside, id, &object, &observed)?;
        Ok(Some(next.min(SYNC)))
    }

    fn follow(&mut self, outside: &mut Outside, observed: &Observed, assessment: &Assessment) -> Duration {
        let facts = &observed.facts;
        let waits = match assessment.phase {
            Phase::Starting | Phase::Dead => {
                phase::wants_listing(facts, assessment, ToldBy::Listings, outside.clock.now) == Some(Duration::ZERO)
            }
            // Online, but the listing is older than the pod's last change.
            Phase::Busy => facts.unlisted_since && matches!(facts.remote, Remote::Online { .. }),
            _ => false,
        };
        if waits {
            self.lister.hurry(outside, observed.waited);
        }
        SYNC
    }

    /// What the next process has to know: GitHub's id, and that there was a pod.
    fn write_status(
        &mut self,
        outside: &mut Outside,
        id: RunnerId,
        object: &crate::object::Runner,
        observed: &Observed,
    ) -> Result<(), Halt> {
        let facts = &observed.facts;
        let young = elapsed(object.created, outside.clock.at) < QUIET_START && facts.known_id.is_none();
        let (known_id, had_pod) = (facts.known_id.or(object.known_id), facts.had_pod || object.had_pod);
        if young || (known_id, had_pod) == (object.known_id, object.had_pod) {
            return Ok(());
        }
        // Unless that was written already, and the watch is late.
        if outside.runners.truth(id).is_some_and(|truth| (truth.known_id, truth.had_pod) == (known_id, had_pod)) {
            return Ok(());
        }
        outside.change_runner(id, |runner| (runner.known_id, runner.had_pod) = (known_id, had_pod))?;
        Ok(())
    }

    fn make_pod(&mut self, outside: &mut Outside, id: RunnerId) -> Result<Duration, Halt> {
        let at = outside.clock.at;
        if self.token_until <= at {
            self.turn(outside, u64::from(id), Purpose::Start, Cost { points: 5, creations: 1 })?;
            outside.token()?;
            self.token_until = at + TOKEN;
        }
        let made = outside.create_pod(id);
        match made {
            Ok(()) | Err(Broken::Exists) => {
                self.known.entry(id).or_default().sent = Some(at);
                Ok(if made.is_ok() { SYNC } else { IN_FLIGHT })
            }
            Err(broken) => {
                self.known.entry(id).or_default().unanswered = true;
                Err(broken.into())
            }
        }
    }

    /// Asks GitHub to remove a registration.
    pub(super) fn unregister(
        &mut self,
        outside: &mut Outside,
        id: RunnerId,
        registration: u64,
        facts: &RunnerFacts,
    ) -> Result<Removal, Halt> {
        self.turn(outside, u64::from(id), Purpose::Removal, Cost { points: 5, creations: 0 })?;
        let at = outside.clock.at;
        // A watch may stand still: the API server is asked for the pod before each removal.
        let now = outside.clock.now;
        let live = outside.pods.truth(id).filter(|_| facts.needs_look(now)).map(|pod| pod.facts(false));
        if live.is_some_and(|live| self.rules.facts(RunnerFacts { pod: Some(live), ..facts.clone() }).works(now)) {
            self.known.entry(id).or_default().refused_busy = Some(at);
            return Ok(Removal::Busy);
        }
        let mut removal = match outside.remove_runner(registration) {
            Ok(removal) => removal,
            Err(Unanswered::Refused(_)) if self.rules.has(Defect::RefusalIsGone) => Removal::Removed,
            Err(unanswered) => return Err(unanswered.into()),
        };
        if self.rules.has(Defect::BusyIsGone) {
            removal = Removal::Removed;
        }
        let known = self.known.entry(id).or_default();
        match removal {
            Removal::Removed | Removal::Absent => known.unregistered = Some(at),
            Removal::Busy => known.refused_busy = Some(at),
        }
        Ok(removal)
    }

    fn stop_runner(&mut self, outside: &mut Outside, id: RunnerId, mut observed: Observed) -> Result<Option<Duration>, Halt> {
        let (at, now) = (outside.clock.at, outside.clock.now);
        let limits = self.stop;
        if observed.facts.left_for_good() && observed.facts.unregistered.is_none() {
            self.known.entry(id).or_default().unregistered = Some(at);
            observed.facts.unregistered = Some(Duration::ZERO);
        }
        observed.facts.github_refuses = self.is_refused();
        let is_made = |known: &Known| known.sent.is_some() || known.unanswered;
        let unseen = self.known.get(&id).is_some_and(is_made) && observed.facts.pod.is_none();
        // However long ago its pod was made, the API server is asked for it before it counts as gone.
        let being_made = observed.pod_in_flight || (unseen && outside.pods.truth(id).is_some());
        let mut step = self.rules.stop(&observed.facts, observed.refused_busy, &limits, now);
        if let Step::Unregister { id: registration } = step {
            step = match self.unregister(outside, id, registration, &observed.facts)? {
                Removal::Removed | Removal::Absent => {
                    observed.facts.unregistered = Some(Duration::ZERO);
                    self.rules.stop(&observed.facts, None, &limits, now)
                }
                Removal::Busy => Step::Wait { why: WaitReason::Draining, recheck: stop::BUSY_RETRY },
            };
        }
        match step {
            Step::Release if being_made => Ok(Some(Duration::from_secs(1))),
            Step::Release => {
                // Done; the watch is late to show it.
                if outside.runners.truth(id).is_some() {
                    let refused = observed.facts.github_refuses && observed.facts.unregistered.is_none();
                    outside.release_runner(id, refused)?;
                }
                Ok(Some(SYNC))
            }
            Step::DeletePod(how) => {
                self.delete_pod(outside, id, &observed, how)?;
                Ok(Some(Duration::from_secs(5)))
            }
            Step::Wait { why, recheck } => {
                if matches!(why, WaitReason::ListingUnknown | WaitReason::Finishing | WaitReason::Registering) {
                    self.lister.hurry(outside, observed.waited);
                }
                Ok(Some(recheck.min(SYNC)))
            }
            Step::FreePod | Step::Unregister { .. } => Ok(Some(Duration::from_secs(5))),
        }
    }

    fn delete_pod(&mut self, outside: &mut Outside, id: RunnerId, observed: &Observed, how: PodDeletion) -> Result<(), Halt> {
        let Some(pod) = &observed.facts.pod else { return Ok(()) };
        let asked = (pod.resource_version.clone(), how);
        if self.known.get(&id).and_then(|known| known.pod_deleted.as_ref()) == Some(&asked) {
            return Ok(());
        }
        let number = |text: &str| text.parse::<u64>().ok();
        let uid = pod.uid.as_deref().and_then(number).and_then(|uid| u32::try_from(uid).ok()).ok_or(Halt::Failed)?;
        let unchanged = (how == PodDeletion::IfUnchanged).then(|| number(&pod.resource_version)).flatten();
        let grace = match how {
            PodDeletion::Force => Some(0),
            PodDeletion::Graceful => Some(millis(IDLE_GRACE)),
            PodDeletion::Patient | PodDeletion::IfUnchanged => None,
        };
        Self::note_deletion(outside, pod, how);
        match outside.delete_pod(id, uid, unchanged, grace) {
            Ok(()) => {
                self.known.entry(id).or_default().pod_deleted = Some(asked);
                Ok(())
            }
            // It is decided anew when the watch shows what changed.
            Err(Broken::Changed) => Ok(()),
            Err(broken) => Err(broken.into()),
        }
    }

    fn note_deletion(outside: &mut Outside, pod: &PodFacts, how: PodDeletion) {
        outside.note(|| format!("deletes a pod {how:?}, worker {:?}", pod.worker));
    }
}
