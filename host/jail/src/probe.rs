//! A child tries what must be impossible for it, so that the operator knows and does not only hope.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::ptrace;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use pacer_policy::protocol::Probed;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, getppid, test_kill_process};

use crate::engine::Engine;

/// The operator's process, as it was found while that could be asked.
#[derive(Clone, Copy)]
pub(crate) struct Parent(Option<Pid>);

impl Parent {
    pub(crate) fn find() -> Self {
        Self(getppid())
    }
}

/// What there is around a child before it is locked in.
pub(crate) struct Surroundings {
    pub(crate) parent: Parent,
    /// Whether descriptors were left open to it; none where it can't be said.
    pub(crate) inherited: Option<bool>,
    /// Whether seccomp denies the use of them.
    pub(crate) seccomp: bool,
}

/// Tries everything, and that runaway policies are stopped.
pub(crate) fn probe(engine: &Engine, surroundings: &Surroundings) -> Probed {
    let parent = surroundings.parent.0;
    let of_parent = |file: &str| format!("/proc/{}/{file}", parent.map_or(0, Pid::as_raw_pid));
    let attempts = [
        ("reading a file", allowed(File::open("/"))),
        ("making a file", create()),
        ("listing a directory", allowed(fs::read_dir("/"))),
        ("reading the operator's environment", allowed(fs::read(of_parent("environ")))),
        // Opening it takes the right to trace a process.
        ("reading the operator's memory", allowed(File::open(of_parent("mem")))),
        ("copying the operator's memory", copy(parent)),
        ("tracing the operator", trace(parent)),
        ("connecting over TCP", allowed(TcpStream::connect("127.0.0.1:9"))),
        ("a UDP socket", allowed(UdpSocket::bind("127.0.0.1:0"))),
        ("a unix socket", allowed(UnixDatagram::unbound())),
        ("signalling the operator", parent.is_some_and(|parent| errno(test_kill_process(parent)))),
        ("executing a program", allowed::<()>(Err(Command::new("/nonexistent/pacer").exec()))),
        ("starting a process", spawn()),
        ("starting a thread", allowed(std::thread::Builder::new().spawn(|| {}))),
        ("a file in memory", errno(memfd_create(c"pacer", MemfdFlags::empty()))),
        ("reading an environment", std::env::vars_os().any(|(name, _)| name != "MALLOC_ARENA_MAX")),
        // seccomp permits reading, writing and mapping of none but the socket.
        ("using an inherited descriptor", surroundings.inherited != Some(false) && !surroundings.seccomp),
    ];
    let possible = attempts.iter().filter(|(_, possible)| *possible).map(|(what, _)| (*what).to_owned());
    Probed {
        possible: possible.collect(),
        tried: attempts.iter().map(|(what, _)| (*what).to_owned()).collect(),
        engine: engine.self_test().err().map(|error| error.to_string()),
    }
}

/// Whether it was not denied: any other error means that it was looked at. `ENOSYS` is what a filter answers in the name of an older kernel.
fn allowed<T>(result: io::Result<T>) -> bool {
    let denied = |error: io::Error| matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported);
    !result.is_err_and(denied)
}

fn errno<T>(result: rustix::io::Result<T>) -> bool {
    allowed(result.map_err(io::Error::from))
}

/// No address of the operator's is known here: whoever may copy is told that this is none.
fn copy(parent: Option<Pid>) -> bool {
    let mut byte = [0];
    let read = parent.map(|parent| {
        let remote = RemoteIoVec { base: 0, len: byte.len() };
        process_vm_readv(of_nix(parent), &mut [IoSliceMut::new(&mut byte)], &[remote])
    });
    read.is_some_and(|read| allowed(read.map_err(io::Error::from)))
}

/// Lets a process that is not traced go on, which changes nothing: whoever may trace is told that it is not.
fn trace(parent: Option<Pid>) -> bool {
    parent.is_some_and(|parent| allowed(ptrace::cont(of_nix(parent), None).map_err(io::Error::from)))
}

fn of_nix(process: Pid) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(process.as_raw_pid())
}

fn create() -> bool {
    let path = Path::new("/tmp/pacer-probe");
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    if made.is_ok() {
        let _gone = fs::remove_file(path);
    }
    allowed(made)
}

fn spawn() -> bool {
    let mut command = Command::new("/nonexistent/pacer");
    allowed(command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit()).spawn())
}
