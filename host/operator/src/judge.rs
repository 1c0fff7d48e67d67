//! The restart decision: builds the question, asks the policy, bounds the answer.

use k8s_openapi::api::core::v1::ObjectReference;
use pacer_core::facts::RunnerFacts;
use pacer_core::phase::{Assessment, Cause, Situation, Trouble};
use pacer_core::policy::{Pool, RestartRequest, Subject, Verdict};
use pacer_core::restart::{self, Remedy};
use pacer_core::scale_down;
use pacer_policy::record::{Done, Item};
use pacer_policy::{Evaluation, Generation};

use crate::context::Context;
use crate::observe::Clock;
use crate::receipts::{Draft, Owner};

/// What becomes of one runner in trouble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Index of the runner in the members given.
    pub member: usize,
    /// What to do.
    pub remedy: Remedy,
    /// Why, for people.
    pub reason: String,
    /// Who said so: `default@sha256:ab12`.
    pub policy: String,
}

/// Asks about every member in trouble; `about` is the object that events speak of, `owner` the one that keeps the receipt. `attempts` are the
/// pool's failed attempts in a row before this one.
#[expect(clippy::too_many_arguments, reason = "the question has that many parts")]
pub async fn judge(
    ctx: &Context,
    generation: &Generation,
    pool: Pool,
    members: &[(RunnerFacts, Assessment)],
    (about, owner): (&ObjectReference, Owner),
    stand_alone: bool,
    attempts: u32,
    clock: Clock,
) -> Vec<Judged> {
    // Runners that did their job are cleared away all the time, and nobody needs to know where they were.
    let troubled = members.iter().filter(|(facts, assessment)| {
        !facts.quarantined && assessment.trouble.as_ref().is_some_and(|trouble| !is_ordinary(trouble))
    });
    let known = ctx.nodes.about(&troubled.filter_map(|(facts, _)| scale_down::node_of(facts)).collect()).await;
    let (nodes, index) = scale_down::nodes(members, &known, clock.now);
    let mut asked = Vec::new();
    let mut subjects = Vec::new();
    for (position, (facts, assessment)) in members.iter().enumerate() {
        let Some(trouble) = assessment.trouble.as_ref().filter(|_| !facts.quarantined) else { continue };
        let attempt = attempts.saturating_add(u32::from(trouble.cause.is_failure()));
        asked.push((position, trouble, attempt));
        subjects.push(Subject {
            name: facts.name.clone(),
            situation: trouble.situation.as_str().to_owned(),
            cause: trouble.cause.as_str().to_owned(),
            exit_code: trouble.exit_code,
            message: trouble.message.clone(),
            github: facts.remote.as_str().to_owned(),
            was_registered: facts.was_registered(),
            since: scale_down::since(trouble.since, clock.now),
            // One that ended is as old as it got.
            age: facts.pod.as_ref().map_or(0, |pod| {
                scale_down::since(pod.created, if trouble.situation == Situation::Ended { trouble.since } else { clock.now })
            }),
            attempts: attempt,
            ephemeral: facts.ephemeral,
            stand_alone,
            current: facts.current,
            node: facts.pod.as_ref().and_then(|pod| pod.node.as_ref()).and_then(|node| index.get(node)).copied(),
            attributes: Vec::new(),
        });
    }
    if subjects.is_empty() {
        return Vec::new();
    }
    let request = RestartRequest { now: scale_down::unix(clock.now), pool, nodes, subjects, ..RestartRequest::default() };
    let evaluation = generation.restart(request).await;
    ctx.note(&evaluation, about).await;
    let policy = evaluation.receipt.policy.clone();
    let judged: Vec<Judged> = asked
        .iter()
        .copied()
        .enumerate()
        .map(|(subject, (member, trouble, attempt))| {
            let verdict =
                evaluation.answer.iter().find(|verdict| usize::try_from(verdict.index).is_ok_and(|index| index == subject));
            let remedy = restart::remedy(verdict, trouble, stand_alone, attempt, &ctx.settings.restart, clock.now);
            let reason = verdict.map_or_else(|| trouble.message.clone(), |verdict| verdict.reason.clone());
            if !matches!(remedy, Remedy::Wait { .. }) || trouble.situation == Situation::Ended {
                tracing::debug!(?remedy, cause = trouble.cause.as_str(), reason, policy, "restart decided");
            }
            Judged { member, remedy, reason, policy: policy.clone() }
        })
        .collect();
    let (draft, news) = receipt(&evaluation, owner, members, &asked, &judged, clock);
    match news {
        true => ctx.receipts.keep([draft]).await,
        false => ctx.receipts.leave(draft.routine()),
    }
    judged
}

/// Whether a runner did its job.
fn is_ordinary(trouble: &Trouble) -> bool {
    trouble.cause == Cause::Completed
}

/// What is to be kept of it, and whether somebody may ask about it in a moment: runners that did their job are cleared away all the time.
fn receipt(
    evaluation: &Evaluation<Vec<Verdict>>,
    owner: Owner,
    members: &[(RunnerFacts, Assessment)],
    asked: &[(usize, &Trouble, u32)],
    judged: &[Judged],
    clock: Clock,
) -> (Draft, bool) {
    let stand_alone = owner.is_runner();
    let item = |judged: &Judged| {
        let (facts, _) = members.get(judged.member)?;
        let done = match judged.remedy {
            Remedy::Replace if !stand_alone => Done::Replaced,
            Remedy::Replace | Remedy::Recreate => Done::Recreated,
            Remedy::Quarantine => Done::Quarantined,
            Remedy::Wait { recheck } => Done::Waits { seconds: scale_down::seconds(recheck) },
        };
        Some(Item { name: facts.name.clone(), done })
    };
    let items: Vec<Item> = judged.iter().filter_map(item).collect();
    let acted = items.iter().any(|item| item.done.acted());
    let ordinary = asked.iter().all(|(_, trouble, _)| is_ordinary(trouble));
    (Draft::new(owner, evaluation, items, clock.now), acted && !ordinary)
}
