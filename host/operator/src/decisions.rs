//! Decisions of policies: which policies decide, what they are told, and what is kept of their answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use pacer_api::RunnerSpec;
use pacer_cluster::clock::Clock;
use pacer_cluster::events::{Events, Reason};
use pacer_cluster::nodes::Nodes;
use pacer_cluster::survey::Surveyor;
use pacer_core::facts::RunnerFacts;
use pacer_core::failures;
use pacer_core::node::NodeFacts;
use pacer_core::phase::{Assessment, Cause, Situation, Trouble};
use pacer_core::policy::{Node, Pool, RestartRequest, Subject};
use pacer_core::reads::Fact;
use pacer_core::restart::{self, Remedy, RestartLimits};
use pacer_core::scale_down;
use pacer_policy::record::{Done, FailedOn, Item};
use pacer_policy::{Decision, Evaluation, Generation};
use pacer_policyset::PolicySets;
use pacer_policyset::receipts::{Draft, Owner, Receipts};

use crate::attributes::{AboutPool, Audience, FactSources};
use crate::target::TargetRef;

/// Asks policies.
#[derive(Clone)]
pub struct Decisions {
    /// The policy sets of all pools.
    pub policies: Arc<PolicySets>,
    /// Reads the nodes that runners are on.
    pub nodes: Arc<Nodes>,
    /// Room on all nodes, for policies that read it.
    pub surveyor: Arc<Surveyor>,
    /// Further facts, for policies that read them.
    pub facts: Arc<FactSources>,
    /// Takes the receipts of decisions, and never waits.
    pub receipts: Arc<Receipts>,
    /// Events about faults.
    pub events: Events,
    /// Bounds of restarts.
    pub limits: RestartLimits,
}

/// What becomes of one runner in trouble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartDecision {
    /// Index of the runner in the members given.
    pub member: usize,
    /// What the operator does about the runner.
    pub remedy: Remedy,
    /// Why: the policy's words, or the cluster's where no policy answered about the runner.
    pub reason: String,
    /// Who decided: `default@sha256:ab12`.
    pub policy: String,
}

/// Runners in trouble, and what is to be known about them.
pub struct RestartQuestion<'a> {
    /// The policies that are asked.
    pub generation: &'a Generation,
    /// See [`PolicySets::awaits`]: nobody is asked but about runners that did their job.
    pub awaits_policies: bool,
    /// Pool of these runners, as the policies are told of it.
    pub pool: Pool,
    /// What its runners are made of.
    pub spec: &'a RunnerSpec,
    /// What the pool's annotation says of its priority.
    pub priority: Option<String>,
    /// The RunnerDeployment or RunnerSet that the pool is; none of a RunnerReplicaSet or Runner that stands alone.
    pub target: Option<TargetRef>,
    /// Runners of the pool; those in trouble are asked about.
    pub members: &'a [(RunnerFacts, Assessment)],
    /// What Events are about.
    pub about: ObjectReference,
    /// What keeps the receipt.
    pub owner: Owner,
    /// The pool's failed attempts in a row before this one.
    pub attempts: u32,
    /// When it is asked.
    pub clock: Clock,
}

/// A member that is asked about.
struct Asked<'a> {
    member: usize,
    trouble: &'a Trouble,
    /// Failed attempts in a row, this one included.
    attempt: u32,
}

impl Decisions {
    /// Logs a decision, and publishes an Event when a policy failed.
    pub async fn report<T>(&self, evaluation: &Evaluation<T>, about: &ObjectReference) {
        let receipt = &evaluation.receipt;
        tracing::info!(
            decision = %receipt.decision,
            policy = receipt.policy,
            bypassed = receipt.bypassed,
            input = receipt.input_hash,
            output = receipt.output_hash,
            items = receipt.output_items,
            fuel = receipt.fuel(),
            micros = u64::try_from(receipt.duration().as_micros()).unwrap_or(u64::MAX),
            "policy decided"
        );
        if let Some(fault) = receipt.fault() {
            let note = format!("the policy for {} failed: {fault}; {} decided", receipt.decision, receipt.policy);
            tracing::warn!(decision = %receipt.decision, %fault, decided_by = receipt.policy, "policy fault");
            // A fault of another kind is news, the same one again is counted.
            let action = format!("{}:{}", receipt.decision, fault.kind());
            self.events.publish_with_action(Reason::PolicyFault, &action, about, None, &note).await;
        }
    }

    /// Adds the further facts about nodes of which this is known, by name. What their pods request takes a list of nodes and of pods, and is told
    /// where these may be listed.
    pub async fn tell_nodes(&self, to: Audience<'_>, known: &BTreeMap<String, NodeFacts>, nodes: &mut [Node]) {
        self.facts.prepare(to.reads).await;
        self.facts.tell_nodes(to, known, nodes);
        if nodes.is_empty() || !to.reads.has(Fact::Room) {
            return;
        }
        let Some(survey) = self.surveyor.survey().await else { return };
        nodes.iter_mut().for_each(|node| node.attributes.extend(survey.requested(&node.name)));
    }

    /// Asks about every member in trouble.
    pub async fn restart(&self, question: RestartQuestion<'_>) -> Vec<RestartDecision> {
        let RestartQuestion {
            generation,
            awaits_policies,
            mut pool,
            spec,
            priority,
            target,
            members,
            about,
            owner,
            attempts,
            clock,
        } = question;
        let stand_alone = owner.is_runner();
        let is_asked = |facts: &RunnerFacts, trouble: &Trouble| !facts.quarantined && (!awaits_policies || is_ordinary(trouble));
        // Runners that did their job are cleared away all the time, and nobody needs to know where they were.
        let troubled = members.iter().filter(|(facts, assessment)| {
            assessment.trouble.as_ref().is_some_and(|trouble| is_asked(facts, trouble) && !is_ordinary(trouble))
        });
        let known = self.nodes.about(&troubled.filter_map(|(facts, _)| scale_down::node_of(facts)).collect()).await;
        let (mut nodes, index) = scale_down::nodes(members, &known, clock.now);
        let reads = generation.reads(Decision::Restart);
        let image = self.facts.image(spec);
        let namespace = about.namespace.clone().unwrap_or_default();
        let to = Audience { reads: &reads, namespace: &namespace, members, now: clock.now };
        let mut asked = Vec::new();
        let mut subjects = Vec::new();
        for (member, (facts, assessment)) in members.iter().enumerate() {
            let Some(trouble) = assessment.trouble.as_ref().filter(|trouble| is_asked(facts, trouble)) else { continue };
            let attempt = attempts.saturating_add(u32::from(trouble.cause.is_failure()));
            asked.push(Asked { member, trouble, attempt });
            let node = facts.pod.as_ref().and_then(|pod| pod.node.as_ref()).and_then(|node| index.get(node)).copied();
            let attributes = self.facts.runner(to, facts);
            subjects.push(Subject { stand_alone, node, attributes, ..restart::subject(facts, trouble, attempt, clock.now) });
        }
        if subjects.is_empty() {
            return Vec::new();
        }
        self.tell_nodes(to, &known, &mut nodes).await;
        let what = AboutPool { spec, priority: priority.as_deref(), namespace: &namespace, target: target.as_ref() };
        pool.attributes.extend(self.facts.pool(&reads, &what, clock.now));
        let request = RestartRequest { now: scale_down::unix(clock.now), pool, nodes, subjects, ..RestartRequest::default() };
        let evaluation = generation.restart(request).await;
        self.report(&evaluation, &about).await;
        let policy = evaluation.receipt.policy.clone();
        let decide = |(subject, asked): (usize, &Asked<'_>)| {
            let Asked { member, trouble, attempt } = *asked;
            let verdict =
                evaluation.answer.iter().find(|verdict| usize::try_from(verdict.index).is_ok_and(|index| index == subject));
            let remedy = restart::remedy(verdict, trouble, stand_alone, attempt, &self.limits, clock.now);
            let reason = verdict.map_or_else(|| trouble.message.clone(), |verdict| verdict.reason.clone());
            if !matches!(remedy, Remedy::Wait { .. }) || trouble.situation == Situation::Ended {
                tracing::debug!(?remedy, cause = trouble.cause.as_str(), reason, policy, "restart decided");
            }
            RestartDecision { member, remedy, reason, policy: policy.clone() }
        };
        let decided: Vec<RestartDecision> = asked.iter().enumerate().map(decide).collect();
        let items = items(decided.iter().zip(&asked), members, image, stand_alone);
        for FailedOn { node, image } in items.iter().filter_map(|item| item.failed_on.as_ref()) {
            self.facts.failed(node.as_deref(), image.as_deref(), clock.now);
        }
        let acted = items.iter().any(|item| item.done.acted());
        let draft = Draft::new(owner, &evaluation, items, clock.now);
        // Somebody may ask in a moment about all but runners that did their job.
        if acted && !asked.iter().all(|asked| is_ordinary(asked.trouble)) {
            self.receipts.keep([draft]).await;
        } else {
            self.receipts.leave(draft.routine());
        }
        decided
    }
}

/// Whether a runner did its job.
fn is_ordinary(trouble: &Trouble) -> bool {
    trouble.cause == Cause::Completed
}

/// What is done about each runner, for the receipt.
fn items<'a>(
    decided: impl Iterator<Item = (&'a RestartDecision, &'a Asked<'a>)>,
    members: &[(RunnerFacts, Assessment)],
    image: &str,
    stand_alone: bool,
) -> Vec<Item> {
    let item = |(decision, asked): (&RestartDecision, &Asked<'_>)| {
        let (facts, _) = members.get(decision.member)?;
        let is_given_up = !matches!(decision.remedy, Remedy::Wait { .. });
        let failed_on = (is_given_up && failures::is_told(asked.trouble.cause)).then(|| FailedOn {
            node: scale_down::node_of(facts).map(str::to_owned),
            image: Some(image).filter(|image| !image.is_empty()).map(str::to_owned),
        });
        let done = match decision.remedy {
            Remedy::Replace if !stand_alone => Done::Replaced,
            Remedy::Replace | Remedy::Recreate => Done::Recreated,
            Remedy::Quarantine => Done::Quarantined,
            Remedy::Wait { recheck, .. } => Done::Waits { seconds: scale_down::seconds(recheck) },
        };
        Some(Item { failed_on, ..Item::new(facts.name.clone(), done) })
    };
    decided.filter_map(item).collect()
}
