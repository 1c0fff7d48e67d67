//! The newest answers of policies in shadow beside those that were used, in a few words, for whoever watches.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use pacer_core::count::counted;
use serde::{Deserialize, Serialize};

use crate::decision::Decision;
use crate::fault::Fault;
use crate::inquiry::{Answer, Inquiry};
use crate::record::Pool;
use crate::record::account::{capacity, list};

/// Comparisons of each decision that are remembered: what happens all the time must not push out what is rare.
const KEPT: usize = 60;

/// Pools whose last comparison is remembered, so that the same is not told again.
const REMEMBERED: usize = 4_096;

/// How an answer in shadow stands beside the one that was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// It would have had the same effect.
    Same,
    /// It would have had another one.
    Differs,
    /// There is none that could have been used.
    Failed,
}

/// What two policies answered to the same question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Since when both answer so: the moment of the first question.
    pub at: Timestamp,
    /// Whose runners it is about: what the policies were told.
    pub pool: Pool,
    /// The decision that both policies were asked for.
    pub decision: Decision,
    /// Who decided: `default@sha256:0123456789ab`, or `native`.
    pub in_force: String,
    /// Who was asked in shadow.
    pub shadow: String,
    /// The answer of the policy that decides, in a few words.
    pub answered: String,
    /// What the policy in shadow answered, or why that could not have been used.
    pub would: String,
    /// What these two come to.
    pub agreement: Agreement,
}

/// Both sides of a comparison.
pub(crate) struct Sides<'a> {
    /// Who decided, and what.
    pub(crate) in_force: (String, &'a Answer),
    /// Who was asked in shadow, and what came of it.
    pub(crate) shadow: (String, Result<&'a Answer, &'a Fault>),
    /// Whether both answers have the same effect.
    pub(crate) agreed: bool,
}

/// The newest comparisons of a process. One that says what the last one of its pool and decision said is not kept again.
#[derive(Debug, Default)]
pub struct Comparisons(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    number: u64,
    by_decision: BTreeMap<&'static str, VecDeque<(u64, Arc<Compared>)>>,
    last: HashMap<(Pool, Decision), Arc<Compared>>,
}

impl Comparisons {
    /// Those that are remembered, each with a number that grows, in no particular order.
    #[must_use]
    pub fn newest(&self) -> Vec<(u64, Arc<Compared>)> {
        self.lock().by_decision.values().flatten().cloned().collect()
    }

    /// Two answers to this question.
    pub(crate) fn note(&self, asked: &Inquiry, sides: Sides<'_>) {
        self.push(compared(asked, sides));
    }

    fn push(&self, new: Compared) {
        let mut ring = self.lock();
        if ring.last.len() >= REMEMBERED {
            ring.last.clear();
        }
        let new = Arc::new(new);
        match ring.last.entry((new.pool.clone(), new.decision)) {
            Entry::Occupied(last) if says_the_same(last.get(), &new) => return,
            Entry::Occupied(mut last) => {
                last.insert(new.clone());
            }
            Entry::Vacant(first) => {
                first.insert(new.clone());
            }
        }
        ring.number = ring.number.saturating_add(1);
        let number = ring.number;
        let kept = ring.by_decision.entry(new.decision.as_str()).or_default();
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back((number, new));
    }

    /// A poisoned lock means that a thread panicked between two comparisons; they are still whole.
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn says_the_same(one: &Compared, other: &Compared) -> bool {
    let said = |of: &Compared| Compared { at: Timestamp::UNIX_EPOCH, ..of.clone() };
    said(one) == said(other)
}

fn compared(asked: &Inquiry, sides: Sides<'_>) -> Compared {
    let Sides { in_force: (in_force, decided), shadow: (shadow, answer), agreed } = sides;
    let answered = words(asked, decided);
    let (would, agreement) = match answer {
        Err(fault) => (fault.to_string(), Agreement::Failed),
        Ok(_) if agreed => (answered.clone(), Agreement::Same),
        Ok(answer) => {
            let would = words(asked, answer);
            let alike = would == answered;
            // Such as reservations that end at another time.
            (if alike { format!("{would}, but for other jobs or at another time") } else { would }, Agreement::Differs)
        }
    };
    let pool = asked.pool();
    let pool = Pool { kind: pool.kind.clone(), namespace: pool.namespace.clone(), name: pool.name.clone() };
    Compared { at: moment(asked.now()), pool, decision: asked.decision(), in_force, shadow, answered, would, agreement }
}

/// Seconds since 1970, as requests have them, to the millisecond.
fn moment(seconds: f64) -> Timestamp {
    #[expect(clippy::cast_possible_truncation, reason = "a float beyond what an integer holds becomes its bound")]
    let milliseconds = (seconds * 1_000.0) as i64;
    Timestamp::from_millisecond(milliseconds).unwrap_or_default()
}

/// An answer in a few words.
fn words(asked: &Inquiry, answer: &Answer) -> String {
    let names = asked.names();
    let name = |index: u32| usize::try_from(index).ok().and_then(|index| names.get(index)).copied().unwrap_or("?");
    match answer {
        Answer::ScaleDown(choices) => {
            let going: Vec<&str> = choices.iter().map(|choice| name(choice.index)).collect();
            match going.len() {
                0 => "no runner is removed".to_owned(),
                one => format!("remove {} ({})", list(&going, ""), counted(one as u64, "runner")),
            }
        }
        Answer::Restart(verdicts) => {
            let verdicts = verdicts.iter().map(|verdict| (verdict.action.as_str(), name(verdict.index)));
            by_action(verdicts, "nothing is done")
        }
        Answer::Recover(verdicts) => {
            let verdicts = verdicts.iter().map(|verdict| (verdict.action.as_str(), name(verdict.index)));
            by_action(verdicts, "no job runs again")
        }
        Answer::Capacity(plan) => capacity(plan, None),
    }
}

fn by_action<'a>(verdicts: impl Iterator<Item = (&'a str, &'a str)>, none: &str) -> String {
    let mut actions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    verdicts.for_each(|(action, name)| actions.entry(action).or_default().push(name));
    let parts: Vec<String> = actions.into_iter().map(|(action, names)| format!("{action} {}", list(&names, ""))).collect();
    if parts.is_empty() { none.to_owned() } else { parts.join("; ") }
}

#[cfg(test)]
mod tests {
    use pacer_core::policy::{
        Candidate, CapacityPlan, CapacityRequest, Choice, Pool as AskedPool, Reservation, RestartRequest, ScaleDownRequest,
        Subject, Verdict,
    };

    use super::*;

    fn pool(name: &str) -> AskedPool {
        AskedPool { kind: "RunnerReplicaSet".into(), namespace: "ci".into(), name: name.into(), ..AskedPool::default() }
    }

    fn asked(name: &str, now: f64) -> Inquiry {
        let candidate = |name: &str| Candidate { name: name.into(), ..Candidate::default() };
        let candidates = ["a", "b", "c", "d", "e"].map(candidate).to_vec();
        Inquiry::ScaleDown(ScaleDownRequest { now, pool: pool(name), candidates, surplus: 1, ..ScaleDownRequest::default() })
    }

    fn removes(indices: &[u32]) -> Answer {
        Answer::ScaleDown(indices.iter().map(|index| Choice { index: *index, ..Choice::default() }).collect())
    }

    fn sides<'a>(decided: &'a Answer, shadow: Result<&'a Answer, &'a Fault>, agreed: bool) -> Sides<'a> {
        Sides { in_force: ("default@sha256:1".into(), decided), shadow: ("new@sha256:2".into(), shadow), agreed }
    }

    #[test]
    fn answers_are_told_in_words_with_what_they_come_to() {
        let (one, four) = (removes(&[0]), removes(&[1, 2, 3, 4]));
        let told = |shadow: Result<&Answer, &Fault>, agreed| {
            let told = compared(&asked("web-1", 1_763_816_000.123), sides(&one, shadow, agreed));
            (told.answered, told.would, told.agreement)
        };
        let decided = || "remove a (1 runner)".to_owned();
        assert_eq!(told(Ok(&one), true), (decided(), decided(), Agreement::Same));
        let four = told(Ok(&four), false);
        assert_eq!(four, (decided(), "remove b, c, d and 1 more (4 runners)".to_owned(), Agreement::Differs));
        let nobody = told(Ok(&removes(&[])), false);
        assert_eq!(nobody.1, "no runner is removed");
        let failed = told(Err(&Fault::Deadline), false);
        assert_eq!((failed.1, failed.2), (Fault::Deadline.to_string(), Agreement::Failed));
        let told = compared(&asked("web-1", 1_763_816_000.123), sides(&one, Ok(&one), true));
        assert_eq!(told.at, Timestamp::from_millisecond(1_763_816_000_123).unwrap());
        assert_eq!(
            (told.pool.name.as_str(), told.in_force.as_str(), told.shadow.as_str()),
            ("web-1", "default@sha256:1", "new@sha256:2")
        );
    }

    #[test]
    fn plans_and_verdicts_have_words_of_their_own() {
        let held = |expires| Reservation { id: "r".into(), replicas: 3, expires, ..Reservation::default() };
        let plan = |expires| Answer::Capacity(CapacityPlan { reservations: vec![held(expires)], ..CapacityPlan::default() });
        let asked = Inquiry::Capacity(CapacityRequest { pool: pool("web"), ..CapacityRequest::default() });
        let told = compared(&asked, sides(&plan(60), Ok(&plan(90)), false));
        assert_eq!(told.answered, "3 reserved in 1 reservation");
        assert_eq!(told.would, "3 reserved in 1 reservation, but for other jobs or at another time");
        let subject = |name: &str| Subject { name: name.into(), ..Subject::default() };
        let subjects = vec![subject("a"), subject("b"), subject("c")];
        let asked = Inquiry::Restart(RestartRequest { subjects, ..RestartRequest::default() });
        let verdict = |index, action: &str| Verdict { index, action: action.into(), ..Verdict::default() };
        let some = Answer::Restart(vec![verdict(0, "replace"), verdict(1, "keep"), verdict(2, "replace")]);
        assert_eq!(words(&asked, &some), "keep b; replace a, c");
        assert_eq!(words(&asked, &Answer::Restart(Vec::new())), "nothing is done");
    }

    #[test]
    fn what_a_pool_says_again_is_not_kept_again_and_the_newest_are_kept() {
        let comparisons = Comparisons::default();
        let (one, other) = (removes(&[0]), removes(&[1]));
        let note = |name: &str, now, agreed| {
            let shadow = if agreed { &one } else { &other };
            comparisons.note(&asked(name, now), sides(&one, Ok(shadow), agreed));
        };
        for now in [10.0, 11.0, 12.0] {
            note("web", now, true);
            note("api", now, false);
        }
        assert_eq!(comparisons.newest().len(), 2);
        note("web", 13.0, false);
        let newest = comparisons.newest();
        assert_eq!((newest.len(), newest[2].0, newest[2].1.at.as_second()), (3, 3, 13));
        for now in 0..100_u32 {
            note("web", f64::from(now), now % 2 == 0);
        }
        assert_eq!(comparisons.newest().len(), KEPT);
        assert_eq!(comparisons.newest().iter().map(|(number, _)| *number).max(), Some(103));
    }
}
