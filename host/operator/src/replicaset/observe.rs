//! The runners of a RunnerReplicaSet at one moment.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ListParams;
use pacer_api::{Runner, RunnerReplicaSet};
use pacer_cluster::object::Uid;
use pacer_core::facts::RunnerFacts;
use pacer_core::fleet::{self, Member, Plan};
use pacer_core::phase::{self, Assessment, Phase, assess};
use pacer_core::policy::Counts;
use pacer_core::replacement::{ReplacementHold, Replicas};
use pacer_core::rollout::Leaving;
use pacer_core::room::NoRoom;
use pacer_core::scale_down::since;

use super::{Memo, ReplicaSets, Subject, pool_of};
use crate::error::Error;
use crate::pool::Scaled;
use crate::published::{FleetSummary, IN_FLIGHT};
use crate::standing;
use crate::target::owner_of;
use crate::usage::{Look, Pool};

/// Everything known about the runners.
#[derive(Default)]
pub(crate) struct Fleet {
    /// The Runner objects, in the order of `members`.
    pub(super) runners: Vec<Arc<Runner>>,
    /// Facts and assessment of each.
    pub(super) members: Vec<(RunnerFacts, Assessment)>,
    /// Creations that the watch has not shown.
    pub(super) in_flight: u32,
    /// Failed attempts in a row.
    pub(super) attempts: u32,
    /// When the place of a failed runner is filled again, once that was asked.
    pub(super) next_attempt: Option<Timestamp>,
    /// When the number last changed.
    pub(super) scaled: Scaled,
}

impl Fleet {
    /// Runners that exist and are not on their way out.
    fn alive(&self) -> u32 {
        count(self.members.iter().filter(|(_, assessment)| assessment.phase != Phase::Stopping)).saturating_add(self.in_flight)
    }

    /// Names of runners that are neither over nor on their way out.
    fn unfinished(&self) -> Arc<[String]> {
        let alive = self.members.iter().filter(|(_, assessment)| assessment.phase.is_alive());
        alive.map(|(facts, _)| facts.name.clone()).collect()
    }

    /// Pods of runners on their way out.
    fn leaving(&self, now: Timestamp) -> impl Iterator<Item = Leaving> {
        let stopping = self.members.iter().filter(|(_, assessment)| assessment.phase == Phase::Stopping);
        stopping.filter_map(move |(facts, _)| Leaving::of(facts.pod.as_ref(), now))
    }

    /// How long until the next of them hangs, unless it is gone by then.
    pub(super) fn next_hanging(&self, now: Timestamp) -> Option<Duration> {
        let ends = self.leaving(now).filter_map(|leaving| match leaving {
            Leaving::Ends { hangs_at } => hangs_at,
            Leaving::Hangs => None,
        });
        ends.min().map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default())
    }

    /// Runners by the phase that people are told, without those that are over.
    pub(super) fn told(&self, now: Timestamp) -> Counts {
        phase::counts(self.members.iter().map(|(facts, assessment)| assessment.phase.as_told(facts, now)))
    }

    /// For those who scale the RunnerReplicaSet and roll it out.
    pub(super) fn summary(&self, set: &RunnerReplicaSet, hold: &ReplacementHold, now: Timestamp) -> FleetSummary {
        let assessments = || self.members.iter().map(|(_, assessment)| assessment);
        let hanging = count(self.leaving(now).filter(|leaving| *leaving == Leaving::Hangs));
        FleetSummary {
            generation: set.metadata.generation.unwrap_or_default(),
            alive: self.alive(),
            online: count(assessments().filter(|assessment| assessment.phase.is_online())),
            busy: count(assessments().filter(|assessment| assessment.phase == Phase::Busy)),
            leaving: count(self.leaving(now)).saturating_sub(hanging),
            hanging,
            dead: count(assessments().filter(|assessment| assessment.phase == Phase::Dead)),
            present: count(assessments()).saturating_add(self.in_flight),
            counts: phase::counts(assessments().map(|assessment| assessment.phase)),
            told: self.told(now),
            unfinished: self.unfinished(),
            no_room: NoRoom::among(assessments()),
            finished: hold.finished(),
            accounted: hold.current(),
        }
    }
}

fn count<T>(of: impl Iterator<Item = T>) -> u32 {
    u32::try_from(of.count()).unwrap_or(u32::MAX)
}

impl Memo {
    /// Who has come online for the first time, as far as this process saw them before: one that lost contact and is back has not started.
    fn started<'a>(&mut self, members: &'a [(RunnerFacts, Assessment)]) -> Vec<&'a RunnerFacts> {
        let mut started = Vec::new();
        let mut starting = BTreeSet::new();
        for (facts, assessment) in members {
            let was_starting = self.starting.contains(&facts.uid);
            match assessment.phase.is_online() {
                true if was_starting => started.push(facts),
                false if was_starting || !facts.was_registered() => {
                    starting.insert(facts.uid.clone());
                }
                _ => {}
            }
        }
        self.starting = starting;
        started
    }

    /// Notes runners that have registered since the last pass. One that did so long ago says nothing about those that start now.
    fn note_registrations(&mut self, members: &[(RunnerFacts, Assessment)]) {
        let registered: BTreeSet<String> = members
            .iter()
            .filter(|(facts, _)| facts.current && facts.was_registered())
            .map(|(facts, _)| facts.name.clone())
            .collect();
        if !registered.is_subset(&self.registered) {
            self.registering.seen();
        }
        self.registered = registered;
    }

    /// Whether a current runner is online that was not at the last pass.
    fn came_online(&mut self, members: &[(RunnerFacts, Assessment)]) -> bool {
        let online: BTreeSet<String> = members
            .iter()
            .filter(|(facts, assessment)| facts.current && assessment.phase.is_online())
            .map(|(facts, _)| facts.name.clone())
            .collect();
        let before = self.online.replace(online.clone());
        before.is_some_and(|before| online.iter().any(|name| !before.contains(name)))
    }
}

impl ReplicaSets {
    /// Observes all runners, and records what that shows of the RunnerReplicaSet.
    pub(super) async fn observe(&self, of: Subject<'_>) -> Result<Fleet, Error> {
        let runners = self.cluster.stores.runners_of(of.uid);
        let siblings_register = self.memory.memos.read(of.uid, |memo| memo.registering.holds()).unwrap_or_default();
        let mut members = Vec::with_capacity(runners.len());
        let mut looks = Vec::with_capacity(runners.len());
        for runner in &runners {
            let facts = self.runners.observer.observe(runner, of.access, of.clock).await?.facts;
            let facts = RunnerFacts { siblings_register: siblings_register && facts.current, ..facts };
            let assessment = assess(&facts, of.clock.now);
            looks.extend(self.tell(of.set, &facts, &assessment, of.clock.now));
            members.push((facts, assessment));
        }
        self.runners.usage.see(of.uid, Pool::of_set(of.set), looks, of.clock.now);
        let seen: BTreeSet<&str> = members.iter().map(|(facts, _)| facts.name.as_str()).collect();
        let adopted = self
            .memory
            .adopted
            .read(of.uid, |adopted| count(adopted.recent(of.clock.instant).filter(|name| !seen.contains(name))));
        let unseen = self.unseen(of, &seen).await?;
        let status = of.set.status.as_ref();
        let (fleet, started) = self.memory.memos.change(of.uid, |memo| {
            memo.in_flight = unseen;
            let started: Vec<u32> = memo
                .started(&members)
                .into_iter()
                .filter_map(|facts| facts.pod.as_ref())
                .map(|pod| since(pod.created, of.clock.now))
                .collect();
            memo.note_registrations(&members);
            let stored = memo.attempts.or_else(|| status.and_then(|status| status.failed_attempts)).unwrap_or_default();
            let attempts = if memo.came_online(&members) { 0 } else { stored };
            memo.attempts = Some(attempts);
            let stored = |time: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| time.map(|time| time.0);
            let scaled = Scaled {
                up: memo.scaled.up.or_else(|| stored(status?.last_scale_up_time.as_ref())),
                down: memo.scaled.down.or_else(|| stored(status?.last_scale_down_time.as_ref())),
            };
            let in_flight = u32::try_from(memo.in_flight.len()).unwrap_or(u32::MAX).saturating_add(adopted.unwrap_or_default());
            (Fleet { in_flight, attempts, next_attempt: None, scaled, runners, members: Vec::new() }, started)
        });
        if !started.is_empty() {
            self.memory.starts.change(&pool_of(of.set, of.uid), |starts| started.into_iter().for_each(|took| starts.add(took)));
        }
        Ok(Fleet { members, ..fleet })
    }

    /// Runners that were made and that the watch has not shown, and when they were made, or found. One that would be taken for failed is looked
    /// for first: the watch may stand still.
    async fn unseen(&self, of: Subject<'_>, seen: &BTreeSet<&str>) -> Result<HashMap<String, Instant>, Error> {
        let made = self.memory.memos.read(of.uid, |memo| memo.in_flight.clone()).unwrap_or_default();
        let is_recent = |since| of.clock.instant.saturating_duration_since(since) < IN_FLIGHT;
        let unseen = made.into_iter().filter(|(name, _)| !seen.contains(name.as_str()));
        let (mut unseen, late): (HashMap<_, _>, HashMap<_, _>) = unseen.partition(|(_, since)| is_recent(*since));
        if !late.is_empty() {
            let there = self.cluster.beside::<Runner>(of.set).list_metadata(&ListParams::default()).await?;
            let found = there.items.iter().map(ResourceExt::name_any).filter(|name| late.contains_key(name));
            unseen.extend(found.map(|name| (name, of.clock.instant)));
        }
        Ok(unseen)
    }

    /// Says where a runner stands. Returns what it does with its time.
    fn tell(&self, set: &RunnerReplicaSet, facts: &RunnerFacts, assessment: &Assessment, now: Timestamp) -> Option<Look> {
        let uid = Uid::new(&facts.uid)?;
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let subject = standing::Subject { uid: &uid, namespace, set: set.metadata.name.as_deref() };
        self.runners.standings.tell(subject, facts, assessment, now);
        let standing = self.runners.standings.of(&uid)?;
        Look::of(facts, &standing, self.runners.observer.jobs.get(&uid).as_ref())
    }

    /// What to do about the number of runners.
    pub(super) fn plan(&self, of: Subject<'_>, fleet: &Fleet) -> Plan {
        let members: Vec<Member> = fleet
            .members
            .iter()
            .map(|(facts, assessment)| Member {
                phase: assessment.phase,
                current: facts.current,
                age: since(facts.created, of.clock.now),
            })
            .collect();
        let desired = of.set.spec.replicas_or_default();
        let replicas = Replicas {
            effective: of.set.spec.effective_time.as_ref().map(|time| time.0),
            ephemeral: of.set.spec.template.spec.config.is_ephemeral(),
            autoscaled: owner_of(of.set).is_some_and(|owner| self.cluster.stores.is_scaled(&owner.target)),
            scaled_up: fleet.scaled.up,
            newest: fleet.members.iter().map(|(facts, _)| facts.created).max(),
            missing: desired.saturating_sub(fleet.alive()),
        };
        let accepted = self.memory.accepted.get(of.uid).unwrap_or_default();
        let held = |memo: &mut Memo| memo.hold.held(&replicas, accepted.numbers(), of.clock.now, of.clock.instant);
        let finished = self.memory.memos.change(of.uid, held);
        // While templates are exchanged the autoscaler sees the runners of the older one, and may have nothing to account for: what is made
        // stands in for no finished runner then, as within one set in `fleet::exchange`.
        let target = self.cluster.stores.target_of(of.set);
        let exchanged = target.is_some_and(|target| self.cluster.stores.sets_of(&target).len() > 1);
        fleet::plan(&fleet::Fleet {
            desired,
            members: &members,
            in_flight: fleet.in_flight,
            finished: if exchanged { 0 } else { finished },
            surge: desired.div_ceil(10).max(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use pacer_core::facts::{Flag, Remote};

    use super::*;

    fn member(online: bool, registered: bool) -> [(RunnerFacts, Assessment); 1] {
        let facts = RunnerFacts { uid: "u".to_owned(), known_id: registered.then_some(7), ..RunnerFacts::default() };
        let phase = if online { Phase::Busy } else { Phase::Starting };
        [(facts, Assessment { phase, trouble: None })]
    }

    #[test]
    fn a_registration_is_news_once_and_only_of_the_current_template() {
        let named = |name: &str, current, registered: bool| {
            let known_id = registered.then_some(7);
            let facts = RunnerFacts { name: name.to_owned(), current, known_id, ..RunnerFacts::default() };
            (facts, Assessment { phase: Phase::Starting, trouble: None })
        };
        let mut memo = Memo::default();
        for (what, members, expected) in [
            ("none has registered", vec![named("a", true, false)], false),
            ("one of an older template has", vec![named("old", false, true)], false),
            ("one has", vec![named("a", true, true)], true),
            ("long ago", vec![named("a", true, true), named("b", true, false)], false),
            ("another one has", vec![named("a", true, true), named("b", true, true)], true),
        ] {
            memo.note_registrations(&members);
            assert_eq!(memo.registering.holds(), expected, "{what}");
            memo.registering.ended_unseen(u32::MAX);
        }
    }

    #[test]
    fn runner_whose_listing_is_old_is_told_as_idle_and_counted_as_busy() {
        let with = |flag| {
            let [(facts, assessment)] = member(true, true);
            (RunnerFacts { remote: Remote::Online { id: 7, flag }, ..facts }, assessment)
        };
        let fleet = Fleet { members: vec![with(Flag::Stale), with(Flag::Busy)], ..Fleet::default() };
        let summary = fleet.summary(&RunnerReplicaSet::default(), &ReplacementHold::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(summary.counts, Counts { busy: 2, ..Counts::default() });
        assert_eq!(summary.told, Counts { busy: 1, idle: 1, ..Counts::default() });
    }

    fn starts(seen: &[(bool, bool)]) -> Vec<bool> {
        let mut memo = Memo::default();
        seen.iter().map(|(online, registered)| !memo.started(&member(*online, *registered)).is_empty()).collect()
    }

    #[test]
    fn start_is_counted_once_and_only_when_it_was_seen_from_the_beginning() {
        let seen = [(false, false), (false, true), (true, true), (true, true), (false, true), (true, true)];
        assert_eq!(starts(&seen), [false, false, true, false, false, false]);
        assert_eq!(starts(&[(true, true), (false, true), (true, true)]), [false; 3], "met online");
        assert_eq!(starts(&[(false, true), (true, true)]), [false; 2], "met offline");
    }
}
