//! The `pacer` binary: arguments, wiring, telemetry.
//!
//! Read first: [`verb`] (what it can be asked for), [`arguments`] (flags, ARC's included) and [`run`] (what is started in which order).

mod adopt;
mod archive;
mod arguments;
mod cluster;
mod completion;
mod connection;
mod crds;
mod default_github;
mod default_set;
mod doctor;
mod drain;
mod explain;
mod health;
mod listen;
mod overview;
mod policy;
mod reader;
mod record;
mod report;
mod run;
mod signal;
mod simulate;
mod table;
mod telemetry;
mod trace;
mod ui;
mod verb;
mod webhook;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use verb::{Command, Pacer};

fn main() -> ExitCode {
    // Two TLS back ends in one process would make rustls refuse to choose.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let pacer = Pacer::parse_from(arguments::as_go_wrote_them(std::env::args_os()));
    let result = match pacer.command {
        Command::Adopt(arguments) => return end(adopt::main(&arguments)),
        Command::Doctor(arguments) => return end(doctor::main(&arguments)),
        Command::Run(arguments) => run::main(*arguments),
        Command::Webhook(arguments) => webhook::main(*arguments),
        Command::PolicyProcess(arguments) => return policy::jail::main(&arguments),
        Command::Drain(arguments) => drain::main(&arguments),
        Command::Crds(arguments) => crds::main(&arguments).and_then(|report| tell(&report)),
        Command::Explain(arguments) => explain::explain(&arguments).and_then(|report| tell(&report)),
        Command::Record(arguments) => record::main(&arguments),
        Command::Simulate(arguments) => simulate::simulate(&arguments).and_then(|report| tell(&report)),
        Command::Ui(arguments) => ui::main(arguments),
        Command::Trace { verb } => trace::main(&verb).and_then(|report| tell(&report)),
        Command::Status(arguments) => overview::status(&arguments, tell),
        Command::Completion(arguments) => print(&completion::completion(&arguments, Pacer::command())),
        Command::Man(arguments) => completion::man(&arguments, Pacer::command()).and_then(|text| print(&text)),
        Command::Policy { verb } => policy::main(&verb, tell).and_then(|report| tell(&report)),
        Command::Version => print(&format!("pacer {}\n", env!("CARGO_PKG_VERSION"))),
    };
    end(result.map(|()| ExitCode::SUCCESS))
}

fn end(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            let _closed = writeln!(std::io::stderr(), "pacer: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints what a verb found out.
fn tell(report: &report::Report) -> anyhow::Result<()> {
    print(&report.text)?;
    let _closed = std::io::stderr().write_all(report.notes.as_bytes());
    match &report.failure {
        Some(failure) => Err(anyhow::anyhow!("{failure}")),
        None => Ok(()),
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // `pacer crds | head` is no failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}
