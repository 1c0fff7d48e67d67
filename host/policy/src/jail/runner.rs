//! Children that answer decisions, and which of them is asked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::process::{Lost, Process};
use super::{Adopted, Jail, PROBE};
use crate::call::{Called, Usage};
use crate::component::Digest;
use crate::fault::Fault;
use crate::limits::{Limits, TICK};
use crate::policy::Policy;
use crate::protocol::{ANSWER_BYTES, Probed, Reply, Request, Role, decode, encode};
use crate::question::Question;
use crate::text;

/// How long a runner may take to load code.
const ADOPT: Duration = Duration::from_secs(5);

/// Native code that a runner holds at most, in bytes. One that would need more is replaced.
const CODE_ROOM: usize = 64 << 20;

/// A call that its deadline did not end inside of the runner is ended from outside after so much more: what a busy machine may keep a
/// process from running.
const GRACE: Duration = Duration::from_millis(100);

/// A process with the policies that it has loaded.
#[derive(Debug)]
pub(super) struct Runner {
    process: Process,
    adopted: Adopted,
    _stay: Option<Stay>,
}

/// Held by the one runner that stays when nobody asks.
#[derive(Debug)]
struct Stay(Arc<AtomicBool>);

impl Drop for Stay {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Runner {
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    fn held(&self) -> usize {
        self.adopted.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    fn adopt(&mut self, policy: &Policy) -> Result<(), Lost> {
        if self.adopted.contains_key(&policy.digest) {
            return Ok(());
        }
        let Some(text) = &policy.text else {
            return self.take(policy.digest, &Request::Adopt(policy.digest), &policy.code);
        };
        let interpreter = text::interpreter();
        if !self.adopted.contains_key(&interpreter) {
            self.take(interpreter, &Request::Adopt(interpreter), &policy.code)?;
        }
        self.take(policy.digest, &Request::Recite { policy: policy.digest, interpreter }, text.as_bytes())
    }

    fn take(&mut self, digest: Digest, request: &Request, body: &[u8]) -> Result<(), Lost> {
        match self.process.exchange(request, body, 0, Instant::now() + ADOPT)? {
            (Reply::Done, _) => {
                self.adopted.insert(digest, body.len());
                Ok(())
            }
            _ => Err(Lost::Rubbish),
        }
    }
}

impl Jail {
    /// Puts a question to a policy. Blocks for at most [`Limits::LONGEST`] and [`GRACE`], and for as long as a runner takes to start.
    pub(super) fn call<Q: Question>(
        &self,
        policy: &Policy,
        request: &Q,
        settings: &str,
        limits: &Limits,
        begun: impl FnOnce(),
    ) -> Called<Q::Answer> {
        let began = Instant::now();
        let failed = |fault: Fault, began: Instant| (Err(fault), Usage { duration: began.elapsed(), ..Usage::default() });
        let body = match encode(request) {
            Ok(body) => body,
            Err(error) => return failed(Fault::Load(format!("the request can't be encoded: {error}")), began),
        };
        let mut runner = match self.runner_for(policy) {
            Ok(runner) => runner,
            Err(lost) => return failed(lost.into(), began),
        };
        begun();
        let began = Instant::now();
        let head = Request::Ask { policy: policy.digest, decision: Q::DECISION, settings: settings.to_owned(), limits: *limits };
        let until = began + Limits::LONGEST + TICK + GRACE;
        let (blame, usage, body) = match runner.process.exchange(&head, &body, ANSWER_BYTES, until) {
            Ok((Reply::Answered(blame, usage), body)) => (blame, usage, body),
            Ok(_) => return failed(Lost::Rubbish.into(), began),
            Err(lost) => return failed(lost.into(), began),
        };
        let usage = Usage { duration: began.elapsed(), ..usage };
        let answer = match blame {
            Some(blame) => Err(Fault::from(blame)),
            None => match decode(&body) {
                Ok(answer) => Ok(answer),
                Err(_) => return failed(Lost::Rubbish.into(), began),
            },
        };
        self.lock().push(runner);
        (answer, usage)
    }

    /// Has a runner try what a stager tried at the start, in the state that its last call left.
    pub(super) fn attempt_escape(&self) -> Result<Probed, Lost> {
        let idle = self.lock().pop();
        let mut runner = idle.map_or_else(|| self.new_runner(), Ok)?;
        let (Reply::Probed(probed), _) = runner.process.exchange(&Request::Probe, &[], 0, Instant::now() + PROBE)? else {
            return Err(Lost::Rubbish);
        };
        self.lock().push(runner);
        Ok(probed)
    }

    /// A runner that has loaded the policy: one that nobody asks, or a new one.
    fn runner_for(&self, policy: &Policy) -> Result<Runner, Lost> {
        let mut runner = loop {
            let idle = {
                let mut idle = self.lock();
                let known = idle.iter().rposition(|runner| runner.adopted.contains_key(&policy.digest));
                match known {
                    Some(at) => Some(idle.swap_remove(at)),
                    None => idle.pop(),
                }
            };
            let Some(mut runner) = idle else { break self.new_runner()? };
            let known = runner.adopted.contains_key(&policy.digest);
            let room = runner.held().saturating_add(policy.code.len()) <= CODE_ROOM;
            // Others are dropped here: they ended by themselves, or hold as much as they may.
            if (known || room) && runner.process.lives() {
                break runner;
            }
        };
        runner.adopt(policy)?;
        Ok(runner)
    }

    fn new_runner(&self) -> Result<Runner, Lost> {
        let first = self.stays.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let stay = first.then(|| Stay(Arc::clone(&self.stays)));
        let process = self.launch(if first { Role::Runner } else { Role::SurplusRunner })?;
        Ok(Runner { process, adopted: Adopted::new(), _stay: stay })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Runner>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
