//! Which object: by UID, or by namespace and name.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::runtime::reflector::ObjectRef;

/// An object lacks what the API server always sets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} has no {field}, which the API server always sets")]
pub struct MissingMetadata {
    /// Kind of the object.
    pub kind: String,
    /// What it lacks, as in its manifest.
    pub field: &'static str,
}

/// UID of an object. Never empty: objects that lack one would all be the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(Arc<str>);

impl Uid {
    /// The UID of an object of the API server.
    ///
    /// # Errors
    ///
    /// When it has none, as one that was not created yet.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Result<Self, MissingMetadata> {
        let missing = || MissingMetadata { kind: K::kind(&()).into_owned(), field: "metadata.uid" };
        object.meta().uid.as_deref().and_then(Self::new).ok_or_else(missing)
    }

    /// A UID that an owner reference or a status names; none when it is empty.
    #[must_use]
    pub fn new(uid: &str) -> Option<Self> {
        (!uid.is_empty()).then(|| Self(uid.into()))
    }

    /// The text of it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Uid {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Namespace and name of a namespaced object, whatever its kind and whether it exists or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// `metadata.namespace` of the object.
    pub namespace: String,
    /// `metadata.name` of the object.
    pub name: String,
}

impl ObjectKey {
    /// A key of these two.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object of the API server.
    ///
    /// # Errors
    ///
    /// When it has no name, or no namespace because its kind is not namespaced.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Result<Self, MissingMetadata> {
        let missing = |field| move || MissingMetadata { kind: K::kind(&()).into_owned(), field };
        let meta = object.meta();
        let namespace = meta.namespace.clone().ok_or_else(missing("metadata.namespace"))?;
        Ok(Self { namespace, name: meta.name.clone().ok_or_else(missing("metadata.name"))? })
    }

    /// What finds it in a store.
    #[must_use]
    pub fn in_store<K: Resource<DynamicType = ()>>(&self) -> ObjectRef<K> {
        ObjectRef::new(&self.name).within(&self.namespace)
    }

    /// For Events about an object of a kind of which nothing is known but its key.
    #[must_use]
    pub fn reference<K: Resource<DynamicType = ()>>(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            ..ObjectReference::default()
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use pacer_api::Runner;

    use super::*;

    #[test]
    fn uid_is_refused_when_object_has_none() {
        let mut runner = Runner::default();
        let missing = |field| MissingMetadata { kind: "Runner".to_owned(), field };
        assert_eq!(Uid::of(&runner), Err(missing("metadata.uid")));
        runner.metadata.uid = Some(String::new());
        assert_eq!(Uid::of(&runner), Err(missing("metadata.uid")));
        runner.metadata.uid = Some("1".to_owned());
        assert_eq!(Uid::of(&runner).map(|uid| uid.to_string()), Ok("1".to_owned()));
        runner.metadata.name = Some("web".to_owned());
        assert_eq!(ObjectKey::of(&runner), Err(missing("metadata.namespace")));
        runner.metadata.namespace = Some("ci".to_owned());
        assert_eq!(ObjectKey::of(&runner).map(|key| key.to_string()), Ok("ci/web".to_owned()));
    }
}
