//! The runners of a target, as far as demand is concerned.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use pacer_api::{Runner, RunnerReplicaSet};
use pacer_core::demand;
use pacer_core::ledger::{Job, Ledger, State};
use pacer_core::policy::Counts;
use pacer_core::room::NoRoom;

use crate::context::Context;
use crate::memory::{RunnerMemo, Summary};
use crate::stores::owner;
use crate::target::Target;

/// What there is.
pub(super) struct Fleet {
    /// For [`demand::hear`].
    pub(super) witness: demand::Fleet,
    /// Runners that exist and are not on their way out; none while a set has not been counted yet.
    pub(super) live: Option<u32>,
    /// By phase.
    pub(super) counts: Counts,
    /// Those that wait for room in the cluster.
    pub(super) no_room: NoRoom,
    /// Finished runners that the target's number still includes.
    pub(super) finished_unaccounted: u64,
    /// UID of each set, and how many of its runners have finished.
    sets: Vec<(String, u64)>,
    /// Its Runner objects.
    runners: Vec<Arc<Runner>>,
}

/// Looks at the runners of a target.
pub(super) fn look(ctx: &Context, target: &Target) -> Fleet {
    let sets = ctx.stores.sets_of(target.uid());
    let uids: HashSet<String> = sets.iter().filter_map(|set| set.uid()).collect();
    // How many have finished is read before who has: whoever is counted is named as well.
    let counted: Vec<_> = sets.iter().map(|set| count(ctx, set)).collect();
    let ended = ctx.memory.ends_of(&target.reference());
    let own =
        ctx.stores.runners.state_filter(|runner| owner(runner, "RunnerReplicaSet").is_some_and(|(uid, _)| uids.contains(uid)));
    let present =
        own.iter().map(|runner| Arc::from(runner.name_any())).filter(|name: &Arc<str>| !ended.contains_key(name)).collect();
    let mut fleet = Fleet {
        witness: demand::Fleet { present, ended },
        live: Some(0),
        counts: Counts::default(),
        no_room: NoRoom::default(),
        finished_unaccounted: 0,
        sets: Vec::new(),
        runners: own,
    };
    for counted in counted {
        fleet.finished_unaccounted = fleet.finished_unaccounted.saturating_add(counted.unaccounted);
        fleet.live = fleet.live.zip(counted.summary.as_ref()).map(|(live, summary)| live.saturating_add(summary.alive));
        let summary = counted.summary.unwrap_or_default();
        add(&mut fleet.counts, &summary.counts);
        fleet.no_room = fleet.no_room.and(summary.no_room);
        fleet.sets.push((counted.uid, counted.finished));
    }
    fleet
}

struct Counted {
    uid: String,
    summary: Option<Summary>,
    finished: u64,
    unaccounted: u64,
}

fn count(ctx: &Context, set: &RunnerReplicaSet) -> Counted {
    let uid = set.uid().unwrap_or_default();
    let effective = set.spec.effective_time.as_ref().map(|time| time.0);
    ctx.memory.set(&uid, |memo| {
        // As many as had finished when the others were counted: a number that is held by who is alive must not be met twice.
        let finished = memo.summary.as_ref().map_or(memo.finished, |summary| summary.finished);
        let before = effective.and_then(|effective| memo.accounted(effective));
        Counted {
            uid: uid.clone(),
            summary: memo.summary.clone(),
            finished,
            unaccounted: before.map_or(0, |before| finished.saturating_sub(before)),
        }
    })
}

impl Fleet {
    /// Passes on what events say of single runners: who is named has registered, and is busy while its job is not over. That is known here
    /// before any listing shows it, and where a job is shorter than the time between two of them, only here.
    pub(super) async fn tell(&self, ctx: &Context, autoscaler: &str, ledger: &Ledger) {
        let named: HashMap<&str, &Job> = ledger.all().filter_map(|(_, job)| Some((job.runner.as_deref()?, job))).collect();
        for runner in &self.runners {
            let Some(job) = named.get(runner.name_any().as_str()).copied() else { continue };
            let uid = runner.uid().unwrap_or_default();
            let working = job.state == State::InProgress;
            let (before, online) = ctx.memory.runner(&uid, |memo| {
                if job.state == State::Completed {
                    memo.last_job.told(job.since);
                }
                (memo.job.replace(working), online_by(memo, job))
            });
            let news = before != Some(working);
            if let (None, Some(online)) = (before, online) {
                ctx.memory.autoscaler(autoscaler, |memo| memo.came_online(online.duration_since(job.queued)));
            }
            if let (true, Some((_, set))) = (news, owner(runner.as_ref(), "RunnerReplicaSet")) {
                ctx.wake.set(&runner.namespace().unwrap_or_default(), set).await;
            }
        }
    }

    /// How many runners have finished since the process started.
    pub(super) fn finished(&self) -> u64 {
        self.sets.iter().fold(0, |sum, (_, finished)| sum.saturating_add(*finished))
    }

    /// Tells the sets that a number with this `effectiveTime` takes into account who had finished when this was looked at.
    pub(super) fn announce(&self, ctx: &Context, effective: Timestamp) {
        for (uid, finished) in &self.sets {
            ctx.memory.set(uid, |memo| memo.announce(effective, *finished));
        }
    }
}

/// When the runner of a job came online, as far as this process has seen all of its life. Whoever starts a job is online by then, whatever the
/// listings had shown.
fn online_by(memo: &RunnerMemo, job: &Job) -> Option<Timestamp> {
    let listed = memo.online.map(|online| online.min(job.since));
    let started = (job.state == State::InProgress).then_some(job.since);
    listed.or(started).filter(|_| memo.made_here)
}

fn add(sum: &mut Counts, more: &Counts) {
    for (sum, more) in [
        (&mut sum.pending, more.pending),
        (&mut sum.starting, more.starting),
        (&mut sum.idle, more.idle),
        (&mut sum.busy, more.busy),
        (&mut sum.stopping, more.stopping),
    ] {
        *sum = sum.saturating_add(more);
    }
}
