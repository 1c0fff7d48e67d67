//! How long a week of 100,000 jobs takes. `make bench-week` runs it, optimised.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a week that cannot be made up has failed")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use pacer_simulate::{Policies, Scenario, simulate};
use pacer_trace::{About, End, Header, History, PoolSettings, Record, Trace, What};

const JOBS: u64 = 100_000;
const WEEK: i64 = 7 * 86_400_000;
const POOLS: [&str; 3] = ["small", "large", "gpu"];

/// What the simulator may take on two cores.
const LIMIT: Duration = Duration::from_secs(60);

struct Dice(u64);

impl Dice {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }
}

fn at(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(1_700_000_000_000 + milliseconds).unwrap()
}

/// Most jobs come in office hours, some in bursts; most take minutes, some half an hour.
fn week() -> Trace {
    let mut dice = Dice(7);
    let mut records = Vec::new();
    for (name, max) in POOLS.into_iter().zip([300, 150, 50]) {
        records.push(Record {
            at: at(0),
            what: What::Pool(PoolSettings {
                pool: Arc::from(format!("ci/{name}")),
                labels: vec![Arc::from(name)],
                ephemeral: true,
                max,
                scale_down_delay_seconds: 600,
                job_life_seconds: 600,
                webhooks: true,
                ..PoolSettings::default()
            }),
        });
        for sample in 0..40 {
            let runner: Arc<str> = Arc::from(format!("{name}-sample-{sample}"));
            let pool = Arc::from(format!("ci/{name}"));
            let took = 15_000 + i64::try_from(dice.below(45_000)).unwrap();
            records.push(Record { at: at(-100_000), what: What::RunnerCreated { runner: runner.clone(), pool } });
            records.push(Record { at: at(-100_000 + took), what: What::RunnerRegistered { runner: runner.clone() } });
            records.push(Record { at: at(-1), what: What::RunnerEnded { runner, why: End::Removed } });
        }
    }
    let mut job = 0;
    while job < JOBS {
        let queue = i64::try_from(dice.below(u64::try_from(WEEK).unwrap())).unwrap();
        let (day, hour) = (queue / 86_400_000, queue / 3_600_000 % 24);
        let busy = day < 5 && (8..18).contains(&hour);
        if !busy && dice.below(6) > 0 {
            continue;
        }
        let burst = if dice.below(20) == 0 { 1 + dice.below(30) } else { 1 };
        let name = POOLS[[0, 0, 0, 0, 0, 0, 1, 1, 1, 2][usize::try_from(dice.below(10)).unwrap()]];
        for _ in 0..burst {
            job += 1;
            let runs =
                1_000 * i64::try_from(20 + dice.below(240) + if dice.below(20) == 0 { dice.below(1_800) } else { 0 }).unwrap();
            let about = About {
                repository: Arc::from(format!("acme/app-{}", dice.below(50))),
                workflow: "build".into(),
                labels: Arc::from([Arc::from("self-hosted"), Arc::from(name)]),
                attempt: 1,
                pool: Some(Arc::from(format!("ci/{name}"))),
            };
            records.push(Record { at: at(queue), what: What::JobQueued { job, about } });
            records.push(Record { at: at(queue + 30_000), what: What::JobStarted { job, runner: None } });
            records.push(Record { at: at(queue + 30_000 + runs), what: What::JobCompleted { job } });
        }
    }
    Trace { header: Header::new(at(0)), records }
}

#[test]
#[ignore = "takes minutes where nothing is optimised"]
fn a_week_of_a_hundred_thousand_jobs_takes_less_than_a_minute() {
    let trace = week();
    let scenario = Scenario::of(&History::of(&trace)).unwrap();
    let began = Instant::now();
    let outcome = simulate(&scenario, &Policies::builtin().unwrap(), 1, |_| {});
    let took = began.elapsed();
    println!("{} jobs, {} events in {:.1} s: {:#?}", scenario.jobs(), outcome.events, took.as_secs_f64(), outcome.total);
    assert!(outcome.total.jobs >= JOBS && outcome.total.unstarted < 100);
    assert!(took < LIMIT, "{took:?}");
}
