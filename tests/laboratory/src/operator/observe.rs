//! From objects, listings and memory to facts: `host/operator/src/observe.rs`.

use std::time::Duration;

use pacer_core::facts::{PodFacts, Remote, RunnerFacts, Worker};
use pacer_core::last_job::LastJob;
use pacer_core::listing::{self, Before, Entry, Lack, Listing, Registrant};
use pacer_core::stop::PodDeletion;

use super::Operator;
use crate::clock::{At, Clock, elapsed, moment, wall};
use crate::object::{Pod, Runner, RunnerId, name_of};
use crate::outside::Outside;
use crate::rules::Rules;

/// Creations that the watch does not show after this are taken for failed.
pub(super) const IN_FLIGHT: Duration = Duration::from_secs(30);

/// What the process knows about a runner that no object says: `Known`, `Seen` and `Removed`.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pod: bool,
    /// The state of its pod, and since when.
    pod_state: Option<(u64, At)>,
    pub(super) known_id: Option<u64>,
    absent_since: Option<At>,
    worked: bool,
    /// A listing had it busy.
    listed_busy: bool,
    node_gone: bool,
    last_job: LastJob,
    /// When its pod was made, until it was seen.
    pub(super) sent: Option<At>,
    /// Nobody answered when it was made.
    pub(super) unanswered: bool,
    pub(super) unregistered: Option<At>,
    pub(super) refused_busy: Option<At>,
    pub(super) deleted: Option<At>,
    /// The pod's version at which it was deleted last, and how.
    pub(super) pod_deleted: Option<(String, PodDeletion)>,
}

/// A runner's facts, and what comes with them.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub(super) facts: RunnerFacts,
    pub(super) pod_in_flight: bool,
    pub(super) refused_busy: Option<Duration>,
    pub(super) waited: Duration,
}

impl Operator {
    /// Whether the newest listing was asked for after the runner's pod last changed.
    fn is_fresh(&self, known: &Known, now: At) -> bool {
        let fetched = self.lister.view.as_ref().map_or(0, |view| view.fetched);
        self.rules.is_fresh(fetched > known.pod_state.map_or(now, |(_, since)| since))
    }

    /// What the newest listing proves.
    fn remote(&self, known: &mut Known, id: RunnerId, of: &Registrant, now: At) -> Remote {
        let Some(view) = self.lister.view.as_ref().filter(|view| view.is_valid(now)) else { return Remote::Unknown };
        let lasting = |since: Option<At>| since.map_or(Duration::ZERO, |since| elapsed(since, now));
        let entry = view.listed.get(&id).map(|entry| {
            let presence = view.presence.get(&entry.id).copied().unwrap_or_default();
            let (offline, idle) = (lasting(presence.offline_since), lasting(presence.idle_since));
            Entry { id: entry.id, online: entry.online, busy: entry.busy, offline, idle }
        });
        if let Some(entry) = entry {
            known.absent_since = None;
            known.listed_busy |= entry.busy;
        }
        let changed = known.pod_state.map_or(0, |(_, since)| since);
        let listing = Listing {
            entry,
            complete: self.rules.proves_absence(view.complete),
            pages: self.rules.pages(view.pages),
            fresh: self.is_fresh(known, now),
            settled: self.rules.is_fresh(elapsed(changed, view.fetched) >= listing::VISIBLE),
        };
        listing.proves(of, || {
            let before = view.before.as_ref();
            let before =
                before.map(|(asked, listed)| Before { had: listed.contains(&id), fresh: self.rules.is_fresh(*asked > changed) });
            let first = known.absent_since.filter(|_| before.is_none_or(|before| !before.had));
            let first = *known.absent_since.insert(first.unwrap_or(view.fetched));
            Lack { since: elapsed(first, now), again: before.is_some_and(Before::lacked) }
        })
    }

    /// Looks at the node of a pod that seems lost. Returns whether it is gone, and since when it is silent.
    fn node_of(&self, outside: &Outside, id: RunnerId, pod: &Pod, facts: &PodFacts) -> Option<(bool, Option<At>)> {
        let now = outside.clock.at;
        let overdue = pod.deleting.is_some_and(|deleting| now > deleting);
        let listed = self.lister.view.as_ref();
        let out_of_contact =
            facts.worker == Worker::Running && listed.is_some_and(|view| !view.listed.get(&id).is_some_and(|entry| entry.online));
        if !(overdue || pod.silent.is_some() || out_of_contact) {
            return None;
        }
        let node = outside.nodes.get(pod.node? as usize)?;
        let silent = node.lost.or(node.silent).map(|since| since + 40_000).filter(|since| *since <= now);
        Some((node.gone, silent))
    }

    /// Observes a runner, and records what that shows.
    pub(super) fn observe(&mut self, outside: &Outside, id: RunnerId, object: &Runner) -> Observed {
        let Clock { at, now, .. } = outside.clock;
        let mut known = self.known.remove(&id).unwrap_or_default();
        let pod = outside.pods.seen(id);
        let node = pod.and_then(|pod| self.node_of(outside, id, pod, &pod.facts(false)));
        known.node_gone = node.map_or(known.node_gone, |(gone, _)| gone);
        let mut facts = pod.map(|pod| pod.facts(known.node_gone));
        if let (Some(facts), Some((false, Some(since)))) = (&mut facts, node) {
            facts.worker = Worker::Unknown;
            facts.silent_since.get_or_insert(wall(since));
        }
        let job = self.jobs.get(&id).cloned();
        let seen = listing::pod_state(facts.as_ref());
        if known.pod_state.is_none_or(|(before, _)| before != seen) {
            known.pod_state = Some((seen, at));
        }
        known.pod |= facts.is_some();
        known.worked |= facts.as_ref().is_some_and(|pod| pod.worker == Worker::Running);
        let unlisted_since = !self.is_fresh(&known, at);
        known.known_id = known.known_id.or(object.known_id);
        let refused_busy = known.refused_busy.map(|since| elapsed(since, at));
        let of = Registrant { had_pod: known.pod, registered: known.known_id.is_some(), awaited: false, refused_busy };
        let remote = self.remote(&mut known, id, &of, at);
        if let Some(ended) = job.as_ref().and_then(|job| job.ended) {
            known.last_job.told(ended);
        }
        if let Remote::Online { flag, .. } = remote
            && !unlisted_since
        {
            known.last_job.listed(flag.idle(), now);
        }
        known.known_id = remote.id().filter(|_| Rules::is_listed(remote)).or(known.known_id);
        if facts.is_some() {
            (known.sent, known.unanswered) = (None, false);
        }
        let waiting = known.pod_state.map(|(_, since)| elapsed(since, at));
        let deleting = object.deleting.or(known.deleted);
        let waited = waiting.into_iter().chain(deleting.map(|since| elapsed(since, at))).min().unwrap_or_default();
        let facts = RunnerFacts {
            name: name_of(id),
            uid: name_of(id),
            created: wall(object.created),
            // Templates belong to sets here.
            current: true,
            ephemeral: outside.setting.ephemeral,
            deleting: deleting.map(wall),
            known_id: known.known_id,
            had_pod: known.pod || object.had_pod,
            pod: facts,
            remote,
            unlisted_since,
            scope_barely_listed: self.lister.view.as_ref().is_none_or(super::listing::View::is_young),
            last_job_end: known.last_job.end(),
            reports_job: job.as_ref().and_then(|job| job.working),
            job_over: job.as_ref().filter(|job| job.working.is_none()).and_then(|job| job.ended),
            worked: job.is_some() || object.known_id.is_some() || known.worked,
            had_job: job.is_some() || known.worked || known.listed_busy,
            unregistered: known.unregistered.map(|since| elapsed(since, at)),
            ..RunnerFacts::default()
        };
        let pod_in_flight = known.sent.is_some_and(|sent| elapsed(sent, at) < IN_FLIGHT);
        self.known.insert(id, known);
        Observed { facts: self.rules.facts(facts), pod_in_flight, refused_busy, waited }
    }

    /// How long ago a moment of the wall clock was, in seconds.
    pub(super) fn seconds_since(then: jiff::Timestamp, now: At) -> u64 {
        now.saturating_sub(moment(then)) / 1_000
    }
}
