//! `pacer explain`: why a runner was removed, kept or restarted; why a pool has the number that it has; why a job waits.
//!
//! Everything is read from the cluster: receipts, which outlive the runners they are about, statuses, conditions and Events.

use anyhow::{Result, bail, ensure};

use crate::arguments::GitHubArguments;
use crate::cluster::{self, ClusterArguments};
use crate::default_github;
use crate::default_set::DefaultSetArguments;
use crate::report::{Format, Report};

#[cfg(test)]
mod day;
mod job;
mod place;
mod pool;
mod runner;
mod unknown;

/// Arguments of `pacer explain`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// `runner` or `pool` with a name, or kind/name: runner/web-abc, rdeploy/web, runnerset/web, hra/web, rrs/web-abc; `job` with its ID or URL;
    /// `queue` for all waiting jobs.
    #[arg(value_name = "KIND")]
    kind: String,
    /// The name, unless KIND contains it. It may include a kind: pool hra/web.
    name: Option<String>,
    /// runs-on labels of a job that no autoscaler knows. Comma-separated.
    #[arg(long, value_delimiter = ',', value_name = "LABEL")]
    labels: Vec<String>,
    /// Repository of that job, unless you give its URL.
    #[arg(long, value_name = "OWNER/NAME")]
    repository: Option<String>,
    /// Jobs of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    default_set: DefaultSetArguments,
    #[command(flatten)]
    github: GitHubArguments,
}

/// What is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Runner(String),
    Pool(pool::Kind, String),
    Job(job::Asked),
    Queue,
}

/// `pacer explain`.
pub(crate) fn explain(arguments: &Arguments) -> Result<Report> {
    let subject = subject(&arguments.kind, arguments.name.as_deref())?;
    let default = arguments.default_set.key()?;
    let (is_job, is_queue) = (matches!(subject, Subject::Job(_)), subject == Subject::Queue);
    ensure!(
        is_job || (arguments.labels.is_empty() && arguments.repository.is_none()),
        "--labels and --repository are about a job, and have no effect here"
    );
    ensure!(is_job || is_queue || !arguments.all_namespaces, "-A is for jobs, and has no effect here: name the namespace by -n");
    let github = || default_github::client(&arguments.github, &default_github::options(&arguments.github));
    let hints = || -> Result<job::Hints> {
        let (labels, repository) = (arguments.labels.clone(), arguments.repository.clone());
        Ok(job::Hints { labels, repository, all: arguments.all_namespaces, github: github()? })
    };
    cluster::with(&arguments.cluster, async |cluster| match &subject {
        Subject::Runner(name) => runner::explain(&cluster, name, arguments.output).await,
        Subject::Job(asked) => job::explain(&cluster, asked, &hints()?, arguments.output).await,
        Subject::Queue => job::queue(&cluster, arguments.all_namespaces, arguments.output).await,
        Subject::Pool(kind, name) => pool::explain(&cluster, *kind, name, default.as_ref(), arguments.output).await,
    })
}

/// Reads `queue`, `job ID`, `job URL`, `runner NAME`, `runner/NAME`, `pool NAME`, `pool rdeploy/NAME`, `rdeploy/NAME`, `rdeploy NAME`.
fn subject(kind: &str, name: Option<&str>) -> Result<Subject> {
    match (kind.to_ascii_lowercase().as_str(), name) {
        ("queue", None) => return Ok(Subject::Queue),
        ("queue", Some(name)) => bail!("{name} has no effect: the queue is that of all pools"),
        // A URL has slashes that separate no kinds.
        ("job" | "jobs", Some(name)) => return job::parse(name).map(Subject::Job),
        ("job" | "jobs", None) => bail!("a job is missing: pacer explain job ID, or the job's URL"),
        _ => {}
    }
    if let Some(id) = kind.strip_prefix("job/").filter(|_| name.is_none()) {
        return job::parse(id).map(Subject::Job);
    }
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
        other => bail!("{other} is nothing that can be explained: say runner, pool, rdeploy, runnerset, hra, rrs, job or queue"),
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
            ("job", Some("7"), Some(Subject::Job(job::Asked { id: 7, repository: None }))),
            ("job/7", None, Some(Subject::Job(job::Asked { id: 7, repository: None }))),
            ("queue", None, Some(Subject::Queue)),
            ("job", Some("a"), None),
            ("job", None, None),
            ("queue", Some("a"), None),
        ] {
            assert_eq!(subject(kind, name).ok(), expected, "{kind} {name:?}");
        }
    }
}
