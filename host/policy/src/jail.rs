//! The operator's side of the processes that touch users' bytes: starts them, talks to them, and replaces them.
//!
//! Nothing of a module is decompressed, validated, compiled or run in this process. *Stagers* live as long as one policy set is staged and
//! have a budget for that; *runners* stay and answer decisions. Both are this executable, started once more with an empty environment, and
//! lock themselves before they read the first byte (crate `pacer-jail`). Whatever one of them does (die, hang, answer rubbish), it is one fault, and the next
//! call starts another.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::call::Called;
use crate::component::Digest;
use crate::decision::Decision;
use crate::fault::Fault;
use crate::limits::Limits;
use crate::load::{LoadError, Refusal};
use crate::policy::Policy;
use crate::protocol::{Locks, Preparation, Probed, Reply, Request, Role};
use crate::question::Question;
use interpreter::Interpreter;
use process::Process;
use runner::Runner;

mod interpreter;
mod isolation;
mod native;
mod process;
mod runner;
mod stager;

pub use isolation::{Isolation, IsolationLevel};
pub(crate) use process::Lost;
pub use stager::STAGING;
pub(crate) use stager::{Ending, Stager};

/// How long a probe may take, on a machine as busy as it may be.
const PROBE: Duration = Duration::from_secs(30);

/// How the processes are started.
#[derive(Clone, Debug)]
pub struct Launcher {
    program: PathBuf,
    arguments: Vec<OsString>,
    /// File with the native code of the interpreter; see [`Jail::compile_ahead`].
    native: PathBuf,
}

/// Ending of the file with the native code of the interpreter, after the name of the program.
const NATIVE: &str = "interpreter";

impl Launcher {
    /// The executable that is running, started with `arguments` and the name of a [`Role`]; with these it has to become `pacer-jail`'s child.
    ///
    /// # Errors
    ///
    /// When the system does not say which executable that is.
    pub fn this_program<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>) -> io::Result<Self> {
        // The file that was started, also after another one has taken its name.
        let (running, named) = (PathBuf::from("/proc/self/exe"), std::env::current_exe()?);
        let native = named.with_added_extension(NATIVE);
        let program = if running.exists() { running } else { named };
        Ok(Self { native, ..Self::program(program, arguments) })
    }

    /// Another executable of the same build.
    pub fn program<A: Into<OsString>>(program: impl Into<PathBuf>, arguments: impl IntoIterator<Item = A>) -> Self {
        let program = program.into();
        let native = program.with_added_extension(NATIVE);
        Self { program, arguments: arguments.into_iter().map(Into::into).collect(), native }
    }

    /// The same, with the native code of the interpreter in another file.
    #[must_use]
    pub fn with_native_code(self, native: impl Into<PathBuf>) -> Self {
        Self { native: native.into(), ..self }
    }
}

/// Policies can't be run on this machine.
#[derive(Debug, thiserror::Error)]
#[error("policies can't be run in a process of their own: {0}")]
pub struct JailError(String);

/// The interpreter of texts as native code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledAhead {
    /// Where it lies.
    pub file: PathBuf,
    /// Bytes of code.
    pub size: usize,
    /// Whether it was compiled now; if not, the file had it already.
    pub compiled: bool,
}

/// Where users' bytes are touched. One per process of the operator.
#[derive(Debug)]
pub struct Jail {
    launcher: Launcher,
    locks: Locks,
    isolation: Isolation,
    /// Runners that nobody is asking.
    idle: Mutex<Vec<Runner>>,
    /// Whether a runner lives that stays.
    stays: Arc<AtomicBool>,
    interpreter: Arc<Interpreter>,
}

impl Jail {
    /// Starts a process that tries whatever must be impossible, and whether runaway policies are stopped. Blocks for some 100 ms.
    ///
    /// # Errors
    ///
    /// When no such process can be started, or it can't run policies, or can't stop them. That locks are missing is no error; see
    /// [`Jail::isolation`].
    pub fn start(launcher: Launcher) -> Result<Self, JailError> {
        let failed = |lost: Lost| JailError(lost.to_string());
        let mut probe = Process::start(&launcher, Role::Probe).map_err(failed)?;
        let (reply, _) = probe.exchange(&Request::Probe, &[], 0, Instant::now() + PROBE).map_err(failed)?;
        let Reply::Probed(probed) = reply else { return Err(failed(Lost::Rubbish)) };
        let Probed { tried, possible, engine } = probed;
        if let Some(reason) = engine {
            return Err(JailError(reason));
        }
        if tried.is_empty() {
            return Err(failed(Lost::Rubbish));
        }
        let isolation = Isolation::new(probe.locks, possible);
        let interpreter = Arc::new(Interpreter::new(launcher.clone(), probe.locks));
        Ok(Self { launcher, locks: probe.locks, isolation, idle: Mutex::default(), stays: Arc::default(), interpreter })
    }

    /// How well the processes are locked in.
    #[must_use]
    pub fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    /// Processes that run policies and wait for the next call; for tests that end them.
    #[must_use]
    pub fn idle_runners(&self) -> Vec<u32> {
        self.lock().iter().map(Runner::id).collect()
    }

    /// Tells a process that runs policies to try whatever must be impossible; for tests. One that answered a decision tries it after that.
    ///
    /// # Errors
    ///
    /// When no such process can be started, or it does not answer.
    pub fn escape(&self) -> Result<Probed, JailError> {
        self.attempt_escape().map_err(|lost| JailError(lost.to_string()))
    }

    /// Decompresses a module as it lies in a ConfigMap. Blocks.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn unpack(&self, module: &[u8]) -> Result<Vec<u8>, LoadError> {
        self.stager()?.prepare(Preparation::Unpack, module)
    }

    /// Turns WebAssembly text or a core module into a component. A component is only checked. Blocks.
    ///
    /// A module must export the contract's functions under their full names, such as `pacer:policy/scale-down@0.1.0#select`, or carry a
    /// component type as guest toolchains write it.
    ///
    /// # Errors
    ///
    /// When it is no WebAssembly, exports no decision, imports anything that is not offered, or its functions differ from the contract's.
    pub fn componentize(&self, source: &[u8]) -> Result<Vec<u8>, LoadError> {
        self.stager()?.prepare(Preparation::Source, source)
    }

    /// Compiles a component and forgets it.
    ///
    /// # Errors
    ///
    /// The first check that it failed.
    pub fn time_to_compile(&self, component: &[u8]) -> Result<Duration, LoadError> {
        Ok(self.stager()?.load(component)?.1)
    }

    /// Compiles the interpreter of texts into the file beside the program, for every processor of this architecture, unless the file fits already. Blocks
    /// for some seconds.
    ///
    /// # Errors
    ///
    /// When it can't be compiled, or the file can't be written.
    pub fn compile_ahead(&self) -> Result<CompiledAhead, JailError> {
        let file = self.launcher.native.clone();
        if let Some(code) = self.interpreter.compiled_ahead() {
            return Ok(CompiledAhead { file, size: code.len(), compiled: false });
        }
        let code = self.interpreter.compile().map_err(|error| JailError(error.to_string()))?;
        native::write(&file, &code).map_err(|error| JailError(format!("{} can't be written: {error}", file.display())))?;
        Ok(CompiledAhead { file, size: code.len(), compiled: true })
    }

    /// A process for one policy set, whose budget begins now.
    pub(crate) fn stager(&self) -> Result<Stager, LoadError> {
        let process = self.launch(Role::Stager).map_err(|lost| LoadError::new(Refusal::SelfTest, lost.to_string()))?;
        Ok(Stager::new(process, Arc::clone(&self.interpreter)))
    }

    fn launch(&self, role: Role) -> Result<Process, Lost> {
        let process = Process::start(&self.launcher, role)?;
        if !process.locks.cover(self.locks) {
            return Err(Lost::Start("it is locked in less than the first one was".to_owned()));
        }
        Ok(process)
    }
}

impl Policy {
    /// Checks, compiles, links, starts and tries a component, in this order, in a process of its own.
    ///
    /// Blocks for about a second per MiB: call it where blocking is allowed. The trial uses no settings, with which a policy may decline to
    /// answer, and the highest limits. [`Policy::validate_settings`] and [`Policy::rehearse`] are for the settings and limits it will have.
    ///
    /// # Errors
    ///
    /// The first check that failed, or the part of the budget that was used up.
    pub fn load(jail: &Jail, component: &[u8]) -> Result<Self, LoadError> {
        Ok(jail.stager()?.load(component)?.0)
    }

    /// Has the policy check settings. Blocks for at most some deadlines.
    ///
    /// # Errors
    ///
    /// [`Refusal::Settings`] with the problems the policy names, or how the call failed; [`Refusal::Instantiate`] when it may not have the memory that it needs.
    pub fn validate_settings(&self, jail: &Jail, settings: &str, limits: &Limits) -> Result<(), LoadError> {
        jail.stager()?.validate(self, settings, limits)
    }

    /// Tries ordinary requests for one decision with the settings and limits it will have. Blocks for at most a dozen deadlines.
    ///
    /// # Errors
    ///
    /// When an answer is an error, invalid, or not the same twice.
    pub fn rehearse(&self, jail: &Jail, decision: Decision, settings: &str, limits: &Limits) -> Result<(), LoadError> {
        jail.stager()?.rehearse(self, decision, settings, limits)
    }

    /// One call, with its answer checked by the gate. `begun` is called when a runner is there and its time begins to count.
    pub(crate) fn ask<Q: Question>(
        &self,
        jail: &Jail,
        request: &Q,
        settings: &str,
        limits: &Limits,
        begun: impl FnOnce(),
    ) -> Called<Q::Answer> {
        let (answer, usage) = jail.call(self, request, settings, limits, begun);
        (answer.and_then(|answer| Ok(request.gate(answer)?)), usage)
    }
}

/// A process that was lost while it answered a decision.
impl From<Lost> for Fault {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Late => Self::Deadline,
            lost @ Lost::Start(_) => {
                tracing::warn!(%lost, "policy not asked");
                Self::HostPanic
            }
            lost => Self::Crash(lost.to_string()),
        }
    }
}

/// Identifies native code by the component that it was compiled from.
type Adopted = std::collections::HashMap<Digest, usize>;
