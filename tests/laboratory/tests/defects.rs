//! Defects that rules had, or could have, are found.

use anyhow::{Result, ensure};
use pacer_laboratory::invariant::Invariant;
use pacer_laboratory::rules::{Defect, Rules};
use pacer_laboratory::script::Script;
use pacer_laboratory::world::run;

/// Each defect, the first seed at which it is found, and by what; `fuzz-fleet defects` prints the table anew.
const FOUND: &[(Defect, u64, Invariant)] = &[
    (Defect::FlagOverEvent, 112, Invariant::BusyUnregistered),
    (Defect::FlagOverPod, 2, Invariant::BusyUnregistered),
    (Defect::StopAsksAtOnce, 2, Invariant::BusyUnregistered),
    (Defect::PodDeletedAfterRemoval, 18, Invariant::BusyPodDeleted),
    (Defect::BusyIsGone, 4, Invariant::Convergence),
    (Defect::RefusalIsGone, 13, Invariant::Convergence),
    (Defect::TornProvesAbsence, 50, Invariant::Convergence),
    (Defect::OneListingProves, 50, Invariant::Convergence),
    (Defect::OldListingProves, 285, Invariant::Convergence),
    (Defect::EarlyEndIsFailure, 69, Invariant::FailureInvented),
    (Defect::InvalidKeepsNothing, 21, Invariant::Convergence),
    (Defect::RemovalsUnpaced, 1, Invariant::Limits),
    (Defect::InterruptedWatchEmpties, 62, Invariant::JobDeclaredOver),
    (Defect::CreationsForgotten, 0, Invariant::TooManyRunners),
    (Defect::SurgeUnbounded, 0, Invariant::TooManyRunners),
    (Defect::BoundsIgnored, 1, Invariant::OutOfBounds),
    (Defect::GateOpen, 293, Invariant::BusyUnregistered),
    (Defect::NoPause, 0, Invariant::HotLoop),
];

#[test]
fn each_defect_is_found_at_its_seed() -> Result<()> {
    for (defect, seed, invariant) in FOUND {
        let script = Script::of_seed(*seed);
        let found = run(&script, Rules::with(*defect), false).violation;
        match &found {
            Some(violation) => println!("{defect:?}: seed {seed}, {violation}"),
            None => println!("{defect:?}: not found at seed {seed}"),
        }
        let by = found.map(|violation| violation.invariant);
        ensure!(by == Some(*invariant), "{defect:?} at seed {seed}: {by:?} instead of {invariant:?}; print the table anew");
        let without = run(&script, Rules::default(), false).violation;
        ensure!(without.is_none(), "seed {seed} fails without {defect:?} as well: {without:?}");
    }
    Ok(())
}

#[test]
fn every_defect_is_found_within_a_thousand_seeds() {
    let known = |defect: &Defect| FOUND.iter().any(|(found, seed, _)| found == defect && *seed < 1_000);
    let missing: Vec<Defect> = Defect::ALL.into_iter().filter(|defect| !known(defect)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
