//! A child process that never outlives the test that started it.

use std::ffi::OsString;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::sync::watch;

/// Longest wait until a process that was told to stop has stopped.
const STOP: Duration = Duration::from_secs(1);

/// Why a child process could not be started or ended.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// Its log file could not be made.
    #[error("cannot write the log {path} of {name}: {source}")]
    Log {
        /// What was to be started.
        name: String,
        /// The log's path.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// The operating system refused to start it.
    #[error("cannot start {name} ({program}): {source}; check that the file exists and is executable")]
    Spawn {
        /// What was to be started.
        name: String,
        /// The executable.
        program: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// A running or ended child process; its output goes to a log file.
///
/// It is killed when the handle is dropped, and by the kernel when this process dies without dropping anything: `setpriv`
/// (util-linux) asks for a parent-death signal where it is installed. That signal is bound to the *thread* that forked, so
/// each child has a thread of its own, which starts it and then waits for it.
#[derive(Debug)]
pub struct Child {
    name: String,
    pid: u32,
    log: PathBuf,
    exit: watch::Receiver<Option<ExitStatus>>,
    waiter: Option<JoinHandle<()>>,
}

impl Child {
    /// Starts `command` with its output appended to `log` and no input.
    ///
    /// `name` is how messages call it. Of `command`, the program, arguments, changes to the environment and directory count.
    ///
    /// # Errors
    ///
    /// When the log cannot be opened or the program cannot be started.
    pub fn start(name: &str, command: &Command, log: &Path) -> Result<Self, ChildError> {
        let log_error = |source| ChildError::Log { name: name.to_owned(), path: log.to_owned(), source };
        let output = std::fs::OpenOptions::new().create(true).append(true).open(log).map_err(log_error)?;
        let errors = output.try_clone().map_err(log_error)?;
        let mut bound = bound_to_us(command);
        bound.stdin(Stdio::null()).stdout(output).stderr(errors);

        let (started, start) = mpsc::sync_channel(1);
        let (ended, exit) = watch::channel(None);
        let waiter = std::thread::Builder::new().name(format!("wait-{name}")).spawn(move || match bound.spawn() {
            Ok(mut child) => {
                // The receiver waits for exactly this message.
                let _ = started.send(Ok(child.id()));
                if let Ok(status) = child.wait() {
                    ended.send_replace(Some(status));
                }
            }
            Err(source) => {
                let _ = started.send(Err(source));
            }
        });
        let spawn_error = |source| ChildError::Spawn { name: name.to_owned(), program: command.get_program().into(), source };
        let waiter = waiter.map_err(spawn_error)?;
        let pid = start.recv().map_err(|_| spawn_error(io::Error::other("its thread ended")))?.map_err(spawn_error)?;
        Ok(Self { name: name.to_owned(), pid, log: log.to_owned(), exit, waiter: Some(waiter) })
    }

    /// What messages call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id; stays readable after its end.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended, or `None` while it runs.
    #[must_use]
    pub fn exit(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// Waits for its end; `None` when that could not be observed.
    pub async fn exited(&self) -> Option<ExitStatus> {
        let mut exit = self.exit.clone();
        exit.wait_for(Option::is_some).await.ok().and_then(|status| *status)
    }

    /// Sends SIGTERM and waits for the end for at most `patience`, then kills it.
    pub async fn terminate(&self, patience: Duration) -> Option<ExitStatus> {
        self.signal(Signal::TERM);
        match tokio::time::timeout(patience, self.exited()).await {
            Ok(status) => status,
            Err(_) => self.kill().await,
        }
    }

    /// Sends SIGKILL and waits for the end.
    pub async fn kill(&self) -> Option<ExitStatus> {
        self.signal(Signal::KILL);
        self.exited().await
    }

    /// Stops it in the middle of whatever it does (SIGSTOP), until [`Child::resume`]. Returns when it has stopped: on a loaded machine the signal
    /// takes its time, and until then threads go on answering.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let Some(pid) = self.running() else { return };
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let asked = Instant::now();
        while matches!(waitid(WaitId::Pid(pid), options), Ok(None)) && asked.elapsed() < STOP {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets a paused one go on (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.running() {
            // ESRCH: it ended between the check and the call.
            let _ = kill_process(pid, signal);
        }
    }

    /// Its process id while it runs. Once it is reaped that may belong to another process.
    fn running(&self) -> Option<Pid> {
        self.exit().is_none().then(|| i32::try_from(self.pid).ok().and_then(Pid::from_raw)).flatten()
    }

    /// Path of the file that holds its output.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last `bytes` bytes of its output, from the start of a line.
    #[must_use]
    pub fn log_tail(&self, bytes: u64) -> String {
        tail(&self.log, bytes).unwrap_or_else(|error| format!("({}: {error})", self.log.display()))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if let Some(waiter) = self.waiter.take() {
            // A thread that panicked has nothing left to wait for.
            let _ = waiter.join();
        }
    }
}

/// The last `bytes` bytes of a file, from the start of a line.
///
/// # Errors
///
/// When the file cannot be read.
pub fn tail(path: &Path, bytes: u64) -> io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    let start = length.saturating_sub(bytes);
    file.seek(SeekFrom::Start(start))?;
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    let text = String::from_utf8_lossy(&content);
    Ok(match text.split_once('\n') {
        Some((_, whole_lines)) if start > 0 => whole_lines.to_owned(),
        _ => text.into_owned(),
    })
}

/// The same command, run under `setpriv --pdeathsig KILL` if that exists.
fn bound_to_us(command: &Command) -> Command {
    let mut bound = match find_in_path("setpriv") {
        Some(setpriv) => {
            let mut bound = Command::new(setpriv);
            bound.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program());
            bound
        }
        None => Command::new(command.get_program()),
    };
    bound.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        bound.current_dir(directory);
    }
    bound
}

/// The first executable of that name on `PATH`.
pub(crate) fn find_in_path(name: &str) -> Option<PathBuf> {
    let path: OsString = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn output_and_exit_status_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let child = Child::start("sh", shell("echo first; echo $WORD >&2; exit 3").env("WORD", "second"), &log).unwrap();
        assert_eq!(child.exited().await.unwrap().code(), Some(3));
        assert_eq!(child.log_tail(1000), "first\nsecond\n");
        assert_eq!(child.log_tail(8), "second\n", "half a line is left out");
    }

    #[tokio::test]
    async fn termination_ends_in_a_kill() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let deaf = Child::start("sh", &shell("trap '' TERM; echo ready; while :; do sleep 0.01; done"), &log).unwrap();
        while !deaf.log_tail(100).contains("ready") {
            tokio::task::yield_now().await;
        }
        let status = deaf.terminate(Duration::from_millis(50)).await.unwrap();
        assert!(!status.success());
        assert_eq!(status.code(), None, "it was a signal");
    }

    #[tokio::test]
    async fn dropping_the_handle_ends_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let child = Child::start("sleep", &shell("exec sleep 1000"), &directory.path().join("log")).unwrap();
        let process = PathBuf::from(format!("/proc/{}", child.pid()));
        let known = process.exists();
        drop(child);
        assert!(!known || !process.exists());
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        if find_in_path("setpriv").is_none() {
            let started = Child::start("x", &Command::new("/nonexistent/x"), &directory.path().join("log"));
            assert!(matches!(started, Err(ChildError::Spawn { .. })));
        }
        let started = Child::start("x", &Command::new("/bin/sh"), &directory.path().join("none/log"));
        assert!(matches!(started, Err(ChildError::Log { .. })));
    }
}
