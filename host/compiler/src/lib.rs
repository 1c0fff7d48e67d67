//! Compiles policies in a process of its own.
//!
//! A component comes from a user, and compiling it is the one thing done with it that has no limit of its own: it can't be interrupted, it
//! takes what memory it takes, and a bug of the compiler is a bug of the process it is in. So the operator starts its own executable once
//! more for each component ([`Compiler::compile`]) and gets native code back through a pipe ([`serve`] is the other end). That process
//! has an empty environment, which is where the operator has its credentials; it is the first that the kernel ends when memory is short;
//! and it is killed when it takes too long. When it is over, nothing of it is left in the operator's memory.
//!
//! Loading native code is the only `unsafe` line of the project, and the reason for this crate's size: everything that the argument for it
//! needs is in this file.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use wasmtime::Engine;
use wasmtime::component::Component;

/// Exit code of a process that says on its standard output why it does not compile what it was given.
pub const REFUSED: u8 = 3;

/// Most native code that is taken, several times of what the largest component that is accepted becomes.
const CODE_BYTES: u64 = 128 << 20;

/// Most bytes that are kept of the reason for a refusal.
const REASON_BYTES: usize = 1 << 10;

/// Why there is no native code.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// No process could be started, so nothing is said about the component.
    #[error("no process can be started for the compiler: {0}")]
    NoProcess(io::Error),
    /// The component is at fault.
    #[error("{0}")]
    Refused(String),
    /// It was killed after this time.
    #[error("compiling it takes longer than {} s", .0.as_secs())]
    Late(Duration),
    /// The process ended early: for want of memory, or by a bug of the compiler.
    #[error("the compiler ended early ({0}); it may need more memory than there is")]
    Died(String),
    /// What came back is no code for this engine.
    #[error("the compiler's code does not fit: {0:#}")]
    Foreign(wasmtime::Error),
}

/// How the process is started that compiles.
#[derive(Clone, Debug)]
pub struct Compiler {
    program: PathBuf,
    arguments: Vec<OsString>,
    patience: Duration,
}

impl Compiler {
    /// The executable that is running, started with `arguments`, with which it has to call [`serve`]. It is killed after `patience`.
    ///
    /// # Errors
    ///
    /// When the system does not say which executable that is.
    pub fn this_program<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>, patience: Duration) -> io::Result<Self> {
        // The file that was started, also after another one has taken its name.
        let running = PathBuf::from("/proc/self/exe");
        let program = if running.exists() { running } else { std::env::current_exe()? };
        Ok(Self::program(program, arguments, patience))
    }

    /// Another executable of the same build.
    pub fn program<A: Into<OsString>>(
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = A>,
        patience: Duration,
    ) -> Self {
        Self { program: program.into(), arguments: arguments.into_iter().map(Into::into).collect(), patience }
    }

    /// The component, compiled for `engine`. Blocks until then.
    ///
    /// # Errors
    ///
    /// Why there is no native code.
    pub fn compile(&self, engine: &Engine, component: &[u8]) -> Result<Component, CompileError> {
        let code = self.code(component)?;
        // SAFETY: the code has to come from a wasmtime that may be trusted, unchanged. It comes from the executable that is running now,
        // started by us a moment ago, through a pipe that no other process has an end of; no file is involved. Whether it was made by the
        // same version and for the same configuration is checked by wasmtime. A component that deceives the compiler would deceive it here
        // as well, so that nothing is trusted that is not trusted by `Component::new`.
        #[expect(unsafe_code, reason = "wasmtime has no other way to load code that another process compiled")]
        let component = unsafe { Component::deserialize(engine, &code) };
        component.map_err(CompileError::Foreign)
    }

    fn code(&self, component: &[u8]) -> Result<Vec<u8>, CompileError> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Process(command.spawn().map_err(CompileError::NoProcess)?);
        let output = process.talk(component, self.patience)?;
        let status = process.0.wait().map_err(|error| CompileError::Died(error.to_string()))?;
        match status.code() {
            Some(0) => Ok(output),
            Some(code) if code == i32::from(REFUSED) => Err(CompileError::Refused(reason(&output))),
            // Has the number of a signal as well.
            _ => Err(CompileError::Died(status.to_string())),
        }
    }
}

/// A process that does not outlive its handle.
struct Process(Child);

impl Process {
    /// Hands over the component and takes everything that comes back.
    fn talk(&mut self, component: &[u8], patience: Duration) -> Result<Vec<u8>, CompileError> {
        let (Some(mut input), Some(output)) = (self.0.stdin.take(), self.0.stdout.take()) else {
            return Err(CompileError::Died("it has no pipes".to_owned()));
        };
        thread::scope(|scope| {
            let write = move || {
                // A process that ends before it has read everything says why by its exit code.
                let _closed = input.write_all(component);
            };
            thread::Builder::new().spawn_scoped(scope, write).map_err(CompileError::NoProcess)?;
            let (everything, taken) = mpsc::sync_channel(1);
            let read = move || {
                let mut code = Vec::new();
                let read = output.take(CODE_BYTES).read_to_end(&mut code).map(|_| code);
                // Nobody listens any more when it took too long.
                let _ = everything.send(read);
            };
            thread::Builder::new().spawn_scoped(scope, read).map_err(CompileError::NoProcess)?;
            let ended = match taken.recv_timeout(patience) {
                Ok(Ok(code)) => return Ok(code),
                Ok(Err(error)) => CompileError::Died(error.to_string()),
                Err(RecvTimeoutError::Timeout) => CompileError::Late(patience),
                Err(RecvTimeoutError::Disconnected) => CompileError::Died("its pipe broke".to_owned()),
            };
            // Both threads end with it.
            let _over = self.0.kill();
            Err(ended)
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _over = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn reason(output: &[u8]) -> String {
    let text = output.get(..REASON_BYTES.min(output.len())).unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// What became of the component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Its code was written.
    Compiled,
    /// The reason was written; the process has to end with [`REFUSED`].
    Refused,
}

/// The other end of [`Compiler::compile`]: reads a component, and writes its native code or why there is none.
///
/// # Errors
///
/// When the pipes break.
pub fn serve(engine: &Engine, input: &mut dyn Read, output: &mut dyn Write) -> io::Result<Served> {
    // The kernel's choice when memory is short; without the right to say so it is as likely as any other process.
    let _unchanged = std::fs::write("/proc/self/oom_score_adj", "1000");
    let mut component = Vec::new();
    input.read_to_end(&mut component)?;
    let compiled = catch_unwind(AssertUnwindSafe(|| engine.precompile_component(&component)));
    let refusal = match compiled {
        Ok(Ok(code)) => {
            output.write_all(&code)?;
            return output.flush().map(|()| Served::Compiled);
        }
        Ok(Err(error)) => format!("{error:#}"),
        Err(_) => "the compiler failed, which is a bug of it".to_owned(),
    };
    output.write_all(refusal.as_bytes())?;
    output.flush().map(|()| Served::Refused)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn compile(program: &str, arguments: &[&str], patience: Duration) -> CompileError {
        let compiler = Compiler::program(program, arguments.iter().copied(), patience);
        match compiler.compile(&Engine::default(), &vec![0; 1 << 20]) {
            Err(error) => error,
            Ok(_) => unreachable!("{program} compiles nothing"),
        }
    }

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_process_that_takes_too_long_is_killed() {
        let began = Instant::now();
        let patience = Duration::from_millis(50);
        assert!(matches!(compile("sleep", &["600"], patience), CompileError::Late(late) if late == patience));
        assert!(began.elapsed() < PATIENCE);
    }

    #[test]
    fn what_ends_without_code_is_told() {
        assert!(matches!(compile("/no/such/program", &[], PATIENCE), CompileError::NoProcess(_)));
        for (script, told) in [
            ("exit 1", "the compiler ended early (exit status: 1); it may need more memory than there is"),
            ("kill -9 $$", "the compiler ended early (signal: 9 (SIGKILL)); it may need more memory than there is"),
            ("cat >/dev/null; printf 'no way'; exit 3", "no way"),
        ] {
            assert_eq!(compile("sh", &["-c", script], PATIENCE).to_string(), told, "{script}");
        }
        assert!(matches!(compile("sh", &["-c", "echo something else"], PATIENCE), CompileError::Foreign(_)));
    }

    #[test]
    fn it_has_nothing_of_the_environment() {
        // Whatever is in it is a reason here.
        let told = compile("/bin/sh", &["-c", "/usr/bin/env | /bin/grep -v -e ^PWD= -e ^_= -e ^SHLVL=; exit 3"], PATIENCE);
        assert_eq!(told.to_string(), "");
    }

    #[test]
    fn components_become_code_and_other_bytes_reasons() {
        let engine = Engine::default();
        let serve_of = |bytes: &[u8]| {
            let mut output = Vec::new();
            let served = serve(&engine, &mut &bytes[..], &mut output).unwrap();
            (served, output)
        };
        let (served, code) = serve_of(b"\0asm\x0d\0\x01\0");
        assert_eq!(served, Served::Compiled);
        assert!(code.starts_with(b"\x7fELF"));
        let (served, reason) = serve_of(b"something else");
        assert_eq!(served, Served::Refused);
        assert!(!reason.is_empty() && reason.is_ascii());
    }
}
