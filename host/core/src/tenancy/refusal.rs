//! Why a namespace may not do something.

use super::pattern::ScopePattern;
use super::quota::Quota;
use crate::scope::Scope;

/// One sentence each, with the cure, for whoever looks at the object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A strict file does not list the namespace.
    #[error(
        "namespace {namespace} is not listed in the tenancy file, which is strict: whoever runs the operator can add it to `namespaces`"
    )]
    Unlisted {
        /// Name of the namespace.
        namespace: String,
    },
    /// The scope is not among those of its entry.
    #[error(
        "namespace {namespace} may not register runners of {scope} with the operator's credentials: whoever runs the operator can add \
         {} to namespaces[{place}].scopes of the tenancy file, or name credentials of your own in githubAPICredentialsFrom",
        ScopePattern::of(.scope)
    )]
    Scope {
        /// Name of the namespace.
        namespace: String,
        /// Scope that the runners would register to.
        scope: Scope,
        /// Of its entry, from 0.
        place: usize,
    },
    /// The group is not among those of its entry.
    #[error(
        "namespace {namespace} may not register runners in the group {group:?} with the operator's credentials: name another group, or \
         let whoever runs the operator add it to namespaces[{place}].groups of the tenancy file"
    )]
    Group {
        /// Name of the namespace.
        namespace: String,
        /// Runner group that the runners would join.
        group: String,
        /// Of its entry, from 0.
        place: usize,
    },
    /// The host is not among those of its entry.
    #[error(
        "credentials of namespace {namespace} may not name the GitHub host {host}: whoever runs the operator can add it to \
         namespaces[{place}].hosts of the tenancy file"
    )]
    Host {
        /// Name of the namespace.
        namespace: String,
        /// GitHub host that the credentials name.
        host: String,
        /// Of its entry, from 0.
        place: usize,
    },
    /// The registry is not among those of its entry.
    #[error(
        "policy sets of namespace {namespace} may not name {registry}: whoever runs the operator can add it to \
         namespaces[{place}].registries of the tenancy file"
    )]
    Registry {
        /// Name of the namespace.
        namespace: String,
        /// The registry and the repository.
        registry: String,
        /// Of its entry, from 0.
        place: usize,
    },
    /// A quota is used up.
    #[error(
        "namespace {namespace} may have {most} {quota} and has no room for more: remove some, or let whoever runs the operator raise \
         quotas.{} of the namespace in the tenancy file",
        .quota.key()
    )]
    Quota {
        /// Name of the namespace.
        namespace: String,
        /// The quota that is used up.
        quota: Quota,
        /// The most that the quota allows.
        most: u32,
    },
    /// GitHub calls had to wait.
    #[error(
        "GitHub calls wait, since namespace {namespace} makes more than its {most} a minute: what waits goes on by itself; to have it sooner, use \
         fewer scopes and shorter lists of repositories, or let whoever runs the operator raise quotas.callsPerMinute of the \
         namespace in the tenancy file"
    )]
    Calls {
        /// Name of the namespace.
        namespace: String,
        /// GitHub calls that the namespace may make in a minute.
        most: u32,
    },
    /// The entry of the namespace depends on labels that can't be read.
    #[error(
        "the labels of namespace {namespace} can't be read, and the tenancy file selects namespaces by labels: grant the operator list \
         and watch on namespaces, or list namespaces by name"
    )]
    Labels {
        /// Name of the namespace.
        namespace: String,
    },
    /// A file is asked for, and there never was a good one.
    #[error("nothing is allowed before the operator has read a tenancy file: {why}")]
    NoFile {
        /// What is wrong with it, and its name.
        why: String,
    },
}

impl Refusal {
    /// The reason of conditions and Events.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unlisted { .. } | Self::Scope { .. } | Self::Group { .. } | Self::Host { .. } | Self::Registry { .. } => {
                "NotAllowed"
            }
            Self::Quota { .. } | Self::Calls { .. } => "QuotaExceeded",
            Self::Labels { .. } | Self::NoFile { .. } => "TenancyUnknown",
        }
    }
}
