//! A bounded part of what `make fuzz-fleet` does.

use std::thread::available_parallelism;

use anyhow::{Result, bail};
use pacer_laboratory::fuzz::search;
use pacer_laboratory::minimise::minimise;
use pacer_laboratory::rules::Rules;
use pacer_laboratory::script::Script;
use pacer_laboratory::world::run;

/// Some 40 s on two cores.
const SEEDS: u64 = 1_000;

#[test]
fn every_seed_holds_every_invariant() -> Result<()> {
    let threads = available_parallelism().map_or(1, usize::from);
    let report = search(0, SEEDS, Rules::default(), threads, 1, None);
    println!("{}", report.line());
    if let Some((seed, violation)) = report.failures.first() {
        let (script, violation) = minimise(&Script::of_seed(*seed), Rules::default(), violation);
        let trace = run(&script, Rules::default(), true).trace.join("\n");
        bail!("seed {seed}: {violation}\n\n{script}\n{trace}");
    }
    Ok(())
}

#[test]
fn a_script_runs_the_same_way_each_time() {
    for seed in 0..20 {
        let script = Script::of_seed(seed);
        let (one, other) = (run(&script, Rules::default(), true), run(&script, Rules::default(), true));
        assert_eq!(one.trace, other.trace, "seed {seed}");
        assert_eq!((one.lasted, one.jobs), (other.lasted, other.jobs));
    }
}
