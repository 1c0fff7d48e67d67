//! What pools are called in traces.

use std::fmt;

/// What stands between the namespace and the name of a RunnerSet, for a RunnerDeployment may have the same name.
const RUNNER_SET: &str = "runnerset";

/// What a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// Called `namespace/name` in traces.
    RunnerDeployment,
    /// Called `namespace/runnerset/name` in traces.
    RunnerSet,
}

impl PoolKind {
    /// Its kind in Kubernetes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunnerDeployment => "RunnerDeployment",
            Self::RunnerSet => "RunnerSet",
        }
    }
}

/// The name of a pool: `namespace/name` of a RunnerDeployment, `namespace/runnerset/name` of a RunnerSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolName<'a> {
    /// Whether it is a RunnerDeployment or a RunnerSet.
    pub kind: PoolKind,
    /// Its namespace; empty in a name that has none.
    pub namespace: &'a str,
    /// Name of the object in its namespace.
    pub name: &'a str,
}

impl<'a> PoolName<'a> {
    /// Reads one. Any text is one.
    #[must_use]
    pub fn of(text: &'a str) -> Self {
        let (namespace, rest) = text.split_once('/').unwrap_or(("", text));
        match rest.split_once('/') {
            Some((RUNNER_SET, name)) => Self { kind: PoolKind::RunnerSet, namespace, name },
            _ => Self { kind: PoolKind::RunnerDeployment, namespace, name: rest },
        }
    }
}

impl fmt::Display for PoolName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            PoolKind::RunnerDeployment => write!(f, "{}/{}", self.namespace, self.name),
            PoolKind::RunnerSet => write!(f, "{}/{RUNNER_SET}/{}", self.namespace, self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_pool_says_what_it_is() {
        for (text, kind, namespace, name) in [
            ("ci/web", PoolKind::RunnerDeployment, "ci", "web"),
            ("ci/runnerset/web", PoolKind::RunnerSet, "ci", "web"),
            // The labels of an imported pool may be anything.
            ("imported/a/b", PoolKind::RunnerDeployment, "imported", "a/b"),
            ("ci/runnerset", PoolKind::RunnerDeployment, "ci", "runnerset"),
        ] {
            let read = PoolName::of(text);
            assert_eq!(read, PoolName { kind, namespace, name }, "{text}");
            assert_eq!(read.to_string(), text);
        }
        assert_eq!(PoolName::of("web").name, "web");
    }
}
