//! One thing that is not as it should be.

use serde::Serialize;

use crate::adopt::Item;
use crate::plain::line;

/// How urgent it is; the most urgent comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Runners do not start, do not end or do the wrong thing.
    Problem,
    /// Something works less well than it could, or may stop working.
    Warning,
}

/// What was found, where, why it matters, and what cures it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// Kind, namespace and name.
    pub(super) object: String,
    pub(super) what: String,
    pub(super) why: String,
    /// A command on one line, or what to do where none is known.
    pub(super) cure: String,
}

impl Finding {
    /// What ARC does that has to end.
    pub(super) fn obstacle(Item { what, why, command }: Item) -> Self {
        let what_is = "belongs to actions-runner-controller".to_owned();
        Self { severity: Severity::Problem, object: what, what: what_is, why, cure: command }
    }

    /// What ARC left behind.
    pub(super) fn leftover(item: Item) -> Self {
        Self { severity: Severity::Warning, ..Self::obstacle(item) }
    }

    pub(super) fn text(&self) -> String {
        let [object, what, why, cure] = [&self.object, &self.what, &self.why, &self.cure].map(|field| line(field));
        let severity = match self.severity {
            Severity::Problem => "PROBLEM",
            Severity::Warning => "warning",
        };
        format!("{severity:<8} {object}: {what}\n           why:  {why}\n           cure: {cure}\n")
    }
}
