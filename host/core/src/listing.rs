//! What a listing of GitHub's runners proves of one of them.
//!
//! A listing tells of the moment at which it was asked for, GitHub's flags are late, and its pages are of different moments: a runner that leaves while
//! they are read moves the others up, so that one is left out, and where another one comes, the number of all is right (github-behaviour 5.11). So
//! a listing counts for what it proves. An entry proves presence. The lack of one proves absence in a single page that is newer than the runner's last
//! change, or in two consecutive listings that are.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;
use std::time::Duration;

use crate::facts::{Flag, PodFacts, Remote, Worker};
use crate::stop::BUSY_RETRY;

/// How long a registration may be missing from listings. They show it up to two seconds after it was made (github-behaviour 5.2), so that a runner
/// whose pod ended just after may be missing from one.
pub const VISIBLE: Duration = Duration::from_secs(3);

/// A runner as a listing, and those before it, have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// GitHub's id.
    pub id: u64,
    /// Its agent is connected.
    pub online: bool,
    /// It runs a job, says GitHub.
    pub busy: bool,
    /// For how long every listing had it offline.
    pub offline: Duration,
    /// For how long every listing had it online without a job.
    pub idle: Duration,
}

/// The newest listing, as far as one runner is concerned. GitHub has not stopped to answer since; where it has, nothing is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The runner's entry; none where the listing lacks the runner.
    pub entry: Option<Entry>,
    /// Its pages fit together, as far as their numbers tell, and none is missing.
    pub complete: bool,
    /// How many pages it has.
    pub pages: u32,
    /// It was asked for after the runner's pod changed last.
    pub fresh: bool,
    /// It was asked for [`VISIBLE`] after the runner's pod changed last.
    pub settled: bool,
}

/// That listings lack a runner, in one series up to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    /// Since the first of them that was looked at for this runner.
    pub since: Duration,
    /// The listing just before the newest lacks it as well, and is newer than the runner's last change. One that was looked at earlier does not
    /// count: listings that came between may have had the runner.
    pub again: bool,
}

/// The listing just before the newest, as far as one runner is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// It has the runner.
    pub had: bool,
    /// It was asked for after the runner's pod changed last.
    pub fresh: bool,
}

impl Before {
    /// Whether the newest listing, which lacks the runner, is the second in a row that does.
    #[must_use]
    pub fn lacked(self) -> bool {
        self.fresh && !self.had
    }
}

/// What is known of a runner when a listing is read for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registrant {
    /// It has, or had, a pod.
    pub had_pod: bool,
    /// It is known to have registered.
    pub registered: bool,
    /// It was registered ahead of its agent (just in time), and the agent has not been seen.
    pub awaited: bool,
    /// How long ago GitHub refused its removal because it runs a job.
    pub refused_busy: Option<Duration>,
}

/// A number for the state of a pod that a listing has to be newer than, to tell of the runner in it: the same for the same state in one process.
#[must_use]
pub fn pod_state(pod: Option<&PodFacts>) -> u64 {
    let mut hasher = DefaultHasher::new();
    if let Some(pod) = pod {
        pod.uid.hash(&mut hasher);
        discriminant(&pod.phase).hash(&mut hasher);
        discriminant(&pod.container).hash(&mut hasher);
        (pod.worker == Worker::Running).hash(&mut hasher);
        pod.deleting.is_some().hash(&mut hasher);
    }
    hasher.finish()
}

impl Listing {
    /// What it proves of a runner. `lack` takes note that this listing lacks it, and is asked only where that means something.
    #[must_use]
    pub fn proves(&self, of: &Registrant, lack: impl FnOnce() -> Lack) -> Remote {
        let Some(entry) = self.entry else {
            let may_be_registered = of.had_pod || of.registered;
            // One that was never listed may be about to be.
            let may_appear = of.had_pod && (!of.registered || of.awaited) && !self.settled;
            if may_appear || (may_be_registered && !self.fresh) {
                return Remote::Unknown;
            }
            let lack = lack();
            let proved = lack.again || (self.complete && (self.pages <= 1 || !may_be_registered));
            return if proved { Remote::Absent { since: lack.since } } else { Remote::Unknown };
        };
        if !entry.online {
            return Remote::Offline { id: entry.id, busy: entry.busy, since: entry.offline };
        }
        // A removal that was refused for a job which the listing does not show yet is GitHub's word too. The flag may be a minute late, and a
        // scale-down that trusted it would ask for the same busy runners again and again.
        let refused = of.refused_busy.is_some_and(|ago| ago < BUSY_RETRY);
        let flag = match entry.busy || refused {
            false if !self.fresh => Flag::Stale,
            busy => Flag::of(busy, entry.idle),
        };
        Remote::Online { id: entry.id, flag }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::facts::{Container, PodPhase};

    #[test]
    fn state_of_a_pod_changes_with_what_may_change_its_registration_and_with_nothing_else() {
        let pod = PodFacts { uid: Some("a".to_owned()), ..PodFacts::default() };
        let same = PodFacts { resource_version: "2".to_owned(), node: Some("n".to_owned()), ..pod.clone() };
        let started = Container::Running { since: None };
        let others = [
            None,
            Some(PodFacts { uid: Some("b".to_owned()), ..pod.clone() }),
            Some(PodFacts { phase: PodPhase::Running, ..pod.clone() }),
            Some(PodFacts { container: started, ..pod.clone() }),
            Some(PodFacts { worker: Worker::Running, ..pod.clone() }),
            Some(PodFacts { deleting: Some(Timestamp::UNIX_EPOCH), ..pod.clone() }),
        ];
        assert_eq!(pod_state(Some(&pod)), pod_state(Some(&same)));
        for other in others {
            assert_ne!(pod_state(Some(&pod)), pod_state(other.as_ref()), "{other:?}");
        }
    }

    const FOR: Duration = Duration::from_secs(7);

    fn lacking(complete: bool, fresh: bool, settled: bool) -> Listing {
        Listing { entry: None, complete, pages: 1, fresh, settled }
    }

    fn first() -> Lack {
        Lack { since: FOR, again: false }
    }

    fn with(online: bool, busy: bool, fresh: bool) -> Listing {
        let entry = Entry { id: 3, online, busy, offline: Duration::from_secs(2), idle: Duration::from_secs(4) };
        // A torn listing: presence is proved by one as well.
        Listing { entry: Some(entry), complete: false, pages: 2, fresh, settled: fresh }
    }

    #[test]
    fn absence_is_proved_by_complete_listings_that_are_newer_than_the_last_change() {
        let new = Registrant::default();
        let started = Registrant { had_pod: true, ..new };
        let registered = Registrant { had_pod: true, registered: true, ..new };
        let awaited = Registrant { awaited: true, ..registered };
        let podless = Registrant { registered: true, ..new };
        let absent = Remote::Absent { since: FOR };
        for (case, listing, of, expected) in [
            ("torn", lacking(false, true, true), registered, Remote::Unknown),
            ("never had a pod", lacking(true, false, false), new, absent),
            ("older than the last change", lacking(true, false, false), registered, Remote::Unknown),
            ("registered, without a pod, older", lacking(true, false, false), podless, Remote::Unknown),
            ("registered", lacking(true, true, false), registered, absent),
            ("not registered as far as is known, just after the change", lacking(true, true, false), started, Remote::Unknown),
            ("not registered as far as is known, later", lacking(true, true, true), started, absent),
            ("agent not seen, just after the change", lacking(true, true, false), awaited, Remote::Unknown),
            ("agent not seen, later", lacking(true, true, true), awaited, absent),
        ] {
            assert_eq!(listing.proves(&of, first), expected, "{case}");
        }
    }

    #[test]
    fn several_pages_prove_absence_when_two_listings_lack_the_runner() {
        let of = Registrant { had_pod: true, registered: true, ..Registrant::default() };
        let again = || Lack { again: true, ..first() };
        for complete in [false, true] {
            let pages = Listing { pages: 2, ..lacking(complete, true, true) };
            assert_eq!(pages.proves(&of, first), Remote::Unknown, "complete: {complete}");
            assert_eq!(pages.proves(&of, again), Remote::Absent { since: FOR }, "complete: {complete}");
        }
        let older = Listing { pages: 2, ..lacking(true, false, false) };
        assert_eq!(older.proves(&of, || unreachable!("nothing is noted of a listing that proves nothing")), Remote::Unknown);
        // It can't have registered.
        let pages = Listing { pages: 2, ..lacking(true, false, false) };
        assert_eq!(pages.proves(&Registrant::default(), first), Remote::Absent { since: FOR });
    }

    #[test]
    fn online_runner_is_idle_only_where_a_newer_listing_says_so_and_no_removal_was_just_refused() {
        let of = Registrant { had_pod: true, registered: true, ..Registrant::default() };
        let refused = |ago| Registrant { refused_busy: Some(ago), ..of };
        let idle = Flag::Idle(Duration::from_secs(4));
        for (case, listing, of, flag) in [
            ("idle", with(true, false, true), of, idle),
            ("busy", with(true, true, true), of, Flag::Busy),
            ("busy before the pod changed", with(true, true, false), of, Flag::Busy),
            ("idle before the pod changed", with(true, false, false), of, Flag::Stale),
            ("refused just now", with(true, false, true), refused(Duration::ZERO), Flag::Busy),
            ("refused just now, before the pod changed", with(true, false, false), refused(Duration::ZERO), Flag::Busy),
            ("refused long ago", with(true, false, true), refused(BUSY_RETRY), idle),
        ] {
            let expected = Remote::Online { id: 3, flag };
            assert_eq!(listing.proves(&of, || unreachable!()), expected, "{case}");
        }
    }

    #[test]
    fn offline_runner_is_busy_as_listed() {
        for busy in [false, true] {
            let expected = Remote::Offline { id: 3, busy, since: Duration::from_secs(2) };
            assert_eq!(with(false, busy, false).proves(&Registrant::default(), || unreachable!()), expected);
        }
    }
}
