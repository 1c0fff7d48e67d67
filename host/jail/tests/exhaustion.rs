//! Components that are made to exhaust memory, stack or processor time cost the operator nothing: each is refused within a bound, by a process
//! that stays within its own, and others are staged and asked as if nothing were.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pacer_policy::bundle::pack;
use pacer_policy::jail::STAGING;
use pacer_policy::{Bundle, BundleError, Counters, PolicyHost, Refusal};

mod child;
mod corpus;
mod guest;

use child::jail;
use guest::{Guest, request};

/// Resident memory that a stager may have: its limit, and what the program itself has resident.
const STAGER_BYTES: u64 = (320 + 100) << 20;

/// What the operator's side may take more than before, whatever was staged.
const OPERATOR_BYTES: u64 = 10 << 20;

/// A figure of `/proc/PID/status` in bytes.
fn status(process: &str, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// Watches how much memory any child of this process has resident.
struct Watch {
    ended: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Watch {
    fn start() -> Self {
        let (ended, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (of_thread, highest) = (Arc::clone(&ended), Arc::clone(&most));
        let own = std::process::id().to_string();
        let watch = move || {
            while !of_thread.load(Ordering::Relaxed) {
                for entry in fs::read_dir("/proc").unwrap().flatten() {
                    let name = entry.file_name().to_string_lossy().into_owned();
                    let parent = fs::read_to_string(format!("/proc/{name}/status")).ok().and_then(|status| {
                        status.lines().find_map(|line| line.strip_prefix("PPid:").map(|id| id.trim().to_owned()))
                    });
                    if parent.as_ref() == Some(&own)
                        && let Some(bytes) = status(&name, "VmHWM")
                    {
                        highest.fetch_max(bytes, Ordering::Relaxed);
                    }
                }
                thread::sleep(Duration::from_millis(5));
            }
        };
        Self { ended, most, thread: Some(thread::spawn(watch)) }
    }

    fn most(mut self) -> u64 {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        self.most.load(Ordering::Relaxed)
    }
}

async fn stage(host: &PolicyHost, owner: &str, module: Vec<u8>) -> Result<(), BundleError> {
    let data = BTreeMap::from([("policies.yaml".to_owned(), "scale-down: {module: m}".to_owned())]);
    let bundle = Bundle::parse(host, owner, &data, &BTreeMap::from([("m".to_owned(), module)])).await?;
    bundle.stage(host).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_corpus_is_refused_within_bounds_while_a_good_set_is_staged() {
    let counters = Arc::new(Counters::default());
    let host = child::host(&counters);
    let good = || Guest::choosing(&[(0, "good")]).component();
    stage(&host, "good", good()).await.unwrap();
    let (mut measured, mut all) = (0, 0);
    for (name, module) in corpus::all() {
        assert!(module.len() <= pacer_policy::COMPRESSED_BYTES, "{name} fits into no ConfigMap: {} bytes", module.len());
        let before = status("self", "VmRSS").unwrap();
        let watch = Watch::start();
        let began = Instant::now();
        let (refused, beside) = tokio::join!(stage(&host, "bad", module), async {
            let began = Instant::now();
            stage(&host, "good", good()).await.unwrap();
            host.generation().scale_down(request(4, 2)).await;
            began.elapsed()
        });
        let took = began.elapsed();
        let child = watch.most();
        let after = status("self", "VmRSS").unwrap();
        let error = refused.expect_err(name).to_string();
        println!(
            "{name}: {took:?}, beside {beside:?}, child {} MiB, operator {} KiB more: {error}",
            child >> 20,
            after.saturating_sub(before) >> 10
        );
        assert!(error.starts_with("scale-down: module m: Policy"), "{name}: {error}");
        assert!(took < 2 * STAGING + Duration::from_secs(5), "{name} took {took:?}");
        assert!(beside < Duration::from_secs(10), "beside {name} a good set took {beside:?}");
        assert!(child < STAGER_BYTES, "{name}: a child of {} MiB", child >> 20);
        // One that refuses within milliseconds may be gone before anybody looks at it.
        (measured, all) = (measured + u32::from(child > 0), all + 1);
        assert!(after < before + OPERATOR_BYTES, "{name}: {} KiB more", after.saturating_sub(before) >> 10);
    }
    assert!(measured > all / 2, "only {measured} of {all} children were seen");
    assert_eq!(counters.fallbacks(), 0);
}

#[test]
fn what_is_too_much_is_refused_by_its_number() {
    for (component, text) in [
        (corpus::nested_types(2_000), "33 types inside of each other and may have 32"),
        (corpus::many_types(2_000_000), "2000000 types and may have 20000"),
        (corpus::many_inner_types(1_000_000), "1000001 types and may have 20000"),
        (corpus::nested_components(100), "17 modules or components inside of each other and may have 16"),
        (corpus::instances(1_000_000), "1000000 instances and may have 1000"),
        (corpus::phis(5_000, 2_000), "values at blocks of one function and may have 8000000"),
        (corpus::locals(1, 50_000), "50000 locals in one function and may have 10000"),
        (corpus::branch_tables(1, 100_000), "100000 branch targets in one function and may have 50000"),
        (corpus::elements(2_000_000), "2000000 elements of tables and may have 100000"),
    ] {
        let refused = pacer_policy::Policy::load(jail(), &component).unwrap_err();
        assert_eq!(refused.code, Refusal::TooLarge, "{refused}");
        assert!(refused.message.contains(text), "{refused}");
    }
}
