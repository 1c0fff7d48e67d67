//! Why a module was not pulled.

use std::time::Duration;

use crate::manifest::ManifestError;

/// Why a module was not pulled. Messages name what the policy set names, say what to do, and have no word of the registry's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullError {
    /// The registry gave no whole answer, or its name makes no address.
    #[error("{registry} can't be reached ({why}); check the name, the network and the registry's certificate")]
    Unreachable {
        /// The host that was called.
        registry: String,
        /// What went wrong with the connection.
        why: String,
    },
    /// It is on the operator's own machine, which a policy set may not have called.
    #[error(
        "{registry} is the operator's own machine, where only a registry may be called that whoever runs the operator has allowed \
         (--policy-registries-on-loopback); name a registry with TLS"
    )]
    Loopback {
        /// The host that was not called.
        registry: String,
    },
    /// No connection can be made at all.
    #[error("no registry can be called: {why}")]
    NoConnections {
        /// What is wrong, with the file that it is wrong with.
        why: String,
    },
    /// It took too long.
    #[error("{registry} took longer than {} s; check that the registry is well", most.as_secs())]
    Deadline {
        /// The host that was called.
        registry: String,
        /// What it may take.
        most: Duration,
    },
    /// An answer that nobody asked for.
    #[error("{registry} answered with status {status}; check that the registry is well and that this is its address")]
    Status {
        /// The host that was called.
        registry: String,
        /// What it answered with.
        status: u16,
    },
    /// It leads elsewhere, too often or to where nobody may follow.
    #[error("{registry} leads {0}; name the registry that has the artifact itself", registry = .1)]
    Redirect(&'static str, String),
    /// It does not know us.
    #[error("{registry} refuses the pull {}; {cure}", if *.given { "with the credentials of pullSecret" } else { "without credentials" },
        cure = if *.given { "check that they are valid and may pull this repository" } else { "name a Secret with credentials for this registry: pullSecret" })]
    Denied {
        /// The host that was called.
        registry: String,
        /// Whether it was given credentials.
        given: bool,
    },
    /// What it asks for to know us can't be given.
    #[error(
        "{registry} asks for credentials in a way that is not known here, or sends them to another domain; use a registry with tokens or Basic"
    )]
    Challenge {
        /// The host that was called.
        registry: String,
    },
    /// There is no such artifact, or we may not know of it.
    #[error(
        "{registry} has no {what} of that digest in this repository, or hides it from those without the right to pull; check the reference and \
         pullSecret"
    )]
    NotFound {
        /// The host that was called.
        registry: String,
        /// What was asked for.
        what: &'static str,
    },
    /// More bytes than are read.
    #[error("the {what} has more than the {most} bytes that it may have; build the policy for size, and push it alone")]
    TooLarge {
        /// What was asked for.
        what: &'static str,
        /// What it may have.
        most: usize,
    },
    /// Other bytes than those of the digest.
    #[error("{registry} sent a {what} that has another digest; do not use this registry until you know why")]
    Digest {
        /// The host that was called.
        registry: String,
        /// What was asked for.
        what: &'static str,
    },
    /// The manifest of the artifact is not that of a policy.
    #[error(
        "the artifact is no policy: {0}; push the policy alone: oras push REGISTRY/REPOSITORY:TAG policy.wasm:application/wasm, or \
         policy.js:text/javascript"
    )]
    Artifact(#[from] ManifestError),
    /// There is no signature.
    #[error(
        "it is not signed, and this operator takes signed policies only; sign it: cosign sign --key KEY {artifact} (docs/policy-sets.md#signatures)"
    )]
    Unsigned {
        /// What has to be signed.
        artifact: String,
    },
    /// There is a signature of somebody else, or of something else.
    #[error("none of its signatures is by a key that this operator takes (--policy-verification-key); sign it with one of these")]
    Signature,
}

impl PullError {
    /// Stable name for statuses, events and metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreachable { .. }
            | Self::NoConnections { .. }
            | Self::Deadline { .. }
            | Self::Status { .. }
            | Self::Redirect(..) => "PolicyPullFailed",
            Self::Loopback { .. } => "PolicyRegistryRefused",
            Self::Denied { .. } | Self::Challenge { .. } => "PolicyPullDenied",
            Self::NotFound { .. } => "PolicyPullNotFound",
            Self::TooLarge { .. } => "PolicyTooLarge",
            Self::Digest { .. } => "PolicyDigestMismatch",
            Self::Artifact(_) => "PolicyArtifactInvalid",
            Self::Unsigned { .. } => "PolicySignatureMissing",
            Self::Signature => "PolicySignatureInvalid",
        }
    }

    /// Whether another try can end otherwise: what a digest names never changes.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        !matches!(self, Self::TooLarge { .. } | Self::Artifact(_) | Self::Loopback { .. })
    }
}
