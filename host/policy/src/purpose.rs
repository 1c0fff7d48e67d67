//! What calls are made for.

/// What calls are made for, and so whether logs tell of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Decisions, and comparisons with them: what a policy logs and how it fails is logged.
    #[default]
    Operation,
    /// A simulation: nothing that happens in it has happened, so no log tells of it.
    Simulation,
}
