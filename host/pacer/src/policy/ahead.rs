//! `precompile`: the interpreter of texts as native code, in a file beside the program.

use std::path::PathBuf;

use anyhow::{Context, Result};
use pacer_policy::Jail;

use super::jail::launcher;
use crate::report::Report;
use crate::table;

/// Arguments of `pacer policy precompile`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// File to write. Default: beside the program, named like it with `.interpreter` added; the program looks only there.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Compiles it, unless the file fits already.
///
/// # Errors
///
/// When it can't be compiled, or the file can't be written.
pub(crate) fn precompile(arguments: &Arguments) -> Result<Report> {
    let launcher = launcher()?;
    let launcher = match &arguments.output {
        Some(file) => launcher.with_native_code(file),
        None => launcher,
    };
    let ahead = Jail::start(launcher)?.compile_ahead().context("the interpreter of texts is not compiled ahead")?;
    let (file, size) = (ahead.file.display(), table::bytes(ahead.size));
    Ok(Report::text(if ahead.compiled {
        format!("{file}: {size} of native code\n")
    } else {
        format!("{file} fits this program already\n")
    }))
}
