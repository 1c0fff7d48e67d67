//! The processes that touch users' bytes: this executable, started once more; see `pacer-jail`.

use std::io;
use std::process::ExitCode;

use pacer_policy::Launcher;

/// The verb that these processes are started with.
pub(crate) const VERB: &str = "policy-process";

/// Arguments of `pacer policy-process`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// What it is for.
    role: String,
}

/// How they are started.
#[cfg(not(test))]
pub(crate) fn launcher() -> io::Result<Launcher> {
    Launcher::this_program([VERB])
}

/// A test is not the program that it tests, so that has to be built.
#[cfg(test)]
#[expect(clippy::unnecessary_wraps, reason = "so has the one outside of tests")]
pub(crate) fn launcher() -> io::Result<Launcher> {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/debug/pacer");
    Ok(Launcher::program(std::env::var_os("PACER_BIN").unwrap_or_else(|| built.into()), [VERB]))
}

/// `pacer policy-process`: reads nothing but the socket that it was given.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    pacer_jail::main(Some(&arguments.role))
}
