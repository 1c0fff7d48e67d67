//! Labels that jobs ask for and runners have.

use std::collections::BTreeSet;

/// Labels that GitHub gives every runner of ours: they are self-hosted, and run in Linux containers.
const IMPLICIT: [&str; 2] = ["self-hosted", "linux"];

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

    fn label(self) -> &'static str {
        match self {
            Self::X64 => "x64",
            Self::Arm64 => "arm64",
            Self::Arm => "arm",
            Self::Other => "",
        }
    }
}

/// How sure it is that runners have the labels of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// All are written down or always there.
    Certain,
    /// The job asks for an architecture, and nothing says what the runners have.
    Assumed,
}

/// Compares the labels of a job with those of runners; upper and lower case are the same, as at GitHub. The error has what is missing.
pub(super) fn fit(wanted: &[&str], labels: &[&str], architecture: Option<Architecture>) -> Result<Fit, Vec<String>> {
    let mut fit = Fit::Certain;
    let mut missing = Vec::new();
    for label in wanted {
        let is = |other: &str| label.eq_ignore_ascii_case(other);
        if labels.iter().chain(&IMPLICIT).any(|other| is(other)) {
            continue;
        }
        match (Architecture::ALL.into_iter().find(|one| is(one.label())), architecture) {
            (Some(asked), Some(has)) if asked == has => {}
            (Some(_), None) => fit = Fit::Assumed,
            _ => missing.push((*label).to_owned()),
        }
    }
    if missing.is_empty() { Ok(fit) } else { Err(missing) }
}

/// Labels in an order of their own and in small letters: neither order nor case means anything at GitHub.
#[must_use]
pub fn label_set(labels: &[impl AsRef<str>]) -> BTreeSet<String> {
    labels.iter().map(|label| label.as_ref().to_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_matched_as_github_does() {
        let certain = Ok(Fit::Certain);
        let lacking = |labels: &[&str]| Err(labels.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>());
        let arm = Some(Architecture::Arm64);
        for (wanted, labels, architecture, expected) in [
            (vec![], vec![], None, certain.clone()),
            (vec!["label1"], vec!["label1"], None, certain.clone()),
            (vec!["Label1"], vec!["laBel1"], None, certain.clone()),
            (vec!["self-hosted", "label1"], vec!["label1", "label2"], None, certain.clone()),
            (vec!["label1"], vec!["bad-label"], None, lacking(&["label1"])),
            (vec!["label1", "label2"], vec!["label1"], None, lacking(&["label2"])),
            (vec!["Self-Hosted", "Linux"], vec![], None, certain.clone()),
            (vec!["self-hosted", "windows"], vec![], None, lacking(&["windows"])),
            (vec!["X64"], vec![], None, Ok(Fit::Assumed)),
            (vec!["X64"], vec!["x64"], arm, certain.clone()),
            (vec!["ARM64"], vec![], arm, certain),
            (vec!["x64", "linux"], vec![], arm, lacking(&["x64"])),
            (vec!["x64"], vec![], Some(Architecture::Other), lacking(&["x64"])),
            (vec![""], vec![], Some(Architecture::Other), lacking(&[""])),
        ] {
            assert_eq!(fit(&wanted, &labels, architecture), expected, "{wanted:?} of {labels:?} on {architecture:?}");
        }
    }

    #[test]
    fn architectures_are_those_of_nodes() {
        for (value, expected) in [("amd64", Architecture::X64), ("arm64", Architecture::Arm64), ("s390x", Architecture::Other)] {
            assert_eq!(Architecture::of_node(value), expected);
        }
    }
}
