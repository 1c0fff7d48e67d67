//! Why a policy's answer can't be used.

use pacer_core::gate::{GateError, scrub};
use serde::{Deserialize, Serialize};

/// Longest text of a fault, in bytes.
const TEXT_BYTES: usize = 512;

/// How the line begins that a policy writes to its log, as a warning, before a panic ends it. The text and the place follow.
pub const PANIC: &str = "panic: ";

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
    /// It asked for more memory, or more table elements, than it may have. It counts as this whichever trap follows; a guest that answers
    /// without it has not failed.
    #[error("it asked for more memory than it may have")]
    Memory,
    /// It recursed too deeply; in which function, where its component has names.
    #[error("it overflowed its stack{}", place(.0.as_deref()))]
    Stack(Option<String>),
    /// It trapped: a panic, an abort, an access out of bounds, a division by zero. With [`PANIC`] and what it said of its panic, or with the trap and
    /// the function, where its component has names. Receipts of earlier versions have no text.
    #[error("{}", trapped(.0.as_deref()))]
    Panic(Option<String>),
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
            Self::Stack(_) => stack,
            Self::Panic(_) => panic,
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
            Self::Stack(text) | Self::Panic(text) => text.as_deref(),
            Self::Fuel | Self::Deadline | Self::Memory | Self::HostcallData | Self::HostPanic | Self::QueueFull => None,
        }
    }

    /// The fault of a [`Fault::kind`] with a text that is scrubbed here; one of the host for a kind that there is not.
    #[must_use]
    pub fn of_kind(kind: &str, text: &str) -> Self {
        let text = || scrub(text, TEXT_BYTES);
        let told = || Some(text()).filter(|text| !text.is_empty());
        match kind {
            "fuel" => Self::Fuel,
            "deadline" => Self::Deadline,
            "memory" => Self::Memory,
            "stack" => Self::Stack(told()),
            "panic" => Self::Panic(told()),
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

/// What is said of a trap.
fn trapped(text: Option<&str>) -> String {
    match text.map(|text| (text, text.strip_prefix(PANIC))) {
        None => "it panicked".to_owned(),
        Some((_, Some(said))) => format!("it panicked: {said}"),
        Some((trap, None)) => format!("it trapped: {trap}"),
    }
}

/// Where that was, where it is known.
fn place(function: Option<&str>) -> String {
    function.map(|function| format!(", in {function}")).unwrap_or_default()
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
            Fault::Stack(Some("f".into())),
            Fault::Panic(Some("g".into())),
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
    #[test]
    fn panics_say_what_is_known_of_them() {
        let panic = |text: &str| Fault::of_kind("panic", text);
        for (fault, says) in [
            (panic("panic: index out of bounds, at src/lib.rs:7"), "it panicked: index out of bounds, at src/lib.rs:7"),
            (panic("integer division by zero, in policy::share"), "it trapped: integer division by zero, in policy::share"),
            (panic(""), "it panicked"),
            (Fault::of_kind("stack", "policy::walk"), "it overflowed its stack, in policy::walk"),
            (Fault::of_kind("stack", ""), "it overflowed its stack"),
        ] {
            assert_eq!(fault.to_string(), says);
        }
        let Fault::Panic(Some(text)) = panic(&format!("panic: one\r\n\u{1b}[31mtwo {}", "x".repeat(2_000))) else {
            panic!("no text")
        };
        assert!(text.starts_with("panic: one [31mtwo xxx") && text.len() <= TEXT_BYTES && text.ends_with('…'), "{text}");
    }

    #[test]
    fn faults_of_earlier_receipts_are_read() {
        for (kind, fault) in [("panic", Fault::Panic(None)), ("stack", Fault::Stack(None))] {
            let earlier = format!("{{\"kind\":\"{kind}\"}}");
            assert_eq!(serde_json::from_str::<Fault>(&earlier).unwrap(), fault);
            let now = serde_json::to_string(&fault).unwrap();
            assert_eq!(serde_json::from_str::<Fault>(&now).unwrap(), fault);
        }
    }
}
