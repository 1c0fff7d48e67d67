//! How much capacity to hold for which jobs until when.

mod per_job;

pub use per_job::{Lives, RESERVATION_SECONDS, one_per_job, one_per_job_beside};

pub use crate::bindings::exports::pacer::policy::capacity::{CapacityPlan as Plan, Job, Request, Reservation};
use crate::lifecycle::{Policy, settings};

/// Reserves runners for jobs.
pub trait Capacity: Policy {
    /// All reservations that shall exist from now on. The operator cuts numbers to [`limits`](crate::limits), and applies minimum, maximum and
    /// ramp limits afterwards.
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

impl Reservation {
    /// Capacity for no job in particular, from now on for `seconds`; `reason` is one line of at most 256 bytes.
    ///
    /// The plan replaces the one in force as a whole, so a standing reservation is one that every plan contains.
    #[must_use]
    pub fn standing(id: impl Into<String>, replicas: u32, seconds: u32, reason: impl Into<String>) -> Self {
        Self { id: id.into(), replicas, expires: seconds, reason: reason.into(), ..Self::default() }
    }
}
