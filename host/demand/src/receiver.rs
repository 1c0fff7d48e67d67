//! Webhooks: from a delivery to an entry in the ledger of the autoscaler that its job belongs to.
//!
//! ```text
//! delivery --signature--> authentic --> event --effect--> what it means --known or search--> autoscaler --Ledgers--> in the cluster --> answer
//! ```
//!
//! A 2xx about a job is given only once the job is in a ledger. Everything is idempotent, so GitHub, or anybody, may deliver again whatever
//! was answered otherwise. The transport is the caller's: this knows methods, headers and bodies only.
//!
//! Read first: [`Receiver::deliver`].

mod answer;
mod autoscalers;
mod effect;
mod job_metrics;
mod metrics;
mod visibility;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, StatusCode};
use jiff::Timestamp;
use kube::{Resource as _, ResourceExt};
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_core::ledger::{Change, JobEvent, State};
use pacer_core::target::{Choice, Reach, Search, Visibility, Wanted, Why, search};
use pacer_github::webhook::{Account, Check, Delivery, Event, Ping, Refusal, Signed, Verifier, WorkflowJob, open_signed};
use tokio::sync::Semaphore;

use crate::ledger::{LedgerError, Ledgers};

pub use answer::Answer;
pub use autoscalers::{Autoscalers, Proof, Stores, Watches, watches};
pub use job_metrics::{JobLabel, JobMetricsSettings};
pub use metrics::{ReceiverMetrics, WAITS};
pub use visibility::{RunnerGroups, VisibleGroups};

use effect::Effect;
use metrics::Outcome;

/// Longest time until a job has to be in its ledger. GitHub gives a delivery up after ten seconds, and shows what was answered before.
const PATIENCE: Duration = Duration::from_secs(8);

/// When to try again what was refused because there is too much to do, or because the cluster is still being read.
const SOON: Duration = Duration::from_secs(1);

/// When to try again what did not get into a ledger for lack of time or room.
const LATER: Duration = Duration::from_secs(5);

/// When to try again what is probably for an autoscaler whose scope is not proved yet.
const PROVED: Duration = Duration::from_secs(10);

/// Autoscalers that an answer or a log line names at most.
const NAMED: usize = 5;

/// Takes GitHub's webhook deliveries, writes their jobs into ledgers, and answers.
pub struct Receiver {
    verifier: Verifier,
    autoscalers: Autoscalers,
    visible: VisibleGroups,
    common_labels: Vec<String>,
    ledgers: Ledgers,
    work: Semaphore,
    metrics: ReceiverMetrics,
    job_metrics: JobMetricsSettings,
}

/// What a receiver is made of.
pub struct Parts {
    /// Checks the signatures of deliveries with the webhook secrets.
    pub verifier: Verifier,
    /// Autoscalers and their targets.
    pub autoscalers: Autoscalers,
    /// Which runner groups repositories may use.
    pub visible: VisibleGroups,
    /// Labels that all runners have (`--common-runner-labels`).
    pub common_labels: Vec<String>,
    /// Where jobs are written.
    pub ledgers: Ledgers,
    /// Deliveries that are worked on at a time (`--queue-limit`); more are refused until one is done.
    pub limit: u16,
    /// Metrics of deliveries and of the jobs in them.
    pub metrics: ReceiverMetrics,
    /// What is counted about jobs.
    pub job_metrics: JobMetricsSettings,
}

/// Where the events of one job go.
struct Found {
    autoscaler: Arc<HorizontalRunnerAutoscaler>,
    how: How,
    /// Others that would do, as `namespace/name`, the preferred ones first.
    others: Vec<String>,
}

/// What a search for the autoscaler of a job came to.
enum Searched {
    Found(Found),
    /// This one would be chosen, and the operator is about to prove its scope.
    Pending(String),
    /// There is none; the log says why.
    None,
}

/// Why an autoscaler was chosen.
enum How {
    /// The job is in its ledger.
    Known,
    /// Its runners will get the job.
    Search(Reach),
}

impl Receiver {
    /// A receiver of these parts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        parts.metrics.read_from(parts.autoscalers.filled());
        Self {
            verifier: parts.verifier,
            autoscalers: parts.autoscalers,
            visible: parts.visible,
            common_labels: parts.common_labels,
            ledgers: parts.ledgers,
            work: Semaphore::new(usize::from(parts.limit)),
            metrics: parts.metrics,
            job_metrics: parts.job_metrics,
        }
    }

    /// Waits until autoscalers and targets are known. False when a watch ended before.
    pub async fn ready(&self) -> bool {
        self.autoscalers.full().await
    }

    /// Reads autoscalers, targets and jobs from these stores from now on. They have to be full.
    pub fn read_from(&self, stores: Stores) {
        self.ledgers.read_from(stores.job_ledgers.clone());
        self.metrics.read_from(stores.filled.clone());
        self.autoscalers.read_from(stores);
    }

    /// Drops what belongs to autoscalers that are gone.
    pub fn tidy(&self) {
        if !self.autoscalers.is_full() {
            return;
        }
        let all = self.autoscalers.all();
        let uids: HashSet<&str> = all.iter().filter_map(|one| one.metadata.uid.as_deref()).collect();
        self.ledgers.retain(|uid| uids.contains(uid.as_str()));
        let names: HashSet<(&str, &str)> =
            all.iter().filter_map(|one| Some((one.metadata.namespace.as_deref()?, one.metadata.name.as_deref()?))).collect();
        self.metrics.retain(|namespace, name| names.contains(&(namespace, name)));
    }

    /// Answers a request that delivers nothing.
    #[must_use]
    pub fn tell(&self, method: &Method) -> Answer {
        match *method {
            Method::GET | Method::HEAD => Answer::ok("webhook server is running\n"),
            _ => Answer::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "send POST to deliver a webhook, or GET to see whether this server runs\n",
            ),
        }
    }

    /// Begins to check the signature of a delivery, before its body is read.
    ///
    /// # Errors
    ///
    /// The answer to a delivery whose signature is missing or is none.
    pub fn begin(&self, headers: &HeaderMap) -> Result<Check, Answer> {
        self.verifier.begin(headers).map_err(|error| self.refused(headers, &error.into(), Duration::ZERO))
    }

    /// Ends the check of a signature.
    ///
    /// # Errors
    ///
    /// The answer to a delivery that is not GitHub's.
    pub fn finish(&self, headers: &HeaderMap, check: Check) -> Result<Signed, Answer> {
        check.finish().map_err(|error| self.refused(headers, &error.into(), Duration::ZERO))
    }

    /// The answer to a request that never got a body, and its place in the counts.
    #[must_use]
    pub fn refuse(&self, status: StatusCode, why: &str) -> Answer {
        self.metrics.count(None, if status.is_server_error() { Outcome::Unavailable } else { Outcome::Refused }, Duration::ZERO);
        let answer = Answer::new(status, why);
        if status == StatusCode::SERVICE_UNAVAILABLE { answer.again_after(SOON) } else { answer }
    }

    fn refused(&self, headers: &HeaderMap, refusal: &Refusal, took: Duration) -> Answer {
        let status = refusal.status();
        // Without the header it is a scanner, of which every public address sees many.
        if headers.contains_key("x-github-event") {
            tracing::warn!(status = status.as_u16(), %refusal, "delivery refused");
        } else {
            tracing::debug!(status = status.as_u16(), %refusal, "delivery refused");
        }
        self.metrics.count(None, Outcome::Refused, took);
        Answer::new(status, &format!("{refusal}\n"))
    }

    /// Answers a delivery whose body has been read. Safe to be dropped at any time: what was not answered may or may not be in a ledger.
    pub async fn deliver(&self, signed: Signed, headers: &HeaderMap, body: &[u8]) -> Answer {
        let begun = Instant::now();
        let Ok(_permit) = self.work.try_acquire() else {
            return self
                .refuse(StatusCode::SERVICE_UNAVAILABLE, "too many events are in work (--queue-limit); deliver it again\n");
        };
        let delivery = match open_signed(signed, headers, body) {
            Ok(delivery) => delivery,
            Err(refusal) => return self.refused(headers, &refusal, begun.elapsed()),
        };
        let (answer, outcome) = match &delivery.event {
            Event::Ping(ping) => {
                greet(&delivery, ping);
                (Answer::ok("pong"), Outcome::Ignored)
            }
            Event::Other(name) => {
                tracing::debug!(event = name, delivery = delivery.guid, hook = delivery.hook, "event of no use");
                (Answer::ok(""), Outcome::Ignored)
            }
            Event::WorkflowJob(job) => {
                self.metrics.jobs().observe(job, &self.job_metrics);
                self.job(&delivery, job).await
            }
        };
        self.metrics.count(Some(&delivery.event), outcome, begun.elapsed());
        answer
    }

    async fn job(&self, delivery: &Delivery, job: &WorkflowJob) -> (Answer, Outcome) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let effect = effect::of(job, Timestamp::now());
        if matches!(effect, Effect::Nothing) {
            return (Answer::ok(""), Outcome::Ignored);
        }
        if !self.autoscalers.is_full() {
            let why = "the autoscalers are not known yet, this server has just started; deliver it again\n";
            return (Answer::new(StatusCode::SERVICE_UNAVAILABLE, why).again_after(SOON), Outcome::Unavailable);
        }
        let (event, only_known) = match effect {
            Effect::Nothing => return (Answer::ok(""), Outcome::Ignored),
            Effect::Record(event) => (event, false),
            Effect::RecordIfKnown(event) => (event, true),
        };
        let known = self.autoscalers.knowing(job.id, &self.ledgers.knowing(job.id)).map(|autoscaler| Found {
            autoscaler,
            how: How::Known,
            others: Vec::new(),
        });
        let searched = match known {
            None if only_known => return (Answer::ok(""), Outcome::Ignored),
            None => self.search(delivery, job).await,
            Some(known) => Searched::Found(known),
        };
        match searched {
            Searched::Found(found) => self.record(delivery, job, event, &found, deadline).await,
            Searched::Pending(name) => {
                tracing::info!(
                    job = job.id,
                    autoscaler = name,
                    delivery = delivery.guid,
                    "the scope of this autoscaler is not proved yet"
                );
                let why = format!("the scope of {name} is being proved: see its condition ScopeProved; deliver it again\n");
                (Answer::new(StatusCode::SERVICE_UNAVAILABLE, &why).again_after(PROVED), Outcome::Unavailable)
            }
            Searched::None => (Answer::ok("no horizontalrunnerautoscaler to scale for this github event"), Outcome::NoTarget),
        }
    }

    /// The autoscaler whose runners will get the job; why there is none goes to the log.
    async fn search(&self, delivery: &Delivery, job: &WorkflowJob) -> Searched {
        let mut pool = self.autoscalers.pool(Timestamp::now());
        pool.members.retain(|member| member.is_at(job.repository.url.as_deref()));
        let candidates: Vec<_> = pool.members.iter().map(|member| member.candidate(&self.common_labels)).collect();
        let repository = &job.repository;
        let wanted = Wanted {
            owner: &repository.owner,
            repository: &repository.name,
            owner_is_user: repository.account == Account::User,
            enterprise: job.enterprise.as_deref(),
            labels: job.labels.iter().map(String::as_str).collect(),
        };
        let mut outcome = search(&wanted, &candidates, None);
        if outcome == Search::Ask {
            let visibility = self.visible.to(&repository.owner, &repository.name).await;
            outcome = search(&wanted, &candidates, Some(&visibility));
        }
        let name = |index: usize| pool.members.get(index).map_or_else(String::new, |member| full_name(&member.autoscaler));
        let why = match outcome {
            Search::Found(Choice { index, reach, others }) => {
                let Some(autoscaler) = pool.members.get(index).map(|member| member.autoscaler.clone()) else {
                    return Searched::None;
                };
                let others = others.into_iter().map(name).collect();
                return Searched::Found(Found { autoscaler, how: How::Search(reach), others });
            }
            // Asked for what was given: it can't happen, and nothing is lost by saying that there is no target.
            Search::Ask | Search::None(Why::Reach) => "none has runners where this repository's jobs may run".to_owned(),
            Search::None(Why::Labels { nearest, missing }) => {
                format!("{} comes closest; its runners lack the labels {missing:?}", name(nearest))
            }
            Search::None(Why::Hidden { nearest }) => {
                format!("{} would do, but its runner group is not open to this repository", name(nearest))
            }
        };
        // Whoever has proved nothing takes no job from one that has: it is asked last, and a question to GitHub is not spent on it.
        let pending: Vec<_> = pool.pending.iter().map(|member| member.candidate(&self.common_labels)).collect();
        if let Search::Found(Choice { index, .. }) = search(&wanted, &pending, Some(&Visibility::Assumed))
            && let Some(member) = pool.pending.get(index)
        {
            return Searched::Pending(full_name(&member.autoscaler));
        }
        let broken = pool.broken.join("; ");
        tracing::info!(
            job = job.id, action = ?job.action, owner = repository.owner, repository = repository.name, labels = ?job.labels,
            delivery = delivery.guid, why, broken, "no autoscaler for this job"
        );
        Searched::None
    }

    async fn record(
        &self,
        delivery: &Delivery,
        job: &WorkflowJob,
        event: JobEvent,
        found: &Found,
        deadline: tokio::time::Instant,
    ) -> (Answer, Outcome) {
        let autoscaler = &found.autoscaler;
        let (state, waited) = (event.state, event.at.duration_since(event.queued_at));
        let life = autoscaler.spec.workflow_job_trigger().and_then(|trigger| trigger.duration_or_default().ok());
        let life = life.unwrap_or(pacer_api::autoscaler::ScaleUpTrigger::DEFAULT_DURATION);
        let begun = Instant::now();
        let name = full_name(autoscaler);
        let lasting = self.autoscalers.is_lasting(autoscaler);
        // GitHub does not deliver again by itself.
        let change = match self.ledgers.record_by(deadline, autoscaler, &event, life, lasting).await {
            Ok(recorded) => recorded.changes.first().copied().unwrap_or(Change::None),
            Err(error) => return unavailable(delivery, job, &error),
        };
        tracing::info!(
            autoscaler = name,
            job = job.id,
            action = ?job.action,
            owner = job.repository.owner,
            repository = job.repository.name,
            change = ?change,
            because = found.how.as_str(),
            others = found.others.join(","),
            delivery = delivery.guid,
            micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX),
            "job recorded"
        );
        match change {
            Change::Overflow => {
                let why = format!("the ledger of {name} is full; deliver it again\n");
                (Answer::new(StatusCode::SERVICE_UNAVAILABLE, &why).again_after(LATER), Outcome::Full)
            }
            Change::None => (accepted(found, state, job), Outcome::Known),
            Change::Added | Change::Advanced => {
                if state == State::InProgress {
                    let namespace = autoscaler.namespace().unwrap_or_default();
                    self.metrics.started(&namespace, &autoscaler.name_any(), &job.labels, waited);
                }
                (accepted(found, state, job), Outcome::Recorded)
            }
        }
    }
}

impl How {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Known => "its ledger has the job",
            Self::Search(reach) => reach.as_str(),
        }
    }
}

/// ARC's text, where it has one; others that would do are named behind it.
fn accepted(found: &Found, state: State, job: &WorkflowJob) -> Answer {
    let name = found.autoscaler.name_any();
    let mut text = match state {
        State::Queued => format!("scaled {name} by 1"),
        State::Completed => format!("scaled {name} by -1"),
        State::InProgress => format!("recorded job {} in progress for {name}", job.id),
    };
    let others = found.others.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if !others.is_empty() {
        text.push_str(&format!("; these match as well: {others}"));
    }
    Answer::ok(&text)
}

fn unavailable(delivery: &Delivery, job: &WorkflowJob, error: &LedgerError) -> (Answer, Outcome) {
    tracing::warn!(job = job.id, action = ?job.action, delivery = delivery.guid, %error, "job not recorded");
    match error.retry_after() {
        Some(wait) => {
            let answer = Answer::new(StatusCode::SERVICE_UNAVAILABLE, &format!("{error}; deliver it again\n"));
            (answer.again_after(wait), Outcome::Unavailable)
        }
        // The autoscaler went away since the search, and its demand with it.
        None => (Answer::ok("no horizontalrunnerautoscaler to scale for this github event"), Outcome::NoTarget),
    }
}

fn greet(delivery: &Delivery, ping: &Ping) {
    let (hook, guid) = (ping.hook, &delivery.guid);
    if ping.sends_jobs() {
        tracing::info!(hook, delivery = guid, "ping");
    } else {
        tracing::warn!(hook, delivery = guid, events = ?ping.events, "ping of a webhook that sends no workflow_job events; choose \"Workflow jobs\" in its settings");
    }
}

fn full_name(autoscaler: &HorizontalRunnerAutoscaler) -> String {
    let meta = autoscaler.meta();
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}
