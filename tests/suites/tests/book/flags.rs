//! A page with the flags of every command, from what the program prints itself.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{generated, repository};

const PAGE: &str = "docs/reference/flags.md";

/// Set `UPDATE_GOLDEN=1` to write it anew.
#[test]
fn page_of_flags_has_what_the_programs_print() -> Result<()> {
    let mut page = "# Flags\n\nThis page is generated from the output of `pacer COMMAND --help`; `make golden` regenerates it. The values of the \
                    chart set most flags of `pacer run` and `pacer webhook`: [values](../chart-values.md).\n\n\
                    Durations are numbers with a unit: `90s`, `10m`, `1h30m`.\n"
        .to_owned();
    let verbs = verbs("")?;
    // What runs in a cluster comes first.
    let (servers, others): (Vec<_>, Vec<_>) = verbs.into_iter().partition(|verb| SERVERS.contains(&verb.as_str()));
    ensure!(servers.len() == SERVERS.len() && others.len() > 30, "{servers:?} and {others:?}");
    for verb in servers.iter().chain(&others) {
        let help = help(verb)?;
        let flags = flags(&help);
        ensure!(flags.len() > 20 || !servers.contains(verb), "pacer {verb} --help has {} flags", flags.len());
        write!(page, "\n## pacer {verb}\n\n{}\n", about(&help))?;
        if !flags.is_empty() {
            page.push_str("\n| flag | default | variable | meaning |\n| --- | --- | --- | --- |\n");
        }
        for Flag { name, default, variable, meaning } in flags {
            let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
            let (name, meaning) = (name.replace('|', "\\|"), meaning.replace('|', "\\|"));
            writeln!(page, "| `{name}` | {} | {} | {meaning} |", code(&default), code(&variable))?;
        }
    }
    generated(PAGE, &page)
}

/// Commands that run in a cluster.
const SERVERS: [&str; 2] = ["run", "webhook"];

/// The commands below a command that do something, such as `policy new`; all of the program below the empty one.
fn verbs(command: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for name in below(&help(command)?) {
        let verb = if command.is_empty() { name } else { format!("{command} {name}") };
        let inner = verbs(&verb)?;
        // Some do something themselves.
        if inner.is_empty() || help(&verb)?.contains(&format!("Usage: pacer {verb} [COMMAND]")) {
            found.push(verb);
        }
        found.extend(inner);
    }
    Ok(found)
}

/// Names of the commands that a help text lists.
fn below(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let named = listed.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    named.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

/// What a help text says first.
fn about(help: &str) -> String {
    let said: Vec<&str> = help.lines().take_while(|line| !line.starts_with("Usage:")).collect();
    let said = said.join("\n").trim().to_owned();
    if said.ends_with(['.', ':']) { said } else { format!("{said}.") }
}

fn help(command: &str) -> Result<String> {
    let binary = std::env::var_os("PACER_BIN").map_or_else(|| repository("target/debug/pacer"), PathBuf::from);
    // Help shows the values of variables.
    let output = Command::new(binary).args(command.split_whitespace()).arg("--help").env_clear().output();
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

/// The flags and arguments of a help text, without `--help` itself.
fn flags(help: &str) -> Vec<Flag> {
    let mut flags: Vec<Flag> = Vec::new();
    for line in help.lines() {
        let indented = line.len() - line.trim_start().len();
        let line = line.trim();
        if (1..10).contains(&indented) && line.starts_with(['-', '<', '[']) {
            // What it means follows at once where a few words say it for all of them.
            let (name, meaning) = line.split_once("  ").unwrap_or((line, ""));
            let long = name.split_once(", ").map_or(name, |(_, long)| long);
            // That a switch can be given a value is of no interest here. What a value may have in brackets is a part of its name.
            let name = if long.ends_with(']') { long.split("[=").next().unwrap_or(long) } else { long };
            let mut flag = Flag { name: name.to_owned(), ..Flag::default() };
            flag.says_at_once(meaning.trim());
            flags.push(flag);
        } else if let Some(flag) = flags.last_mut().filter(|_| indented >= 10) {
            flag.says_at_once(line);
        }
    }
    flags.retain(|flag| !["--help", "--version"].contains(&flag.name.as_str()));
    flags
}

impl Flag {
    /// Takes a line, and what is in brackets at its end.
    fn says_at_once(&mut self, line: &str) {
        let group = |line: &str| {
            let (before, inside) = line.strip_suffix(']')?.rsplit_once('[')?;
            let known = ["default: ", "env: ", "possible values: "].iter().any(|start| inside.starts_with(start));
            known.then(|| (before.trim().to_owned(), format!("[{inside}]")))
        };
        match group(line) {
            Some((before, bracket)) => {
                self.says_at_once(&before);
                self.says(&bracket);
            }
            None => self.says(line),
        }
    }

    fn says(&mut self, line: &str) {
        let within = |before: &str| line.strip_prefix(before)?.strip_suffix(']');
        if let Some(default) = within("[default: ") {
            default.trim_matches('"').clone_into(&mut self.default);
        } else if let Some(variable) = within("[env: ") {
            variable.split('=').next().unwrap_or(variable).clone_into(&mut self.variable);
        } else if within("[possible values: ").is_none() && !line.is_empty() {
            let space = if self.meaning.is_empty() { "" } else { " " };
            self.meaning.push_str(space);
            self.meaning.push_str(&line.split_whitespace().collect::<Vec<_>>().join(" "));
            let ends = self.meaning.ends_with(['.', ':', ';', '?']);
            self.meaning.push_str(if ends { "" } else { "." });
        }
    }
}

#[test]
fn flags_are_read_from_a_short_help_text() {
    let found = flags(
        "Cuts\n\nUsage: pacer cut\n\nOptions:\n  -o, --out <FILE>  Where; see [x] [default: a] [env: OUT=]\n      --all         All\n      \
         --only <A[=B]>  What else?\n",
    );
    let flag = |name: &str, default: &str, variable: &str, meaning: &str| Flag {
        name: name.to_owned(),
        default: default.to_owned(),
        variable: variable.to_owned(),
        meaning: meaning.to_owned(),
    };
    let expected = [
        flag("--out <FILE>", "a", "OUT", "Where; see [x]."),
        flag("--all", "", "", "All."),
        flag("--only <A[=B]>", "", "", "What else?"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn commands_are_read_from_a_help_text() {
    let help = "Makes\n\nUsage: pacer policy <COMMAND>\n\nCommands:\n  new    Makes one\n         of many\n  check  Checks\n  help   Print\n\nOptions:\n  -h\n";
    assert_eq!((below(help), about(help)), (vec!["new".to_owned(), "check".to_owned()], "Makes.".to_owned()));
}

#[test]
fn flags_are_read_from_a_help_text() {
    let found = flags(
        "Runs\n\nUsage: pacer run <FILE>\n\nArguments:\n  <FILE>\n          What\n\nOptions:\n      --addr <ADDR>\n          Where; see\n          \n          [default: :8080]\n\n      \
         --token <TOKEN>\n          A token\n          \n          [env: TOKEN=secret]\n\n      --hook[=<HOOK>]\n          \
         Reports\n\n          [possible values: true, false]\n\n      --since <TIME>\n          How far back [default: 7h] [env: SINCE=]\n\n  -h, --help\n          Print help\n",
    );
    let flag = |name: &str, default: &str, variable: &str, meaning: &str| Flag {
        name: name.to_owned(),
        default: default.to_owned(),
        variable: variable.to_owned(),
        meaning: meaning.to_owned(),
    };
    let expected = [
        flag("<FILE>", "", "", "What."),
        flag("--addr <ADDR>", ":8080", "", "Where; see."),
        flag("--token <TOKEN>", "", "TOKEN", "A token."),
        flag("--hook", "", "", "Reports."),
        flag("--since <TIME>", "7h", "SINCE", "How far back."),
    ];
    assert_eq!(found, expected);
}
