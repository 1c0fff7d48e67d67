//! What would have happened: a trace again, in virtual time, under the same or other policies.
//!
//! The rules are the operator's own: this crate only plays the world around `pacer-core`. Jobs arrive and take as long as recorded, starts take
//! as long as one of the recorded ones, drawn with a seed, GitHub gives a job to any idle runner whose labels fit. Which jobs are open
//! (`demand`), the number (`autoscale`, `autoscale::sending`), the plan (`fleet`, `replacement`), who may go (`scale_down`, `phase`) and what
//! becomes of failed starts (`restart`), how often GitHub is listed (`polling`) and which volume a runner takes over (`claim`) is decided there, by the policies through `pacer-policy`, whose gate is in force.
//!
//! Read first: [`Scenario`] (what is taken from a trace), [`simulate`] (one run), [`Figures`] (what it comes to), [`Calibration`] (whether to
//! believe it), [`Comparison`] (policies side by side), [`prospect()`] (what a fleet would be by now).

mod agenda;
mod calibration;
mod calls;
mod comparison;
mod condition;
mod figures;
mod github;
mod nodes;
mod pause;
mod policies;
mod prices;
mod prospect;
mod random;
mod reaction;
mod run;
mod runner;
mod samples;
mod scenario;
mod volumes;
mod waits;

pub use calibration::{Bound, Calibration, Deviation};
pub use comparison::{Comparison, Contender, Row, Spread};
pub use condition::{Condition, ConditionError};
pub use figures::{Figures, recorded};
pub use policies::Policies;
pub use prices::{PriceError, RunnerPrices};
pub use prospect::prospect;
pub use run::{
    Decided, Difference, JobSeen, Numbered, Outcome, Removed, Replay, RunnerSeen, Sight, Story, Uncompared, replay, simulate,
    watch,
};
pub use scenario::{Scenario, ScenarioError};
pub use waits::{Breakdown, OTHERS, Waits};

#[cfg(test)]
mod day;
#[cfg(test)]
mod tests;
