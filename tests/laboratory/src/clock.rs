//! Virtual time.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// Milliseconds since the beginning of a run.
pub type At = u64;

/// Milliseconds in a second.
pub const SECOND: At = 1_000;
/// Milliseconds in a minute.
pub const MINUTE: At = 60 * SECOND;

/// The wall clock shows this at the beginning of a run: a whole second.
const BEGINNING: i64 = 1_767_225_600_000;

/// Both clocks of the operator at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Milliseconds since the beginning of the run.
    pub at: At,
    /// As the wall clock shows it.
    pub now: Timestamp,
    /// As the monotonic clock shows it. Only differences between these are ever looked at.
    pub instant: Instant,
}

impl Clock {
    /// The clocks at a moment.
    #[must_use]
    pub fn at(at: At) -> Self {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        let origin = *ORIGIN.get_or_init(Instant::now);
        Self { at, now: wall(at), instant: origin.checked_add(Duration::from_millis(at)).unwrap_or(origin) }
    }
}

/// What the wall clock shows.
#[must_use]
pub fn wall(at: At) -> Timestamp {
    Timestamp::from_millisecond(BEGINNING.saturating_add_unsigned(at)).unwrap_or(Timestamp::MAX)
}

/// The moment at which the wall clock shows this; the beginning for what was before it.
#[must_use]
pub fn moment(wall: Timestamp) -> At {
    u64::try_from(wall.as_millisecond().saturating_sub(BEGINNING)).unwrap_or(0)
}

/// The duration in milliseconds, rounded up.
#[must_use]
pub fn millis(duration: Duration) -> At {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(At::MAX)
}

/// Time between two moments; zero when the first is later.
#[must_use]
pub fn elapsed(since: At, now: At) -> Duration {
    Duration::from_millis(now.saturating_sub(since))
}
