//! What to do about a refused policy.

use std::fmt::Display;

use anyhow::{Error, anyhow};
use pacer_policy::{LoadError, Refusal};

/// The error of a policy that is refused: what, by which check, and what to do.
pub(crate) fn refused(policy: impl Display, error: &LoadError) -> Error {
    match cure(error.code) {
        Some(cure) => anyhow!("{policy} is refused. {error}\n  what to do: {cure}"),
        None => anyhow!("{policy} is refused. {error}"),
    }
}

/// None where the message itself says it.
fn cure(code: Refusal) -> Option<&'static str> {
    Some(match code {
        Refusal::TooLarge => "build for size (opt-level \"s\", LTO, no debug information, strip), or leave libraries out",
        Refusal::NotWebAssembly => "give the file that the build wrote last: a component, plain or compressed with gzip or zstd",
        Refusal::CoreModule => "pacer policy componentize FILE -o policy.wasm",
        Refusal::NativeCode => "give the component itself, not what an engine compiled from it",
        Refusal::Invalid => {
            "build it anew; threads, memory64, several memories, exceptions and garbage collection are switched off"
        }
        Refusal::Import => {
            "leave out whatever asks for files, clocks or randomness; a core module for wasip1 gets rid of WASI by `pacer policy componentize`"
        }
        Refusal::Exports => "export lifecycle and at least one of scale-down, restart and capacity; see wit/policy",
        Refusal::Contract | Refusal::Types => "build it against wit/policy/v0.1.0 as it is released, without changes",
        Refusal::Compile | Refusal::CompileTimeout => {
            "build it smaller: several seconds of compiling are too many for an operator"
        }
        Refusal::Instantiate => {
            "start functions run under the limits of a call (100 ms, 16 MiB, fuel); a component has at most 32 instances and 8 memories"
        }
        Refusal::Describe => "describe must return at once and give a name",
        Refusal::Settings => "pacer policy inspect shows what can be set",
        Refusal::Smoke => "pacer policy bench shows which sizes it can answer, pacer policy run why it fails",
        Refusal::Unstable => {
            "nothing may depend on addresses, uninitialised memory or the order of hash maps: sort what is returned"
        }
        Refusal::SelfTest => "the sandbox does not work on this machine; the linked policy decides here",
        _ => return None,
    })
}
