//! A content of a policy set: its ConfigMap, and the modules that it names in registries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use pacer_core::reference::Reference;
use pacer_policy::bundle::{self, Remote};
use pacer_registry::VerificationKeys;

/// Modules from registries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pulled {
    /// By what names them, compressed.
    pub(crate) modules: BTreeMap<Reference, Vec<u8>>,
    /// The keys that they are signed by; none where one of them was not looked at.
    pub(crate) signers: BTreeSet<String>,
}

impl Pulled {
    /// Takes a module that is signed by a key, or that nobody asked a signature of.
    pub(crate) fn add(&mut self, reference: Reference, module: Vec<u8>, signer: Option<String>) {
        self.modules.insert(reference, module);
        self.signers.extend(signer);
    }

    /// The references of a set that are not among them.
    pub(crate) fn missing(&self, remote: &Remote) -> Vec<Reference> {
        remote.references.iter().filter(|reference| !self.modules.contains_key(reference)).cloned().collect()
    }
}

/// The ConfigMap of a policy set, and the modules that it names in registries.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) object: Arc<ConfigMap>,
    /// None until they have been gathered.
    pub(crate) pulled: Option<Arc<Pulled>>,
}

impl Content {
    /// Of which no module has been gathered.
    pub(crate) fn of(object: ConfigMap) -> Self {
        Self { object: Arc::new(object), pulled: None }
    }

    /// With all that it needs.
    pub(crate) fn with(self, pulled: Pulled) -> Self {
        Self { pulled: Some(Arc::new(pulled)), ..self }
    }
}

/// What of an object lies in registries.
pub(crate) fn remote(object: &ConfigMap) -> Remote {
    object.data.as_ref().map(bundle::remote).unwrap_or_default()
}

/// Whether modules that are signed by these may run.
pub(crate) fn are_trusted(signers: &BTreeSet<String>, keys: &VerificationKeys) -> bool {
    keys.is_empty() || !signers.is_empty() && signers.iter().all(|signer| keys.has(signer))
}
