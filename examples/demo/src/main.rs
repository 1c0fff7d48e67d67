//! `make demo`: the operator at work on the manifests of `examples/`, told in a terminal, with a verdict at the end.
//!
//! Nothing here is scripted but the user's part: what is applied, scaled and patched, which jobs there are, and which runner dies. What
//! happens then is printed from watches, and every claim of the summary is measured. The exit status is 0 when all of them hold.

mod acts;
mod manifest;
mod narration;
mod proof;
mod stage;
mod terminal;

use std::future::Future;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use pacer_harness::github::Behaviour;
use pacer_harness::nodes::StartDelay;
use pacer_harness::world::{Options, World};

use crate::manifest::Manifests;
use crate::narration::Narration;
use crate::proof::{Claim, Proofs};
use crate::stage::Stage;
use crate::terminal::{Style, Terminal};

/// How long the acts may take together. On two quiet cores they take two minutes.
const TIME: Duration = Duration::from_secs(300);

/// How often a start that takes long says that it goes on.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Shows the operator at work and proves what it promises.
#[derive(Debug, Parser)]
#[command(name = "pacer-demo", max_term_width = 110)]
struct Arguments {
    /// Leave everything running at the end, until Ctrl-C, and print the KUBECONFIG to look around with kubectl.
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let terminal = Arc::new(Terminal::new());
    tokio::select! {
        outcome = demonstrate(&arguments, &terminal) => match outcome {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                terminal.write(Style::Bad, &format!("the demo could not start: {error:#}"));
                ExitCode::FAILURE
            }
        },
        // What was started ends with its handles.
        _ = tokio::signal::ctrl_c(), if !arguments.keep => {
            terminal.write(Style::Bad, "interrupted");
            ExitCode::FAILURE
        }
    }
}

/// Starts the world, shows everything, and says whether all claims hold.
async fn demonstrate(arguments: &Arguments, terminal: &Arc<Terminal>) -> Result<bool> {
    introduce(terminal);
    terminal.section("Start");
    let world = with_heartbeat(terminal, World::start(options())).await?;
    let nodes = world.nodes.as_ref().context("the world has no nodes")?;
    terminal.say(&format!(
        "control plane ready at {} after {:.1} s; the operator leads as {ACCOUNT} with the roles of deploy/base",
        world.plane.url(),
        world.plane.started_in().as_secs_f64()
    ));
    let page = world.operator.as_ref().and_then(|operator| operator.page_address()).context("the operator announced no page")?;
    terminal.write(Style::Bold, &format!("  the page, as long as this runs: http://{page}/ (docs/page.md)"));
    let narration = Narration::start(&world, nodes.watch(), terminal);
    let stage = Stage { world: &world, nodes, terminal };
    let raised = terminal.elapsed();
    let mut proofs = Proofs::open(if arguments.keep { &[Claim::Departure] } else { &[] });
    let outcome = match tokio::time::timeout(TIME, play(arguments, &stage, &mut proofs)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(anyhow::anyhow!("the acts were not over after {} s", TIME.as_secs())),
    };
    acts::verdict(&stage, &mut proofs);
    let acted = terminal.elapsed().saturating_sub(raised);
    narration.stop().await;
    let proved = outcome.is_ok() && proofs.all_hold();
    if !proved {
        terminal.section("State of the world, because not everything was proved");
        terminal.plain(&world.report().await);
    }
    terminal.section("Summary");
    proofs.print(terminal);
    if let Err(error) = &outcome {
        terminal.write(Style::Bad, &format!("stopped early: {error:#}"));
    }
    let (style, word) = if proved { (Style::Good, "everything was proved") } else { (Style::Bad, "NOT everything was proved") };
    let (acted, raised) = (acted.as_secs_f64(), raised.as_secs_f64());
    terminal.write(style, &format!("{word}; it took {acted:.0} s after {raised:.0} s of building and starting"));
    if arguments.keep {
        keep(&world, terminal).await?;
    }
    world.stop().await;
    Ok(proved)
}

fn introduce(terminal: &Terminal) {
    for line in [
        "pacer demo",
        "  real:      etcd, kube-apiserver, kube-controller-manager, kubectl, and the pacer executable with the roles it is shipped with",
        "  simulated: GitHub (API, jobs, runners' sessions; quicker to say who is busy than the real one) and the nodes (scheduler, kubelets, the runner agent in each pod)",
        "  signs:     # busy  o idle  + starting  . pending  x ended",
    ] {
        terminal.plain(line);
    }
}

/// Namespace and name of the operator's service account in deploy/base.
const ACCOUNT: &str = "actions-runner-system/pacer";

/// The operator as deploy/base runs it: same account, same roles, same flags. Pods take a moment to start, so that one can watch them. GitHub
/// says at once who is busy, so that it takes some two minutes: the real one is late by up to a minute, as it is in the suites.
fn options() -> Options {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/base");
    let mut options =
        Options { manifests: ["namespace.yaml", "rbac.yaml"].map(|file| base.join(file)).into(), ..Options::default() };
    options.github.behaviour = Behaviour::prompt();
    if let (Some(operator), Some((namespace, name))) = (&mut options.operator, ACCOUNT.split_once('/')) {
        operator.namespace = namespace.to_owned();
        operator.service_account = name.to_owned();
        operator.args.extend(["--webhook-addr=127.0.0.1:0", "--ui-addr=127.0.0.1:0"].map(str::to_owned));
        operator.env.push(("GITHUB_WEBHOOK_SECRET_TOKEN".to_owned(), acts::WEBHOOK_SECRET.to_owned()));
    }
    if let Some(nodes) = &mut options.nodes {
        nodes.start_delay = StartDelay::Between(Duration::from_millis(300), Duration::from_millis(1500));
    }
    options
}

/// The outcome of `start`, with a line now and then while it takes.
async fn with_heartbeat<T, E: std::error::Error + Send + Sync + 'static>(
    terminal: &Terminal,
    start: impl Future<Output = Result<T, E>>,
) -> Result<T> {
    terminal.say("starting; the first time, the control plane is built from source, which takes some minutes");
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.tick().await;
    tokio::pin!(start);
    loop {
        tokio::select! {
            outcome = &mut start => return Ok(outcome?),
            _ = heartbeat.tick() => terminal.say("still building or starting"),
        }
    }
}

async fn play(arguments: &Arguments, stage: &Stage<'_>, proofs: &mut Proofs) -> Result<()> {
    let manifests = Manifests::read(&stage.world.plane).await?;
    let acts: &'static [Act] = match ACTS.split_last() {
        Some((_, others)) if arguments.keep => others,
        _ => &ACTS,
    };
    let mut program = Program { stage, acts, begun: 0 };
    program.next();
    acts::examples(stage, &manifests, proofs).await?;
    program.next();
    acts::jobs(stage, proofs).await?;
    program.next();
    acts::scaling(stage, proofs).await?;
    program.next();
    acts::rollout(stage, proofs).await?;
    program.next();
    acts::swap(stage, proofs).await?;
    program.next();
    let trace = acts::demand(stage, &manifests, proofs).await?;
    program.next();
    acts::forecast(stage, &trace, proofs).await?;
    if !arguments.keep {
        program.next();
        acts::departure(stage, &manifests, proofs).await?;
    }
    Ok(())
}

/// An act as it is announced: what it shows, and how many seconds it takes as a rule, on two cores that do nothing else.
type Act = (&'static str, u64);

static ACTS: [Act; 8] = [
    ("The manifests of examples/ as they stand", 5),
    ("Jobs run; each ephemeral runner takes one and is replaced by one", 4),
    ("A fleet grows, gets busy in part, and shrinks by idle runners only; a crash elsewhere is replaced", 15),
    ("A template change rolls without touching a busy runner", 15),
    ("Policies are swapped while jobs run; a broken one changes nothing", 35),
    ("Jobs bring their runners: webhooks; a job that waits says why", 10),
    ("A policy is tried on the trace of that, and then for real", 25),
    ("Everything is deleted and leaves nothing behind", 10),
];

/// Which acts there are, and how many have begun.
struct Program<'a> {
    stage: &'a Stage<'a>,
    acts: &'static [Act],
    begun: usize,
}

impl Program<'_> {
    /// Announces the next act, and how far the demo is.
    fn next(&mut self) {
        let Some((title, seconds)) = self.acts.get(self.begun) else { return };
        let left: u64 = self.acts.iter().skip(self.begun).map(|(_, seconds)| seconds).sum();
        self.begun += 1;
        let (act, of) = (self.begun, self.acts.len());
        self.stage.terminal.section(&format!("{act} of {of}. {title} (takes about {seconds} s, all that is left {left} s)"));
    }
}

/// Says how to look around, and waits until the user has.
async fn keep(world: &World, terminal: &Terminal) -> Result<()> {
    terminal.section("Kept running until Ctrl-C");
    terminal.plain(&format!("  export KUBECONFIG={}", world.plane.kubeconfig_path().display()));
    terminal.plain("  kubectl get runnerdeployments,runnerreplicasets,runners");
    terminal.plain(&format!("  logs: {}", world.plane.directory().display()));
    if tokio::signal::ctrl_c().await.is_err() {
        bail!("cannot wait for Ctrl-C");
    }
    Ok(())
}
