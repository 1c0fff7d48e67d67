//! One pod's life on a node: containers start, the agent runs, the pod ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::agent::{Agent, Exit, Progress, at};
use super::busy::{BusyKill, Cause};
use super::environment::{self, Environment, EnvironmentError};
use super::fault::{Trouble, TroubleId};
use super::life::Stage;
use super::probe::RUNNER;
use super::status::Sandbox;
use super::{job_pod, probe, report};
use crate::github::{JobId, JobState, SimGitHub};

/// Exit code of a process that was killed: 128 + SIGKILL.
const KILLED: i32 = 137;

/// What a test does to a pod that is on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Crash(i32),
    OutOfMemory,
    Evict(String),
    NodeLost,
    NodeBack,
}

/// What interrupts whatever goes on in a pod.
enum Interrupt {
    Gone,
    /// It is to end within this time.
    Deletion(Duration),
    Control(Control),
}

/// Why nothing runs in the pod (any more).
enum End {
    /// The object is gone.
    Gone,
    /// It is being deleted and its containers have ended.
    Deletion,
    /// Its phase is final.
    Over,
    /// The kubelet ends it.
    Evicted(String),
    /// The kubelet does not take it at all, for this reason.
    Refused(&'static str),
    /// Its node does not answer.
    Lost,
}

/// How the runner's process ended.
enum RunnerEnd {
    Exited(Exit),
    Killed(&'static str, i32),
    Pod(End),
}

/// The kubelet's goroutine for one pod.
pub(super) struct PodWorker {
    shared: Arc<Shared>,
    node: String,
    uid: String,
    pod: Arc<Pod>,
    updates: watch::Receiver<Arc<Pod>>,
    control: mpsc::Receiver<Control>,
    gone: CancellationToken,
    /// Seconds of grace of the deletion that it knows of.
    grace: Option<i64>,
    trouble: Option<(TroubleId, Trouble)>,
}

/// The ends that the node holds of a [`PodWorker`].
#[derive(Debug)]
pub(super) struct WorkerHandle {
    pub(super) updates: watch::Sender<Arc<Pod>>,
    pub(super) control: mpsc::Sender<Control>,
    pub(super) gone: CancellationToken,
}

impl PodWorker {
    pub(super) fn new(shared: Arc<Shared>, node: &str, pod: Arc<Pod>) -> (Self, WorkerHandle) {
        let (updates_sender, updates) = watch::channel(Arc::clone(&pod));
        // A test injects one thing at a time.
        let (control_sender, control) = mpsc::channel(8);
        let gone = CancellationToken::new();
        let handle = WorkerHandle { updates: updates_sender, control: control_sender, gone: gone.clone() };
        let uid = pod.uid().unwrap_or_default();
        let node = node.to_owned();
        (Self { shared, node, uid, pod, updates, control, gone, grace: None, trouble: None }, handle)
    }

    /// Runs until the object is gone.
    pub(super) async fn run(mut self) {
        let mut sandbox = Sandbox::new(&self.pod, Timestamp::now());
        let mut end = self.live(&mut sandbox).await;
        loop {
            self.shared.lives.enter(&self.uid, Stage::Ended);
            end = match end {
                End::Gone => return,
                End::Deletion => {
                    if sandbox.has_started() {
                        sandbox.end_all(0, "Completed", Timestamp::now());
                        self.publish(&mut sandbox).await;
                    }
                    self.remove().await;
                    return;
                }
                End::Evicted(message) => {
                    sandbox.end_all(KILLED, "Error", Timestamp::now());
                    sandbox.fail("Evicted", &message);
                    self.publish(&mut sandbox).await;
                    End::Over
                }
                End::Refused(reason) => {
                    sandbox.refuse(reason);
                    self.publish(&mut sandbox).await;
                    End::Over
                }
                End::Over => match self.interrupt().await {
                    Interrupt::Gone => End::Gone,
                    Interrupt::Deletion(_) => {
                        self.remove().await;
                        return;
                    }
                    Interrupt::Control(Control::NodeLost) => End::Lost,
                    Interrupt::Control(_) => End::Over,
                },
                End::Lost => match self.interrupt().await {
                    Interrupt::Gone => End::Gone,
                    Interrupt::Control(Control::NodeBack) => {
                        // After a reboot a kubelet finds nothing of its containers.
                        sandbox.end_all(KILLED, "ContainerStatusUnknown", Timestamp::now());
                        if self.grace.is_some() {
                            End::Deletion
                        } else {
                            sandbox.fail("NodeLost", "The node was restarted.");
                            self.publish(&mut sandbox).await;
                            End::Over
                        }
                    }
                    Interrupt::Deletion(_) | Interrupt::Control(_) => End::Lost,
                },
            };
        }
    }

    async fn live(&mut self, sandbox: &mut Sandbox) -> End {
        let phase = self.pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return End::Over;
        }
        self.shared.lives.enter(&self.uid, Stage::Starting);
        let environment = match self.prepare(sandbox).await {
            Ok(environment) => environment,
            Err(end) => return end,
        };
        sandbox.start(&self.pod, Timestamp::now());
        let mut restarts = 0_u32;
        loop {
            self.shared.lives.start(&self.uid);
            self.publish(sandbox).await;
            let (exit_code, reason) = match self.supervise(&environment, sandbox).await {
                RunnerEnd::Exited(exit) => (exit.code, if exit.code == 0 { "Completed" } else { "Error" }),
                RunnerEnd::Killed(reason, code) => (code, reason),
                RunnerEnd::Pod(end) => return end,
            };
            sandbox.end_runner(exit_code, reason, Timestamp::now());
            if self.grace.is_some() {
                return End::Deletion;
            }
            if !sandbox.policy().restarts_after(exit_code) {
                break;
            }
            // The first restart comes at once, the later ones after a pause that doubles.
            if restarts > 0 {
                sandbox.hold_runner("CrashLoopBackOff", "back-off restarting failed container");
                self.publish(sandbox).await;
                let pause = self.shared.options.restart_pause * 2_u32.saturating_pow((restarts - 1).min(5));
                if let Err(end) = self.uninterrupted(sleep(pause)).await {
                    return end;
                }
            }
            restarts += 1;
            sandbox.restart_runner(Timestamp::now());
        }
        self.shared.lives.enter(&self.uid, Stage::Ended);
        self.publish(sandbox).await;
        if sandbox.is_over() {
            return End::Over;
        }
        // Sidecars go on after the runner; nothing but an interruption ends them.
        match self.uninterrupted(std::future::pending::<()>()).await {
            Ok(()) => End::Over,
            Err(end) => end,
        }
    }

    /// Everything up to the start of the containers.
    async fn prepare(&mut self, sandbox: &mut Sandbox) -> Result<Environment, End> {
        self.trouble = self.shared.troubles.meet(&self.pod);
        if let Some((_, Trouble::Refused(reason))) = self.trouble {
            return Err(End::Refused(reason));
        }
        let mut delay = self.shared.options.start_delay.of(&self.uid);
        if let Some((_, Trouble::SlowStart(more))) = &self.trouble {
            delay += *more;
        }
        if !delay.is_zero() {
            self.publish(sandbox).await;
            self.uninterrupted(sleep(delay)).await?;
        }
        let shared = Arc::clone(&self.shared);
        let mut waiting = None;
        let home = shared.options.local_volumes.then(|| self.node.clone());
        loop {
            let pod = Arc::clone(&self.pod);
            let mounting = shared.mounts.mount(&shared.client, &pod, home.as_deref());
            let Err(why) = self.uninterrupted(mounting).await? else { break };
            if waiting.as_ref() != Some(&why) {
                sandbox.hold_runner("ContainerCreating", &why);
                self.publish(sandbox).await;
                waiting = Some(why);
            }
            self.uninterrupted(sleep(shared.options.retry_pause)).await?;
        }
        match self.trouble.clone() {
            Some((id, Trouble::ImagePull)) => {
                let image = self.runner_image();
                let message = format!("failed to pull and unpack image {image:?}: not found");
                sandbox.hold_runner("ErrImagePull", &message);
                self.publish(sandbox).await;
                let healed = tokio::time::timeout(shared.options.retry_pause, shared.troubles.healed(id));
                if self.uninterrupted(healed).await?.is_err() {
                    sandbox.hold_runner("ImagePullBackOff", &format!("Back-off pulling image {image:?}"));
                    self.publish(sandbox).await;
                    self.uninterrupted(shared.troubles.healed(id)).await?;
                }
            }
            Some((id, Trouble::ContainerConfig(message))) => {
                sandbox.hold_runner("CreateContainerConfigError", &message);
                self.publish(sandbox).await;
                self.uninterrupted(shared.troubles.healed(id)).await?;
            }
            _ => {}
        }
        let mut reported = None;
        loop {
            let pod = Arc::clone(&self.pod);
            let error = match self.uninterrupted(resolve_all(&shared, &pod, &self.node.clone())).await? {
                Ok(environment) => return Ok(environment),
                Err(error) => error,
            };
            if reported.as_ref() != Some(&error) {
                sandbox.hold_runner("CreateContainerConfigError", &error.to_string());
                self.publish(sandbox).await;
                reported = Some(error);
            }
            self.uninterrupted(sleep(shared.options.retry_pause)).await?;
        }
    }

    fn runner_image(&self) -> String {
        let containers = self.pod.spec.iter().flat_map(|spec| &spec.containers);
        containers.filter(|container| container.name == RUNNER).find_map(|c| c.image.clone()).unwrap_or_default()
    }

    /// Runs the agent once, to its own end or that of the pod.
    async fn supervise(&mut self, environment: &Environment, sandbox: &mut Sandbox) -> RunnerEnd {
        let shared = Arc::clone(&self.shared);
        let uid = self.uid.clone();
        let reports = report::is_enabled(environment);
        let job_pods = job_pod::is_enabled(environment);
        let hooks_failed = AtomicBool::new(false);
        // A runner makes a few steps per job, and each is taken out before the next.
        let (steps_sender, mut steps) = mpsc::channel(8);
        // The agent has a worker process for its job, and at no other time.
        let (worker, mut work) = watch::channel(false);
        let tell = |progress| {
            worker.send_replace(matches!(progress, Progress::Job(_)));
            match progress {
                Progress::Registering => {}
                Progress::Registered | Progress::JobDone => shared.lives.enter(&uid, Stage::Idle),
                Progress::Job(job) => shared.lives.job(&uid, job),
            }
            if reports || job_pods {
                // Full means that the API server does not answer, and the image would lose its report too.
                let _ = steps_sender.try_send(progress);
            }
        };
        let pod = Arc::clone(&self.pod);
        let has_docker = environment.get("DOCKERD_IN_RUNNER").is_some_and(|value| value == "true")
            || self.pod.spec.iter().flat_map(|spec| &spec.containers).any(|container| container.name == "docker");
        let mut agent = Agent::new(&shared.github, &shared.options.pace, environment, has_docker, &hooks_failed, tell);
        let run_hooks = async |step: Progress| {
            if reports {
                report::write(&shared, &pod, step).await;
            }
            match step {
                Progress::Job(_) if job_pods => {
                    let prepared = job_pod::prepare(&shared, &pod, environment).await;
                    hooks_failed.store(!prepared, Ordering::Relaxed);
                }
                Progress::JobDone if job_pods => job_pod::clean_up(&shared, &pod, environment).await,
                _ => {}
            }
        };
        let terminated = CancellationToken::new();
        let trouble = self.trouble.clone().filter(|(id, _)| shared.troubles.is_active(*id));
        let mut kill_at: Option<Instant> = None;
        let mut cause = Cause::Deleted;
        let mut ends = false;
        let mut probes =
            probe::period(&self.pod).map(|period| tokio::time::interval(shared.options.pace.second * seconds(period)));
        if let Some(probes) = &mut probes {
            probes.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        }
        let end = {
            let process = async {
                match trouble {
                    Some((_, Trouble::ExitsAtOnce(code))) => return Exit { code, cut: None },
                    Some((id, Trouble::NeverRegisters)) => shared.troubles.healed(id).await,
                    _ => {}
                }
                // The hook's scripts run between the steps of the agent, which waits for them.
                let running = agent.run(&terminated);
                tokio::pin!(running);
                let exit = loop {
                    tokio::select! {
                        biased;
                        Some(step) = steps.recv() => run_hooks(step).await,
                        exit = &mut running => break exit,
                    }
                };
                while let Ok(step) = steps.try_recv() {
                    run_hooks(step).await;
                }
                exit
            };
            tokio::pin!(process);
            loop {
                tokio::select! {
                    biased;
                    exit = &mut process => break RunnerEnd::Exited(exit),
                    () = at(kill_at) => break RunnerEnd::Killed("Error", KILLED),
                    // The hook has ended: the signal follows.
                    () = without_worker(&mut work), if ends && !terminated.is_cancelled() => terminated.cancel(),
                    () = tick(probes.as_mut()) => {
                        if sandbox.probe_runner(!*worker.borrow()) {
                            self.publish(sandbox).await;
                        }
                    }
                    interrupt = self.interrupt() => match interrupt {
                        Interrupt::Deletion(grace) => {
                            ends = true;
                            if !probe::waits_for_worker(&self.pod) {
                                terminated.cancel();
                            }
                            let end = Instant::now() + grace;
                            kill_at = Some(kill_at.map_or(end, |earlier| earlier.min(end)));
                            cause = match disruption(&self.pod) {
                                Some(reason) => Cause::Disrupted(reason),
                                None if grace.is_zero() => Cause::ForceDeleted,
                                None => Cause::Deleted,
                            };
                        }
                        Interrupt::Gone => {
                            cause = Cause::ForceDeleted;
                            break RunnerEnd::Pod(End::Gone);
                        }
                        Interrupt::Control(Control::Crash(code)) => {
                            cause = Cause::Crashed;
                            break RunnerEnd::Killed("Error", code);
                        }
                        Interrupt::Control(Control::OutOfMemory) => {
                            cause = Cause::OutOfMemory;
                            break RunnerEnd::Killed("OOMKilled", KILLED);
                        }
                        Interrupt::Control(Control::Evict(message)) => {
                            cause = Cause::Evicted;
                            break RunnerEnd::Pod(End::Evicted(message));
                        }
                        Interrupt::Control(Control::NodeLost) => {
                            cause = Cause::NodeLost;
                            break RunnerEnd::Pod(End::Lost);
                        }
                        Interrupt::Control(Control::NodeBack) => {}
                    },
                }
            }
        };
        let cancelled = if let RunnerEnd::Exited(exit) = &end { exit.cut } else { None };
        let cut = cancelled.or_else(|| agent.job().filter(|&job| is_in_progress(&shared.github, job)));
        if let Some(job) = cut {
            self.record(job, cause);
        }
        end
    }

    fn record(&self, job: JobId, cause: Cause) {
        super::lock(&self.shared.kills).push(BusyKill {
            namespace: self.pod.namespace().unwrap_or_default(),
            pod: self.pod.name_any(),
            uid: self.uid.clone(),
            node: self.node.clone(),
            job,
            cause,
            at: Timestamp::now(),
        });
    }

    /// The outcome of `work`, unless the pod ends first.
    async fn uninterrupted<T>(&mut self, work: impl Future<Output = T>) -> Result<T, End> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                interrupt = self.interrupt() => match interrupt {
                    Interrupt::Gone => return Err(End::Gone),
                    Interrupt::Deletion(_) => return Err(End::Deletion),
                    Interrupt::Control(Control::Evict(message)) => return Err(End::Evicted(message)),
                    Interrupt::Control(Control::NodeLost) => return Err(End::Lost),
                    // There is no process to hit.
                    Interrupt::Control(Control::Crash(_) | Control::OutOfMemory | Control::NodeBack) => {}
                },
                outcome = &mut work => return Ok(outcome),
            }
        }
    }

    /// The next interruption. Safe to cancel.
    async fn interrupt(&mut self) -> Interrupt {
        loop {
            if let Some(grace) = self.news_of_deletion() {
                return Interrupt::Deletion(grace);
            }
            tokio::select! {
                biased;
                () = self.gone.cancelled() => return Interrupt::Gone,
                control = self.control.recv() => return control.map_or(Interrupt::Gone, Interrupt::Control),
                changed = self.updates.changed() => if changed.is_err() { return Interrupt::Gone },
            }
        }
    }

    /// The grace period of a deletion that is new, or shorter than known.
    fn news_of_deletion(&mut self) -> Option<Duration> {
        self.pod = Arc::clone(&self.updates.borrow_and_update());
        self.pod.metadata.deletion_timestamp.as_ref()?;
        let grace = self.pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
        if self.grace.is_some_and(|known| known <= grace) {
            return None;
        }
        self.grace = Some(grace);
        Some(self.shared.options.pace.second * u32::try_from(grace).unwrap_or(0))
    }

    /// Writes the pod's status.
    async fn publish(&self, sandbox: &mut Sandbox) {
        let patch = sandbox.patch(&self.pod, Timestamp::now());
        let write = self.shared.patch_status(&self.pod, &patch);
        tokio::select! {
            () = self.gone.cancelled() => {}
            () = write => {}
        }
    }

    /// Deletes the object, as a kubelet does once everything in it has ended.
    async fn remove(&self) {
        tokio::select! {
            () = self.gone.cancelled() => {}
            () = self.shared.remove(&self.pod) => {}
        }
    }
}

/// Resolves the environment of every container; that of the runner is the result.
async fn resolve_all(shared: &Shared, pod: &Pod, node: &str) -> Result<Environment, EnvironmentError> {
    let mut runner = Environment::new();
    for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
        let environment = environment::resolve(&shared.references, pod, container, node).await?;
        if container.name == RUNNER {
            runner = environment;
        }
    }
    Ok(runner)
}

/// Waits until there is no worker process.
async fn without_worker(work: &mut watch::Receiver<bool>) {
    // Its sender lives as long as the agent.
    drop(work.wait_for(|works| !works).await);
}

/// Waits for the next tick; for ever where there is none.
async fn tick(interval: Option<&mut tokio::time::Interval>) {
    match interval {
        Some(interval) => drop(interval.tick().await),
        None => std::future::pending().await,
    }
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

/// Whether GitHub still waits for that job's end: nobody cancelled it meanwhile.
fn is_in_progress(github: &SimGitHub, job: JobId) -> bool {
    github.view(|view| view.job(job).is_some_and(|job| job.state != JobState::Completed))
}

/// Reason of the condition that announces a disruption.
fn disruption(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let target = conditions.iter().find(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True")?;
    Some(target.reason.clone().unwrap_or_default())
}
