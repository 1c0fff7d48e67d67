//! Which labels and annotations of objects policies may see: what users wrote there may be nobody else's business.

use std::collections::BTreeMap;

use crate::policy::Attributes;

/// Before the key of a label, among attributes.
pub const LABEL: &str = "label:";

/// Longest value that is passed on, in bytes; longer ones are left out. Values of labels have 63 at most.
pub const VALUE: usize = 256;

/// Most labels, and most annotations, of one object that are passed on, the first ones by key.
pub const MOST: usize = 32;

/// What may be passed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Keys of labels of nodes.
    pub node_labels: Vec<String>,
    /// Beginnings of the keys of labels of runners.
    pub labels: Vec<String>,
    /// Beginnings of the keys of annotations of runners.
    pub annotations: Vec<String>,
}

impl Allowed {
    /// Labels of a node, as attributes.
    #[must_use]
    pub fn of_node(&self, labels: &BTreeMap<String, String>) -> Attributes {
        let listed = labels.iter().filter(|(key, _)| self.node_labels.iter().any(|allowed| allowed == *key));
        passed(listed, LABEL)
    }

    /// Labels of a runner, as attributes.
    #[must_use]
    pub fn labels(&self, labels: &BTreeMap<String, String>) -> Attributes {
        passed(beginning(labels, &self.labels), LABEL)
    }

    /// Annotations of a runner, as attributes. A key without a slash would look like a fact of the operator's, and is left out.
    #[must_use]
    pub fn annotations(&self, annotations: &BTreeMap<String, String>) -> Attributes {
        passed(beginning(annotations, &self.annotations).filter(|(key, _)| key.contains('/')), "")
    }
}

fn beginning<'a>(all: &'a BTreeMap<String, String>, prefixes: &'a [String]) -> impl Iterator<Item = (&'a String, &'a String)> {
    all.iter().filter(|(key, _)| prefixes.iter().any(|prefix| key.starts_with(prefix)))
}

fn passed<'a>(all: impl Iterator<Item = (&'a String, &'a String)>, before: &str) -> Attributes {
    let short = all.filter(|(_, value)| value.len() <= VALUE).take(MOST);
    short.map(|(key, value)| (format!("{before}{key}"), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn of(entries: &[(&str, &str)]) -> Attributes {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn only_what_is_allowed_is_passed_on() {
        let prefixes = || vec!["acme.io/".to_owned(), "team".to_owned()];
        let allowed = Allowed { node_labels: vec!["zone".into()], labels: prefixes(), annotations: prefixes() };
        let some = map(&[("acme.io/tier", "gold"), ("acme.com/tier", "x"), ("team", "web"), ("zone", "a")]);
        assert_eq!(allowed.of_node(&some), of(&[("label:zone", "a")]));
        assert_eq!(allowed.labels(&some), of(&[("label:acme.io/tier", "gold"), ("label:team", "web")]));
        assert_eq!(allowed.annotations(&some), of(&[("acme.io/tier", "gold")]));
        let nothing = Allowed::default();
        assert_eq!((nothing.of_node(&some), nothing.labels(&some), nothing.annotations(&some)), Default::default());
    }

    #[test]
    fn what_is_passed_on_is_bounded() {
        let allowed = Allowed { annotations: vec!["a/".to_owned()], ..Allowed::default() };
        let many: BTreeMap<String, String> = (0..100).map(|n| (format!("a/{n:03}"), "x".repeat(n * 4))).collect();
        let passed = allowed.annotations(&many);
        assert_eq!(passed.len(), MOST);
        let long: BTreeMap<String, String> = many.into_iter().filter(|(_, value)| value.len() > VALUE).collect();
        assert!(!long.is_empty() && allowed.annotations(&long).is_empty());
    }
}
