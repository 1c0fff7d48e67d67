//! Jobs that died with their runners: they are counted, the policy decides which run again, and GitHub is asked when their run has ended.
//!
//! What is to run again is kept in an annotation of the RunnerReplicaSet. It is written before GitHub is asked, so that after a crash the run's
//! attempt tells whether it was.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Resource;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use pacer_api::RunnerReplicaSet;
use pacer_api::names::annotation;
use pacer_cluster::events::Reason;
use pacer_cluster::fence::{Fence, NotLeader};
use pacer_core::facts::PodFacts;
use pacer_core::ledger::Ledger;
use pacer_core::policy::RecoverRequest;
use pacer_core::recovery::{self, Budget, JobsOf, LIMIT, Next, Refused, Reply, Rerun, Reruns, Stage, Victim, proof};
use pacer_core::scale_down;
use pacer_demand::ledger::Ledgers;
use pacer_github::{ErrorKind, Repository};
use pacer_policy::record::{Done, Item};
use pacer_policy::{Chosen, Decision, Mode};
use pacer_policyset::receipts::{Draft, Owner};
use serde_json::json;

use super::observe::Fleet;
use super::{ReplicaSets, Subject};
use crate::access::Access;
use crate::attributes::Audience;
use crate::ended::{EndedPod, EndedPods};
use crate::error::Error;
use crate::lost::LostJobs;
use crate::pool;
use crate::target::{owner_of, pool_reference};

/// When it is tried again after the API server did not do its part.
const RETRY: Duration = Duration::from_secs(5);

/// Jobs that were decided about and are remembered; with more, all are decided about again, which changes nothing.
const DECIDED: usize = 1_000;

/// Where it is known from which jobs died with their runners, and where they are counted.
pub(crate) struct Losses {
    /// Which jobs runners had.
    pub(crate) ledgers: Arc<Ledgers>,
    /// Pods that the cluster took away.
    pub(crate) ended: EndedPods,
    /// Counts the jobs, each once.
    pub(crate) counted: LostJobs,
}

/// What it takes to have jobs run again. There is none unless somebody asked for it (`--recover-jobs`).
pub(crate) struct JobRecovery {
    /// Who may ask GitHub.
    pub(crate) fence: Fence,
    /// How many jobs may run again: per workflow run, and per pool within an hour.
    pub(crate) budget: Budget,
}

/// What is remembered about the jobs of one RunnerReplicaSet.
#[derive(Clone, Debug, Default)]
pub(super) struct RecoveryMemo {
    /// The reruns, where they are newer than the annotation.
    reruns: Option<Reruns>,
    /// Jobs that were decided about.
    decided: BTreeSet<u64>,
}

impl ReplicaSets {
    /// Counts jobs that died, decides about them, and takes those that are to run again a step further. Returns when the next step is due. Nothing
    /// that goes wrong here stops the fleet.
    pub(super) async fn recover(&self, of: Subject<'_>, fleet: &Fleet) -> Duration {
        let victims = self.victims(of, fleet);
        for victim in &victims {
            self.losses.counted.add(victim.job, victim.proof);
        }
        let Some(recovery) = &self.recovery else { return self.settings.sync_period };
        match self.recover_jobs(of, fleet, self.undecided(of, victims), recovery).await {
            Ok(next) => next.min(self.settings.sync_period),
            Err(error) => {
                tracing::warn!(set = %of.set.name_any(), %error, "jobs that died with their runners could not be seen to, trying again");
                RETRY
            }
        }
    }

    async fn recover_jobs(
        &self,
        of: Subject<'_>,
        fleet: &Fleet,
        victims: Vec<Victim>,
        recovery: &JobRecovery,
    ) -> Result<Duration, Error> {
        let mut reruns = self.reruns(of);
        if !victims.is_empty() {
            self.decide(of, fleet, &victims, recovery, &mut reruns).await?;
        }
        let now = of.clock.now;
        if let Some(due) = reruns.next().filter(|next| next.wait(now).is_zero()).cloned() {
            self.look(of, due, recovery, &mut reruns).await?;
        }
        Ok(reruns.next().map_or(self.settings.sync_period, |next| next.wait(now)))
    }

    /// The reruns as they are known here, or as they were kept.
    fn reruns(&self, of: Subject<'_>) -> Reruns {
        let known = self.memory.memos.read(of.uid, |memo| memo.recovery.reruns.clone()).flatten();
        known.unwrap_or_else(|| {
            let kept = of.set.annotations().get(annotation::RERUNS);
            let read = kept.and_then(|text| serde_json::from_str::<Reruns>(text).ok());
            read.unwrap_or_default().bounded()
        })
    }

    /// Jobs that died with their runners, as far as that shows by now; each once.
    fn victims(&self, of: Subject<'_>, fleet: &Fleet) -> Vec<Victim> {
        let members = || fleet.members.iter().filter_map(|(facts, _)| Some((facts, facts.pod.as_ref()?)));
        for (facts, pod) in members().filter(|(_, pod)| proof(pod, false).is_some()) {
            self.losses.ended.keep(of.uid, &facts.name, pod.clone(), false, of.clock);
        }
        let mut ended = self.losses.ended.of(of.uid, of.clock.instant);
        if ended.is_empty() {
            return Vec::new();
        }
        // A pod that is there speaks for itself: a node may be back.
        let present: HashMap<Option<&str>, &PodFacts> = members().map(|(_, pod)| (pod.uid.as_deref(), pod)).collect();
        ended.retain(|one| present.get(&one.pod.uid.as_deref()).is_none_or(|pod| proof(pod, one.gone).is_some()));
        let died: HashMap<&str, Timestamp> =
            ended.iter().map(|one| (one.runner.as_str(), recovery::died(&one.pod, one.seen.now))).collect();
        let ledgers = self.ledgers(of);
        let jobs: Vec<JobsOf<'_>> = ledgers.iter().map(|ledger| JobsOf::find(ledger, &died)).collect();
        let mut met = HashSet::new();
        let victim = |one: &EndedPod| {
            let died = *died.get(one.runner.as_str())?;
            jobs.iter().find_map(|jobs| Victim::of(&one.runner, &one.pod, one.gone, jobs, died))
        };
        ended.iter().filter_map(victim).filter(|victim| met.insert(victim.job)).collect()
    }

    /// Those of them that a policy is asked about and nobody has decided about. Those beyond [`LIMIT`] are asked about in the next pass.
    fn undecided(&self, of: Subject<'_>, victims: Vec<Victim>) -> Vec<Victim> {
        if victims.is_empty() || of.awaits_policies || of.generation.recovery().is_none() {
            return Vec::new();
        }
        let decided = self.memory.memos.read(of.uid, |memo| memo.recovery.decided.clone()).unwrap_or_default();
        victims.into_iter().filter(|victim| !decided.contains(&victim.job)).take(LIMIT).collect()
    }

    /// The jobs of whoever scales these runners.
    fn ledgers(&self, of: Subject<'_>) -> Vec<Arc<Ledger>> {
        let Some(owner) = owner_of(of.set) else { return Vec::new() };
        let autoscalers = self.cluster.stores.autoscalers_of(&owner.target);
        autoscalers.iter().map(|autoscaler| self.losses.ledgers.read(autoscaler)).collect()
    }

    /// Asks the policy, and keeps which jobs are to run again.
    async fn decide(
        &self,
        of: Subject<'_>,
        fleet: &Fleet,
        victims: &[Victim],
        recovery: &JobRecovery,
        reruns: &mut Reruns,
    ) -> Result<(), Error> {
        let now = of.clock.now;
        let known =
            self.decisions.nodes.about(&fleet.members.iter().filter_map(|(facts, _)| scale_down::node_of(facts)).collect()).await;
        let (mut nodes, index) = scale_down::nodes(&fleet.members, &known, now);
        let (reads, namespace) = (of.generation.reads(Decision::Recover), of.set.namespace().unwrap_or_default());
        let to = Audience { reads: &reads, namespace: &namespace, members: &fleet.members, now };
        self.decisions.tell_nodes(to, &known, &mut nodes).await;
        let node = |victim: &Victim| {
            let (facts, _) = fleet.members.iter().find(|(facts, _)| facts.name == victim.runner)?;
            index.get(facts.pod.as_ref()?.node.as_ref()?).copied()
        };
        let budget = of.access.and_then(Access::budget);
        let mut pool = pool::of_set(of.set, &fleet.members, budget, fleet.scaled, self.past(of), now);
        pool.attributes.extend(self.told_of_pool(of, &reads));
        let request = RecoverRequest {
            now: scale_down::unix(now),
            pool,
            nodes,
            jobs: victims.iter().map(|victim| victim.dead_job(node(victim), &reads, now)).collect(),
            ..RecoverRequest::default()
        };
        let evaluation = of.generation.recover(request).await;
        self.decisions.report(&evaluation, &of.set.object_ref(&())).await;
        if of.generation.recovery() == Some(Mode::Enforce) {
            let before = reruns.clone();
            let mut items = Vec::new();
            // Whoever has a policy of his own has jobs that must not run twice, and it did not get to say which.
            let stands =
                evaluation.fault.is_none() || !matches!(of.generation.assignment(Decision::Recover).chosen, Chosen::Policy(_));
            for (place, victim) in victims.iter().enumerate() {
                let verdict =
                    evaluation.answer.iter().find(|verdict| usize::try_from(verdict.index).is_ok_and(|index| index == place));
                let Some(verdict) = verdict.filter(|verdict| stands && verdict.action == "rerun") else {
                    items.push(Item::new(victim.runner.clone(), Done::Left { job: victim.job }));
                    continue;
                };
                let belongs = of.access.is_some_and(|access| access.scope().covers(&victim.known.about.repository));
                let admitted = if belongs { reruns.admit(victim, verdict, &recovery.budget, now) } else { Err(Refused::Foreign) };
                let done = match admitted {
                    Ok(()) => Done::Rerun { job: victim.job },
                    Err(refused) => Done::NotRerun { job: victim.job, why: refused.to_string() },
                };
                items.push(Item::new(victim.runner.clone(), done));
            }
            for Item { done, .. } in &items {
                if let Done::NotRerun { job, why } = done {
                    self.announce(of, Reason::JobNotRunAgain, *job, why).await;
                }
            }
            self.decisions.receipts.keep([Draft::new(Owner::set(of.set)?, &evaluation, items, now)]).await;
            if *reruns != before {
                self.keep(of, reruns).await?;
            }
        }
        self.memory.memos.change(of.uid, |memo| {
            if memo.recovery.decided.len() >= DECIDED {
                memo.recovery.decided.clear();
            }
            memo.recovery.decided.extend(victims.iter().map(|victim| victim.job));
        });
        Ok(())
    }

    /// Looks at a job that is to run again, and asks GitHub for it where its run has ended.
    async fn look(&self, of: Subject<'_>, due: Rerun, recovery: &JobRecovery, reruns: &mut Reruns) -> Result<(), Error> {
        let (now, job) = (of.clock.now, due.job);
        let mut seen = due;
        let mut asks = None;
        match of.access.zip(Repository::named(&seen.repository)) {
            Some((access, repository)) if access.scope().covers(&seen.repository) => {
                match next(access, &repository, &seen, now).await {
                    Ok(next) => {
                        seen.looked(&next, now);
                        asks = (next == Next::Ask).then_some((access, repository));
                    }
                    Err(error) => match (error.deferral(), error.kind()) {
                        (Some(wait), _) => seen.postponed(wait, now),
                        (None, ErrorKind::Unauthorized | ErrorKind::Forbidden { .. }) => {
                            seen.looked(&Next::GiveUp(error.to_string()), now);
                        }
                        (None, _) => seen.unseen(now),
                    },
                }
            }
            Some(_) => seen.looked(&Next::GiveUp(Refused::Foreign.to_string()), now),
            // Without credentials nobody can be asked.
            None => seen.unseen(now),
        }
        let Some((access, repository)) = asks else { return self.looked(of, seen, reruns).await };
        // Kept before it is asked: whoever goes on after a crash finds out what became of it.
        replace(reruns, &seen);
        self.keep(of, reruns).await?;
        if !recovery.fence.holds() {
            return Err(NotLeader.into());
        }
        match access.github().rerun_job(&repository, job).await {
            Ok(reply) => {
                if let Reply::Lost(error) = &reply {
                    tracing::warn!(job, error, "GitHub's answer was lost, so its run tells whether the job runs again");
                }
                seen.answered(&reply, now);
            }
            Err(error) => seen.unsent(error.deferral().or(error.retry_after()).unwrap_or_default(), now),
        }
        self.looked(of, seen, reruns).await
    }

    /// Takes note of a look: in the cluster where it was the last one.
    async fn looked(&self, of: Subject<'_>, seen: Rerun, reruns: &mut Reruns) -> Result<(), Error> {
        replace(reruns, &seen);
        match seen.stage {
            Stage::Waits => {
                self.memory.memos.change(of.uid, |memo| memo.recovery.reruns = Some(reruns.clone()));
                return Ok(());
            }
            Stage::Done => self.announce(of, Reason::JobRunAgain, seen.job, &seen.reason).await,
            Stage::GivenUp => self.announce(of, Reason::JobNotRunAgain, seen.job, &seen.reason).await,
        }
        self.keep(of, reruns).await
    }

    /// Writes reruns into the cluster.
    async fn keep(&self, of: Subject<'_>, reruns: &Reruns) -> Result<(), Error> {
        // Plain structs always serialise.
        let text = serde_json::to_string(reruns).unwrap_or_default();
        let patch = json!({"metadata": {"uid": of.uid.as_str(), "annotations": {annotation::RERUNS: text}}});
        let api = self.cluster.beside::<RunnerReplicaSet>(of.set);
        api.patch(&of.set.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        self.memory.memos.change(of.uid, |memo| memo.recovery.reruns = Some(reruns.clone()));
        Ok(())
    }

    async fn announce(&self, of: Subject<'_>, reason: Reason, job: u64, why: &str) {
        let words = if reason == Reason::JobRunAgain { "runs again" } else { "does not run again" };
        let note = format!("job {job}, which died with its runner, {words}: {why}");
        tracing::info!(job, reason = why, "{words}");
        // Events of different actions are not merged.
        self.cluster.events.publish_with_action(reason, &format!("job-{job}"), &pool_reference(of.set), None, &note).await;
    }
}

/// What follows from what GitHub says of a job and of its run.
async fn next(access: &Access, repository: &Repository, rerun: &Rerun, now: Timestamp) -> Result<Next, pacer_github::Error> {
    let github = access.github();
    let job = github.job_end(repository, rerun.job).await?;
    match (rerun.of_job(job.as_ref(), now), job) {
        (Next::Ask, Some(job)) => Ok(rerun.of_run(github.run_end(repository, job.run).await?.as_ref(), now)),
        (next, _) => Ok(next),
    }
}

fn replace(reruns: &mut Reruns, seen: &Rerun) {
    if let Some(rerun) = reruns.get_mut(seen.job) {
        rerun.clone_from(seen);
    }
}
