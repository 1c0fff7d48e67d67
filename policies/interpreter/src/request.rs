//! Requests as JSON values, from which the engine makes objects. Identifiers of jobs become `BigInt`s where they are put into objects.

use serde::Serialize;
use serde_json::Value;

use crate::bindings::exports::pacer::policy0_1_0::{capacity, restart, scale_down};
use crate::bindings::exports::pacer::policy0_2_0::recover;

/// A request, and the lists in it whose members have numbers of 64 bits.
pub(crate) struct Asked {
    pub(crate) value: Value,
    /// Name of the list and of the field.
    pub(crate) wide: &'static [(&'static str, &'static str)],
}

pub(crate) fn scale_down(request: &scale_down::Request) -> Asked {
    Asked { value: json(request), wide: &[] }
}

pub(crate) fn restart(request: &restart::Request) -> Asked {
    Asked { value: json(request), wide: &[] }
}

pub(crate) fn capacity(request: &capacity::Request) -> Asked {
    Asked { value: json(request), wide: &[("jobs", "id"), ("reservations", "jobs")] }
}

pub(crate) fn recover(request: &recover::Request) -> Asked {
    Asked { value: json(request), wide: &[("jobs", "id"), ("jobs", "run")] }
}

/// Plain records always serialise.
fn json(request: &impl Serialize) -> Value {
    serde_json::to_value(request).unwrap_or_default()
}
