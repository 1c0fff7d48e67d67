//! Bounds of answers. Durations are in seconds.
//!
//! The operator changes a number that is outside its bounds to the nearest bound. It refuses an answer that is too large as a whole, or has an identifier that can't be
//! stored.

/// Shortest and longest time until the operator asks again about a runner: [`Action::LookAgain`](crate::restart::Action::LookAgain).
pub const RESTART_LOOK_AGAIN: (u32, u32) = (5, 600);

/// Time until the operator asks again about a runner where the verdict `look-again` does not say it.
pub const LOOK_AGAIN_DEFAULT: u32 = 60;

/// Longest time to wait before a runner gets another in its place: [`Action::Recreate`](crate::restart::Action::Recreate) and
/// [`Action::Replace`](crate::restart::Action::Replace). It counts from the moment the runner got into its situation.
pub const RESTART_WAIT_MAX: u32 = 600;

/// Longest time to wait before a job runs again.
pub const RERUN_WAIT_MAX: u32 = 3_600;

/// Shortest and longest time until a capacity policy is asked again: `look_again` of a plan.
pub const LOOK_AGAIN: (u32, u32) = (5, 3_600);

/// Shortest and longest life of a reservation.
pub const EXPIRES: (u32, u32) = (1, 604_800);

/// Most runners of one reservation, where no autoscaler sets a maximum.
pub const REPLICAS_MAX: u32 = 10_000;

/// Reservations that a plan may have beyond one for each job and each reservation of the request.
pub const SPARE_RESERVATIONS: usize = 64;

/// Longest identifier of a reservation, in bytes.
pub const RESERVATION_ID_BYTES: usize = 253;

/// Longest reason, and longest value of an attribute, in bytes. The operator shortens longer ones.
pub const REASON_BYTES: usize = 256;

/// Most attributes of one item of an answer. The operator leaves out the others.
pub const ATTRIBUTES: usize = 16;

/// Longest key of an attribute, in bytes. The operator shortens longer ones.
pub const KEY_BYTES: usize = 63;
