//! A policy is judged by the processor time that it takes, not by what else the machine has to do. Alone in its file: the tests beside it would be
//! as slow.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pacer_policy::{Assignment, Chosen, Counters, Limits, PolicySet, TICK};

mod child;
mod guest;

use guest::{Guest, request};

/// Threads that keep every processor busy, until the handle goes.
struct BusyMachine {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyMachine {
    fn new() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let count = 8 * thread::available_parallelism().unwrap().get();
        let spin = |_| {
            let over = Arc::clone(&over);
            thread::spawn(move || while !over.load(Ordering::Relaxed) {})
        };
        let threads = (0..count).map(spin).collect();
        Self { over, threads }
    }
}

impl Drop for BusyMachine {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_within_its_processor_time_decides_on_a_busy_machine() {
    let host = child::host(&Arc::new(Counters::default()));
    // Some 40 ms of work, of the 100 that it has.
    let worker = Guest::select(
        "(loop $again
            (local.set $n (i32.add (local.get $n) (i32.const 1)))
            (br_if $again (i32.lt_u (local.get $n) (i32.const 12000000))))
        (i32.const 2048)",
    );
    let scale_down = Assignment { chosen: Chosen::Policy(host.load(worker.component()).await.unwrap()), ..Default::default() };
    host.publish(host.prepare(PolicySet { scale_down, ..Default::default() }).await.unwrap());
    let candidates = 1_000;
    let _busy = BusyMachine::new();
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        let evaluation = host.generation().scale_down(request(candidates, 1)).await;
        let attempt = &evaluation.receipt.attempts[0];
        let took = Duration::from_micros(attempt.duration_us);
        // One that the clock ended got less than it asks for in the longest time that there is.
        assert!(attempt.fault.is_none() || took >= Limits::LONGEST, "{:?} after {took:?}", attempt.fault);
        longest = longest.max(took);
        if attempt.fault.is_none() && took > Limits::DEADLINE + TICK {
            return;
        }
    }
    panic!("no call took longer than the deadline: {longest:?}");
}
