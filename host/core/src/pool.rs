//! What a pool is, beside its runners.

use crate::policy::Attributes;
use crate::scope::Scope;

/// Where a pool belongs and how much it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolOrigin<'a> {
    /// Where its runners register; none while its spec names no such place.
    pub scope: Option<Scope>,
    /// Their runner group.
    pub group: Option<&'a str>,
    /// Image of their `runner` container.
    pub image: &'a str,
    /// What its annotation says of its priority.
    pub priority: Option<&'a str>,
}

impl PoolOrigin<'_> {
    /// The attributes of a pool that this is. A priority that is no whole number is left out.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        let scope = self.scope.as_ref().map(|scope| match scope {
            Scope::Repository { owner, name } => ("repository", format!("{owner}/{name}")),
            Scope::Organization(organization) => ("organization", organization.clone()),
            Scope::Enterprise(enterprise) => ("enterprise", enterprise.clone()),
        });
        let group = self.group.filter(|group| !group.is_empty()).map(|group| ("group", group.to_owned()));
        let image = (!self.image.is_empty()).then(|| ("image", self.image.to_owned()));
        let priority = self.priority.and_then(|priority| priority.trim().parse::<i32>().ok());
        let priority = priority.map(|priority| ("priority", priority.to_string()));
        [scope, group, image, priority].into_iter().flatten().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(origin: &PoolOrigin<'_>) -> String {
        let told = origin.attributes();
        told.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pool_tells_where_it_is_registered_and_how_much_it_matters() {
        let scope = |repository, organization, enterprise| Scope::resolve(repository, organization, enterprise).ok();
        for (origin, expected) in [
            (PoolOrigin::default(), ""),
            (
                PoolOrigin { scope: scope(Some("acme/app"), None, None), image: "runner:1", ..PoolOrigin::default() },
                "repository=acme/app image=runner:1",
            ),
            (
                PoolOrigin { scope: scope(None, Some("acme"), None), group: Some("big"), priority: Some(" -5 "), image: "" },
                "organization=acme group=big priority=-5",
            ),
            (
                PoolOrigin { scope: scope(None, None, Some("corp")), group: Some(""), priority: Some("high"), image: "" },
                "enterprise=corp",
            ),
        ] {
            assert_eq!(told(&origin), expected);
        }
    }
}
