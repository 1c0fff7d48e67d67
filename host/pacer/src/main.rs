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
mod denial;
mod doctor;
mod drain;
mod explain;
mod file;
mod health;
mod listen;
mod overview;
mod plain;
mod policy;
mod reader;
mod record;
mod report;
mod reread;
mod run;
mod signal;
mod simulate;
mod table;
mod telemetry;
mod trace;
mod ui;
mod verb;
mod webhook;

use std::cell::Cell;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use report::{Format, Report};
use verb::{Command, Pacer};

fn main() -> ExitCode {
    // Two TLS back ends in one process would make rustls refuse to choose.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let matches = Pacer::command().get_matches_from(arguments::as_go_wrote_them(std::env::args_os()));
    let pacer = Pacer::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut Pacer::command()).exit());
    let (exact, told) = (is_for_programs(&matches), Cell::new(false));
    let tell = |report: &Report| {
        told.set(true);
        tell(report, exact)
    };
    let end = |result: anyhow::Result<ExitCode>| end(result, is_json(&matches) && !told.get());
    let result = match pacer.command {
        Command::Adopt(arguments) => return end(adopt::main(&arguments, tell)),
        Command::Doctor(arguments) => return end(doctor::main(&arguments, tell)),
        Command::Run(arguments) => run::main(*arguments),
        Command::Webhook(arguments) => webhook::main(*arguments),
        Command::PolicyProcess(arguments) => return policy::jail::main(&arguments),
        Command::Drain(arguments) => drain::main(&arguments, tell),
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

/// The exit code. An error is told to people; and, where a program waits for JSON and got none, to it as well.
fn end(result: anyhow::Result<ExitCode>, in_json: bool) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            let causes = plain::causes(&error);
            if in_json {
                let _closed = print(&format!("{:#}\n", serde_json::json!({"error": causes})));
            }
            let _closed = writeln!(std::io::stderr(), "{}", plain::text(&format!("pacer: {causes}")));
            ExitCode::FAILURE
        }
    }
}

/// The verbs of a command, and the arguments of the innermost.
fn innermost(matches: &ArgMatches) -> (Vec<&str>, &ArgMatches) {
    let (mut verbs, mut innermost) = (Vec::new(), matches);
    while let Some((verb, further)) = innermost.subcommand() {
        verbs.push(verb);
        innermost = further;
    }
    (verbs, innermost)
}

/// Whether programs read what the command prints: that is printed as it is.
fn is_for_programs(matches: &ArgMatches) -> bool {
    is_json(matches) || matches!(innermost(matches).0.as_slice(), ["crds"] | ["policy", "configmap"])
}

/// Whether the command was told to print JSON.
fn is_json(matches: &ArgMatches) -> bool {
    let (_, innermost) = innermost(matches);
    // A verb that has no such flag, or means something else by it, prints text.
    matches!(innermost.try_get_one::<Format>("output"), Ok(Some(Format::Json)))
        || matches!(innermost.try_get_one::<simulate::Output>("output"), Ok(Some(simulate::Output::Json)))
        || matches!(innermost.try_get_one::<adopt::Output>("output"), Ok(Some(adopt::Output::Json)))
        || matches!(innermost.try_get_one::<bool>("json"), Ok(Some(true)))
}

/// Prints what a verb found out: as it is, or for a terminal. Fields from the cluster are scrubbed where they are told; whatever was forgotten there is kept
/// from the terminal here.
fn tell(report: &Report, exact: bool) -> anyhow::Result<()> {
    if exact {
        print(&report.text)?;
    } else {
        print(&plain::text(&report.text))?;
    }
    let _closed = std::io::stderr().write_all(plain::text(&report.notes).as_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_the_documentation() {
        let page = include_str!("../../../docs/operations.md");
        let table = page.split_once("## Exit codes").unwrap().1.split_once("\n## ").unwrap().0;
        let code = |row: &str| row.strip_prefix("| ")?.split_once(" |")?.0.parse::<u8>().ok();
        let documented: Vec<u8> = table.lines().filter_map(code).collect();
        let usage = Pacer::command().try_get_matches_from(["pacer", "--none"]).unwrap_err().exit_code();
        assert_eq!(documented, [0, 1, u8::try_from(usage).unwrap(), doctor::SICK]);
        assert_eq!(doctor::SICK, adopt::FIRST);
        let shown = |code: ExitCode| format!("{code:?}");
        assert_eq!([ExitCode::SUCCESS, ExitCode::FAILURE].map(shown), [0, 1].map(|code| shown(ExitCode::from(code))));
    }

    #[test]
    fn what_programs_read_is_printed_as_it_is() {
        let exact = |line: &str| is_for_programs(&Pacer::command().try_get_matches_from(line.split(' ')).unwrap());
        for line in [
            "pacer status -o json",
            "pacer policy status --output json",
            "pacer policy run builtin --input case.json --json",
            "pacer simulate --trace trace --output json",
            "pacer adopt --dry-run -o json",
            "pacer doctor -o json",
            "pacer policy configmap builtin",
            "pacer crds",
        ] {
            assert!(exact(line), "{line}");
        }
        for line in [
            "pacer status",
            "pacer adopt --dry-run",
            "pacer doctor",
            "pacer drain",
            "pacer policy status",
            "pacer policy run builtin --input case.json",
            "pacer policy componentize policy.wat -o json",
            "pacer crds apply",
        ] {
            assert!(!exact(line), "{line}");
        }
    }
}
