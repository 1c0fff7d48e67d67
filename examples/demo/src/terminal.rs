//! Lines on standard output, readable on a terminal and in the log of a CI job alike.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Where the demo speaks. Every line below the introduction starts with the seconds since the start.
#[derive(Debug)]
pub(crate) struct Terminal {
    started: Instant,
    styled: bool,
}

/// What a line is, for those whose terminal shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
}

impl Style {
    /// The parameter of the escape sequence that turns it on.
    fn code(self) -> Option<u8> {
        match self {
            Self::Plain => None,
            Self::Bold => Some(1),
            Self::Dim => Some(2),
            Self::Good => Some(32),
            Self::Bad => Some(31),
        }
    }
}

impl Terminal {
    /// Standard output; styled only where somebody looks at it and `NO_COLOR` is not set.
    pub(crate) fn new() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { started: Instant::now(), styled: io::stdout().is_terminal() && !unwanted }
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// A line as it is.
    pub(crate) fn plain(&self, text: &str) {
        self.write(Style::Plain, text);
    }

    /// A line with the time before it.
    pub(crate) fn say(&self, text: &str) {
        self.say_in(Style::Plain, text);
    }

    /// The same in a style.
    pub(crate) fn say_in(&self, style: Style, text: &str) {
        self.write(style, &format!("{:6.1}s  {text}", self.elapsed().as_secs_f64()));
    }

    /// The start of a section.
    pub(crate) fn section(&self, title: &str) {
        self.write(Style::Plain, "");
        self.write(Style::Bold, &format!("== {title}"));
    }

    /// A line in a style.
    pub(crate) fn write(&self, style: Style, text: &str) {
        // A reader who went away changes nothing about what is proved, so the exit status still tells.
        let _ = match style.code().filter(|_| self.styled) {
            Some(code) => writeln!(io::stdout().lock(), "\x1b[{code}m{text}\x1b[0m"),
            None => writeln!(io::stdout().lock(), "{text}"),
        };
    }
}
