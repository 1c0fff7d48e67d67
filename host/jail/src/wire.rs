//! To and from components.

pub(crate) use first::*;

/// Version 0.1.0 of the contract.
mod first {
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
}

/// Version 0.2.0 of the contract.
pub(crate) mod next {
    /// Under the names that the SDK gives its twins.
    mod capacity_named {
        pub(crate) use crate::bindings::next::exports::pacer::policy::capacity::{
            CapacityPlan as Plan, Job, Request, Reservation,
        };
    }
    pacer_policy::conversions!(
        crate::bindings::next::pacer::policy::types,
        crate::bindings::next::exports::pacer::policy::scale_down,
        crate::bindings::next::exports::pacer::policy::restart,
        self::capacity_named
    );
    pacer_policy::recover_conversions!(crate::bindings::next::exports::pacer::policy::recover);
}
