//! What the time of runners was spent on, by repository: jobs, minutes with a job, minutes without, and money.
//!
//! A runner's time before a job belongs to the repository of that job, whoever the runner was started for; its time after its last job to the
//! repository of that one. A runner that goes without a job spent its time for nobody.
//!
//! Read first: [`Spending::see`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

mod shares;

use shares::Shares;

/// Repositories that are told from each other, those that use most; what others spend is told together.
pub const REPOSITORIES: usize = 200;

/// GitHub tells ends in whole seconds.
const WHOLE: SignedDuration = SignedDuration::from_secs(1);

/// A moment that is earlier than the one before by more than this shows that the clock was set back. Looks that come in the wrong order differ by less.
const SET_BACK: SignedDuration = SignedDuration::from_mins(1);

/// What a runner does, as far as its time is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It is not registered yet; its pod may be missing.
    Coming,
    /// It has no job: it is online, or registered and not connected.
    Idle,
    /// It has one, or can't be proved not to.
    Busy,
    /// It takes no other job.
    Leaving,
}

/// A runner at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sight {
    /// What the runner does at that moment.
    pub doing: Doing,
    /// Since when it does that.
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

/// Jobs, time and money that were spent on somebody.
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

    /// For how long runners were online, seconds.
    #[must_use]
    pub fn online(&self) -> f64 {
        self.busy + self.idle
    }
}

/// Time that was counted, by what runners did in it, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Elapsed {
    /// See [`Doing::Coming`].
    pub coming: f64,
    /// See [`Doing::Idle`].
    pub idle: f64,
    /// See [`Doing::Busy`].
    pub busy: f64,
    /// See [`Doing::Leaving`].
    pub leaving: f64,
}

impl Elapsed {
    /// Adds the times of another count to these.
    pub fn add(&mut self, other: Self) {
        self.coming += other.coming;
        self.idle += other.idle;
        self.busy += other.busy;
        self.leaving += other.leaving;
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
    shares: Shares,
}

impl Spending {
    /// A runner is so now. Its time before its first sight does not count; between two sights it did until `since` what it did at the first of them.
    /// Returns the time that was counted.
    pub fn see(&mut self, runner: &Arc<str>, mut sight: Sight, now: Timestamp) -> Elapsed {
        let mut elapsed = Elapsed::default();
        let mut account = match self.runners.remove(runner) {
            None => Account { sight, until: now, open: Spent::default(), last: None, counted: false },
            Some(mut account) => {
                if account.sight.goes_on(&sight) {
                    sight.repository = sight.repository.or(account.sight.repository.take());
                } else {
                    elapsed.add(account.settle(sight.since.clamp(account.until, now.max(account.until))));
                    account.close(&mut self.shares);
                }
                account.sight = sight;
                elapsed.add(account.settle(now));
                account
            }
        };
        account.book(&mut self.shares);
        self.runners.insert(runner.clone(), account);
        elapsed
    }

    /// A runner still does what it did when it was last seen. Returns the time that was counted.
    pub fn until(&mut self, runner: &str, now: Timestamp) -> Elapsed {
        let Some(account) = self.runners.get_mut(runner) else { return Elapsed::default() };
        let elapsed = account.settle(now);
        account.book(&mut self.shares);
        elapsed
    }

    /// The last job of a runner was of this repository, and over then. That is news where the job was over before the runner was seen with it, or before
    /// anybody told whose job it was.
    pub fn had(&mut self, runner: &str, repository: &Arc<str>, ended: Timestamp) {
        let Some(account) = self.runners.get_mut(runner) else { return };
        let Sight { doing, since, repository: known, .. } = &mut account.sight;
        match (*doing, &known, &account.last) {
            (Doing::Busy, None, _) if since.duration_since(ended) <= WHOLE => *known = Some(repository.clone()),
            (Doing::Busy, ..) | (_, _, Some(_)) => return,
            (_, _, None) => {
                account.last = Some(repository.clone());
                account.open.jobs = account.open.jobs.saturating_add(1);
            }
        }
        account.book(&mut self.shares);
    }

    /// A runner is gone. Returns the time that was counted.
    pub fn gone(&mut self, runner: &str, now: Timestamp) -> Elapsed {
        let Some(mut account) = self.runners.remove(runner) else { return Elapsed::default() };
        let elapsed = account.settle(now);
        account.close(&mut self.shares);
        if !account.open.is_nothing() {
            self.shares.add(Whose::Nobody, account.open);
        }
        elapsed
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
        let mut spent = self.shares.told().clone();
        for account in self.runners.values().filter(|account| !account.open.is_nothing()) {
            let whose = if account.sight.doing == Doing::Busy { Whose::Unknown } else { Whose::Nobody };
            spent.entry(whose).or_default().add(account.open);
        }
        spent
    }

    /// What was spent as far as it is settled on whom: nothing in it ever becomes less, and what a repository spent while others spent more is among
    /// [`Whose::Others`] for good.
    #[must_use]
    pub fn settled(&self) -> &BTreeMap<Whose, Spent> {
        self.shares.told()
    }

    /// How much is remembered.
    #[must_use]
    pub fn things(&self) -> usize {
        self.runners.len().saturating_add(self.shares.things())
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
    /// Counts the time until then as spent on what it did last. When the clock was set back, what was counted stays, and time is counted from the new
    /// moment on.
    fn settle(&mut self, until: Timestamp) -> Elapsed {
        if self.until.duration_since(until) > SET_BACK {
            self.until = until;
        }
        let (seconds, mut elapsed) = (until.duration_since(self.until).as_secs_f64(), Elapsed::default());
        if seconds <= 0.0 {
            return elapsed;
        }
        self.until = until;
        match self.sight.doing {
            Doing::Coming => elapsed.coming = seconds,
            Doing::Idle => elapsed.idle = seconds,
            Doing::Busy => elapsed.busy = seconds,
            Doing::Leaving => elapsed.leaving = seconds,
        }
        self.open.idle += elapsed.idle;
        self.open.busy += elapsed.busy;
        match self.sight.price {
            Some(price) => self.open.cost += price * seconds / 3_600.0,
            None => self.open.unpriced += seconds,
        }
        elapsed
    }

    /// What it did until now is over.
    fn close(&mut self, shares: &mut Shares) {
        self.book(shares);
        self.counted = false;
        if self.sight.doing == Doing::Busy && !self.open.is_nothing() {
            shares.add(Whose::Unknown, std::mem::take(&mut self.open));
        }
    }

    /// Writes down what is open where it is known on whom it was spent.
    fn book(&mut self, shares: &mut Shares) {
        let whose = match (self.sight.doing, &self.sight.repository, &self.last) {
            (Doing::Busy, Some(repository), _) => {
                self.open.jobs = self.open.jobs.saturating_add(u64::from(!self.counted));
                self.counted = true;
                self.last = Some(repository.clone());
                repository.clone()
            }
            (Doing::Leaving, _, Some(last)) => last.clone(),
            _ => return,
        };
        shares.add(Whose::Repository(whose), std::mem::take(&mut self.open));
    }
}

#[cfg(test)]
mod tests {
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
    fn a_job_that_was_over_before_anybody_told_of_it_is_of_its_repository_and_counts_once() {
        use Doing::{Busy, Idle, Leaving};
        for (what, first, ended, expected) in [
            ("it was not seen", Idle, 9, vec![(of("acme/app"), sum(1, 0.0, 9.0, 12.0))]),
            ("nobody told whose it was", Busy, 9, vec![(of("acme/app"), sum(1, 9.0, 0.0, 12.0))]),
            (
                "it was another one",
                Busy,
                -2,
                vec![(Whose::Unknown, sum(0, 9.0, 0.0, 9.0)), (Whose::Nobody, sum(0, 0.0, 0.0, 3.0))],
            ),
        ] {
            let (mut spending, runner) = (Spending::default(), Arc::from("ci/web-1"));
            spending.see(&runner, sight(first, 0, None), at(0));
            spending.had("ci/web-1", &"acme/app".into(), at(ended));
            spending.see(&runner, sight(Leaving, 9, None), at(10));
            if ended > 0 {
                spending.had("ci/web-1", &"acme/other".into(), at(ended));
            }
            spending.gone("ci/web-1", at(12));
            assert_eq!(spending.spent().into_iter().collect::<Vec<_>>(), expected, "{what}");
        }
    }

    #[test]
    fn time_that_is_nobodys_yet_is_not_settled() {
        let (mut spending, runner) = (Spending::default(), Arc::from("ci/web-1"));
        spending.see(&runner, sight(Doing::Idle, 0, None), at(0));
        assert_eq!(spending.until("ci/web-1", at(30)), Elapsed { idle: 30.0, ..Elapsed::default() });
        assert_eq!(spending.until("ci/web-1", at(20)), Elapsed::default(), "a clock that goes back counts nothing");
        assert!(spending.settled().is_empty() && spending.spent().contains_key(&Whose::Nobody));
        spending.see(&runner, sight(Doing::Busy, 40, Some("acme/app")), at(40));
        spending.until("ci/web-1", at(50));
        assert_eq!(*spending.settled(), [(of("acme/app"), sum(1, 10.0, 40.0, 50.0))].into());
        assert_eq!(spending.until("ci/other", at(50)), Elapsed::default());
    }

    #[test]
    fn time_is_counted_from_where_the_clock_was_set_back_to() {
        let (mut spending, runner) = (Spending::default(), Arc::from("ci/web-1"));
        spending.see(&runner, sight(Doing::Idle, 0, None), at(7_200));
        assert_eq!(spending.until("ci/web-1", at(7_210)).idle, 10.0);
        assert_eq!(spending.until("ci/web-1", at(7_200)), Elapsed::default(), "a look that comes late counts nothing");
        assert_eq!(spending.until("ci/web-1", at(7_211)).idle, 1.0, "and the next one counts nothing twice");
        assert_eq!(spending.until("ci/web-1", at(3_600)), Elapsed::default());
        // It became busy before the clock was set back.
        let elapsed = spending.see(&runner, sight(Doing::Busy, 7_212, Some("acme/app")), at(3_605));
        assert_eq!((elapsed.idle, elapsed.busy), (5.0, 0.0));
        assert_eq!(spending.gone("ci/web-1", at(3_625)).busy, 20.0);
        assert_eq!(spending.spent().into_iter().collect::<Vec<_>>(), [(of("acme/app"), sum(1, 20.0, 16.0, 36.0))]);
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
            let (mut elapsed, mut settled) = (Elapsed::default(), 0.0);
            for (doing, after, back, repository) in &sights {
                elapsed.add(spending.until("ci/web-1", at(now + after / 2)));
                now += after;
                let doing = [Doing::Coming, Doing::Idle, Doing::Busy, Doing::Leaving][*doing];
                elapsed.add(spending.see(&runner, sight(doing, now - back, repository.as_deref()), at(now)));
                let by_now = spending.settled().values().map(Spent::online).sum::<f64>();
                prop_assert!(by_now >= settled && by_now <= spending.spent().values().map(Spent::online).sum::<f64>() + 1e-6);
                settled = by_now;
            }
            let first = 1_000 + sights[0].1;
            elapsed.add(spending.gone("ci/web-1", at(now + 7)));
            let cost: f64 = spending.spent().values().map(|spent| spent.cost).sum();
            #[expect(clippy::cast_precision_loss, reason = "minutes")]
            let existed = (now + 7 - first) as f64;
            prop_assert!((cost - existed).abs() < 1e-6, "{cost} of {existed}");
            let worked: f64 = spending.spent().values().map(|spent| spent.busy + spent.idle).sum();
            prop_assert!(worked <= existed + 1e-6);
            prop_assert!((elapsed.idle + elapsed.busy - worked).abs() < 1e-6, "{elapsed:?}");
            prop_assert!((elapsed.coming + elapsed.leaving + worked - existed).abs() < 1e-6, "{elapsed:?}");
        }
    }
}
