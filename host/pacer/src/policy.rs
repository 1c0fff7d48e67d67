//! `pacer policy`: what authors of policies need, on the operator's own engine, limits and gate.
//!
//! Every verb makes a [`Report`] and prints nothing itself.

mod bench;
mod case;
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
    /// Starts a policy of one's own: sources, a build line and cases.
    New(scaffold::Arguments),
    /// Makes a component of WebAssembly text or of what a compiler wrote.
    Componentize(source::Arguments),
    /// Does everything that loading a policy, or a whole set, does, and says what to do about what is refused.
    Check(check::Arguments),
    /// Shows what a policy says about itself.
    Inspect(check::InspectArguments),
    /// Puts one request to a policy and shows the answer as the operator would use it.
    Run(run::Arguments),
    /// Runs cases: requests with the answers they must get.
    Test(test::Arguments),
    /// Measures fuel, time and memory for requests of several sizes.
    Bench(bench::Arguments),
    /// Puts the same requests to two policies and shows where they differ.
    Diff(compare::Arguments),
    /// Prints the ConfigMap that puts policies into force.
    Configmap(configmap::Arguments),
    /// Puts a policy into a set for one decision, leaves the others, and waits until the operator has taken or refused it.
    Set(change::SetArguments),
    /// Makes the policy in shadow the one that decides.
    Promote(change::PromoteArguments),
    /// Brings back what the last good content said, about one decision or all.
    Rollback(change::PartArguments),
    /// Has the shipped policy decide, in one decision or all, until it is undone by `enable`.
    Disable(change::PartArguments),
    /// Undoes `disable`.
    Enable(change::PartArguments),
    /// Shows what the operator made of policy sets, and who asks for them.
    Status(status::Arguments),
    /// Lists what was decided, or makes cases of it.
    Receipts(receipts::Arguments),
    /// Asks a policy again what it was asked, and compares the bytes.
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
