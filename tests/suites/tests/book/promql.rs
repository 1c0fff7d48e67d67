//! What a PromQL expression asks for: metrics, and the labels that it names. promtool says whether the expression is valid.

use std::collections::BTreeSet;

/// Names in an expression.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Asked {
    /// Each metric with the labels of its braces.
    pub(super) metrics: Vec<(String, Vec<String>)>,
    /// Labels that `by`, `on` and their like name.
    pub(super) grouped: BTreeSet<String>,
    /// Text in quotes outside of braces, such as a label that `label_replace` makes.
    pub(super) quoted: BTreeSet<String>,
}

const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

/// Finds the metrics, the labels and the quoted texts of a PromQL expression.
pub(super) fn asked(expression: &str) -> Asked {
    let mut asked = Asked::default();
    let mut rest = expression;
    while let Some(letter) = rest.chars().next() {
        if letter == '"' {
            let (text, after) = quoted(rest);
            asked.quoted.insert(text.to_owned());
            rest = after;
        } else if letter == '[' {
            rest = rest.split_once(']').map_or("", |(_, after)| after);
        } else if letter.is_ascii_digit() {
            // A number, or a duration with its unit.
            rest = rest.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric() || letter == '.');
        } else if is_of_name(letter) {
            rest = asked.name(rest);
        } else {
            rest = rest.get(letter.len_utf8()..).unwrap_or_default();
        }
    }
    asked
}

impl Asked {
    /// Takes the name that an expression begins with; returns what is after it.
    fn name<'a>(&mut self, expression: &'a str) -> &'a str {
        let (name, after) = expression.split_at(expression.find(|letter| !is_of_name(letter)).unwrap_or(expression.len()));
        let after = after.trim_start();
        if let Some(braces) = after.strip_prefix('{') {
            let (labels, after) = matched(braces);
            self.metrics.push((name.to_owned(), labels));
            return after;
        }
        match after.strip_prefix('(') {
            Some(listed) if GROUPING.contains(&name) => {
                let (labels, after) = listed.split_once(')').unwrap_or((listed, ""));
                self.grouped.extend(labels.split(',').map(str::trim).filter(|label| !label.is_empty()).map(str::to_owned));
                after
            }
            // A function.
            Some(_) => after,
            None if OPERATORS.contains(&name) || GROUPING.contains(&name) => after,
            None if ["sum", "max", "min", "avg", "count", "topk"].contains(&name) => after,
            None => {
                self.metrics.push((name.to_owned(), Vec::new()));
                after
            }
        }
    }
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == ':'
}

/// The text that begins with a quote, and what is after its end.
fn quoted(expression: &str) -> (&str, &str) {
    let text = expression.strip_prefix('"').unwrap_or(expression);
    text.split_once('"').unwrap_or((text, ""))
}

/// The labels of what is after `{`, and what is after `}`.
fn matched(braces: &str) -> (Vec<String>, &str) {
    let mut labels = Vec::new();
    let mut rest = braces.trim_start_matches([' ', ',']);
    while let Some((label, after)) = rest.split_once(['=', '!']).filter(|(label, _)| !label.contains('}')) {
        labels.push(label.trim().to_owned());
        let value = after.trim_start_matches(['=', '~', ' ']);
        rest = quoted(value).1.trim_start_matches([' ', ',']);
    }
    (labels, rest.strip_prefix('}').unwrap_or_default())
}

#[test]
fn metrics_and_labels_of_an_expression_are_found() {
    let found = asked(
        r#"1 - sum by (namespace, set) (label_replace(rate(a_total{x=~"b|c",y!="}"}[5m]), "set", "$1", "z", "(.+)")) / on (namespace) max(d) offset 1h > 0.5 or vector(0)"#,
    );
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(found.metrics, [("a_total".to_owned(), owned(&["x", "y"])), ("d".to_owned(), Vec::new())]);
    assert_eq!(found.grouped, owned(&["namespace", "set"]).into_iter().collect());
    assert!(found.quoted.contains("set"), "{found:?}");
}
