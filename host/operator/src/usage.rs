//! What runners do with their time, by pool and by repository, for metrics.
//!
//! Whoever observes runners to decide about them says here what was found, so that nothing is asked for it; what happens between two changes is
//! added up when somebody looks. All of it may be lost at any moment.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use kube::ResourceExt;
use pacer_api::RunnerReplicaSet;
use pacer_api::autoscaler::ScaleTargetKind;
use pacer_cluster::object::Uid;
use pacer_core::facts::RunnerFacts;
use pacer_core::runner_job::RunnerJob;
use pacer_core::spend::{Doing, Elapsed, Sight, Spending, Whose};

use crate::standing::{Standing, State};
use crate::target::{TargetRef, owner_of};

/// Runners of one template, or those that stand alone in a namespace, by names that people know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Pool {
    /// Namespace of the runners.
    pub(crate) namespace: String,
    /// Its name; none of runners that stand alone.
    pub(crate) name: String,
}

impl Pool {
    /// Whoever scales them: named as simulations name it, so that a RunnerDeployment and a RunnerSet of one name are two.
    pub(crate) fn of(target: &TargetRef) -> Self {
        let name = match target.kind {
            ScaleTargetKind::RunnerDeployment => target.name.clone(),
            ScaleTargetKind::RunnerSet => format!("runnerset/{}", target.name),
        };
        Self { namespace: target.namespace.clone(), name }
    }

    /// Those of a RunnerReplicaSet.
    pub(crate) fn of_set(set: &RunnerReplicaSet) -> Self {
        let alone = || Self { namespace: set.namespace().unwrap_or_default(), name: set.name_any() };
        owner_of(set).map_or_else(alone, |owner| Self::of(&owner.target))
    }
}

/// A runner as it was observed.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    runner: Arc<str>,
    sight: Sight,
    /// Repository of its last job, and when that was over.
    had: Option<(Arc<str>, Timestamp)>,
}

impl Look {
    /// None of one that never runs a job.
    pub(crate) fn of(facts: &RunnerFacts, standing: &Standing, job: Option<&RunnerJob>) -> Option<Self> {
        if facts.registration_only {
            return None;
        }
        let working = job.and_then(|job| job.working);
        let doing = match standing.state {
            State::Busy => Doing::Busy,
            State::Offline | State::Stopping if working.is_some() => Doing::Busy,
            State::Pending | State::Starting => Doing::Coming,
            State::Idle | State::Offline => Doing::Idle,
            State::Ended | State::Quarantined | State::Stopping => Doing::Leaving,
        };
        let working = working.filter(|_| doing == Doing::Busy);
        // Its job's event is earlier than the listing that shows it.
        let since = working.map_or(standing.since, |working| working.min(standing.since));
        let repository = working.and_then(|_| job?.repository.clone());
        let had = job.and_then(|job| Some((job.last.as_ref()?.repository.clone(), job.ended?)));
        Some(Self {
            runner: facts.uid.as_str().into(),
            sight: Sight { doing, since, repository, price: None },
            had: had.filter(|_| doing != Doing::Busy),
        })
    }
}

/// Times of runners, seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    /// What the runners of each pool did with their time.
    pub(crate) by_pool: Vec<(Pool, Elapsed)>,
    /// For how long they were online, by for whom that was.
    pub(crate) by_repository: Vec<(Whose, f64)>,
}

/// What runners did with their time since this process began.
#[derive(Debug, Default)]
pub(crate) struct Usage(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    spending: Spending,
    pools: BTreeMap<Pool, OfPool>,
    /// By RunnerReplicaSet, or by runner where that stands alone.
    sets: HashMap<Uid, Set>,
}

#[derive(Debug)]
struct OfPool {
    shard: u16,
    elapsed: Elapsed,
}

#[derive(Debug)]
struct Set {
    shard: u16,
    pool: Pool,
    runners: HashSet<Arc<str>>,
}

/// The part of [`Usage`] that is of one shard; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ShardUsage {
    all: Arc<Usage>,
    shard: u16,
}

impl ShardUsage {
    pub(crate) fn new(all: Arc<Usage>, shard: u16) -> Self {
        Self { all, shard }
    }

    /// These are the runners of a RunnerReplicaSet now, or of one that stands alone.
    pub(crate) fn see(&self, set: &Uid, pool: Pool, looks: Vec<Look>, now: Timestamp) {
        let mut guard = self.all.lock();
        let Inner { spending, pools, sets } = &mut *guard;
        let of_pool = pools.entry(pool.clone()).or_insert_with(|| OfPool { shard: self.shard, elapsed: Elapsed::default() });
        let before = sets.remove(set).map(|before| before.runners).unwrap_or_default();
        let mut runners = HashSet::with_capacity(looks.len());
        for Look { runner, sight, had } in looks {
            if let Some((repository, ended)) = had {
                spending.had(&runner, &repository, ended);
            }
            of_pool.elapsed.add(spending.see(&runner, sight, now));
            runners.insert(runner);
        }
        for gone in before.difference(&runners) {
            of_pool.elapsed.add(spending.gone(gone, now));
        }
        sets.insert(set.clone(), Set { shard: self.shard, pool, runners });
    }

    /// Forgets what does not exist.
    pub(crate) fn retain(&self, exists: impl Fn(&Uid) -> bool, is_pool: impl Fn(&Pool) -> bool, now: Timestamp) {
        self.all.retain(self.shard, exists, is_pool, now);
    }
}

impl Usage {
    /// What runners did until now.
    pub(crate) fn read(&self, now: Timestamp) -> Times {
        let mut guard = self.lock();
        let Inner { spending, pools, sets } = &mut *guard;
        for set in sets.values() {
            let Some(of_pool) = pools.get_mut(&set.pool) else { continue };
            for runner in &set.runners {
                of_pool.elapsed.add(spending.until(runner, now));
            }
        }
        Times {
            by_pool: pools.iter().map(|(pool, of_pool)| (pool.clone(), of_pool.elapsed)).collect(),
            by_repository: spending.settled().iter().map(|(whose, spent)| (whose.clone(), spent.online())).collect(),
        }
    }

    /// Nothing is followed of a shard any more.
    pub(crate) fn forget(&self, shard: u16, now: Timestamp) {
        self.retain(shard, |_| false, |_| false, now);
    }

    fn retain(&self, shard: u16, exists: impl Fn(&Uid) -> bool, is_pool: impl Fn(&Pool) -> bool, now: Timestamp) {
        let mut guard = self.lock();
        let Inner { spending, pools, sets } = &mut *guard;
        let mut followed: HashSet<Pool> = HashSet::new();
        sets.retain(|uid, set| {
            let kept = set.shard != shard || exists(uid);
            let of_pool = pools.get_mut(&set.pool);
            let is_gone = |runner: &Arc<str>| !kept || (set.shard == shard && Uid::new(runner).is_none_or(|uid| !exists(&uid)));
            let gone: Vec<Arc<str>> = set.runners.iter().filter(|runner| is_gone(runner)).cloned().collect();
            let mut elapsed = Elapsed::default();
            for runner in gone {
                elapsed.add(spending.gone(&runner, now));
                set.runners.remove(&runner);
            }
            if let Some(of_pool) = of_pool {
                of_pool.elapsed.add(elapsed);
            }
            if kept {
                followed.insert(set.pool.clone());
            }
            kept
        });
        pools.retain(|pool, of_pool| of_pool.shard != shard || followed.contains(pool) || is_pool(pool));
    }

    /// A poisoned lock means that a thread panicked between two runners; what was counted until then is right.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use pacer_core::ledger::About;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    fn uid(name: &str) -> Uid {
        Uid::new(name).unwrap()
    }

    fn pool(name: &str) -> Pool {
        Pool { namespace: "ci".into(), name: name.into() }
    }

    fn look(runner: &str, state: State, since: i64, job: Option<&RunnerJob>) -> Look {
        let facts = RunnerFacts { uid: runner.into(), ..RunnerFacts::default() };
        Look::of(&facts, &Standing { state, since: at(since), trouble: None }, job).unwrap()
    }

    fn works(since: i64, repository: &str) -> RunnerJob {
        RunnerJob { working: Some(at(since)), repository: Some(repository.into()), ..RunnerJob::default() }
    }

    fn worked(ended: i64, repository: &str) -> RunnerJob {
        let about = About { repository: repository.into(), workflow: "build".into(), labels: [].into(), attempt: 1 };
        RunnerJob { ended: Some(at(ended)), last: Some(Arc::new(about)), ..RunnerJob::default() }
    }

    /// Seconds starting, idle and busy.
    fn of_pool(usage: &Usage, name: &str, second: i64) -> Option<[f64; 3]> {
        let found = usage.read(at(second)).by_pool.into_iter().find(|(one, _)| *one == pool(name))?;
        Some([found.1.coming, found.1.idle, found.1.busy])
    }

    fn of_repository(usage: &Usage, whose: &Whose, second: i64) -> f64 {
        usage
            .read(at(second))
            .by_repository
            .into_iter()
            .find(|(one, _)| one == whose)
            .map(|(_, seconds)| seconds)
            .unwrap_or_default()
    }

    fn repository(name: &str) -> Whose {
        Whose::Repository(name.into())
    }

    #[test]
    fn time_is_that_of_what_a_runner_did_and_grows_between_two_observations() {
        let usage = Arc::new(Usage::default());
        let (one, set) = (ShardUsage::new(usage.clone(), 0), uid("s"));
        let app = works(50, "acme/app");
        one.see(&set, pool("web"), vec![look("a", State::Pending, 0, None), look("b", State::Idle, 0, None)], at(0));
        assert_eq!(of_pool(&usage, "web", 10), Some([10.0, 10.0, 0.0]), "nobody has looked at them since");
        one.see(&set, pool("web"), vec![look("a", State::Idle, 20, None), look("b", State::Busy, 52, Some(&app))], at(60));
        assert_eq!(of_pool(&usage, "web", 60), Some([20.0, 90.0, 10.0]), "an event tells since when it works");
        assert_eq!(of_repository(&usage, &repository("acme/app"), 70), 70.0);
        // The one that is gone was idle until then, for nobody; the other one stops once its job is over.
        one.see(&set, pool("web"), vec![look("b", State::Stopping, 70, Some(&app))], at(80));
        assert_eq!(of_pool(&usage, "web", 90), Some([20.0, 110.0, 40.0]));
        one.see(&set, pool("web"), vec![look("b", State::Stopping, 95, Some(&worked(95, "acme/app")))], at(100));
        assert_eq!(of_pool(&usage, "web", 200), Some([20.0, 110.0, 45.0]), "one that takes no other job does neither");
        one.see(&set, pool("web"), Vec::new(), at(200));
        assert_eq!(
            (of_repository(&usage, &repository("acme/app"), 300), of_repository(&usage, &Whose::Nobody, 300)),
            (95.0, 60.0)
        );
        assert_eq!(of_pool(&usage, "web", 300), Some([20.0, 110.0, 45.0]));
    }

    #[test]
    fn job_of_which_events_tell_when_it_is_over_is_of_its_repository() {
        let usage = Arc::new(Usage::default());
        let (one, set, over) = (ShardUsage::new(usage.clone(), 0), uid("s"), worked(9, "acme/app"));
        one.see(&set, pool("web"), vec![look("a", State::Idle, 0, None), look("b", State::Busy, 0, None)], at(0));
        let ended = |runner| look(runner, State::Ended, 9, Some(&over));
        one.see(&set, pool("web"), vec![ended("a"), ended("b")], at(10));
        assert_eq!(of_repository(&usage, &repository("acme/app"), 10), 18.0);
        assert_eq!(of_pool(&usage, "web", 20), Some([0.0, 9.0, 9.0]));
    }

    #[test]
    fn runner_that_is_there_to_be_registered_has_no_time() {
        let facts = RunnerFacts { registration_only: true, ..RunnerFacts::default() };
        let standing = Standing { state: State::Idle, since: at(0), trouble: None };
        assert!(Look::of(&facts, &standing, None).is_none());
    }

    #[test]
    fn pool_and_shard_that_are_gone_leave_nothing_and_repositories_keep_their_time() {
        let usage = Arc::new(Usage::default());
        let (one, other) = (ShardUsage::new(usage.clone(), 1), ShardUsage::new(usage.clone(), 2));
        let app = works(0, "acme/app");
        one.see(&uid("s"), pool("web"), vec![look("a", State::Busy, 0, Some(&app))], at(0));
        one.see(&uid("t"), pool("old"), vec![look("b", State::Busy, 0, Some(&app))], at(0));
        other.see(&uid("u"), pool("far"), vec![look("c", State::Busy, 0, Some(&app))], at(0));
        // Of other shards this one knows nothing.
        one.retain(|object| object.as_str() == "s" || object.as_str() == "a", |_| false, at(10));
        assert_eq!(
            [of_pool(&usage, "web", 10), of_pool(&usage, "old", 10), of_pool(&usage, "far", 10)],
            [Some([0.0, 0.0, 10.0]), None, Some([0.0, 0.0, 10.0])]
        );
        assert_eq!(of_repository(&usage, &repository("acme/app"), 20), 50.0);
        // A pool without a RunnerReplicaSet is there for as long as whoever scales it.
        one.retain(|_| false, |of| *of == pool("web"), at(20));
        assert_eq!(of_pool(&usage, "web", 30), Some([0.0, 0.0, 20.0]));
        usage.forget(1, at(30));
        usage.forget(2, at(30));
        assert_eq!((usage.read(at(99)).by_pool.len(), of_repository(&usage, &repository("acme/app"), 99)), (0, 60.0));
    }
}
