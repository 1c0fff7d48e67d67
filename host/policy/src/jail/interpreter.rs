//! The component that runs texts: its native code, from the file beside the program, or compiled once, when the first text is staged.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::process::{Lost, Process};
use super::{Launcher, native};
use crate::load::{LoadError, Refusal};
use crate::protocol::{CODE_BYTES, Locks, Reply, Request, Role};
use crate::text::{self, INTERPRETER};

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

    /// Its native code. Whoever asks while it is compiled waits for that. Blocks for some seconds the first time, where nobody compiled it ahead.
    pub(super) fn code(&self) -> Result<Arc<[u8]>, LoadError> {
        let mut known = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = &*known {
            return Ok(Arc::clone(code));
        }
        let code = self.compiled_ahead().map_or_else(|| self.compile(), Ok)?;
        let code: Arc<[u8]> = Arc::from(code);
        *known = Some(Arc::clone(&code));
        Ok(code)
    }

    /// The code in the file beside the program; none when that is not there, or is not for this program on this machine.
    pub(super) fn compiled_ahead(&self) -> Option<Vec<u8>> {
        let code = native::read(&self.launcher.native, &self.launcher.program)?;
        let fits = matches!(self.ask(&Request::Adopt(text::interpreter()), &code), Ok((Reply::Done, _)));
        if !fits {
            tracing::warn!(file = %self.launcher.native.display(), "the native code of the interpreter is of another program or for another machine and is not used");
        }
        fits.then_some(code)
    }

    /// Its native code, compiled anew. Blocks for some seconds.
    pub(super) fn compile(&self) -> Result<Vec<u8>, LoadError> {
        match self.ask(&Request::Interpreter, INTERPRETER)? {
            (Reply::Prepared, code) => Ok(code),
            (Reply::Refused(code, message), _) => Err(LoadError::new(code, message)),
            _ => Err(failed(&Lost::Rubbish)),
        }
    }

    fn ask(&self, request: &Request, body: &[u8]) -> Result<(Reply, Vec<u8>), LoadError> {
        let mut process = Process::start(&self.launcher, Role::Interpreter).map_err(|lost| failed(&lost))?;
        if !process.locks.cover(self.locks) {
            return Err(failed(&Lost::Start("it is locked in less than the first one was".to_owned())));
        }
        process.exchange(request, body, CODE_BYTES, Instant::now() + COMPILATION).map_err(|lost| failed(&lost))
    }
}

fn failed(lost: &Lost) -> LoadError {
    LoadError::new(Refusal::SelfTest, format!("the interpreter of texts can't be compiled: {lost}"))
}
