//! Owner references.

use kube::Resource;
use kube::api::ObjectMeta;

use crate::object::Uid;

/// The controlling owner of an object, whether it exists or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller<'a> {
    /// Its UID; never empty.
    pub uid: &'a str,
    /// Its name; it is in the namespace of what it owns.
    pub name: &'a str,
}

/// The controlling owner of an object, when it is of the kind `O`.
#[must_use]
pub fn controller<O: Resource<DynamicType = ()>>(object: &impl Resource) -> Option<Controller<'_>> {
    let owners = object.meta().owner_references.as_deref().unwrap_or_default();
    let kind = O::kind(&());
    owners
        .iter()
        .find(|owner| owner.controller == Some(true) && owner.kind == kind && !owner.uid.is_empty())
        .map(|owner| Controller { uid: &owner.uid, name: &owner.name })
}

/// Whether an object is owned by the one with this UID: another object may have the name that it would have.
#[must_use]
pub fn is_owned(object: &ObjectMeta, by: &Uid) -> bool {
    object.owner_references.iter().flatten().any(|owner| owner.uid == by.as_str())
}
