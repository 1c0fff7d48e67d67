//! Why a job waits: one cause, the first thing that would have to change for the job to start.
//!
//! A pure function of what the API server shows: the pool that takes the job, its autoscaler's last word, its runners and what their pods
//! say. Jobs of a pool are served in the order in which they were queued, as GitHub does for runners with the same labels; so the first of
//! the runners that are there belong to the jobs before this one.

use std::fmt;

use jiff::Timestamp;

/// A job in the queue of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// When it was queued.
    pub at: Timestamp,
    /// Its place among the jobs that wait for the same pool, from 1.
    pub place: u32,
}

/// What keeps an autoscaler's number lower than what is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Brake {
    /// Nothing keeps it lower.
    #[default]
    None,
    /// `maxReplicas`.
    Maximum,
    /// The ceiling of the capacity policy.
    Ceiling,
    /// The limit on new runners per minute.
    Ramp,
    /// A scheduled override gives the number.
    Schedule,
    /// What GitHub is asked for can't be read.
    Blind,
    /// It can't decide at all.
    Unable,
}

/// The last word of a pool's autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Autoscaler {
    /// What holds its number.
    pub brake: Brake,
    /// In its own words.
    pub message: String,
    /// Since when it says so.
    pub since: Option<Timestamp>,
}

/// Where a runner stands; the nearest to a job comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// GitHub has contact with it, and nothing says that it works.
    Idle,
    /// Its container runs, and GitHub does not list it yet.
    Registering,
    /// Its container is about to start.
    Starting,
    /// Its image can't be pulled, or is not there yet.
    Image(String),
    /// No node takes its pod.
    Unschedulable(String),
    /// Its pod is refused: a quota, admission, or the pod itself.
    Refused(String),
    /// It has no pod yet.
    Created,
    /// It runs a job.
    Busy,
    /// It failed to start, and is replaced after a pause.
    Failed,
    /// It is set aside for people to look at.
    Quarantined(String),
    /// It is on its way out.
    Leaving,
}

/// One runner of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    /// Name of the Runner object.
    pub name: String,
    /// How near the runner is to taking a job, or why it takes none.
    pub standing: Standing,
    /// Since when it stands there; none where that is not known.
    pub since: Option<Timestamp>,
}

/// The pool that takes the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Runners that are wanted.
    pub wanted: u32,
    /// None where people set the number.
    pub autoscaler: Option<Autoscaler>,
    /// Runners that exist for the pool.
    pub runners: Vec<Runner>,
    /// When the first of the places of runners that failed to start is filled again, and how many failed in a row.
    pub backoff: Option<(Timestamp, u32)>,
    /// Why GitHub can't be used for it, and since when: credentials, rate limit, outage.
    pub github: Option<(String, Option<Timestamp>)>,
    /// Why the API server lets no more runners be made for it, and since when.
    pub refused: Option<(String, Option<Timestamp>)>,
}

/// Why no pool takes a job; names of pools and labels are for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmatched {
    /// No runners are where the repository's jobs may run.
    Reach,
    /// Some are, and lack labels.
    Labels {
        /// The pool that lacks the fewest.
        nearest: String,
        /// Labels that the job asks for and that pool lacks.
        missing: Vec<String>,
    },
    /// Some have the labels, in a group that the repository may not use.
    Group {
        /// The pool that would have been chosen.
        nearest: String,
    },
}

/// What a job waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No autoscaler takes it.
    NoPool(Unmatched),
    /// What its autoscaler is to scale does not exist.
    NoTarget,
    /// The autoscaler can't decide.
    AutoscalerUnable(String),
    /// What GitHub is asked for can't be read, so that the number is not raised.
    MetricUnavailable(String),
    /// GitHub can't be used for the pool.
    GitHubUnavailable(String),
    /// The API server refuses new Runners, or a new RunnerReplicaSet.
    CreationRefused(String),
    /// `maxReplicas` limits the number of runners; the text is the autoscaler's message.
    MaximumReached(String),
    /// The ceiling of the capacity policy.
    PolicyCeiling(String),
    /// The limit on new runners per minute.
    RampLimit(String),
    /// The number is that of a scheduled override.
    ScheduledWindow(String),
    /// People set the number, and all runners are taken.
    FixedNumber(u32),
    /// The autoscaler has not counted it in yet.
    NotCountedYet(String),
    /// All runners are taken, and no more are wanted.
    RunnersTaken(u32),
    /// Runners failed to start in a row, and a place of theirs, which the job needs, is filled again later.
    Backoff {
        /// When the first one is at the latest: a runner that comes online ends the back-off.
        until: Timestamp,
        /// How many runners failed to start in a row.
        attempts: u32,
    },
    /// Places of the pool are held by runners that are set aside.
    Quarantined(Vec<String>),
    /// A runner is about to be made.
    RunnerComing,
    /// Its runner's pod is refused.
    PodRefused(String, String),
    /// No node takes its runner's pod.
    PodPending(String, String),
    /// Its runner's image is not there.
    ImagePull(String, String),
    /// Its runner's container is about to start.
    PodStarting(String),
    /// Its runner has not registered yet.
    Registration(String),
    /// A runner is idle: GitHub has to give it the job.
    Assignment(String),
}

/// A cause, and since when it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// What the job waits for.
    pub cause: Cause,
    /// Since when it is that; the job's queueing where nothing later is known.
    pub since: Timestamp,
}

/// Why jobs wait that one autoscaler takes. A pool may have thousands of both: its runners are put in order once.
#[derive(Clone, Debug)]
pub struct PoolQueue<'a> {
    pool: Option<&'a Pool>,
    /// Runners that are on their way to a job, the nearest first.
    coming: Vec<&'a Runner>,
}

impl<'a> PoolQueue<'a> {
    /// The jobs that wait for this pool, the autoscaler's target, if that exists.
    #[must_use]
    pub fn of(pool: Option<&'a Pool>) -> Self {
        let runners = pool.map(|pool| pool.runners.as_slice()).unwrap_or_default();
        let mut coming: Vec<&Runner> = runners.iter().filter(|runner| runner.standing < Standing::Busy).collect();
        coming.sort_by(|one, other| (&one.standing, &one.name).cmp(&(&other.standing, &other.name)));
        Self { pool, coming }
    }

    /// Why this job waits.
    #[must_use]
    pub fn waits(&self, job: Queued) -> Waits {
        let Some(pool) = self.pool else { return Waits { cause: Cause::NoTarget, since: job.at } };
        let since = |since: Option<Timestamp>| since.map_or(job.at, |since| since.max(job.at));
        if let Some(runner) = usize::try_from(job.place.saturating_sub(1)).ok().and_then(|place| self.coming.get(place)) {
            // A pool that GitHub does not serve registers nobody.
            let stuck = pool.github.as_ref().filter(|_| runner.standing != Standing::Idle);
            return match stuck {
                Some((message, at)) => Waits { cause: Cause::GitHubUnavailable(message.clone()), since: since(*at) },
                None => Waits { cause: on_its_way(runner), since: since(runner.since) },
            };
        }
        let (cause, at) = lacks(job, pool, u32::try_from(self.coming.len()).unwrap_or(u32::MAX));
        Waits { cause, since: since(at) }
    }
}

/// What the runner that is to take the job waits for.
fn on_its_way(runner: &Runner) -> Cause {
    let name = runner.name.clone();
    match &runner.standing {
        Standing::Idle => Cause::Assignment(name),
        Standing::Registering => Cause::Registration(name),
        Standing::Image(message) => Cause::ImagePull(name, message.clone()),
        Standing::Unschedulable(message) => Cause::PodPending(name, message.clone()),
        Standing::Refused(message) => Cause::PodRefused(name, message.clone()),
        Standing::Starting
        | Standing::Created
        | Standing::Busy
        | Standing::Failed
        | Standing::Quarantined(_)
        | Standing::Leaving => Cause::PodStarting(name),
    }
}

/// Why there is no runner for the job.
fn lacks(job: Queued, pool: &Pool, coming: u32) -> (Cause, Option<Timestamp>) {
    let busy = pool.runners.iter().filter(|runner| runner.standing == Standing::Busy).count();
    let busy = u32::try_from(busy).unwrap_or(u32::MAX);
    let set_aside: Vec<&Runner> =
        pool.runners.iter().filter(|runner| matches!(runner.standing, Standing::Quarantined(_))).collect();
    let held = u32::try_from(set_aside.len()).unwrap_or(u32::MAX);
    let there = busy.saturating_add(coming);
    // Runners that are wanted and not there come first: the number is not what keeps the job.
    let needed = there.saturating_add(job.place.saturating_sub(coming));
    if pool.wanted > there {
        if let Some((message, at)) = &pool.github {
            return (Cause::GitHubUnavailable(message.clone()), *at);
        }
        if let Some((message, at)) = &pool.refused {
            return (Cause::CreationRefused(message.clone()), *at);
        }
        // Other places are filled at once, for those that wait longer.
        let failed = pool.runners.iter().filter(|runner| runner.standing == Standing::Failed).count();
        let at_once = pool.wanted.saturating_sub(there).saturating_sub(u32::try_from(failed).unwrap_or(u32::MAX));
        if let Some((until, attempts)) = pool.backoff.filter(|_| job.place.saturating_sub(coming) > at_once) {
            return (Cause::Backoff { until, attempts }, None);
        }
        if pool.wanted <= there.saturating_add(held) {
            let names = set_aside.iter().map(|runner| runner.name.clone()).collect();
            return (Cause::Quarantined(names), set_aside.iter().filter_map(|runner| runner.since).max());
        }
        if pool.wanted >= needed {
            return (Cause::RunnerComing, None);
        }
    }
    let Some(Autoscaler { brake, message, since }) = &pool.autoscaler else {
        return (Cause::FixedNumber(pool.wanted), None);
    };
    let message = message.clone();
    let cause = match brake {
        Brake::Unable => Cause::AutoscalerUnable(message),
        Brake::Blind => Cause::MetricUnavailable(message),
        Brake::Maximum => Cause::MaximumReached(message),
        Brake::Ceiling => Cause::PolicyCeiling(message),
        Brake::Ramp => Cause::RampLimit(message),
        Brake::Schedule => Cause::ScheduledWindow(message),
        Brake::None if pool.wanted > there => Cause::RunnerComing,
        Brake::None if busy >= pool.wanted && busy > 0 => return (Cause::RunnersTaken(busy), None),
        Brake::None => return (Cause::NotCountedYet(message), None),
    };
    (cause, *since)
}

/// So many runners, one after the other.
#[must_use]
pub fn in_a_row(runners: u32) -> String {
    if runners == 1 { "1 runner".to_owned() } else { format!("{runners} runners in a row") }
}

impl Cause {
    /// One CamelCase word, for scripts.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::NoPool(Unmatched::Reach) => "NoRunnersForRepository",
            Self::NoPool(Unmatched::Labels { .. }) => "LabelsMissing",
            Self::NoPool(Unmatched::Group { .. }) => "RunnerGroupClosed",
            Self::NoTarget => "NoTarget",
            Self::AutoscalerUnable(_) => "AutoscalerUnable",
            Self::MetricUnavailable(_) => "MetricUnavailable",
            Self::GitHubUnavailable(_) => "GitHubUnavailable",
            Self::CreationRefused(_) => "CreationRefused",
            Self::MaximumReached(_) => "MaximumReached",
            Self::PolicyCeiling(_) => "PolicyCeiling",
            Self::RampLimit(_) => "RampLimit",
            Self::ScheduledWindow(_) => "ScheduledWindow",
            Self::FixedNumber(_) => "FixedNumber",
            Self::NotCountedYet(_) => "NotCountedYet",
            Self::RunnersTaken(_) => "RunnersTaken",
            Self::Backoff { .. } => "Backoff",
            Self::Quarantined(_) => "Quarantined",
            Self::RunnerComing => "RunnerComing",
            Self::PodRefused(..) => "PodRefused",
            Self::PodPending(..) => "PodPending",
            Self::ImagePull(..) => "ImagePull",
            Self::PodStarting(_) => "PodStarting",
            Self::Registration(_) => "Registration",
            Self::Assignment(_) => "Assignment",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPool(Unmatched::Reach) => {
                f.write_str("no autoscaler with a workflowJob trigger has runners where jobs of this repository may run")
            }
            Self::NoPool(Unmatched::Labels { nearest, missing }) => {
                let label = if missing.len() == 1 { "label" } else { "labels" };
                write!(
                    f,
                    "no autoscaler's runners have all of its labels: {nearest} comes closest and lacks the {label} {}",
                    missing.join(", ")
                )
            }
            Self::NoPool(Unmatched::Group { nearest }) => {
                write!(f, "the runners of {nearest} have its labels, in a runner group that the repository may not use")
            }
            Self::NoTarget => f.write_str("what its autoscaler is to scale does not exist"),
            Self::AutoscalerUnable(message) => write!(f, "the autoscaler can't decide: {message}"),
            Self::MetricUnavailable(message) => write!(f, "GitHub does not tell the autoscaler what it needs to know: {message}"),
            Self::GitHubUnavailable(message) => write!(f, "GitHub can't be used for the pool: {message}"),
            Self::CreationRefused(message) => write!(f, "no runner can be made for it: {message}"),
            Self::MaximumReached(message) => write!(f, "the maximum is reached: {message}"),
            Self::PolicyCeiling(message) => write!(f, "the capacity policy allows no more: {message}"),
            Self::RampLimit(message) => write!(f, "no more runners may be made at once: {message}"),
            Self::ScheduledWindow(message) => write!(f, "a scheduled override sets the number: {message}"),
            Self::FixedNumber(0) => f.write_str("no runner is wanted: spec.replicas is 0, and no autoscaler sets it"),
            Self::FixedNumber(wanted) => {
                write!(f, "all runners are taken, and the number is fixed at {wanted}: no autoscaler sets spec.replicas")
            }
            Self::NotCountedYet(message) => write!(f, "the autoscaler has not counted it in: {message}"),
            Self::RunnersTaken(1) => f.write_str("the only runner is taken by another job, and no more are wanted"),
            Self::RunnersTaken(busy) => write!(f, "all {busy} runners are taken by other jobs, and no more are wanted"),
            Self::Backoff { until, attempts } => {
                write!(f, "{} failed to start: a place is filled again by {}", in_a_row(*attempts), until.strftime("%H:%M:%SZ"))
            }
            Self::Quarantined(names) => {
                write!(
                    f,
                    "its place is held by what is set aside for people to look at: delete {} when you have",
                    names.join(", ")
                )
            }
            Self::RunnerComing => f.write_str("a runner for it is about to be made"),
            Self::PodRefused(runner, message) => write!(f, "the pod of runner {runner} is refused: {message}"),
            Self::PodPending(runner, message) => write!(f, "no node takes the pod of runner {runner}: {message}"),
            Self::ImagePull(runner, message) => write!(f, "the image of runner {runner} is not there: {message}"),
            Self::PodStarting(runner) => write!(f, "the pod of runner {runner} is starting"),
            Self::Registration(runner) => write!(f, "runner {runner} has started and has not registered at GitHub yet"),
            Self::Assignment(runner) => write!(f, "runner {runner} is online and idle: GitHub has to give it the job"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn runner(name: &str, standing: Standing, since: i64) -> Runner {
        Runner { name: name.to_owned(), standing, since: Some(at(since)) }
    }

    fn pool(wanted: u32, brake: Brake, standings: &[Standing]) -> Pool {
        let runners = standings.iter().zip(0_i64..).map(|(standing, n)| runner(&format!("web-{n}"), standing.clone(), 10 + n));
        let autoscaler = Autoscaler { brake, message: "in its words".to_owned(), since: Some(at(5)) };
        Pool { wanted, autoscaler: Some(autoscaler), runners: runners.collect(), ..Pool::default() }
    }

    fn said(place: u32, pool: &Pool) -> (&'static str, String, i64) {
        let Waits { cause, since } = PoolQueue::of(Some(pool)).waits(Queued { at: at(0), place });
        (cause.word(), cause.to_string(), since.duration_since(at(0)).as_secs())
    }

    #[test]
    fn each_cause_is_told_by_what_would_have_to_change() {
        use Standing::{Busy, Created, Idle, Image, Leaving, Quarantined, Refused, Registering, Starting, Unschedulable};
        let text = || "0/3 nodes are available".to_owned();
        for (pool, place, word, part, since) in [
            (pool(1, Brake::None, &[Idle]), 1, "Assignment", "web-0 is online and idle", 10),
            (pool(1, Brake::None, &[Registering]), 1, "Registration", "web-0 has started and has not registered", 10),
            (pool(1, Brake::None, &[Starting]), 1, "PodStarting", "pod of runner web-0 is starting", 10),
            (pool(1, Brake::None, &[Created]), 1, "PodStarting", "web-0", 10),
            (pool(1, Brake::None, &[Image(text())]), 1, "ImagePull", "image of runner web-0 is not there: 0/3", 10),
            (pool(1, Brake::None, &[Unschedulable(text())]), 1, "PodPending", "no node takes the pod of runner web-0: 0/3", 10),
            (pool(1, Brake::None, &[Refused(text())]), 1, "PodRefused", "web-0 is refused: 0/3", 10),
            // The furthest of those that come belongs to the first in the queue.
            (pool(2, Brake::None, &[Unschedulable(text()), Registering]), 1, "Registration", "web-1", 11),
            (pool(2, Brake::None, &[Unschedulable(text()), Registering]), 2, "PodPending", "web-0", 10),
            (pool(2, Brake::Maximum, &[Busy, Idle]), 2, "MaximumReached", "the maximum is reached: in its words", 5),
            (pool(2, Brake::Ceiling, &[Busy, Busy]), 1, "PolicyCeiling", "in its words", 5),
            (pool(2, Brake::Ramp, &[Busy, Busy]), 1, "RampLimit", "in its words", 5),
            (pool(0, Brake::Schedule, &[]), 1, "ScheduledWindow", "in its words", 5),
            (pool(0, Brake::Unable, &[]), 1, "AutoscalerUnable", "in its words", 5),
            (pool(0, Brake::Blind, &[]), 1, "MetricUnavailable", "in its words", 5),
            (pool(1, Brake::None, &[Busy]), 1, "RunnersTaken", "the only runner is taken", 0),
            (pool(2, Brake::None, &[Busy, Busy]), 3, "RunnersTaken", "all 2 runners are taken", 0),
            (pool(0, Brake::None, &[]), 1, "NotCountedYet", "has not counted it in", 0),
            (pool(1, Brake::None, &[]), 1, "RunnerComing", "about to be made", 0),
            (pool(1, Brake::None, &[Leaving]), 1, "RunnerComing", "about to be made", 0),
            (pool(1, Brake::None, &[Quarantined(text())]), 1, "Quarantined", "delete web-0 when you have", 10),
            // One that is set aside and one that is busy leave no place for a third.
            (pool(2, Brake::None, &[Quarantined(text()), Busy]), 1, "Quarantined", "web-0", 10),
        ] {
            let (found, sentence, began) = said(place, &pool);
            assert_eq!((found, began), (word, since), "{sentence}: {pool:?}");
            assert!(sentence.contains(part), "no {part:?} in {sentence:?}");
        }
    }

    #[test]
    fn what_stops_the_whole_pool_comes_before_what_stops_a_runner() {
        let limited = Pool {
            github: Some(("rate limit used up until 10:00".into(), Some(at(7)))),
            ..pool(1, Brake::None, &[Standing::Registering])
        };
        assert_eq!(said(1, &limited).0, "GitHubUnavailable");
        assert_eq!(said(1, &limited).2, 7);
        let idle = Pool { runners: vec![runner("a", Standing::Idle, 1)], ..limited.clone() };
        assert_eq!(said(1, &idle).0, "Assignment");
        let none = Pool { runners: Vec::new(), ..limited };
        assert_eq!(said(1, &none).0, "GitHubUnavailable");
        let refused = Pool { refused: Some(("exceeded quota".into(), Some(at(8)))), ..pool(1, Brake::None, &[]) };
        assert_eq!((said(1, &refused).0, said(1, &refused).2), ("CreationRefused", 8));
        let enough = Pool { runners: vec![runner("a", Standing::Registering, 1)], ..refused };
        assert_eq!(said(1, &enough).0, "Registration");
        let failing = Pool { backoff: Some((at(90), 3)), ..pool(2, Brake::None, &[Standing::Busy, Standing::Failed]) };
        assert_eq!(said(1, &failing).0, "Backoff");
        assert!(said(1, &failing).1.starts_with("3 runners in a row failed to start"));
        // The number was raised meanwhile: one is made at once, for the job that waits longest.
        let raised = Pool { wanted: 3, ..failing };
        assert_eq!([said(1, &raised).0, said(2, &raised).0], ["RunnerComing", "Backoff"]);
        // What is there already needs no number.
        let unable = pool(1, Brake::Unable, &[Standing::Registering]);
        assert_eq!(said(1, &unable).0, "Registration");
        assert_eq!(PoolQueue::of(None).waits(Queued { at: at(3), place: 1 }), Waits { cause: Cause::NoTarget, since: at(3) });
        let fixed = Pool { autoscaler: None, ..pool(1, Brake::None, &[Standing::Busy]) };
        assert_eq!(
            said(1, &fixed),
            ("FixedNumber", "all runners are taken, and the number is fixed at 1: no autoscaler sets spec.replicas".into(), 0)
        );
    }

    #[test]
    fn a_job_that_nobody_takes_is_told_what_lacks() {
        let labels = |missing: &[&str]| {
            let missing = missing.iter().map(|label| (*label).to_owned()).collect();
            Cause::NoPool(Unmatched::Labels { nearest: "ci/web".into(), missing })
        };
        assert_eq!(labels(&["gpu"]).word(), "LabelsMissing");
        assert!(labels(&["gpu"]).to_string().ends_with("ci/web comes closest and lacks the label gpu"));
        assert!(labels(&["gpu", "arm64"]).to_string().ends_with("lacks the labels gpu, arm64"));
        assert_eq!(Cause::NoPool(Unmatched::Reach).word(), "NoRunnersForRepository");
        assert!(Cause::NoPool(Unmatched::Group { nearest: "ci/web".into() }).to_string().contains("may not use"));
    }
}
