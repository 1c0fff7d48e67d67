//! Runs policies that are JavaScript text: the text comes from the host, the request is handed to the function that the text exports, and
//! its answer goes back. Like every component it lives for one call and has nothing but what it was given.

#![cfg(target_arch = "wasm32")]

mod answer;
#[allow(unsafe_code, missing_docs, unreachable_pub, reason = "generated; the contract documents what it declares")]
mod bindings;
mod console;
mod program;
mod request;

use bindings::exports::pacer::interpreter::program::{Guest as Checked, Problem as Wrong};
use bindings::exports::pacer::policy0_1_0::capacity::{CapacityPlan, Guest as Capacity, Request as CapacityRequest};
use bindings::exports::pacer::policy0_1_0::lifecycle::{Description, Guest as Lifecycle, Problem};
use bindings::exports::pacer::policy0_1_0::restart::{Guest as Restart, Request as RestartRequest, Verdict};
use bindings::exports::pacer::policy0_1_0::scale_down::{Choice, Guest as ScaleDown, Request as ScaleDownRequest};
use bindings::exports::pacer::policy0_2_0::recover::{Guest as Recover, Request as RecoverRequest, Verdict as Recovery};
use program::Program;

struct Interpreter;

impl Checked for Interpreter {
    fn check() -> Result<Vec<String>, Wrong> {
        Program::check()
    }
}

impl Lifecycle for Interpreter {
    fn describe() -> Description {
        // A text whose description is wrong is refused by `check`, which is asked first and can say why.
        Program::load(0.0).and_then(|mut program| program.describe()).unwrap_or_default()
    }

    fn validate_settings(settings: String) -> Result<(), Vec<Problem>> {
        let whole = |message| vec![Problem { path: String::new(), message }];
        Program::load(0.0).map_err(whole)?.validate(&settings)
    }
}

impl ScaleDown for Interpreter {
    fn select(request: ScaleDownRequest) -> Result<Vec<Choice>, String> {
        let mut program = Program::load(request.now)?;
        let asked = request::scale_down(&request);
        answer::list("choices", &["index"], program.ask("scaleDown", "select", &request.settings, &asked)?)
    }
}

impl Restart for Interpreter {
    fn decide(request: RestartRequest) -> Result<Vec<Verdict>, String> {
        let mut program = Program::load(request.now)?;
        let asked = request::restart(&request);
        answer::list("verdicts", &["index", "action"], program.ask("restart", "decide", &request.settings, &asked)?)
    }
}

impl Capacity for Interpreter {
    fn plan(request: CapacityRequest) -> Result<CapacityPlan, String> {
        let mut program = Program::load(request.now)?;
        let asked = request::capacity(&request);
        answer::plan(program.ask("capacity", "plan", &request.settings, &asked)?)
    }
}

impl Recover for Interpreter {
    fn decide(request: RecoverRequest) -> Result<Vec<Recovery>, String> {
        let mut program = Program::load(request.now)?;
        let asked = request::recover(&request);
        answer::list("verdicts", &["index", "action"], program.ask("recover", "decide", &request.settings, &asked)?)
    }
}

/// What the macro makes of it.
mod exported {
    #![allow(unsafe_code, reason = "generated: an export is a function by its address")]

    use super::{Interpreter, bindings};

    bindings::export!(Interpreter with_types_in bindings);
}
