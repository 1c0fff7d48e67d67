//! The processes that touch users' bytes.
//!
//! A policy comes from a user. Decompressing, validating, compiling and running it can take any amount of time, memory and stack, and a bug of
//! the engine would be a bug of the process it is in. So the operator, which holds every credential, does none of that: it starts its own
//! executable once more, and [`main`] makes that a process which holds nothing. Before it reads the first byte it has an empty environment, one
//! socket, limits of memory and processor time, and two locks of the kernel: Landlock takes away files and network, seccomp every system call but
//! those of a computation (`lock`). Its other side is [`pacer_policy::Jail`].
//!
//! Read in this order: `lock` (what is taken away), `serve` (what is asked), `caps` and `component` (what is refused unread), `engine` and `call` (how a policy runs).
//! The only `unsafe` line of the project is in `precompiled`.

mod ask;
mod bindings;
mod call;
mod caps;
mod component;
#[cfg(test)]
mod decoders;
mod encode;
mod engine;
mod fault;
mod guest;
mod linked;
mod load;
mod lock;
mod meter;
mod packing;
mod precompiled;
mod probe;
mod serve;
mod wire;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use pacer_policy::protocol::{LINGER, Role};

use engine::Engine;
use probe::{Parent, Surroundings};

pub use component::interfaces;

/// Stack of the thread that does the work, in bytes. What is nested deeper than this allows ends the process.
const STACK_BYTES: usize = 32 << 20;

/// The whole life of a child in the role of that name, with the socket to the operator as its standard input.
#[must_use]
pub fn main(role: Option<&str>) -> ExitCode {
    let Some(role) = role.and_then(Role::named) else { return ExitCode::FAILURE };
    match live(role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn live(role: Role) -> io::Result<()> {
    // What is printed by default wants files and the environment, and nobody reads it.
    panic::set_hook(Box::new(|_| {}));
    let parent = Parent::find();
    let inherited = lock::inherited();
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    if role == Role::SurplusRunner {
        socket.set_read_timeout(Some(LINGER))?;
    }
    let socket = Arc::new(File::from(OwnedFd::from(socket)));
    let mut locks = lock::before_threads(role);
    let engine = if role == Role::Interpreter { Engine::portable() } else { Engine::new() }.map_err(io::Error::other);
    let (here, started) = mpsc::sync_channel(1);
    let (go, locked) = mpsc::sync_channel(1);
    let shared = Arc::clone(&socket);
    let work = move || {
        let socket = shared;
        let _ = here.send(());
        // Nothing is read before the locks hold.
        match locked.recv() {
            Ok(locks) => serve::serve(&engine?, &socket, locks, &Surroundings { parent, inherited, seccomp: locks.seccomp }),
            Err(_) => Ok(()),
        }
    };
    let worker = thread::Builder::new().name("policies".to_owned()).stack_size(STACK_BYTES).spawn(work)?;
    let _ = started.recv();
    lock::with_threads(&mut locks, socket.as_fd());
    let _ = go.send(locks);
    worker.join().unwrap_or_else(|_| Err(io::Error::other("the worker panicked")))
}
