//! What runners cost whom: followed from the same facts that the page shows, while the page is served.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pacer_core::price::Prices;
use pacer_core::spend::{Doing, Sight, Spending, Spent, Whose};
use tokio_util::sync::CancellationToken;

use super::ledger::{RunningJobs, known};
use super::{Expense, Payer, Runner, Section, fleet, is_due};
use crate::metrics::{Metrics, Sources};
use crate::standing::State;

/// How often runners are looked at. What one does in between and does not show afterwards is missed: jobs that are shorter.
const LOOK: Duration = Duration::from_secs(5);

/// How often what was spent is told: it grows all the time.
const TELL: SignedDuration = SignedDuration::from_secs(30);

/// What is spent, and the part of the snapshot that tells it; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Expenses(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    spending: Spending,
    /// Prices per hour of nodes that runners are on; none where there is no price of such a node.
    nodes: BTreeMap<String, Option<f64>>,
    told: Section<Expense>,
    /// When it was told last.
    at: Option<Timestamp>,
}

fn runners(all: &[Arc<Sources>]) -> Section<Runner> {
    let of = |sources: &Arc<Sources>| {
        let autoscalers = known(sources);
        fleet::runners(sources, &fleet::Sets::of(&sources.stores), &RunningJobs::of_ledgers(&autoscalers))
    };
    all.iter().flat_map(of).collect()
}

impl Expenses {
    /// Looks at all runners now and then, until `stop`.
    pub(super) async fn follow(&self, metrics: &Metrics, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            let all = metrics.sources();
            let runners = runners(&all);
            match all.first() {
                Some(any) => {
                    self.price(any, &runners).await;
                    self.look(&runners, &any.prices, Timestamp::now());
                }
                None => self.rest(Timestamp::now()),
            }
        }
    }

    /// What was told last.
    pub(super) fn told(&self) -> Section<Expense> {
        self.lock().told.clone()
    }

    /// Finds out what nodes cost that runners are on and that are new here.
    async fn price(&self, sources: &Sources, runners: &Section<Runner>) {
        if sources.prices.is_empty() {
            return;
        }
        let named: BTreeSet<&str> = runners.values().filter_map(|runner| runner.node.as_deref()).collect();
        let unknown: BTreeSet<&str> = {
            let mut kept = self.lock();
            kept.nodes.retain(|node, _| named.contains(node.as_str()));
            named.into_iter().filter(|node| !kept.nodes.contains_key(*node)).collect()
        };
        if unknown.is_empty() {
            return;
        }
        let facts = sources.nodes.about(&unknown).await;
        let priced = facts.into_iter().map(|(node, facts)| (node, facts.price(&sources.prices)));
        self.lock().nodes.extend(priced);
    }

    /// This process acts for nothing. Runners that it sees when it acts again are new to it, so that their time until then is not counted.
    fn rest(&self, now: Timestamp) {
        self.lock().spending.keep(&BTreeSet::new(), now);
    }

    /// All runners as they are now.
    fn look(&self, runners: &Section<Runner>, prices: &Prices, now: Timestamp) {
        let mut kept = self.lock();
        let mut sharing: BTreeMap<&str, f64> = BTreeMap::new();
        for node in runners.values().filter_map(|runner| runner.node.as_deref()) {
            *sharing.entry(node).or_default() += 1.0;
        }
        let mut names = BTreeSet::new();
        for (key, runner) in runners {
            let name: Arc<str> = key.as_str().into();
            // Who is on a node pays for it, in equal parts.
            let price = runner.node.as_deref().and_then(|node| {
                let whole = kept.nodes.get(node).copied().flatten()?;
                Some(whole / sharing.get(node).copied().unwrap_or(1.0))
            });
            kept.spending.see(&name, sight(runner, price), now);
            names.insert(name);
        }
        kept.spending.keep(&names, now);
        if is_due(kept.at, TELL, now) {
            kept.at = Some(now);
            kept.told = expenses(&kept.spending, !prices.is_empty());
        }
    }

    /// A poisoned lock means that a thread panicked between two runners; what was counted until then is right.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A runner of a snapshot, as far as its time is concerned. The price is per hour.
#[must_use]
pub fn sight(runner: &Runner, price: Option<f64>) -> Sight {
    let doing = match runner.state {
        State::Busy => Doing::Busy,
        _ if runner.job.is_some() => Doing::Busy,
        State::Pending | State::Starting => Doing::Coming,
        State::Idle | State::Offline => Doing::Idle,
        State::Ended | State::Quarantined | State::Stopping => Doing::Leaving,
    };
    let repository = runner.job.as_ref().map(|job| job.repository.as_str()).filter(|repository| !repository.is_empty());
    Sight { doing, since: runner.since, repository: repository.map(Arc::from), price }
}

/// What was spent, as snapshots tell it; money only where there are prices.
#[must_use]
pub fn expenses(spending: &Spending, priced: bool) -> Section<Expense> {
    let told = spending.spent().into_iter().map(|(whose, spent)| {
        let (key, payer) = match &whose {
            Whose::Repository(name) => (name.to_string(), Payer::Repository),
            Whose::Others => ("others".to_owned(), Payer::Others),
            Whose::Unknown => ("unknown".to_owned(), Payer::Unknown),
            Whose::Nobody => ("nobody".to_owned(), Payer::Nobody),
        };
        (key, Arc::new(expense(payer, &spent, priced)))
    });
    told.filter(|(_, expense)| !expense.is_nothing()).collect()
}

impl Expense {
    /// A runner that is yet to come costs time alone.
    fn is_nothing(&self) -> bool {
        let sums = [self.busy_minutes, self.idle_minutes, self.cost.unwrap_or_default(), self.unpriced_minutes];
        self.jobs == 0 && sums.iter().all(|sum| *sum == 0.0)
    }
}

fn expense(payer: Payer, spent: &Spent, priced: bool) -> Expense {
    let minutes = |seconds: f64| (seconds / 6.0).round() / 10.0;
    Expense {
        payer,
        jobs: spent.jobs,
        busy_minutes: minutes(spent.busy),
        idle_minutes: minutes(spent.idle),
        cost: priced.then_some((spent.cost * 10_000.0).round() / 10_000.0),
        unpriced_minutes: if priced { minutes(spent.unpriced) } else { 0.0 },
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::super::RunningJob;
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    fn runner(name: &str, node: Option<&str>, state: State, since: i64, repository: Option<&str>) -> (String, Arc<Runner>) {
        let job = |repository: &str| RunningJob { id: 1, repository: repository.into(), workflow: "w".into(), since: at(since) };
        let runner = Runner {
            namespace: "ci".into(),
            name: name.into(),
            pool: None,
            node: node.map(str::to_owned),
            state,
            since: at(since),
            created: at(0),
            ephemeral: true,
            protected: false,
            job: repository.map(job),
            trouble: None,
        };
        (format!("ci/{name}"), Arc::new(runner))
    }

    #[test]
    fn runners_of_a_node_share_its_price_and_sums_are_told_twice_a_minute() {
        let expenses = Expenses::default();
        expenses.lock().nodes = [("large".to_owned(), Some(3.0)), ("odd".to_owned(), None)].into();
        let prices = Prices::new([("m5.large".to_owned(), 3.0)].into()).unwrap();
        let look = |second: i64, runners: Vec<(String, Arc<Runner>)>| {
            expenses.look(&runners.into_iter().collect(), &prices, at(second));
            expenses.told()
        };
        let both = |since: i64, state, repository| {
            vec![
                runner("a", Some("large"), state, since, repository),
                runner("b", Some("large"), State::Idle, 0, None),
                runner("c", Some("odd"), State::Pending, 0, None),
            ]
        };
        assert!(look(0, both(0, State::Idle, None)).values().all(|one| one.idle_minutes == 0.0));
        assert!(look(5, both(0, State::Idle, None)).is_empty());
        look(600, both(600, State::Busy, Some("acme/app")));
        let told = look(1_200, both(600, State::Busy, Some("acme/app")));
        let app = told.get("acme/app").unwrap();
        assert_eq!(
            (app.payer, app.jobs, app.busy_minutes, app.idle_minutes, app.cost),
            (Payer::Repository, 1, 10.0, 10.0, Some(0.5))
        );
        let nobody = told.get("nobody").unwrap();
        assert_eq!((nobody.idle_minutes, nobody.cost, nobody.unpriced_minutes), (20.0, Some(0.5), 20.0));
        assert_eq!(look(1_229, both(600, State::Busy, Some("acme/app"))), told, "it is told twice a minute");
        assert_ne!(look(1_230, both(600, State::Busy, Some("acme/app"))), told);
    }

    #[test]
    fn time_is_counted_and_told_when_the_clock_was_set_back() {
        let expenses = Expenses::default();
        let look = |second: i64| {
            let idle: Section<Runner> = [runner("a", None, State::Idle, 0, None)].into();
            expenses.look(&idle, &Prices::default(), at(second));
            expenses.told().get("nobody").map(|nobody| nobody.idle_minutes)
        };
        assert_eq!(look(7_200), None);
        assert_eq!(look(7_260), Some(1.0));
        assert_eq!(look(3_600), Some(1.0), "what was counted stays");
        assert_eq!(look(3_660), Some(2.0));
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_this_process_acts_for_no_shard_is_not_counted() {
        let (expenses, metrics, start) = (Expenses::default(), Metrics::default(), Timestamp::now());
        let look = |second: i64| {
            let idle: Section<Runner> = [runner("a", None, State::Idle, 0, None)].into();
            expenses.look(&idle, &Prices::default(), start + SignedDuration::from_secs(second));
            expenses.told().get("nobody").map(|nobody| nobody.idle_minutes)
        };
        look(0);
        // These metrics have no sources. In this time it looks once.
        let followed = tokio::time::timeout(LOOK + LOOK / 2, expenses.follow(&metrics, CancellationToken::new())).await;
        assert!(followed.is_err(), "nobody stopped it");
        look(3_600);
        assert_eq!(look(3_660), Some(1.0), "the hour before is not counted");
    }

    #[test]
    fn without_prices_minutes_alone_are_told() {
        let mut spending = Spending::default();
        let (key, idle) = runner("a", None, State::Idle, 0, None);
        for second in [0, 60] {
            spending.see(&key.as_str().into(), sight(&idle, None), at(second));
        }
        let told = super::expenses(&spending, false);
        let nobody = told.get("nobody").unwrap();
        assert_eq!((nobody.idle_minutes, nobody.cost, nobody.unpriced_minutes), (1.0, None, 0.0));
    }
}
