//! Scaling down: runners that are over, those that never started, and the idle ones that the policy names.
//!
//! An idle runner is unregistered at GitHub first; *busy* ends the attempt, and only then is its object deleted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::{Resource, ResourceExt};
use pacer_cluster::events::Reason;
use pacer_cluster::object::Uid;
use pacer_core::fleet::ScaleDown;
use pacer_core::node::NodeFacts;
use pacer_core::reads::Fact;
use pacer_core::scale_down::{self, Offer};
use pacer_github::Removal;
use pacer_github::runner_list::Haste;
use pacer_policy::Decision;
use pacer_policy::record::{Done, Item};
use pacer_policyset::receipts::{Draft, Owner, not_unregistered};

use super::observe::Fleet;
use super::{ReplicaSets, Subject};
use crate::access::{Access, NEXT_PERMIT};
use crate::attributes::Audience;
use crate::error::Error;
use crate::pool;
use crate::removal::Registered;
use crate::settings::FAN_OUT;
use crate::target::pool_reference;

/// Events per scale-down; the rest is in the log, since every event is a write.
const EVENTS: usize = 3;

/// Runners whose turn to be removed comes at about the same time are removed in one pass.
const TURN: Duration = Duration::from_secs(5);

/// What came of asking the policy and GitHub.
struct Asked {
    /// Indexes of the members that are unregistered at GitHub, so that their Runners can be deleted.
    gone: Vec<usize>,
    /// When to ask again.
    retry: Duration,
    /// Receipt of the policy's decision, which is kept before any Runner is deleted.
    draft: Option<Draft>,
}

impl Asked {
    fn nothing(retry: Duration) -> Self {
        Self { gone: Vec::new(), retry, draft: None }
    }
}

/// A runner that the policy chose, and what GitHub answered.
struct Answer {
    member: usize,
    reason: String,
    removal: Result<Removal, Error>,
}

/// Receipt items of those that no policy is asked about, because they do nothing.
fn spare(wanted: u32, fleet: &Fleet, plan: &ScaleDown) -> Vec<Item> {
    let ended = plan.dead.iter().map(|member| (member, true));
    let named = ended.chain(plan.unstarted.iter().map(|member| (member, false))).filter_map(|(member, ended)| {
        let (facts, _) = fleet.members.get(*member)?;
        Some(Item::new(facts.name.clone(), Done::Spare { wanted, ended }))
    });
    named.collect()
}

impl ReplicaSets {
    /// Carries a plan out. Returns when to go on.
    pub(super) async fn scale_down(&self, of: Subject<'_>, fleet: &mut Fleet, plan: &ScaleDown) -> Result<Duration, Error> {
        let spare = spare(of.set.spec.replicas_or_default(), fleet, plan);
        let mut gone: Vec<usize> = plan.dead.iter().chain(&plan.unstarted).copied().collect();
        let mut drafts = Vec::new();
        if !spare.is_empty() {
            drafts.push(Draft::unasked(Owner::set(of.set)?, of.generation, spare, of.clock.now));
        }
        let mut next = self.settings.sync_period;
        // Keeping runners harms nobody, and whoever wrote the policy set did not ask others.
        let asks = plan.ask > 0 && !of.awaits_policies;
        if let (true, Some(access)) = (asks, of.access) {
            let asked = self.ask(of, access, fleet, plan).await;
            gone.extend(asked.gone);
            drafts.extend(asked.draft);
            next = next.min(asked.retry);
        }
        if gone.is_empty() {
            drafts.into_iter().for_each(|draft| self.decisions.receipts.leave(draft));
            return Ok(next);
        }
        fleet.scaled.down = Some(of.clock.now);
        self.memory.memos.change(of.uid, |memo| memo.scaled.down = Some(of.clock.now));
        self.decisions.receipts.keep(drafts).await;
        self.delete(of, fleet, &gone).await?;
        Ok(next)
    }

    /// Asks the policy which idle runners go, and GitHub to unregister them.
    async fn ask(&self, of: Subject<'_>, access: &Access, fleet: &Fleet, plan: &ScaleDown) -> Asked {
        let (members, confirmation) = (&fleet.members, self.settings.idle_confirmation);
        // A job that has begun since they are to go would not show yet.
        let surplus_since = self.memory.memos.change(of.uid, |memo| *memo.surplus_since.get_or_insert(of.clock.instant));
        let wanted_for = of.clock.instant.saturating_duration_since(surplus_since);
        if let Some(left) = confirmation.checked_sub(wanted_for).filter(|left| !left.is_zero()) {
            return Asked::nothing(left);
        }
        let nodes = match scale_down::has_eligible(members, confirmation, plan.outdated_only) {
            true => self.decisions.nodes.about(&scale_down::node_names(members)).await,
            false => BTreeMap::new(),
        };
        let Some(permit) = access.permit() else { return Asked::nothing(NEXT_PERMIT) };
        let pool = pool::of_set(of.set, members, access.budget(), fleet.scaled, self.past(of), of.clock.now);
        let offer = scale_down::offer(members, &nodes, pool, plan.ask, confirmation, plan.outdated_only, of.clock.now);
        let Some(mut offer) = offer else {
            // Idle ones there are, but none for long enough: the newest proof is due soon.
            return Asked::nothing(confirmation.max(Duration::from_secs(1)));
        };
        self.tell_policy(of, fleet, &mut offer, &nodes).await;
        let evaluation = of.generation.scale_down(offer.request).await;
        self.decisions.report(&evaluation, &of.set.object_ref(&())).await;
        // Owned: the stream below is part of a future that has to be Send for any lifetime.
        let chosen: Vec<(usize, String)> = evaluation
            .answer
            .iter()
            .filter_map(|choice| Some((*offer.runners.get(usize::try_from(choice.index).ok()?)?, choice.reason.clone())))
            .collect();
        let (permit, put_off) = (&permit, &AtomicBool::new(false));
        let answers: Vec<Answer> = stream::iter(chosen)
            .map(|(member, reason)| async move {
                // Where one has to wait for its turn, those after it would as well.
                if put_off.load(Ordering::Relaxed) {
                    return None;
                }
                let removal = self.unregister(of, access, fleet, member).await;
                permit.answered();
                put_off.fetch_or(removal.as_ref().is_err_and(|error| error.deferral().is_some()), Ordering::Relaxed);
                Some(Answer { member, reason, removal })
            })
            .buffered(FAN_OUT)
            .filter_map(std::future::ready)
            .collect()
            .await;
        let mut asked = Asked::nothing(self.settings.sync_period);
        let mut items = Vec::with_capacity(answers.len());
        for answer in answers {
            if let Err(Some(wait)) = answer.removal.as_ref().map_err(Error::deferral) {
                asked.retry = asked.retry.min(wait.max(TURN));
                continue;
            }
            let Some((facts, _)) = fleet.members.get(answer.member) else { continue };
            let done = self.settle(of, access, fleet, &mut asked, answer, &evaluation.receipt.policy).await;
            items.push(Item::new(facts.name.clone(), done));
        }
        let owner = Owner::set(of.set).ok().filter(|_| !items.is_empty());
        asked.draft = owner.map(|owner| Draft::new(owner, &evaluation, items, of.clock.now));
        asked
    }

    /// Adds the further facts that the policy reads.
    async fn tell_policy(&self, of: Subject<'_>, fleet: &Fleet, offer: &mut Offer, known: &BTreeMap<String, NodeFacts>) {
        let (reads, facts, now) = (of.generation.reads(Decision::ScaleDown), &self.decisions.facts, of.clock.now);
        let namespace = of.set.namespace().unwrap_or_default();
        let to = Audience { reads: &reads, namespace: &namespace, members: &fleet.members, now };
        let request = &mut offer.request;
        self.decisions.tell_nodes(to, known, &mut request.nodes).await;
        request.pool.attributes.extend(self.told_of_pool(of, &reads));
        for (candidate, member) in request.candidates.iter_mut().zip(&offer.runners) {
            let Some((runner, _)) = fleet.members.get(*member) else { continue };
            candidate.attributes.extend(facts.runner(to, runner));
        }
        if let Some(waiting) = self.past(of).waiting.filter(|_| reads.has(Fact::WaitingJobs)) {
            request.attributes.extend(waiting.attributes(now));
        }
    }

    async fn unregister(&self, of: Subject<'_>, access: &Access, fleet: &Fleet, member: usize) -> Result<Removal, Error> {
        let Some((facts, _)) = fleet.members.get(member) else { return Err(Error::Incomplete("RunnerReplicaSet", "runner")) };
        let id = facts.remote.id().ok_or(Error::Incomplete("runner", "GitHub id"))?;
        let uid = Uid::new(&facts.uid).ok_or(Error::Incomplete("Runner", "UID"))?;
        let namespace = of.set.namespace().unwrap_or_default();
        let registered = Registered { uid: &uid, id, namespace: &namespace, facts };
        self.runners.observer.removals.unregister(access, registered, of.clock).await
    }

    /// What GitHub's answer means for one runner.
    async fn settle(
        &self,
        of: Subject<'_>,
        access: &Access,
        fleet: &Fleet,
        asked: &mut Asked,
        Answer { member, reason, removal }: Answer,
        policy: &str,
    ) -> Done {
        let runner = fleet.members.get(member).map(|(facts, _)| facts.name.as_str()).unwrap_or_default();
        match removal {
            Ok(Removal::Removed | Removal::Absent) => {
                tracing::info!(runner, namespace = of.set.namespace(), reason, policy, verdict = "accepted", "runner removed");
                if let (true, Some(object)) = (asked.gone.len() < EVENTS, fleet.runners.get(member)) {
                    let note = format!("removed runner {runner}: {reason}; policy {policy}");
                    let (pool, about) = (pool_reference(of.set), Some(object.object_ref(&())));
                    self.cluster.events.publish(Reason::RunnerRemoved, &pool, about, &note).await;
                }
                asked.gone.push(member);
                Done::Removed
            }
            Ok(Removal::Busy { message }) => {
                tracing::info!(runner, reason, policy, answer = message, verdict = "dropped: busy", "runner kept");
                access.await_listing(runner, Haste::JobEnd, Duration::ZERO);
                asked.retry = Duration::from_secs(2);
                Done::Busy { message }
            }
            Err(error) => {
                tracing::warn!(runner, %error, verdict = "dropped: not unregistered", "runner kept");
                asked.retry = asked.retry.min(error.retry_after(3));
                not_unregistered(&error)
            }
        }
    }
}
