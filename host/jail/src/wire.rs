//! To and from components.

/// Under the names that the SDK gives its twins.
mod capacity_named {
    pub(crate) use crate::bindings::exports::pacer::policy::capacity::{CapacityPlan as Plan, Job, Request, Reservation};
}
pacer_policy::conversions!(
    crate::bindings::pacer::policy::types,
    crate::bindings::exports::pacer::policy::scale_down,
    crate::bindings::exports::pacer::policy::restart,
    self::capacity_named
);
