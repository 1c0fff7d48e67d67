//! A child that stages one policy set.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Adopted;
use super::interpreter::Interpreter;
use super::process::{Lost, Process};
use crate::component::Digest;
use crate::decision::Decision;
use crate::limits::Limits;
use crate::load::{LoadError, Refusal};
use crate::policy::Policy;
use crate::protocol::{CODE_BYTES, COMPONENT_BYTES, Preparation, Reply, Request};
use crate::text;

/// How long staging one policy set may take from the start of its process. Waiting for a place does not count. Its processor time and memory
/// are limited by the process itself.
pub const STAGING: Duration = Duration::from_secs(30);

/// What is being done when a budget is used up.
const READING: &str = "reading";
const COMPILING: &str = "compiling and trying";
const TRYING: &str = "trying";

/// Another end of a stager's socket.
#[derive(Debug)]
pub(crate) struct Ending(UnixStream);

impl Ending {
    /// Whoever waits for the process learns that it is gone, and kills it.
    pub(crate) fn end(&self) {
        let _closed = self.0.shutdown(Shutdown::Both);
    }
}

/// Until when a process may work.
#[derive(Debug)]
struct Budget {
    until: Instant,
}

impl Budget {
    /// So much from now on.
    fn of(time: Duration) -> Self {
        Self { until: Instant::now() + time }
    }

    /// Does what does not count: the budget is longer by the time that it takes.
    fn beside<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        self.until += began.elapsed();
        done
    }
}

/// A process with a budget.
#[derive(Debug)]
pub(crate) struct Stager {
    process: Process,
    budget: Budget,
    adopted: Adopted,
    interpreter: Arc<Interpreter>,
    /// What ended it; everything that is asked afterwards ends with the same.
    lost: Option<LoadError>,
}

impl Stager {
    pub(super) fn new(process: Process, interpreter: Arc<Interpreter>) -> Self {
        Self { process, budget: Budget::of(STAGING), adopted: Adopted::new(), interpreter, lost: None }
    }

    /// Ends the process from outside, wherever it is.
    pub(crate) fn ending(&self) -> io::Result<Ending> {
        self.process.socket().try_clone().map(Ending)
    }

    /// The component of a module.
    pub(crate) fn prepare(&mut self, how: Preparation, module: &[u8]) -> Result<Vec<u8>, LoadError> {
        match self.ask(&Request::Prepare(how), module, COMPONENT_BYTES, READING)? {
            (Reply::Prepared, component) => Ok(component),
            _ => Err(self.end(&Lost::Rubbish, READING)),
        }
    }

    /// A policy that passed every check, and the time that its compilation took.
    pub(crate) fn load(&mut self, component: &[u8]) -> Result<(Policy, Duration), LoadError> {
        if let Some(text) = text::text_of(component) {
            return self.interpret(text::identity(component), text);
        }
        match self.ask(&Request::Load, component, CODE_BYTES, COMPILING)? {
            (Reply::Loaded { description, takes, compiled_in }, code) => {
                let digest = Digest::of(component);
                self.adopted.insert(digest, code.len());
                let policy = Policy { description, digest, size: component.len(), takes, code: Arc::from(code), text: None };
                Ok((policy, compiled_in))
            }
            _ => Err(self.end(&Lost::Rubbish, COMPILING)),
        }
    }

    /// A text that passed every check, and the time that the compilation of its interpreter took, where nobody had needed that before.
    fn interpret(&mut self, digest: Digest, text: &str) -> Result<(Policy, Duration), LoadError> {
        let began = Instant::now();
        // What the operator compiles for itself does not count against the set.
        let code = self.budget.beside(|| self.interpreter.code())?;
        self.adopt_code(text::interpreter(), &code)?;
        let duration = began.elapsed();
        let request = Request::Interpret { policy: digest, interpreter: text::interpreter() };
        match self.ask(&request, text.as_bytes(), 0, TRYING)? {
            (Reply::Loaded { description, takes, .. }, _) => {
                self.adopted.insert(digest, text.len());
                let policy = Policy { description, digest, size: text.len(), takes, code, text: Some(Arc::from(text)) };
                Ok((policy, duration))
            }
            _ => Err(self.end(&Lost::Rubbish, TRYING)),
        }
    }

    /// See [`Policy::validate_settings`].
    pub(crate) fn validate(&mut self, policy: &Policy, settings: &str, limits: &Limits) -> Result<(), LoadError> {
        self.adopt(policy)?;
        self.done(&Request::Validate { policy: policy.digest, settings: settings.to_owned(), limits: *limits }, &[])
    }

    /// See [`Policy::rehearse`].
    pub(crate) fn rehearse(
        &mut self,
        policy: &Policy,
        decision: Decision,
        settings: &str,
        limits: &Limits,
    ) -> Result<(), LoadError> {
        self.adopt(policy)?;
        self.done(&Request::Rehearse { policy: policy.digest, decision, settings: settings.to_owned(), limits: *limits }, &[])
    }

    fn adopt(&mut self, policy: &Policy) -> Result<(), LoadError> {
        if self.adopted.contains_key(&policy.digest) {
            return Ok(());
        }
        let Some(text) = &policy.text else { return self.adopt_code(policy.digest, &policy.code) };
        self.adopt_code(text::interpreter(), &policy.code)?;
        self.done(&Request::Recite { policy: policy.digest, interpreter: text::interpreter() }, text.as_bytes())?;
        self.adopted.insert(policy.digest, text.len());
        Ok(())
    }

    fn adopt_code(&mut self, digest: Digest, code: &[u8]) -> Result<(), LoadError> {
        if self.adopted.contains_key(&digest) {
            return Ok(());
        }
        self.done(&Request::Adopt(digest), code)?;
        self.adopted.insert(digest, code.len());
        Ok(())
    }

    fn done(&mut self, request: &Request, body: &[u8]) -> Result<(), LoadError> {
        match self.ask(request, body, 0, TRYING)? {
            (Reply::Done, _) => Ok(()),
            _ => Err(self.end(&Lost::Rubbish, TRYING)),
        }
    }

    fn ask(&mut self, request: &Request, body: &[u8], most: usize, doing: &str) -> Result<(Reply, Vec<u8>), LoadError> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        match self.process.exchange(request, body, most, self.budget.until) {
            Ok((Reply::Refused(code, message), _)) => Err(LoadError::new(code, message)),
            Ok(replied) => Ok(replied),
            Err(lost) => Err(self.end(&lost, doing)),
        }
    }

    fn end(&mut self, lost: &Lost, doing: &str) -> LoadError {
        let error = match lost {
            Lost::Late => {
                let message = format!("{doing} it takes longer than the {} s that a policy set has", STAGING.as_secs());
                LoadError::new(Refusal::CompileTimeout, message)
            }
            lost => LoadError::new(
                Refusal::Compile,
                format!("{doing} it takes more memory, stack or processor time than a policy set has: {lost}"),
            ),
        };
        self.lost = Some(error.clone());
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_grows_by_what_does_not_count_and_by_nothing_else() {
        let mut budget = Budget::of(STAGING);
        let before = budget.until;
        assert_eq!(budget.beside(|| 7), 7);
        // As for each text after the first one: the interpreter is there.
        assert!(budget.until - before < Duration::from_secs(5), "the set begins anew with each text");
        let (before, work) = (budget.until, Duration::from_millis(20));
        budget.beside(|| std::thread::sleep(work));
        assert!(budget.until - before >= work);
    }
}
