//! What a record says about one runner, in words for somebody who has never heard of policies.

use pacer_core::count::counted;
use pacer_core::policy::{Candidate, CapacityPlan, Node, ScaleDownRequest, Subject};
use pacer_core::recovery::Proof;
use serde::Serialize;

use super::{Change, Done, Record};
use crate::inquiry::{Answer, Inquiry};
use crate::receipt::DecidedBy;

/// Runners that are named before the others are only counted.
const NAMED: usize = 3;

/// What became of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It went because fewer were wanted.
    Removed,
    /// It went because it had ended or was not well.
    Replaced,
    /// Its pod was made again.
    Recreated,
    /// It is kept as evidence.
    Quarantined,
    /// Nothing was done to it, at least for now.
    Kept,
}

/// A decision as far as it concerns one runner.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Account {
    /// What became of it.
    pub fate: Fate,
    /// The rest of a sentence that begins with its name.
    pub summary: String,
    /// What the policy gave as its reason.
    pub reason: Option<String>,
    /// What the operator made of the answer.
    pub gate: String,
    /// What was known about the runner when that was decided.
    pub facts: Option<String>,
}

impl Record {
    /// What it says about a runner; none when it does not concern it.
    #[must_use]
    pub fn account_of(&self, runner: &str) -> Option<Account> {
        let item = self.items.iter().find(|item| item.name == runner).map(|item| &item.done);
        let index = self.input.as_ref().and_then(|input| input.names().iter().position(|name| *name == runner));
        match (&self.answer, item, index) {
            // What became of its job is another question: see `job`.
            (_, None, None) | (Answer::Capacity(_) | Answer::Recover(_), ..) => None,
            (Answer::ScaleDown(_), item, index) => Some(self.scale_down(item, index)),
            (Answer::Restart(_), item, index) => Some(self.restart(item, index)),
        }
    }

    /// Place of a runner in the answer, from 0, and the reason it gives.
    fn answered(&self, index: Option<usize>) -> Option<(usize, String)> {
        let index = u32::try_from(index?).ok()?;
        match &self.answer {
            Answer::ScaleDown(choices) => {
                let place = choices.iter().position(|choice| choice.index == index)?;
                Some((place, choices.get(place)?.reason.clone()))
            }
            Answer::Restart(verdicts) => {
                let place = verdicts.iter().position(|verdict| verdict.index == index)?;
                Some((place, verdicts.get(place)?.reason.clone()))
            }
            Answer::Capacity(_) | Answer::Recover(_) => None,
        }
    }

    fn scale_down(&self, item: Option<&Done>, index: Option<usize>) -> Account {
        let request = match &self.input {
            Some(Inquiry::ScaleDown(request)) => Some(request),
            _ => None,
        };
        let answered = self.answered(index);
        let asked = request.map_or_else(
            || "more runners were idle than wanted".to_owned(),
            |request| {
                let one = if request.surplus == 1 { "was" } else { "were" };
                format!("{} of {} idle runners {one} to go", request.surplus, request.candidates.len())
            },
        );
        let (fate, summary, gate) = match item {
            Some(Done::Busy { message }) => (
                Fate::Kept,
                format!("was kept: {asked} and the policy chose this one, but GitHub had given it a job by then"),
                format!("GitHub refused to remove it, so nothing was done: {message}"),
            ),
            Some(Done::NotUnregistered { error }) => (
                Fate::Kept,
                format!("was kept for the time being: {asked} and the policy chose this one, but GitHub did not remove it"),
                format!("nothing was done, and it is decided anew: {error}"),
            ),
            Some(Done::Spare { wanted, ended }) => {
                let state = if *ended { "it had ended" } else { "it had not started by then" };
                let one = if *wanted == 1 { "runner was" } else { "runners were" };
                let gate = "whoever does no work goes before any idle runner; no policy is asked about that".to_owned();
                (Fate::Removed, format!("was told to go because only {wanted} {one} wanted and {state}"), gate)
            }
            Some(_) => (
                Fate::Removed,
                format!("was removed because fewer runners were wanted: {asked}, and the policy chose this one"),
                "the answer passed every check; GitHub confirmed that it had no job and took it off its list, and only then was it deleted".to_owned(),
            ),
            None => (
                Fate::Kept,
                format!("was kept: {asked}, and the policy chose {}", self.chosen()),
                "the answer passed every check".to_owned(),
            ),
        };
        let facts = request.and_then(|request| request.candidates.get(index?).map(|candidate| idle(request, candidate)));
        Account { fate, summary, reason: answered.map(|(_, reason)| reason), gate, facts }
    }

    /// Names of the runners that the policy chose, at most three of them; `nobody` where it chose none.
    fn chosen(&self) -> String {
        let names: Vec<&str> = self.items.iter().map(|item| item.name.as_str()).collect();
        list(&names, "nobody")
    }

    fn restart(&self, item: Option<&Done>, index: Option<usize>) -> Account {
        let request = match &self.input {
            Some(Inquiry::Restart(request)) => Some(request),
            _ => None,
        };
        let subject = request.and_then(|request| request.subjects.get(index?));
        let answered = self.answered(index);
        let trouble = subject.map_or_else(|| "it was not well".to_owned(), trouble);
        let done_its_job = subject.is_some_and(|subject| subject.cause == "completed");
        let (fate, summary, gate) = match item {
            Some(Done::Quarantined) => (
                Fate::Quarantined,
                format!("was set aside for people to look at, and no other was made in its place: {trouble}"),
                "nothing of it is deleted until somebody deletes the Runner".to_owned(),
            ),
            Some(Done::Recreated) => (
                Fate::Recreated,
                format!("got a new pod under the same name: {trouble}"),
                "no set owns it, so it keeps its name; the old pod was deleted".to_owned(),
            ),
            Some(Done::Waits { seconds }) => (
                Fate::Kept,
                format!("was kept for now: {trouble}"),
                format!("looked at again after {seconds} s at the latest"),
            ),
            Some(_) if done_its_job => (
                Fate::Replaced,
                "had done its job and was cleared away".to_owned(),
                "its place is filled again where a runner is still wanted".to_owned(),
            ),
            Some(_) => (
                Fate::Replaced,
                format!("was given up: {trouble}"),
                "it was unregistered and deleted; its place is filled again where a runner is still wanted, after a pause that grows with failures"
                    .to_owned(),
            ),
            None => (Fate::Kept, format!("was kept: {trouble}"), "the policy said nothing about it, so it is asked again later".to_owned()),
        };
        let node = |subject: &Subject| node(request.map(|request| request.nodes.as_slice()).unwrap_or_default(), subject.node);
        let facts = subject.map(|subject| {
            let exit = subject.exit_code.map_or_else(String::new, |code| format!(", exit code {code}"));
            let message =
                if subject.message.is_empty() { String::new() } else { format!(", the cluster said: {}", subject.message) };
            let attempts = match subject.attempts {
                0 => String::new(),
                attempts => format!(", {attempts} failed attempts of the pool in a row"),
            };
            format!("pod {} s old{}, at GitHub {}{exit}{attempts}{message}", subject.age, node(subject), subject.github)
        });
        Account { fate, summary, reason: answered.map(|(_, reason)| reason), gate, facts }
    }

    /// What it says about a job that died with its runner; none when it does not concern it.
    #[must_use]
    pub fn job(&self, id: u64) -> Option<String> {
        let (request, verdicts) = match (&self.input, &self.answer) {
            (Some(Inquiry::Recover(request)), Answer::Recover(verdicts)) => (Some(request), verdicts.as_slice()),
            (_, Answer::Recover(verdicts)) => (None, verdicts.as_slice()),
            _ => return None,
        };
        let of_item = |item: &&super::Item| matches!(item.done, Done::Rerun { job } | Done::Left { job } | Done::NotRerun { job, .. } if job == id);
        let item = self.items.iter().find(of_item);
        let index = request.and_then(|request| request.jobs.iter().position(|job| job.id == id));
        if item.is_none() && index.is_none() {
            return None;
        }
        let dead = request.and_then(|request| request.jobs.get(index?));
        let runner = item.map(|item| item.name.as_str()).or(dead.map(|dead| dead.runner.as_str())).unwrap_or_default();
        let cause = dead.map_or_else(String::new, |dead| format!(", which {}", died(&dead.cause)));
        let verdict = verdicts.iter().find(|verdict| usize::try_from(verdict.index).ok() == index && index.is_some());
        let reason = verdict.filter(|verdict| !verdict.reason.is_empty());
        let reason = reason.map_or_else(String::new, |verdict| format!(": {}", verdict.reason));
        let decided = match item.map(|item| &item.done) {
            Some(Done::Rerun { .. }) => format!("the policy has it run again{reason}"),
            Some(Done::NotRerun { why, .. }) => format!("the policy wants it to run again{reason}; it does not, because {why}"),
            _ => format!("the policy leaves it failed{reason}"),
        };
        Some(format!("it died with runner {runner}{cause}; {decided}"))
    }

    /// Who decided and who was to, in words.
    #[must_use]
    pub fn decided_by(&self) -> String {
        let Some(decisive) = self.receipt.decisive() else { return "none was asked: it is the operator's own rule".to_owned() };
        let by = match &decisive.by {
            DecidedBy::Policy { name, digest } => format!("{name} ({digest})"),
            DecidedBy::Native => "the shipped policy as it is built into the operator".to_owned(),
        };
        match (&self.receipt.bypassed, self.receipt.attempts.first()) {
            (Some(bypassed), _) => format!("{by}; {bypassed} was not asked because it kept failing"),
            (None, Some(first)) if first.by != decisive.by => match &first.fault {
                Some(fault) => format!("{by}, because {} failed: {fault}", first.by),
                None => by,
            },
            _ => by,
        }
    }

    /// What was done, in a few words.
    #[must_use]
    pub fn outcome(&self) -> String {
        if let Answer::Capacity(plan) = &self.answer {
            return capacity(plan, self.change.as_ref());
        }
        let mut parts = Vec::new();
        for (word, wanted) in WORDS {
            let names: Vec<&str> = self.items.iter().filter(|item| wanted(&item.done)).map(|item| item.name.as_str()).collect();
            if !names.is_empty() {
                parts.push(format!("{word} {}", list(&names, "")));
            }
        }
        if parts.is_empty() { "nothing done".to_owned() } else { parts.join("; ") }
    }
}

type Wanted = fn(&Done) -> bool;

const WORDS: [(&str, Wanted); 12] = [
    ("removed", |done| *done == Done::Removed),
    ("told to go before its start was seen", |done| matches!(done, Done::Spare { ended: false, .. })),
    ("cleared away after its end", |done| matches!(done, Done::Spare { ended: true, .. })),
    ("cleared away", |done| *done == Done::Replaced),
    ("new pod for", |done| *done == Done::Recreated),
    ("set aside", |done| *done == Done::Quarantined),
    ("busy, kept", |done| matches!(done, Done::Busy { .. })),
    ("not unregistered, kept", |done| matches!(done, Done::NotUnregistered { .. })),
    ("kept for now", |done| matches!(done, Done::Waits { .. })),
    ("to run again, the job of", |done| matches!(done, Done::Rerun { .. })),
    ("left failed, the job of", |done| matches!(done, Done::Left { .. })),
    ("not to run again, the job of", |done| matches!(done, Done::NotRerun { .. })),
];

/// Some names, then how many more.
pub(crate) fn list(names: &[&str], nobody: &str) -> String {
    let shown = names.get(..NAMED.min(names.len())).unwrap_or_default().join(", ");
    match names.len() {
        0 => nobody.to_owned(),
        count if count > NAMED => format!("{shown} and {} more", count - NAMED),
        _ => shown,
    }
}

/// A plan in a few words, and what became of the number.
pub(crate) fn capacity(plan: &CapacityPlan, change: Option<&Change>) -> String {
    let held = plan.reservations.iter().fold(0_u32, |held, reservation| held.saturating_add(reservation.replicas));
    let number = change.map_or_else(String::new, |change| match change.from == change.to {
        true => format!("{}, as before; ", counted(change.to.into(), "runner")),
        false => format!("{} -> {}; ", change.from, counted(change.to.into(), "runner")),
    });
    let ceiling = plan.ceiling.map_or_else(String::new, |ceiling| format!(", at most {}", counted(ceiling.into(), "runner")));
    format!("{number}{held} reserved in {}{ceiling}", counted(plan.reservations.len() as u64, "reservation"))
}

fn idle(request: &ScaleDownRequest, candidate: &Candidate) -> String {
    let template = if candidate.current { "the current template" } else { "an outdated template" };
    let node = node(&request.nodes, candidate.node);
    let pool = if request.pool.name.is_empty() {
        String::new()
    } else {
        format!("; {} {} was to have {} runners", request.pool.kind, request.pool.name, request.pool.desired)
    };
    format!("idle for {} s, pod {} s old{node}, made from {template}{pool}", candidate.idle, candidate.age)
}

fn node(nodes: &[Node], index: Option<u32>) -> String {
    let node = index.and_then(|index| nodes.get(usize::try_from(index).ok()?));
    node.map_or_else(String::new, |node| {
        format!(", on node {} with {} runners of the pool, {} of them busy", node.name, node.runners, node.busy)
    })
}

/// What ended the runner of a dead job; the contract's words for it, in whole ones.
fn died(cause: &str) -> &str {
    Proof::ALL.into_iter().find(|proof| proof.as_str() == cause).map_or(cause, |proof| proof.words())
}

/// What was the matter; the contract's words for it, in whole ones.
fn trouble(subject: &Subject) -> String {
    if (subject.situation.as_str(), subject.cause.as_str()) == ("ended", "never-started") {
        return "its pod failed before its container started: the node refused the pod, or an init container failed".to_owned();
    }
    let situation = match subject.situation.as_str() {
        "ended" => "its container ended",
        "never-registered" => "its pod was ready, but GitHub never saw it",
        "not-starting" => "its pod did not get ready",
        "offline" => "GitHub lost contact with it",
        "unregistered" => "GitHub no longer knew it",
        "pod-missing" => "its pod was gone",
        other => other,
    };
    let cause = match subject.cause.as_str() {
        "completed" => ", its job done",
        "exit" => " with an error",
        "unregistered-exit" => " before it had ever registered, which means that its configuration failed",
        "evicted" => "; the node evicted the pod",
        "oom-killed" => "; it ran out of memory",
        "node-lost" => "; its node is gone",
        "image-pull" => "; its image can't be pulled",
        "quota" => "; a quota of the namespace is used up",
        "unschedulable" => "; no node has room for it",
        "bad-credentials" => "; GitHub refused its credentials",
        "deprecated-version" => "; GitHub no longer accepts its version: use a newer runner image",
        "config-error" => "; its pod is configured wrongly",
        "pod-deleted" => "; somebody deleted the pod",
        _ => "",
    };
    format!("{situation}{cause}")
}

#[cfg(test)]
mod tests {
    use pacer_core::policy::{DeadJob, RecoverRequest, Recovery, Reservation, RestartRequest, Verdict};

    use super::*;
    use crate::record::Item;
    use crate::record::tests::scale_down as record_of;

    #[tokio::test]
    async fn who_went_who_stayed_and_who_was_not_asked_about() {
        let record = record_of(5, 2).await;
        let gone = record.account_of("web-4").unwrap();
        assert_eq!(gone.fate, Fate::Removed);
        assert!(
            gone.summary.starts_with("was removed because fewer runners were wanted: 2 of 5 idle runners were to go"),
            "{}",
            gone.summary
        );
        assert!(gone.reason.as_ref().is_some_and(|reason| reason.contains("idle")), "{gone:?}");
        assert_eq!(
            gone.facts.as_deref(),
            Some(
                "idle for 240 s, pod 340 s old, on node n-1 with 2 runners of the pool, 0 of them busy, made from the current template; RunnerReplicaSet web-7f9c was to have 0 runners"
            )
        );
        let stayed = record.account_of("web-0").unwrap();
        assert_eq!((stayed.fate, stayed.reason.as_deref()), (Fate::Kept, None));
        assert!(stayed.summary.ends_with("the policy chose web-4, web-3"), "{}", stayed.summary);
        assert_eq!(record.account_of("web-9"), None);
        assert_eq!(record.outcome(), "removed web-4, web-3");
        assert_eq!(record.decided_by(), "the shipped policy as it is built into the operator");
    }

    #[tokio::test]
    async fn a_busy_one_stays_and_what_lost_its_input_still_tells_the_end() {
        let mut record = record_of(2, 1).await;
        record.items[0].done = Done::Busy { message: "it runs a job".into() };
        let kept = record.account_of("web-1").unwrap();
        assert!(kept.fate == Fate::Kept && kept.gate.contains("it runs a job"), "{kept:?}");
        record.items[0].done = Done::Removed;
        record.input = None;
        let gone = record.account_of("web-1").unwrap();
        assert_eq!((gone.fate, gone.facts), (Fate::Removed, None));
        assert_eq!(record.account_of("web-0"), None);
    }

    #[tokio::test]
    async fn who_did_nothing_goes_without_a_question() {
        let mut record = record_of(1, 1).await;
        let generation = crate::PolicyHost::new(std::sync::Arc::new(crate::Counters::default())).generation();
        record.receipt = crate::Receipt::unasked(crate::Decision::ScaleDown, generation.number());
        (record.input, record.answer) = (None, Answer::ScaleDown(Vec::new()));
        let spare = |name: &str, ended| Item::new(name.into(), Done::Spare { wanted: 1, ended });
        record.items = vec![spare("web-1", false), spare("web-2", true)];
        let record = Record::read(&record.pack(1 << 20).unwrap()).unwrap();
        let gone = record.account_of("web-1").unwrap();
        assert_eq!((gone.fate, gone.reason), (Fate::Removed, None));
        assert_eq!(gone.summary, "was told to go because only 1 runner was wanted and it had not started by then");
        assert!(record.account_of("web-2").unwrap().summary.ends_with("and it had ended"));
        assert_eq!(record.outcome(), "told to go before its start was seen web-1; cleared away after its end web-2");
        assert!(!record.was_asked() && record.decided_by().starts_with("none was asked"), "{}", record.decided_by());
    }

    #[tokio::test]
    async fn each_remedy_has_its_words() {
        let subject = |situation: &str, cause: &str| Subject {
            name: "a".into(),
            situation: situation.into(),
            cause: cause.into(),
            ..Subject::default()
        };
        for (done, situation, cause, fate, words) in [
            (Done::Replaced, "ended", "completed", Fate::Replaced, "had done its job and was cleared away"),
            (Done::Replaced, "ended", "oom-killed", Fate::Replaced, "was given up: its container ended; it ran out of memory"),
            (
                Done::Recreated,
                "pod-missing",
                "pod-deleted",
                Fate::Recreated,
                "got a new pod under the same name: its pod was gone; somebody deleted the pod",
            ),
            (Done::Quarantined, "ended", "deprecated-version", Fate::Quarantined, "was set aside for people to look at"),
            (
                Done::Waits { seconds: 9 },
                "never-registered",
                "unknown",
                Fate::Kept,
                "was kept for now: its pod was ready, but GitHub never saw it",
            ),
        ] {
            let mut record = record_of(1, 1).await;
            let request = RestartRequest { subjects: vec![subject(situation, cause)], ..RestartRequest::default() };
            record.input = Some(Inquiry::Restart(request));
            record.answer = Answer::Restart(vec![Verdict { reason: "the policy's words".into(), ..Verdict::default() }]);
            record.items = vec![Item::new("a".into(), done)];
            let account = record.account_of("a").unwrap();
            assert_eq!((account.fate, account.reason.as_deref()), (fate, Some("the policy's words")), "{account:?}");
            assert!(account.summary.starts_with(words), "{}", account.summary);
        }
    }

    #[tokio::test]
    async fn jobs_that_died_are_told_of() {
        let dead = |id, runner: &str| DeadJob { id, runner: runner.into(), cause: "node-lost".into(), ..DeadJob::default() };
        let verdict =
            |index, action: &str| Recovery { index, action: action.into(), reason: "once".into(), ..Recovery::default() };
        let mut record = record_of(1, 1).await;
        record.receipt.decision = crate::Decision::Recover;
        let jobs = vec![dead(7, "a"), dead(8, "b"), dead(9, "c")];
        record.input = Some(Inquiry::Recover(RecoverRequest { jobs, ..RecoverRequest::default() }));
        record.answer = Answer::Recover(vec![verdict(0, "rerun"), verdict(1, "rerun"), verdict(2, "leave")]);
        record.items = vec![
            Item::new("a".into(), Done::Rerun { job: 7 }),
            Item::new("b".into(), Done::NotRerun { job: 8, why: "the budget is used up".into() }),
            Item::new("c".into(), Done::Left { job: 9 }),
        ];
        let record = Record::read(&record.pack(1 << 20).unwrap()).unwrap();
        for (job, expected) in [
            (7, Some("it died with runner a, which lost its node; the policy has it run again: once")),
            (
                8,
                Some(
                    "it died with runner b, which lost its node; the policy wants it to run again: once; it does not, because the budget is used up",
                ),
            ),
            (9, Some("it died with runner c, which lost its node; the policy leaves it failed: once")),
            (10, None),
        ] {
            assert_eq!(record.job(job).as_deref(), expected, "{job}");
        }
        assert_eq!(record.outcome(), "to run again, the job of a; left failed, the job of c; not to run again, the job of b");
        assert_eq!(record.account_of("a"), None);
    }

    #[test]
    fn capacity_in_one_line() {
        let change = |from, to| Some(Change { from, to, reason: "because".into() });
        let plan = CapacityPlan { ceiling: Some(7), ..CapacityPlan::default() };
        assert_eq!(capacity(&plan, change(2, 5).as_ref()), "2 -> 5 runners; 0 reserved in 0 reservations, at most 7 runners");
        assert_eq!(
            capacity(&CapacityPlan::default(), change(2, 2).as_ref()),
            "2 runners, as before; 0 reserved in 0 reservations"
        );
        let one = Reservation { id: "job-1".to_owned(), replicas: 1, ..Reservation::default() };
        let plan = CapacityPlan { reservations: vec![one], ceiling: Some(1), ..CapacityPlan::default() };
        assert_eq!(capacity(&plan, change(0, 1).as_ref()), "0 -> 1 runner; 1 reserved in 1 reservation, at most 1 runner");
    }
}
