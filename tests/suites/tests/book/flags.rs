//! A page with the flags of the programs that run in a cluster, from what they print themselves.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{generated, repository};

const PAGE: &str = "docs/reference/flags.md";

/// Set `UPDATE_GOLDEN=1` to write it anew.
#[test]
fn page_of_flags_has_what_the_programs_print() -> Result<()> {
    let mut page = "# Flags\n\nThis page is written by a test from `pacer run --help` and `pacer webhook --help`; `make golden` writes it anew. The values \
                    of the chart set most of them: [values](../chart-values.md). Flags of the other commands: `pacer COMMAND --help`.\n\n\
                    Durations are numbers with a unit: `90s`, `10m`, `1h30m`.\n"
        .to_owned();
    for (command, what) in [("run", "The operator."), ("webhook", "The webhook server.")] {
        let flags = flags(&help(command)?);
        ensure!(flags.len() > 20, "pacer {command} --help has {} flags", flags.len());
        write!(page, "\n## pacer {command}\n\n{what}\n\n| flag | default | variable | meaning |\n| --- | --- | --- | --- |\n")?;
        for Flag { name, default, variable, meaning } in flags {
            let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
            writeln!(page, "| `{name}` | {} | {} | {} |", code(&default), code(&variable), meaning.replace('|', "\\|"))?;
        }
    }
    generated(PAGE, &page)
}

fn help(command: &str) -> Result<String> {
    let binary = std::env::var_os("PACER_BIN").map_or_else(|| repository("target/debug/pacer"), PathBuf::from);
    // Help shows the values of variables.
    let output = Command::new(binary).args([command, "--help"]).env_clear().output();
    let output = output.context("running pacer; build it first: cargo build --workspace")?;
    ensure!(output.status.success(), "pacer {command} --help: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

#[derive(Debug, Default, PartialEq)]
struct Flag {
    name: String,
    default: String,
    variable: String,
    meaning: String,
}

/// The flags of a help text, without `--help` itself.
fn flags(help: &str) -> Vec<Flag> {
    let mut flags: Vec<Flag> = Vec::new();
    for line in help.lines() {
        let indented = line.len() - line.trim_start().len();
        let line = line.trim();
        if indented < 10 && line.starts_with('-') {
            let long = line.split_once(", ").map_or(line, |(_, long)| long);
            // That a switch can be given a value is of no interest here.
            let name = long.split("[=").next().unwrap_or(long);
            flags.push(Flag { name: name.to_owned(), ..Flag::default() });
        } else if let Some(flag) = flags.last_mut().filter(|_| indented >= 10) {
            flag.says(line);
        }
    }
    flags.retain(|flag| !flag.name.starts_with("--help"));
    flags
}

impl Flag {
    fn says(&mut self, line: &str) {
        let within = |before: &str| line.strip_prefix(before)?.strip_suffix(']');
        if let Some(default) = within("[default: ") {
            default.trim_matches('"').clone_into(&mut self.default);
        } else if let Some(variable) = within("[env: ") {
            variable.split('=').next().unwrap_or(variable).clone_into(&mut self.variable);
        } else if within("[possible values: ").is_none() && !line.is_empty() {
            let space = if self.meaning.is_empty() { "" } else { " " };
            self.meaning.push_str(space);
            self.meaning.push_str(line);
            let ends = self.meaning.ends_with(['.', ':', ';']);
            self.meaning.push_str(if ends { "" } else { "." });
        }
    }
}

#[test]
fn flags_are_read_from_a_help_text() {
    let found = flags(
        "Runs\n\nUsage: pacer run\n\nOptions:\n      --addr <ADDR>\n          Where; see\n          \n          [default: :8080]\n\n      \
         --token <TOKEN>\n          A token\n          \n          [env: TOKEN=secret]\n\n      --hook[=<HOOK>]\n          \
         Reports\n\n          [possible values: true, false]\n\n  -h, --help\n          Print help\n",
    );
    let flag = |name: &str, default: &str, variable: &str, meaning: &str| Flag {
        name: name.to_owned(),
        default: default.to_owned(),
        variable: variable.to_owned(),
        meaning: meaning.to_owned(),
    };
    let expected = [
        flag("--addr <ADDR>", ":8080", "", "Where; see."),
        flag("--token <TOKEN>", "", "TOKEN", "A token."),
        flag("--hook", "", "", "Reports."),
    ];
    assert_eq!(found, expected);
}
