//! Labels that jobs ask for and runners have.

use std::collections::BTreeSet;

use super::{Fit, Platform};

/// Compares the labels of a job with those of runners; upper and lower case are the same, as at GitHub. The error has what is missing.
pub(super) fn fit(wanted: &[&str], labels: &[&str], platform: Platform) -> Result<Fit, Vec<String>> {
    let mut fit = Fit::Certain;
    let mut missing = Vec::new();
    for label in wanted {
        if labels.iter().any(|other| label.eq_ignore_ascii_case(other)) {
            continue;
        }
        match platform.fit(label) {
            Some(one) => fit = fit.max(one),
            None => missing.push((*label).to_owned()),
        }
    }
    if missing.is_empty() { Ok(fit) } else { Err(missing) }
}

/// Labels in an order of their own and in small letters: neither order nor case means anything at GitHub.
#[must_use]
pub fn label_set(labels: &[impl AsRef<str>]) -> BTreeSet<String> {
    labels.iter().map(|label| label.as_ref().to_lowercase()).collect()
}

/// Labels that runners have, each once and as it is written first: upper and lower case are the same at GitHub.
#[must_use]
pub fn distinct<'a>(labels: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut known: Vec<&str> = Vec::new();
    for label in labels {
        if !known.iter().any(|other| label.eq_ignore_ascii_case(other)) {
            known.push(label);
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::super::{Architecture, OperatingSystem};
    use super::*;

    #[test]
    fn labels_that_differ_only_in_case_are_one() {
        assert_eq!(distinct(["web", "Common", "Web", "common", "gpu"]), ["web", "Common", "gpu"]);
        assert_eq!(distinct([]), [""; 0]);
    }

    #[test]
    fn labels_are_matched_as_github_does() {
        let certain = Ok(Fit::Certain);
        let lacking = |labels: &[&str]| Err(labels.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>());
        let on = |architecture| Platform { os: None, architecture: Some(architecture) };
        let (unknown, arm, other) = (Platform::default(), on(Architecture::Arm64), on(Architecture::Other));
        let windows = Platform { os: Some(OperatingSystem::Windows), architecture: None };
        for (wanted, labels, platform, expected) in [
            (vec![], vec![], unknown, certain.clone()),
            (vec!["label1"], vec!["label1"], unknown, certain.clone()),
            (vec!["Label1"], vec!["laBel1"], unknown, certain.clone()),
            (vec!["self-hosted", "label1"], vec!["label1", "label2"], unknown, certain.clone()),
            (vec!["label1"], vec!["bad-label"], unknown, lacking(&["label1"])),
            (vec!["label1", "label2"], vec!["label1"], unknown, lacking(&["label2"])),
            (vec!["Self-Hosted", "Linux"], vec![], unknown, certain.clone()),
            (vec!["self-hosted", "windows"], vec![], unknown, lacking(&["windows"])),
            (vec!["X64"], vec![], unknown, Ok(Fit::Assumed)),
            (vec!["X64"], vec!["x64"], arm, certain.clone()),
            (vec!["ARM64"], vec![], arm, certain),
            (vec!["x64", "linux"], vec![], arm, lacking(&["x64"])),
            (vec!["x64"], vec![], other, lacking(&["x64"])),
            (vec![""], vec![], other, lacking(&[""])),
            (vec!["self-hosted", "windows", "gpu"], vec!["gpu"], windows, Ok(Fit::Certain)),
            (vec!["self-hosted", "linux"], vec![], windows, lacking(&["linux"])),
            (vec!["linux", "x64"], vec!["linux"], windows, Ok(Fit::Assumed)),
        ] {
            assert_eq!(fit(&wanted, &labels, platform), expected, "{wanted:?} of {labels:?} on {platform:?}");
        }
    }
}
