//! The component that runs texts, compiled once, when the first text is staged.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Launcher;
use super::process::{Lost, Process};
use crate::load::{LoadError, Refusal};
use crate::protocol::{CODE_BYTES, Locks, Reply, Request, Role};
use crate::text::INTERPRETER;

/// How long its compilation may take. It is the operator's own code, and some seconds on a machine that is not busy; no set pays for it.
const COMPILATION: Duration = Duration::from_secs(120);

/// Its native code, once somebody has needed it.
#[derive(Debug)]
pub(super) struct Interpreter {
    launcher: Launcher,
    locks: Locks,
    code: Mutex<Option<Arc<[u8]>>>,
}

impl Interpreter {
    pub(super) fn new(launcher: Launcher, locks: Locks) -> Self {
        Self { launcher, locks, code: Mutex::default() }
    }

    /// Its native code. Whoever asks while it is compiled waits for that. Blocks for some seconds the first time.
    pub(super) fn code(&self) -> Result<Arc<[u8]>, LoadError> {
        let mut code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = &*code {
            return Ok(Arc::clone(code));
        }
        let failed =
            |lost: Lost| LoadError::new(Refusal::SelfTest, format!("the interpreter of texts can't be compiled: {lost}"));
        let mut process = Process::start(&self.launcher, Role::Interpreter).map_err(failed)?;
        if !process.locks.cover(self.locks) {
            return Err(failed(Lost::Start("it is locked in less than the first one was".to_owned())));
        }
        match process.exchange(&Request::Interpreter, INTERPRETER, CODE_BYTES, Instant::now() + COMPILATION).map_err(failed)? {
            (Reply::Prepared, compiled) => {
                let compiled: Arc<[u8]> = Arc::from(compiled);
                *code = Some(Arc::clone(&compiled));
                Ok(compiled)
            }
            (Reply::Refused(code, message), _) => Err(LoadError::new(code, message)),
            _ => Err(failed(Lost::Rubbish)),
        }
    }
}
