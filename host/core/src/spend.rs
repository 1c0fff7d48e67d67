//! What the time of runners was spent on, by repository: jobs, minutes with a job, minutes without, and money.
//!
//! A runner's time before a job belongs to the repository of that job, whoever the runner was started for; its time after its last job to the
//! repository of that one. A runner that goes without a job spent its time for nobody.
//!
//! Read first: [`Spending::see`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

/// Repositories that are told from each other; what others spend is told together.
pub const REPOSITORIES: usize = 200;

/// What a runner does, as far as its time is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Its pod is there and GitHub has not seen it.
    Coming,
    /// It could take a job.
    Idle,
    /// It has one, or can't be proved not to.
    Busy,
    /// It takes no other job.
    Leaving,
}

/// A runner at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sight {
    /// What it does.
    pub doing: Doing,
    /// Since when.
    pub since: Timestamp,
    /// Repository of the job that it has; none where that is not known.
    pub repository: Option<Arc<str>>,
    /// What it costs per hour now; none where that is not known.
    pub price: Option<f64>,
}

/// On whom time was spent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// `owner/name`.
    Repository(Arc<str>),
    /// Repositories beyond [`REPOSITORIES`].
    Others,
    /// Runners were busy with jobs that nobody told of.
    Unknown,
    /// Runners had no job, or none yet.
    Nobody,
}

/// What was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Jobs that began.
    pub jobs: u64,
    /// Runners had a job for so long together, seconds.
    pub busy: f64,
    /// They were online without one, seconds.
    pub idle: f64,
    /// What all their time cost whose price is known: also that of starting and stopping.
    pub cost: f64,
    /// Time whose price is not known, seconds.
    pub unpriced: f64,
}

impl Spent {
    fn add(&mut self, other: Self) {
        self.jobs = self.jobs.saturating_add(other.jobs);
        self.busy += other.busy;
        self.idle += other.idle;
        self.cost += other.cost;
        self.unpriced += other.unpriced;
    }

    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// A runner that is there.
#[derive(Clone, Debug)]
struct Account {
    sight: Sight,
    /// Until when its time is counted.
    until: Timestamp,
    /// What is not anybody's yet.
    open: Spent,
    /// Repository of its last job.
    last: Option<Arc<str>>,
    /// The job that it has was counted.
    counted: bool,
}

/// What is spent, followed from one look at a runner to the next.
#[derive(Clone, Debug, Default)]
pub struct Spending {
    runners: BTreeMap<Arc<str>, Account>,
    spent: BTreeMap<Whose, Spent>,
}

impl Spending {
    /// A runner is so now. Its time before its first sight does not count; between two sights it did until `since` what it did at the first of them.
    pub fn see(&mut self, runner: &Arc<str>, mut sight: Sight, now: Timestamp) {
        let mut account = match self.runners.remove(runner) {
            None => Account { sight, until: now, open: Spent::default(), last: None, counted: false },
            Some(mut account) => {
                if account.sight.goes_on(&sight) {
                    sight.repository = sight.repository.or(account.sight.repository.take());
                } else {
                    account.settle(sight.since.clamp(account.until, now.max(account.until)));
                    self.close(&mut account);
                }
                account.sight = sight;
                account.settle(now);
                account
            }
        };
        self.book(&mut account);
        self.runners.insert(runner.clone(), account);
    }

    /// A runner is gone.
    pub fn gone(&mut self, runner: &str, now: Timestamp) {
        let Some(mut account) = self.runners.remove(runner) else { return };
        account.settle(now);
        self.close(&mut account);
        if !account.open.is_nothing() {
            self.add(Whose::Nobody, account.open);
        }
    }

    /// These are all runners that there are: the others are gone.
    pub fn keep(&mut self, runners: &BTreeSet<Arc<str>>, now: Timestamp) {
        let gone: Vec<Arc<str>> = self.runners.keys().filter(|runner| !runners.contains(*runner)).cloned().collect();
        for runner in gone {
            self.gone(&runner, now);
        }
    }

    /// What was spent so far, that of runners which have had no job yet included.
    #[must_use]
    pub fn spent(&self) -> BTreeMap<Whose, Spent> {
        let mut spent = self.spent.clone();
        for account in self.runners.values().filter(|account| !account.open.is_nothing()) {
            let whose = if account.sight.doing == Doing::Busy { Whose::Unknown } else { Whose::Nobody };
            spent.entry(whose).or_default().add(account.open);
        }
        spent
    }

    /// How much is remembered.
    #[must_use]
    pub fn things(&self) -> usize {
        self.runners.len().saturating_add(self.spent.len())
    }

    /// What it did until now is over.
    fn close(&mut self, account: &mut Account) {
        self.book(account);
        account.counted = false;
        if account.sight.doing == Doing::Busy && !account.open.is_nothing() {
            self.add(Whose::Unknown, std::mem::take(&mut account.open));
        }
    }

    /// Writes down what is open where it is known on whom it was spent.
    fn book(&mut self, account: &mut Account) {
        let whose = match (account.sight.doing, &account.sight.repository, &account.last) {
            (Doing::Busy, Some(repository), _) => {
                account.open.jobs = account.open.jobs.saturating_add(u64::from(!account.counted));
                account.counted = true;
                account.last = Some(repository.clone());
                repository.clone()
            }
            (Doing::Leaving, _, Some(last)) => last.clone(),
            _ => return,
        };
        self.add(Whose::Repository(whose), std::mem::take(&mut account.open));
    }

    fn add(&mut self, whose: Whose, spent: Spent) {
        let room = self.spent.len() < REPOSITORIES || self.spent.contains_key(&whose);
        let whose = if room || !matches!(whose, Whose::Repository(_)) { whose } else { Whose::Others };
        self.spent.entry(whose).or_default().add(spent);
    }
}

impl Sight {
    /// Whether the later one is of the same job, or still of none.
    fn goes_on(&self, later: &Self) -> bool {
        let another = match (&self.repository, &later.repository) {
            (Some(one), Some(other)) => one != other || later.since > self.since,
            _ => false,
        };
        self.doing == later.doing && !(self.doing == Doing::Busy && another)
    }
}

impl Account {
    /// Counts the time until then as spent on what it did last.
    fn settle(&mut self, until: Timestamp) {
        let seconds = until.duration_since(self.until).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        self.until = until;
        match self.sight.doing {
            Doing::Idle => self.open.idle += seconds,
            Doing::Busy => self.open.busy += seconds,
            Doing::Coming | Doing::Leaving => {}
        }
        match self.sight.price {
            Some(price) => self.open.cost += price * seconds / 3_600.0,
            None => self.open.unpriced += seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    fn sight(doing: Doing, since: i64, repository: Option<&str>) -> Sight {
        Sight { doing, since: at(since), repository: repository.map(Arc::from), price: Some(3_600.0) }
    }

    /// One runner at these seconds, and gone at the last one.
    fn spent(sights: &[(i64, Sight)], gone: i64) -> Vec<(Whose, Spent)> {
        let (mut spending, runner) = (Spending::default(), Arc::from("ci/web-1"));
        for (second, sight) in sights {
            spending.see(&runner, sight.clone(), at(*second));
        }
        let before = spending.spent().values().map(|spent| spent.busy + spent.idle).sum::<f64>();
        spending.gone("ci/web-1", at(gone));
        assert!(spending.spent().values().map(|spent| spent.busy + spent.idle).sum::<f64>() >= before);
        assert_eq!(spending.things(), spending.spent().len());
        spending.spent().into_iter().collect()
    }

    fn of(repository: &str) -> Whose {
        Whose::Repository(repository.into())
    }

    fn sum(jobs: u64, busy: f64, idle: f64, cost: f64) -> Spent {
        Spent { jobs, busy, idle, cost, unpriced: 0.0 }
    }

    #[test]
    fn time_before_a_job_and_after_the_last_one_is_of_the_jobs_repository() {
        use Doing::{Busy, Coming, Idle, Leaving};
        let app = Some("acme/app");
        for (what, sights, gone, expected) in [
            (
                "an ephemeral runner",
                vec![
                    (0, sight(Coming, 0, None)),
                    (20, sight(Idle, 20, None)),
                    (50, sight(Busy, 50, app)),
                    (110, sight(Leaving, 110, None)),
                ],
                120,
                vec![(of("acme/app"), sum(1, 60.0, 30.0, 120.0))],
            ),
            (
                "looks that are late tell since when it was so",
                vec![(0, sight(Idle, 0, None)), (60, sight(Busy, 50, app)), (120, sight(Leaving, 110, None))],
                120,
                vec![(of("acme/app"), sum(1, 60.0, 50.0, 120.0))],
            ),
            (
                "the repository is told later than the job",
                vec![
                    (0, sight(Idle, 0, None)),
                    (10, sight(Busy, 10, None)),
                    (20, sight(Busy, 10, app)),
                    (30, sight(Busy, 10, None)),
                ],
                40,
                vec![(of("acme/app"), sum(1, 30.0, 10.0, 40.0))],
            ),
            (
                "two jobs of a runner that stays",
                vec![
                    (0, sight(Busy, 0, app)),
                    (10, sight(Idle, 10, None)),
                    (30, sight(Busy, 30, Some("acme/other"))),
                    (40, sight(Busy, 40, Some("acme/other"))),
                    (50, sight(Idle, 50, None)),
                ],
                55,
                vec![
                    (of("acme/app"), sum(1, 10.0, 0.0, 10.0)),
                    (of("acme/other"), sum(2, 20.0, 20.0, 40.0)),
                    (Whose::Nobody, sum(0, 0.0, 5.0, 5.0)),
                ],
            ),
            (
                "nobody tells whose job it is",
                vec![(0, sight(Idle, 0, None)), (10, sight(Busy, 10, None)), (20, sight(Leaving, 20, None))],
                25,
                vec![(Whose::Unknown, sum(0, 10.0, 10.0, 20.0)), (Whose::Nobody, sum(0, 0.0, 0.0, 5.0))],
            ),
            ("no job at all", vec![(0, sight(Idle, 0, None))], 30, vec![(Whose::Nobody, sum(0, 0.0, 30.0, 30.0))]),
        ] {
            assert_eq!(spent(&sights, gone), expected, "{what}");
        }
    }

    #[test]
    fn what_runs_is_told_before_it_is_over_and_an_unknown_price_is_told_as_time() {
        let (mut spending, runner) = (Spending::default(), Arc::from("ci/web-1"));
        for (second, price) in [(0, Some(1.8)), (1_800, None), (3_600, None)] {
            spending.see(&runner, Sight { price, ..sight(Doing::Busy, 0, Some("acme/app")) }, at(second));
        }
        let spent = spending.spent();
        let app = spent.get(&of("acme/app")).unwrap();
        assert_eq!((app.jobs, app.busy, app.unpriced), (1, 3_600.0, 3_600.0));
        spending.keep(&BTreeSet::from([runner]), at(3_600));
        assert_eq!(spending.things(), 2);
        spending.keep(&BTreeSet::new(), at(3_600));
        assert_eq!(spending.things(), 1);
    }

    #[test]
    fn repositories_beyond_the_bound_are_told_together() {
        let mut spending = Spending::default();
        for number in 0..REPOSITORIES + 10 {
            let runner = Arc::from(format!("ci/web-{number}"));
            let repository = format!("acme/{number}");
            spending.see(&runner, sight(Doing::Busy, 0, Some(&repository)), at(0));
            spending.gone(&runner, at(10));
        }
        let spent = spending.spent();
        assert_eq!(spent.len(), REPOSITORIES + 1);
        assert_eq!(spent.get(&Whose::Others), Some(&sum(10, 100.0, 0.0, 100.0)));
    }

    proptest! {
        #[test]
        fn every_second_of_a_runner_is_spent_once(
            sights in proptest::collection::vec((0_usize..4, 0_i64..40, 0_i64..60, proptest::option::of("[ab]")), 1..12),
        ) {
            let (mut spending, runner, mut now) = (Spending::default(), Arc::from("ci/web-1"), 1_000);
            for (doing, after, back, repository) in &sights {
                now += after;
                let doing = [Doing::Coming, Doing::Idle, Doing::Busy, Doing::Leaving][*doing];
                spending.see(&runner, sight(doing, now - back, repository.as_deref()), at(now));
            }
            let first = 1_000 + sights[0].1;
            spending.gone("ci/web-1", at(now + 7));
            let cost: f64 = spending.spent().values().map(|spent| spent.cost).sum();
            #[expect(clippy::cast_precision_loss, reason = "minutes")]
            let existed = (now + 7 - first) as f64;
            prop_assert!((cost - existed).abs() < 1e-6, "{cost} of {existed}");
            let worked: f64 = spending.spent().values().map(|spent| spent.busy + spent.idle).sum();
            prop_assert!(worked <= existed + 1e-6);
        }
    }
}
