//! What to do about a refused policy.

use std::fmt::Display;

use anyhow::Error;
use pacer_policy::{LoadError, Refusal};

/// A policy that is refused: what, by which check, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{policy} is refused. {error}{}", advice(error))]
pub(super) struct RefusedPolicy {
    policy: String,
    /// The check that it failed.
    pub(super) error: LoadError,
}

impl RefusedPolicy {
    /// What to do about it; none where its message says it.
    pub(super) fn cure(&self) -> Option<&'static str> {
        cure(self.error.code)
    }
}

/// What to do, on a line of its own; nothing where the message of the check says it.
fn advice(error: &LoadError) -> String {
    cure(error.code).map_or_else(String::new, |cure| format!("\n  what to do: {cure}"))
}

/// The error of a policy that is refused.
pub(crate) fn refused(policy: impl Display, error: &LoadError) -> Error {
    Error::new(RefusedPolicy { policy: policy.to_string(), error: error.clone() })
}

/// What to do about a reason in a policy set's status; none where its message says it.
pub(crate) fn of_reason(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "PolicySetMissing" => "put the set under the key policies.yaml of data",
        "PolicySetInvalid" => "correct the line that the message names; pacer policy configmap prints sets that are right",
        "PolicyModuleMissing" => {
            "put a component under that key of binaryData, and a text, whose key ends in .js, under that key of data"
        }
        "PolicySetNotFound" => "create the ConfigMap, or correct the annotation that asks for it",
        "PolicySetUnreadable" => "grant the operator list, watch and patch on ConfigMaps there (the role pacer-policies)",
        "PolicyRolledBack" => {
            "mend the policy and apply it again: pacer policy receipts --case shows what it was asked, pacer policy run why it fails"
        }
        "PolicyQuarantined" => {
            "change the ConfigMap, or have the same content tried again: kubectl annotate --overwrite configmap NAME \
             actions.summerwind.dev/policy-try-again=$(date +%s)"
        }
        "PolicyPullFailed" => {
            "see that the registry can be reached from where this runs, by TLS with a certificate of a known authority; the operator tries again by itself"
        }
        "PolicyRegistryRefused" => {
            "name another registry, or let whoever runs the operator allow it: registries in the tenancy file, --policy-registries-on-loopback"
        }
        "PolicyPullDenied" => "name a Secret with credentials that may pull the repository: pullSecret in policies.yaml",
        "PolicyPullNotFound" => {
            "correct registry, repository and digest: crane digest or oras resolve prints the digest of a tag"
        }
        "PolicyPullSecretInvalid" => {
            "kubectl create secret docker-registry NAME --docker-server=REGISTRY --docker-username=USER --docker-password=PASSWORD"
        }
        "PolicyDigestMismatch" => "do not use that registry, or what lies between, until you know why it sends something else",
        "PolicyArtifactInvalid" => "push the component alone: oras push REGISTRY/REPOSITORY:TAG policy.wasm:application/wasm",
        "PolicySignatureMissing" | "PolicySignatureInvalid" => {
            "sign the artifact with a key that the operator takes (--policy-verification-key); docs/policy-sets.md has the command"
        }
        "PolicyCompressionInvalid" | "PolicyDecompressionBomb" => "compress the module anew; it may have 4 MiB decompressed",
        _ => return REFUSALS.into_iter().find(|refusal| refusal.as_str() == reason).and_then(cure),
    })
}

/// Refusals that have a cure.
const REFUSALS: [Refusal; 18] = [
    Refusal::Syntax,
    Refusal::TooLarge,
    Refusal::NotWebAssembly,
    Refusal::CoreModule,
    Refusal::NativeCode,
    Refusal::Invalid,
    Refusal::Import,
    Refusal::Exports,
    Refusal::Contract,
    Refusal::Types,
    Refusal::Compile,
    Refusal::CompileTimeout,
    Refusal::Instantiate,
    Refusal::Describe,
    Refusal::Settings,
    Refusal::Smoke,
    Refusal::Unstable,
    Refusal::SelfTest,
];

/// None where the message itself says it.
fn cure(code: Refusal) -> Option<&'static str> {
    Some(match code {
        Refusal::TooLarge => {
            "build for size (opt-level \"s\", LTO, no debug information, strip), or leave libraries out; where the message names what other policies \
             take, use fewer"
        }
        Refusal::Syntax => {
            "correct the line and column that the message names; pacer policy check FILE.js finds the next mistake"
        }
        Refusal::NotWebAssembly => "give the file that the build wrote last: a component, plain or compressed with gzip or zstd",
        Refusal::CoreModule => "pacer policy componentize FILE -o policy.wasm",
        Refusal::NativeCode => "give the component itself, not what an engine compiled from it",
        Refusal::Invalid => {
            "build it anew; threads, memory64, several memories, exceptions and garbage collection are switched off"
        }
        Refusal::Import => {
            "leave out whatever asks for files, clocks or randomness; a core module for wasip1 gets rid of WASI by `pacer policy componentize`"
        }
        Refusal::Exports => {
            "export lifecycle and at least one of scale-down, restart, capacity and recover (a text: function scaleDown, restart, capacity or recover); see wit/policy"
        }
        Refusal::Contract | Refusal::Types => {
            "build it against wit/policy/v0.1.0 or wit/policy/v0.2.0 as they are released, without changes; only v0.2.0 has recover"
        }
        Refusal::Compile | Refusal::CompileTimeout => {
            "build it smaller: several seconds of compiling are too many for an operator"
        }
        Refusal::Instantiate => {
            "a text: correct the error that the message names; a component: start functions run under the limits of a call (100 ms, fuel, and 16 MiB \
             unless memoryMebibytes in limits allows more), and there are at most 32 instances and 8 memories"
        }
        Refusal::Describe => {
            "describe must return a name of visible characters, without a panic and within the limits of a call (processor time, fuel, memory, stack, 1 MiB of \
             data): correct what the message names"
        }
        Refusal::Settings => {
            "correct what the message names; pacer policy inspect shows what can be set, where the policy says it"
        }
        Refusal::Smoke => "pacer policy bench shows which sizes it can answer, pacer policy run why it fails",
        Refusal::Unstable => {
            "nothing may depend on addresses, uninitialised memory or the order of hash maps: sort what is returned"
        }
        Refusal::SelfTest => "the sandbox does not work on this machine; the linked policy decides here",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reason of the table of refusals in the document.
    #[test]
    fn every_documented_reason_has_a_cure() {
        let document = include_str!("../../../../docs/policy-sets.md");
        let table = document.split_once("Reasons of refusals:").unwrap().1.split_once("\n## ").unwrap().0;
        let reasons: Vec<&str> = table.split('`').skip(1).step_by(2).filter(|word| word.starts_with("Policy")).collect();
        assert!(reasons.len() > 20, "{reasons:?}");
        for reason in reasons {
            assert!(of_reason(reason).is_some(), "{reason}");
        }
        assert_eq!(of_reason("PolicySetUnheardOf"), None);
    }

    #[test]
    fn cures_are_for_both_versions_of_the_contract_and_for_texts() {
        for (reason, parts) in [
            ("PolicyContractVersion", ["wit/policy/v0.1.0", "wit/policy/v0.2.0"]),
            ("PolicyTypeMismatch", ["wit/policy/v0.1.0", "wit/policy/v0.2.0"]),
            ("PolicyStartFailed", ["a text: correct the error that the message names; ", "a component: "]),
            ("PolicyExportMissing", ["a text: function scaleDown", "wit/policy"]),
            (
                "PolicyDescribeFailed",
                ["a name", "without a panic and within the limits of a call (processor time, fuel, memory, stack, 1 MiB"],
            ),
        ] {
            let cure = of_reason(reason).unwrap();
            assert!(parts.iter().all(|part| cure.contains(part)), "{reason}: {cure}");
        }
        assert!(of_reason("PolicyStartFailed").is_some_and(|cure| cure.starts_with("a text: ")));
    }
}
