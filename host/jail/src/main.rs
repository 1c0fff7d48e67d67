//! A child process by itself, for the tests of this crate: what `pacer` becomes when it is started for policies.

use std::process::ExitCode;

fn main() -> ExitCode {
    pacer_jail::main(std::env::args().nth(1).as_deref())
}
