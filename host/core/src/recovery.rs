//! Jobs that died with their runners: which of them may run again, when GitHub is asked to do so, and what its answers mean.
//!
//! ```text
//! a runner ended -> proof (its pod) -> the job that the ledger says it ran -> policy -> budget -> Rerun, kept in the cluster
//!    -> look (the job and its run at GitHub): wait | ask | give up | it was run again already
//! ```
//!
//! A job's own failure is never run again: the pod has to prove what ended the runner, the agent must not have ended by itself, and GitHub must have
//! found the end of the job after the runner's. No job is run again twice: that GitHub is about to be asked is kept before it is asked, and the number of the
//! run's attempt, which grows with every rerun, whoever asked for it, tells afterwards whether it did it.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::facts::{Container, Disruption, PodFacts, PodPhase};
use crate::ledger::{self, Job, Ledger, State};
use crate::policy::{DeadJob, Recovery};
use crate::reads::{Fact, Reads};
use crate::scale_down::since;

/// How long until GitHub is looked at for the first time, and then again; doubled from look to look. GitHub finds a lost runner after some ten minutes
/// (github-behaviour: rerun, 403 until the whole run has ended).
const FIRST_LOOK: Duration = Duration::from_secs(15);

/// The shortest time until a call that had to wait for its turn is tried again.
const SOON: Duration = Duration::from_secs(1);

/// The longest time between two looks.
const LONGEST_LOOK: Duration = Duration::from_secs(300);

/// How long the end of the run is waited for. Other jobs of it may go on for hours.
const PATIENCE: SignedDuration = SignedDuration::from_hours(6);

/// How often GitHub is asked at most. More than once only where its answer was lost, or it was early.
const ASKS: u32 = 3;

/// How long after a question its effect may not show yet.
const SETTLING: Duration = Duration::from_secs(60);

/// Reruns that one RunnerReplicaSet remembers.
pub const LIMIT: usize = 64;

/// How long a rerun that is over is remembered: what is counted over an hour, and asked about for a while.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);

/// Codes with which a process ends that was killed: 128 and SIGKILL or SIGTERM. With any other the agent ended by itself.
const KILLED: [i32; 2] = [137, 143];

/// What ended a runner, where its pod proves that its job did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// Its node is gone.
    NodeLost,
    /// The kubelet evicted it, or its node was shut down.
    Evicted,
    /// It had to make room for a pod of higher priority.
    Preempted,
    /// It used more memory than it may.
    OomKilled,
}

impl Proof {
    /// All proofs, for instance for metrics by cause.
    pub const ALL: [Self; 4] = [Self::NodeLost, Self::Evicted, Self::Preempted, Self::OomKilled];

    /// Name of the cause in the contract of policies, such as `node-lost`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NodeLost => "node-lost",
            Self::Evicted => "evicted",
            Self::Preempted => "preempted",
            Self::OomKilled => "oom-killed",
        }
    }

    /// The same for people, after "its runner".
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::NodeLost => "lost its node",
            Self::Evicted => "was evicted",
            Self::Preempted => "was preempted",
            Self::OomKilled => "used more memory than it may",
        }
    }
}

/// What the pod of a runner proves; none where the job in it may have ended it, where it is not over, and where nobody can tell. `gone` is a pod whose object
/// was deleted: what it says is the last that was seen of it.
#[must_use]
pub fn proof(pod: &PodFacts, gone: bool) -> Option<Proof> {
    let (exit, container) = match &pod.container {
        Container::Terminated { exit_code, reason, .. } => (Some(*exit_code), reason.as_str()),
        _ => (None, ""),
    };
    let over = gone || pod.node_gone || pod.stopped();
    let by_itself = pod.phase == PodPhase::Succeeded || exit.is_some_and(|code| !KILLED.contains(&code));
    if !over || by_itself || !pod.may_have_started() {
        return None;
    }
    match pod.reason.as_str() {
        "Preempting" => return Some(Proof::Preempted),
        // `Terminated` is what the kubelet writes to a pod when its node shuts down in an orderly way.
        "Evicted" | "TerminationByKubelet" | "Shutdown" | "NodeShutdown" | "Terminated" => return Some(Proof::Evicted),
        "NodeLost" => return Some(Proof::NodeLost),
        _ => {}
    }
    if container == "OOMKilled" {
        return Some(Proof::OomKilled);
    }
    if pod.node_gone && exit.is_none() {
        return Some(Proof::NodeLost);
    }
    pod.disruption.map(|disruption| match disruption {
        Disruption::NodeLost => Proof::NodeLost,
        Disruption::Evicted => Proof::Evicted,
        Disruption::Preempted => Proof::Preempted,
    })
}

/// When the runner in a pod ended. Where nobody noted it, the latest time that it can have been: now.
#[must_use]
pub fn died(pod: &PodFacts, now: Timestamp) -> Timestamp {
    let finished = match &pod.container {
        Container::Terminated { finished, .. } => *finished,
        _ => None,
    };
    finished.or(pod.silent_since).unwrap_or(now).min(now)
}

/// The jobs that a ledger says runners ran when they died; none of a runner of which it says that of several.
#[derive(Clone, Debug, Default)]
pub struct JobsOf<'a>(HashMap<&'a str, Option<(u64, &'a Job)>>);

impl<'a> JobsOf<'a> {
    /// Of these runners, by when each died. Looks at every job once, however many runners there are. A job that ended later than its runner is that job as
    /// well: the event that names the runner may come when the runner is gone, or not at all, and then the job ends for the ledger before anybody has seen
    /// it run.
    #[must_use]
    pub fn find(ledger: &'a Ledger, died: &HashMap<&str, Timestamp>) -> Self {
        let mut found: HashMap<&str, Option<(u64, &Job)>> = HashMap::new();
        for (id, job) in ledger.all() {
            let Some((runner, died)) = job.runner.as_deref().and_then(|runner| Some((runner, died.get(runner)?))) else {
                continue;
            };
            let ran = match job.state {
                State::Queued => false,
                State::InProgress => true,
                State::Completed => job.since >= ledger::whole(*died),
            };
            if ran {
                found.entry(runner).and_modify(|several| *several = None).or_insert(Some((id, job)));
            }
        }
        Self(found)
    }

    /// That of a runner.
    #[must_use]
    pub fn get(&self, runner: &str) -> Option<(u64, &'a Job)> {
        self.0.get(runner).copied().flatten()
    }
}

/// A job whose runner was ended by something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// GitHub's id of the job.
    pub job: u64,
    /// What the ledger knows of it.
    pub known: Job,
    /// Name of the runner that the job died with.
    pub runner: String,
    /// What ended the runner.
    pub proof: Proof,
    /// What the cluster says.
    pub message: String,
    /// When the runner ended, by [`died`].
    pub died: Timestamp,
}

impl Victim {
    /// Of a runner's pod and the jobs of its pool; none where there is nothing to recover. See [`proof`]. `died` is when the runner [died].
    #[must_use]
    pub fn of(runner: &str, pod: &PodFacts, gone: bool, jobs: &JobsOf<'_>, died: Timestamp) -> Option<Self> {
        let proof = proof(pod, gone)?;
        let (job, known) = jobs.get(runner)?;
        let message = if pod.message.is_empty() { pod.reason.clone() } else { pod.message.clone() };
        Some(Self { job, known: known.clone(), runner: runner.to_owned(), proof, message, died })
    }

    /// What a policy that reads this is told of it.
    #[must_use]
    pub fn dead_job(&self, node: Option<u32>, reads: &Reads, now: Timestamp) -> DeadJob {
        let (about, origin) = (&self.known.about, &self.known.origin);
        DeadJob {
            id: self.job,
            run: origin.run,
            attempt: about.attempt,
            repository: about.repository.to_string(),
            workflow: about.workflow.to_string(),
            labels: about.labels.iter().map(ToString::to_string).collect(),
            runner: self.runner.clone(),
            cause: self.proof.as_str().to_owned(),
            message: self.message.clone(),
            since: since(self.died, now),
            ran: since(self.known.since, self.died),
            recoveries: about.attempt.saturating_sub(1),
            node,
            attributes: if reads.has(Fact::Job) { origin.attributes() } else { Vec::new() },
        }
    }
}

/// How many jobs may be run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Reruns of one workflow run, those that others asked for included.
    pub per_run: u32,
    /// Reruns of one pool within an hour.
    pub per_hour: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Self { per_run: 1, per_hour: 10 }
    }
}

/// Why a job stays failed although its policy wants it to run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It was decided about before.
    Known,
    /// Its run has had as many attempts as it may have.
    Run {
        /// Attempt of the run in which the job died.
        attempts: u32,
    },
    /// The pool has had as many reruns as an hour may have.
    Hour {
        /// Reruns that a pool may have within an hour: [`Budget::per_hour`].
        most: u32,
    },
    /// More are under way than are remembered.
    Full,
    /// It belongs to a repository that the runner's credentials are not for.
    Foreign,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known => f.write_str("it was decided about before"),
            Self::Run { attempts } => {
                write!(f, "it died in attempt {attempts} of its run, and no further attempt is in the budget")
            }
            Self::Hour { most } => write!(f, "{most} jobs of this pool were run again within the last hour, which is its budget"),
            Self::Full => write!(f, "{LIMIT} jobs of this pool are being run again"),
            Self::Foreign => f.write_str("its repository is not where its runner registers"),
        }
    }
}

/// Where a rerun is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// GitHub is asked when the run has ended.
    Waits,
    /// GitHub runs the job again.
    Done,
    /// The job stays failed; [`Rerun::reason`] says why.
    GivenUp,
}

/// A job that is to run again, as it is kept in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rerun {
    /// GitHub's id of the job that died.
    pub job: u64,
    /// `owner/name`.
    pub repository: String,
    /// The attempt of the run in which it died.
    pub attempt: u32,
    /// The runner that it died with.
    pub runner: String,
    /// What ended the runner.
    pub cause: Proof,
    /// When the runner ended, by [`died`].
    pub died: Timestamp,
    /// When it was decided.
    pub decided: Timestamp,
    /// When GitHub is looked at next.
    pub due: Timestamp,
    /// How often it was looked at.
    pub looks: u32,
    /// How often GitHub was, or was about to be, asked.
    pub asks: u32,
    /// How far the rerun is.
    pub stage: Stage,
    /// Why it is there, for people.
    pub reason: String,
}

/// The reruns of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reruns(Vec<Rerun>);

impl Reruns {
    /// No more than are remembered, however many somebody wrote.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.0.truncate(LIMIT);
        self
    }

    /// All of them, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Rerun> {
        self.0.iter()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rerun of a job.
    #[must_use]
    pub fn get(&self, job: u64) -> Option<&Rerun> {
        self.0.iter().find(|rerun| rerun.job == job)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, job: u64) -> Option<&mut Rerun> {
        self.0.iter_mut().find(|rerun| rerun.job == job)
    }

    /// The one to be looked at first among those that wait.
    #[must_use]
    pub fn next(&self) -> Option<&Rerun> {
        self.0.iter().filter(|rerun| rerun.stage == Stage::Waits).min_by_key(|rerun| (rerun.due, rerun.job))
    }

    /// Takes a job that a policy wants to run again, if the budget has room for it.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn admit(&mut self, victim: &Victim, verdict: &Recovery, budget: &Budget, now: Timestamp) -> Result<(), Refused> {
        if self.get(victim.job).is_some() {
            return Err(Refused::Known);
        }
        let attempt = victim.known.about.attempt;
        if attempt > budget.per_run {
            return Err(Refused::Run { attempts: attempt });
        }
        // Given up or not: GitHub may have been asked.
        let within_an_hour = |rerun: &&Rerun| now.duration_since(rerun.decided) < SignedDuration::from_hours(1);
        let counted = self.0.iter().filter(within_an_hour).count();
        if counted >= usize::try_from(budget.per_hour).unwrap_or(usize::MAX) {
            return Err(Refused::Hour { most: budget.per_hour });
        }
        self.forget(now);
        if self.0.len() >= LIMIT {
            return Err(Refused::Full);
        }
        let wait = Duration::from_secs(u64::from(verdict.after.unwrap_or_default())).max(FIRST_LOOK);
        self.0.push(Rerun {
            job: victim.job,
            repository: victim.known.about.repository.to_string(),
            attempt,
            runner: victim.runner.clone(),
            cause: victim.proof,
            died: victim.died,
            decided: now,
            due: later(now, wait),
            looks: 0,
            asks: 0,
            stage: Stage::Waits,
            reason: "GitHub is asked when the run has ended".to_owned(),
        });
        Ok(())
    }

    /// Forgets what is over and counts no more.
    fn forget(&mut self, now: Timestamp) {
        self.0.retain(|rerun| rerun.stage == Stage::Waits || now.duration_since(rerun.decided) < REMEMBERED);
        while self.0.len() >= LIMIT {
            let over =
                |rerun: &Rerun| rerun.stage != Stage::Waits && now.duration_since(rerun.decided) >= SignedDuration::from_hours(1);
            let Some(oldest) = self.0.iter().position(over) else { return };
            self.0.remove(oldest);
        }
    }
}

/// How a job or a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As a job ends whose runner is lost, and one with a step that fails.
    Failure,
    /// Somebody cancelled it.
    Cancelled,
    /// In any other way: there is nothing to recover.
    Other,
}

/// What GitHub says of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSeen {
    /// GitHub's id of the workflow run that the job is part of.
    pub run: u64,
    /// The runner that has or had it.
    pub runner: Option<String>,
    /// How and when it ended; none while it goes on.
    pub ended: Option<(Ending, Timestamp)>,
}

/// What GitHub says of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSeen {
    /// Number of its newest attempt.
    pub attempt: u32,
    /// How that ended; none while it goes on.
    pub ended: Option<Ending>,
}

/// What is to be done about a rerun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Look again later: the job or its run has not ended.
    Wait,
    /// Ask GitHub to run the job again.
    Ask,
    /// The run has a newer attempt.
    Done,
    /// Leave the job failed; the text says why.
    GiveUp(String),
}

/// What GitHub answered when it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It runs the job again.
    Accepted,
    /// The run has not ended.
    StillRuns,
    /// It will not do it.
    Refused(String),
    /// Nobody knows: the answer was lost.
    Lost(String),
}

impl Rerun {
    /// What follows from the job alone: whether its run is to be looked at as well, which is [`Next::Ask`].
    #[must_use]
    pub fn of_job(&self, job: Option<&JobSeen>, now: Timestamp) -> Next {
        let Some(job) = job else { return Next::GiveUp("GitHub does not know the job, or does not show it".to_owned()) };
        if job.runner.as_ref() != Some(&self.runner) {
            return Next::GiveUp("GitHub says that another runner had it".to_owned());
        }
        match job.ended {
            None => self.patiently(now),
            Some((Ending::Cancelled, _)) => Next::GiveUp("GitHub says that it was cancelled".to_owned()),
            Some((Ending::Other, _)) => Next::GiveUp("GitHub says that it did not fail".to_owned()),
            // An agent that could still tell how its job ended told it before it was gone.
            Some((Ending::Failure, at)) if at < self.died => {
                Next::GiveUp("it had failed by itself before its runner ended".to_owned())
            }
            Some((Ending::Failure, _)) => Next::Ask,
        }
    }

    /// What follows from the job's run.
    #[must_use]
    pub fn of_run(&self, run: Option<&RunSeen>, now: Timestamp) -> Next {
        match run {
            None => Next::GiveUp("GitHub does not know its run, or does not show it".to_owned()),
            Some(run) if run.attempt > self.attempt => Next::Done,
            Some(RunSeen { ended: None, .. }) => self.patiently(now),
            Some(RunSeen { ended: Some(Ending::Cancelled), .. }) => Next::GiveUp("somebody cancelled its run".to_owned()),
            Some(_) if self.asks >= ASKS => {
                Next::GiveUp(format!("GitHub was asked {} times, and did not run it again", self.asks))
            }
            Some(_) => Next::Ask,
        }
    }

    fn patiently(&self, now: Timestamp) -> Next {
        if now.duration_since(self.decided) < PATIENCE {
            return Next::Wait;
        }
        Next::GiveUp(format!("its run has not ended within {} h", PATIENCE.as_hours()))
    }

    /// Takes note of what was seen. [`Next::Ask`] counts as a question that is asked: it has to be kept before it is.
    pub fn looked(&mut self, next: &Next, now: Timestamp) {
        match next {
            Next::Wait => self.again(self.pause(), now),
            Next::Ask => {
                self.asks = self.asks.saturating_add(1);
                self.again(self.pause().max(SETTLING), now);
            }
            Next::Done if self.asks > 0 => self.end(Stage::Done, "GitHub runs it again".to_owned()),
            Next::Done => self.end(Stage::Done, "somebody else had its run run again".to_owned()),
            Next::GiveUp(why) => self.end(Stage::GivenUp, why.clone()),
        }
    }

    /// GitHub could not be looked at: tried again later.
    pub fn unseen(&mut self, now: Timestamp) {
        match self.patiently(now) {
            Next::GiveUp(_) => self.end(Stage::GivenUp, "GitHub could not be asked".to_owned()),
            _ => self.again(self.pause(), now),
        }
    }

    /// GitHub's limits allow no call before `wait` is over.
    pub fn postponed(&mut self, wait: Duration, now: Timestamp) {
        self.due = later(now, wait.max(SOON));
    }

    /// The question that was about to be asked could not be sent, and is asked again after `wait`.
    pub fn unsent(&mut self, wait: Duration, now: Timestamp) {
        self.asks = self.asks.saturating_sub(1);
        self.postponed(wait, now);
    }

    /// Takes note of GitHub's answer.
    pub fn answered(&mut self, reply: &Reply, now: Timestamp) {
        match reply {
            Reply::Accepted => self.end(Stage::Done, "GitHub runs it again".to_owned()),
            Reply::StillRuns => self.again(self.pause(), now),
            Reply::Refused(why) => self.end(Stage::GivenUp, format!("GitHub refuses: {why}")),
            Reply::Lost(_) => self.again(self.pause().max(SETTLING), now),
        }
    }

    /// How long until the next look.
    fn pause(&self) -> Duration {
        FIRST_LOOK.saturating_mul(1_u32 << self.looks.min(10)).min(LONGEST_LOOK)
    }

    fn again(&mut self, pause: Duration, now: Timestamp) {
        self.looks = self.looks.saturating_add(1);
        self.due = later(now, pause);
    }

    fn end(&mut self, stage: Stage, reason: String) {
        (self.stage, self.reason) = (stage, reason);
    }

    /// How long until it is due.
    #[must_use]
    pub fn wait(&self, now: Timestamp) -> Duration {
        Duration::try_from(self.due.duration_since(now)).unwrap_or_default()
    }
}

fn later(now: Timestamp, wait: Duration) -> Timestamp {
    now.checked_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
