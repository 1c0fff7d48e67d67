//! How much capacity to hold for which jobs until when.

pub use crate::bindings::exports::pacer::policy::capacity::{CapacityPlan as Plan, Job, Request, Reservation};
use crate::lifecycle::{Policy, settings};

/// Reserves runners for jobs.
pub trait Capacity: Policy {
    /// All reservations that shall exist from now on. The operator applies minimum, maximum and ramp limits afterwards.
    ///
    /// # Errors
    /// A sentence for the people on call; the built-in policy then decides.
    fn plan(request: &Request, settings: &Self::Settings) -> Result<Plan, String>;
}

/// Asks `P` as the operator would: with the request's own settings.
///
/// # Errors
/// What the policy says, or what is wrong with the settings.
pub fn answer<P: Capacity>(request: &Request) -> Result<Plan, String> {
    P::plan(request, &settings::<P>(&request.settings)?)
}
