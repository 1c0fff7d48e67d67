//! `pacer explain`: why a runner was removed, kept or restarted; why a pool has the number that it has.
//!
//! Everything is read from the cluster: receipts, which outlive the runners they are about, statuses, conditions and Events.

use anyhow::{Result, bail};

use crate::cluster::{self, ClusterArguments};
use crate::default_set::DefaultSetArguments;
use crate::report::{Format, Report};

mod pool;
mod runner;

/// Arguments of `pacer explain`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// `runner` or `pool` with a name, or kind/name: runner/web-abc, rdeploy/web, runnerset/web, hra/web, rrs/web-abc.
    #[arg(value_name = "KIND")]
    kind: String,
    /// The name, where it is not part of KIND. It may have a kind of its own: pool hra/web.
    name: Option<String>,
    /// How it is said.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    default_set: DefaultSetArguments,
}

/// What is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Runner(String),
    Pool(pool::Kind, String),
}

/// `pacer explain`.
pub(crate) fn explain(arguments: &Arguments) -> Result<Report> {
    let subject = subject(&arguments.kind, arguments.name.as_deref())?;
    let default = arguments.default_set.key()?;
    cluster::with(&arguments.cluster, async |cluster| match &subject {
        Subject::Runner(name) => runner::explain(&cluster, name, arguments.output).await,
        Subject::Pool(kind, name) => pool::explain(&cluster, *kind, name, default.as_ref(), arguments.output).await,
    })
}

/// Reads `runner NAME`, `runner/NAME`, `pool NAME`, `pool rdeploy/NAME`, `rdeploy/NAME`, `rdeploy NAME`.
fn subject(kind: &str, name: Option<&str>) -> Result<Subject> {
    let (kind, name) = match (kind.split_once('/'), name) {
        (None, Some(name)) => (kind, name),
        (Some((kind, name)), None) => (kind, name),
        (Some(_), Some(name)) => bail!("{kind} has a name already, and {name} is another: say kind/name or kind and name"),
        (None, None) => bail!("a name is missing: pacer explain runner NAME, pacer explain pool NAME"),
    };
    if let Some((inner, name)) = name.split_once('/') {
        let outer = subject(kind, Some(name))?;
        let inner = subject(inner, Some(name))?;
        return match (&outer, &inner) {
            (Subject::Pool(pool::Kind::Any, _), Subject::Pool(..)) => Ok(inner),
            (outer, inner) if outer == inner => Ok(inner.clone()),
            _ => bail!("{kind} and {name} are of different kinds"),
        };
    }
    if name.is_empty() {
        bail!("a name is missing after {kind}/");
    }
    let name = name.to_owned();
    Ok(match kind.to_ascii_lowercase().as_str() {
        "runner" | "runners" | "pod" | "po" => Subject::Runner(name),
        "pool" => Subject::Pool(pool::Kind::Any, name),
        "runnerdeployment" | "runnerdeployments" | "rdeploy" => Subject::Pool(pool::Kind::Deployment, name),
        "runnerset" | "runnersets" => Subject::Pool(pool::Kind::RunnerSet, name),
        "horizontalrunnerautoscaler" | "horizontalrunnerautoscalers" | "hra" => Subject::Pool(pool::Kind::Autoscaler, name),
        "runnerreplicaset" | "runnerreplicasets" | "rrs" => Subject::Pool(pool::Kind::Set, name),
        other => bail!("{other} is nothing that can be explained: say runner, pool, rdeploy, runnerset, hra or rrs"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_named_as_with_kubectl() {
        let runner = |name: &str| Some(Subject::Runner(name.to_owned()));
        let pool = |kind, name: &str| Some(Subject::Pool(kind, name.to_owned()));
        for (kind, name, expected) in [
            ("runner", Some("a"), runner("a")),
            ("runner/a", None, runner("a")),
            ("runner", Some("runner/a"), runner("a")),
            ("pod/a", None, runner("a")),
            ("pool", Some("a"), pool(pool::Kind::Any, "a")),
            ("pool", Some("hra/a"), pool(pool::Kind::Autoscaler, "a")),
            ("rdeploy/a", None, pool(pool::Kind::Deployment, "a")),
            ("RunnerDeployment", Some("a"), pool(pool::Kind::Deployment, "a")),
            ("runnerset/a", None, pool(pool::Kind::RunnerSet, "a")),
            ("rrs", Some("a"), pool(pool::Kind::Set, "a")),
            ("runner", None, None),
            ("runner/", None, None),
            ("runner/a", Some("b"), None),
            ("runner", Some("hra/a"), None),
            ("job", Some("a"), None),
        ] {
            assert_eq!(subject(kind, name).ok(), expected, "{kind} {name:?}");
        }
    }
}
