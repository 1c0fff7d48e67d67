//! The number: what the metrics and the capacity policy ask for, within the bounds.

use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_api::names::annotation;
use pacer_core::autoscale::{self, Decision, Demand, Ramp};
use pacer_core::estimate::Pace;
use pacer_core::ledger::State;
use pacer_core::policy::{ApiBudget, Attributes, CapacityPlan, CapacityRequest, Pool};
use pacer_core::reads::{Fact, Reads};
use pacer_core::reservation::{self, Held, InForce, LIFE};
use pacer_core::scale_down::{since, unix};
use pacer_policy::record::Change;
use pacer_policy::{Decision as PolicyDecision, Evaluation};
use pacer_policyset::receipts::{Draft, Owner};

use super::memo::AutoscalerMemo;
use super::metric::Metrics;
use super::observe::Fleet;
use super::spec::Spec;
use super::{Autoscalers, Observation, Problem, Subject};
use crate::attributes::AboutPool;
use crate::pool::{Scaled, api_budget};
use crate::published::Past;
use crate::target::Target;

/// The number, and what else a reconcile goes on with.
pub(super) struct Decided {
    pub(super) decision: Decision,
    /// The number of runners before this decision.
    pub(super) from: u32,
    /// When the answer changes by itself.
    pub(super) next: Option<Timestamp>,
    /// What was missing to decide it.
    pub(super) trouble: Option<String>,
    /// How long its runners take.
    pub(super) pace: Pace,
}

/// An answer of the capacity policy.
struct Planned {
    in_force: InForce,
    /// It holds other reservations than the one before, or is that of another policy because the first failed.
    news: bool,
    evaluation: Evaluation<CapacityPlan>,
    /// How long runners take, as the policy was told.
    pace: Pace,
}

impl Autoscalers {
    /// Decides the number, and keeps what the next decision needs.
    pub(super) async fn decide(&self, of: Subject<'_>, spec: &Spec<'_>, seen: &Observation) -> Result<Decided, Problem> {
        let metric = self.suggest(of, spec, seen).await?;
        let planned = self.ask(of, spec, seen, &metric).await;
        let said = self.said(of);
        let previous = said.desired.and_then(|replicas| u32::try_from(replicas).ok());
        let recent = self.memory.memos.change(of.uid, |memo| memo.raises.recent(of.clock.now));
        let mut decision = autoscale::decide(&Demand {
            bounds: spec.bounds,
            override_min: spec.override_min,
            metric: metric.suggestion,
            jobs_added_to_min: spec.sources.has_trigger,
            planned: planned.in_force.replicas,
            jobs: planned.in_force.jobs,
            spec_reserved: self.inherited(of, seen),
            ceiling: planned.evaluation.answer.ceiling,
            previous,
            live: seen.fleet.live.unwrap_or_else(|| previous.unwrap_or_default()),
            last_scale_out: said.raised.map(|time| time.0),
            delay: spec.delay,
            ramp: Ramp { per_minute: self.settings.ramp, recent: &recent },
            now: of.clock.now,
        });
        if let (true, Some(previous)) = (metric.incomplete, previous) {
            // What GitHub did not tell cannot be a reason to remove runners.
            decision.desired = decision.desired.max(previous.min(spec.bounds.max));
        }
        let waiting = seen.demand.jobs.values().filter(|job| job.state == State::Queued).map(|job| job.queued).min();
        self.memory.memos.change(of.uid, |memo| {
            memo.raises.add(decision.raised, of.clock.now);
            memo.reservations = Held::all(&planned.evaluation.answer, of.clock.now);
            memo.waiting_since = waiting;
        });
        let ends = [
            seen.demand.next,
            planned.in_force.next,
            decision.next,
            spec.next_change,
            spec_reservation_end(of.object, of.clock.now),
        ];
        let decided = self.memory.memos.read(of.uid, |memo| memo.number).flatten();
        let from = decided.or(previous).unwrap_or_else(|| spec.sources.target.replicas());
        // The controller of a target without UID reports that.
        if (planned.news || from != decision.desired)
            && let Ok(owner) = Owner::try_from(&spec.sources.target)
        {
            let change = Change { from, to: decision.desired, reason: decision.reason.to_string() };
            let draft = Draft::capacity(owner, planned.evaluation, change, of.clock.now);
            self.decisions.receipts.leave(draft);
        }
        let trouble = metric.trouble.or_else(|| seen.queues.trouble.clone());
        Ok(Decided { decision, from, next: ends.into_iter().flatten().min(), trouble, pace: planned.pace })
    }

    /// How many runners the spec reserves beside those of the jobs that are known.
    fn inherited(&self, of: Subject<'_>, seen: &Observation) -> u32 {
        let entries = of.object.spec.reservations();
        let listed = seen.queues.listings.iter().flat_map(|listing| &listing.jobs).map(|job| (job.id, job.queued_at));
        let jobs = seen.ledger.all().map(|(id, job)| (id, job.queued)).chain(listed);
        self.memory.memos.change(of.uid, |memo| {
            memo.known.follow(&entries, jobs, of.clock.now);
            memo.known.left(&entries, of.clock.now)
        })
    }

    /// Asks the capacity policy which reservations shall exist. Without jobs, reservations and triggers there is nothing the policy of somebody
    /// who scales by percentage could add, yet it is asked: spare capacity and office hours are its business as well.
    async fn ask(&self, of: Subject<'_>, spec: &Spec<'_>, seen: &Observation, metric: &Metrics) -> Planned {
        let now = of.clock.now;
        let known = |memo: &AutoscalerMemo| (memo.reservations.clone(), memo.scaled, memo.assignments());
        let (held, scaled, assignments) = self.memory.memos.read(of.uid, known).unwrap_or_default();
        let scope = spec.sources.target.config().scope().ok();
        let budget = seen.github.as_ref().zip(scope).and_then(|(github, scope)| github.budget(&scope)).as_ref().map(api_budget);
        let asked = of.object.annotations().get(annotation::POLICIES).or_else(|| spec.sources.target.policies());
        let namespace = of.object.namespace().unwrap_or_default();
        // Those of its own policy set, or of its target's.
        let generation = self.decisions.policies.generation_for(&namespace, asked.map(String::as_str));
        let past = self.past(spec, now);
        let ephemeral = spec.sources.target.config().is_ephemeral();
        let pace = Pace { starts: past.start_time, runs: past.run_time, assignments, ephemeral };
        let told = Told { scaled, budget, past, common_labels: &self.settings.common_labels };
        let mut pool = pool(of.object, spec, &seen.fleet, told, now);
        let reads = generation.reads(PolicyDecision::Capacity);
        self.decisions.facts.prepare(&reads).await;
        pool.attributes.extend(self.told_of(&spec.sources.target, &reads, now));
        pool.attributes.extend(self.room(&spec.sources.target, &seen.fleet, &reads).await);
        let told = || reservation::told(&seen.demand.jobs, spec.bounds.max, &reads, now);
        let told = metric.jobs_counted.then(told).unwrap_or_default();
        let life = [(LIFE.to_owned(), spec.sources.life.as_secs().to_string())];
        let request = CapacityRequest {
            now: unix(now),
            settings: String::new(),
            pool,
            reservations: held.iter().filter_map(|held| held.at(now)).collect(),
            attributes: life.into_iter().chain(told.attributes()).collect(),
            jobs: told.jobs,
        };
        let evaluation = generation.capacity(request).await;
        // It is asked at every pass, and seldom says something new.
        let news = evaluation.receipt.fault().is_some() || reservation::differs(&evaluation.answer.reservations, &held);
        if news {
            self.decisions.report(&evaluation, &of.object.object_ref(&())).await;
        }
        Planned { in_force: InForce::of(&evaluation.answer, now), news, evaluation, pace }
    }

    /// Further facts about the pool.
    fn told_of(&self, target: &Target, reads: &Reads, now: Timestamp) -> Attributes {
        if !reads.has_any(&[Fact::Pool, Fact::OtherPools, Fact::Failures]) {
            return Attributes::new();
        }
        let annotations = target.meta().annotations.as_ref();
        let priority = annotations.and_then(|annotations| annotations.get(annotation::PRIORITY)).map(String::as_str);
        let (spec, reference) = (&target.template(&[]).spec, target.reference());
        let about = AboutPool { spec, priority, namespace: target.namespace(), target: Some(&reference) };
        self.decisions.facts.pool(reads, &about, now)
    }

    fn past(&self, spec: &Spec<'_>, now: Timestamp) -> Past {
        let Some(pool) = spec.sources.target.uid() else { return Past::default() };
        Past::read(&pool, &self.memory.fleets.starts, &self.memory.reports.history.reader(), now)
    }
}

/// What a policy is told of a pool beside its objects.
struct Told<'a> {
    scaled: Scaled,
    budget: Option<ApiBudget>,
    past: Past,
    common_labels: &'a [String],
}

fn pool(autoscaler: &HorizontalRunnerAutoscaler, spec: &Spec<'_>, fleet: &Fleet, told: Told<'_>, now: Timestamp) -> Pool {
    let target = &spec.sources.target;
    let config = target.config();
    let Told { scaled, budget, past, common_labels } = told;
    Pool {
        namespace: autoscaler.namespace().unwrap_or_default(),
        name: target.name().to_owned(),
        kind: target.kind().as_str().to_owned(),
        labels: target.labels(common_labels).into_iter().map(str::to_owned).collect(),
        min_replicas: Some(spec.override_min.unwrap_or(spec.bounds.min)),
        max_replicas: Some(spec.bounds.max),
        desired: target.replicas(),
        counts: fleet.counts.clone(),
        last_scale_up: scaled.up.map(|at| since(at, now)),
        last_scale_down: scaled.down.map(|at| since(at, now)),
        revision: target.revision().unwrap_or_default().to_owned(),
        ephemeral: config.is_ephemeral(),
        budget,
        start_time: past.start_time,
        run_time: past.run_time,
        arrivals: past.arrivals,
        attributes: fleet.no_room.attributes(now),
    }
}

/// When the next of the spec's reservations ends.
fn spec_reservation_end(autoscaler: &HorizontalRunnerAutoscaler, now: Timestamp) -> Option<Timestamp> {
    let ends = autoscaler.spec.capacity_reservations.iter().flatten().filter_map(|entry| entry.expiration_time.as_ref());
    ends.map(|end| end.0).filter(|end| *end > now).min()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use jiff::SignedDuration;
    use pacer_core::autoscale::Bounds;
    use serde_json::json;

    use super::super::spec::Sources;
    use super::*;

    #[test]
    fn policy_is_told_of_the_labels_that_the_runners_have() {
        let deployment = json!({
            "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "RunnerDeployment", "metadata": {"name": "web", "namespace": "ci"},
            "spec": {"template": {"spec": {"repository": "acme/app", "labels": ["web", "Common"]}}},
        });
        let target = Target::Deployment(Arc::new(serde_json::from_value(deployment).unwrap()));
        let sources = Sources { target, has_trigger: true, life: SignedDuration::from_mins(10), metrics: Vec::new() };
        let spec = Spec {
            sources: &sources,
            bounds: Bounds { min: 1, max: 9 },
            override_min: None,
            next_change: None,
            summary: None,
            delay: Duration::ZERO,
            primary: None,
        };
        let autoscaler = json!({
            "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler",
            "metadata": {"name": "web", "namespace": "ci"}, "spec": {"scaleTargetRef": {"name": "web"}},
        });
        let autoscaler: HorizontalRunnerAutoscaler = serde_json::from_value(autoscaler).unwrap();
        let common_labels = ["common".to_owned(), "linux-large".to_owned()];
        let told = Told { scaled: Scaled::default(), budget: None, past: Past::default(), common_labels: &common_labels };
        let pool = pool(&autoscaler, &spec, &Fleet::default(), told, Timestamp::UNIX_EPOCH);
        assert_eq!((pool.labels.join(" "), pool.max_replicas), ("web Common linux-large".to_owned(), Some(9)));
    }
}
