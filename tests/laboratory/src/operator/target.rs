//! One set per template, and the way from one to the next: `host/operator/src/deployment.rs` and its folder.

use std::time::Duration;

use jiff::Timestamp;
use pacer_core::rollout;

use super::{Halt, Operator, SYNC};
use crate::object::{Set, Target};
use crate::outside::{Broken, Outside};

/// `spec.rolloutMaxSurge` where the user gave none: a quarter.
fn surge(desired: u32) -> u32 {
    desired.div_ceil(4).max(1)
}

impl Operator {
    pub(super) fn reconcile_target(&mut self, outside: &mut Outside) -> Result<Option<Duration>, Halt> {
        let Some(target) = outside.targets.seen(()).copied() else { return Ok(None) };
        // Older templates have smaller numbers.
        let sets: Vec<(u32, Set)> = outside.sets.all_seen().map(|(id, set)| (id, *set)).collect();
        let newest = sets.iter().copied().find(|(_, set)| set.revision == target.revision);
        let Some((newest_id, newest)) = newest else {
            // Asked before a set is made: one that was deleted would get a new one each time.
            if outside.targets.truth(()).is_some() {
                self.create_set(outside, &target, &sets)?;
            }
            return Ok(Some(SYNC));
        };
        let now = outside.clock.now;
        let old: Vec<(u32, Set)> = sets.into_iter().filter(|(id, _)| *id != newest_id).collect();
        let described: Vec<rollout::Set> = old.iter().map(|(id, set)| self.describe(*id, set, now)).collect();
        let desired = target.replicas;
        let plan = self.rules.rollout(desired, surge(desired), self.describe(newest_id, &newest, now), &described);
        if newest.replicas != plan.newest || newest.effective != target.effective {
            let (replicas, effective) = (plan.newest, target.effective);
            self.asked.note(newest_id, newest.generation, replicas, now);
            outside.change_set(newest_id, |set| (set.replicas, set.effective) = (replicas, effective))?;
        }
        for ((id, set), wanted) in old.iter().zip(&plan.old) {
            if set.replicas != *wanted {
                self.asked.note(*id, set.generation, *wanted, now);
                outside.change_set(*id, |set| set.replicas = *wanted)?;
            }
        }
        for (id, set) in plan.delete.iter().filter_map(|index| old.get(*index)) {
            match outside.delete_set(*id, set.version) {
                Ok(()) | Err(Broken::Changed) => {}
                Err(broken) => return Err(broken.into()),
            }
        }
        Ok(Some(if plan.complete { SYNC } else { Duration::from_secs(5) }))
    }

    fn describe(&self, id: u32, set: &Set, now: Timestamp) -> rollout::Set {
        let summary = self.summaries.get(&id);
        rollout::Set {
            wanted: set.replicas,
            // Nobody has counted it yet: nothing new is made on the guess that there is room.
            alive: summary.map_or(u32::MAX, |summary| summary.alive),
            online: summary.map_or(0, |summary| summary.online),
            busy: summary.map_or(0, |summary| summary.busy),
            leaving: summary.map_or(0, |summary| summary.leaving),
            present: summary.map_or(u32::MAX, |summary| summary.present),
            observed: summary.is_some_and(|summary| summary.generation == set.generation),
            asked: self.asked.most(&id, set.generation, now),
        }
    }

    fn create_set(&self, outside: &mut Outside, target: &Target, before: &[(u32, Set)]) -> Result<(), Halt> {
        let (desired, now) = (target.replicas, outside.clock.now);
        let described: Vec<rollout::Set> = before.iter().map(|(id, set)| self.describe(*id, set, now)).collect();
        let replicas = rollout::first(desired, surge(desired), &described);
        let set = Set {
            revision: target.revision,
            replicas,
            effective: target.effective,
            generation: 1,
            attempts: 0,
            scaled_up: None,
            version: 0,
        };
        match outside.create_set(target.revision, set) {
            Ok(()) | Err(Broken::Exists) => Ok(()),
            Err(broken) => Err(broken.into()),
        }
    }
}
