//! Where calls wait, run and are given up, and who is asked next when one fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::call::{Called, Usage};
use crate::component::Digest;
use crate::engine::Engine;
use crate::fault::Fault;
use crate::generation::{Assignment, Chosen};
use crate::limits::{Limits, TICK};
use crate::load::NO_SETTINGS;
use crate::log::Level;
use crate::observer::{Observation, Observer, Source};
use crate::policy::Policy;
use crate::question::{Asked, Question};
use crate::receipt::{Attempt, DecidedBy, Receipt, output};

/// Calls that may wait for a processor; the next one gets [`Fault::QueueFull`].
pub const QUEUE: usize = 64;

/// A decision, who took it, and what it took.
#[derive(Clone, Debug)]
pub struct Evaluation<T> {
    /// The answer, checked by [`pacer_core::gate`].
    pub answer: T,
    /// Who gave it.
    pub decided_by: DecidedBy,
    /// Why the policy that was asked first did not; none when it did.
    pub fault: Option<Fault>,
    /// The record of it.
    pub receipt: Receipt,
}

/// What all generations share.
pub(crate) struct Sandbox {
    /// Absent when this machine can't run WebAssembly, or can't stop it.
    pub(crate) engine: Option<Arc<Engine>>,
    pub(crate) shipped: Option<Arc<Policy>>,
    pub(crate) observer: Arc<dyn Observer>,
    /// As many as there are processors.
    slots: Arc<Semaphore>,
    /// Those who run or wait.
    places: Arc<Semaphore>,
}

impl Sandbox {
    pub(crate) fn new(engine: Option<Arc<Engine>>, shipped: Option<Arc<Policy>>, observer: Arc<dyn Observer>) -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        Self {
            engine,
            shipped,
            observer,
            slots: Arc::new(Semaphore::new(processors)),
            places: Arc::new(Semaphore::new(processors.saturating_add(QUEUE))),
        }
    }

    /// Asks the assigned policy, then the shipped one, then the linked one. Always ends with an answer.
    pub(crate) async fn evaluate<Q: Question>(
        &self,
        mut request: Q,
        assignment: &Assignment,
        generation: u64,
    ) -> Evaluation<Q::Answer> {
        request.set_settings(&assignment.settings);
        let asked = Asked::new(request);
        let mut attempts = Vec::new();
        for (policy, source, settings, limits) in self.chain(assignment) {
            let (answer, usage) = self.attempt(&policy, &asked, Arc::clone(&settings), limits).await;
            let by = DecidedBy::policy(&policy);
            let waited_in_vain = matches!(answer, Err(Fault::QueueFull));
            let fault = answer.as_ref().err().cloned();
            self.record::<Q>(&mut attempts, by, source, &settings, usage, fault);
            match answer {
                Ok(answer) => return finish(&asked, answer, generation, attempts),
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
        self.record::<Q>(&mut attempts, DecidedBy::Native, Source::Native, settings, usage, fault);
        finish(&asked, answer.unwrap_or_else(|_| Q::nothing()), generation, attempts)
    }

    /// The components to ask, in order, each with its settings and limits.
    fn chain(&self, assignment: &Assignment) -> Vec<(Arc<Policy>, Source, Arc<str>, Limits)> {
        let assigned = || (Arc::clone(&assignment.settings), assignment.limits);
        // What was set for another policy means nothing to the shipped one.
        let unset = || (Arc::from(NO_SETTINGS), Limits::default());
        let (custom, (settings, limits)) = match &assignment.chosen {
            _ if self.engine.is_none() => return Vec::new(),
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

    /// One call on the blocking pool. Gives up after the deadline and one tick, whatever happens there.
    pub(crate) async fn attempt<Q: Question>(
        &self,
        policy: &Arc<Policy>,
        asked: &Arc<Asked<Q>>,
        settings: Arc<str>,
        limits: Limits,
    ) -> Called<Q::Answer> {
        let fault = |fault, started: Instant| (Err(fault), Usage { duration: started.elapsed(), ..Usage::default() });
        let began = Instant::now();
        let Some(engine) = self.engine.clone() else {
            return fault(Fault::Load("WebAssembly is switched off".to_owned()), began);
        };
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return fault(Fault::QueueFull, began) };
        let Ok(Ok(slot)) = timeout(limits.deadline(), Arc::clone(&self.slots).acquire_owned()).await else {
            return fault(Fault::QueueFull, began);
        };
        let (policy, asked) = (Arc::clone(policy), Arc::clone(asked));
        let started = Instant::now();
        // A call that is given up keeps its slot until its own deadline ends it, so the bound on running calls holds.
        let call = spawn_blocking(move || {
            let called = policy.ask(&engine, &asked.request, &settings, &limits);
            asked.input();
            drop((slot, place));
            called
        });
        match timeout(limits.deadline().saturating_add(TICK), call).await {
            Ok(Ok(called)) => called,
            Ok(Err(_)) => fault(Fault::HostPanic, started),
            Err(_) => fault(Fault::Deadline, started),
        }
    }

    fn record<Q: Question>(
        &self,
        attempts: &mut Vec<Attempt>,
        by: DecidedBy,
        source: Source,
        settings: &str,
        usage: Usage,
        fault: Option<Fault>,
    ) {
        for line in &usage.lines {
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

/// Asks the shipped policy as it is linked. It is our own code, and still no bug in it may stop the operator.
pub(crate) fn natively<Q: Question>(request: &Q, settings: &str) -> Result<Q::Answer, Fault> {
    let answer = catch_unwind(AssertUnwindSafe(|| request.ask_natively(settings))).map_err(|_| Fault::Panic)?;
    let answer = answer.map_err(|text| Fault::declined(&text))?;
    Ok(request.gate(answer)?)
}

fn finish<Q: Question>(asked: &Asked<Q>, answer: Q::Answer, generation: u64, attempts: Vec<Attempt>) -> Evaluation<Q::Answer> {
    let decided_by = attempts.last().map_or(DecidedBy::Native, |attempt| attempt.by.clone());
    let (output_hash, output) = output(&answer);
    let receipt = Receipt {
        decision: Q::DECISION,
        policy: decided_by.to_string(),
        generation,
        input_hash: asked.input().to_string(),
        output_hash: output_hash.to_string(),
        output_items: Q::named(&answer),
        output,
        attempts,
    };
    Evaluation { answer, decided_by, fault: receipt.fault().cloned(), receipt }
}

#[cfg(test)]
mod tests {
    use pacer_core::policy::CapacityRequest;

    use super::*;
    use crate::decision::Decision;
    use crate::generation::{Generation, PolicySet};
    use crate::observer::Counters;
    use crate::rehearsal;

    fn generation(engine: Option<Engine>, set: PolicySet, counters: &Arc<Counters>) -> Generation {
        let engine = engine.map(Arc::new);
        let shipped = engine.as_ref().map(|engine| Arc::new(Policy::load(engine, crate::SHIPPED).unwrap()));
        let sandbox = Arc::new(Sandbox::new(engine, shipped, Arc::clone(counters) as _));
        Generation { number: 7, set, sandbox }
    }

    #[tokio::test]
    async fn without_an_engine_the_linked_policy_decides() {
        let counters = Arc::new(Counters::default());
        let generation = generation(None, PolicySet::default(), &counters);
        let [_, _, (_, request)] = rehearsal::scale_down();
        let surplus = request.surplus as usize;
        let evaluation = generation.scale_down(request).await;
        assert_eq!((evaluation.answer.len(), &evaluation.decided_by, &evaluation.fault), (surplus, &DecidedBy::Native, &None));
        assert_eq!((evaluation.receipt.policy.as_str(), evaluation.receipt.generation), ("native", 7));
        assert_eq!(counters.evaluations(Decision::ScaleDown), 1);
    }

    #[tokio::test]
    async fn all_decisions_are_the_same_either_way() {
        let counters = Arc::new(Counters::default());
        let native = Assignment { chosen: Chosen::Native, ..Default::default() };
        let native = PolicySet { scale_down: native.clone(), restart: native.clone(), capacity: native };
        let native = generation(Some(Engine::new().unwrap()), native, &counters);
        let component = generation(Some(Engine::new().unwrap()), PolicySet::default(), &counters);
        for (case, request) in rehearsal::restart() {
            let (one, other) = (component.restart(request.clone()).await, native.restart(request).await);
            assert_eq!((one.answer, one.receipt.input_hash), (other.answer, other.receipt.input_hash), "{case}");
            assert_ne!(one.decided_by, other.decided_by, "{case}");
        }
        for (case, request) in rehearsal::capacity() {
            let (one, other) = (component.capacity(request.clone()).await, native.capacity(request).await);
            assert_eq!((one.answer, one.receipt.output_hash), (other.answer, other.receipt.output_hash), "{case}");
        }
        assert_eq!((counters.evaluations(Decision::Restart), counters.evaluations(Decision::Capacity)), (6, 6));
        assert_eq!(counters.fallbacks(), 0);
    }

    #[tokio::test]
    async fn settings_nobody_accepts_change_nothing() {
        let counters = Arc::new(Counters::default());
        let wrong = Assignment { settings: Arc::from("{\"noSuchSetting\": 1}"), ..Default::default() };
        let set = PolicySet { capacity: wrong, ..Default::default() };
        let generation = generation(Some(Engine::new().unwrap()), set, &counters);
        let [_, _, (_, request)] = rehearsal::capacity();
        let evaluation = generation.capacity(CapacityRequest { settings: "ignored".into(), ..request }).await;
        assert_eq!(evaluation.answer, CapacityRequest::nothing());
        assert_eq!(evaluation.decided_by, DecidedBy::Native);
        assert_eq!(counters.faults("policy-error"), 2);
    }

    #[tokio::test]
    async fn a_receipt_survives_being_written_down() {
        let counters = Arc::new(Counters::default());
        let generation = generation(Some(Engine::new().unwrap()), PolicySet::default(), &counters);
        let [_, _, (_, request)] = rehearsal::scale_down();
        let receipt = generation.scale_down(request).await.receipt;
        assert!(receipt.output.is_some() && receipt.output_items == 8);
        assert!(receipt.policy.contains("@sha256:") && receipt.policy.len() < 64, "{}", receipt.policy);
        let text = serde_json::to_string(&receipt).unwrap();
        assert_eq!(serde_json::from_str::<Receipt>(&text).unwrap(), receipt);
    }
}
