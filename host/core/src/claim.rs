//! Which claim a runner gets, and which claims are left over.
//!
//! A claim outlives its runner. The next runner of the same set takes it over with all that is on its volume; a new claim is made only when
//! none is free. Nobody is told that a claim became free: it is free when its last holder is gone.
//!
//! A volume may be where no pod gets any more: on a node that is gone, in a zone that is full. A runner waits for such a volume for a while
//! and no longer: then its claim is set aside, and another runner with another claim takes its place ([`reach`]).

use jiff::{SignedDuration, Timestamp};

/// One claim of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// Name of the PersistentVolumeClaim.
    pub name: &'a str,
    /// Revision of the claim template that it was made from.
    pub revision: Option<&'a str>,
    /// Who has it, seen from the runner that asks for a claim.
    pub held: Held,
    /// What can be done with it.
    pub condition: Condition,
    /// When a runner took it last.
    pub taken: Option<Timestamp>,
    /// When it was set aside because no node could reach its volume; none once a runner has taken it again.
    pub aside: Option<Timestamp>,
}

/// Who has a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The runner that asks.
    Mine,
    /// Another runner.
    Other,
    /// Another runner, which is over and about to be gone.
    Ending,
    /// Nobody: its last holder is gone.
    Free,
}

/// What can be done with a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It has a volume or waits for one.
    Usable,
    /// Its volume is gone.
    Lost,
    /// It is being deleted.
    Leaving,
}

/// So long nobody takes a claim that was set aside: as long as a broken machine or a full zone takes to be helped, and so seldom that trying
/// costs nobody much.
const ASIDE: SignedDuration = SignedDuration::from_hours(1);

/// Where a runner's claim comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It has this one already, by index.
    Keep(usize),
    /// It takes this free one over, by index.
    Take(usize),
    /// It waits for this one, which is about to be free, by index.
    Await(usize),
    /// None is free: one is made.
    Make,
}

/// Chooses the claim of a runner for the claim template of this revision.
///
/// Among free ones the one that was in use last: what is on its volume is the freshest, and the others may be done without. A runner that has
/// not waited for long yet (`patient`) waits for one that is about to be free: a runner that takes the place of one that has just finished
/// would otherwise always come too early for its claim, and the set would have twice as many volumes as runners. One that was set aside is
/// tried again after `ASIDE`, and only where a new one would have to be made otherwise.
#[must_use]
pub fn choose(claims: &[Claim<'_>], revision: &str, patient: bool, now: Timestamp) -> Choice {
    let fitting = |aside: bool| {
        let fits = move |claim: &Claim<'_>| {
            claim.revision == Some(revision) && claim.condition == Condition::Usable && claim.aside.is_some() == aside
        };
        claims.iter().enumerate().filter(move |(_, claim)| fits(claim))
    };
    if let Some((index, _)) = fitting(false).find(|(_, claim)| claim.held == Held::Mine) {
        return Choice::Keep(index);
    }
    let freshest = |held: Held| {
        let of_it = fitting(false).filter(|(_, claim)| claim.held == held);
        of_it.max_by_key(|(_, claim)| (claim.taken, claim.name)).map(|(index, _)| index)
    };
    let ending = || freshest(Held::Ending).filter(|_| patient).map(Choice::Await);
    let again = || {
        let rested = |claim: &Claim<'_>| claim.aside.is_some_and(|since| now.duration_since(since) >= ASIDE);
        let of_it = fitting(true).filter(|(_, claim)| claim.held == Held::Free && rested(claim));
        of_it.min_by_key(|(_, claim)| (claim.aside, claim.name)).map(|(index, _)| Choice::Take(index))
    };
    freshest(Held::Free).map(Choice::Take).or_else(ending).or_else(again).unwrap_or(Choice::Make)
}

/// A claim of a runner whose pod no node takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// It was another runner's before.
    pub inherited: bool,
    /// It was set aside, and the runner is about to be replaced.
    pub aside: bool,
}

/// What becomes of a runner whose pod no node takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing says that its volumes keep it waiting, or other ones would be no better off.
    Unconcerned,
    /// A node that reaches its volumes may come back, or get room: looked at again after this.
    Hope(SignedDuration),
    /// It has waited for as long as that is worth: the claims that it inherited are set aside, and it is replaced.
    Lost,
}

/// Decides about a runner whose pod has been unschedulable since then, for what the scheduler says, with these claims.
///
/// Claims that it made itself are no reason to replace it: another runner would make others, and the scheduler and the provisioner would
/// have the same choice again. So there are never more claims set aside than were in use once.
#[must_use]
pub fn reach(since: Timestamp, message: &str, claims: &[Tenure], patience: SignedDuration, now: Timestamp) -> Reach {
    if claims.iter().any(|claim| claim.aside) {
        // Decided by a process that was stopped in between.
        return Reach::Lost;
    }
    if !blames_volumes(message) || !claims.iter().any(|claim| claim.inherited) {
        return Reach::Unconcerned;
    }
    match patience.checked_sub(now.duration_since(since)) {
        Some(left) if left.is_positive() => Reach::Hope(left),
        _ => Reach::Lost,
    }
}

/// What a scheduler says of nodes that a pod's volumes can't be reached from: the plugins `VolumeBinding`, in its older words and its newer
/// ones, and `VolumeZone`.
const ELSEWHERE: [&str; 4] =
    ["volume node affinity conflict", "PersistentVolume's node affinity", "bound to non-existent pv", "no available volume zone"];

fn blames_volumes(message: &str) -> bool {
    ELSEWHERE.iter().any(|words| message.contains(words))
}

/// Free claims that `wanted` runners do not need, by index: those of other revisions than the set has now, those that were set aside, and of
/// each revision those that have been out of use for longest.
#[must_use]
pub fn surplus(claims: &[Claim<'_>], revisions: &[&str], wanted: usize) -> Vec<usize> {
    let free = |claim: &Claim<'_>| claim.held == Held::Free && claim.condition != Condition::Leaving;
    let mut surplus: Vec<usize> = claims
        .iter()
        .enumerate()
        .filter(|(_, claim)| free(claim) && !(claim.aside.is_none() && is_current(claim, revisions)))
        .map(|(index, _)| index)
        .collect();
    for revision in revisions {
        let of_it = || claims.iter().enumerate().filter(|(_, claim)| claim.revision == Some(*revision) && claim.aside.is_none());
        let held = of_it().filter(|(_, claim)| claim.held != Held::Free).count();
        let mut idle: Vec<(usize, &Claim<'_>)> = of_it().filter(|(_, claim)| free(claim)).collect();
        idle.sort_by_key(|(_, claim)| (claim.taken, claim.name));
        let keep = wanted.saturating_sub(held);
        surplus.extend(idle.iter().take(idle.len().saturating_sub(keep)).map(|(index, _)| *index));
    }
    surplus.sort_unstable();
    surplus
}

/// Why no runner will ever take a claim again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Its set is gone.
    SetGone,
    /// Its set has no such claim template any more.
    TemplateGone,
    /// Its volume is gone.
    VolumeGone,
    /// No node could reach its volume.
    OutOfReach,
}

/// Why no runner will take this claim again; none while one has it or may take it. `revisions` are those of its set's claim templates,
/// none when the set is gone.
#[must_use]
pub fn unusable(claim: &Claim<'_>, revisions: Option<&[&str]>) -> Option<Unusable> {
    if claim.held != Held::Free || claim.condition == Condition::Leaving {
        return None;
    }
    match revisions {
        None => Some(Unusable::SetGone),
        Some(_) if claim.condition == Condition::Lost => Some(Unusable::VolumeGone),
        Some(revisions) if !is_current(claim, revisions) => Some(Unusable::TemplateGone),
        Some(_) => claim.aside.map(|_| Unusable::OutOfReach),
    }
}

fn is_current(claim: &Claim<'_>, revisions: &[&str]) -> bool {
    claim.revision.is_some_and(|revision| revisions.contains(&revision))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const USABLE: Claim<'static> =
        Claim { name: "a", revision: Some("r"), held: Held::Free, condition: Condition::Usable, taken: None, aside: None };

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    #[test]
    fn a_runner_keeps_its_claim_and_else_takes_the_one_that_was_in_use_last() {
        let old = Claim { name: "old", taken: at(1), ..USABLE };
        let new = Claim { name: "new", taken: at(2), ..USABLE };
        let mine = Claim { name: "mine", held: Held::Mine, ..USABLE };
        let busy = Claim { name: "busy", held: Held::Other, taken: at(9), ..USABLE };
        let other = Claim { name: "other", revision: Some("s"), taken: at(9), ..USABLE };
        let unknown = Claim { name: "unknown", revision: None, taken: at(9), ..USABLE };
        let lost = Claim { name: "lost", condition: Condition::Lost, taken: at(9), ..USABLE };
        let leaving = Claim { name: "leaving", condition: Condition::Leaving, held: Held::Mine, ..USABLE };
        let ending = Claim { name: "ending", held: Held::Ending, taken: at(9), ..USABLE };
        let broken = Claim { name: "broken", aside: at(10), taken: at(9), ..USABLE };
        let older = Claim { name: "older", aside: at(5), taken: at(9), ..USABLE };
        let mine_aside = Claim { held: Held::Mine, ..broken };
        let now = at(11).unwrap();
        for (claims, expected) in [
            (vec![], Choice::Make),
            (vec![busy, other, unknown, lost, leaving], Choice::Make),
            (vec![old, new, busy, other, lost, ending], Choice::Take(1)),
            (vec![new, old], Choice::Take(0)),
            (vec![USABLE, old], Choice::Take(1)),
            (vec![old, new, mine], Choice::Keep(2)),
            (vec![busy, ending], Choice::Await(1)),
            (vec![broken, mine_aside], Choice::Make),
            (vec![broken, old], Choice::Take(1)),
        ] {
            assert_eq!(choose(&claims, "r", true, now), expected, "{claims:?}");
        }
        assert_eq!(choose(&[busy, ending], "r", false, now), Choice::Make);
        assert_eq!(choose(&[ending, old], "r", false, now), Choice::Take(1));
        // An hour later, and only before one would have to be made.
        for (second, claims, expected) in [
            (3_609, vec![broken, older], Choice::Take(1)),
            (3_609, vec![broken], Choice::Make),
            (3_610, vec![broken], Choice::Take(0)),
            (3_610, vec![broken, older], Choice::Take(1)),
            (3_610, vec![broken, ending], Choice::Await(1)),
            (3_610, vec![broken, old], Choice::Take(1)),
            (3_610, vec![Claim { held: Held::Other, ..broken }, mine_aside], Choice::Make),
        ] {
            assert_eq!(choose(&claims, "r", true, at(second).unwrap()), expected, "{claims:?} at {second}");
        }
    }

    #[test]
    fn a_volume_out_of_reach_is_waited_for_a_while() {
        const CONFLICT: &str = "0/4 nodes are available: 1 Insufficient cpu, 3 node(s) had volume node affinity conflict.";
        const NEWER: &str = "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity.";
        const OTHER: &str = "0/4 nodes are available: 1 Too many pods, 3 node(s) didn't match Pod's node affinity/selector.";
        let own = Tenure { inherited: false, aside: false };
        let inherited = Tenure { inherited: true, aside: false };
        let aside = Tenure { inherited: true, aside: true };
        let hope = |seconds| Reach::Hope(SignedDuration::from_secs(seconds));
        for (message, claims, second, expected) in [
            (CONFLICT, vec![inherited], 100, hope(300)),
            (CONFLICT, vec![inherited], 399, hope(1)),
            (CONFLICT, vec![inherited], 400, Reach::Lost),
            (CONFLICT, vec![own, inherited], 9_999, Reach::Lost),
            (NEWER, vec![inherited], 400, Reach::Lost),
            (OTHER, vec![inherited], 9_999, Reach::Unconcerned),
            (CONFLICT, vec![own, own], 9_999, Reach::Unconcerned),
            (CONFLICT, vec![], 9_999, Reach::Unconcerned),
            // Whatever the scheduler says by now: nobody else takes it, and it has no other.
            (OTHER, vec![own, aside], 100, Reach::Lost),
        ] {
            let now = at(second).unwrap();
            let found = reach(at(100).unwrap(), message, &claims, SignedDuration::from_secs(300), now);
            assert_eq!(found, expected, "{message} {claims:?} at {second}");
        }
    }

    #[test]
    fn what_fewer_runners_leave_over_goes_coldest_first() {
        let held = Claim { name: "held", held: Held::Other, ..USABLE };
        let cold = Claim { name: "cold", taken: at(1), ..USABLE };
        let warm = Claim { name: "warm", taken: at(2), ..USABLE };
        let old = Claim { name: "old", revision: Some("s"), taken: at(3), ..USABLE };
        let used = Claim { name: "used", revision: Some("s"), held: Held::Other, ..USABLE };
        let claims = [warm, held, old, cold, used];
        for (wanted, expected) in [(0, vec![0, 2, 3]), (1, vec![0, 2, 3]), (2, vec![2, 3]), (3, vec![2]), (9, vec![2])] {
            assert_eq!(surplus(&claims, &["r"], wanted), expected, "{wanted}");
        }
        assert_eq!(surplus(&claims, &["r", "s"], 3), Vec::<usize>::new());
        let aside = Claim { name: "aside", aside: at(4), ..USABLE };
        assert_eq!(surplus(&[aside, cold, warm], &["r"], 2), [0]);
        assert_eq!(surplus(&[Claim { held: Held::Other, ..aside }, cold], &["r"], 1), Vec::<usize>::new());
    }

    #[test]
    fn a_claim_is_unusable_for_a_reason() {
        let held = Claim { held: Held::Other, ..USABLE };
        let lost = Claim { condition: Condition::Lost, ..USABLE };
        let leaving = Claim { condition: Condition::Leaving, ..USABLE };
        let present: Option<&[&str]> = Some(&["r"]);
        let changed: Option<&[&str]> = Some(&["s"]);
        for (claim, revisions, expected) in [
            (USABLE, present, None),
            (USABLE, changed, Some(Unusable::TemplateGone)),
            (USABLE, None, Some(Unusable::SetGone)),
            (Claim { revision: None, ..USABLE }, present, Some(Unusable::TemplateGone)),
            (held, None, None),
            (leaving, None, None),
            (lost, present, Some(Unusable::VolumeGone)),
            (lost, None, Some(Unusable::SetGone)),
            (Claim { aside: at(1), ..USABLE }, present, Some(Unusable::OutOfReach)),
            (Claim { aside: at(1), ..USABLE }, changed, Some(Unusable::TemplateGone)),
            (Claim { aside: at(1), ..held }, present, None),
        ] {
            assert_eq!(unusable(&claim, revisions), expected, "{claim:?} {revisions:?}");
        }
    }

    type Parts = (u8, u8, u8, i64, Option<i64>);

    fn claims() -> impl Strategy<Value = Vec<Parts>> {
        prop::collection::vec((0..4_u8, 0..3_u8, 0..3_u8, 0..5_i64, prop::option::of(0..5_i64)), 0..12)
    }

    fn build<'a>(names: &'a [String], parts: &[Parts]) -> Vec<Claim<'a>> {
        let held = [Held::Mine, Held::Other, Held::Free, Held::Ending];
        let condition = [Condition::Usable, Condition::Lost, Condition::Leaving];
        let revision = [Some("r"), Some("s"), None];
        let build = |(name, (h, c, r, taken, aside)): (&'a String, &Parts)| Claim {
            name,
            revision: revision[usize::from(*r)],
            held: held[usize::from(*h)],
            condition: condition[usize::from(*c)],
            taken: at(*taken),
            aside: aside.and_then(at),
        };
        names.iter().zip(parts).map(build).collect()
    }

    proptest! {
        #[test]
        fn nobodys_claim_is_taken_or_deleted(parts in claims(), wanted in 0..12_usize, patient: bool, now in 0..9_000_i64) {
            let names: Vec<String> = (0..parts.len()).map(|index| format!("claim-{index}")).collect();
            let claims = build(&names, &parts);
            let now = at(now).unwrap();
            match choose(&claims, "r", patient, now) {
                Choice::Await(index) => prop_assert_eq!((claims[index].held, patient), (Held::Ending, true)),
                Choice::Keep(index) => prop_assert_eq!(claims[index].held, Held::Mine),
                Choice::Take(index) => {
                    prop_assert_eq!(claims[index].held, Held::Free);
                    prop_assert_eq!(claims[index].revision, Some("r"));
                    prop_assert_eq!(claims[index].condition, Condition::Usable);
                    prop_assert!(claims[index].aside.is_none_or(|since| now.duration_since(since) >= ASIDE));
                }
                Choice::Make => {}
            }
            let gone = surplus(&claims, &["r"], wanted);
            prop_assert!(gone.iter().all(|index| claims[*index].held == Held::Free));
            let left = claims.iter().enumerate().filter(|(index, claim)| {
                !gone.contains(index) && claim.revision == Some("r") && claim.held == Held::Free && claim.condition != Condition::Leaving
            });
            let held = claims.iter().filter(|claim| claim.revision == Some("r") && claim.held != Held::Free && claim.aside.is_none());
            let held = held.count();
            prop_assert!(left.count() <= wanted.saturating_sub(held));
        }
    }
}
