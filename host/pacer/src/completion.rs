//! `pacer completion` and `pacer man`: made from the command line's own definition, so that they name every verb and flag.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Command;
use clap_complete::Shell;

/// Arguments of `pacer completion`.
#[derive(clap::Args, Debug)]
pub(crate) struct CompletionArguments {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Arguments of `pacer man`.
#[derive(clap::Args, Debug)]
pub(crate) struct ManArguments {
    /// Directory for the pages, such as ~/.local/share/man/man1.
    directory: PathBuf,
}

/// A script that completes the verbs and flags of a command line.
pub(crate) fn completion(arguments: &CompletionArguments, mut command: Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "pacer", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// A page for each verb. Returns what was written.
pub(crate) fn man(arguments: &ManArguments, command: Command) -> Result<String> {
    let directory = arguments.directory.as_path();
    std::fs::create_dir_all(directory).with_context(|| format!("{} can't be made", directory.display()))?;
    clap_mangen::generate_to(command.disable_help_subcommand(true), directory)
        .with_context(|| format!("man pages can't be written to {}", directory.display()))?;
    let pages = std::fs::read_dir(directory).map_or(0, |entries| entries.flatten().filter(is_page).count());
    Ok(format!("{pages} pages in {}\n", directory.display()))
}

fn is_page(entry: &std::fs::DirEntry) -> bool {
    entry.file_name().to_string_lossy().starts_with("pacer") && entry.path().extension().is_some_and(|extension| extension == "1")
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, ValueEnum};

    use super::*;
    use crate::verb::Pacer;

    /// Every verb with its whole path: `policy replay`.
    fn verbs(command: &clap::Command, path: &str, found: &mut Vec<String>) {
        for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help" && !verb.is_hide_set()) {
            let path = format!("{path} {}", verb.get_name()).trim().to_owned();
            verbs(verb, &path, found);
            found.push(path);
        }
    }

    fn all() -> Vec<String> {
        let mut found = Vec::new();
        verbs(&Pacer::command(), "", &mut found);
        assert!(["explain", "policy replay", "run"].iter().all(|verb| found.iter().any(|found| found == verb)), "{found:?}");
        found
    }

    #[test]
    fn every_shell_completes_every_verb() {
        for shell in Shell::value_variants() {
            let script = completion(&CompletionArguments { shell: *shell }, Pacer::command());
            for verb in all() {
                let last = verb.rsplit(' ').next().unwrap_or_default();
                assert!(script.contains(last), "{shell} does not know {verb}");
            }
            assert!(script.contains("operator-namespace"), "{shell} does not know flags");
        }
    }

    #[test]
    fn every_verb_has_a_page() {
        let directory = tempfile::tempdir().unwrap();
        let said = man(&ManArguments { directory: directory.path().join("man1") }, Pacer::command()).unwrap();
        for verb in all() {
            let page = directory.path().join(format!("man1/pacer-{}.1", verb.replace(' ', "-")));
            let text = std::fs::read_to_string(&page).unwrap_or_default();
            assert!(text.contains("SYNOPSIS"), "{} is missing or empty; {said}", page.display());
        }
        assert!(std::fs::read_to_string(directory.path().join("man1/pacer.1")).is_ok_and(|text| text.contains("explain")));
    }
}
