//! What the operator, and the receivers beside it, used over a stretch of time: API server writes, GitHub calls, processor time, memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use pacer_harness::controlplane::ApiCalls;
use pacer_harness::github::{RouteCount, RouteKind};
use pacer_harness::operator::{Memory, Operator};
use pacer_harness::receivers::Receivers;
use pacer_harness::world::World;

/// How long the operator has to have written nothing to count as done.
const QUIET: Duration = Duration::from_secs(5);

/// A stretch of time that has begun.
#[derive(Debug)]
pub(crate) struct Meter<'a> {
    world: &'a World,
    operator: &'a Operator,
    began: Instant,
    since: Timestamp,
    calls: BTreeMap<RouteKind, RouteCount>,
    cpu: Duration,
}

/// What happened in it.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// Writes of the operator and of the receivers beside it, by verb and resource.
    pub(crate) writes: ApiCalls,
    /// Requests to GitHub by route.
    pub(crate) calls: BTreeMap<RouteKind, RouteCount>,
    /// Times the runners were listed, whatever the number of pages.
    pub(crate) listings: u64,
    /// Processor time of the operator and of the receivers beside it.
    pub(crate) cpu: Duration,
    /// Resident memory of the operator at the end, in bytes.
    pub(crate) resident: u64,
    /// How long it was.
    pub(crate) lasted: Duration,
}

impl Reading {
    /// Requests that GitHub counts against the rate limit: all but those answered 304.
    #[must_use]
    pub(crate) fn paid(&self) -> u64 {
        self.calls.values().map(|count| count.requests - count.not_modified).sum()
    }
}

impl<'a> Meter<'a> {
    /// Begins.
    ///
    /// # Errors
    ///
    /// When there is no operator or no `/proc`.
    pub(crate) fn start(world: &'a World) -> Result<Self> {
        let operator = world.operator.as_ref().context("a world with an operator is wanted")?;
        let (cpu, calls) = (processor_time(world, operator)?, world.github.counts());
        Ok(Self { world, operator, began: Instant::now(), since: Timestamp::now(), calls, cpu })
    }

    /// Time since the beginning.
    #[must_use]
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Reads the meter, which goes on.
    ///
    /// # Errors
    ///
    /// When the operator ended or the audit log can't be read.
    pub(crate) fn read(&self) -> Result<Reading> {
        let mut calls = self.world.github.counts();
        // An agent's registration is the runner's own.
        calls.remove(&RouteKind::RegisterRunner);
        for (route, count) in &mut calls {
            let before = self.calls.get(route).copied().unwrap_or_default();
            count.requests = count.requests.saturating_sub(before.requests);
            count.not_modified = count.not_modified.saturating_sub(before.not_modified);
            count.failed = count.failed.saturating_sub(before.failed);
        }
        calls.retain(|_, count| count.requests > 0);
        let listings = self
            .world
            .github
            .calls()
            .into_iter()
            .filter(|call| call.at >= self.since && call.route == Some(RouteKind::ListRunners) && is_first_page(&call.path));
        Ok(Reading {
            writes: self.world.operator_calls(Some(self.since))?,
            listings: u64::try_from(listings.count())?,
            calls,
            cpu: processor_time(self.world, self.operator)?.saturating_sub(self.cpu),
            resident: self.operator.usage()?.resident,
            lasted: self.elapsed(),
        })
    }

    /// Memory of the operator and of the processes that run its policies, in bytes; see [`Operator::memory`].
    ///
    /// # Errors
    ///
    /// When there is no such process, as long as no decision was asked for, or no `/proc`.
    pub(crate) fn memory(&self) -> Result<Memory> {
        ensure!(!self.operator.children()?.is_empty(), "no process runs policies");
        Ok(self.operator.memory()?)
    }

    /// The operator's largest resident memory since it started, in bytes.
    ///
    /// # Errors
    ///
    /// When it ended or there is no `/proc`.
    pub(crate) fn peak(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.operator.pid());
        let status = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let kibibytes =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        Ok(kibibytes.with_context(|| format!("{path} has no VmHWM"))? * 1024)
    }
}

fn processor_time(world: &World, operator: &Operator) -> Result<Duration> {
    let receivers = world.receivers.as_ref().map(Receivers::usage).transpose()?.unwrap_or_default();
    Ok(operator.usage()?.cpu + receivers.iter().map(|usage| usage.cpu).sum::<Duration>())
}

/// The first page is the one that is asked for without a number, or by it.
fn is_first_page(path: &str) -> bool {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    query.split('&').find_map(|pair| pair.strip_prefix("page=")).is_none_or(|page| page == "1")
}

/// What the operator uses while nobody asks anything of it, for so long.
///
/// # Errors
///
/// As for [`Meter::start`] and [`Meter::read`].
pub(crate) async fn at_rest(world: &World, lasting: Duration) -> Result<Reading> {
    let meter = Meter::start(world)?;
    // What is measured is that nothing happens.
    tokio::time::sleep(lasting).await;
    meter.read()
}

/// Waits until the operator has written nothing for a few seconds.
///
/// # Errors
///
/// When it goes on writing for longer than `patience`; the error says what.
pub(crate) async fn quiet(world: &World, patience: Duration) -> Result<()> {
    let began = Instant::now();
    loop {
        let now = Timestamp::now();
        // Nothing announces that nothing more happens.
        tokio::time::sleep(QUIET).await;
        let writes = world.operator_calls(Some(now))?;
        if writes.total() == 0 {
            return Ok(());
        }
        if began.elapsed() > patience {
            bail!("the operator still writes after {} s without a change: {writes}", patience.as_secs());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_counted_once() {
        for (path, first) in [
            ("/repos/a/b/actions/runners", true),
            ("/repos/a/b/actions/runners?per_page=100", true),
            ("/repos/a/b/actions/runners?per_page=100&page=1", true),
            ("/repositories/1/actions/runners?per_page=100&page=2", false),
            ("/repos/a/b/actions/runners?page=11&per_page=100", false),
        ] {
            assert_eq!(is_first_page(path), first, "{path}");
        }
    }
}
