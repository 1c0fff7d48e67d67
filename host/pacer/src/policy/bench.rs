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
    #[command(flatten)]
    bounds: Bounds,
    /// Sizes of the requests, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = SIZES, value_parser = clap::value_parser!(u32).range(..=i64::from(MOST)))]
    items: Vec<u32>,
}

/// What a policy may take of ordinary requests.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
struct Bounds {
    /// Fails if the fastest call with an ordinary request of up to 1,000 items takes more than this share of the deadline.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    at_most_of_deadline: Option<u8>,
    /// Fails if a request of up to 1,000 items takes more than this share of its fuel. Unlike time, fuel is the same on every machine.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    at_most_of_fuel: Option<u8>,
    /// Fails if the fastest call with a request of up to 1,000 items takes more than this many times as long as the fastest call of the built-in policy.
    /// Both are measured in the same run, so that the result hardly depends on the machine. It does depend on how pacer was built: in a release, the
    /// built-in policy is faster, compared with others.
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u8).range(1..))]
    at_most_times_builtin: Option<u8>,
}

impl Bounds {
    fn is_any(self) -> bool {
        self.at_most_of_deadline.is_some() || self.at_most_of_fuel.is_some() || self.at_most_times_builtin.is_some()
    }
}

/// `pacer policy bench`.
pub(crate) fn bench(arguments: &Arguments) -> Result<Report> {
    let settings = arguments.settings.read()?;
    let bounds = arguments.bounds;
    ensure!(
        !bounds.is_any() || arguments.items.iter().any(|items| *items <= ORDINARY),
        "--at-most-of-fuel, --at-most-of-deadline and --at-most-times-builtin judge requests of up to {ORDINARY} items, and --items has none of them"
    );
    let jail = jail()?;
    let component = arguments.file.read(&jail)?;
    let began = Instant::now();
    let policy = Policy::load(&jail, &component).map_err(|error| super::cure::refused(&arguments.file, &error))?;
    let loaded = began.elapsed();
    let reference = bounds.at_most_times_builtin.map(|_| Source::Builtin.load(&jail)).transpose()?;
    let meter = Meter {
        jail: &jail,
        policy: &policy,
        builtin: reference.as_ref(),
        native: arguments.file == Source::Builtin,
        settings: &settings,
    };
    let measured = policy.decisions().into_iter().map(|decision| meter.measure(decision, &arguments.items));
    let measured: Vec<Measured> = measured.collect();
    let failure = measured.iter().find_map(|decision| decision.unfit(bounds));
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
    /// What the calls may use.
    limits: Limits,
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
    /// The fastest of the built-in policy, where that is compared with.
    builtin: Option<Duration>,
}

/// How calls are measured.
struct Meter<'a> {
    jail: &'a Jail,
    policy: &'a Policy,
    /// The built-in policy, where that is compared with.
    builtin: Option<&'a Policy>,
    /// Whether the policy is linked natively as well.
    native: bool,
    settings: &'a str,
}

impl Meter<'_> {
    fn measure(&self, decision: Decision, items: &[u32]) -> Measured {
        let limits = self.policy.limits(Limits::default());
        let mut sizes = Vec::new();
        for &items in items {
            let inquiry = Inquiry::typical(decision, items);
            let call = || ask(self.jail, self.policy, &inquiry, self.settings, &Limits::default());
            let outcome = call();
            if let Err(fault) = &outcome.answer {
                let failed = format!("{decision} of {items} items gave no usable answer ({}): {fault}", fault.kind());
                return Measured { decision, sizes, limits, failed: Some((items, failed)) };
            }
            let natively = || {
                let began = Instant::now();
                let _answer = inquiry.natively(self.settings);
                began.elapsed()
            };
            let limit = limits.fuel(inquiry.items());
            let mut of_builtin: Option<Duration> = None;
            let taken = times(|| {
                // In turns, since a machine may be slower from one moment to the next. It has settings of its own, and goes without.
                let builtin = self.builtin.map(|builtin| ask(self.jail, builtin, &inquiry, "", &Limits::default()));
                let answered = builtin.filter(|outcome| outcome.answer.is_ok()).map(|outcome| outcome.duration);
                of_builtin = [of_builtin, answered].into_iter().flatten().min();
                call().duration
            });
            sizes.push(Size {
                items,
                limit,
                outcome,
                times: taken,
                inside: times(|| call().inside).1,
                native: self.native.then(|| times(natively).0),
                builtin: of_builtin,
            });
        }
        Measured { decision, sizes, limits, failed: None }
    }
}

impl Measured {
    /// Why the policy is not fit for use: an ordinary request that it can't answer, or for which it takes too much of its fuel or too long.
    fn unfit(&self, bounds: Bounds) -> Option<String> {
        let decision = self.decision;
        let ordinary = || self.sizes.iter().filter(|size| size.items <= ORDINARY);
        let hungry = || {
            let percent = bounds.at_most_of_fuel?;
            let too_much = |size: &&Size| u128::from(size.outcome.fuel) * 100 > u128::from(size.limit) * u128::from(percent);
            let Size { items, outcome, limit, .. } = ordinary().find(too_much)?;
            let (fuel, limit) = (table::number(outcome.fuel), table::number(*limit));
            Some(format!("{decision} of {items} items takes {fuel} units of fuel, more than {percent} % of its {limit}"))
        };
        let failed = self.failed.as_ref().filter(|(items, _)| *items <= ORDINARY).map(|(_, why)| why.clone());
        let late = || {
            let percent = bounds.at_most_of_deadline?;
            let most = self.limits.deadline().mul_f64(f64::from(percent) / 100.0);
            let Size { items, times: (best, _), .. } = ordinary().find(|size| size.times.0 > most)?;
            Some(format!("{decision} of {items} items takes {}, more than {percent} % of the deadline", shown(*best)))
        };
        let slow = || {
            let times = bounds.at_most_times_builtin?;
            let too_long = |size: &&Size| size.builtin.is_some_and(|builtin| size.times.0 > builtin * u32::from(times));
            let Size { items, times: (best, _), builtin, .. } = ordinary().find(too_long)?;
            let (best, builtin) = (shown(*best), shown(builtin.unwrap_or_default()));
            Some(format!(
                "{decision} of {items} items takes {best}, more than {times} times the {builtin} of the built-in policy in the same run"
            ))
        };
        failed.or_else(hungry).or_else(late).or_else(slow)
    }

    fn plain(&self) -> String {
        let limits = self.limits;
        let mut head = vec!["items", "fuel", "of limit", "best", "p50", "of deadline", "inside p50", "memory", "of limit"];
        head.extend(self.sizes.iter().any(|size| size.native.is_some()).then_some("native best"));
        head.extend(self.sizes.iter().any(|size| size.builtin.is_some()).then_some("built-in best"));
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
            row.extend(size.builtin.map(shown));
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
            table::number(limits.fuel(0)),
            table::number(limits.fuel(1).saturating_sub(limits.fuel(0)))
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
fn times(mut sample: impl FnMut() -> Duration) -> (Duration, Duration) {
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
            let builtin = Some(Duration::from_micros(250));
            Size { items, limit, outcome, times, inside: times.0, native: None, builtin }
        };
        let sizes = fuel.iter().map(size).collect();
        Measured { decision: Decision::ScaleDown, sizes, limits: Limits::default(), failed }
    }

    #[test]
    fn too_much_fuel_for_an_ordinary_request_is_told_however_fast_it_was() {
        let half = [(0, 10_000_000), (1_000, 60_000_000), (5_000, 500_000_000)];
        let half_of_fuel = Bounds { at_most_of_deadline: Some(100), at_most_of_fuel: Some(50), ..Bounds::default() };
        assert_eq!(measured(&half, None).unfit(half_of_fuel), None);
        let more = [(0, 10_000_000), (1_000, 60_000_001)];
        let says = "scale-down of 1000 items takes 60,000,001 units of fuel, more than 50 % of its 120,000,000";
        assert_eq!(measured(&more, None).unfit(half_of_fuel).as_deref(), Some(says));
        assert_eq!(measured(&more, None).unfit(Bounds { at_most_of_fuel: None, ..half_of_fuel }), None);
    }

    #[test]
    fn policy_that_is_much_slower_than_the_built_in_one_is_told() {
        let times = |times| Bounds { at_most_times_builtin: Some(times), ..Bounds::default() };
        let measured = measured(&[(1_000, 500)], None);
        assert_eq!(measured.unfit(times(4)), None);
        let says = "scale-down of 1000 items takes 1,000 µs, more than 3 times the 250 µs of the built-in policy in the same run";
        assert_eq!(measured.unfit(times(3)).as_deref(), Some(says));
    }

    #[test]
    fn sizes_that_failed_are_printed_beside_those_that_did_not() {
        let failed = |items| Some((items, format!("scale-down of {items} items gave no usable answer (policy-error): too many")));
        let measured_until = |items| measured(&[(0, 500), (10, 700)], failed(items));
        let text = measured_until(5_000).plain();
        let measured = text.lines().any(|line| line.split_whitespace().take(2).eq(["10", "700"]));
        assert!(measured && text.contains("5000 items gave no usable answer (policy-error): too many\n"), "{text}");
        assert_eq!(measured_until(5_000).unfit(Bounds::default()), None);
        let unfit = measured_until(100).unfit(Bounds::default());
        assert_eq!(unfit.as_deref(), Some("scale-down of 100 items gave no usable answer (policy-error): too many"));
    }
}
