//! Which labels runners have because of what they run on.
//!
//! An agent that registers by itself has `self-hosted`, its operating system (`linux`, `windows`) and its architecture (`x64`, `arm64`, `arm`) besides
//! the labels of its spec. What it runs on is known only where the pod says so, by `os.name` or by its node selector. A runner that is registered
//! just in time has no other labels than those of the request: [`Platform::with_defaults`] says which these are.

use std::collections::BTreeMap;

/// Label of nodes with their operating system, in node selectors.
const NODE_OS: &str = "kubernetes.io/os";

/// Label of nodes with their architecture, in node selectors.
const NODE_ARCHITECTURE: &str = "kubernetes.io/arch";

/// The label of every runner that is not GitHub's own.
const SELF_HOSTED: &str = "self-hosted";

/// How sure it is that runners have the labels of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// All are written down, or come with what the runners run on.
    Certain,
    /// The job asks for an architecture, and nothing says what the runners have.
    Assumed,
}

/// What runners run on, as GitHub knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// GitHub's label `X64`; `amd64` in `kubernetes.io/arch`.
    X64,
    /// GitHub's label `ARM64`; `arm64` in `kubernetes.io/arch`.
    Arm64,
    /// GitHub's label `ARM`; `arm` in `kubernetes.io/arch`.
    Arm,
    /// One without a label.
    Other,
}

impl Architecture {
    const ALL: [Self; 3] = [Self::X64, Self::Arm64, Self::Arm];

    /// From the value of the node label `kubernetes.io/arch`.
    #[must_use]
    pub fn of_node(value: &str) -> Self {
        match value {
            "amd64" => Self::X64,
            "arm64" => Self::Arm64,
            "arm" => Self::Arm,
            _ => Self::Other,
        }
    }

    fn label(self) -> Option<&'static str> {
        match self {
            Self::X64 => Some("X64"),
            Self::Arm64 => Some("ARM64"),
            Self::Arm => Some("ARM"),
            Self::Other => None,
        }
    }
}

/// The operating system of runners, as GitHub knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperatingSystem {
    /// GitHub's label `linux`.
    Linux,
    /// GitHub's label `windows`.
    Windows,
    /// One that no pod of a runner has.
    Other,
}

impl OperatingSystem {
    /// From `os.name` of a pod, or the value of the node label `kubernetes.io/os`.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "linux" => Self::Linux,
            "windows" => Self::Windows,
            _ => Self::Other,
        }
    }

    fn label(self) -> Option<&'static str> {
        match self {
            Self::Linux => Some("linux"),
            Self::Windows => Some("windows"),
            Self::Other => None,
        }
    }
}

/// What runners run on, as far as their template says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Platform {
    /// Their operating system; none where nothing says it, which counts as Linux.
    pub os: Option<OperatingSystem>,
    /// Their architecture; none where nothing says it, so that every one is possible.
    pub architecture: Option<Architecture>,
}

impl Platform {
    /// Of the pods with this `os.name` and this node selector.
    #[must_use]
    pub fn of_pod(os: Option<&str>, selector: Option<&BTreeMap<String, String>>) -> Self {
        let selected = |label: &str| selector.and_then(|selector| selector.get(label)).map(String::as_str);
        Self {
            os: os.or_else(|| selected(NODE_OS)).map(OperatingSystem::named),
            architecture: selected(NODE_ARCHITECTURE).map(Architecture::of_node),
        }
    }

    /// The platform that runners are registered for before their pods exist: Linux and X64 where nothing says otherwise.
    #[must_use]
    pub fn with_defaults(self) -> Self {
        Self {
            os: Some(self.os.unwrap_or(OperatingSystem::Linux)),
            architecture: Some(self.architecture.unwrap_or(Architecture::X64)),
        }
    }

    /// The labels that are certain, as GitHub writes them in requests.
    #[must_use]
    pub fn labels(self) -> Vec<&'static str> {
        let os = self.os.unwrap_or(OperatingSystem::Linux).label();
        let architecture = self.architecture.and_then(Architecture::label);
        [Some(SELF_HOSTED), os, architecture].into_iter().flatten().collect()
    }

    /// Whether its runners have a label by what they run on, and how sure that is; none when they do not have it.
    pub(super) fn fit(self, label: &str) -> Option<Fit> {
        let is = |other: &str| label.eq_ignore_ascii_case(other);
        if self.labels().into_iter().any(is) {
            return Some(Fit::Certain);
        }
        let is_architecture = || Architecture::ALL.into_iter().filter_map(Architecture::label).any(is);
        (self.architecture.is_none() && is_architecture()).then_some(Fit::Assumed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(os: Option<&str>, selector: &[(&str, &str)]) -> Platform {
        let selector = selector.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Platform::of_pod(os, Some(&selector))
    }

    #[test]
    fn architectures_are_those_of_nodes() {
        for (value, expected) in [("amd64", Architecture::X64), ("arm64", Architecture::Arm64), ("s390x", Architecture::Other)] {
            assert_eq!(Architecture::of_node(value), expected);
        }
    }

    #[test]
    fn platform_is_read_from_the_pod_and_its_node_selector() {
        let windows = Some(OperatingSystem::Windows);
        for (os, selector, expected) in [
            (None, &[][..], Platform::default()),
            (None, &[("kubernetes.io/os", "windows")], Platform { os: windows, architecture: None }),
            (Some("windows"), &[], Platform { os: windows, architecture: None }),
            (
                Some("linux"),
                &[("kubernetes.io/arch", "arm64")],
                Platform { os: Some(OperatingSystem::Linux), architecture: Some(Architecture::Arm64) },
            ),
            (
                None,
                &[("kubernetes.io/os", "plan9"), ("zone", "a")],
                Platform { os: Some(OperatingSystem::Other), architecture: None },
            ),
        ] {
            assert_eq!(platform(os, selector), expected, "{os:?} {selector:?}");
        }
        assert_eq!(Platform::of_pod(None, None), Platform::default());
    }

    #[test]
    fn runners_have_the_labels_of_their_platform_and_no_other() {
        let unknown = Platform::default();
        let windows = platform(None, &[("kubernetes.io/os", "windows"), ("kubernetes.io/arch", "amd64")]);
        let arm = platform(None, &[("kubernetes.io/arch", "arm64")]);
        let other = platform(Some("plan9"), &[("kubernetes.io/arch", "s390x")]);
        let (certain, assumed) = (Some(Fit::Certain), Some(Fit::Assumed));
        for (platform, label, expected) in [
            (unknown, "Self-Hosted", certain),
            (unknown, "Linux", certain),
            (unknown, "windows", None),
            (unknown, "x64", assumed),
            (unknown, "ARM", assumed),
            (unknown, "", None),
            (windows, "self-hosted", certain),
            (windows, "Windows", certain),
            (windows, "linux", None),
            (windows, "X64", certain),
            (windows, "arm64", None),
            (arm, "linux", certain),
            (arm, "ARM64", certain),
            (arm, "arm", None),
            (other, "self-hosted", certain),
            (other, "linux", None),
            (other, "x64", None),
            (other, "", None),
            (unknown.with_defaults(), "x64", certain),
            (unknown.with_defaults(), "arm64", None),
        ] {
            assert_eq!(platform.fit(label), expected, "{label:?} of {platform:?}");
        }
    }

    #[test]
    fn platform_without_a_word_is_registered_as_linux_on_x64() {
        assert_eq!(Platform::default().with_defaults().labels(), ["self-hosted", "linux", "X64"]);
        let windows = platform(Some("windows"), &[("kubernetes.io/arch", "arm64")]).with_defaults();
        assert_eq!(windows.labels(), ["self-hosted", "windows", "ARM64"]);
        let other = platform(None, &[("kubernetes.io/arch", "s390x")]).with_defaults();
        assert_eq!(other.labels(), ["self-hosted", "linux"], "its agents add no label that jobs could ask for");
    }
}
