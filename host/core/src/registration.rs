//! Registrations without an agent, for servers that fail a job at once when no runner with its labels is registered.
//!
//! A fleet that may shrink to nothing keeps one such runner, offline for GitHub, exactly while it wants none that works: ARC did so until
//! 0.21 (arc-behaviour 10.1), GitHub Enterprise Server queues such jobs by itself since 3.3.

/// One registration-only runner of a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// It carries the labels of the fleet's present template.
    pub current: bool,
    /// GitHub has listed it.
    pub registered: bool,
    /// Its deletion has been asked for.
    pub leaving: bool,
}

/// A fleet that may want one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fleet<'a> {
    /// Its owner asked for registrations while it is empty.
    pub opted_in: bool,
    /// How many runners that work it wants.
    pub desired: u32,
    /// How many of them GitHub can hand a job to.
    pub online: u32,
    /// Those there are, creations under way included.
    pub registrations: &'a [Registration],
}

/// Which registrations a fleet makes and removes now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// One has to be made.
    pub create: bool,
    /// These are to go, by index.
    pub remove: Vec<usize>,
    /// The last runner that works is not to be removed yet: nothing else is registered.
    pub hold_last: bool,
}

/// Plans one step. There is always something registered: a runner that works goes after its stand-in has registered, and a stand-in after a
/// runner that works, or the stand-in with the present labels, is there.
#[must_use]
pub fn plan(fleet: &Fleet<'_>) -> Plan {
    let all = fleet.registrations.iter().enumerate().filter(|(_, one)| !one.leaving);
    let wanted = fleet.opted_in && fleet.desired == 0;
    let kept = all.clone().filter(|(_, one)| one.current).max_by_key(|(index, one)| (one.registered, std::cmp::Reverse(*index)));
    let covered = match (wanted, kept) {
        (true, Some((_, kept))) => kept.registered,
        (true, None) => false,
        (false, _) => !fleet.opted_in || fleet.online > 0,
    };
    let remove = all
        .filter(|(index, one)| match kept {
            Some((kept, _)) if wanted && kept == *index => false,
            // Of several with the same labels one is enough at any time.
            Some(_) if wanted && one.current => true,
            _ => covered,
        })
        .map(|(index, _)| index)
        .collect();
    Plan { create: wanted && kept.is_none(), remove, hold_last: wanted && !covered }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NEW: Registration = Registration { current: true, registered: false, leaving: false };
    const READY: Registration = Registration { registered: true, ..NEW };
    const OLD: Registration = Registration { current: false, ..READY };
    const LEAVING: Registration = Registration { leaving: true, ..READY };

    fn of(opted_in: bool, desired: u32, online: u32, registrations: &[Registration]) -> (bool, Vec<usize>, bool) {
        let Plan { create, remove, hold_last } = plan(&Fleet { opted_in, desired, online, registrations });
        (create, remove, hold_last)
    }

    #[test]
    fn there_is_one_exactly_while_no_runner_is_wanted() {
        for (what, opted_in, desired, online, there, expected) in [
            ("nobody asked", false, 0, 0, &[][..], (false, vec![], false)),
            ("nobody asks any more", false, 0, 0, &[READY], (false, vec![0], false)),
            ("empty", true, 0, 0, &[], (true, vec![], true)),
            ("empty, the last one still works", true, 0, 1, &[], (true, vec![], true)),
            ("on its way", true, 0, 1, &[NEW], (false, vec![], true)),
            ("settled", true, 0, 0, &[READY], (false, vec![], false)),
            ("the one before is on its way out", true, 0, 0, &[LEAVING], (true, vec![], true)),
            ("labels changed", true, 0, 0, &[OLD], (true, vec![], true)),
            ("labels changed, the new one is not known yet", true, 0, 0, &[OLD, NEW], (false, vec![], true)),
            ("labels changed, the new one is known", true, 0, 0, &[OLD, READY], (false, vec![0], false)),
            ("one too many", true, 0, 0, &[NEW, READY], (false, vec![0], false)),
            ("two too many, none known", true, 0, 0, &[NEW, NEW, NEW], (false, vec![1, 2], true)),
            ("a runner is wanted and not there yet", true, 1, 0, &[READY], (false, vec![], false)),
            ("a runner works", true, 1, 1, &[READY], (false, vec![0], false)),
            ("a runner works, it is on its way out", true, 1, 1, &[LEAVING], (false, vec![], false)),
            ("runners work", true, 3, 3, &[], (false, vec![], false)),
        ] {
            assert_eq!(of(opted_in, desired, online, there), expected, "{what}");
        }
    }

    prop_compose! {
        fn registration()(current in any::<bool>(), registered in any::<bool>(), leaving in any::<bool>()) -> Registration {
            Registration { current, registered, leaving }
        }
    }

    proptest! {
        #[test]
        fn a_step_never_leaves_github_without_one(
            desired in 0_u32..3,
            online in 0_u32..3,
            there in prop::collection::vec(registration(), 0..4),
        ) {
            let plan = plan(&Fleet { opted_in: true, desired, online, registrations: &there });
            let known = |one: &Registration| one.registered && !one.leaving;
            let left = there.iter().enumerate().filter(|(index, one)| known(one) && !plan.remove.contains(index)).count();
            // Whoever was registered and is taken away has a successor that is.
            prop_assert!(!there.iter().any(known) || left > 0 || (desired > 0 && online > 0), "{plan:?}");
            prop_assert!(plan.hold_last == (desired == 0 && !there.iter().any(|one| known(one) && one.current)));
            prop_assert!(!plan.create || plan.remove.is_empty(), "one or the other: {plan:?}");
            prop_assert!(plan.remove.iter().all(|index| !there[*index].leaving));
        }
    }
}
