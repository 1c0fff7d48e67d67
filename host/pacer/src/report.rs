//! What a command prints, and in which form.

use clap::ValueEnum;

/// What a command has to say.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// For standard output.
    pub(crate) text: String,
    /// For standard error: what must not get into a pipe.
    pub(crate) notes: String,
    /// Why the process ends with an error although it did its work.
    pub(crate) failure: Option<String>,
}

impl Report {
    /// One that ends well.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// How findings are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For scripts.
    Json,
}
