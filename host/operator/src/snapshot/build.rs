//! Makes snapshots from what the controllers know. Reads only, and waits for nothing.

use std::sync::Arc;

use jiff::Timestamp;
use pacer_cluster::object::Uid;
use pacer_demand::redelivery::Totals;
use tokio_util::sync::CancellationToken;

use super::demand::{Remembered, jobs};
use super::expense::Expenses;
use super::fleet::{self, Sets};
use super::ledger::{RunningJobs, known};
use super::waits::Follower;
use super::{
    Cause, Decision, Item, LeftOut, Operator, Redeliveries, Role, Section, Snapshot, VERSION, github, grown, shadow, shown,
};
use crate::metrics::{Metrics, Sources};

/// Makes snapshots; clones share what runners cost and how long jobs waited.
#[derive(Clone, Debug)]
pub struct Builder {
    metrics: Arc<Metrics>,
    expenses: Expenses,
    waits: Follower,
    version: String,
}

impl Builder {
    /// From the sources of these metrics, by a process of this version.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>, version: &str) -> Self {
        Self { metrics, expenses: Expenses::default(), waits: Follower::default(), version: version.to_owned() }
    }

    /// Follows what runners cost and how long jobs waited until `stop`, so that snapshots tell it.
    pub async fn follow(self, stop: CancellationToken) {
        tokio::join!(self.expenses.follow(&self.metrics, stop.clone()), self.waits.follow(&self.metrics, stop));
    }

    /// What there is now. A process that does not act has nothing to tell but that.
    #[must_use]
    pub fn build(&self, role: Role, number: u64, now: Timestamp) -> Snapshot {
        let redelivery = self.metrics.redelivery();
        let Totals { asked, delivered, refused, given_up } = redelivery.totals();
        let operator = Operator {
            role,
            version: self.version.clone(),
            missing_webhooks: redelivery.missing(),
            redeliveries: Redeliveries { asked, delivered, refused, given_up },
            left_out: LeftOut::default(),
        };
        let empty = Snapshot { version: VERSION, number, at: now, operator, ..Snapshot::default() };
        let all = self.metrics.sources();
        let whole = all.iter().fold(empty.clone(), |whole, sources| joined(whole, of(sources, empty.clone()), sources.shard));
        let (comparisons, simulations) = (shadow::comparisons(&all), shadow::simulations(&all));
        Snapshot { comparisons, simulations, expenses: self.expenses.told(), waits: self.waits.told(), ..whole }
    }
}

/// Both, where the second is of one more shard.
fn joined(mut whole: Snapshot, part: Snapshot, shard: u16) -> Snapshot {
    let Snapshot { operator, pools, runners, jobs, decisions, credentials, listings, failures, causes, .. } = part;
    // Each shard counts its own from the start.
    let numbered = |key: String| if shard == 0 { key } else { format!("{key}-{shard}") };
    let LeftOut { runners: more_runners, jobs: more_jobs } = operator.left_out;
    let left_out = &mut whole.operator.left_out;
    left_out.runners = left_out.runners.saturating_add(more_runners);
    left_out.jobs = left_out.jobs.saturating_add(more_jobs);
    whole.pools.extend(pools);
    whole.runners.extend(runners);
    whole.jobs.extend(jobs);
    whole.decisions.extend(decisions.into_iter().map(|(key, value)| (numbered(key), value)));
    whole.failures.extend(failures.into_iter().map(|(key, value)| (numbered(key), value)));
    whole.credentials.extend(credentials);
    whole.listings.extend(listings);
    for (key, cause) in causes {
        let more = |known: Arc<Cause>| {
            let (now, total) = (known.now.saturating_add(cause.now), known.total.saturating_add(cause.total));
            Arc::new(Cause { now, total, last: known.last.max(cause.last), ..Cause::clone(&known) })
        };
        let sum = whole.causes.remove(&key).map_or_else(|| cause.clone(), more);
        whole.causes.insert(key, sum);
    }
    whole
}

fn of(sources: &Sources, empty: Snapshot) -> Snapshot {
    let autoscalers = known(sources);
    let (sets, scalers) = (Sets::of(&sources.stores), fleet::scalers(&sources.stores));
    let runners = fleet::runners(sources, &sets, &RunningJobs::of_ledgers(&autoscalers));
    let pools = fleet::pools(sources, &scalers, &runners);
    let remembered =
        |autoscaler: &Uid| sources.autoscalers.read(autoscaler, |memo| Remembered { pace: memo.pace(), polled: memo.polled() });
    let (jobs, more_jobs) = jobs(&sources.stores, &autoscalers, &runners, remembered, empty.at);
    let (failures, causes) = fleet::failures(sources, &sets, &runners);
    let (credentials, listings) = github::health(&sources.accesses, sources.github.as_ref());
    // Counts, causes and reasons are those of all runners.
    let (runners, more_runners) = shown(runners);
    let left_out = LeftOut { runners: more_runners, jobs: more_jobs };
    let operator = Operator { left_out, ..empty.operator };
    let decisions = decisions(sources);
    Snapshot { operator, pools, runners, jobs, decisions, credentials, listings, failures, causes, ..empty }
}

fn decisions(sources: &Sources) -> Section<Decision> {
    let told = sources.decisions.briefs().into_iter().map(|brief| {
        let pool = &brief.pool;
        let item = |(runner, text): &(String, String)| Item { runner: runner.clone(), text: text.clone() };
        let decision = Decision {
            at: brief.at,
            pool: format!("{}/{}/{}", pool.kind, pool.namespace, pool.name),
            decision: brief.decision.as_str().to_owned(),
            policy: brief.policy.clone(),
            summary: brief.summary.clone(),
            items: brief.runners.iter().map(item).collect(),
            more: brief.more,
        };
        (grown(brief.number), Arc::new(decision))
    });
    told.collect()
}
