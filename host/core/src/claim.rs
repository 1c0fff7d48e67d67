//! Which claim a runner gets, and which claims are left over.
//!
//! A claim outlives its runner. The next runner of the same set takes it over with all that is on its volume; a new claim is made only when
//! none is free. Nobody is told that a claim became free: it is free when its last holder is gone.

use jiff::Timestamp;

/// One claim of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// Its name.
    pub name: &'a str,
    /// Revision of the claim template that it was made from.
    pub revision: Option<&'a str>,
    /// Who has it.
    pub held: Held,
    /// What can be done with it.
    pub condition: Condition,
    /// When a runner took it last.
    pub taken: Option<Timestamp>,
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
/// would otherwise always come too early for its claim, and the set would have twice as many volumes as runners.
#[must_use]
pub fn choose(claims: &[Claim<'_>], revision: &str, patient: bool) -> Choice {
    let fitting = || {
        let fits = |claim: &Claim<'_>| claim.revision == Some(revision) && claim.condition == Condition::Usable;
        claims.iter().enumerate().filter(move |(_, claim)| fits(claim))
    };
    if let Some((index, _)) = fitting().find(|(_, claim)| claim.held == Held::Mine) {
        return Choice::Keep(index);
    }
    let freshest = |held: Held| {
        let of_it = fitting().filter(|(_, claim)| claim.held == held);
        of_it.max_by_key(|(_, claim)| (claim.taken, claim.name)).map(|(index, _)| index)
    };
    let ending = || freshest(Held::Ending).filter(|_| patient).map(Choice::Await);
    freshest(Held::Free).map(Choice::Take).or_else(ending).unwrap_or(Choice::Make)
}

/// Free claims that `wanted` runners do not need, by index: those of other revisions than the set has now, and of each revision those that
/// have been out of use for longest.
#[must_use]
pub fn surplus(claims: &[Claim<'_>], revisions: &[&str], wanted: usize) -> Vec<usize> {
    let free = |claim: &Claim<'_>| claim.held == Held::Free && claim.condition != Condition::Leaving;
    let mut surplus: Vec<usize> = claims
        .iter()
        .enumerate()
        .filter(|(_, claim)| free(claim) && !claim.revision.is_some_and(|revision| revisions.contains(&revision)))
        .map(|(index, _)| index)
        .collect();
    for revision in revisions {
        let of_it = || claims.iter().enumerate().filter(|(_, claim)| claim.revision == Some(*revision));
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
}

/// Why no runner will ever take this claim again; none while one has it or may take it. `revisions` are those of its set's claim templates,
/// none when the set is gone.
#[must_use]
pub fn unusable(claim: &Claim<'_>, revisions: Option<&[&str]>) -> Option<Unusable> {
    if claim.held != Held::Free || claim.condition == Condition::Leaving {
        return None;
    }
    match revisions {
        None => Some(Unusable::SetGone),
        Some(_) if claim.condition == Condition::Lost => Some(Unusable::VolumeGone),
        Some(revisions) if !claim.revision.is_some_and(|revision| revisions.contains(&revision)) => Some(Unusable::TemplateGone),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const USABLE: Claim<'static> =
        Claim { name: "a", revision: Some("r"), held: Held::Free, condition: Condition::Usable, taken: None };

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
        for (claims, expected) in [
            (vec![], Choice::Make),
            (vec![busy, other, unknown, lost, leaving], Choice::Make),
            (vec![old, new, busy, other, lost, ending], Choice::Take(1)),
            (vec![new, old], Choice::Take(0)),
            (vec![USABLE, old], Choice::Take(1)),
            (vec![old, new, mine], Choice::Keep(2)),
            (vec![busy, ending], Choice::Await(1)),
        ] {
            assert_eq!(choose(&claims, "r", true), expected, "{claims:?}");
        }
        assert_eq!(choose(&[busy, ending], "r", false), Choice::Make);
        assert_eq!(choose(&[ending, old], "r", false), Choice::Take(1));
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
        ] {
            assert_eq!(unusable(&claim, revisions), expected, "{claim:?} {revisions:?}");
        }
    }

    fn claims() -> impl Strategy<Value = Vec<(u8, u8, u8, i64)>> {
        prop::collection::vec((0..4_u8, 0..3_u8, 0..3_u8, 0..5_i64), 0..12)
    }

    fn build<'a>(names: &'a [String], parts: &[(u8, u8, u8, i64)]) -> Vec<Claim<'a>> {
        let held = [Held::Mine, Held::Other, Held::Free, Held::Ending];
        let condition = [Condition::Usable, Condition::Lost, Condition::Leaving];
        let revision = [Some("r"), Some("s"), None];
        let build = |(name, (h, c, r, taken)): (&'a String, &(u8, u8, u8, i64))| Claim {
            name,
            revision: revision[usize::from(*r)],
            held: held[usize::from(*h)],
            condition: condition[usize::from(*c)],
            taken: at(*taken),
        };
        names.iter().zip(parts).map(build).collect()
    }

    proptest! {
        #[test]
        fn nobodys_claim_is_taken_or_deleted(parts in claims(), wanted in 0..12_usize, patient: bool) {
            let names: Vec<String> = (0..parts.len()).map(|index| format!("claim-{index}")).collect();
            let claims = build(&names, &parts);
            match choose(&claims, "r", patient) {
                Choice::Await(index) => prop_assert_eq!((claims[index].held, patient), (Held::Ending, true)),
                Choice::Keep(index) => prop_assert_eq!(claims[index].held, Held::Mine),
                Choice::Take(index) => {
                    prop_assert_eq!(claims[index].held, Held::Free);
                    prop_assert_eq!(claims[index].revision, Some("r"));
                    prop_assert_eq!(claims[index].condition, Condition::Usable);
                }
                Choice::Make => {}
            }
            let gone = surplus(&claims, &["r"], wanted);
            prop_assert!(gone.iter().all(|index| claims[*index].held == Held::Free));
            let left = claims.iter().enumerate().filter(|(index, claim)| {
                !gone.contains(index) && claim.revision == Some("r") && claim.held == Held::Free && claim.condition != Condition::Leaving
            });
            let held = claims.iter().filter(|claim| claim.revision == Some("r") && claim.held != Held::Free).count();
            prop_assert!(left.count() <= wanted.saturating_sub(held));
        }
    }
}
