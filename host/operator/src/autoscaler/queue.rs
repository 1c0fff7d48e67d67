//! Which of GitHub's job queues are read for an autoscaler, and what they say.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use pacer_cluster::object::{ObjectKey, Uid};
use pacer_core::demand::{Listing, Runners, Stage};
use pacer_core::ledger::{JobEvent, Ledger, Origin, State};
use pacer_core::scope::Scope;
use pacer_github::queues;
use pacer_github::{GitHub, JobState, QueueListing, Reading, RemoteJob, Repository};

use super::memo::AutoscalerMemo;
use super::spec::Sources;
use super::{Autoscalers, Subject};
use crate::published::Owned;
use crate::target::Target;

/// How the queues are read whose events also come by webhook: only what was lost has to be found, and what is young may be under way.
const CHECK: Reading = Reading::overdue(Duration::from_secs(60));

/// The same where no job is open.
const CHECK_AT_REST: Reading = Reading::at_rest(Duration::from_secs(60));

/// Most repositories that are checked for lost events of one autoscaler; the jobs of others are looked up one by one when they expire.
const CHECKED: usize = 32;

/// What the queues say.
#[derive(Default)]
pub(super) struct Queues {
    pub(super) listings: Vec<Listing>,
    /// Each queue has been read.
    pub(super) all_read: bool,
    /// Runs that are over and runs that wait for something else than a runner, for ARC's metrics.
    pub(super) runs: [u32; 2],
    /// What keeps queues from being read.
    pub(super) trouble: Option<String>,
}

impl Autoscalers {
    /// Has the right job lists read, and gives what is known of them.
    pub(super) fn queues(&self, of: Subject<'_>, sources: &Sources, github: Option<&GitHub>, ledger: &Ledger) -> Queues {
        let Some(github) = github else { return Queues { all_read: true, ..Queues::default() } };
        let wanted = wanted(sources, ledger);
        let mut result = Queues { all_read: true, ..Queues::default() };
        let read: BTreeSet<Repository> = wanted.keys().cloned().collect();
        let mut listings = Vec::new();
        let before = self.memory.memos.change(of.uid, |memo| {
            let mut interests = std::mem::take(&mut memo.interests);
            let before: BTreeSet<Repository> = interests.keys().cloned().collect();
            for (repository, reading) in wanted {
                let interest = match interests.remove(&repository) {
                    Some((before, interest)) if before == reading && interest.client() == github.id() => interest,
                    // The last interest takes the listing with it, so that the one before lives until there is the next.
                    _before => self.demand.queues.want(github, &repository, reading),
                };
                let (_, interest) = memo.interests.entry(repository).insert_entry((reading, interest)).into_mut();
                if let Some(error) = &interest.health().borrow().error {
                    result.trouble = Some(format!("reading the queue of {} failed: {error}", interest.repository()));
                    // An old listing may miss jobs and show some that are over; it is still the best there is for what it lists.
                    result.all_read = false;
                }
                match interest.latest() {
                    Some(listing) => {
                        result.all_read &= listing.complete;
                        result.count(&listing);
                        listings.push(listing);
                    }
                    None => result.all_read = false,
                }
            }
            before
        });
        if before != read {
            let named = ObjectKey::new(of.object.namespace().unwrap_or_default(), of.object.name_any());
            self.memory.readers.change(of.uid, &named, &before, &read);
        }
        let runners = runners(&sources.target, &self.settings.common_labels);
        let others = self.others(of.uid, &read);
        let is_held_elsewhere =
            |job: &RemoteJob, begun| ledger.get(job.id).is_none() && others.hold(job.id, &job.repository, begun);
        result.listings = listings.iter().map(|listing| of_listing(listing, &runners, is_held_elsewhere)).collect();
        result
    }

    /// Nothing counts the jobs of its lists: those that nobody else has read are polled no longer.
    pub(super) fn stop_reading(&self, of: Subject<'_>) {
        let named = ObjectKey::new(of.object.namespace().unwrap_or_default(), of.object.name_any());
        self.memory.readers.stop(&self.memory.memos, of.uid, &named);
    }
}

/// Which autoscalers read the job list of which repository.
#[derive(Debug, Default)]
pub(super) struct Readers(Mutex<HashMap<Repository, HashMap<Uid, ObjectKey>>>);

impl Readers {
    /// Namespaces and names of those that read this one.
    pub(super) fn of(&self, repository: &Repository) -> Vec<ObjectKey> {
        self.lock().get(repository).map(|readers| readers.values().cloned().collect()).unwrap_or_default()
    }

    fn change(&self, autoscaler: &Uid, named: &ObjectKey, before: &BTreeSet<Repository>, now: &BTreeSet<Repository>) {
        let mut all = self.lock();
        for repository in now.difference(before) {
            all.entry(repository.clone()).or_default().insert(autoscaler.clone(), named.clone());
        }
        for repository in before.difference(now) {
            let Some(readers) = all.get_mut(repository) else { continue };
            readers.remove(autoscaler);
            if readers.is_empty() {
                all.remove(repository);
            }
        }
    }

    /// Ends the interests of an autoscaler in job lists.
    fn stop(&self, memos: &Owned<Uid, AutoscalerMemo>, autoscaler: &Uid, named: &ObjectKey) {
        let ended = memos.change(autoscaler, |memo| std::mem::take(&mut memo.interests));
        let before: BTreeSet<Repository> = ended.into_keys().collect();
        self.change(autoscaler, named, &before, &BTreeSet::new());
    }

    /// Forgets those that do not exist.
    pub(super) fn retain(&self, exists: impl Fn(&Uid) -> bool) {
        self.lock().retain(|_, readers| {
            readers.retain(|autoscaler, _| exists(autoscaler));
            !readers.is_empty()
        });
    }

    /// A poisoned lock only means that another pass panicked between two assignments.
    fn lock(&self) -> MutexGuard<'_, HashMap<Repository, HashMap<Uid, ObjectKey>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    /// Whether what is not listed is not there, as far as anybody will know: nothing is about to be read for the first time.
    pub(super) fn are_known(&self) -> bool {
        self.all_read || self.trouble.is_some()
    }

    fn count(&mut self, listing: &QueueListing) {
        let [completed, other] = &mut self.runs;
        *completed = completed.saturating_add(listing.runs.completed);
        *other = other.saturating_add(listing.runs.other);
    }
}

fn wanted(sources: &Sources, ledger: &Ledger) -> BTreeMap<Repository, Reading> {
    let mut wanted = BTreeMap::new();
    if sources.has_trigger {
        let scope = sources.target.config().scope();
        let own = scope.ok().and_then(|scope| match scope {
            Scope::Repository { owner, name } => Some(Repository::new(owner, name)),
            Scope::Organization(_) | Scope::Enterprise(_) => None,
        });
        let known: BTreeSet<&str> = ledger.open().map(|(_, job)| job.about.repository.as_ref()).collect();
        let known = known.into_iter().filter_map(Repository::named);
        wanted.extend(own.map(|own| (own, CHECK_AT_REST)));
        wanted.extend(known.take(CHECKED).map(|repository| (repository, CHECK)));
    }
    wanted.extend(
        sources.repositories().unwrap_or_default().into_iter().map(|repository| (repository, Reading::all(queues::INTERVAL))),
    );
    wanted
}

/// What the target's runners are when jobs ask for them.
fn runners<'a>(target: &'a Target, common_labels: &'a [String]) -> Runners<'a> {
    Runners { labels: target.labels(common_labels), platform: target.platform() }
}

fn of_listing(
    listing: &QueueListing,
    runners: &Runners<'_>,
    is_held_elsewhere: impl Fn(&RemoteJob, Timestamp) -> bool,
) -> Listing {
    let concerns = |job: &&RemoteJob| runners.may_have(&job.labels, stage(job), || is_held_elsewhere(job, listing.started));
    Listing {
        repository: Arc::from(listing.repository.to_string()),
        started: listing.started,
        covers: listing.covers,
        jobs: listing.jobs.iter().filter(concerns).filter_map(event).collect(),
    }
}

fn stage(job: &RemoteJob) -> Stage {
    match job.state {
        JobState::Completed => Stage::Completed,
        JobState::InProgress if job.runner.is_some() => Stage::Assigned,
        JobState::InProgress | JobState::Queued | JobState::Other => Stage::Open,
    }
}

/// What a listing says about a job, as an event would; none for one that waits for something else than a runner.
pub(super) fn event(job: &RemoteJob) -> Option<JobEvent> {
    let state = match job.state {
        JobState::Queued => State::Queued,
        JobState::InProgress => State::InProgress,
        JobState::Completed => State::Completed,
        JobState::Other => return None,
    };
    Some(JobEvent {
        id: job.id,
        state,
        at: job.started_at.filter(|_| state != State::Queued).unwrap_or(job.created_at),
        queued_at: job.created_at,
        repository: job.repository.clone(),
        workflow: job.workflow.clone(),
        labels: job.labels.clone(),
        attempt: job.attempt,
        runner: job.runner.clone(),
        origin: Arc::new(Origin {
            run: Some(job.run_id).filter(|run| *run != 0),
            branch: job.branch.clone(),
            event: job.event.clone(),
            actor: job.actor.clone(),
            environment: Arc::default(),
        }),
    })
}

#[cfg(test)]
mod tests {
    use pacer_core::polling::Pace;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::access::fixture;

    #[tokio::test]
    async fn job_list_that_nothing_reads_is_polled_no_longer() {
        let github = fixture::github(&Arc::default());
        let (queues, _news) = queues::Queues::new(Pace::queues(), CancellationToken::new());
        let (memos, readers) = (Owned::<Uid, AutoscalerMemo>::default(), Readers::default());
        let (uid, named, repository) = (Uid::new("1").unwrap(), ObjectKey::new("ci", "web"), Repository::new("acme", "app"));
        let interest = queues.want(&github, &repository, CHECK);
        memos.change(&uid, |memo| memo.interests.insert(repository.clone(), (CHECK, interest)));
        readers.change(&uid, &named, &BTreeSet::new(), &BTreeSet::from([repository.clone()]));
        assert_eq!((queues.pollers(), readers.of(&repository)), (1, vec![named.clone()]));
        readers.stop(&memos, &uid, &named);
        let ended = tokio::time::timeout(Duration::from_secs(10), queues.join()).await;
        assert!(ended.is_ok() && readers.of(&repository).is_empty());
    }

    #[test]
    fn listed_jobs_are_compared_with_all_labels_that_the_runners_have() {
        let spec = json!({"repository": "acme/app", "labels": ["web"], "nodeSelector": {"kubernetes.io/arch": "arm64"}});
        let deployment = json!({
            "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "RunnerDeployment", "metadata": {"name": "web"},
            "spec": {"template": {"spec": spec}},
        });
        let target = Target::Deployment(Arc::new(serde_json::from_value(deployment).unwrap()));
        let common = ["common".to_owned()];
        let runners = runners(&target, &common);
        for (labels, expected) in
            [(&["web", "common"][..], true), (&["web", "arm64"], true), (&["web", "x64"], false), (&["web", "gpu"], false)]
        {
            let labels: Vec<Arc<str>> = labels.iter().copied().map(Arc::from).collect();
            assert_eq!(runners.may_have(&labels, Stage::Open, || false), expected, "{labels:?}");
        }
    }

    #[test]
    fn readers_of_a_repository_are_those_that_read_it_now() {
        let repository = |name: &str| Repository::new("acme", name);
        let reads = |names: &[&str]| names.iter().map(|name| repository(name)).collect::<BTreeSet<_>>();
        let (readers, one, two) = (Readers::default(), Uid::new("1").unwrap(), Uid::new("2").unwrap());
        let key = |name: &str| ObjectKey::new("ci", name);
        readers.change(&one, &key("one"), &reads(&[]), &reads(&["a", "b"]));
        readers.change(&two, &key("two"), &reads(&[]), &reads(&["b"]));
        assert_eq!((readers.of(&repository("a")), readers.of(&repository("b")).len()), (vec![key("one")], 2));
        readers.change(&one, &key("one"), &reads(&["a", "b"]), &reads(&["a"]));
        assert_eq!(readers.of(&repository("b")), vec![key("two")]);
        readers.retain(|autoscaler| *autoscaler == one);
        assert_eq!((readers.of(&repository("a")), readers.lock().len()), (vec![key("one")], 1));
    }
}
