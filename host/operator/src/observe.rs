//! From objects, listings and what the process knows to facts. Observing changes nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use pacer_api::condition::{self, ConditionType};
use pacer_api::names::annotation;
use pacer_api::{Runner, RunnerReplicaSet, RunnerStatus};
use pacer_cluster::clock::Clock;
use pacer_cluster::object::Uid;
use pacer_cluster::owner::is_owned;
use pacer_core::facts::{PodFacts, Refusal, Refuser, Remote, RunnerFacts, Worker};
use pacer_core::last_job::LastJob;
use pacer_core::ledger::{Job, State};
use pacer_core::listing::{self, Before, Entry, Lack, Listing, Registrant};
use pacer_core::namesake::{self, Namesake};
use pacer_core::runner_job::RunnerJob;
use pacer_github::RemoteRunner;
use pacer_github::runner_list::RunnerListView;

use self::node::{NodeState, Nodes};
use crate::access::Access;
use crate::error::Error;
use crate::published::{IN_FLIGHT, Published};
use crate::removal::{Removals, Removed};
use crate::runner_pod::RunnerPod;
use crate::stores::Stores;

pub mod node;

/// What earlier observations of a runner found out. Recorded by the Runner controller alone: whoever else observes sees the same.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Its pod was seen.
    pod: bool,
    /// The state its pod was last seen in.
    pod_state: Option<PodState>,
    /// Seen at GitHub under this id.
    known_id: Option<u64>,
    /// Missing from all listings since.
    absent_since: Option<Instant>,
    /// When a listing first had it online.
    online: Option<Timestamp>,
    /// A worker process was seen in its pod.
    worked: bool,
    /// A listing had it busy.
    listed_busy: bool,
    /// The node of its pod was looked for and is gone.
    node_gone: bool,
    /// When it finished its last job, as listings have it.
    last_job: LastJob,
}

/// A state of a pod, and since when it has been that.
#[derive(Clone, Copy, Debug)]
struct PodState {
    digest: u64,
    since: Instant,
}

/// How this process fared with making a runner's pod.
#[derive(Clone, Debug, Default)]
pub struct Creation {
    /// When it was last created and has not been seen since.
    pub sent: Option<Instant>,
    /// The API server was asked to create it and did not answer: it may be there.
    pub unanswered: bool,
    /// GitHub was asked to register it ahead and did not answer: it may be registered under its name.
    pub registering: bool,
    /// This process created it, and so has seen it from its beginning.
    pub made_here: bool,
    /// The API server, or this operator, refused it.
    pub refusal: Option<Refusal>,
    /// When that was tried last.
    pub refused: Option<Instant>,
}

/// What the process knows about a runner that no object says.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// From earlier observations.
    pub seen: Seen,
    /// About making its pod.
    pub creation: Creation,
    /// Base URL of the GitHub that it registers at.
    pub api: Option<Arc<str>>,
}

impl Known {
    /// Takes over what an observation found out. A pod that was seen settles whether it could be made.
    pub fn record(&mut self, observed: &Observed) {
        self.seen = observed.seen.clone();
        if observed.facts.pod.is_some() {
            self.creation = Creation { made_here: self.creation.made_here, ..Creation::default() };
        }
    }

    /// It was registered under this id, ahead of its agent.
    pub fn registered(&mut self, id: u64) {
        self.seen.known_id = Some(id);
        self.creation.registering = false;
    }

    /// Whether this is its id.
    #[must_use]
    pub fn is_registered_as(&self, id: u64) -> bool {
        self.seen.known_id == Some(id)
    }

    /// A refusal to make its pod. The first one stays the beginning of the trouble.
    pub fn refuse(&mut self, by: Refuser, message: String, clock: Clock) {
        let since = self.creation.refusal.as_ref().map_or(clock.now, |refusal| refusal.since);
        self.creation.refused = Some(clock.instant);
        self.creation.refusal = Some(Refusal { by, message, since });
    }

    /// When the runner of a job came online, as far as this process has seen all of its life. Whoever starts a job is online by then,
    /// whatever the listings had shown.
    #[must_use]
    pub fn online_by(&self, job: &Job) -> Option<Timestamp> {
        let listed = self.seen.online.map(|online| online.min(job.since));
        let started = (job.state == State::InProgress).then_some(job.since);
        listed.or(started).filter(|_| self.creation.made_here)
    }
}

/// A runner's facts, and what comes with them.
#[derive(Clone, Debug)]
pub struct Observed {
    /// What decisions about the runner are made from.
    pub facts: RunnerFacts,
    /// How long ago a pod was created that the watch has not shown.
    pub pod_sent: Option<Duration>,
    /// A pod may have been created that the watch has not shown: nobody answered.
    pub pod_unanswered: bool,
    /// How long ago GitHub answered *busy*.
    pub refused_busy: Option<Duration>,
    /// The Runner whose its name is at GitHub, if that is another one.
    pub rival: Option<String>,
    /// The job that it runs, by GitHub's id as events tell it, or else by the name that the status hook in its pod gave it.
    pub job: Option<Arc<str>>,
    /// What is seen by now, for [`Known::record`].
    pub seen: Seen,
}

impl Observed {
    /// A pod was created a moment ago, and the watch has not shown it.
    #[must_use]
    pub fn pod_in_flight(&self) -> bool {
        self.pod_sent.is_some_and(|ago| ago < IN_FLIGHT)
    }

    /// For how long it has waited for a listing that shows what it has become: since its pod changed, or its deletion was asked for.
    #[must_use]
    pub fn waited(&self, clock: Clock) -> Duration {
        let unchanged = self.seen.pod_state.map(|state| clock.instant.saturating_duration_since(state.since));
        let deleting = self.facts.deleting.map(|since| Duration::try_from(clock.now.duration_since(since)).unwrap_or_default());
        unchanged.into_iter().chain(deleting).min().unwrap_or_default()
    }
}

/// How long the pod of a runner that works has to have been the same before a listing that does not show it connected is a reason to look at
/// its node: GitHub shows one that has just begun, and drops one that has just ended, before the kubelet says so.
const CONTACT_PATIENCE: Duration = Duration::from_secs(10);

/// How long after its deletion timestamp a pod may be there before its node is looked at: one that has ended is given no time, and its timestamp,
/// in whole seconds, is past at once.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// Where facts about a runner come from, beside its own object.
#[derive(Clone, Debug)]
pub struct Sources<'a> {
    /// UID of the Runner.
    pub uid: &'a Uid,
    /// Pod with the Runner's name, if there is one; it counts only if this Runner owns it.
    pub pod: Option<&'a RunnerPod>,
    /// Its node was looked at just now; none when there was no reason to.
    pub node: Option<NodeState>,
    /// The newest listing of its scope.
    pub runner_list: Option<&'a RunnerListView>,
    /// The RunnerReplicaSet that owns it.
    pub set: Option<&'a RunnerReplicaSet>,
    /// Its pod may write its status (`--runner-status-update-hook`), and so may the jobs in it.
    pub hooked: bool,
    /// What job events say of it.
    pub job: Option<RunnerJob>,
    /// What was done to remove it.
    pub removed: Removed,
    /// Others with its name at the same place.
    pub namesakes: &'a [Namesake],
    /// What is known beside.
    pub known: &'a Known,
}

/// Puts together what is known about a runner. The same sources give the same facts.
#[must_use]
pub fn runner(runner: &Runner, sources: Sources<'_>, clock: Clock) -> Observed {
    let Sources { uid, pod, node, runner_list, set, hooked, job, removed, namesakes, known } = sources;
    let name = runner.name_any();
    let pod = pod.filter(|pod| is_owned(&pod.metadata, uid));
    let status = runner.status.as_ref();
    let noted = pod.and_then(|pod| pod.runner_id);
    let mut seen = known.seen.clone();
    seen.node_gone = node.map_or(seen.node_gone, |node| node == NodeState::Gone);
    let mut pod = pod.map(|pod| PodFacts { node_gone: seen.node_gone, ..pod.facts.clone() });
    if let (Some(pod), Some(NodeState::Silent { since })) = (&mut pod, node) {
        pod.worker = Worker::Unknown;
        pod.silent_since.get_or_insert(since);
    }
    seen.see_pod(pod.as_ref(), clock.instant);
    let unlisted_since = runner_list.is_none_or(|view| !seen.is_fresh(view, clock.instant));
    // Long ago it had a pod and registered, whatever its status says: only a listing tells what is left of that.
    seen.pod |= crate::pod::is_leftover(runner);
    let claimed = known_id(runner);
    // An id is what a removal names. A job that may write the status could put another runner's there, so that only listings count then.
    let known_id = seen.known_id.or(claimed.filter(|_| !hooked)).or(noted);
    let own = Namesake { known_id, has_pod: pod.is_some(), ..namesake_of(runner, uid) };
    let known_id = known_id.filter(|id| namesake::owns(&own, namesakes, *id));
    let registered = known_id.or(claimed).is_some();
    // Once its agent was seen, its status says so.
    let was_seen = claimed.is_some() || seen.online.is_some() || seen.worked || job.is_some();
    let is_awaited = crate::just_in_time::is_wanted(runner) && !was_seen;
    let refused_busy = removed.refused_busy.map(|at| clock.instant.saturating_duration_since(at));
    let made =
        known.creation.made_here || known.creation.sent.is_some() || known.creation.unanswered || known.creation.registering;
    let had_pod = seen.pod || status.is_some_and(had_pod);
    let registration = Registration {
        name: &name,
        is_own: had_pod || registered || made,
        of: Registrant { had_pod: seen.pod, registered, awaited: is_awaited, refused_busy },
        own: &own,
        namesakes,
    };
    let remote = seen.remote(&registration, runner_list, clock.instant);
    if matches!(remote, Remote::Online { .. }) {
        seen.online.get_or_insert(clock.now);
    }
    if let Some(ended) = job.as_ref().and_then(|job| job.ended) {
        seen.last_job.told(ended);
    }
    if let Remote::Online { flag, .. } = remote
        && !unlisted_since
    {
        seen.last_job.listed(flag.idle(), clock.now);
    }
    seen.known_id = remote.id().or(known_id);
    let awaited = is_awaited && seen.online.is_none();
    let sent = known.creation.sent.filter(|_| pod.is_none());
    let hooked_job = || Some(Arc::from(status.filter(|status| reports_job(status))?.workflow.as_ref()?.job.as_deref()?));
    let current_job = job.as_ref().and_then(|job| job.job).map(|id| Arc::from(id.to_string())).or_else(hooked_job);
    let facts = RunnerFacts {
        created: runner.metadata.creation_timestamp.as_ref().map_or(clock.now, |time| time.0),
        current: set.is_none_or(|set| crate::template::is_current(runner, set)),
        ephemeral: runner.spec.config.is_ephemeral(),
        protected: runner.annotations().get(annotation::PROTECTED).is_some_and(|value| value == "true"),
        quarantined: status.is_some_and(|status| condition::holds(&status.conditions, ConditionType::Quarantined)),
        deleting: runner.meta().deletion_timestamp.as_ref().map(|time| time.0).or(removed.deleted),
        known_id: seen.known_id,
        awaited,
        had_pod,
        refusal: known.creation.refusal.clone().filter(|_| pod.is_none()),
        worked: job.is_some() || claimed.is_some() || seen.worked,
        had_job: job.is_some() || status.is_some_and(reports_job) || seen.worked || seen.listed_busy,
        reports_job: job.as_ref().and_then(|job| job.working),
        job_over: job.as_ref().filter(|job| job.working.is_none()).and_then(|job| job.ended),
        hook_reports_job: status.is_some_and(reports_job),
        siblings_register: false,
        registration_only: crate::pod::is_registration_only(runner),
        own_grace: runner.spec.pod.termination_grace_period_seconds.is_some(),
        github_refuses: false,
        github_forbidden: false,
        unregistered: removed.unregistered.map(|at| clock.instant.saturating_duration_since(at)),
        name,
        uid: uid.to_string(),
        pod,
        remote,
        unlisted_since,
        scope_barely_listed: runner_list.is_none_or(RunnerListView::is_young),
        last_job_end: seen.last_job.end(),
        // A listing may show that another job came after it.
        last_job: job.filter(|job| job.ended == seen.last_job.end()).and_then(|job| job.last),
    };
    let pod_sent = sent.map(|sent| clock.instant.saturating_duration_since(sent));
    let pod_unanswered = known.creation.unanswered && facts.pod.is_none();
    let registered = namesakes.iter().filter(|other| other.may_be_registered()).chain([&own]);
    let holder = namesake::holder(registered).filter(|holder| own.may_be_registered() && **holder != own);
    let rival = holder.map(|holder| format!("{}/{}", holder.namespace, facts.name));
    Observed { facts, pod_sent, pod_unanswered, refused_busy, rival, job: current_job, seen }
}

/// Observes runners, whose ever they are.
#[derive(Clone)]
pub struct Observer {
    /// Nodes of pods that seem lost.
    pub nodes: Arc<Nodes>,
    /// What the watches know.
    pub stores: Stores,
    /// What the Runner controller knows.
    pub known: Published<Uid, Known>,
    /// What job events say.
    pub jobs: Published<Uid, RunnerJob>,
    /// What was done to remove runners.
    pub removals: Arc<Removals>,
    /// See [`Sources::hooked`].
    pub hooked: bool,
}

impl Observer {
    /// Facts about a Runner.
    ///
    /// # Errors
    ///
    /// When the Runner has no UID.
    pub async fn observe(&self, object: &Runner, access: Option<&Access>, clock: Clock) -> Result<Observed, Error> {
        let known = self.known.get(&Uid::of(object)?).unwrap_or_default();
        self.observe_known(object, access, &known, clock).await
    }

    /// As [`Self::observe`], of a Runner about which this is known.
    ///
    /// # Errors
    ///
    /// As [`Self::observe`].
    pub async fn observe_known(
        &self,
        object: &Runner,
        access: Option<&Access>,
        known: &Known,
        clock: Clock,
    ) -> Result<Observed, Error> {
        let uid = Uid::of(object)?;
        let pod = self.stores.pod_of(object);
        let view = access.and_then(Access::view);
        let node = match &pod {
            Some(pod) => self.node_of(pod, &known.seen, view.as_deref(), clock).await,
            None => None,
        };
        let set = self.stores.set_of(object);
        let namesakes: Vec<Namesake> = self.namesakes(object, &uid, access).into_iter().map(|(other, _)| other).collect();
        let sources = Sources {
            uid: &uid,
            pod: pod.as_deref(),
            node,
            runner_list: view.as_deref(),
            set: set.as_deref(),
            hooked: self.hooked,
            job: self.jobs.get(&uid),
            removed: self.removals.of(&uid),
            namesakes: &namesakes,
            known,
        };
        Ok(runner(object, sources, clock))
    }

    /// Other Runners with the same name at the same place.
    #[must_use]
    pub fn namesakes(&self, runner: &Runner, uid: &Uid, access: Option<&Access>) -> Vec<(Namesake, Arc<Runner>)> {
        let Ok(scope) = runner.spec.config.scope() else { return Vec::new() };
        let named = self.stores.runners_named(&runner.name_any());
        if named.len() < 2 {
            return Vec::new();
        }
        let secret = runner.spec.config.credentials_secret();
        let is_there = |other: &Runner, api: Option<&str>| {
            let config = &other.spec.config;
            let same_api = match (api, access) {
                (Some(api), Some(access)) => api == access.github().endpoints().api(),
                // Nobody has called it yet.
                _ => (config.credentials_secret(), secret) == (None, None),
            };
            same_api && config.scope().is_ok_and(|other| other == scope)
        };
        let others = named.into_iter().filter_map(|other| {
            let other_uid = Uid::of(&*other).ok().filter(|other| other != uid)?;
            let api = self.known.get(&other_uid).and_then(|known| known.api);
            is_there(&other, api.as_deref()).then(|| (self.namesake(&other, &other_uid), other))
        });
        others.collect()
    }

    /// A Runner as one of those with its name.
    #[must_use]
    pub fn namesake(&self, runner: &Runner, uid: &Uid) -> Namesake {
        let known = self.known.get(uid).unwrap_or_default();
        let pod = self.stores.pod_of(runner).filter(|pod| is_owned(&pod.metadata, uid));
        // What a job may have written counts for nothing.
        let claimed = known_id(runner).filter(|_| !self.hooked);
        Namesake {
            known_id: known.seen.known_id.or(claimed).or_else(|| pod.as_deref().and_then(|pod| pod.runner_id)),
            has_pod: pod.is_some(),
            ..namesake_of(runner, uid)
        }
    }

    /// Looks at the node of a pod that stopped reporting or does not end: only a node that is gone ends a job without a word from GitHub.
    /// None where there is no reason to ask.
    async fn node_of(
        &self,
        pod: &RunnerPod,
        seen: &Seen,
        runner_list: Option<&RunnerListView>,
        clock: Clock,
    ) -> Option<NodeState> {
        let facts = &pod.facts;
        let late = |deleting| Duration::try_from(clock.now.duration_since(deleting)).unwrap_or_default();
        let overdue = facts.deleting.is_some_and(|deleting| late(deleting) > END_PATIENCE);
        // The node life-cycle controller says nothing of a pod that was not ready before: then GitHub's loss of contact is the only sign.
        let is_out_of_contact = |view: &RunnerListView| {
            let mut seen = seen.clone();
            seen.see_pod(Some(facts), clock.instant);
            seen.is_listed_after(view, CONTACT_PATIENCE, clock.instant)
                && !view.get(&pod.name_any()).is_some_and(|entry| entry.online)
        };
        let out_of_contact = facts.worker == Worker::Running && runner_list.is_some_and(is_out_of_contact);
        let lost = overdue || facts.silent_since.is_some() || out_of_contact;
        let node = facts.node.as_deref().filter(|_| lost)?;
        self.nodes.state(node, clock.instant).await
    }
}

/// One of which nothing is known but its object.
fn namesake_of(runner: &Runner, uid: &Uid) -> Namesake {
    Namesake {
        namespace: runner.namespace().unwrap_or_default(),
        uid: uid.to_string(),
        known_id: None,
        has_pod: false,
        created: runner.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
    }
}

fn known_id(runner: &Runner) -> Option<u64> {
    runner.status.as_ref().and_then(|status| status.runner_id).and_then(|id| u64::try_from(id).ok())
}

/// What the hook writes when a job begins. `Running` alone is also the phase of a pod.
fn reports_job(status: &RunnerStatus) -> bool {
    let run = status.workflow.as_ref().and_then(|workflow| workflow.run_id.as_deref());
    status.phase.as_deref() == Some("Running") && run.is_some_and(|run| !run.is_empty())
}

/// ARC copied the pod's phase into the status, so that a phase tells of a pod that was there. `Created` does not: it is also what a Runner
/// says of itself while the API server refuses its pod.
fn had_pod(status: &RunnerStatus) -> bool {
    status.pod_uid.is_some() || status.phase.as_deref().is_some_and(|phase| !matches!(phase, "" | RunnerStatus::CREATED))
}

/// What a listing is read for.
struct Registration<'a> {
    name: &'a str,
    /// What is listed under its name may be its own. GitHub knows runners by name alone, and a Runner of another namespace, or of another
    /// cluster, may have the same one: whatever never had a pod registered nothing.
    is_own: bool,
    of: Registrant,
    own: &'a Namesake,
    namesakes: &'a [Namesake],
}

impl Seen {
    /// Whether GitHub's id of it is known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.known_id.is_some()
    }

    fn see_pod(&mut self, pod: Option<&PodFacts>, now: Instant) {
        let digest = listing::pod_state(pod);
        if self.pod_state.is_none_or(|state| state.digest != digest) {
            self.pod_state = Some(PodState { digest, since: now });
        }
        self.pod |= pod.is_some();
        self.worked |= pod.is_some_and(|pod| pod.worker == Worker::Running);
    }

    /// Whether a listing was asked for after the runner's pod last changed.
    fn is_fresh(&self, view: &RunnerListView, now: Instant) -> bool {
        self.is_listed_after(view, Duration::ZERO, now)
    }

    /// Whether a listing was asked for when the runner's pod had been the same for so long.
    fn is_listed_after(&self, view: &RunnerListView, patience: Duration, now: Instant) -> bool {
        self.is_after_change(view.listing().fetched_at, patience, now)
    }

    fn is_after_change(&self, asked: tokio::time::Instant, patience: Duration, now: Instant) -> bool {
        let since = self.pod_state.map_or(now, |state| state.since);
        asked.into_std().checked_duration_since(since).is_some_and(|after| !after.is_zero() && after >= patience)
    }

    /// What the newest listing proves.
    fn remote(&mut self, registration: &Registration<'_>, runner_list: Option<&RunnerListView>, now: Instant) -> Remote {
        // An old one proves nothing: GitHub has not answered since, and much may have happened.
        let Some(view) = runner_list.filter(|view| view.is_valid(now.into())) else { return Remote::Unknown };
        let Registration { name, is_own, of, own, namesakes } = registration;
        let lasting = |since: Option<tokio::time::Instant>| {
            since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since.into_std()))
        };
        let is_of_it = |entry: &&RemoteRunner| *is_own && namesake::owns(own, namesakes, entry.id);
        let entry = view.get(name).filter(is_of_it).map(|entry| {
            let presence = view.presence(entry.id);
            Entry {
                id: entry.id,
                online: entry.online,
                busy: entry.busy,
                offline: lasting(presence.and_then(|presence| presence.offline_since)),
                idle: lasting(presence.and_then(|presence| presence.idle_since)),
            }
        });
        if let Some(entry) = entry {
            self.absent_since = None;
            self.listed_busy |= entry.busy;
        }
        let listing = Listing {
            entry,
            complete: view.listing().complete,
            pages: view.listing().pages,
            fresh: self.is_fresh(view, now),
            settled: self.is_listed_after(view, listing::VISIBLE, now),
        };
        listing.proves(of, || {
            let before = view.before(name).map(|(asked, entry)| Before {
                had: entry.filter(is_of_it).is_some(),
                fresh: self.is_after_change(asked, Duration::ZERO, now),
            });
            let first = self.absent_since.filter(|_| before.is_none_or(|before| !before.had));
            let first = *self.absent_since.insert(first.unwrap_or(view.listing().fetched_at.into_std()));
            Lack { since: now.saturating_duration_since(first), again: before.is_some_and(Before::lacked) }
        })
    }
}

#[cfg(test)]
mod tests {
    use pacer_github::Listing;
    use serde_json::json;

    use super::*;

    fn alone<'a>(uid: &'a Uid, known: &'a Known) -> Sources<'a> {
        Sources {
            uid,
            pod: None,
            node: None,
            runner_list: None,
            set: None,
            hooked: false,
            job: None,
            removed: Removed::default(),
            namesakes: &[],
            known,
        }
    }

    #[test]
    fn only_a_run_makes_the_phase_running_a_job() {
        let status = |value| serde_json::from_value::<RunnerStatus>(value).unwrap();
        for (value, expected) in [
            (json!({"phase": "Running"}), false),
            (json!({"phase": "Running", "workflow": {"runID": ""}}), false),
            (json!({"phase": "Idle", "workflow": {"runID": "7"}}), false),
            (json!({"phase": "Running", "message": "Run 7 from a/b", "workflow": {"runID": "7"}}), true),
        ] {
            assert_eq!(reports_job(&status(value.clone())), expected, "{value}");
        }
    }

    #[test]
    fn an_id_that_a_job_may_have_written_is_no_address() {
        let mut runner = Runner::new("r", pacer_api::RunnerSpec::default());
        runner.metadata.uid = Some("u".to_owned());
        runner.status = Some(serde_json::from_value(json!({"runnerId": 7, "podUid": "p"})).unwrap());
        for hooked in [false, true] {
            let (known, uid) = (Known::default(), Uid::of(&runner).unwrap());
            let sources = Sources { hooked, ..alone(&uid, &known) };
            let facts = super::runner(&runner, sources, Clock::read()).facts;
            assert_eq!((facts.known_id, facts.was_registered()), ((!hooked).then_some(7), true), "hooked {hooked}");
        }
    }

    #[test]
    fn what_is_listed_under_the_name_of_a_runner_that_never_had_a_pod_is_not_its_own() {
        let (labels, os) = (Arc::from([]), Arc::from("linux"));
        let listed = RemoteRunner { id: 7, name: Arc::from("r"), online: true, busy: false, labels, os };
        let listing = Listing {
            fetched_at: tokio::time::Instant::now(),
            started: Timestamp::now(),
            took: Duration::ZERO,
            runners: Arc::from([listed]),
            changed: true,
            complete: true,
            pages: 1,
            paid: 1,
        };
        let view = RunnerListView::new(listing, Duration::from_secs(120));
        for (what, status, expected) in [
            ("new", json!(null), None),
            ("refused", json!({"phase": "Created"}), None),
            ("had a pod", json!({"podUid": "p"}), Some(7)),
            ("registered", json!({"runnerId": 7}), Some(7)),
            ("of ARC", json!({"phase": "Running"}), Some(7)),
        ] {
            let mut runner = Runner::new("r", pacer_api::RunnerSpec::default());
            runner.metadata.uid = Some("u".to_owned());
            runner.status = serde_json::from_value(status).unwrap();
            let (known, uid) = (Known::default(), Uid::of(&runner).unwrap());
            let sources = Sources { runner_list: Some(&view), ..alone(&uid, &known) };
            assert_eq!(super::runner(&runner, sources, Clock::read()).facts.remote.id(), expected, "{what}");
        }
    }
}
