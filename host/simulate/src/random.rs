//! Random numbers that a seed determines.

/// SplitMix64: small, fast, and equally spread; nothing here has to be unpredictable.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A sequence of its own for each purpose, so that one more draw of one does not shift the others.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0xa076_1d64_78bd_642f) ^ purpose.wrapping_mul(0xe703_7ed1_a0b4_28db));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `count`, and 0 when that is 0.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        let drawn = (u128::from(self.next()) * (count as u128)) >> 64;
        usize::try_from(drawn).unwrap_or_default()
    }

    /// One of these; none when there are none.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.below(from.len())).copied()
    }
}
