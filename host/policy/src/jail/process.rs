//! One child process and the socket to it.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::Launcher;
use crate::protocol::{self, Locks, Reply, Request, Role};

/// How long a child may take from its start to its first word, on a machine as busy as it may be.
const START: Duration = Duration::from_secs(10);

/// A child that has closed its socket and lives on after this is ended. Another one answers within 100 ms, this wait included.
const DYING: Duration = Duration::from_millis(50);

/// Why a child is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Lost {
    /// It could not be started.
    #[error("no process for policies can be started: {0}")]
    Start(String),
    /// It did not answer in time and was killed.
    #[error("the process did not answer in time")]
    Late,
    /// It ended or closed its socket before it answered; the text says how.
    #[error("the process ended: {0}")]
    Died(String),
    /// What it said is no answer.
    #[error("the process answered what is no answer")]
    Rubbish,
}

/// A child that does not outlive its handle.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    socket: UnixStream,
    pub(super) locks: Locks,
}

impl Process {
    /// Starts a child and waits until it is locked in.
    pub(super) fn start(launcher: &Launcher, role: Role) -> Result<Self, Lost> {
        let failed = |error: io::Error| Lost::Start(error.to_string());
        let (socket, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(&launcher.program);
        // One arena of malloc: the others would take address space that counts against the child's limit.
        command.args(&launcher.arguments).arg(role.as_str()).env_clear().env("MALLOC_ARENA_MAX", "1").current_dir("/");
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(failed)?;
        // With the command goes this process's copy of the child's end, so that a child that ends closes the socket.
        drop(command);
        let mut process = Self { child, socket, locks: Locks::default() };
        let mut socket = Timed { socket: &process.socket, until: Instant::now() + START };
        let hello = protocol::read(&mut socket, 0);
        match hello {
            Ok(Some((locks, _))) => process.locks = locks,
            Ok(None) => return Err(Lost::Start(process.fate())),
            Err(error) => return Err(process.lost(&error)),
        }
        Ok(process)
    }

    pub(super) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it is still there.
    pub(super) fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// One request and its reply, whose body has at most `most` bytes. After an error the child is of no use.
    pub(super) fn exchange(
        &mut self,
        request: &Request,
        body: &[u8],
        most: usize,
        until: Instant,
    ) -> Result<(Reply, Vec<u8>), Lost> {
        let mut socket = Timed { socket: &self.socket, until };
        let answered = protocol::write(&mut socket, request, body).and_then(|()| protocol::read(&mut socket, most));
        match answered {
            Ok(Some((Reply::Misunderstood, _))) => Err(Lost::Rubbish),
            Ok(Some(answered)) => Ok(answered),
            Ok(None) => Err(Lost::Died(self.fate())),
            Err(error) => Err(self.lost(&error)),
        }
    }

    fn lost(&mut self, error: &io::Error) -> Lost {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                // Its processor time may have run out at the same moment.
                match self.child.try_wait() {
                    Ok(Some(status)) => Lost::Died(cause(status)),
                    _ => Lost::Late,
                }
            }
            io::ErrorKind::InvalidData => Lost::Rubbish,
            _ => Lost::Died(self.fate()),
        }
    }

    /// How it ended; ends it where it only closed the socket.
    fn fate(&mut self) -> String {
        // A child that dies closes its socket a moment before it can be waited for.
        let until = Instant::now() + DYING;
        while Instant::now() < until {
            if let Ok(Some(status)) = self.child.try_wait() {
                return cause(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _over = self.child.kill();
        match self.child.wait() {
            // Of one that was dying already the first cause is kept.
            Ok(status) if status.signal() != Some(9) => cause(status),
            _ => "signal 9, after it closed its socket".to_owned(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _over = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// What a status means for a child with limits: want of memory shows as an abort or a bad access.
fn cause(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal @ (6 | 7 | 11)) => format!("signal {signal}, mostly for want of memory or stack"),
        Some(signal @ (9 | 24)) => format!("signal {signal}, mostly for want of processor time or memory"),
        _ => status.to_string(),
    }
}

/// A socket with a point in time after which nothing is waited for.
struct Timed<'a> {
    socket: &'a UnixStream,
    until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.until.saturating_duration_since(Instant::now()) {
            left if left.is_zero() => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(program: &str, script: &str) -> Result<Process, Lost> {
        Process::start(&Launcher::program(program, ["-c", script]), Role::Runner)
    }

    /// What a child says that is locked in: lengths, and three times yes.
    const HELLO: &str = r"printf '\003\000\000\000\000\000\000\000\001\001\001' >&0";

    #[test]
    fn what_is_no_child_is_told() {
        assert!(matches!(start("/no/such/program", ""), Err(Lost::Start(_))));
        assert_eq!(start("/bin/sh", "exit 1").unwrap_err().to_string(), "no process for policies can be started: exit status: 1");
        assert!(matches!(start("/bin/sh", "printf 'something else' >&0"), Err(Lost::Rubbish)));
    }

    #[test]
    fn what_becomes_of_a_child_is_told() {
        let exchange = |script: &str| {
            let mut process = start("/bin/sh", &format!("{HELLO}; {script}")).unwrap();
            assert!(process.locks.seccomp);
            process.exchange(&Request::Load, &[0; 64], 10, Instant::now() + Duration::from_millis(500)).unwrap_err()
        };
        let began = Instant::now();
        assert_eq!(exchange("sleep 600"), Lost::Late);
        assert!(began.elapsed() < Duration::from_secs(30));
        assert!(matches!(exchange("kill -9 $$"), Lost::Died(why) if why.starts_with("signal 9")));
        assert!(matches!(exchange("kill -6 $$"), Lost::Died(why) if why.starts_with("signal 6")));
        assert_eq!(exchange("exec <&-; sleep 600"), Lost::Died("signal 9, after it closed its socket".to_owned()));
        assert_eq!(exchange(r"printf '\001\000\000\000\000\000\000\000\377' >&0; sleep 600"), Lost::Rubbish);
        assert_eq!(exchange(r"printf '\001\000\000\000\013\000\000\000\000' >&0; sleep 600"), Lost::Rubbish);
    }

    #[test]
    fn it_has_nothing_of_the_environment() {
        let told =
            start("/bin/sh", "/usr/bin/env | /bin/grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^MALLOC_ARENA_MAX= && exit 7; exit 3");
        assert_eq!(told.unwrap_err(), Lost::Start("exit status: 3".to_owned()));
    }
}
