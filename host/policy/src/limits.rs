//! What one call may use.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Largest component that is accepted, in bytes; several times what the languages measured need, and a second of compilation per MiB.
pub const RAW_BYTES: usize = 4 << 20;

/// Largest component as it lies compressed in a ConfigMap, in bytes: what a ConfigMap can hold at all.
pub const COMPRESSED_BYTES: usize = 1 << 20;

/// Most functions a component may define. Compilation can't be interrupted, and its cost grows with them.
pub const FUNCTIONS: u32 = 20_000;

/// Fuel and processor time of a text, compared with those of a component: whose fuel lasts twice as long has to have the time to use it.
const TEXT: u32 = 2;

/// How often deadlines are checked.
pub const TICK: Duration = Duration::from_millis(5);

/// Bounds of a single call. Made by [`Limits::default`], [`Limits::highest`] and [`Limits::lowered`], so that none is above its maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    fuel: u64,
    fuel_per_item: u64,
    fuel_cap: u64,
    deadline: Duration,
    memory: usize,
    hostcall: usize,
    log_lines: usize,
    log_line: usize,
}

/// What a policy set asks for instead of the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LimitRequest {
    /// Most instructions per call, whatever its size; 1 to 1,000,000,000.
    pub fuel: Option<u64>,
    /// Longest call in milliseconds of processor time, including the policy's start; 1 to 100. A text has twice as much.
    pub deadline_milliseconds: Option<u64>,
    /// Most memory in MiB; 1 to 64, where 16 is the default.
    pub memory_mebibytes: Option<u64>,
}

/// A limit outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limits.{field} is {given} and must be from 1 to {most}")]
pub struct LimitError {
    /// Name of the field in the policy set.
    pub field: &'static str,
    /// What was asked for.
    pub given: u64,
    /// The highest that may be asked for.
    pub most: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: 20_000_000,
            fuel_per_item: 100_000,
            fuel_cap: Self::FUEL_CAP,
            deadline: Self::DEADLINE,
            memory: 16 << 20,
            hostcall: 1 << 20,
            log_lines: 32,
            log_line: 1 << 10,
        }
    }
}

impl Limits {
    /// Highest number of instructions of any call, in wasmtime's units of fuel.
    pub const FUEL_CAP: u64 = 1_000_000_000;
    /// Longest deadline of any call of a component, in processor time.
    pub const DEADLINE: Duration = Duration::from_millis(100);
    /// Longest call by the clock. A node that is busy, or throttles the operator, gives a call less processor time than that; ended by the clock as
    /// soon, a policy would be judged by its neighbours. Ten times the deadline is what a component needs in a pod with a tenth of a processor.
    pub const LONGEST: Duration = Duration::from_secs(1);
    /// Most memory of any call, in MiB.
    pub const MEMORY_MEBIBYTES: u64 = 64;

    /// The most that a policy set can allow.
    #[must_use]
    pub fn highest() -> Self {
        let memory = usize::try_from(Self::MEMORY_MEBIBYTES << 20).unwrap_or(usize::MAX);
        Self { memory, ..Self::default() }
    }

    /// The defaults changed by what a policy set asks for.
    ///
    /// # Errors
    ///
    /// When a value is zero or above its maximum.
    pub fn lowered(asked: LimitRequest) -> Result<Self, LimitError> {
        let within = |field, given: Option<u64>, most| match given {
            Some(given) if !(1..=most).contains(&given) => Err(LimitError { field, given, most }),
            given => Ok(given),
        };
        let mut limits = Self::default();
        if let Some(fuel) = within("fuel", asked.fuel, Self::FUEL_CAP)? {
            limits.fuel_cap = fuel;
        }
        let longest = u64::try_from(Self::DEADLINE.as_millis()).unwrap_or(u64::MAX);
        if let Some(deadline) = within("deadlineMilliseconds", asked.deadline_milliseconds, longest)? {
            limits.deadline = Duration::from_millis(deadline);
        }
        if let Some(memory) = within("memoryMebibytes", asked.memory_mebibytes, Self::MEMORY_MEBIBYTES)? {
            limits.memory = usize::try_from(memory << 20).unwrap_or(limits.memory);
        }
        Ok(limits)
    }

    /// Instructions for a question about `items` things, in wasmtime's units of fuel.
    #[must_use]
    pub fn fuel(&self, items: usize) -> u64 {
        let items = u64::try_from(items).unwrap_or(u64::MAX);
        self.fuel.saturating_add(self.fuel_per_item.saturating_mul(items)).min(self.fuel_cap)
    }

    /// The same for a policy that is text, whose interpreter executes many instructions for one of the text. The fuel that a set allows at most holds for
    /// these as well.
    #[must_use]
    pub fn of_text(self) -> Self {
        Self {
            fuel: self.fuel.saturating_mul(TEXT.into()),
            fuel_per_item: self.fuel_per_item.saturating_mul(TEXT.into()),
            deadline: self.deadline.saturating_mul(TEXT),
            ..self
        }
    }

    /// Longest call in processor time, with instantiation and start functions.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Bytes over all linear memories.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Bytes that one call may copy out of the guest.
    #[must_use]
    pub fn hostcall(&self) -> usize {
        self.hostcall
    }

    /// Log lines kept per call.
    #[must_use]
    pub fn log_lines(&self) -> usize {
        self.log_lines
    }

    /// Bytes kept of each log line.
    #[must_use]
    pub fn log_line(&self) -> usize {
        self.log_line
    }

    /// What is left of a call after so much processor time and so much time by the clock; none when it has to end.
    #[must_use]
    pub fn left(&self, processor: Duration, clock: Duration) -> Option<Duration> {
        let left = self.deadline.saturating_sub(processor).min(Self::LONGEST.saturating_sub(clock));
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuel_grows_with_the_question_up_to_the_cap() {
        let limits = Limits::default();
        assert_eq!(limits.fuel(0), 20_000_000);
        assert_eq!(limits.fuel(1_000), 120_000_000);
        assert_eq!(limits.fuel(usize::MAX), 1_000_000_000);
    }

    #[test]
    fn text_has_twice_the_fuel_and_the_processor_time_to_use_it() {
        let limits = Limits::default().of_text();
        assert_eq!([0, 1_000, usize::MAX].map(|items| limits.fuel(items)), [40_000_000, 240_000_000, 1_000_000_000]);
        assert_eq!(limits.deadline(), Duration::from_millis(200));
        let asked = LimitRequest { fuel: Some(5), deadline_milliseconds: Some(7), memory_mebibytes: None };
        let lowered = Limits::lowered(asked).unwrap().of_text();
        assert_eq!((lowered.fuel(9), lowered.deadline(), lowered.memory()), (5, Duration::from_millis(14), 16 << 20));
    }

    #[test]
    fn processor_time_ends_a_call_and_so_does_the_clock_when_it_gets_none() {
        let left = |processor, clock| Limits::default().left(Duration::from_millis(processor), Duration::from_millis(clock));
        let some = |millis| Some(Duration::from_millis(millis));
        assert_eq!([left(0, 0), left(30, 30), left(30, 800), left(99, 900)], [some(100), some(70), some(70), some(1)]);
        assert_eq!([left(100, 100), left(250, 300), left(30, 1_000), left(0, 2_000)], [None; 4]);
        assert_eq!(left(10, 995), some(5));
        let lowered = Limits::lowered(LimitRequest { deadline_milliseconds: Some(7), ..Default::default() }).unwrap();
        assert_eq!(lowered.left(Duration::from_millis(6), Duration::from_millis(600)), some(1));
        assert_eq!(lowered.left(Duration::from_millis(7), Duration::from_millis(7)), None);
    }

    #[test]
    fn limits_stay_in_their_ranges() {
        let asked = LimitRequest { fuel: Some(5), deadline_milliseconds: Some(7), memory_mebibytes: Some(64) };
        let limits = Limits::lowered(asked).unwrap();
        assert_eq!((limits.fuel(9), limits.deadline(), limits.memory()), (5, Duration::from_millis(7), 64 << 20));
        let most = LimitRequest {
            fuel: Some(Limits::FUEL_CAP),
            deadline_milliseconds: Some(100),
            memory_mebibytes: Some(Limits::MEMORY_MEBIBYTES),
        };
        assert_eq!(Limits::lowered(most), Ok(Limits::highest()));
        for (asked, text) in [
            (
                LimitRequest { memory_mebibytes: Some(65), ..Default::default() },
                "limits.memoryMebibytes is 65 and must be from 1 to 64",
            ),
            (
                LimitRequest { deadline_milliseconds: Some(101), ..Default::default() },
                "limits.deadlineMilliseconds is 101 and must be from 1 to 100",
            ),
            (LimitRequest { fuel: Some(0), ..Default::default() }, "limits.fuel is 0 and must be from 1 to 1000000000"),
        ] {
            assert_eq!(Limits::lowered(asked).unwrap_err().to_string(), text);
        }
    }
}
