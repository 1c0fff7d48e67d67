//! Why bytes do not become a policy that may be asked. Nothing that is refused has any effect.

use pacer_core::gate::scrub;
use serde::{Deserialize, Serialize};

/// Settings of a policy that was given none.
pub const NO_SETTINGS: &str = "{}";

/// Which check a policy failed; the names are stable, for statuses and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Refusal {
    /// More bytes or functions than allowed, by itself or together with the policies that are in use.
    TooLarge,
    /// Not WebAssembly at all, empty or truncated.
    NotWebAssembly,
    /// WebAssembly, but not a component.
    CoreModule,
    /// Native code, which must never be loaded.
    NativeCode,
    /// Compressed, and can't be decompressed.
    Compression,
    /// Grows beyond all limits when it is decompressed.
    Bomb,
    /// A text that can't be parsed.
    Syntax,
    /// Malformed, or uses a feature that is switched off.
    Invalid,
    /// Imports something that is not offered.
    Import,
    /// Exports no decision, or no lifecycle.
    Exports,
    /// Speaks another version of the contract.
    Contract,
    /// Does not compile.
    Compile,
    /// Compilation took too long.
    CompileTimeout,
    /// Its functions or records differ from the contract's.
    Types,
    /// Fails when it is started under limits.
    Instantiate,
    /// `describe` traps, exceeds a limit of calls, or gives no name.
    Describe,
    /// Does not accept its settings.
    Settings,
    /// Fails on an ordinary request.
    Smoke,
    /// Answers the same request differently, or with different effort.
    Unstable,
    /// This machine can't stop runaway policies, so none is accepted.
    SelfTest,
}

impl Refusal {
    /// The name, as in statuses and events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "PolicyTooLarge",
            Self::NotWebAssembly => "PolicyNotWebAssembly",
            Self::CoreModule => "PolicyNotAComponent",
            Self::NativeCode => "PolicyIsNativeCode",
            Self::Compression => "PolicyCompressionInvalid",
            Self::Bomb => "PolicyDecompressionBomb",
            Self::Syntax => "PolicySyntaxError",
            Self::Invalid => "PolicyInvalid",
            Self::Import => "PolicyImportDenied",
            Self::Exports => "PolicyExportMissing",
            Self::Contract => "PolicyContractVersion",
            Self::Compile => "PolicyCompileFailed",
            Self::CompileTimeout => "PolicyCompileTimeout",
            Self::Types => "PolicyTypeMismatch",
            Self::Instantiate => "PolicyStartFailed",
            Self::Describe => "PolicyDescribeFailed",
            Self::Settings => "PolicySettingsInvalid",
            Self::Smoke => "PolicySmokeFailed",
            Self::Unstable => "PolicyNotDeterministic",
            Self::SelfTest => "PolicySandboxBroken",
        }
    }
}

/// Why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct LoadError {
    /// The check that failed.
    pub code: Refusal,
    /// What is wrong and what to do, one line of at most 1 KiB.
    pub message: String,
    /// Whether only what others hold stands in its way, so that it may be accepted another time.
    pub crowded_out: bool,
}

impl LoadError {
    /// With a text that is scrubbed and shortened here.
    #[must_use]
    pub fn new(code: Refusal, message: impl AsRef<str>) -> Self {
        Self { code, message: scrub(message.as_ref(), 1 << 10), crowded_out: false }
    }

    /// Of a policy that is too large beside those that are there.
    pub(crate) fn crowded_out(message: impl AsRef<str>) -> Self {
        Self { crowded_out: true, ..Self::new(Refusal::TooLarge, message) }
    }
}
