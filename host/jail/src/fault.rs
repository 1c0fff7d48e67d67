//! What an error of the engine means.

use pacer_policy::Fault;
use wasmtime::Trap;

use crate::meter::Meter;

/// What wasmtime says when a value from a guest exceeds the budget for host calls; its error type is private.
const HOSTCALL_TEXT: &str = "too much data is being copied between the host and the guest";

/// The fault of a policy whose call ended with this error.
///
/// The meter is asked first: a guest that is refused memory ends in whatever its allocator does then, mostly `unreachable`.
pub(crate) fn classify(error: &wasmtime::Error, meter: &Meter, instantiated: bool) -> Fault {
    if meter.denied() {
        return Fault::Memory;
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => Fault::Fuel,
        Some(Trap::Interrupt) => Fault::Deadline,
        Some(Trap::StackOverflow) => Fault::Stack,
        Some(Trap::AllocationTooLarge) => Fault::Memory,
        Some(_) => Fault::Panic,
        None => {
            let text = format!("{error:#}");
            if text.contains(HOSTCALL_TEXT) {
                Fault::HostcallData
            } else {
                Fault::of_kind(if instantiated { "invalid-output" } else { "instantiate" }, &text)
            }
        }
    }
}
