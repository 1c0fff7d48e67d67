//! The policies of a pool as simulations ask them.

use std::sync::Arc;

use crate::assignment::{Assignment, Chosen};
use crate::decision::{Decision, PerDecision};
use crate::generation::Generation;
use crate::lane::Lane;

/// The decisions that a simulation takes.
const SIMULATED: [Decision; 3] = [Decision::ScaleDown, Decision::Restart, Decision::Capacity];

/// The policies of a pool for simulations: those in force, and those that would be if the ones in shadow decided.
///
/// Their calls are as bounded as any, one at a time, and beside those of decisions: they have no breakers and no log, and counters of their own, so
/// nothing that fails here changes who decides. The shipped policy is asked as it is linked into this program, which starts no process.
#[derive(Clone, Debug)]
pub struct Supposed {
    /// Who decides, as in the pool.
    pub in_force: Arc<Generation>,
    /// The same, with the policies in shadow in the places for which there are some.
    pub shadow: Arc<Generation>,
}

impl Supposed {
    /// Of a pool whose capacity is decided by one generation and whose runners by another, which may be the same. None where no policy is in
    /// shadow for a decision that a simulation takes.
    #[must_use]
    pub fn of(capacity: &Generation, runners: &Generation) -> Option<Self> {
        let of = |decision| if decision == Decision::Capacity { capacity } else { runners };
        let shadow = |decision| of(decision).shadows.get(decision).as_ref().map(|candidate| &candidate.lane.assignment);
        if !SIMULATED.into_iter().any(|decision| shadow(decision).is_some()) {
            return None;
        }
        let sandbox = Arc::new(runners.sandbox.for_simulations());
        let generation = |assignments: PerDecision<&Assignment>| {
            let lanes = PerDecision::from_fn(|decision| Arc::new(Lane::supposed(decision, linked(assignments.get(decision)))));
            let shadows = PerDecision::default();
            Arc::new(Generation { number: runners.number, lanes, shadows, recovery: None, sandbox: Arc::clone(&sandbox) })
        };
        let in_force = PerDecision::from_fn(|decision| of(decision).assignment(decision));
        let supposed = PerDecision::from_fn(|decision| shadow(decision).unwrap_or_else(|| of(decision).assignment(decision)));
        Some(Self { in_force: generation(in_force), shadow: generation(supposed) })
    }

    /// Whether the same policies are in force here as there, with the same settings.
    #[must_use]
    pub fn has_the_same_in_force(&self, other: &Self) -> bool {
        same(&self.in_force, &other.in_force)
    }

    /// Whether the same policies are in force and in shadow here as there, with the same settings.
    #[must_use]
    pub fn is_the_same(&self, other: &Self) -> bool {
        self.has_the_same_in_force(other) && same(&self.shadow, &other.shadow)
    }
}

fn same(one: &Generation, other: &Generation) -> bool {
    SIMULATED.into_iter().all(|decision| {
        let (one, other) = (one.assignment(decision), other.assignment(decision));
        one.policy() == other.policy() && one.settings == other.settings && one.limits == other.limits
    })
}

fn linked(assignment: &Assignment) -> Assignment {
    match assignment.chosen {
        Chosen::Shipped => Assignment { chosen: Chosen::Native, ..assignment.clone() },
        Chosen::Native | Chosen::Policy(_) => assignment.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pacer_core::policy::CapacityRequest;

    use super::*;
    use crate::{Bundle, Counters, DecidedBy, PolicyHost, StagedSet};

    async fn staged(host: &PolicyHost, text: &str) -> StagedSet {
        let data = BTreeMap::from([("policies.yaml".to_owned(), text.to_owned())]);
        let bundle = Bundle::parse(host, "default", &data, &BTreeMap::new()).await.unwrap();
        bundle.stage(host).await.unwrap()
    }

    #[tokio::test]
    async fn calls_of_a_simulation_count_nowhere_and_compare_nothing() {
        let counters = Arc::new(Counters::default());
        let host = PolicyHost::new(counters.clone());
        let set = staged(&host, "capacity: {module: builtin, mode: shadow}\n").await;
        let generation = host.compose(&[&set]);
        let supposed = Supposed::of(&generation, &generation).unwrap();
        for asked in [&supposed.in_force, &supposed.shadow] {
            let evaluation = asked.capacity(CapacityRequest::default()).await;
            assert_eq!((evaluation.decided_by, evaluation.fault), (DecidedBy::Native, None));
        }
        host.join().await;
        assert_eq!((counters.evaluations(Decision::Capacity), counters.compared(Decision::Capacity)), (0, 0));
        assert_eq!(set.shadow(Decision::Capacity).unwrap().1, crate::Tally::default());
    }

    #[tokio::test]
    async fn only_a_policy_in_shadow_for_what_is_simulated_is_supposed_to_decide() {
        let host = PolicyHost::new(Arc::new(Counters::default()));
        let capacity = host.compose(&[&staged(&host, "capacity: {module: builtin, mode: shadow}\n").await]);
        let restart = host.compose(&[&staged(&host, "restart: {module: builtin, mode: shadow}\n").await]);
        let recover = host.compose(&[&staged(&host, "recover: {module: builtin, mode: shadow}\n").await]);
        let plain = host.compose(&[&staged(&host, "capacity: builtin\n").await]);
        for (of_capacity, of_runners, expected) in [
            (&capacity, &plain, true),
            // Each of the two is asked about its own decisions alone.
            (&plain, &capacity, false),
            (&plain, &restart, true),
            (&restart, &plain, false),
            (&recover, &recover, false),
            (&plain, &plain, false),
        ] {
            assert_eq!(Supposed::of(of_capacity, of_runners).is_some(), expected, "{of_capacity:?} {of_runners:?}");
        }
        let (one, other) = (Supposed::of(&capacity, &plain).unwrap(), Supposed::of(&capacity, &restart).unwrap());
        assert!(one.is_the_same(&other) && one.has_the_same_in_force(&other), "the same policy is in shadow as decides");
        let set = "capacity:\n- module: builtin\n- {module: builtin, mode: shadow, limits: {fuel: 5000000}}\n";
        let limited = host.compose(&[&staged(&host, set).await]);
        let limited = Supposed::of(&limited, &limited).unwrap();
        assert!(!one.is_the_same(&limited) && one.has_the_same_in_force(&limited));
    }
}
