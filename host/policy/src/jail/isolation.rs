//! How well the processes that touch users' bytes are locked in, as one of them found out by trying.

use std::fmt;

use crate::protocol::Locks;

/// How much of the isolation of policies holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Nothing that must be impossible was possible, and both of the kernel's locks hold.
    Full,
    /// One of the kernel's locks is missing, or something got past both.
    Partial,
    /// The kernel has neither lock: limits and the empty environment are all there is.
    None,
}

impl IsolationLevel {
    /// Every level, the best first.
    pub const ALL: [Self; 3] = [Self::Full, Self::Partial, Self::None];

    /// The word for logs, metrics and conditions.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::None => "none",
        }
    }
}

/// How well policies are isolated on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// How much of the isolation holds, in a word.
    pub level: IsolationLevel,
    /// Locks that are missing, and what could be done although it must be impossible; empty when [`IsolationLevel::Full`].
    pub missing: Vec<String>,
}

impl Isolation {
    /// Of locks that hold and what was possible nevertheless.
    pub(super) fn new(locks: Locks, possible: Vec<String>) -> Self {
        let level = match locks {
            Locks { landlock: true, seccomp: true, limits: true } if possible.is_empty() => IsolationLevel::Full,
            Locks { landlock: false, seccomp: false, .. } => IsolationLevel::None,
            _ => IsolationLevel::Partial,
        };
        let named = [(locks.landlock, "Landlock"), (locks.seccomp, "seccomp"), (locks.limits, "limits of the process")];
        let absent = named.into_iter().filter(|(holds, _)| !holds).map(|(_, name)| name.to_owned());
        Self { level, missing: absent.chain(possible.into_iter().map(|what| format!("denial of {what}"))).collect() }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.level.as_str())?;
        if self.missing.is_empty() {
            return Ok(());
        }
        write!(f, " (missing: {})", self.missing.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let all = Locks { landlock: true, seccomp: true, limits: true };
        for (locks, possible, text) in [
            (all, vec![], "full"),
            (all, vec!["connect".to_owned()], "partial (missing: denial of connect)"),
            (Locks { landlock: false, ..all }, vec![], "partial (missing: Landlock)"),
            (Locks { limits: false, ..all }, vec![], "partial (missing: limits of the process)"),
            (
                Locks { limits: true, ..Locks::default() },
                vec!["open".to_owned(), "exec".to_owned()],
                "none (missing: Landlock, seccomp, denial of open, denial of exec)",
            ),
        ] {
            assert_eq!(Isolation::new(locks, possible).to_string(), text);
        }
    }
}
