//! The operator's loops, step by step as in `host/operator`, over the rules of `pacer-core`.
//!
//! Each file here follows the file of `host/operator` that its first lines name. What these loops remember is lost when the process dies.

mod fleet;
mod listing;
mod observe;
mod runner;
mod scaler;
mod target;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pacer_core::allowance::{Allowance, Cost, Grant, Purpose};
use pacer_core::demand;
use pacer_core::replacement::AcceptedDemand;
use pacer_core::restart::RestartLimits;
use pacer_core::rollout::Asked;
use pacer_core::runner_job::RunnerJob;
use pacer_core::stop::StopLimits;

use crate::agenda::{Event, Key};
use crate::clock::{At, Clock, MINUTE, SECOND, millis};
use crate::invariant::Invariant;
use crate::object::RunnerId;
use crate::outside::{Broken, Outside, Unanswered};
use crate::rules::Rules;
use crate::script::{Kind, Refusal};

/// `--sync-period`.
const SYNC: Duration = Duration::from_secs(60);

/// Looks at one object in a minute. One listing a second and a few changes stay well below.
const LOOKS: u32 = 900;

/// Why a pass ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The process died.
    Died,
    /// The API server or GitHub did not do their part.
    Failed,
    /// It is not its turn at GitHub.
    Later(Duration),
}

impl From<Broken> for Halt {
    fn from(broken: Broken) -> Self {
        if broken == Broken::Died { Self::Died } else { Self::Failed }
    }
}

impl From<Unanswered> for Halt {
    fn from(unanswered: Unanswered) -> Self {
        if unanswered == Unanswered::Died { Self::Died } else { Self::Failed }
    }
}

/// A process of the operator, with all that it remembers.
pub struct Operator {
    rules: Rules,
    stop: StopLimits,
    restart: RestartLimits,
    known: BTreeMap<RunnerId, observe::Known>,
    memos: BTreeMap<u32, fleet::Memo>,
    summaries: BTreeMap<u32, fleet::Summary>,
    asked: Asked<u32>,
    finished: BTreeMap<Arc<str>, Timestamp>,
    accepted: BTreeMap<u32, AcceptedDemand>,
    jobs: BTreeMap<RunnerId, RunnerJob>,
    scaler: scaler::Memo,
    lister: listing::Lister,
    queue: Option<demand::Listing>,
    allowance: Allowance<u64>,
    grants: Vec<(At, Grant)>,
    token_until: At,
    wakes: BTreeMap<Key, At>,
    failures: BTreeMap<Key, u32>,
    looks: BTreeMap<Key, (At, u32)>,
}

impl Operator {
    /// A process that starts: its stores are filled before it looks at anything.
    pub fn start(rules: Rules, outside: &mut Outside) -> Self {
        outside.note(|| "the operator starts".to_owned());
        outside.targets.relist();
        outside.sets.relist();
        outside.runners.relist();
        outside.pods.relist();
        outside.scalers.relist();
        outside.ledgers.relist();
        outside.note_evidence();
        let mut operator = Self {
            rules,
            stop: StopLimits { confirmation: rules.confirmation, ..StopLimits::default() },
            restart: RestartLimits::default(),
            known: BTreeMap::new(),
            memos: BTreeMap::new(),
            summaries: BTreeMap::new(),
            asked: Asked::default(),
            finished: BTreeMap::new(),
            accepted: BTreeMap::new(),
            jobs: BTreeMap::new(),
            scaler: scaler::Memo::default(),
            lister: listing::Lister::default(),
            queue: None,
            allowance: Allowance::default(),
            grants: Vec::new(),
            token_until: 0,
            wakes: BTreeMap::new(),
            failures: BTreeMap::new(),
            looks: BTreeMap::new(),
        };
        let keys: Vec<Key> = [Key::Scaler, Key::Target]
            .into_iter()
            .chain(outside.sets.all_seen().map(|(id, _)| Key::Set(id)))
            .chain(outside.runners.all_seen().map(|(id, _)| Key::Runner(id)))
            .collect();
        let at = outside.clock.at;
        for (turn, key) in (0_u64..).zip(keys) {
            let due = at + outside.draw.between("first-look", at, turn, (0, 200));
            operator.wake(outside, key, due);
        }
        operator.lister.plan(outside, at);
        if outside.setting.autoscaler.is_some_and(|scaler| scaler.polls) {
            outside.plan(at, Event::ListJobs);
        }
        operator
    }

    /// Plans a look at an object.
    fn wake(&mut self, outside: &mut Outside, key: Key, at: At) {
        let at = at.max(outside.clock.at);
        let due = self.wakes.entry(key).or_insert(At::MAX);
        if at < *due {
            *due = at;
            outside.plan(at, Event::Reconcile(key));
        }
    }

    fn wake_now(&mut self, outside: &mut Outside, key: Key) {
        let at = outside.clock.at;
        self.wake(outside, key, at);
    }

    /// A watch shows what is due.
    pub fn shown(&mut self, outside: &mut Outside, kind: Kind) {
        let at = outside.clock.at;
        let mut keys = Vec::new();
        match kind {
            Kind::Target => {
                if !outside.targets.deliver(at).is_empty() {
                    keys.extend([Key::Target, Key::Scaler]);
                }
            }
            Kind::Set => {
                keys.extend(outside.sets.deliver(at).into_iter().flat_map(|(id, _)| [Key::Set(id), Key::Target]));
            }
            Kind::Runner => {
                for (id, before) in outside.runners.deliver(at) {
                    let set = outside.runners.seen(id).or(before.as_ref()).map(|runner| runner.set);
                    keys.push(Key::Runner(id));
                    keys.extend(set.map(Key::Set));
                    keys.push(Key::Scaler);
                }
            }
            Kind::Pod => {
                for (id, _) in outside.pods.deliver(at) {
                    keys.push(Key::Runner(id));
                    keys.extend(outside.runners.seen(id).map(|runner| Key::Set(runner.set)));
                }
            }
            Kind::Scaler => {
                if !outside.scalers.deliver(at).is_empty() {
                    keys.push(Key::Scaler);
                }
            }
            Kind::Ledger => {
                if !outside.ledgers.deliver(at).is_empty() {
                    keys.push(Key::Scaler);
                }
            }
        }
        outside.note_evidence();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().for_each(|key| self.wake_now(outside, key));
    }

    /// Looks at an object, if it is time.
    pub(crate) fn reconcile(&mut self, outside: &mut Outside, key: Key) -> Result<(), Halt> {
        let at = outside.clock.at;
        if self.wakes.get(&key) != Some(&at) {
            return Ok(());
        }
        self.wakes.remove(&key);
        let looks = self.looks.entry(key).or_insert((at, 0));
        if at >= looks.0 + MINUTE {
            *looks = (at, 0);
        }
        looks.1 += 1;
        if looks.1 > LOOKS {
            outside.violated(Invariant::HotLoop, || format!("{key:?} is looked at {LOOKS} times in a minute"));
        }
        let next = match key {
            Key::Runner(id) => self.reconcile_runner(outside, id),
            Key::Set(id) => self.reconcile_set(outside, id),
            Key::Target => self.reconcile_target(outside),
            Key::Scaler => self.reconcile_scaler(outside),
        };
        let wait = match next {
            Ok(wait) => {
                self.failures.remove(&key);
                wait
            }
            Err(Halt::Died) => return Err(Halt::Died),
            Err(Halt::Later(wait)) => Some(wait),
            Err(Halt::Failed) => {
                let failures = self.failures.entry(key).or_default();
                *failures += 1;
                Some(Duration::from_secs(1 << (*failures).min(6)).min(SYNC))
            }
        };
        if let Some(wait) = wait {
            self.wake(outside, key, at + millis(wait.min(SYNC)).max(1));
        }
        Ok(())
    }

    /// Takes a turn at GitHub; see `host/github/src/stack/turn.rs`.
    fn turn(&mut self, outside: &mut Outside, who: u64, purpose: Purpose, cost: Cost) -> Result<(), Halt> {
        let at = outside.clock.at;
        let now = Duration::from_millis(at);
        let allowance = &mut self.allowance;
        let (due, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.grants).into_iter().partition(|(until, _)| *until <= at);
        self.grants = waiting;
        for (until, grant) in due {
            allowance.answered(grant, Duration::from_millis(until));
        }
        match self.rules.turn(allowance, who, purpose, cost, now) {
            Ok(Some(grant)) => {
                let answered = at + outside.draw.between("answered", at, who, (50, 400));
                self.grants.push((answered, grant));
                self.grants.sort_by_key(|(until, _)| *until);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(wait) => Err(Halt::Later(wait)),
        }
    }

    /// Another fleet of the same credentials removes a runner.
    pub(crate) fn remove_other(&mut self, outside: &mut Outside, number: u32) -> Result<(), Halt> {
        if number != outside.others {
            return Ok(());
        }
        let at = outside.clock.at;
        match self.turn(outside, u64::from(u32::MAX), Purpose::Removal, Cost { points: 5, creations: 0 }) {
            Ok(()) => {}
            Err(Halt::Later(wait)) => {
                outside.plan(at + millis(wait), Event::OtherRemoval(number));
                return Ok(());
            }
            Err(halt) => return Err(halt),
        }
        let pause = match outside.remove_other() {
            Ok(()) => {
                outside.others = number.saturating_sub(1);
                50
            }
            Err(Unanswered::Died) => return Err(Halt::Died),
            Err(Unanswered::Refused(_)) => 10 * SECOND,
        };
        let left = outside.others;
        if left > 0 {
            outside.plan(at + pause, Event::OtherRemoval(left));
        }
        Ok(())
    }

    /// Lists GitHub's queue; see `host/github/src/queues/poller.rs`.
    pub(crate) fn list_jobs(&mut self, outside: &mut Outside) -> Result<(), Halt> {
        let Clock { at, now, .. } = outside.clock;
        outside.plan(at + 30 * SECOND, Event::ListJobs);
        match self.turn(outside, u64::from(u32::MAX) + 1, Purpose::Listing, Cost { points: 2, creations: 0 }) {
            Ok(()) => {}
            Err(Halt::Died) => return Err(Halt::Died),
            Err(_) => return Ok(()),
        }
        match outside.list_jobs() {
            Ok(()) => {
                let jobs = outside.open_jobs();
                self.queue = Some(demand::Listing { repository: Arc::from("o/r"), started: now, covers: Some(now), jobs });
                self.wake_now(outside, Key::Scaler);
                Ok(())
            }
            Err(Unanswered::Died) => Err(Halt::Died),
            Err(Unanswered::Refused(_)) => Ok(()),
        }
    }

    /// Whether GitHub refuses the credentials, as far as the last listing told.
    fn is_refused(&self) -> bool {
        matches!(self.lister.refused, Some(Refusal::Unauthorized))
    }
}
