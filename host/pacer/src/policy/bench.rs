//! `bench`: what a policy takes of what it may take, by the size of the request.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use pacer_policy::{Decision, Inquiry, Jail, Limits, LoadError, Outcome, Policy};

use super::case::ask;
use super::settings::SettingsArgument;
use super::source::{Source, jail};
use crate::report::Report;
use crate::table;

/// How many things the requests are about.
const SIZES: [u32; 5] = [0, 10, 100, 1_000, 5_000];

/// Most items of a request. Far beyond what a policy has fuel for, and built in a moment.
const MOST: u32 = 100_000;

/// Requests of this size and smaller ones are ordinary: a policy that fails at one of them is not fit for use.
const ORDINARY: u32 = 1_000;

/// Time spent on each size, at least [`ROUNDS`] calls.
const PATIENCE: Duration = Duration::from_millis(300);

/// Fewest and most calls of each size.
const ROUNDS: (usize, usize) = (11, 501);

/// Arguments of `pacer policy bench`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// The component, or `builtin`.
    file: Source,
    #[command(flatten)]
    settings: SettingsArgument,
    /// Prints everything as Markdown, including the cost of staging and of each generation that is kept.
    #[arg(long)]
    table: bool,
    /// Fails if the fastest call with an ordinary request of up to 1,000 items takes more than this share of the deadline.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    at_most_of_deadline: Option<u8>,
    /// Fails if a request of up to 1,000 items takes more than this share of its fuel. Unlike time, fuel is the same on every machine.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    at_most_of_fuel: Option<u8>,
    /// Sizes of the requests, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = SIZES, value_parser = clap::value_parser!(u32).range(..=i64::from(MOST)))]
    items: Vec<u32>,
}

/// `pacer policy bench`.
pub(crate) fn bench(arguments: &Arguments) -> Result<Report> {
    let settings = arguments.settings.read()?;
    let judges = arguments.at_most_of_deadline.is_some() || arguments.at_most_of_fuel.is_some();
    ensure!(
        !judges || arguments.items.iter().any(|items| *items <= ORDINARY),
        "--at-most-of-fuel and --at-most-of-deadline judge requests of up to {ORDINARY} items, and --items has none of them"
    );
    let jail = jail()?;
    let component = arguments.file.read(&jail)?;
    let began = Instant::now();
    let policy = Policy::load(&jail, &component).map_err(|error| super::cure::refused(&arguments.file, &error))?;
    let loaded = began.elapsed();
    let native = arguments.file == Source::Builtin;
    let ask = |inquiry: &Inquiry| ask(&jail, &policy, inquiry, &settings, &Limits::default());
    let fuel = |items| policy.fuel(&Limits::default(), items);
    let sizes = &arguments.items;
    let measured = policy.decisions().into_iter().map(|decision| Measured::of(decision, sizes, native, &settings, fuel, ask));
    let measured: Vec<Measured> = measured.collect();
    let failure = measured.iter().find_map(|decision| decision.unfit(arguments.at_most_of_deadline, arguments.at_most_of_fuel));
    if arguments.table && failure.is_none() {
        let staging = Staging::of(&jail, &component, &policy, &settings)?;
        return Ok(Report::text(markdown(&policy, component.len(), &measured, &staging)));
    }
    let mut text = format!("{policy}: {}, loaded in {} ms\n", table::bytes(component.len()), loaded.as_millis());
    measured.iter().for_each(|decision| text.push_str(&decision.plain()));
    Ok(Report { text, failure, ..Report::default() })
}

/// What calls of one decision take.
struct Measured {
    decision: Decision,
    sizes: Vec<Size>,
    /// The fuel of a call about nothing, and what each item adds to that.
    allowed: (u64, u64),
    /// Which size it does not manage, and why.
    failed: Option<(u32, String)>,
}

/// What calls about so many items take.
struct Size {
    items: u32,
    limit: u64,
    outcome: Outcome,
    /// Fastest, and the middle one, with the way to the process that runs the policy and back.
    times: (Duration, Duration),
    /// The middle one without that way.
    inside: Duration,
    /// The fastest of the same policy linked natively.
    native: Option<Duration>,
}

impl Measured {
    fn of(
        decision: Decision,
        items: &[u32],
        native: bool,
        settings: &str,
        fuel: impl Fn(usize) -> u64,
        call: impl Fn(&Inquiry) -> Outcome,
    ) -> Self {
        let mut sizes = Vec::new();
        let allowed = (fuel(0), fuel(1).saturating_sub(fuel(0)));
        for &items in items {
            let inquiry = Inquiry::typical(decision, items);
            let outcome = call(&inquiry);
            if let Err(fault) = &outcome.answer {
                let failed = format!("{decision} of {items} items gave no usable answer ({}): {fault}", fault.kind());
                return Self { decision, sizes, allowed, failed: Some((items, failed)) };
            }
            let natively = || {
                let began = Instant::now();
                let _answer = inquiry.natively(settings);
                began.elapsed()
            };
            sizes.push(Size {
                items,
                limit: fuel(inquiry.items()),
                outcome,
                times: times(|| call(&inquiry).duration),
                inside: times(|| call(&inquiry).inside).1,
                native: native.then(|| times(natively).0),
            });
        }
        Self { decision, sizes, allowed, failed: None }
    }

    /// Why the policy is not fit for use: an ordinary request that it can't answer, or for which it takes too much of its fuel or of its deadline.
    fn unfit(&self, at_most_of_deadline: Option<u8>, at_most_of_fuel: Option<u8>) -> Option<String> {
        let hungry = || {
            let percent = at_most_of_fuel?;
            let too_much = |size: &&Size| u128::from(size.outcome.fuel) * 100 > u128::from(size.limit) * u128::from(percent);
            let size = self.sizes.iter().filter(|size| size.items <= ORDINARY).find(too_much)?;
            let (decision, items) = (self.decision, size.items);
            let (fuel, limit) = (table::number(size.outcome.fuel), table::number(size.limit));
            Some(format!("{decision} of {items} items takes {fuel} units of fuel, more than {percent} % of its {limit}"))
        };
        let failed = self.failed.as_ref().filter(|(items, _)| *items <= ORDINARY).map(|(_, why)| why.clone());
        let late = || {
            let (percent, deadline) = (at_most_of_deadline?, Limits::default().deadline());
            let most = deadline.mul_f64(f64::from(percent) / 100.0);
            let size = self.sizes.iter().find(|size| size.items <= ORDINARY && size.times.0 > most)?;
            let (decision, items, took) = (self.decision, size.items, shown(size.times.0));
            Some(format!("{decision} of {items} items takes {took}, more than {percent} % of the deadline"))
        };
        failed.or_else(hungry).or_else(late)
    }

    fn plain(&self) -> String {
        let limits = Limits::default();
        let mut head = vec!["items", "fuel", "of limit", "best", "p50", "of deadline", "inside p50", "memory", "of limit"];
        head.extend(self.sizes.iter().any(|size| size.native.is_some()).then_some("native best"));
        let mut rows: Vec<Vec<String>> = vec![head.into_iter().map(str::to_owned).collect()];
        rows.extend(self.sizes.iter().map(|size| {
            let Size { outcome, times: (best, middle), .. } = size;
            let mut row = vec![
                table::number(u64::from(size.items)),
                table::number(outcome.fuel),
                table::percent(outcome.fuel, size.limit),
                shown(*best),
                shown(*middle),
                table::percent(micros(*middle), micros(limits.deadline())),
                shown(size.inside),
                table::bytes(outcome.peak_memory),
                table::percent(outcome.peak_memory as u64, limits.memory() as u64),
            ];
            row.extend(size.native.map(shown));
            row
        }));
        let points: Vec<(f64, u64)> = self.sizes.iter().map(|size| (f64::from(size.items), size.outcome.fuel)).collect();
        let fuel = |value: f64| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rounded amount of fuel, never below zero"
            )]
            let rounded = value.max(0.0).round() as u64;
            table::number(rounded)
        };
        let taken = fit(&points)
            .map_or_else(String::new, |(per_call, per_item)| format!("{} and {} per item; ", fuel(per_call), fuel(per_item)));
        format!(
            "\n{}\n{}{}fuel: {taken}{} and {} per item are allowed\n",
            self.decision,
            table::right(&rows),
            self.failed.iter().map(|(_, failed)| format!("{failed}\n")).collect::<String>(),
            table::number(self.allowed.0),
            table::number(self.allowed.1)
        )
    }
}

/// What comes before the first call, and stays as long as the policy is held.
struct Staging {
    compile: Duration,
    whole: Duration,
    /// None where the system does not say.
    held: Option<usize>,
}

/// Generations held at once to see what one takes.
const HELD: usize = 16;

impl Staging {
    fn of(jail: &Jail, component: &[u8], policy: &Policy, settings: &str) -> Result<Self> {
        let refused = |error: LoadError| anyhow!("{policy} is refused: {error}");
        let compile = (0..3).map(|_| jail.time_to_compile(component)).collect::<Result<Vec<_>, _>>().map_err(refused)?;
        let began = Instant::now();
        let limits = Limits::default();
        let staged = Policy::load(jail, component).map_err(refused)?;
        staged.validate_settings(jail, settings, &limits).map_err(refused)?;
        for decision in staged.decisions() {
            staged.rehearse(jail, decision, settings, &limits).map_err(refused)?;
        }
        let whole = began.elapsed();
        let before = resident();
        let held = (0..HELD).map(|_| Policy::load(jail, component)).collect::<Result<Vec<_>, _>>().map_err(refused)?;
        let after = resident();
        drop(held);
        Ok(Self {
            compile: compile.into_iter().min().unwrap_or_default(),
            whole,
            held: before.zip(after).map(|(before, after)| after.saturating_sub(before) / HELD),
        })
    }
}

/// Memory that the process has from the system, in bytes; from Linux's `/proc`.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1_024)
}

fn markdown(policy: &Policy, bytes: usize, measured: &[Measured], staging: &Staging) -> String {
    let mut text = String::from(
        "| decision | items | fresh call, best | fresh call, p50 | inside, p50 | native, best | fuel | memory |\n\
         | --- | --: | --: | --: | --: | --: | --: | --: |\n",
    );
    for decision in measured {
        for size in &decision.sizes {
            text.push_str(&format!(
                "| {} | {} | {} | {} | {} | {} | {} | {} |\n",
                decision.decision,
                table::number(u64::from(size.items)),
                shown(size.times.0),
                shown(size.times.1),
                shown(size.inside),
                size.native.map_or_else(|| "-".to_owned(), shown),
                table::number(size.outcome.fuel),
                table::bytes(size.outcome.peak_memory),
            ));
        }
    }
    measured
        .iter()
        .filter_map(|decision| decision.failed.as_ref())
        .for_each(|(_, failed)| text.push_str(&format!("\n{failed}\n")));
    let held = staging.held.map_or_else(|| "unknown here".to_owned(), table::bytes);
    text.push_str(&format!(
        "\n| {policy} | |\n| --- | --: |\n| component | {} |\n| compile | {} |\n| staging, compile included | {} |\n| memory per generation held | {held} |\n",
        table::bytes(bytes),
        shown(staging.compile),
        shown(staging.whole),
    ));
    text
}

fn shown(duration: Duration) -> String {
    match micros(duration) {
        micros @ 0..10_000 => format!("{} µs", table::number(micros)),
        micros => format!("{} ms", table::number(micros / 1_000)),
    }
}

/// The best and the middle one of many samples: what it takes, and what it takes on this machine as busy as it is.
fn times(sample: impl Fn() -> Duration) -> (Duration, Duration) {
    let mut times = Vec::new();
    let began = Instant::now();
    while times.len() < ROUNDS.0 || times.len() < ROUNDS.1 && began.elapsed() < PATIENCE {
        times.push(sample());
    }
    times.sort_unstable();
    (times.first().copied().unwrap_or_default(), times.get(times.len() / 2).copied().unwrap_or_default())
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// What a call about nothing takes, and what each item adds to that: least squares.
#[expect(clippy::cast_precision_loss, reason = "fuel is far below 2^53")]
fn fit(points: &[(f64, u64)]) -> Option<(f64, f64)> {
    let (_, nothing) = points.iter().find(|(items, _)| *items == 0.0)?;
    let per_call = *nothing as f64;
    let product: f64 = points.iter().map(|(items, fuel)| items * (*fuel as f64 - per_call)).sum();
    let squares: f64 = points.iter().map(|(items, _)| items * items).sum();
    (squares > 0.0).then(|| (per_call, product / squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_without_a_size_that_they_hold_for_are_refused() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: Arguments,
        }
        let line: Line = clap::Parser::parse_from(["bench", "builtin", "--items", "1001,5000", "--at-most-of-fuel", "50"]);
        let refused = bench(&line.arguments).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("requests of up to 1000 items, and --items has none of them"), "{refused}");
    }

    #[test]
    fn fuel_per_item_is_told_only_beside_that_of_a_call_about_nothing() {
        assert_eq!(fit(&[(1_000.0, 20_500)]), None);
        assert_eq!(fit(&[(0.0, 500)]), None);
        let (per_call, per_item) = fit(&[(0.0, 500), (10.0, 700), (100.0, 2_500)]).unwrap();
        assert!((per_call - 500.0).abs() < 1e-6 && (per_item - 20.0).abs() < 1e-6, "{per_call} {per_item}");
    }

    fn measured(fuel: &[(u32, u64)], failed: Option<(u32, String)>) -> Measured {
        let size = |&(items, fuel): &(u32, u64)| {
            let answer = Ok(pacer_policy::Answer::ScaleDown(Vec::new()));
            let times = (Duration::from_millis(1), Duration::from_millis(2));
            let outcome = Outcome {
                answer,
                fuel,
                duration: times.1,
                inside: times.0,
                peak_memory: 1 << 20,
                log: Vec::new(),
                log_dropped: 0,
            };
            let limit = Limits::default().fuel(items as usize);
            Size { items, limit, outcome, times, inside: times.0, native: None }
        };
        let sizes = fuel.iter().map(size).collect();
        Measured { decision: Decision::ScaleDown, sizes, allowed: (20_000_000, 100_000), failed }
    }

    #[test]
    fn too_much_fuel_for_an_ordinary_request_is_told_however_fast_it_was() {
        let half = [(0, 10_000_000), (1_000, 60_000_000), (5_000, 500_000_000)];
        assert_eq!(measured(&half, None).unfit(Some(100), Some(50)), None);
        let more = [(0, 10_000_000), (1_000, 60_000_001)];
        let says = "scale-down of 1000 items takes 60,000,001 units of fuel, more than 50 % of its 120,000,000";
        assert_eq!(measured(&more, None).unfit(Some(100), Some(50)).as_deref(), Some(says));
        assert_eq!(measured(&more, None).unfit(Some(100), None), None);
    }

    #[test]
    fn sizes_that_failed_are_printed_beside_those_that_did_not() {
        let failed = |items| Some((items, format!("scale-down of {items} items gave no usable answer (policy-error): too many")));
        let measured_until = |items| measured(&[(0, 500), (10, 700)], failed(items));
        let text = measured_until(5_000).plain();
        let measured = text.lines().any(|line| line.split_whitespace().take(2).eq(["10", "700"]));
        assert!(measured && text.contains("5000 items gave no usable answer (policy-error): too many\n"), "{text}");
        assert_eq!(measured_until(5_000).unfit(None, None), None);
        let unfit = measured_until(100).unfit(None, None);
        assert_eq!(unfit.as_deref(), Some("scale-down of 100 items gave no usable answer (policy-error): too many"));
    }
}
