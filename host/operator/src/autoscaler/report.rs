//! Jobs that wait for long are reported on their commits at GitHub, where an annotation of their autoscaler asks for it.
//!
//! ```text
//! every few seconds, each autoscaler that asks: ledger, pool -> core::report::Reports::next -> one step at GitHub, and so on
//! ```
//!
//! Beside the reconciles: nothing that is decided about runners waits for it. What is open at GitHub is kept in the autoscaler's status, before GitHub is
//! asked for it, so that whoever goes on after a crash finds it again and closes it.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_api::condition::{self, ConditionType, Statement, Verdict};
use pacer_api::duration;
use pacer_api::names::annotation;
use pacer_cluster::fence::Fence;
use pacer_cluster::object::Uid;
use pacer_core::estimate::{Estimate, starts};
use pacer_core::ledger::{Job, Ledger, State};
use pacer_core::report::{Next, PER_MINUTE, Reports, Restraint, Saying, Threshold, Waiting};
use pacer_core::scope::Scope;
use pacer_core::waiting::{Pool, PoolQueue, Queued};
use pacer_github::GitHub;
use tokio::time::MissedTickBehavior;

use super::{Autoscalers, Subject};
use crate::error::Error;
use crate::published::Owned;
use crate::target::{Target, TargetRef};

mod act;

/// From one look at an autoscaler to the next: how late a report is closed.
const ROUND: Duration = Duration::from_secs(5);

/// Autoscalers that are looked at at once; others wait for the next round.
const AT_ONCE: usize = 16;

/// What reports of all autoscalers take.
pub(crate) struct Reporting {
    /// Who may ask GitHub.
    fence: Fence,
    memos: Owned<Uid, Memo>,
}

impl Reporting {
    /// Nothing is remembered.
    pub(crate) fn new(fence: Fence) -> Self {
        Self { fence, memos: Owned::default() }
    }
}

/// What is remembered about the reports of one autoscaler.
#[derive(Default)]
struct Memo {
    /// What is open; none before it was read from the status.
    reports: Option<Reports>,
    restraint: Restraint,
    /// Why GitHub takes none.
    refusal: Option<String>,
    /// Whom to ask when the autoscaler is gone.
    github: Option<GitHub>,
}

/// Everything that the next step follows from.
struct Desk<'a> {
    autoscalers: &'a Autoscalers,
    object: &'a HorizontalRunnerAutoscaler,
    target: Option<&'a Target>,
    now: Timestamp,
    threshold: Option<Threshold>,
    ledger: Arc<Ledger>,
    /// Jobs that wait, in their order.
    queue: Vec<Waiting>,
    /// Found when something is to be said, which is seldom.
    outlook: OnceLock<Outlook>,
}

/// What jobs that wait are told.
#[derive(Default)]
struct Outlook {
    pool: Option<Pool>,
    /// Of the jobs in the queue.
    estimates: Vec<Option<Estimate>>,
}

impl Autoscalers {
    /// Reports jobs for as long as it is polled.
    pub(crate) async fn report_waiting(&self) {
        let (mut running, mut busy) = (FuturesUnordered::new(), HashSet::new());
        let mut round = tokio::time::interval(ROUND);
        round.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut begun = 0_usize;
        loop {
            tokio::select! {
                _ = round.tick() => {
                    let mut due = self.with_reports();
                    let turn = begun.checked_rem(due.len()).unwrap_or_default();
                    due.rotate_left(turn);
                    for (uid, object) in due {
                        if busy.len() < AT_ONCE && busy.insert(uid.clone()) {
                            begun = begun.wrapping_add(1);
                            running.push(async move {
                                match object {
                                    Some(object) => self.report(&object, &uid).await,
                                    None => self.close_all(&uid).await,
                                }
                                uid
                            });
                        }
                    }
                }
                Some(uid) = running.next(), if !running.is_empty() => {
                    busy.remove(&uid);
                }
            }
        }
    }

    /// Autoscalers that ask for reports or have some that are open; none for one that is gone.
    fn with_reports(&self) -> Vec<(Uid, Option<Arc<HorizontalRunnerAutoscaler>>)> {
        let all = self.cluster.stores.autoscalers.state();
        let all = all.into_iter().filter_map(|object| Some((Uid::of(&*object).ok()?, object)));
        let (mut due, mut there) = (Vec::new(), HashSet::new());
        for (uid, object) in all {
            let open = object.status.as_ref().is_some_and(|status| !status.waiting_reports.is_empty());
            let remembered = || self.reporting.memos.read(&uid, |memo| memo.reports.as_ref().is_some_and(|it| !it.is_empty()));
            let asks = object.annotations().contains_key(annotation::REPORT_WAITING);
            there.insert(uid.clone());
            if asks || open || remembered().unwrap_or_default() {
                due.push((uid, Some(object)));
            }
        }
        let mut gone = Vec::new();
        self.reporting.memos.retain(|uid, memo| {
            let is_there = there.contains(uid);
            let open = memo.reports.as_ref().is_some_and(|reports| !reports.is_empty());
            if !is_there && open {
                gone.push((uid.clone(), None));
            }
            is_there || open
        });
        due.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
        due.extend(gone);
        due
    }

    /// Takes the steps that are due for one autoscaler.
    async fn report(&self, object: &HorizontalRunnerAutoscaler, uid: &Uid) {
        for _ in 0..PER_MINUTE {
            let now = Timestamp::now();
            let Some(target) = self.report_target(object) else { return };
            if !self.recall(object, uid, target.as_ref()) {
                return;
            }
            let desk = self.desk(object, target.as_ref(), now);
            let memos = &self.reporting.memos;
            let known = memos.read(uid, |memo| Some((memo.reports.clone()?, memo.restraint.clone(), memo.github.clone())));
            let Some((reports, restraint, before)) = known.flatten().filter(|_| self.reporting.fence.holds()) else { return };
            let essence = |waiting: &Waiting| desk.saying(waiting).essence;
            let next = reports.next(desk.threshold, &desk.queue, essence, &restraint, now);
            if matches!(next, Next::Wait(_)) {
                return;
            }
            let github = match self.reporter(object, target.as_ref(), before).await {
                Ok(github) => github,
                Err(Error::Kube(error)) => {
                    tracing::warn!(autoscaler = %object.name_any(), %error, "credentials for reports not read, trying again");
                    return;
                }
                Err(error) => return self.refuse(uid, object, &error.to_string(), now).await,
            };
            memos.change(uid, |memo| {
                memo.restraint.step(now);
                memo.github = Some(github.clone());
            });
            act::Act { all: self, object, uid, github: &github, now }.take(&next, &desk).await;
        }
    }

    /// Whom reports are made with: the autoscaler's own credentials, else those of its target's runners, else the operator's. Without a target it is
    /// whoever made what is open.
    async fn reporter(
        &self,
        object: &HorizontalRunnerAutoscaler,
        target: Option<&Target>,
        before: Option<GitHub>,
    ) -> Result<GitHub, Error> {
        if let (None, Some(before)) = (target, before) {
            return Ok(before);
        }
        let own = object.spec.credentials_secret();
        let secret = own.or_else(|| target.and_then(|target| target.config().credentials_secret()));
        self.github.github(&object.namespace().unwrap_or_default(), secret).await
    }

    /// The target, if it exists; none at all where the tenancy does not allow it, and so nothing is said of its jobs.
    fn report_target(&self, object: &HorizontalRunnerAutoscaler) -> Option<Option<Target>> {
        let target = TargetRef::of(object).and_then(|named| self.cluster.stores.target(&named));
        let admits = |target: &Target| self.github.tenancies().admits(target.namespace(), target.config()).is_ok();
        if target.as_ref().is_some_and(|target| !admits(target)) { None } else { Some(target) }
    }

    /// Reads what was open from the status, where that has not been done. Whoever may write a status could name commits of others: only those count
    /// where the target's runners may be. Returns whether it is known what is open.
    fn recall(&self, object: &HorizontalRunnerAutoscaler, uid: &Uid, target: Option<&Target>) -> bool {
        let memos = &self.reporting.memos;
        if memos.read(uid, |memo| memo.reports.is_some()).unwrap_or_default() {
            return true;
        }
        let kept = object.status.as_ref().map(|status| status.waiting_reports.as_slice()).unwrap_or_default();
        let scope = target.and_then(|target| target.config().scope().ok());
        if !kept.is_empty() && scope.is_none() {
            return false;
        }
        let belongs = |repository: &str| scope.as_ref().is_some_and(|scope: &Scope| scope.covers(repository));
        let kept = kept.iter().filter_map(|one| one.read()).filter(|report| belongs(&report.repository)).collect();
        memos.change(uid, |memo| memo.reports = Some(Reports::new(kept)));
        true
    }

    fn desk<'a>(&'a self, object: &'a HorizontalRunnerAutoscaler, target: Option<&'a Target>, now: Timestamp) -> Desk<'a> {
        let ledger = self.demand.ledgers.read(object);
        let leaves = object.metadata.deletion_timestamp.is_some();
        let threshold = if leaves { None } else { threshold(object).ok().flatten() };
        let scope = target.and_then(|target| target.config().scope().ok());
        let mut queued: Vec<(u64, &Job)> = ledger.open().filter(|(_, job)| job.state == State::Queued).collect();
        queued.sort_by_key(|(id, job)| (job.queued, *id));
        // Of a job that may not be this pool's nothing is said, but it has its place.
        let covered = |repository: &str| scope.as_ref().is_some_and(|scope| scope.covers(repository));
        let queue = (1..).zip(&queued).map(|(place, (id, job))| Waiting {
            job: *id,
            repository: Some(job.about.repository.to_string()).filter(|name| covered(name)).unwrap_or_default(),
            queued: job.queued,
            place,
        });
        let queue = queue.collect();
        Desk { autoscalers: self, object, target, now, threshold, ledger, queue, outlook: OnceLock::new() }
    }

    /// What the status says of reports.
    pub(super) fn put_reporting(&self, of: Subject<'_>, conditions: &mut Vec<Condition>) {
        let refusal = self.reporting.memos.read(of.uid, |memo| memo.refusal.clone()).flatten();
        let (verdict, reason, message) = match (threshold(of.object), refusal) {
            (Ok(None), _) => {
                condition::remove(conditions, ConditionType::WaitingReported);
                return;
            }
            (Err(wrong), _) => (Verdict::False, "InvalidThreshold", wrong),
            (Ok(Some(_)), Some(refusal)) => {
                (Verdict::False, "ReportsRefused", format!("jobs that wait are not reported: {refusal}"))
            }
            (Ok(Some(_)), None) => {
                let asked = of.object.annotations().get(annotation::REPORT_WAITING).map(String::as_str).unwrap_or_default();
                (
                    Verdict::True,
                    "Reporting",
                    format!("jobs that wait longer than {asked} are reported on their commits at GitHub"),
                )
            }
        };
        let generation = of.object.metadata.generation;
        let statement = Statement { type_: ConditionType::WaitingReported, verdict, reason, message: &message, generation };
        condition::put(conditions, &statement, of.clock.now);
    }
}

impl Desk<'_> {
    fn outlook(&self) -> Outlook {
        let Some(target) = self.target else { return Outlook::default() };
        let (all, now) = (self.autoscalers, self.now);
        let pool = all.pool(self.object, target, &all.fleet(target), self.ledger.open().map(|(_, job)| job), now);
        let pace = Uid::of(self.object).ok().and_then(|uid| all.memory.memos.read(&uid, |memo| memo.pace)).unwrap_or_default();
        let queued: Vec<Timestamp> = self.queue.iter().map(|waiting| waiting.queued).collect();
        let estimates = starts(&pool, &pace, &queued, now);
        Outlook { pool: Some(pool), estimates }
    }

    /// What is said of a job that waits.
    fn saying(&self, waiting: &Waiting) -> Saying {
        let Outlook { pool, estimates } = self.outlook.get_or_init(|| self.outlook());
        let job = Queued { at: waiting.queued, place: waiting.place };
        let index = usize::try_from(waiting.place.saturating_sub(1)).unwrap_or(usize::MAX);
        let estimate = estimates.get(index).copied().flatten();
        let labels = self.ledger.get(waiting.job).map(|job| job.about.labels.clone()).unwrap_or_default();
        let name = self.target.map(Target::name).unwrap_or_default();
        Saying::of(name, &labels, job, &PoolQueue::of(pool.as_ref()).waits(job), estimate)
    }
}

/// The threshold that an autoscaler asks for; none where it asks for no reports.
///
/// # Errors
///
/// What is wrong with it, and what to write.
fn threshold(object: &HorizontalRunnerAutoscaler) -> Result<Option<Threshold>, String> {
    let Some(text) = object.annotations().get(annotation::REPORT_WAITING) else { return Ok(None) };
    let wrong = |why: &dyn std::fmt::Display| format!("the annotation {} is {text:?}: {why}", annotation::REPORT_WAITING);
    let wait = duration::parse(text).map_err(|error| wrong(&error))?;
    Threshold::new(wait).map(Some).map_err(|error| wrong(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threshold_that_makes_no_sense_is_said_with_what_to_write() {
        let of = |text: Option<&str>| {
            let mut object = HorizontalRunnerAutoscaler::default();
            object.metadata.annotations =
                text.map(|text| [(annotation::REPORT_WAITING.to_owned(), text.to_owned())].into_iter().collect());
            threshold(&object)
        };
        assert_eq!(of(None), Ok(None));
        assert_eq!(of(Some("10m")), Ok(Some(Threshold::new(Duration::from_secs(600)).unwrap())));
        for text in ["", "soon", "0s", "48h", "10"] {
            let wrong = of(Some(text)).unwrap_err();
            assert!(wrong.contains("report-waiting-jobs-after is") && wrong.contains("10m") | wrong.contains("30m"), "{wrong}");
        }
    }
}
