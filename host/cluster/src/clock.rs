//! The clocks of one observation.

use std::time::Instant;

use jiff::Timestamp;

/// Both clocks, read at the same moment: wall time for what objects say, monotonic time for what this process saw.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Wall time.
    pub now: Timestamp,
    /// Monotonic time.
    pub instant: Instant,
}

impl Clock {
    /// Reads both.
    #[must_use]
    pub fn read() -> Self {
        Self { now: Timestamp::now(), instant: Instant::now() }
    }
}
