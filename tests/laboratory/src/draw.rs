//! Chance without a stream: a draw depends on the seed, on what it is for and on whom, and on nothing else.
//!
//! So dropping one operation from a script leaves the draws of all others as they were, which is what makes failures easy to minimise.

/// A source of draws.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    seed: u64,
}

impl Draw {
    /// All draws of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// 64 bits for the `turn`th time that something is drawn about `whom`.
    #[must_use]
    pub fn bits(self, what: &str, whom: u64, turn: u64) -> u64 {
        // FNV-1a over the words, then the finaliser of splitmix64.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in what.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let mut bits = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash;
        for word in [whom, turn] {
            bits = mix(bits ^ mix(word.wrapping_add(0x9e37_79b9_7f4a_7c15)));
        }
        bits
    }

    /// A number of a range, its ends included.
    #[must_use]
    pub fn between(self, what: &str, whom: u64, turn: u64, (least, most): (u64, u64)) -> u64 {
        let width = most.saturating_sub(least).saturating_add(1).max(1);
        least.saturating_add(self.bits(what, whom, turn) % width)
    }

    /// Whether something happens that happens so many times in a thousand.
    #[must_use]
    pub fn chance(self, what: &str, whom: u64, turn: u64, per_mille: u64) -> bool {
        self.bits(what, whom, turn) % 1_000 < per_mille
    }
}

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_depend_on_all_that_they_are_about_and_stay_in_their_range() {
        let draw = Draw::new(7);
        assert_eq!(draw.bits("a", 1, 2), Draw::new(7).bits("a", 1, 2));
        let others = [Draw::new(8).bits("a", 1, 2), draw.bits("b", 1, 2), draw.bits("a", 2, 2), draw.bits("a", 1, 3)];
        assert!(others.iter().all(|other| *other != draw.bits("a", 1, 2)));
        assert!((0..1_000).map(|turn| draw.between("r", 0, turn, (3, 5))).all(|drawn| (3..=5).contains(&drawn)));
        let hits = (0..10_000).filter(|turn| draw.chance("c", 0, *turn, 250)).count();
        assert!((2_200..2_800).contains(&hits), "{hits}");
    }
}
