//! `bench`: what a policy takes of what it may take, by the size of the request.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use pacer_policy::{Decision, Inquiry, Limits, Outcome, Policy};

use super::case::ask;
use super::settings::SettingsArgument;
use super::source::{Source, engine};
use super::{Report, table};

/// How many things the requests are about.
const SIZES: [u32; 4] = [0, 10, 100, 1_000];

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
}

/// `pacer policy bench`.
pub(crate) fn bench(arguments: &Arguments) -> Result<Report> {
    let settings = arguments.settings.read()?;
    let engine = engine()?;
    let component = arguments.file.read()?;
    let began = Instant::now();
    let policy = Policy::load(&engine, &component).map_err(|error| super::cure::refused(&arguments.file, &error))?;
    let mut text = format!("{policy}: {}, loaded in {} ms\n", table::bytes(component.len()), began.elapsed().as_millis());
    for decision in policy.decisions() {
        let native = arguments.file == Source::Builtin;
        text.push_str(&measured(
            decision,
            native,
            |inquiry| ask(&engine, &policy, inquiry, &settings, &Limits::default()),
            &settings,
        )?);
    }
    Ok(Report::text(text))
}

fn measured(decision: Decision, native: bool, call: impl Fn(&Inquiry) -> Outcome, settings: &str) -> Result<String> {
    let limits = Limits::default();
    let mut head = vec!["items", "fuel", "of limit", "best", "p50", "of deadline", "memory", "of limit"];
    head.extend(native.then_some("native best"));
    let mut rows: Vec<Vec<String>> = vec![head.into_iter().map(str::to_owned).collect()];
    let mut points = Vec::new();
    for size in SIZES {
        let inquiry = Inquiry::typical(decision, size);
        let outcome = call(&inquiry);
        if let Err(fault) = &outcome.answer {
            bail!("{decision} of {size} items gave no usable answer ({}): {fault}", fault.kind());
        }
        let (best, middle) = times(|| call(&inquiry).duration);
        let (fuel, deadline) = (limits.fuel(inquiry.items()), micros(limits.deadline()));
        let mut row = vec![
            table::number(u64::from(size)),
            table::number(outcome.fuel),
            table::percent(outcome.fuel, fuel),
            format!("{} µs", table::number(micros(best))),
            format!("{} µs", table::number(micros(middle))),
            table::percent(micros(middle), deadline),
            table::bytes(outcome.peak_memory),
            table::percent(outcome.peak_memory as u64, limits.memory() as u64),
        ];
        if native {
            let (linked, _) = times(|| {
                let began = Instant::now();
                let _answer = inquiry.natively(settings);
                began.elapsed()
            });
            row.push(format!("{} µs", table::number(micros(linked))));
        }
        rows.push(row);
        points.push((f64::from(size), outcome.fuel));
    }
    let (per_call, per_item) = fit(&points);
    let fuel = |value: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rounded amount of fuel, never below zero")]
        let rounded = value.max(0.0).round() as u64;
        table::number(rounded)
    };
    Ok(format!(
        "\n{decision}\n{}fuel: {} and {} per item; 20,000,000 and 100,000 per item are allowed\n",
        table::right(&rows),
        fuel(per_call),
        fuel(per_item)
    ))
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
fn fit(points: &[(f64, u64)]) -> (f64, f64) {
    let per_call = points.iter().find(|(items, _)| *items == 0.0).map_or(0.0, |(_, fuel)| *fuel as f64);
    let product: f64 = points.iter().map(|(items, fuel)| items * (*fuel as f64 - per_call)).sum();
    let squares: f64 = points.iter().map(|(items, _)| items * items).sum();
    (per_call, if squares > 0.0 { product / squares } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found() {
        let (per_call, per_item) = fit(&[(0.0, 500), (10.0, 700), (100.0, 2_500)]);
        assert!((per_call - 500.0).abs() < 1e-6 && (per_item - 20.0).abs() < 1e-6, "{per_call} {per_item}");
    }
}
