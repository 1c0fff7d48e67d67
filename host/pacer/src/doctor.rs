//! `pacer doctor`: what is wrong with an installation, why it matters, and the command that cures it.
//!
//! Only reads. What could not be looked at is said and is a failure of its own: a check that was not made proves nothing.

mod bundle;
mod conditions;
mod definitions;
mod finding;
mod fleet;
mod github;
mod installation;
mod pods;
mod policy_sets;
mod rights;
mod scraping;
mod tenancy;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use bundle::Bundle;
use finding::{Finding, Severity};
use jiff::Timestamp;
use serde::Serialize;
use tenancy::CredentialsNamespaces;

use crate::cluster::{self, Cluster, ClusterArguments};
use crate::default_set::OPERATOR_NAMESPACE;
use crate::reader::Reader;
use crate::report::{self, Format};
use crate::{adopt, plain};

/// Exit code when something has to be cured.
pub(crate) const SICK: u8 = 3;

/// Arguments of `pacer doctor`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Namespace of the operator.
    #[arg(long, default_value = OPERATOR_NAMESPACE, value_name = "NAMESPACE")]
    operator_namespace: String,
    /// Does not call GitHub and does not read the operator's credentials.
    #[arg(long)]
    no_github: bool,
    /// Also writes a support bundle to this file, which must not exist: a .tar.gz with the findings, the runner objects, their pods and Events, and
    /// the operator's Deployment and logs. It contains no Secrets and no values of environment variables. Review it before you send it.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// What all checks found, for printing.
#[derive(Debug, Default, Serialize)]
struct Report {
    findings: Vec<Finding>,
    /// What was looked at and is as it should be.
    healthy: Vec<String>,
    /// What could not be looked at, and why.
    unread: Vec<String>,
}

/// What one check has to say.
#[derive(Debug)]
struct Checked {
    /// What holds where nothing was found.
    healthy: String,
    findings: Vec<Finding>,
}

/// `pacer doctor`.
pub(crate) fn main(arguments: &Arguments, tell: impl Fn(&report::Report) -> Result<()>) -> Result<ExitCode> {
    let (report, bundle) = cluster::with(&arguments.cluster, async |cluster| examine(&cluster, arguments).await)?;
    if let (Some(bundle), Some(path)) = (bundle, &arguments.bundle) {
        bundle.write(&report, path)?;
    }
    let text = match arguments.output {
        Format::Text => report.text(),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&report)?),
    };
    tell(&report::Report::text(text))?;
    Ok(if report.findings.iter().any(|finding| finding.severity == Severity::Problem) {
        ExitCode::from(SICK)
    } else if report.unread.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn examine(cluster: &Cluster, arguments: &Arguments) -> Result<(Report, Option<Bundle>)> {
    let version = cluster.client.apiserver_version().await.context("asking the API server for its version")?;
    let mut reader = Reader::new(cluster.client.clone(), arguments.cluster.namespace.clone());
    let mut report = Report::default();
    report.healthy.push(format!("the API server answers: {}", version.git_version));
    report.add(definitions::check(&mut reader).await?);
    let installation = installation::read(&mut reader, &arguments.operator_namespace).await?;
    report.add(installation.check(&mut reader, Timestamp::now()).await);
    report.add(rights::check(&mut reader, &installation).await?);
    if let Some(checked) = scraping::check(&mut reader, &installation).await? {
        report.add(checked);
    }
    let tenancy = tenancy::look(&mut reader, &installation).await;
    report.add(tenancy::check(&tenancy));
    let arc = adopt::installation::read(&mut reader).await;
    report.add(Checked {
        healthy: "ARC does not run, and nothing of it is in the way".to_owned(),
        findings: arc
            .first()
            .into_iter()
            .map(Finding::obstacle)
            .chain(arc.leftovers().into_iter().map(Finding::leftover))
            .collect(),
    });
    report.add(conditions::check(&mut reader, Timestamp::now()).await);
    for checked in policy_sets::check(&mut reader, &installation).await {
        report.add(checked);
    }
    let fleets = fleet::read(&mut reader).await;
    report.add(pods::check(&mut reader, &installation, &fleets).await);
    if !arguments.no_github {
        let places = CredentialsNamespaces::read(&mut reader, tenancy).await;
        for checked in github::check(&mut reader, &installation, &fleets, &places).await? {
            report.add(checked);
        }
    }
    let bundle = match &arguments.bundle {
        Some(_) => Some(bundle::gather(&mut reader, &installation).await),
        None => None,
    };
    report.findings.sort_by_key(|finding| finding.severity);
    report.unread = reader.unread;
    Ok((report, bundle))
}

impl Report {
    fn add(&mut self, checked: Checked) {
        if checked.findings.is_empty() {
            self.healthy.push(checked.healthy);
        }
        self.findings.extend(checked.findings);
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.healthy {
            text.push_str(&format!("ok       {}\n", plain::line(line)));
        }
        for finding in &self.findings {
            text.push_str(&finding.text());
        }
        for line in &self.unread {
            text.push_str(&format!("unread   {}\n", plain::line(line)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_objects_stay_on_their_line_and_steer_no_terminal() {
        let forged = || "a\nok       b\u{1b}[2J".to_owned();
        let finding = Finding {
            severity: Severity::Problem,
            object: forged(),
            what: forged(),
            why: forged(),
            cure: "kubectl get a".to_owned(),
        };
        let report = Report { findings: vec![finding], healthy: vec![forged()], unread: vec![forged()] };
        let expected = "ok       a ok b [2J\nPROBLEM  a ok b [2J: a ok b [2J\n           why:  a ok b [2J\n           cure: kubectl get a\nunread   a ok b [2J\n";
        assert_eq!(report.text(), expected);
    }
}
