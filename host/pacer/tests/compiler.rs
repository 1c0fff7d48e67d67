//! Policies that the executable compiles for the operator are those that the operator would have compiled.

#![allow(clippy::unwrap_used, reason = "also in what tests call")]

use std::path::Path;
use std::time::Duration;

use pacer_policy::{Compiler, Decision, Engine, Inquiry, Limits, NO_SETTINGS, Policy, Refusal, SHIPPED};

fn beside() -> Engine {
    let pacer = Path::new(env!("CARGO_BIN_EXE_pacer"));
    Engine::compiling_in(Compiler::program(pacer, ["compile-policy"], Duration::from_secs(60))).unwrap()
}

#[test]
fn a_policy_compiled_in_another_process_gives_the_same_answers() {
    let (beside, here) = (beside(), Engine::new().unwrap());
    beside.self_test().unwrap();
    let (one, other) = (Policy::load(&beside, SHIPPED).unwrap(), Policy::load(&here, SHIPPED).unwrap());
    for decision in Decision::ALL {
        let inquiry = Inquiry::typical(decision, 100);
        let (one, other) = (
            one.answer(&beside, &inquiry, NO_SETTINGS, &Limits::default()),
            other.answer(&here, &inquiry, NO_SETTINGS, &Limits::default()),
        );
        assert!(one.answer.is_ok());
        assert_eq!((one.answer, one.fuel, one.peak_memory), (other.answer, other.fuel, other.peak_memory), "{decision}");
    }
}

#[test]
fn what_is_refused_here_is_refused_there() {
    // Nothing is compiled of the first two; the third one does not get beyond the compiler that is no compiler.
    for (bytes, refusal) in [(&b""[..], Refusal::NotWebAssembly), (b"\0asm\x01\0\0\0", Refusal::CoreModule)] {
        assert_eq!(Policy::load(&beside(), bytes).unwrap_err().code, refusal);
    }
    for (script, refusal) in [("exit 1", Refusal::Compile), ("exec sleep 600", Refusal::CompileTimeout)] {
        let other = Engine::compiling_in(Compiler::program("/bin/sh", ["-c", script], Duration::from_millis(100))).unwrap();
        assert_eq!(Policy::load(&other, SHIPPED).unwrap_err().code, refusal, "{script}");
    }
}

#[test]
fn a_machine_that_is_out_of_processes_still_loads_policies() {
    let none = Engine::compiling_in(Compiler::program("/no/such/program", ["compile-policy"], Duration::from_secs(60))).unwrap();
    assert!(Policy::load(&none, SHIPPED).is_ok());
}
