//! The process that compiles policies for the operator; see `pacer-compiler`.

use std::io;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use pacer_policy::{Compiler, PATIENCE, REFUSED, Served, compile_for_parent};

/// The verb that this process is started with.
pub(crate) const VERB: &str = "compile-policy";

/// How the operator starts it; none where the system does not say what is running, and policies are compiled in the operator itself.
pub(crate) fn compiler() -> Option<Compiler> {
    Compiler::this_program([VERB], PATIENCE)
        .inspect_err(|error| tracing::warn!(%error, "policies are compiled in the operator's own process"))
        .ok()
}

/// `pacer compile-policy`.
pub(crate) fn compile() -> Result<ExitCode> {
    let served = compile_for_parent(&mut io::stdin().lock(), &mut io::stdout().lock()).context("compiling a policy")?;
    Ok(match served {
        Served::Compiled => ExitCode::SUCCESS,
        Served::Refused => ExitCode::from(REFUSED),
    })
}
