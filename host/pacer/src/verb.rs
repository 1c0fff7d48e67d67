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
    /// Says what becomes of each object when this operator takes over from actions-runner-controller, and what that leaves behind.
    Adopt(crate::adopt::Arguments),
    /// Says what is wrong with an installation, why it matters, and what cures it.
    Doctor(crate::doctor::Arguments),
    /// Makes, checks, tests and measures policies.
    Policy {
        /// What to do.
        #[command(subcommand)]
        verb: crate::policy::Verb,
    },
    /// Says why a runner was removed, kept or restarted, why a pool has the number of runners that it has, or why a job waits.
    Explain(crate::explain::Arguments),
    /// Shows all pools on one screen: wanted, online, busy, waiting jobs, and why.
    Status(crate::overview::Arguments),
    /// Follows jobs, runners and decisions of a cluster into a file, until it is stopped.
    Record(crate::record::Arguments),
    /// Says what a recorded trace holds, and writes parts of it.
    Trace {
        /// What to do.
        #[command(subcommand)]
        verb: crate::trace::Verb,
    },
    /// Serves the page over a recorded trace, with a slider for the moment that it shows.
    Ui(crate::ui::Arguments),
    /// Runs a recorded trace again in virtual time, under the recorded and other policies, and shows them side by side.
    Simulate(crate::simulate::Arguments),
    /// Receives webhooks of GitHub, beside an operator that acts on them; any number of these may run.
    #[command(args_override_self = true)]
    Webhook(Box<WebhookArguments>),
    /// Reads, compiles and runs policies for the process that started this one, over a socket that is its standard input.
    #[command(name = crate::policy::jail::VERB, hide = true)]
    PolicyProcess(crate::policy::jail::Arguments),
    /// Deletes all runner objects and waits until their runners have finished their jobs, before the operator is removed.
    Drain(crate::drain::Arguments),
    /// Prints the CustomResourceDefinitions as YAML, or installs them.
    Crds(crate::crds::Arguments),
    /// Prints a script that completes verbs and flags in a shell.
    Completion(crate::completion::CompletionArguments),
    /// Writes man pages.
    Man(crate::completion::ManArguments),
    /// Prints the version.
    Version,
}
