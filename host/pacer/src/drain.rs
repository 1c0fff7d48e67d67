//! `pacer drain`: deletes all runner objects and waits until their runners have finished their jobs and left GitHub.
//!
//! The operator does the work, so it has to run meanwhile. It is what has to come before its removal: afterwards nobody takes the finalizers away.

use std::fmt::Debug;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::api::{DeleteParams, ListParams};
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::{Api, Resource, ResourceExt as _};
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerDeployment, RunnerReplicaSet, RunnerSet, duration};
use pacer_cluster::object::ObjectKey;
use pacer_cluster::unreadable;
use serde::de::DeserializeOwned;

use crate::cluster::{self, Cluster, ClusterArguments};
use crate::plain;
use crate::report::Report;

/// How often it is looked at what is left.
const PERIOD: Duration = Duration::from_secs(2);

/// Most names of what is left in a message.
const NAMED: usize = 10;

/// Arguments of `pacer drain`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Deletes the objects. Without it they are only counted.
    #[arg(long)]
    yes: bool,
    /// Exits with an error after this time. Default: waits until the last object is gone, which a running job can delay by five days.
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    timeout: Option<Duration>,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// `pacer drain`.
pub(crate) fn main(arguments: &Arguments, tell: impl Fn(&Report) -> Result<()>) -> Result<()> {
    cluster::with(&arguments.cluster, async |cluster| drain(&cluster, arguments, &tell).await)
}

async fn drain(cluster: &Cluster, arguments: &Arguments, tell: &impl Fn(&Report) -> Result<()>) -> Result<()> {
    let began = Instant::now();
    let all = arguments.all_namespaces;
    if !arguments.yes {
        let left = left(cluster, all).await?;
        let text = format!("{} would be deleted; --yes deletes them and waits for their jobs\n", counted(&left));
        return tell(&Report::text(text));
    }
    // Nothing passes that is wrong from the start, such as the address of the cluster.
    left(cluster, all).await?;
    let mut told = String::new();
    loop {
        let left = match pass(cluster, all).await {
            Err(error) if !may_pass(&error) => return Err(error),
            found => found,
        };
        let line = match &left {
            Ok(left) if left.is_empty() => return tell(&Report::text("no runner objects are left\n")),
            Ok(left) => format!("{} left; runners with a job finish it\n", counted(left)),
            Err(error) => failed(error),
        };
        if line != told {
            tell(&Report::text(line.as_str()))?;
            told = line;
        }
        if arguments.timeout.is_some_and(|timeout| began.elapsed() > timeout) {
            let left = left.with_context(|| format!("nobody knows what is left after {} s", began.elapsed().as_secs()))?;
            let names: Vec<&str> = left.iter().take(NAMED).map(String::as_str).collect();
            bail!(
                "{} are left after {} s: {}; `kubectl describe` says what a Runner waits for, and `pacer doctor` whether the operator acts",
                left.len(),
                began.elapsed().as_secs(),
                names.join(", ")
            );
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Deletes what is not being deleted yet, and gives what is left.
async fn pass(cluster: &Cluster, all: bool) -> Result<Vec<String>> {
    // Autoscalers first, so that nothing is made meanwhile. Each time anew: what is made during the wait goes as well.
    delete::<HorizontalRunnerAutoscaler>(cluster, all).await?;
    delete::<RunnerDeployment>(cluster, all).await?;
    delete::<RunnerSet>(cluster, all).await?;
    delete::<RunnerReplicaSet>(cluster, all).await?;
    delete::<Runner>(cluster, all).await?;
    left(cluster, all).await
}

/// What is told of an error that may be gone next time.
fn failed(error: &anyhow::Error) -> String {
    format!("{}; it is tried again every {} s\n", plain::causes(error), PERIOD.as_secs())
}

/// Whether an error may be gone next time. In five days an API server restarts, is overloaded and loses connections; what it refuses, it refuses
/// for ever.
fn may_pass(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => !matches!(status.code, 400 | 401 | 403 | 422),
        _ => true,
    }
}

fn api<K>(cluster: &Cluster, all: bool, namespace: Option<String>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(cluster.client.clone(), &namespace),
        None if all => Api::all(cluster.client.clone()),
        None => Api::namespaced(cluster.client.clone(), &cluster.namespace),
    }
}

/// Deletes those that are not being deleted yet.
async fn delete<K>(cluster: &Cluster, all: bool) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    for found in list::<K>(cluster, all).await?.into_iter().filter(|found| !found.is_leaving) {
        let ObjectKey { namespace, name } = &found.key;
        match api::<K>(cluster, all, Some(namespace.clone())).delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            // Its owner was faster.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            // It is being deleted. The answer is the object, which cannot be read.
            Err(kube::Error::SerdeError(error)) => {
                let told = format!(
                    "pacer: {} {} cannot be read ({error}), neither here nor by the operator: if it stays, correct the value or remove its finalizers",
                    K::kind(&()),
                    found.key
                );
                let _closed = writeln!(std::io::stderr(), "{}", plain::line(&told));
            }
            Err(error) => return Err(error).with_context(|| format!("deleting {} {name}", K::kind(&()))),
        }
    }
    Ok(())
}

/// An object that there is.
struct Found {
    key: ObjectKey,
    is_leaving: bool,
}

/// What there is of a kind. An object that cannot be read has to go as well.
async fn list<K>(cluster: &Cluster, all: bool) -> Result<Vec<Found>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    match unreadable::list_metadata(&api::<K>(cluster, all, None), &ListParams::default()).await {
        Ok((readable, unreadable)) => {
            let found = |object: PartialObjectMeta<K>| Found {
                key: ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any()),
                is_leaving: object.metadata.deletion_timestamp.is_some(),
            };
            let unread = unreadable.iter().map(|one| Found { key: one.key(), is_leaving: one.is_leaving() });
            Ok(readable.into_iter().map(found).chain(unread).collect())
        }
        // The kind is not installed.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("listing {}", K::plural(&()))),
    }
}

/// Kind, namespace and name of what there is.
async fn left(cluster: &Cluster, all: bool) -> Result<Vec<String>> {
    let mut left = Vec::new();
    names::<HorizontalRunnerAutoscaler>(cluster, all, &mut left).await?;
    names::<RunnerDeployment>(cluster, all, &mut left).await?;
    names::<RunnerSet>(cluster, all, &mut left).await?;
    names::<RunnerReplicaSet>(cluster, all, &mut left).await?;
    names::<Runner>(cluster, all, &mut left).await?;
    Ok(left)
}

async fn names<K>(cluster: &Cluster, all: bool, names: &mut Vec<String>) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let found = list::<K>(cluster, all).await?;
    names.extend(found.iter().map(|found| format!("{} {}", K::kind(&()), found.key)));
    Ok(())
}

/// How many of each kind, in the order in which they are listed.
fn counted(names: &[String]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for kind in names.iter().filter_map(|name| name.split(' ').next()) {
        match counts.last_mut() {
            Some((last, count)) if *last == kind => *count += 1,
            _ => counts.push((kind, 1)),
        }
    }
    match counts.is_empty() {
        true => "nothing".to_owned(),
        false => counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn objects_that_cannot_be_read_are_deleted_and_counted() {
        let deleted = Arc::new(Mutex::new(Vec::new()));
        let names = deleted.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let (own, name) = (path.ends_with("/runners"), path.rsplit('/').next().unwrap_or_default().to_owned());
            let bad = json!({"metadata": {"name": "bad", "namespace": "ci", "creationTimestamp": "10000-01-01T00:00:00Z"}});
            let answer = if *request.method() == Method::DELETE {
                names.lock().unwrap().push(name);
                bad
            } else {
                let good = json!({"metadata": {"name": "good", "namespace": "ci"}});
                json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": if own { vec![bad, good] } else { Vec::new() }})
            };
            async move { Ok::<_, std::io::Error>(Response::new(Body::from(answer.to_string().into_bytes()))) }
        });
        let cluster = Cluster { client: Client::new(service, "ci"), namespace: "ci".to_owned() };
        assert_eq!(pass(&cluster, false).await.unwrap(), ["Runner ci/good", "Runner ci/bad"]);
        assert_eq!(*deleted.lock().unwrap(), ["good", "bad"]);
    }

    #[test]
    fn what_is_left_is_counted_by_kind() {
        let names = ["RunnerDeployment a/b", "Runner a/b-1", "Runner a/b-2"].map(str::to_owned);
        assert_eq!(counted(&names), "1 RunnerDeployment, 2 Runner");
        assert_eq!(counted(&[]), "nothing");
    }

    #[test]
    fn cause_of_a_failure_is_told_once() {
        let status = kube::core::Status::failure("etcd is gone", "InternalError").with_code(500);
        let error = anyhow::Error::new(kube::Error::Api(status.boxed())).context("listing runners");
        assert_eq!(failed(&error), "listing runners: etcd is gone: InternalError; it is tried again every 2 s\n");
    }

    #[test]
    fn only_what_is_refused_for_ever_ends_the_wait() {
        let told = |error: kube::Error| may_pass(&anyhow::Error::new(error).context("listing runners"));
        let answered = |code| told(kube::Error::Api(kube::core::Status::failure("no", "Reason").with_code(code).boxed()));
        assert_eq!([400, 401, 403, 422].map(answered), [false; 4]);
        assert_eq!([408, 409, 410, 429, 500, 502, 503, 504].map(answered), [true; 8]);
        assert!(told(kube::Error::Service("connection reset".into())));
    }
}
