//! The clock of deadlines: advances the engine's epoch while calls are in flight and sleeps otherwise.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;
use std::{io, thread};

use pacer_policy::TICK;
use wasmtime::EngineWeak;

/// Ticks without a call after which the thread sleeps until the next one: a second. An idle operator then wakes no processor, and a burst
/// of calls does not pay for waking the thread each time.
const LINGER: u32 = 200;

/// Owns the thread, which is an operating system thread because a busy runtime would delay a task. Ends it when dropped.
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Keeps the clock running while it lives.
pub(crate) struct Watch {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    calls: usize,
    asleep: bool,
    ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticker {
    pub(super) fn start(engine: EngineWeak) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let (here, started) = mpsc::sync_channel(1);
        let clock = move || {
            let _ = here.send(());
            tick(&of_thread, &engine);
        };
        let thread = thread::Builder::new().name("policy-clock".to_owned()).spawn(clock)?;
        // A thread that has not begun when system calls are taken away ends the process.
        let _ = started.recv();
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(super) fn watch(&self) -> Watch {
        let mut state = self.shared.lock();
        state.calls = state.calls.saturating_add(1);
        if state.asleep {
            self.shared.changed.notify_one();
        }
        drop(state);
        Watch { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.calls = state.calls.saturating_sub(1);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the panic hook already.
            let _ = thread.join();
        }
    }
}

fn tick(shared: &Shared, engine: &EngineWeak) {
    let mut idle = 0_u32;
    let mut next = Instant::now();
    let mut state = shared.lock();
    loop {
        if state.ended {
            return;
        }
        idle = if state.calls == 0 { idle.saturating_add(1) } else { 0 };
        if idle > LINGER {
            state.asleep = true;
            state = shared
                .changed
                .wait_while(state, |state| state.calls == 0 && !state.ended)
                .unwrap_or_else(PoisonError::into_inner);
            state.asleep = false;
            idle = 0;
            next = Instant::now();
            continue;
        }
        // Late ticks are not made up for: a burst would cut short the deadlines of calls that have just begun.
        next = (next + TICK).max(Instant::now());
        while !state.ended {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        match engine.upgrade() {
            Some(engine) => engine.increment_epoch(),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Waits for a state of the clock; fails when it is not reached in time.
    fn reaches(shared: &Shared, state: impl Fn(&State) -> bool) {
        let began = Instant::now();
        while !state(&shared.lock()) {
            assert!(began.elapsed() < Duration::from_secs(30), "the clock does not get there");
            thread::yield_now();
        }
    }

    #[test]
    fn the_clock_sleeps_without_calls_and_wakes_for_one() {
        let engine = wasmtime::Engine::default();
        let ticker = Ticker::start(engine.weak()).unwrap();
        reaches(&ticker.shared, |state| state.asleep);
        let watch = ticker.watch();
        reaches(&ticker.shared, |state| !state.asleep && state.calls == 1);
        drop(watch);
        reaches(&ticker.shared, |state| state.asleep && state.calls == 0);
    }

    #[test]
    fn the_clock_ends_with_its_owner_and_with_the_engine() {
        let engine = wasmtime::Engine::default();
        let ticker = Ticker::start(engine.weak()).unwrap();
        let shared = Arc::clone(&ticker.shared);
        drop(ticker);
        assert_eq!(Arc::strong_count(&shared), 1, "the thread is gone");
        let mut ticker = Ticker::start(engine.weak()).unwrap();
        drop(engine);
        let _watch = ticker.watch();
        ticker.thread.take().unwrap().join().unwrap();
    }
}
