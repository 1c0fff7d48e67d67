//! The verbs of the program.

use clap::{Parser, Subcommand};

use crate::arguments::{RunArguments, WebhookArguments};

/// Runs and scales self-hosted GitHub Actions runners.
#[derive(Debug, Parser)]
#[command(name = "pacer", version, max_term_width = 110)]
pub(crate) struct Pacer {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs the operator.
    // A flag that is given twice has its last value, as with Go's flags: a chart's extra arguments may change what the chart itself sets.
    #[command(args_override_self = true)]
    Run(Box<RunArguments>),
    /// Reports what happens to each object when this operator takes over from actions-runner-controller, and what is left over.
    Adopt(crate::adopt::Arguments),
    /// Checks an installation and reports what is wrong, why it matters, and how to fix it.
    Doctor(crate::doctor::Arguments),
    /// Makes, checks, tests and measures policies.
    Policy {
        /// What to do.
        #[command(subcommand)]
        verb: crate::policy::Verb,
    },
    /// Explains why a runner was removed, kept or restarted, why a pool has its number of runners, or why a job is waiting.
    Explain(Box<crate::explain::Arguments>),
    /// Shows all pools on one screen: desired, online and busy runners, waiting jobs, and the reason.
    Status(crate::overview::Arguments),
    /// Records jobs, runners and decisions of a cluster into a file until it is interrupted.
    Record(crate::record::Arguments),
    /// Says what a recorded trace holds, and writes parts of it.
    Trace {
        /// What to do.
        #[command(subcommand)]
        verb: crate::trace::Verb,
    },
    /// Serves the web page for a recorded trace, with a time slider.
    Ui(crate::ui::Arguments),
    /// Simulates a recorded trace in virtual time with the recorded and other policies, and compares them.
    Simulate(crate::simulate::Arguments),
    /// Receives GitHub's webhooks for an operator that acts on them. Any number of replicas may run.
    #[command(args_override_self = true)]
    Webhook(Box<WebhookArguments>),
    /// Reads, compiles and runs policies for the process that started this one, over a socket that is its standard input.
    #[command(name = crate::policy::jail::VERB, hide = true)]
    PolicyProcess(crate::policy::jail::Arguments),
    /// Deletes all runner objects and waits until their runners have finished their jobs. Run it before you remove the operator.
    Drain(crate::drain::Arguments),
    /// Prints the CustomResourceDefinitions as YAML, or installs them.
    Crds(crate::crds::Arguments),
    /// Prints a shell completion script.
    Completion(crate::completion::CompletionArguments),
    /// Writes man pages.
    Man(crate::completion::ManArguments),
    /// Prints the version.
    Version,
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use clap::Parser as _;

    use super::Pacer;
    use crate::arguments::as_go_wrote_them;

    /// Pages of a directory and of those below it.
    fn pages(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pages(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }

    /// The words of a line of a shell, without quotes, up to a comment, a pipe or a redirection.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        for letter in line.chars().chain([' ']) {
            match (letter, quote) {
                (letter, Some(open)) if letter == open => quote = None,
                ('\'' | '"', None) => {
                    word.get_or_insert_default();
                    quote = Some(letter);
                }
                (letter, None) if letter.is_whitespace() => words.extend(word.take()),
                ('|' | '>' | ';' | '&', None) => break,
                ('#', None) if word.is_none() => break,
                (letter, _) => word.get_or_insert_default().push(letter),
            }
        }
        words
    }

    /// The commands of pacer in the blocks of a page that are for a shell. Names in capitals stand for what readers have.
    fn commands(page: &str) -> Vec<Vec<String>> {
        let inside = page.split("\n```").skip(1).step_by(2);
        let blocks = inside.filter_map(|block| block.strip_prefix("sh\n"));
        let joined = blocks.flat_map(|block| block.replace("\\\n", " ").lines().map(words).collect::<Vec<_>>());
        let ours = joined.filter(|words| words.first().is_some_and(|first| first == "pacer"));
        ours.map(|words| words.into_iter().map(|word| if word == "ID" { "1".to_owned() } else { word }).collect()).collect()
    }

    #[test]
    fn commands_of_the_documentation_are_taken() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = ["README.md", "deploy/README.md", "examples/README.md"].map(|page| root.join(page)).to_vec();
        pages(&root.join("docs"), &mut found);
        pages(&root.join("policies"), &mut found);
        let (mut seen, mut refused) = (0, Vec::new());
        for page in found {
            for command in commands(&fs::read_to_string(&page).unwrap()) {
                seen += 1;
                let arguments = as_go_wrote_them(command.iter().map(Into::into));
                if let Err(error) = Pacer::try_parse_from(arguments) {
                    refused.push(format!("{}: {}: {error}", page.display(), command.join(" ")));
                }
            }
        }
        assert!(refused.is_empty(), "{}", refused.join("\n"));
        assert!(seen > 60, "{seen} commands");
    }

    #[test]
    fn commands_are_found_in_blocks_for_a_shell() {
        let page = "# A\n\n```sh\npacer status -A   # all\npacer explain job ID | cat\nkubectl get pods\npacer policy \\\n  check 'a b' > c\n```\n\n\
                    ```yaml\npacer: 1\n```\n";
        let expected: [&[&str]; 3] =
            [&["pacer", "status", "-A"], &["pacer", "explain", "job", "1"], &["pacer", "policy", "check", "a b"]];
        assert_eq!(commands(page), expected);
    }
}
