//! Where the policy of a command comes from.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow};
use pacer_policy::bundle::pack;
use pacer_policy::{BUILTIN, Jail, Policy, SHIPPED, text};

use super::cure::refused;
use super::jail::launcher;
use crate::report::Report;
use crate::table;

/// A file, or the policy in this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// `builtin`: the policy that is part of pacer.
    Builtin,
    /// A component: plain, gzip or zstd; or a text that ends in `.js`.
    File(PathBuf),
}

impl FromStr for Source {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(if text == BUILTIN { Self::Builtin } else { Self::File(PathBuf::from(text)) })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin => f.write_str(BUILTIN),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl Source {
    /// The component, decompressed, or the module of a text.
    pub(crate) fn read(&self, jail: &Jail) -> Result<Vec<u8>> {
        let path = match self {
            Self::Builtin => return Ok(SHIPPED.to_vec()),
            Self::File(path) => path,
        };
        let bytes = std::fs::read(path).with_context(|| format!("{self} can't be read"))?;
        if self.is_text() {
            return text::module(&bytes).map_err(|error| refused(self, &error));
        }
        jail.unpack(&bytes).map_err(|error| refused(self, &error))
    }

    /// Whether it is a text.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self, Self::File(path) if path.to_str().is_some_and(text::is_text))
    }

    /// Loads it as the operator does.
    pub(crate) fn load(&self, jail: &Jail) -> Result<Policy> {
        Policy::load(jail, &self.read(jail)?).map_err(|error| refused(self, &error))
    }
}

/// Where policies are read and run: the same processes, locks and limits as the operator's.
pub(crate) fn jail() -> Result<Jail> {
    Jail::start(launcher()?).map_err(|error| anyhow!("{error}"))
}

/// Arguments of `pacer policy componentize`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// A core module, or WebAssembly text.
    module: PathBuf,
    /// File to write the component to.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// `pacer policy componentize`.
pub(crate) fn componentize(arguments: &Arguments) -> Result<Report> {
    let Arguments { module, output } = arguments;
    let source = std::fs::read(module).with_context(|| format!("{} can't be read", module.display()))?;
    let component = jail()?.componentize(&source).map_err(|error| refused(module.display(), &error))?;
    std::fs::write(output, &component).with_context(|| format!("{} can't be written", output.display()))?;
    let (size, packed) = (table::bytes(component.len()), table::bytes(pack(&component).len()));
    Ok(Report::text(format!("{}: {size}, {packed} compressed\n", output.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtin_is_no_file() {
        assert_eq!("builtin".parse(), Ok(Source::Builtin));
        assert_eq!("./builtin".parse(), Ok(Source::File(PathBuf::from("./builtin"))));
        assert!(Source::Builtin.load(&jail().unwrap()).is_ok_and(|policy| policy.decisions().len() == 4));
    }
}
