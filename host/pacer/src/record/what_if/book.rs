//! What is remembered of one pool: the newest records of it, as `--record` would write them.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use pacer_api::{HorizontalRunnerAutoscaler, JobLedger, Runner};
use pacer_operator::stores::Stores;
use pacer_operator::target::TargetRef;
use pacer_operator::watches::Change;
use pacer_trace::{Bounds, Trace, Window};

use crate::record::chronicle::{Chronicle, Defaults, target_of};

/// What a pool may take: some 2 MiB, or a thousand jobs.
pub(super) const BOUNDS: Bounds = Bounds { records: 8_000, time: SignedDuration::from_hours(3) };

/// What is remembered of one pool for its simulations.
pub(super) struct Book {
    target: TargetRef,
    chronicle: Chronicle,
    window: Window,
    /// More was going on than may be remembered.
    is_full: bool,
    /// Records that made room for others, of which somebody was told.
    told: u64,
}

impl Book {
    /// Begins now, with everything as it is.
    pub(super) fn open(target: TargetRef, defaults: Defaults, stores: &Stores, now: Timestamp) -> Self {
        let (chronicle, window) = (Chronicle::new(defaults), Window::new(BOUNDS, now));
        let mut book = Self { target, chronicle, window, is_full: false, told: 0 };
        // Settings are told once both are known.
        for autoscaler in stores.autoscalers_of(&book.target) {
            book.chronicle.autoscaler(&autoscaler, now);
        }
        book.settings(stores, now);
        for ledger in stores.job_ledgers.state() {
            book.jobs(&ledger, stores, now);
        }
        for runner in stores.runners.state() {
            book.runner(&runner, now);
        }
        book.write();
        book
    }

    pub(super) fn target(&self) -> &TargetRef {
        &self.target
    }

    /// Takes what changed, if it is of this pool.
    pub(super) fn take(&mut self, change: &Change, stores: &Stores, now: Timestamp) {
        let here = |namespace: &Option<String>| namespace.as_ref() == Some(&self.target.namespace);
        match change {
            Change::Autoscaler(one) if here(&one.namespace) => match stores.autoscalers.get(one) {
                Some(object) if self.is_scaled_by(&object) => self.chronicle.autoscaler(&object, now),
                // It has another target by now.
                Some(_) | None => self.chronicle.autoscaler_gone(&format!("{}/{}", self.target.namespace, one.name), now),
            },
            Change::Deployment(one) if here(&one.namespace) && one.name == self.target.name => self.settings(stores, now),
            Change::RunnerSet(one) if here(&one.namespace) && one.name == self.target.name => self.settings(stores, now),
            Change::JobLedger(one) if here(&one.namespace) => {
                if let Some(object) = stores.job_ledgers.get(one) {
                    self.jobs(&object, stores, now);
                }
            }
            Change::Runner(one) if here(&one.namespace) => match stores.runners.get(one) {
                Some(object) => self.runner(&object, now),
                None => self.chronicle.runner_gone(&one.name, now),
            },
            _ => return,
        }
        self.write();
    }

    pub(super) fn time_passes(&mut self, now: Timestamp) {
        self.chronicle.time_passes(now);
        self.write();
    }

    /// What happened within so long until now; none when that is more than may be remembered.
    pub(super) fn trace(&mut self, time: SignedDuration, now: Timestamp) -> Option<Trace> {
        (!self.is_full).then(|| self.window.last(time, now))
    }

    /// Records that were dropped before their time since this was asked last.
    pub(super) fn newly_dropped(&mut self) -> u64 {
        let all = self.window.crowded_out();
        all.saturating_sub(std::mem::replace(&mut self.told, all))
    }

    fn settings(&mut self, stores: &Stores, now: Timestamp) {
        if let Some(target) = stores.target(&self.target) {
            self.chronicle.target(&target, now);
        }
    }

    fn jobs(&mut self, ledger: &JobLedger, stores: &Stores, now: Timestamp) {
        if ledger.namespace().as_deref() != Some(&self.target.namespace) {
            return;
        }
        let autoscaler = ObjectRef::new(&ledger.spec.autoscaler).within(&self.target.namespace);
        if stores.autoscalers.get(&autoscaler).is_some_and(|autoscaler| self.is_scaled_by(&autoscaler)) {
            self.chronicle.jobs(ledger, now);
        }
    }

    fn runner(&mut self, runner: &Runner, now: Timestamp) {
        if target_of(runner).as_ref() == Some(&self.target) {
            self.chronicle.runner(runner, now);
        }
    }

    fn is_scaled_by(&self, autoscaler: &HorizontalRunnerAutoscaler) -> bool {
        TargetRef::of(autoscaler).as_ref() == Some(&self.target)
    }

    fn write(&mut self) {
        for record in self.chronicle.news() {
            if !self.is_full && self.window.add(record).is_err() {
                self.is_full = true;
            }
        }
    }
}
