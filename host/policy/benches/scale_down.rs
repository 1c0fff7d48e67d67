//! What the shipped scale-down policy costs: as a component, and the same linked natively.
//!
//! `cargo bench -p pacer-policy` prints a table of microseconds. `call` is from a fresh store to the checked answer; `evaluation` is what
//! the operator waits for, with the way through the blocking pool, the digests and the receipt. The target is a call under one
//! millisecond for 1,000 candidates.

#![allow(clippy::print_stdout, reason = "the table is the result")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pacer_core::policy::{Candidate, Node, ScaleDownRequest};
use pacer_policy::{Assignment, Chosen, Counters, Evaluation, Generation, PolicyHost, PolicySet};

const SIZES: [u32; 4] = [10, 100, 1_000, 5_000];

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    runtime.block_on(async {
        let host = PolicyHost::new(Arc::new(Counters::default()));
        if let Some(reason) = host.broken() {
            return Err(reason.to_owned().into());
        }
        let scale_down = Assignment { chosen: Chosen::Native, ..Default::default() };
        let native = host.prepare(PolicySet { scale_down, ..Default::default() }).await?;
        let component = host.generation();
        println!("candidates   call p50   call p99   evaluation p50   evaluation p99   native p50   native p99        fuel");
        for size in SIZES {
            let rounds = if size > 1_000 { 200 } else { 1_000 };
            let (calls, whole, fuel) = measure(&component, size, rounds).await?;
            let (linked, _, _) = measure(&native, size, rounds).await?;
            let [call, evaluation, linked] = [&calls, &whole, &linked].map(|times| (at(times, 50), at(times, 99)));
            println!(
                "{size:>10} {:>10.1} {:>10.1} {:>16.1} {:>16.1} {:>12.1} {:>12.1} {fuel:>11}",
                call.0, call.1, evaluation.0, evaluation.1, linked.0, linked.1,
            );
        }
        Ok(())
    })
}

/// Sorted times of the attempts and of the whole evaluations, and the fuel of one.
async fn measure(
    generation: &Generation,
    size: u32,
    rounds: usize,
) -> Result<(Vec<Duration>, Vec<Duration>, u64), Box<dyn Error>> {
    let request = request(size);
    let (mut calls, mut whole, mut fuel) = (Vec::new(), Vec::new(), 0);
    for round in 0..rounds + rounds / 10 {
        let request = request.clone();
        let began = Instant::now();
        let evaluation: Evaluation<_> = generation.scale_down(request).await;
        let took = began.elapsed();
        if let Some(fault) = evaluation.fault {
            return Err(fault.into());
        }
        // The first tenth warms up caches and threads.
        if round >= rounds / 10 {
            calls.push(evaluation.receipt.duration());
            whole.push(took);
            fuel = evaluation.receipt.fuel();
        }
    }
    calls.sort_unstable();
    whole.sort_unstable();
    Ok((calls, whole, fuel))
}

fn at(sorted: &[Duration], percent: usize) -> f64 {
    let index = sorted.len().saturating_sub(1) * percent / 100;
    sorted.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// A tenth of the candidates goes; four of them share a node, as in a real pool.
fn request(size: u32) -> ScaleDownRequest {
    let candidates = (0..size)
        .map(|n| Candidate {
            name: format!("linux-large-x7k2p-{n:05}"),
            idle: 60 + n * 7_919 % 1_800,
            age: 3_600 + n * 104_729 % 7_200,
            node: Some(n / 4),
            current: n % 9 != 0,
            last_job_end: (n % 2 == 0).then_some(60 + n % 600),
            attributes: Vec::new(),
        })
        .collect();
    let nodes = (0..size.div_ceil(4))
        .map(|n| Node {
            name: format!("node-{n}"),
            runners: 4,
            busy: n % 3,
            draining: n % 50 == 0,
            age: Some(86_400),
            ..Default::default()
        })
        .collect();
    ScaleDownRequest { now: 1_800_000_000.0, candidates, nodes, surplus: size.div_ceil(10), ..Default::default() }
}
