//! Where calls wait, run and are given up, and who is asked next when one fails.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::aside::Aside;
use crate::assignment::{Assignment, Chosen};
use crate::breaker::Admission;
use crate::call::{Called, Usage};
use crate::comparisons::{Comparisons, Sides};
use crate::component::Digest;
use crate::fault::Fault;
use crate::jail::Jail;
use crate::lane::{Candidate, Lane};
use crate::limits::{Limits, TICK};
use crate::load::NO_SETTINGS;
use crate::log::Level;
use crate::observer::{Comparison, Counters, Observation, Observer, Source};
use crate::policy::Policy;
use crate::purpose::Purpose;
use crate::question::{Asked, Input, Question, natively};
use crate::receipt::{Attempt, DecidedBy, Receipt};
use crate::room::{MEBIBYTES, Room};
use crate::text::Interpreted;

/// Calls that may wait for a processor and memory; the next one gets [`Fault::QueueFull`].
pub const QUEUE: usize = 64;

/// A decision, who took it, and what it took.
#[derive(Clone, Debug)]
pub struct Evaluation<T> {
    /// The answer, checked by [`pacer_core::gate`].
    pub answer: T,
    /// The policy that gave the answer.
    pub decided_by: DecidedBy,
    /// Why the policy that was asked first did not; none when it did.
    pub fault: Option<Fault>,
    /// The record of it.
    pub receipt: Receipt,
    /// The request that was answered.
    pub input: Input,
}

/// What all generations share.
pub(crate) struct Sandbox {
    /// Absent when this machine can't run policies, or can't stop them.
    pub(crate) jail: Option<Arc<Jail>>,
    pub(crate) shipped: Option<Arc<Policy>>,
    pub(crate) observer: Arc<dyn Observer>,
    /// For as many calls as there are processors.
    room: Room,
    /// Those who run or wait.
    places: Arc<Semaphore>,
    pub(crate) aside: Aside,
    pub(crate) comparisons: Comparisons,
    purpose: Purpose,
}

impl Sandbox {
    pub(crate) fn new(jail: Option<Arc<Jail>>, shipped: Option<Arc<Policy>>, observer: Arc<dyn Observer>) -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        Self {
            jail,
            shipped,
            observer,
            room: Room::new(processors, MEBIBYTES),
            places: Arc::new(Semaphore::new(processors.saturating_add(QUEUE))),
            aside: Aside::new(),
            comparisons: Comparisons::default(),
            purpose: Purpose::Operation,
        }
    }

    /// The same processes, for calls of simulations: one at a time, in no place that a decision or a comparison could use.
    pub(crate) fn for_simulations(&self) -> Self {
        Self {
            jail: self.jail.clone(),
            shipped: self.shipped.clone(),
            observer: Arc::new(Counters::default()),
            room: Room::new(1, 0),
            places: Arc::new(Semaphore::new(2)),
            aside: Aside::new(),
            comparisons: Comparisons::default(),
            purpose: Purpose::Simulation,
        }
    }

    /// Asks the assigned policy, then the shipped one, then the linked one. Always ends with an answer. The candidate is asked afterwards,
    /// and nobody waits for it.
    pub(crate) async fn evaluate<Q: Question>(
        self: &Arc<Self>,
        mut request: Q,
        lane: &Arc<Lane>,
        candidate: Option<&Arc<Candidate>>,
        generation: u64,
    ) -> Evaluation<Q::Answer> {
        let assignment = &lane.assignment;
        request.set_settings(&assignment.settings);
        let asked = Asked::new(request);
        let admission = lane.admit(Instant::now());
        let (answer, attempts) = self.answer(&asked, lane, admission).await;
        if admission == Admission::Probe {
            self.probe(lane, &asked);
        }
        if let Some(candidate) = candidate {
            self.compare(candidate, &asked, (decider(&attempts).to_string(), &answer));
        }
        let bypassed = (admission != Admission::Ask).then(|| assignment.policy());
        finish(asked, answer, generation, attempts, bypassed)
    }

    async fn answer<Q: Question>(&self, asked: &Arc<Asked<Q>>, lane: &Lane, admission: Admission) -> (Q::Answer, Vec<Attempt>) {
        let assignment = &lane.assignment;
        let mut attempts = Vec::new();
        for (policy, source, settings, limits) in self.chain(assignment) {
            if source == Source::Custom && admission != Admission::Ask {
                continue;
            }
            let (answer, usage) = match Arc::clone(&self.places).try_acquire_owned() {
                Ok(place) => self.attempt(&policy, asked, Arc::clone(&settings), limits, (place, &self.room)).await,
                Err(_) => (Err(Fault::QueueFull), Usage::default()),
            };
            let by = (DecidedBy::policy(&policy), policy.interpreted());
            let waited_in_vain = matches!(answer, Err(Fault::QueueFull));
            let fault = answer.as_ref().err().cloned();
            if source == Source::Custom {
                lane.decided(fault.as_ref(), Instant::now());
            }
            self.record::<Q>(&mut attempts, by, source, &settings, usage, fault);
            match answer {
                Ok(answer) => return (answer, attempts),
                // Whoever else is a component would wait for the same places.
                Err(_) if waited_in_vain => break,
                Err(_) => {}
            }
        }
        let settings = match &assignment.chosen {
            Chosen::Shipped | Chosen::Native => assignment.settings.as_ref(),
            Chosen::Policy(_) => NO_SETTINGS,
        };
        let started = Instant::now();
        let answer = natively(&asked.request, settings);
        let usage = Usage { duration: started.elapsed(), ..Usage::default() };
        let fault = answer.as_ref().err().cloned();
        self.record::<Q>(&mut attempts, (DecidedBy::Native, None), Source::Native, settings, usage, fault);
        (answer.unwrap_or_else(|_| Q::nothing()), attempts)
    }

    /// Has a policy that kept failing answer what another one has decided.
    fn probe<Q: Question>(self: &Arc<Self>, lane: &Arc<Lane>, asked: &Arc<Asked<Q>>) {
        let reported = Arc::clone(lane);
        let begun = self.beside(&lane.assignment, asked, move |called| {
            reported.probed(called.as_ref().map(|(answer, _)| answer.as_ref().err()), Instant::now());
        });
        if !begun {
            lane.probed(None, Instant::now());
        }
    }

    /// Has a candidate answer what another policy has decided, and counts whether it would have done the same.
    fn compare<Q: Question>(
        self: &Arc<Self>,
        candidate: &Arc<Candidate>,
        asked: &Arc<Asked<Q>>,
        (decider, decided): (String, &Q::Answer),
    ) {
        let admission = candidate.lane.admit(Instant::now());
        let (reported, decided) = (Arc::clone(candidate), decided.clone());
        let (sandbox, question) = (Arc::clone(self), Arc::clone(asked));
        let begun = admission != Admission::Bypass
            && self.beside(&candidate.lane.assignment, asked, move |called| {
                let now = Instant::now();
                let Some((answer, usage)) = called else {
                    reported.skip();
                    if admission == Admission::Probe {
                        reported.lane.probed(None, now);
                    }
                    return;
                };
                let fault = answer.as_ref().err();
                match admission {
                    Admission::Probe => reported.lane.probed(Some(fault), now),
                    Admission::Ask | Admission::Bypass => reported.lane.decided(fault, now),
                }
                let agreed = answer.as_ref().is_ok_and(|answer| Q::same(answer, &decided));
                reported.count(agreed, usage.fuel);
                let kind = fault.map(Fault::kind);
                sandbox.observer.compared(&Comparison { decision: Q::DECISION, agreed, fault: kind, fuel: usage.fuel });
                let (decided, answer) = (decided.into(), answer.map(Into::into));
                let shadow = (reported.lane.assignment.policy(), answer.as_ref());
                let sides = Sides { in_force: (decider, &decided), shadow, agreed };
                sandbox.comparisons.note(&question.request.inquiry(), sides);
            });
        if !begun {
            candidate.skip();
            if admission == Admission::Probe {
                candidate.lane.probed(None, Instant::now());
            }
        }
    }

    /// Asks a policy beside the decision and passes its answer on, or none when there was no room after all. False when there is no room now;
    /// then `done` is not called.
    fn beside<Q: Question>(
        self: &Arc<Self>,
        assignment: &Assignment,
        asked: &Arc<Asked<Q>>,
        done: impl FnOnce(Option<Called<Q::Answer>>) + Send + 'static,
    ) -> bool {
        let Some((policy, _, settings, limits)) = self.chain(assignment).into_iter().next() else { return false };
        // A decision may come any moment; it shall find a processor.
        if !self.room.has_slot() {
            return false;
        }
        let Some(place) = self.aside.place() else { return false };
        let (sandbox, asked) = (Arc::clone(self), Arc::clone(asked));
        self.aside.spawn(async move {
            let called = sandbox.attempt(&policy, &asked, settings, limits, (place, &sandbox.aside.room)).await;
            done((!matches!(called.0, Err(Fault::QueueFull))).then_some(called));
        });
        true
    }

    /// The components to ask, in order, each with its settings and limits.
    fn chain(&self, assignment: &Assignment) -> Vec<(Arc<Policy>, Source, Arc<str>, Limits)> {
        let assigned = || (Arc::clone(&assignment.settings), assignment.limits);
        // What was set for another policy means nothing to the shipped one.
        let unset = || (Arc::from(NO_SETTINGS), Limits::default());
        let (custom, (settings, limits)) = match &assignment.chosen {
            _ if self.jail.is_none() => return Vec::new(),
            Chosen::Native => return Vec::new(),
            Chosen::Shipped => (None, assigned()),
            Chosen::Policy(policy) => (Some(Arc::clone(policy)), unset()),
        };
        let custom = custom.map(|policy| {
            let (settings, limits) = assigned();
            (policy, Source::Custom, settings, limits)
        });
        let shipped = self.shipped.clone().map(|policy| (policy, Source::Shipped, settings, limits));
        custom.into_iter().chain(shipped).collect()
    }

    /// One call on the blocking pool. Waits for room for at most [`Limits::LONGEST`], and gives up so much and one tick later, whatever happens there.
    async fn attempt<Q: Question>(
        &self,
        policy: &Arc<Policy>,
        asked: &Arc<Asked<Q>>,
        settings: Arc<str>,
        limits: Limits,
        (place, room): (OwnedSemaphorePermit, &Room),
    ) -> Called<Q::Answer> {
        let fault = |fault, started: Instant| (Err(fault), Usage { duration: started.elapsed(), ..Usage::default() });
        let began = Instant::now();
        let Some(jail) = self.jail.clone() else {
            return fault(Fault::Load("policies are switched off".to_owned()), began);
        };
        let Some(taken) = room.wait(&limits).await else {
            return fault(Fault::QueueFull, began);
        };
        let (policy, asked) = (Arc::clone(policy), Arc::clone(asked));
        let (begin, begun) = oneshot::channel();
        let started = Instant::now();
        // A call that is abandoned keeps what it takes until its process has ended it, so the bounds of all calls hold.
        let call = spawn_blocking(move || {
            let called = policy.ask(&jail, &asked.request, &settings, &limits, || {
                // Nobody listens any more when the decision is abandoned.
                let _ = begin.send(());
            });
            asked.input();
            drop((taken, place));
            called
        });
        // Starting a process is the host's affair and does not count; it has a bound of its own, after which the call ends.
        let started = if begun.await.is_ok() { Instant::now() } else { started };
        match timeout(Limits::LONGEST.saturating_add(TICK), call).await {
            Ok(Ok(called)) => called,
            Ok(Err(_)) => fault(Fault::HostPanic, started),
            Err(_) => fault(Fault::Deadline, started),
        }
    }

    fn record<Q: Question>(
        &self,
        attempts: &mut Vec<Attempt>,
        (by, interpreted): (DecidedBy, Option<Interpreted>),
        source: Source,
        settings: &str,
        usage: Usage,
        fault: Option<Fault>,
    ) {
        for line in usage.lines.iter().filter(|_| self.purpose == Purpose::Operation) {
            let (decision, message) = (Q::DECISION.as_str(), line.message.as_str());
            match line.level {
                Level::Debug => tracing::debug!(target: "pacer::guest", policy = %by, decision, "{message}"),
                Level::Info => tracing::info!(target: "pacer::guest", policy = %by, decision, "{message}"),
                Level::Warn => tracing::warn!(target: "pacer::guest", policy = %by, decision, "{message}"),
            }
        }
        self.observer.observe(&Observation {
            decision: Q::DECISION,
            source,
            fault: fault.as_ref().map(Fault::kind),
            fallback: !attempts.is_empty(),
            fuel: usage.fuel,
            duration: usage.duration,
            peak_memory: usage.peak_memory,
            log_dropped: usage.dropped,
        });
        attempts.push(Attempt {
            by,
            interpreted,
            settings_hash: Digest::of(settings.as_bytes()).to_string(),
            fuel: usage.fuel,
            duration_us: u64::try_from(usage.duration.as_micros()).unwrap_or(u64::MAX),
            peak_memory: usage.peak_memory,
            log: usage.lines,
            log_dropped: usage.dropped,
            fault,
        });
    }
}

/// Who gave the answer that was used.
fn decider(attempts: &[Attempt]) -> DecidedBy {
    attempts.last().map_or(DecidedBy::Native, |attempt| attempt.by.clone())
}

fn finish<Q: Question>(
    asked: Arc<Asked<Q>>,
    answer: Q::Answer,
    generation: u64,
    attempts: Vec<Attempt>,
    bypassed: Option<String>,
) -> Evaluation<Q::Answer> {
    let decided_by = decider(&attempts);
    let receipt = Receipt {
        decision: Q::DECISION,
        policy: decided_by.to_string(),
        generation,
        input_hash: asked.input().to_string(),
        output_hash: Digest::of_json(&answer).to_string(),
        output_items: Q::named(&answer),
        attempts,
        bypassed,
    };
    Evaluation { answer, decided_by, fault: receipt.fault().cloned(), receipt, input: asked.into() }
}
