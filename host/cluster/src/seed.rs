//! Random numbers for names.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Random numbers that differ between processes and calls. Names need no secrecy, only no repetition.
#[derive(Debug)]
pub struct Seed {
    state: RandomState,
    count: AtomicU64,
}

impl Default for Seed {
    fn default() -> Self {
        Self { state: RandomState::new(), count: AtomicU64::new(0) }
    }
}

impl Seed {
    /// The next number.
    pub fn draw(&self) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write_u64(self.count.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }
}
