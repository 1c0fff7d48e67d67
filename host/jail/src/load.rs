//! From bytes to a policy that may be asked.

use pacer_core::gate::{KEY_BYTES, REASON_BYTES, scrub};
use pacer_core::policy::{CapacityRequest, RecoverRequest, RestartRequest, ScaleDownRequest};
use pacer_core::reads::{self, Reads};
use pacer_policy::call::Called;
use pacer_policy::{Decision, Description, Fault, Limits, LoadError, NO_SETTINGS, PerDecision, Refusal, rehearsal};
use wasmtime::component::{ComponentType, Lift};

use crate::ask::{Question, ask};
use crate::call::call;
use crate::component::inspect;
use crate::engine::{Compiled, Engine};
use crate::linked::{Linked, Version};

/// Largest JSON Schema of settings that is kept, in bytes.
const SCHEMA_BYTES: usize = 64 << 10;

/// Names of facts that nobody knows here and that are kept for people.
const UNKNOWN_READS: usize = 16;

/// What an interpreter exports besides the contract.
const PROGRAM: &str = "pacer:interpreter/program@0.1.0";

/// What the interpreter says of a text that takes no decision. It says nothing else by which that could be told from a text that fails while it is loaded.
const NO_FUNCTION: &str = "it exports none of the functions scaleDown, restart, capacity and recover";

/// Problems of settings that are reported at once.
const PROBLEMS: usize = 8;

/// How often a trial that missed its deadline is repeated.
const FURTHER_CHANCES: u32 = 3;

/// A component that passed every check.
pub(crate) struct Loaded {
    pub(crate) linked: Linked,
    pub(crate) description: Description,
}

/// Checks, compiles, links, starts and tries a component, in this order. The trial uses no settings, with which a policy may decline to answer, and the
/// highest limits, because policy sets with different limits may share the component. [`Linked::validate_settings`] and [`Linked::rehearse`] are for the
/// settings and limits it will have.
///
/// # Errors
///
/// The first check that failed.
pub(crate) fn load(engine: &Engine, bytes: &[u8]) -> Result<(Loaded, Compiled), LoadError> {
    let decisions = inspect(bytes)?;
    let refused = |code| move |error: wasmtime::Error| LoadError::new(code, format!("{error:#}"));
    let compiled = engine.compile(bytes)?;
    let pre = engine.link(&compiled.component).map_err(refused(Refusal::Import))?;
    let linked = Linked::find(pre).map_err(refused(Refusal::Exports))?;
    // What is exported under the right name has its functions.
    if let Some(lacking) = decisions.iter().find(|decision| !linked.takes().get(**decision)) {
        return Err(LoadError::new(Refusal::Exports, format!("its interface {lacking} lacks the contract's function")));
    }
    linked.start(engine)?;
    let description = linked.describe(engine)?;
    for decision in decisions {
        linked.smoke(engine, decision, NO_SETTINGS, &Limits::highest(), Declining::Allowed)?;
    }
    Ok((Loaded { linked, description }, compiled))
}

impl Linked {
    /// Has the policy check settings. Blocks for at most the deadline.
    ///
    /// # Errors
    ///
    /// [`Refusal::Settings`] with the problems the policy names, or how the call failed; [`Refusal::Instantiate`] when it may not have the memory that it needs.
    pub(crate) fn validate_settings(&self, engine: &Engine, settings: &str, limits: &Limits) -> Result<(), LoadError> {
        if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(settings) {
            return Err(LoadError::new(Refusal::Settings, format!("the settings are not JSON: {error}")));
        }
        let (answer, _) = with_chances(|| {
            call(engine, self, limits, 0, |store, instance| {
                Ok(Ok(match &self.lifecycle {
                    Version::First(indices) => {
                        let validated = indices.load(&mut *store, instance)?.call_validate_settings(store, settings)?;
                        validated.map_err(|all| all.into_iter().map(|one| (one.path, one.message)).collect::<Vec<_>>())
                    }
                    Version::Next(indices) => {
                        let validated = indices.load(&mut *store, instance)?.call_validate_settings(store, settings)?;
                        validated.map_err(|all| all.into_iter().map(|one| (one.path, one.message)).collect::<Vec<_>>())
                    }
                }))
            })
        });
        match answer {
            Ok(Ok(())) => Ok(()),
            Ok(Err(problems)) => {
                let list: Vec<String> = problems
                    .iter()
                    .take(PROBLEMS)
                    .map(|(path, message)| {
                        let message = scrub(message, REASON_BYTES);
                        match scrub(path, KEY_BYTES) {
                            path if path.is_empty() => message,
                            path => format!("{path}: {message}"),
                        }
                    })
                    .collect();
                Err(LoadError::new(Refusal::Settings, list.join("; ")))
            }
            Err(fault) => {
                // This is the first call with the limits of the policy set, so it also fails when they leave too little memory for a start.
                let starts = !matches!(fault, Fault::Memory | Fault::Instantiate(_));
                let code = if starts { Refusal::Settings } else { Refusal::Instantiate };
                Err(LoadError::new(code, format!("validate-settings failed: {fault}")))
            }
        }
    }

    /// Tries ordinary requests for one decision with the settings and limits it will have. Blocks for at most a dozen deadlines.
    ///
    /// # Errors
    ///
    /// When an answer is an error, invalid, or not the same twice.
    pub(crate) fn rehearse(&self, engine: &Engine, decision: Decision, settings: &str, limits: &Limits) -> Result<(), LoadError> {
        self.smoke(engine, decision, settings, limits, Declining::Refused)
    }

    fn smoke(
        &self,
        engine: &Engine,
        decision: Decision,
        settings: &str,
        limits: &Limits,
        declining: Declining,
    ) -> Result<(), LoadError> {
        let trial = Trial { linked: self, engine, settings, limits, declining };
        match decision {
            Decision::ScaleDown => rehearsal::scale_down().iter().try_for_each(|case| trial.twice::<ScaleDownRequest>(case)),
            Decision::Restart => rehearsal::restart().iter().try_for_each(|case| trial.twice::<RestartRequest>(case)),
            Decision::Capacity => rehearsal::capacity().iter().try_for_each(|case| trial.twice::<CapacityRequest>(case)),
            Decision::Recover => rehearsal::recover().iter().try_for_each(|case| trial.twice::<RecoverRequest>(case)),
        }
    }
}

/// Compiles and links the component that runs texts. It is the operator's own and does nothing without a text, so nothing of it is tried.
///
/// # Errors
///
/// When it does not compile here.
pub(crate) fn interpreter(engine: &Engine, bytes: &[u8]) -> Result<(Linked, Vec<u8>), LoadError> {
    let refused = |error: wasmtime::Error| LoadError::new(Refusal::Compile, format!("the interpreter: {error:#}"));
    let compiled = engine.compile(bytes)?;
    Ok((Linked::adopt(engine, &compiled.component).map_err(refused)?, compiled.code))
}

/// Parses and tries a text, in this order.
///
/// # Errors
///
/// The first check that failed.
pub(crate) fn interpret(engine: &Engine, interpreter: &Linked, text: &str) -> Result<Loaded, LoadError> {
    let mut linked = interpreter.with_text(text);
    let takes = linked.check_text(engine)?;
    linked.scale_down = linked.scale_down.filter(|_| *takes.get(Decision::ScaleDown));
    linked.restart = linked.restart.filter(|_| *takes.get(Decision::Restart));
    linked.capacity = linked.capacity.filter(|_| *takes.get(Decision::Capacity));
    linked.recover = linked.recover.filter(|_| *takes.get(Decision::Recover));
    let description = linked.describe(engine)?;
    for decision in Decision::ALL.into_iter().filter(|decision| *takes.get(*decision)) {
        linked.smoke(engine, decision, NO_SETTINGS, &Limits::highest(), Declining::Allowed)?;
    }
    Ok(Loaded { linked, description })
}

/// Whether a policy may answer a trial with an error of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Declining {
    Allowed,
    Refused,
}

struct Trial<'a> {
    linked: &'a Linked,
    engine: &'a Engine,
    settings: &'a str,
    limits: &'a Limits,
    declining: Declining,
}

impl Trial<'_> {
    fn twice<Q: Question>(&self, (case, request): &(&str, Q)) -> Result<(), LoadError> {
        let (first, second) = (self.once(request), self.once(request));
        // Which of two calls a busy machine lets run past its deadline says nothing about the policy's answers.
        let late = first.0 == Err(Fault::Deadline) || second.0 == Err(Fault::Deadline);
        let answer = if late { Err(Fault::Deadline) } else { same(Q::DECISION, case, first, &second)? };
        match answer {
            Ok(_) => Ok(()),
            Err(Fault::PolicyError(_)) if self.declining == Declining::Allowed => Ok(()),
            Err(fault) => {
                let message = format!("{} fails on the {case} request: {fault}", Q::DECISION);
                Err(LoadError::new(Refusal::Smoke, message))
            }
        }
    }

    fn once<Q: Question>(&self, request: &Q) -> (Result<Q::Answer, Fault>, u64) {
        let (answer, usage) = with_chances(|| {
            let (answer, usage) = ask(self.engine, self.linked, request, self.settings, self.limits);
            (answer.and_then(|answer| Ok(request.gate(answer)?)), usage)
        });
        // Where a deadline strikes is chance.
        let fuel = if answer == Err(Fault::Deadline) { 0 } else { usage.fuel };
        (answer, fuel)
    }
}

/// A busy machine may miss a deadline that the policy would have met, so that gets further chances.
fn with_chances<T>(attempt: impl Fn() -> Called<T>) -> Called<T> {
    let mut called = attempt();
    for _ in 0..FURTHER_CHANCES {
        if !matches!(called.0, Err(Fault::Deadline)) {
            break;
        }
        called = attempt();
    }
    called
}

/// What was answered twice, if it was the same for the same effort.
fn same<A: PartialEq>(decision: Decision, case: &str, first: (A, u64), second: &(A, u64)) -> Result<A, LoadError> {
    if first != *second {
        let message = format!("{decision} answers the {case} request differently the second time");
        return Err(LoadError::new(Refusal::Unstable, message));
    }
    Ok(first.0)
}

/// Why a text can't be used, as `wit/interpreter` has it.
#[derive(ComponentType, Lift)]
#[component(record)]
struct Wrong {
    syntax: bool,
    message: String,
}

impl Linked {
    /// The decisions that a text takes.
    fn check_text(&self, engine: &Engine) -> Result<PerDecision<bool>, LoadError> {
        let (answer, _) = with_chances(|| {
            call(engine, self, &Limits::highest(), 0, |store, instance| {
                let program = instance.get_export_index(&mut *store, None, PROGRAM);
                let check = instance.get_export_index(&mut *store, program.as_ref(), "check");
                let check = check.ok_or_else(|| wasmtime::Error::msg("the interpreter lacks check"))?;
                let check = instance.get_typed_func::<(), (Result<Vec<String>, Wrong>,)>(&mut *store, check)?;
                Ok(Ok(check.call(store, ())?.0))
            })
        });
        match answer {
            Ok(Ok(taken)) => Ok(PerDecision::from_fn(|decision| taken.iter().any(|name| name == decision.as_str()))),
            Ok(Err(Wrong { syntax: true, message })) => Err(LoadError::new(Refusal::Syntax, message)),
            Ok(Err(Wrong { message, .. })) if message == NO_FUNCTION => Err(LoadError::new(Refusal::Exports, message)),
            Ok(Err(Wrong { message, .. })) => Err(LoadError::new(Refusal::Instantiate, message)),
            Err(fault) => Err(LoadError::new(Refusal::Instantiate, format!("loading the text failed: {fault}"))),
        }
    }

    /// Instantiates under limits and resolves every function, which is where wrong record types show.
    fn start(&self, engine: &Engine) -> Result<(), LoadError> {
        let (answer, _) = with_chances(|| {
            call(engine, self, &Limits::highest(), 0, |store, instance| {
                let typed = (|| {
                    // Resolves the functions of an interface, whichever version it has.
                    macro_rules! resolve {
                        ($indices:expr) => {
                            match $indices {
                                Version::First(indices) => {
                                    indices.load(&mut *store, instance)?;
                                }
                                Version::Next(indices) => {
                                    indices.load(&mut *store, instance)?;
                                }
                            }
                        };
                    }
                    resolve!(&self.lifecycle);
                    if let Some(indices) = &self.scale_down {
                        resolve!(indices);
                    }
                    if let Some(indices) = &self.restart {
                        resolve!(indices);
                    }
                    if let Some(indices) = &self.capacity {
                        resolve!(indices);
                    }
                    if let Some(indices) = &self.recover {
                        indices.load(&mut *store, instance)?;
                    }
                    Ok::<(), wasmtime::Error>(())
                })();
                Ok(Ok(typed.map_err(|error| LoadError::new(Refusal::Types, format!("it differs from the contract: {error:#}")))))
            })
        });
        match answer {
            Ok(typed) => typed,
            Err(Fault::Instantiate(text)) => Err(LoadError::new(Refusal::Instantiate, text)),
            Err(fault) => Err(LoadError::new(Refusal::Instantiate, format!("starting it failed: {fault}"))),
        }
    }

    fn describe(&self, engine: &Engine) -> Result<Description, LoadError> {
        let (answer, _) = with_chances(|| {
            call(engine, self, &Limits::highest(), 0, |store, instance| {
                Ok(Ok(match &self.lifecycle {
                    Version::First(indices) => {
                        let said = indices.load(&mut *store, instance)?.call_describe(store)?;
                        (said.name, said.version, said.summary, said.settings_schema, said.attributes)
                    }
                    Version::Next(indices) => {
                        let said = indices.load(&mut *store, instance)?.call_describe(store)?;
                        (said.name, said.version, said.summary, said.settings_schema, said.attributes)
                    }
                }))
            })
        });
        let answer = answer.map_err(|fault| LoadError::new(Refusal::Describe, format!("describe failed: {fault}")))?;
        let (name, version, summary, settings_schema, attributes) = answer;
        let name = scrub(&name, KEY_BYTES);
        if name.is_empty() {
            return Err(LoadError::new(Refusal::Describe, "describe gives no name"));
        }
        let settings_schema = settings_schema.filter(|schema| schema.len() <= SCHEMA_BYTES);
        let declared = attributes.iter().find(|(key, _)| key == reads::KEY).map(|(_, names)| names.as_str());
        let (reads, unknown) = Reads::declared(declared.unwrap_or_default());
        Ok(Description {
            name,
            version: scrub(&version, KEY_BYTES),
            summary: scrub(&summary, REASON_BYTES),
            settings_schema,
            reads,
            unknown_reads: unknown.into_iter().take(UNKNOWN_READS).map(|name| scrub(name, KEY_BYTES)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No policy can do it, having neither clock nor chance nor memory: this is for defects of the engine, and for features to come.
    #[test]
    fn a_missed_deadline_gets_further_chances_and_nothing_else_does() {
        for (misses, chances, last) in [(0, 1, Ok(0)), (2, 3, Ok(2)), (9, 4, Err(Fault::Deadline))] {
            let tried = std::cell::Cell::new(0_u32);
            let (answer, _) = with_chances(|| {
                let before = tried.replace(tried.get() + 1);
                (if before < misses { Err(Fault::Deadline) } else { Ok(before) }, pacer_policy::call::Usage::default())
            });
            assert_eq!((answer, tried.get()), (last, chances), "{misses} missed");
        }
        let tried = std::cell::Cell::new(0);
        let (answer, _) = with_chances(|| {
            tried.set(tried.get() + 1);
            (Err::<(), _>(Fault::Fuel), pacer_policy::call::Usage::default())
        });
        assert_eq!((answer, tried.get()), (Err(Fault::Fuel), 1));
    }

    #[test]
    fn answers_that_differ_are_refused_and_so_is_an_effort_that_does() {
        let twice = |first, second| same(Decision::Restart, "typical", first, &second);
        assert_eq!(twice(("a", 7), ("a", 7)), Ok("a"));
        for second in [("b", 7), ("a", 8)] {
            let refused = twice(("a", 7), second).unwrap_err();
            assert_eq!(refused.code, Refusal::Unstable);
            assert_eq!(refused.message, "restart answers the typical request differently the second time");
        }
    }
}
