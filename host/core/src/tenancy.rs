//! Which namespaces may register runners where, and how many: the tenancy of a cluster.
//!
//! The operator's credentials reach more than any one team should use. A tenancy says, for each namespace, which scopes it may use with them,
//! which GitHub hosts its own credentials may name, which runner groups it may join, from which registries its policies may come, and how much
//! it may have. What an entry does not mention
//! is open, unless the tenancy is strict. The first entry that a namespace belongs to is its entry.

use std::collections::BTreeMap;

use crate::reference::Reference;
use crate::scope::Scope;

mod calls;
mod pattern;
mod quota;
mod refusal;

pub use calls::Calls;
pub use pattern::{Host, PatternError, RegistryPattern, ScopePattern};
pub use quota::{Quota, Quotas};
pub use refusal::Refusal;

/// What namespaces may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenancy {
    /// What is not listed is refused.
    pub strict: bool,
    /// In order: the first one that a namespace belongs to counts.
    pub entries: Vec<Entry>,
}

/// What some namespaces may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// These namespaces belong to it.
    pub names: Vec<String>,
    /// So do those that have all of these labels; none where it is empty.
    pub labels: BTreeMap<String, String>,
    /// Scopes that they may use with the operator's credentials.
    pub scopes: Option<Vec<ScopePattern>>,
    /// GitHub hosts that their own credentials may name, beside the operator's own.
    pub hosts: Option<Vec<Host>>,
    /// Where the Secrets with their own credentials lie: in this namespace, and not in theirs. Whatever may read all Secrets beside the runners, as
    /// job pods may, does not get at these.
    pub credentials: Option<String>,
    /// Runner groups that they may join with the operator's credentials; `Default` is the default one.
    pub groups: Option<Vec<String>>,
    /// Registries that their policy sets may name.
    pub registries: Option<Vec<RegistryPattern>>,
    /// How much they may have.
    pub quotas: Quotas,
}

/// A namespace that wants something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace<'a> {
    /// Name of the namespace, which [`Entry::names`] may list.
    pub name: &'a str,
    /// Its labels; none while nobody knows them.
    pub labels: Option<&'a BTreeMap<String, String>>,
}

/// What a namespace wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Register runners there with the operator's credentials.
    Register {
        /// Scope that the runners would register to.
        scope: &'a Scope,
        /// In which group; the default one when none.
        group: Option<&'a str>,
    },
    /// Use credentials of its own at the operator's GitHub.
    Own,
    /// Use credentials of its own at this host, which is not the operator's: `ghe.example.com`, or with a port.
    Host(&'a str),
    /// Have this policy pulled.
    Pull(&'a Reference),
}

/// The name of the default runner group.
const DEFAULT_GROUP: &str = "Default";

impl Tenancy {
    /// Whether an entry can't be told without the labels of namespaces.
    #[must_use]
    pub fn reads_labels(&self) -> bool {
        self.entries.iter().any(|entry| !entry.labels.is_empty())
    }

    /// The place of a namespace's entry; none where it has none.
    ///
    /// # Errors
    ///
    /// When that depends on labels that nobody knows.
    pub fn place(&self, namespace: Namespace<'_>) -> Result<Option<usize>, Refusal> {
        for (index, entry) in self.entries.iter().enumerate() {
            if entry.names.iter().any(|name| name == namespace.name) {
                return Ok(Some(index));
            }
            if entry.labels.is_empty() {
                continue;
            }
            let labels = namespace.labels.ok_or_else(|| Refusal::Labels { namespace: namespace.name.to_owned() })?;
            if entry.labels.iter().all(|(key, value)| labels.get(key) == Some(value)) {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Whether a namespace may do that.
    ///
    /// # Errors
    ///
    /// Why it may not, and what would change that.
    pub fn judge(&self, namespace: Namespace<'_>, request: Request<'_>) -> Result<(), Refusal> {
        let name = || namespace.name.to_owned();
        let Some((place, entry)) = self.entry(namespace)? else {
            return if self.strict { Err(Refusal::Unlisted { namespace: name() }) } else { Ok(()) };
        };
        match request {
            Request::Register { scope, group } => {
                if !self.lists(entry.scopes.as_deref(), |pattern| pattern.covers(scope)) {
                    return Err(Refusal::Scope { namespace: name(), scope: scope.clone(), place });
                }
                let group = group.filter(|group| !group.is_empty()).unwrap_or(DEFAULT_GROUP);
                // A repository's runners have no group. A strict file that says nothing of groups leaves the default one.
                let open = matches!(scope, Scope::Repository { .. })
                    || (entry.groups.is_none() && group.eq_ignore_ascii_case(DEFAULT_GROUP))
                    || self.lists(entry.groups.as_deref(), |listed| listed.eq_ignore_ascii_case(group));
                if open { Ok(()) } else { Err(Refusal::Group { namespace: name(), group: group.to_owned(), place }) }
            }
            Request::Own => Ok(()),
            Request::Host(host) => {
                if self.lists(entry.hosts.as_deref(), |listed| listed.covers(host)) {
                    return Ok(());
                }
                Err(Refusal::Host { namespace: name(), host: host.to_owned(), place })
            }
            Request::Pull(reference) => {
                if self.lists(entry.registries.as_deref(), |listed| listed.covers(reference)) {
                    return Ok(());
                }
                let registry = RegistryPattern::of(reference).to_string();
                Err(Refusal::Registry { namespace: name(), registry, place })
            }
        }
    }

    /// How much a namespace may have.
    ///
    /// # Errors
    ///
    /// When that depends on labels that nobody knows.
    pub fn quotas(&self, namespace: Namespace<'_>) -> Result<Quotas, Refusal> {
        Ok(self.entry(namespace)?.map(|(_, entry)| entry.quotas).unwrap_or_default())
    }

    /// The namespace in which the Secrets lie that objects of a namespace name; its own when none.
    ///
    /// # Errors
    ///
    /// When that depends on labels that nobody knows.
    pub fn credentials(&self, namespace: Namespace<'_>) -> Result<Option<&str>, Refusal> {
        Ok(self.entry(namespace)?.and_then(|(_, entry)| entry.credentials.as_deref()))
    }

    fn entry(&self, namespace: Namespace<'_>) -> Result<Option<(usize, &Entry)>, Refusal> {
        let place = self.place(namespace)?;
        Ok(place.and_then(|place| Some((place, self.entries.get(place)?))))
    }

    fn lists<T>(&self, listed: Option<&[T]>, fits: impl Fn(&T) -> bool) -> bool {
        listed.map_or(!self.strict, |listed| listed.iter().any(fits))
    }
}

#[cfg(test)]
mod tests;
