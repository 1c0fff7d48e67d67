//! Pauses between tries that fail one after the other.

use std::time::Duration;

/// Pause after so many tries in vain: `first` after one, twice as long after each further one, and never longer than `longest`.
#[must_use]
pub fn doubled(first: Duration, longest: Duration, tries: u32) -> Duration {
    let factor = 1_u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_doubles_up_to_the_longest() {
        let pause = |tries| doubled(Duration::from_secs(1), Duration::from_secs(15), tries).as_secs();
        assert_eq!([0, 1, 2, 3, 4, 5, 33, u32::MAX].map(pause), [1, 1, 2, 4, 8, 15, 15, 15]);
    }
}
