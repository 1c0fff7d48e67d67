//! Which autoscaler the events of a job belong to.
//!
//! GitHub does not say which runners a job will get, so this repeats its choice: the runners must be where the repository's jobs may run
//! ([`Reach`]), in a group that the repository may use ([`Visibility`]), and have all labels that the job asks for ([`Fit`]). Where several
//! autoscalers are left, the order is: the narrowest reach, labels that are certain before assumed ones, the oldest object, namespace and
//! name. ARC takes whichever its cache lists first.

mod label;
mod platform;
mod reach;

pub use label::{distinct, label_set};
pub use platform::{Architecture, Fit, OperatingSystem, Platform};
pub use reach::{Group, Level, Reach, Visibility};

/// Whether runners with these labels, on this platform, can take a job that asks for those; see [`Fit`]. An architecture that nobody wrote down is
/// assumed.
#[must_use]
pub fn fits(wanted: &[&str], labels: &[&str], platform: Platform) -> bool {
    label::fit(wanted, labels, platform).is_ok()
}

use jiff::Timestamp;

use crate::scope::Scope;

/// Where a job comes from and what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Login of the repository's owner.
    pub owner: &'a str,
    /// Name of the repository, without the owner.
    pub repository: &'a str,
    /// Whether the owner is a person, who has runners in repositories only.
    pub owner_is_user: bool,
    /// Slug of the enterprise that the owner belongs to.
    pub enterprise: Option<&'a str>,
    /// Labels that the job asks for in `runs-on`.
    pub labels: Vec<&'a str>,
}

/// An autoscaler with a workflowJob trigger, and the runners of its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Namespace of the autoscaler.
    pub namespace: &'a str,
    /// Name of the autoscaler.
    pub name: &'a str,
    /// When it was made.
    pub created: Timestamp,
    /// Where the runners register.
    pub scope: Scope,
    /// Their group, in an organization or enterprise.
    pub group: Option<&'a str>,
    /// Their labels, those common to all included, GitHub's own not.
    pub labels: Vec<&'a str>,
    /// What they run on, as far as their template says so.
    pub platform: Platform,
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Search {
    /// An autoscaler was found.
    Found(Choice),
    /// It depends on which runner groups the repository may use: search again with a [`Visibility`].
    Ask,
    /// No autoscaler was found.
    None(Why),
}

/// The autoscaler that was found, as an index into the candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Index of the autoscaler that was found.
    pub index: usize,
    /// How it was reached.
    pub reach: Reach,
    /// Others that would do, in the order of preference.
    pub others: Vec<usize>,
}

/// Why no autoscaler was found. Indices are the candidate that came closest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// No runners are where the repository's jobs may run.
    Reach,
    /// Some are, but lack labels.
    Labels {
        /// The one that lacks the fewest.
        nearest: usize,
        /// Labels that the job asks for and its runners lack.
        missing: Vec<String>,
    },
    /// Some have the labels, but the repository may not use their group.
    Hidden {
        /// The one that would have been chosen.
        nearest: usize,
    },
}

/// Looks for the autoscaler of a job. Without a `visibility`, one that is needed is asked for.
#[must_use]
pub fn search(wanted: &Wanted<'_>, candidates: &[Candidate<'_>], visibility: Option<&Visibility>) -> Search {
    let mut nearest: Option<(usize, Vec<String>)> = None;
    let mut fitting = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let Some(reach) = reach::reach(wanted, candidate) else { continue };
        match label::fit(&wanted.labels, &candidate.labels, candidate.platform) {
            Ok(fit) => fitting.push((reach, fit, candidate.created, candidate.namespace, candidate.name, index)),
            Err(missing) => {
                if nearest.as_ref().is_none_or(|(_, fewest)| missing.len() < fewest.len()) {
                    nearest = Some((index, missing));
                }
            }
        }
    }
    fitting.sort_unstable();
    let Some((first, .., nearest_fit)) = fitting.first().copied() else {
        return Search::None(nearest.map_or(Why::Reach, |(nearest, missing)| Why::Labels { nearest, missing }));
    };
    if first == Reach::Repository {
        // Runners of the repository itself have no groups.
        fitting.retain(|(reach, ..)| *reach == Reach::Repository);
    } else {
        let Some(visibility) = visibility else { return Search::Ask };
        fitting.retain(|(.., index)| candidates.get(*index).is_some_and(|candidate| visibility.shows(candidate)));
    }
    let mut left = fitting.into_iter().map(|(reach, .., index)| (reach, index));
    match left.next() {
        Some((reach, index)) => Search::Found(Choice { index, reach, others: left.map(|(_, index)| index).collect() }),
        None => Search::None(Why::Hidden { nearest: nearest_fit }),
    }
}

#[cfg(test)]
mod tests;
