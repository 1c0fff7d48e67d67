//! Runners in trouble: the policy decides, and those that are to be replaced are deleted.

use std::time::Duration;

use futures::{StreamExt, stream};
use kube::Resource;
use pacer_cluster::events::Reason;
use pacer_core::phase::{Assessment, Cause, Phase};
use pacer_core::restart::{self, Remedy};
use pacer_policyset::receipts::Owner;

use super::observe::Fleet;
use super::{ReplicaSets, Subject};
use crate::access::Access;
use crate::decisions::{RestartDecision, RestartQuestion};
use crate::error::Error;
use crate::pool;
use crate::settings::FAN_OUT;
use crate::target::{owner_of, pool_reference};

impl ReplicaSets {
    /// Asks about runners in trouble and removes those that are to be replaced. Returns when the next one is due.
    pub(super) async fn restarts(&self, of: Subject<'_>, fleet: &mut Fleet) -> Result<Duration, Error> {
        let decided = self.decisions.restart(self.question(of, fleet)?).await;
        fleet.next_attempt = restart::next_attempt(decided.iter().filter_map(|decision| {
            let (_, assessment) = fleet.members.get(decision.member)?;
            Some((assessment.trouble.as_ref()?.cause, &decision.remedy))
        }));
        let mut next = self.settings.sync_period;
        let mut replaced = Vec::new();
        for decision in decided {
            match decision.remedy {
                Remedy::Wait { recheck, .. } => next = next.min(recheck),
                Remedy::Replace | Remedy::Recreate => replaced.push(decision),
                Remedy::Quarantine => self.quarantine(of, fleet, &decision).await?,
            }
        }
        self.report(of, fleet, &replaced).await;
        self.count(of, fleet, &replaced);
        let gone: Vec<usize> = replaced.iter().map(|decision| decision.member).collect();
        self.delete(of, fleet, &gone).await?;
        Ok(next)
    }

    fn question<'a>(&self, of: Subject<'a>, fleet: &'a Fleet) -> Result<RestartQuestion<'a>, Error> {
        let budget = of.access.and_then(Access::budget);
        Ok(RestartQuestion {
            generation: of.generation,
            awaits_policies: of.awaits_policies,
            pool: pool::of_set(of.set, &fleet.members, budget, fleet.scaled, self.past(of), of.clock.now),
            spec: &of.set.spec.template.spec,
            priority: self.priority(of),
            target: owner_of(of.set).map(|owner| owner.target),
            members: &fleet.members,
            about: of.set.object_ref(&()),
            owner: Owner::set(of.set)?,
            attempts: fleet.attempts,
            clock: of.clock,
        })
    }

    async fn quarantine(&self, of: Subject<'_>, fleet: &Fleet, decision: &RestartDecision) -> Result<(), Error> {
        let Some(runner) = fleet.runners.get(decision.member) else { return Ok(()) };
        self.runners.statuses.quarantine(runner, &decision.reason, of.clock).await?;
        let (set, about) = (of.set.object_ref(&()), Some(runner.object_ref(&())));
        self.cluster.events.publish(Reason::RunnerQuarantined, &set, about, &decision.reason).await;
        Ok(())
    }

    /// Says who is replaced; nothing where all of them did their job.
    async fn report(&self, of: Subject<'_>, fleet: &Fleet, replaced: &[RestartDecision]) {
        let name = |decision: &RestartDecision| {
            fleet.members.get(decision.member).map(|(facts, _)| facts.name.as_str()).unwrap_or_default()
        };
        let surprising = causes(fleet, replaced).any(|cause| cause != Cause::Completed);
        if let (true, Some(first)) = (surprising, replaced.first()) {
            let others = match replaced.len() {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            let note = format!("replaced runner {}{others}: {}; policy {}", name(first), first.reason, first.policy);
            // Events that relate to nobody are merged, and the first one's note would stand for all.
            let about = fleet.runners.get(first.member).map(|runner| runner.object_ref(&()));
            self.cluster.events.publish(Reason::RunnerReplaced, &pool_reference(of.set), about, &note).await;
        }
        for decision in replaced {
            tracing::info!(runner = name(decision), reason = decision.reason, policy = decision.policy, "runner replaced");
        }
    }

    /// Counts failed attempts, and runners that finished.
    fn count(&self, of: Subject<'_>, fleet: &mut Fleet, replaced: &[RestartDecision]) {
        fleet.attempts = restart::attempts(fleet.attempts, false, causes(fleet, replaced));
        let finished: Vec<String> = replaced
            .iter()
            .filter_map(|decision| fleet.members.get(decision.member))
            .filter(|(facts, assessment)| {
                facts.ephemeral && assessment.trouble.as_ref().is_some_and(|trouble| trouble.cause.has_finished())
            })
            .map(|(facts, _)| facts.name.clone())
            .collect();
        let count = u64::try_from(finished.len()).unwrap_or(u64::MAX);
        let members = replaced.iter().filter_map(|decision| fleet.members.get(decision.member));
        let unseen = members.filter(|(facts, assessment)| {
            !facts.was_registered() && assessment.trouble.as_ref().is_some_and(|trouble| trouble.cause == Cause::Completed)
        });
        let unseen = u32::try_from(unseen.count()).unwrap_or(u32::MAX);
        // Named before they are counted: whoever is counted is named as well.
        if let (Some(owner), false) = (owner_of(of.set), finished.is_empty()) {
            self.memory.finished.change(&owner.target, |all| all.add(finished, of.clock.now));
        }
        self.memory.memos.change(of.uid, |memo| {
            memo.attempts = Some(fleet.attempts);
            memo.hold.count(count);
            memo.registering.ended_unseen(unseen);
        });
    }

    /// Deletes Runner objects and counts them out.
    pub(super) async fn delete(&self, of: Subject<'_>, fleet: &mut Fleet, gone: &[usize]) -> Result<(), Error> {
        // Owned: the stream below is part of a future that has to be Send for any lifetime.
        let chosen: Vec<_> = gone.iter().filter_map(|index| Some((*index, fleet.runners.get(*index)?.clone()))).collect();
        let removals = &self.runners.observer.removals;
        let results: Vec<(usize, Result<(), Error>)> = stream::iter(chosen)
            .map(|(index, runner)| async move { (index, removals.delete(runner, of.clock).await) })
            .buffered(FAN_OUT)
            .collect()
            .await;
        for (index, result) in &results {
            if let (Ok(()), Some((_, assessment))) = (result, fleet.members.get_mut(*index)) {
                *assessment = Assessment { phase: Phase::Stopping, trouble: None };
            }
        }
        results.into_iter().try_for_each(|(_, result)| result)
    }
}

fn causes<'a>(fleet: &'a Fleet, replaced: &'a [RestartDecision]) -> impl Iterator<Item = Cause> + 'a {
    let members = replaced.iter().filter_map(|decision| fleet.members.get(decision.member));
    members.filter_map(|(_, assessment)| assessment.trouble.as_ref().map(|trouble| trouble.cause))
}
