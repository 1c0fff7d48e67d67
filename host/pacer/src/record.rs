//! `pacer record`: follows a cluster into a trace.
//!
//! It reads what everybody reads who may read the five kinds and JobLedgers, by watches, and nodes of runners where it may; it changes nothing.

mod chronicle;
#[cfg(test)]
mod fixture;
mod output;
mod recorder;
mod surroundings;
mod what_if;

pub(crate) use chronicle::Defaults;
pub(crate) use recorder::{Recorder, Setting, Sights};
pub(crate) use what_if::{Plan, WhatIf};

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::stream::{BoxStream, StreamExt as _, select_all};
use jiff::Timestamp;
use kube::core::NamespaceResourceScope;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Resource, ResourceExt as _};
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, Runner, RunnerDeployment, RunnerSet, duration};
use pacer_cluster::nodes::Nodes;
use pacer_cluster::unreadable;
use pacer_core::allowed::Allowed;
use pacer_core::node;
use pacer_operator::target::Target;
use pacer_trace::{PoolKind, Record, What};
use serde::de::DeserializeOwned;
use tokio::time::MissedTickBehavior;

use crate::cluster::{self, Cluster, ClusterArguments};
use chronicle::{Chronicle, named};
use output::Output;
use surroundings::{NodeReader, ReadNodes, Surroundings};

/// How often lines reach the file.
const FLUSH: Duration = Duration::from_secs(1);

/// The same where lines are compressed, frame by frame: small frames compress badly.
const FLUSH_COMPRESSED: Duration = Duration::from_secs(30);

/// Most bytes of the lines of one file of a directory: some 80,000 records, which take 40 MiB for a moment when the next file is begun.
pub(crate) const LINES_OF_A_FILE: u64 = 16 << 20;

/// Most bytes of all files of a directory unless something else is asked for.
pub(crate) const RECORD_BYTES: u64 = 256 << 20;

/// The least that may be asked for: some files.
pub(crate) const LEAST_RECORD_BYTES: u64 = 8 << 20;

/// How often scheduled overrides are looked at: their times are whole seconds as a rule.
const TICK: Duration = Duration::from_secs(1);

/// How often it is noted that nothing else happened, so that the end of the trace is known after a kill as well.
const CHECKPOINT: Duration = Duration::from_secs(60);

/// Arguments of `pacer record`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// The trace. An existing file is continued; a name that ends in .zst is compressed. A directory, or a name that ends in a slash, is filled with
    /// compressed files, of which the oldest are deleted.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Maximum total size of the files in a directory, in bytes. Default: 256 MiB.
    #[arg(long, value_parser = clap::value_parser!(u64).range(LEAST_RECORD_BYTES..), value_name = "BYTES")]
    record_bytes: Option<u64>,
    /// Pools of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Stops after this time. Default: at SIGINT or SIGTERM.
    #[arg(long = "for", value_parser = duration::parse, value_name = "DURATION")]
    time: Option<Duration>,
    /// --idle-confirmation of the operator, if it is not the default.
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    idle_confirmation: Option<Duration>,
    /// --default-scale-down-delay of the operator.
    #[arg(long, default_value = "10m", value_parser = duration::parse, value_name = "DURATION")]
    default_scale_down_delay: Duration,
    /// --common-runner-labels of the operator.
    #[arg(long, value_delimiter = ',', value_name = "LABEL")]
    common_runner_labels: Vec<String>,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Kinds of which objects may vanish while nobody watches them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Listed {
    Autoscalers,
    Deployments,
    Sets,
    Runners,
}

/// An object that changed, or what it takes to find those that vanished unseen.
enum Change {
    Autoscaler(Box<HorizontalRunnerAutoscaler>),
    AutoscalerGone(Box<HorizontalRunnerAutoscaler>),
    Target(Target),
    TargetGone(Target),
    Jobs(Box<JobLedger>),
    Runner(Box<Runner>),
    RunnerGone(Box<Runner>),
    /// All objects of a kind are listed anew from here.
    ListingBegins(Listed),
    /// All objects of a kind were listed.
    ListingEnds(Listed),
}

/// `pacer record`.
pub(crate) fn main(arguments: &Arguments) -> Result<()> {
    cluster::with(&arguments.cluster, async |cluster| record(arguments, &cluster).await)
}

async fn record(arguments: &Arguments, cluster: &Cluster) -> Result<()> {
    let all = arguments.all_namespaces;
    // Read before the file is touched: a cluster that can't be read leaves no file.
    let autoscalers: Vec<HorizontalRunnerAutoscaler> = cluster.list(all, "").await?;
    let deployments: Vec<Arc<RunnerDeployment>> = shared(cluster.list(all, "").await?);
    let sets: Vec<Arc<RunnerSet>> = shared(cluster.list(all, "").await?);
    let mut book = Book::open(arguments, (!all).then_some(cluster.namespace.as_str()))?;
    let now = Timestamp::now();
    // Settings are told once both are known.
    for autoscaler in &autoscalers {
        book.chronicle.autoscaler(autoscaler, now);
    }
    for deployment in deployments {
        book.chronicle.target(&Target::Deployment(deployment), now);
    }
    for set in sets {
        book.chronicle.target(&Target::Set(set), now);
    }
    book.write()?;
    let stop = async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let end = async {
            match arguments.time {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => Ok(()),
            pressed = tokio::signal::ctrl_c() => pressed,
            () = end => Ok(()),
        }
    };
    tokio::pin!(stop);
    let mut changes = select_all([
        follow(
            cluster,
            all,
            |object| Some(Change::Autoscaler(object)),
            |object| Some(Change::AutoscalerGone(object)),
            Some(Listed::Autoscalers),
        ),
        follow(
            cluster,
            all,
            |one: Box<RunnerDeployment>| Some(Change::Target(Target::Deployment((*one).into()))),
            |one| Some(Change::TargetGone(Target::Deployment((*one).into()))),
            Some(Listed::Deployments),
        ),
        follow(
            cluster,
            all,
            |one: Box<RunnerSet>| Some(Change::Target(Target::Set((*one).into()))),
            |one| Some(Change::TargetGone(Target::Set((*one).into()))),
            Some(Listed::Sets),
        ),
        follow(cluster, all, |object| Some(Change::Jobs(object)), |_| None, None),
        follow(
            cluster,
            all,
            |object| Some(Change::Runner(object)),
            |object| Some(Change::RunnerGone(object)),
            Some(Listed::Runners),
        ),
    ]);
    let mut flush = tokio::time::interval(book.output.interval());
    let mut checkpoint = tokio::time::interval(CHECKPOINT);
    let mut tick = tokio::time::interval(TICK);
    let allowed = Arc::new(Allowed { node_labels: node::LABELS.split(',').map(str::to_owned).collect(), ..Allowed::default() });
    let mut nodes = NodeReader::new(Arc::new(Nodes::new(cluster.client.clone(), allowed.clone())));
    let mut look = tokio::time::interval(surroundings::LOOK);
    flush.set_missed_tick_behavior(MissedTickBehavior::Delay);
    checkpoint.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            change = changes.next() => match change {
                Some(change) => book.take(change?)?,
                None => bail!("the watches ended"),
            },
            _ = flush.tick() => book.output.flush(Timestamp::now())?,
            _ = tick.tick() => book.time_passes()?,
            _ = look.tick() => {
                let read = nodes.read(book.chronicle.nodes()).await;
                book.nodes(&read, &allowed)?;
            }
            _ = checkpoint.tick() => book.checkpoint()?,
            stopped = &mut stop => {
                stopped.context("listening for signals")?;
                book.checkpoint()?;
                book.output.flush(Timestamp::now())?;
                return Ok(());
            }
        }
    }
}

type Changes = BoxStream<'static, Result<Change>>;

/// Objects of a kind as they change. A watch that fails is begun again, with growing pauses.
fn follow<K>(
    cluster: &Cluster,
    all: bool,
    changed: impl Fn(Box<K>) -> Option<Change> + Send + 'static,
    gone: impl Fn(Box<K>) -> Option<Change> + Send + 'static,
    listed: Option<Listed>,
) -> Changes
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let namespace = (!all).then_some(cluster.namespace.as_str());
    let change = move |event: watcher::Event<K>| match event {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) => changed(Box::new(object)),
        watcher::Event::Delete(object) => gone(Box::new(object)),
        watcher::Event::Init => listed.map(Change::ListingBegins),
        watcher::Event::InitDone => listed.map(Change::ListingEnds),
    };
    let events = unreadable::events::<K>(&cluster.client, namespace, watcher::Config::default());
    let events = events.default_backoff().filter_map(move |event| {
        let change = match event {
            Ok(event) => change(event).map(Ok),
            // What may not be read will not be readable in a moment either.
            Err(watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) if is_refused(&error) => {
                Some(Err(anyhow::Error::new(error).context(format!("watching {}", K::plural(&())))))
            }
            Err(_) => None,
        };
        std::future::ready(change)
    });
    events.boxed()
}

fn is_refused(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403 | 404))
}

fn shared<K>(objects: Vec<K>) -> Vec<Arc<K>> {
    objects.into_iter().map(Arc::new).collect()
}

fn key(object: &impl kube::ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// What is written to, and what is known.
struct Book {
    output: Output,
    chronicle: Chronicle,
    surroundings: Surroundings,
    /// Objects in the listings under way.
    listed: BTreeMap<Listed, BTreeSet<String>>,
}

impl Book {
    /// Begins a trace of a namespace, or of all, or goes on with one.
    fn open(arguments: &Arguments, namespace: Option<&str>) -> Result<Self> {
        let now = Timestamp::now();
        let defaults = Defaults {
            idle_confirmation: arguments.idle_confirmation,
            scale_down_delay: arguments.default_scale_down_delay,
            labels: arguments.common_runner_labels.iter().map(|label| Arc::from(label.as_str())).collect(),
            ramp: None,
            policies: None,
        };
        let (mut output, history) = Output::open(&arguments.out, arguments.record_bytes, now)?;
        let chronicle = match history {
            Some(history) => {
                output.record(&Record { at: now, what: What::Resumed { since: history.ended } })?;
                Chronicle::resumed(defaults, &history, namespace.into())
            }
            None => Chronicle::new(defaults),
        };
        Ok(Self { output, chronicle, surroundings: Surroundings::default(), listed: BTreeMap::new() })
    }

    fn take(&mut self, change: Change) -> Result<()> {
        let now = Timestamp::now();
        match change {
            Change::Autoscaler(object) => {
                self.list(Listed::Autoscalers, key(&*object));
                self.chronicle.autoscaler(&object, now);
            }
            Change::Target(target) => {
                let kind = match &target {
                    Target::Deployment(_) => Listed::Deployments,
                    Target::Set(_) => Listed::Sets,
                };
                self.list(kind, named(&target.reference()).to_string());
                self.chronicle.target(&target, now);
            }
            Change::AutoscalerGone(object) => self.chronicle.autoscaler_gone(&key(&*object), now),
            Change::TargetGone(target) => self.chronicle.target_gone(&target.reference(), now),
            Change::Jobs(object) => self.chronicle.jobs(&object, now),
            Change::Runner(object) => {
                self.list(Listed::Runners, object.name_any());
                self.chronicle.runner(&object, now);
            }
            Change::RunnerGone(object) => self.chronicle.runner_gone(&object.name_any(), now),
            Change::ListingBegins(kind) => {
                self.listed.insert(kind, BTreeSet::new());
            }
            Change::ListingEnds(kind) => self.listing_ends(kind, now),
        }
        self.write()
    }

    /// Notes that an object exists, while all of its kind are listed.
    fn list(&mut self, kind: Listed, name: String) {
        if let Some(listed) = self.listed.get_mut(&kind) {
            listed.insert(name);
        }
    }

    /// Finds the objects that vanished unseen.
    fn listing_ends(&mut self, kind: Listed, now: Timestamp) {
        let Some(listed) = self.listed.remove(&kind) else { return };
        match kind {
            Listed::Autoscalers => self.chronicle.autoscalers_are(&listed, now),
            Listed::Deployments => self.chronicle.targets_are(PoolKind::RunnerDeployment, &listed, now),
            Listed::Sets => self.chronicle.targets_are(PoolKind::RunnerSet, &listed, now),
            Listed::Runners => self.chronicle.runners_are(&listed, now),
        }
    }

    fn time_passes(&mut self) -> Result<()> {
        self.chronicle.time_passes(Timestamp::now());
        self.write()
    }

    fn nodes(&mut self, read: &ReadNodes, allowed: &Allowed) -> Result<()> {
        for record in self.surroundings.nodes(read, allowed, Timestamp::now()) {
            self.output.record(&record)?;
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        Ok(self.output.record(&Record { at: Timestamp::now(), what: What::Checkpoint {} })?)
    }

    fn write(&mut self) -> Result<()> {
        for record in self.chronicle.news() {
            self.output.record(&record)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pacer_trace::PoolSettings;
    use serde_json::json;

    use super::*;

    fn deployment() -> Change {
        let deployment: RunnerDeployment = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "ci"},
            "spec": {"replicas": 2, "template": {"spec": {"repository": "acme/app"}}},
        }))
        .unwrap();
        Change::Target(Target::Deployment(deployment.into()))
    }

    fn set() -> Change {
        let set: RunnerSet = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "ci"},
            "spec": {
                "replicas": 1, "repository": "acme/app", "selector": {"matchLabels": {"app": "web"}}, "serviceName": "web",
                "template": {"metadata": {"labels": {"app": "web"}}},
            },
        }))
        .unwrap();
        Change::Target(Target::Set(set.into()))
    }

    fn autoscaler() -> Change {
        let autoscaler = json!({
            "metadata": {"name": "scaler", "namespace": "ci"},
            "spec": {"scaleTargetRef": {"name": "web"}, "minReplicas": 1, "maxReplicas": 9},
        });
        Change::Autoscaler(serde_json::from_value(autoscaler).unwrap())
    }

    #[test]
    fn a_trace_that_goes_on_with_fewer_namespaces_tells_nothing_of_the_others() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: Arguments,
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.jsonl");
        let pool = |name: &str| What::Pool(PoolSettings { pool: name.into(), max: 2, ..PoolSettings::default() });
        let runner = |name: &str, pool: &str| What::RunnerCreated { runner: name.into(), pool: pool.into() };
        let mut writer = Output::open(&path, None, Timestamp::UNIX_EPOCH).unwrap().0;
        for what in [pool("ci/web"), pool("other/web"), runner("web-a", "ci/web"), runner("web-b", "other/web")] {
            writer.record(&Record { at: Timestamp::UNIX_EPOCH, what }).unwrap();
        }
        writer.flush(Timestamp::UNIX_EPOCH).unwrap();
        let Line { arguments } = <Line as clap::Parser>::try_parse_from(["record", "--out", path.to_str().unwrap()]).unwrap();
        let mut book = Book::open(&arguments, Some("ci")).unwrap();
        for kind in [Listed::Deployments, Listed::Runners] {
            book.take(Change::ListingBegins(kind)).unwrap();
            book.take(Change::ListingEnds(kind)).unwrap();
        }
        book.output.flush(Timestamp::now()).unwrap();
        let records = pacer_trace::read(&path).unwrap().trace.records;
        assert_eq!(fixture::told(records.iter().skip(4)), ["ci/web", "web-a"]);
    }

    #[test]
    fn autoscalers_and_pools_that_were_deleted_unseen_are_gone_after_the_next_listing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.jsonl");
        let (output, _) = Output::open(&path, None, Timestamp::UNIX_EPOCH).unwrap();
        let (chronicle, surroundings) = (Chronicle::new(fixture::defaults()), Surroundings::default());
        let mut book = Book { output, chronicle, surroundings, listed: BTreeMap::new() };
        let mut known = 0;
        // Names and maxima of the pools that are recorded because of a listing.
        let mut list = |kind: Listed, objects: Vec<Change>| {
            let changes = [Change::ListingBegins(kind)].into_iter().chain(objects).chain([Change::ListingEnds(kind)]);
            changes.for_each(|change| book.take(change).unwrap());
            book.output.flush(Timestamp::UNIX_EPOCH).unwrap();
            let records = pacer_trace::read(&path).unwrap().trace.records;
            let new = records.iter().skip(std::mem::replace(&mut known, records.len()));
            let pool = |record: &Record| match &record.what {
                What::Pool(settings) => Some(format!("{} {}", settings.pool, settings.max)),
                _ => None,
            };
            new.filter_map(pool).collect::<Vec<_>>()
        };
        assert_eq!(list(Listed::Deployments, vec![deployment()]), ["ci/web 2"]);
        assert_eq!(list(Listed::Sets, vec![set()]), ["ci/runnerset/web 1"]);
        assert_eq!(list(Listed::Autoscalers, vec![autoscaler()]), ["ci/web 9"]);
        assert_eq!(list(Listed::Autoscalers, vec![autoscaler()]), [""; 0], "it still exists");
        assert_eq!(list(Listed::Autoscalers, Vec::new()), ["ci/web 2"], "the pool keeps its number");
        assert_eq!(list(Listed::Deployments, Vec::new()), ["ci/web 0"], "the RunnerSet of the same name stays");
        assert_eq!(list(Listed::Sets, vec![set()]), [""; 0]);
        assert_eq!(list(Listed::Sets, Vec::new()), ["ci/runnerset/web 0"]);
    }
}
