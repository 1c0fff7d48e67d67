//! What an error of the engine means.

use pacer_policy::{Fault, PANIC};
use wasmtime::{Trap, WasmBacktrace};

use crate::guest::Guest;

/// What wasmtime says when a value from a guest exceeds the budget for host calls; its error type is private.
const HOSTCALL_TEXT: &str = "too much data is being copied between the host and the guest";

/// Longest name of a function that is told, in bytes: names of generic functions have no end.
const NAME_BYTES: usize = 160;

/// Functions of the languages' own runtimes, in which every panic ends: they say nothing about the policy.
const RUNTIMES: [&str; 9] = ["core::", "std::", "alloc::", "<core::", "<std::", "<alloc::", "__rust", "rust_", "runtime."];

/// The fault of a policy whose call ended with this error.
///
/// The meter is asked first: a guest that is refused memory ends in whatever its allocator does then, mostly `unreachable`.
pub(crate) fn classify(error: &wasmtime::Error, guest: &Guest, instantiated: bool) -> Fault {
    if guest.meter.denied() {
        return Fault::Memory;
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => Fault::Fuel,
        Some(Trap::Interrupt) => Fault::Deadline,
        Some(Trap::StackOverflow) => Fault::of_kind("stack", &function(error).unwrap_or_default()),
        Some(Trap::AllocationTooLarge) => Fault::Memory,
        Some(trap) => Fault::of_kind("panic", &trapped(*trap, error, guest)),
        None => {
            let text = told(error);
            if text.contains(HOSTCALL_TEXT) {
                Fault::HostcallData
            } else {
                Fault::of_kind(if instantiated { "invalid-output" } else { "instantiate" }, &text)
            }
        }
    }
}

/// What the policy said of its panic; else which trap it was, and where.
fn trapped(trap: Trap, error: &wasmtime::Error, guest: &Guest) -> String {
    // A panic ends in `unreachable`, so what was said before another trap was said of something else.
    if let (Trap::UnreachableCodeReached, Some(said)) = (trap, &guest.panic) {
        return format!("{PANIC}{said}");
    }
    let trap = match trap {
        Trap::UnreachableCodeReached => "unreachable".to_owned(),
        Trap::MemoryOutOfBounds => "out of bounds memory access".to_owned(),
        Trap::IntegerDivisionByZero => "integer division by zero".to_owned(),
        other => other.to_string().trim_start_matches("wasm trap: ").to_owned(),
    };
    match function(error) {
        Some(function) => format!("{trap}, in {function}"),
        None => trap,
    }
}

/// The innermost function that is the policy's own, where its component has names.
fn function(error: &wasmtime::Error) -> Option<String> {
    let frames = error.downcast_ref::<WasmBacktrace>()?.frames();
    // Behind one without a name, the function that called it would be taken for it.
    let names = || frames.iter().map_while(|frame| frame.func_name()).map(|name| format!("{:#}", rustc_demangle::demangle(name)));
    let own = names().find(|name| !RUNTIMES.iter().any(|runtime| name.starts_with(runtime)));
    own.or_else(|| names().next()).map(|name| pacer_core::gate::scrub(&name, NAME_BYTES))
}

/// The error with its causes, without the engine's own picture of the stack.
fn told(error: &wasmtime::Error) -> String {
    let backtrace = error.downcast_ref::<WasmBacktrace>().map(ToString::to_string);
    let causes = error.chain().map(ToString::to_string).filter(|cause| Some(cause) != backtrace.as_ref());
    causes.collect::<Vec<_>>().join(": ")
}
