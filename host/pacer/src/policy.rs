//! `pacer policy`: what authors of policies need, on the operator's own engine, limits and gate.
//!
//! Every verb makes a [`Report`] and prints nothing itself.

mod ahead;
mod bench;
pub(crate) mod case;
mod change;
mod check;
mod compare;
mod configmap;
pub(crate) mod contender;
pub(crate) mod cure;
mod draft;
pub(crate) mod jail;
mod pulled;
mod receipts;
mod replay;
mod run;
#[cfg(test)]
pub(crate) mod sample;
mod scaffold;
mod set;
mod settings;
mod sheet;
mod source;
mod status;
mod test;

use anyhow::Result;
use clap::Subcommand;

use crate::report::Report;

/// Verbs of `pacer policy`.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Creates a new policy: sources, a build command and test cases.
    New(scaffold::Arguments),
    /// Builds a component from WebAssembly text or from a compiler's core module.
    Componentize(source::Arguments),
    /// Compiles the JavaScript interpreter once into a file beside the program, so that other commands start faster.
    Precompile(ahead::Arguments),
    /// Checks a policy, or a whole policy set, as the operator does when it loads it, and says how to fix what would be refused.
    Check(check::Arguments),
    /// Shows a policy's description of itself.
    Inspect(check::InspectArguments),
    /// Sends one request to a policy and shows the answer as the operator would use it.
    Run(run::Arguments),
    /// Runs test cases: requests with their expected answers.
    Test(test::Arguments),
    /// Measures fuel, time and memory for requests of several sizes.
    Bench(bench::Arguments),
    /// Sends the same requests to two policies and shows where their answers differ.
    Diff(compare::Arguments),
    /// Prints the ConfigMap that activates policies.
    Configmap(configmap::Arguments),
    /// Changes the policy for one decision of a policy set and waits until the operator has accepted or refused it.
    Set(change::SetArguments),
    /// Promotes the policy in shadow mode: it decides from now on.
    Promote(change::PromoteArguments),
    /// Restores the last good content of a policy set, for one decision or all.
    Rollback(change::PartArguments),
    /// Lets the shipped policy decide, for one decision or all, until `enable`. To stop reruns of jobs, remove `recover` from the policy set instead.
    Disable(change::PartArguments),
    /// Undoes `disable`.
    Enable(change::PartArguments),
    /// Shows the state of policy sets and the pools that use them.
    Status(status::Arguments),
    /// Lists receipts of decisions, or turns them into test cases.
    Receipts(receipts::Arguments),
    /// Sends a recorded request to the policy again and compares the answers byte by byte.
    Replay(replay::Arguments),
}

/// Does what the verb says. `tell` is for verbs that go on saying something until they are stopped.
///
/// # Errors
///
/// What can't be read or is refused. A check that fails after it was carried out is a [`Report::failure`].
pub(crate) fn main(verb: &Verb, tell: impl Fn(&Report) -> Result<()>) -> Result<Report> {
    match verb {
        Verb::New(arguments) => scaffold::new(arguments),
        Verb::Componentize(arguments) => source::componentize(arguments),
        Verb::Precompile(arguments) => ahead::precompile(arguments),
        Verb::Check(arguments) => check::check(arguments),
        Verb::Inspect(arguments) => check::inspect(arguments),
        Verb::Run(arguments) => run::run(arguments),
        Verb::Test(arguments) => test::test(arguments),
        Verb::Bench(arguments) => bench::bench(arguments),
        Verb::Diff(arguments) => compare::diff(arguments),
        Verb::Configmap(arguments) => configmap::configmap(arguments),
        Verb::Set(arguments) => change::set(arguments),
        Verb::Promote(arguments) => change::promote(arguments),
        Verb::Rollback(arguments) => change::rollback(arguments),
        Verb::Disable(arguments) => change::disable(arguments),
        Verb::Enable(arguments) => change::enable(arguments),
        Verb::Status(arguments) => status::status(arguments),
        Verb::Receipts(arguments) => receipts::receipts(arguments, tell),
        Verb::Replay(arguments) => replay::replay(arguments),
    }
}
