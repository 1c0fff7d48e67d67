//! Why a policy's answer can't be used.

use pacer_core::gate::{GateError, scrub};
use serde::{Deserialize, Serialize};

/// Longest text of a fault, in bytes.
const TEXT_BYTES: usize = 512;

/// A call that gave no usable answer. The texts are scrubbed: one line, no control characters, at most 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", content = "detail", rename_all = "kebab-case")]
pub enum Fault {
    /// It executed more instructions than its budget.
    #[error("it used up its budget of instructions")]
    Fuel,
    /// It ran longer than its deadline.
    #[error("it ran past its deadline")]
    Deadline,
    /// It asked for more memory, or more table elements, than it may have. It counts as this whatever the guest did about it.
    #[error("it asked for more memory than it may have")]
    Memory,
    /// It recursed too deeply.
    #[error("it overflowed its stack")]
    Stack,
    /// It trapped: a panic, an abort, an access out of bounds, a division by zero.
    #[error("it panicked")]
    Panic,
    /// Its answer, error or log line was larger than what may be copied out of it.
    #[error("it returned more data than it may")]
    HostcallData,
    /// It declined to answer and said why.
    #[error("it answered with an error: {0}")]
    PolicyError(String),
    /// Its answer breaks the contract.
    #[error("its answer is invalid: {0}")]
    InvalidOutput(String),
    /// The host failed while it ran the policy.
    #[error("the host failed while it ran the policy")]
    HostPanic,
    /// The process that ran it ended, or answered what is no answer.
    #[error("it brought down the process that ran it: {0}")]
    Crash(String),
    /// Too many calls were waiting.
    #[error("too many policy calls were waiting")]
    QueueFull,
    /// It could not be instantiated.
    #[error("it can't be instantiated: {0}")]
    Instantiate(String),
    /// It could not be loaded, or does not answer this decision.
    #[error("it can't be loaded: {0}")]
    Load(String),
}

impl Fault {
    /// All values of [`Fault::kind`], for metrics that must be there before the first fault.
    pub const KINDS: [&'static str; 13] = [
        "fuel",
        "deadline",
        "memory",
        "stack",
        "panic",
        "hostcall-data",
        "policy-error",
        "invalid-output",
        "host-panic",
        "crash",
        "queue-full",
        "instantiate",
        "load",
    ];

    /// Name for metrics and statuses, one of [`Fault::KINDS`].
    #[must_use]
    pub fn kind(&self) -> &'static str {
        let [fuel, deadline, memory, stack, panic, hostcall, policy, output, host, crash, queue, instantiate, load] = Self::KINDS;
        match self {
            Self::Fuel => fuel,
            Self::Deadline => deadline,
            Self::Memory => memory,
            Self::Stack => stack,
            Self::Panic => panic,
            Self::HostcallData => hostcall,
            Self::PolicyError(_) => policy,
            Self::InvalidOutput(_) => output,
            Self::HostPanic => host,
            Self::Crash(_) => crash,
            Self::QueueFull => queue,
            Self::Instantiate(_) => instantiate,
            Self::Load(_) => load,
        }
    }

    /// Whether the policy is to blame, as opposed to the host or its load.
    #[must_use]
    pub fn is_policys(&self) -> bool {
        !matches!(self, Self::HostPanic | Self::QueueFull)
    }

    /// What distinguishes faults of one kind; none where there is nothing more to say.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::PolicyError(text)
            | Self::InvalidOutput(text)
            | Self::Crash(text)
            | Self::Instantiate(text)
            | Self::Load(text) => Some(text),
            Self::Fuel
            | Self::Deadline
            | Self::Memory
            | Self::Stack
            | Self::Panic
            | Self::HostcallData
            | Self::HostPanic
            | Self::QueueFull => None,
        }
    }

    /// The fault of a [`Fault::kind`] with a text that is scrubbed here; one of the host for a kind that there is not.
    #[must_use]
    pub fn of_kind(kind: &str, text: &str) -> Self {
        let text = || scrub(text, TEXT_BYTES);
        match kind {
            "fuel" => Self::Fuel,
            "deadline" => Self::Deadline,
            "memory" => Self::Memory,
            "stack" => Self::Stack,
            "panic" => Self::Panic,
            "hostcall-data" => Self::HostcallData,
            "policy-error" => Self::PolicyError(text()),
            "invalid-output" => Self::InvalidOutput(text()),
            "crash" => Self::Crash(text()),
            "queue-full" => Self::QueueFull,
            "instantiate" => Self::Instantiate(text()),
            "load" => Self::Load(text()),
            _ => Self::HostPanic,
        }
    }

    /// A clean `err` of the policy.
    #[must_use]
    pub fn declined(text: &str) -> Self {
        Self::PolicyError(scrub(text, TEXT_BYTES))
    }
}

impl From<GateError> for Fault {
    fn from(lie: GateError) -> Self {
        Self::InvalidOutput(lie.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_the_serialised_names() {
        let faults = [
            Fault::Fuel,
            Fault::Deadline,
            Fault::Memory,
            Fault::Stack,
            Fault::Panic,
            Fault::HostcallData,
            Fault::PolicyError("a".into()),
            Fault::InvalidOutput("b".into()),
            Fault::HostPanic,
            Fault::Crash("e".into()),
            Fault::QueueFull,
            Fault::Instantiate("c".into()),
            Fault::Load("d".into()),
        ];
        for (fault, kind) in faults.iter().zip(Fault::KINDS) {
            let json = serde_json::to_value(fault).unwrap();
            assert_eq!((json["kind"].as_str(), fault.kind()), (Some(kind), kind));
            assert_eq!(&serde_json::from_value::<Fault>(json).unwrap(), fault);
        }
    }
}
