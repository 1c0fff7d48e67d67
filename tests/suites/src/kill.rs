//! An operator that is killed at any moment.

use std::time::Duration;

use anyhow::{Context, Result};
use pacer_harness::world::World;

use crate::PATIENCE;

/// After so long without a change of any pod there is nothing left to interrupt.
const QUIET: Duration = Duration::from_secs(3);

/// Random numbers, the same for the same seed (SplitMix64).
#[derive(Clone, Copy, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// Kills the operator (SIGKILL) and starts it again, each time after some changes of pods, once in a while before it has read the cluster.
///
/// # Errors
///
/// When the operator does not come back.
pub async fn kill(world: &mut World, dice: &mut Dice, times: u32) -> Result<()> {
    for _ in 0..times {
        if dice.below(4) > 0 {
            world.operator.as_ref().context("no operator")?.until_acting(PATIENCE).await?;
            let mut tally = world.nodes.as_ref().context("no nodes")?.watch();
            for _ in 0..dice.below(40) {
                if tokio::time::timeout(QUIET, tally.changed()).await.is_err() {
                    break;
                }
            }
        }
        let operator = world.operator.as_mut().context("no operator")?;
        operator.kill9().await;
        operator.restart().await?;
    }
    Ok(())
}
