//! `pacer adopt --dry-run`: what becomes of each object when this operator takes over from actions-runner-controller, what has to be done
//! first, and what ARC leaves behind.
//!
//! Nothing is ever written: `pacer run` adopts by running. What the cluster refuses to show is said, and everything else is still reported.

mod fate;
pub(crate) mod installation;
mod reading;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{ArgAction, Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use crate::plain::line;
use crate::reader::Reader;
use crate::{connection, report, reread, table};

/// Exit code when something has to be done before this operator may run.
pub(crate) const FIRST: u8 = 3;

/// Arguments of `pacer adopt`.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Only report. Required, because `pacer run` itself adopts the objects when it starts.
    #[arg(long, action = ArgAction::SetTrue)]
    dry_run: bool,
    /// Kubeconfig file. Default: KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Reports only the objects of this namespace.
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// --common-runner-labels that `pacer run` will have. Comma-separated, repeatable.
    #[arg(long, value_delimiter = ',', value_name = "LABEL")]
    common_runner_labels: Vec<String>,
    /// Output format.
    #[arg(long, short, default_value = "table", value_name = "FORMAT")]
    output: Output,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For machines.
    Json,
}

/// Everything there is to say.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// What becomes of each object.
    objects: Vec<fate::Fate>,
    /// What has to be done before this operator runs, in this order.
    first: Vec<Item>,
    /// What ARC leaves behind, to be removed once this operator runs.
    leftovers: Vec<Item>,
    /// What could not be looked at, and why.
    unread: Vec<String>,
}

/// Something of ARC in the cluster, and what the user has to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Item {
    /// Kind, namespace and name.
    pub(crate) what: String,
    /// Why it is to be done, in a few words.
    pub(crate) why: String,
    /// How, on one line; empty where nothing is to be done.
    pub(crate) command: String,
}

/// `pacer adopt`: prints what becomes of each object, and what the user has to do before and afterwards.
pub(crate) fn main(arguments: &Arguments, tell: impl Fn(&report::Report) -> Result<()>) -> Result<ExitCode> {
    if !arguments.dry_run {
        bail!(
            "nothing to carry out: `pacer run` takes objects over when it starts, without changing or restarting them. Give --dry-run to see \
             what will become of each"
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let report = runtime.block_on(look(arguments))?;
    let text = match arguments.output {
        Output::Table => report.text(),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&report)?),
    };
    tell(&report::Report::text(text))?;
    Ok(match report {
        Report { first, .. } if !first.is_empty() => ExitCode::from(FIRST),
        Report { unread, .. } if !unread.is_empty() => ExitCode::FAILURE,
        Report { .. } => ExitCode::SUCCESS,
    })
}

async fn look(arguments: &Arguments) -> Result<Report> {
    let config = connection::config(arguments.kubeconfig.as_deref()).await?;
    let client = reread::client(connection::builder(&config)?);
    client.apiserver_version().await.context("asking the API server for its version")?;
    let mut reader = Reader::new(client, arguments.namespace.clone());
    let objects = reading::objects(&mut reader).await;
    let arc = installation::read(&mut reader).await;
    Ok(Report {
        objects: fate::all(&objects, &arguments.common_runner_labels, Timestamp::now()),
        first: arc.first(),
        leftovers: arc.leftovers(),
        unread: reader.unread,
    })
}

impl Report {
    fn text(&self) -> String {
        let mut text = String::new();
        if self.objects.is_empty() {
            text.push_str("No objects to take over.\n");
        } else {
            let head = ["KIND", "NAME", "BECOMES"].map(str::to_owned).to_vec();
            let rows = self.objects.iter().map(|fate| vec![fate.kind.clone(), fate.place(), line(&fate.outcome)]);
            text.push_str(&table::left(&std::iter::once(head).chain(rows).collect::<Vec<_>>()));
        }
        list(&mut text, "Before this operator starts:", &self.first);
        list(&mut text, "What ARC leaves behind, to be removed once this operator runs:", &self.leftovers);
        if !self.unread.is_empty() {
            text.push_str("\nNot looked at:\n");
            for unread in &self.unread {
                text.push_str(&format!("  {}\n", line(unread)));
            }
        }
        if self.first.is_empty() && self.unread.is_empty() {
            text.push_str("\nNothing stands in the way.\n");
        }
        text
    }
}

fn list(text: &mut String, title: &str, items: &[Item]) {
    if items.is_empty() {
        return;
    }
    text.push_str(&format!("\n{title}\n"));
    for Item { what, why, command } in items {
        text.push_str(&format!("  {}: {}\n", line(what), line(why)));
        if !command.is_empty() {
            text.push_str(&format!("      {}\n", line(command)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_objects_stay_on_their_line_and_steer_no_terminal() {
        let forged = || "a\n  b\u{1b}[2J".to_owned();
        let fate =
            fate::Fate { kind: "Runner".to_owned(), namespace: "ci".to_owned(), name: "web-1".to_owned(), outcome: forged() };
        let item = Item { what: forged(), why: forged(), command: "kubectl get a".to_owned() };
        let report = Report { objects: vec![fate], first: vec![item], leftovers: Vec::new(), unread: vec![forged()] };
        let expected = "KIND    NAME      BECOMES\nRunner  ci/web-1  a b [2J\n\nBefore this operator starts:\n  a b [2J: a b [2J\n      kubectl get a\n\n\
                        Not looked at:\n  a b [2J\n";
        assert_eq!(report.text(), expected);
    }
}
