//! `pacer record`: follows a cluster into a trace.
//!
//! It reads what everybody reads who may read the five kinds and JobLedgers, by watches, and nodes of runners where it may; it changes nothing.

mod chronicle;
mod output;
mod recorder;
mod surroundings;
mod what_if;

pub(crate) use chronicle::Defaults;
pub(crate) use recorder::{Recorder, Setting, Sights};
pub(crate) use what_if::{Plan, WhatIf};

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::stream::{BoxStream, StreamExt as _, select_all};
use jiff::Timestamp;
use kube::core::NamespaceResourceScope;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource, ResourceExt as _};
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, Runner, RunnerDeployment, RunnerSet, duration};
use pacer_cluster::nodes::Nodes;
use pacer_core::allowed::Allowed;
use pacer_core::node;
use pacer_operator::target::Target;
use pacer_trace::{Record, What};
use serde::de::DeserializeOwned;
use tokio::time::MissedTickBehavior;

use crate::cluster::{self, Cluster, ClusterArguments};
use chronicle::Chronicle;
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

/// An object that changed, or what it takes to find those that vanished unseen.
enum Change {
    Autoscaler(Box<HorizontalRunnerAutoscaler>),
    AutoscalerGone(Box<HorizontalRunnerAutoscaler>),
    Target(Target),
    TargetGone(Target),
    Jobs(Box<JobLedger>),
    Runner(Box<Runner>),
    RunnerGone(Box<Runner>),
    /// All runners are listed anew from here.
    ListingBegins,
    /// All runners were listed.
    ListingEnds,
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
    let mut book = Book::open(arguments)?;
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
        follow(cluster, all, |object| Some(Change::Autoscaler(object)), |object| Some(Change::AutoscalerGone(object)), false),
        follow(
            cluster,
            all,
            |one: Box<RunnerDeployment>| Some(Change::Target(Target::Deployment((*one).into()))),
            |one| Some(Change::TargetGone(Target::Deployment((*one).into()))),
            false,
        ),
        follow(
            cluster,
            all,
            |one: Box<RunnerSet>| Some(Change::Target(Target::Set((*one).into()))),
            |one| Some(Change::TargetGone(Target::Set((*one).into()))),
            false,
        ),
        follow(cluster, all, |object| Some(Change::Jobs(object)), |_| None, false),
        follow(cluster, all, |object| Some(Change::Runner(object)), |object| Some(Change::RunnerGone(object)), true),
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
    listings: bool,
) -> Changes
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let api: Api<K> = match all {
        true => Api::all(cluster.client.clone()),
        false => Api::namespaced(cluster.client.clone(), &cluster.namespace),
    };
    let change = move |event: watcher::Event<K>| match event {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) => changed(Box::new(object)),
        watcher::Event::Delete(object) => gone(Box::new(object)),
        watcher::Event::Init => listings.then_some(Change::ListingBegins),
        watcher::Event::InitDone => listings.then_some(Change::ListingEnds),
    };
    let events = watcher(api, watcher::Config::default()).default_backoff().filter_map(move |event| {
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
    /// Runners of the listing under way.
    listed: Option<BTreeSet<String>>,
}

impl Book {
    fn open(arguments: &Arguments) -> Result<Self> {
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
                Chronicle::resumed(defaults, &history)
            }
            None => Chronicle::new(defaults),
        };
        Ok(Self { output, chronicle, surroundings: Surroundings::default(), listed: None })
    }

    fn take(&mut self, change: Change) -> Result<()> {
        let now = Timestamp::now();
        match change {
            Change::Autoscaler(object) => self.chronicle.autoscaler(&object, now),
            Change::Target(target) => self.chronicle.target(&target, now),
            Change::AutoscalerGone(object) => self.chronicle.autoscaler_gone(&key(&*object), now),
            Change::TargetGone(target) => self.chronicle.target_gone(&target.reference(), now),
            Change::Jobs(object) => self.chronicle.jobs(&object, now),
            Change::Runner(object) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(object.name_any());
                }
                self.chronicle.runner(&object, now);
            }
            Change::RunnerGone(object) => self.chronicle.runner_gone(&object.name_any(), now),
            Change::ListingBegins => self.listed = Some(BTreeSet::new()),
            Change::ListingEnds => {
                let listed = self.listed.take().unwrap_or_default();
                self.chronicle.runners_are(&listed, now);
            }
        }
        self.write()
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
