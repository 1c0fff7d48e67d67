//! What a report says. Whoever may read the commit reads it: nothing but the job's own facts, the name of its pool, and numbers. What the cluster,
//! a policy or GitHub said about others is not repeated.

use jiff::{SignedDuration, Timestamp};

use crate::estimate::Estimate;
use crate::waiting::{Cause, Queued, Waits};

/// Most characters of a commit status's description at GitHub.
const BRIEF: usize = 140;

/// Labels of a job that are repeated, and the most characters of each.
const LABELS: (usize, usize) = (20, 64);

/// To how many seconds the likely start of a job is rounded before another one is news.
const ROUNDED: i64 = 300;

/// What is said of a job that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saying {
    /// The same as long as nothing has changed that is worth saying anew: the cause, the place, and the likely start in steps of five minutes.
    pub essence: String,
    /// In one line of at most 140 characters.
    pub brief: String,
    /// In full, as Markdown.
    pub text: String,
}

impl Saying {
    /// Of a job with these labels that waits for this pool.
    #[must_use]
    pub fn of(pool: &str, labels: &[impl AsRef<str>], job: Queued, waits: &Waits, estimate: Option<Estimate>) -> Self {
        let why = public(&waits.cause);
        let rounded = estimate.map(|Estimate { likely, .. }| likely.as_second().div_euclid(ROUNDED));
        let essence =
            format!("{} {} {}", waits.cause.word(), job.place, rounded.map_or_else(|| "-".to_owned(), |at| at.to_string()));
        let likely = estimate.map(|estimate| format!(", likely start {}", clock(estimate.likely))).unwrap_or_default();
        let brief = cut(&format!("Place {} in the queue since {}{likely}: {why}", job.place, clock(job.at)), BRIEF);
        let (most, longest) = LABELS;
        let labels = labels.iter().take(most).map(|label| format!("`{}`", plain(label.as_ref(), longest)));
        let start = match estimate {
            Some(Estimate { likely, latest }) => format!(
                "It starts probably by {}, and nine times out of ten by {}, going by how long runners took to start and jobs took to run in \
                 this pool.",
                moment(likely),
                moment(latest)
            ),
            None => {
                "When it will start can't be told: something else has to happen first, or too little has been seen of this pool."
                    .to_owned()
            }
        };
        let text = format!(
            "This job waits for a self-hosted runner of the pool `{}` with the labels {}.\n\n\
             - **Why:** {why} (since {}).\n- **Queued:** {}.\n- **Place:** {} among the jobs that wait for this pool.\n- **Start:** {start}\n\n\
             This says nothing about the commit. It is closed when the job starts.",
            plain(pool, 253),
            labels.collect::<Vec<_>>().join(", "),
            moment(waits.since),
            moment(job.at),
            job.place,
        );
        Self { essence, brief, text }
    }
}

/// Why a report is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The job started, so long after it was queued.
    Started {
        /// When the job started.
        at: Timestamp,
        /// How long it had waited.
        waited: SignedDuration,
    },
    /// The job is over, or nobody knows of it any more.
    Over,
    /// Jobs of its pool are reported no longer.
    Unwanted,
}

/// What a report says at its end.
#[must_use]
pub fn closing(ending: Ending) -> String {
    match ending {
        Ending::Started { at, waited } => format!("Started at {} after waiting {}", clock(at), length(waited)),
        Ending::Over => "The job waits no longer".to_owned(),
        Ending::Unwanted => "Waiting jobs of this pool are no longer reported".to_owned(),
    }
}

/// A cause without what others said of it.
fn public(cause: &Cause) -> String {
    let words = match cause {
        Cause::NoPool(_) => "no pool of runners takes it",
        Cause::NoTarget => "its pool of runners does not exist at present",
        Cause::AutoscalerUnable(_) => "the number of runners can't be decided: the pool's settings need attention",
        Cause::MetricUnavailable(_) => "the number of runners is not raised, because the demand can't be read",
        Cause::GitHubUnavailable(_) => "no runner can register, because GitHub can't be used for the pool",
        Cause::CreationRefused(_) => "the cluster refuses new runners of the pool",
        Cause::MaximumReached(_) => "the pool has as many runners as it may have",
        Cause::PolicyCeiling(_) => "the pool's policy allows no more runners now",
        Cause::RampLimit(_) => "no more runners may be made at once",
        Cause::ScheduledWindow(_) => "a schedule sets the number of runners now",
        Cause::FixedNumber(0) => "the number of runners is set to 0",
        Cause::FixedNumber(_) => "all runners are taken, and their number is fixed",
        Cause::NotCountedYet(_) => "it has not been counted in yet",
        Cause::RunnersTaken(_) => "all runners are taken by other jobs, and no more are wanted",
        Cause::Backoff { until, .. } => {
            return format!("runners failed to start, and a place of theirs is filled again by {}", clock(*until));
        }
        Cause::Quarantined(_) => "its place is held by a runner that is set aside for people to look at",
        Cause::RunnerComing => "a runner for it is about to be made",
        Cause::PodRefused(..) => "the cluster refuses its runner's pod: a quota, or the pod itself",
        Cause::PodPending(..) => "the cluster has no room for its runner's pod",
        Cause::ImagePull(..) => "the image of its runner can't be pulled",
        Cause::PodStarting(_) => "its runner is starting",
        Cause::Registration(_) => "its runner has started and has not registered at GitHub yet",
        Cause::Assignment(_) => "a runner is idle, and GitHub has to give it the job",
    };
    words.to_owned()
}

/// `08:15 UTC`.
fn clock(at: Timestamp) -> String {
    at.strftime("%H:%M UTC").to_string()
}

/// `2027-01-15 08:15 UTC`.
fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

fn length(wait: SignedDuration) -> String {
    match wait.as_secs().max(0) {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// Without what Markdown could take for its own.
fn plain(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control() && *c != '`').take(most).collect()
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(3)).chain("...".chars()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiting::Unmatched;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn saying(cause: Cause, place: u32, likely: Option<i64>) -> Saying {
        let estimate = likely.map(|likely| Estimate { likely: at(likely), latest: at(likely + 600) });
        let waits = Waits { cause, since: at(60) };
        Saying::of("web", &["self-hosted", "we`b"], Queued { at: at(0), place }, &waits, estimate)
    }

    #[test]
    fn job_is_told_why_since_when_where_it_stands_and_when_it_starts() {
        let said = saying(Cause::MaximumReached("secret".into()), 3, Some(900));
        assert_eq!(
            said.brief,
            "Place 3 in the queue since 08:00 UTC, likely start 08:15 UTC: the pool has as many runners as it may have"
        );
        assert_eq!(
            said.text,
            "This job waits for a self-hosted runner of the pool `web` with the labels `self-hosted`, `web`.\n\n\
             - **Why:** the pool has as many runners as it may have (since 2027-01-15 08:01 UTC).\n- **Queued:** 2027-01-15 08:00 UTC.\n\
             - **Place:** 3 among the jobs that wait for this pool.\n\
             - **Start:** It starts probably by 2027-01-15 08:15 UTC, and nine times out of ten by 2027-01-15 08:25 UTC, going by how long \
             runners took to start and jobs took to run in this pool.\n\n\
             This says nothing about the commit. It is closed when the job starts."
        );
        assert!(saying(Cause::RunnerComing, 1, None).text.contains("can't be told"));
    }

    #[test]
    fn essence_changes_with_cause_place_and_five_minutes_of_the_likely_start() {
        let of = |cause, place, likely| saying(cause, place, likely).essence;
        let first = of(Cause::RunnersTaken(3), 2, Some(10));
        assert_eq!(first, of(Cause::RunnersTaken(4), 2, Some(290)));
        for other in [
            of(Cause::RunnerComing, 2, Some(10)),
            of(Cause::RunnersTaken(3), 1, Some(10)),
            of(Cause::RunnersTaken(3), 2, Some(310)),
            of(Cause::RunnersTaken(3), 2, None),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn nothing_that_others_said_is_repeated_and_every_line_is_short_enough() {
        let secret = || "evil/private on node-7".to_owned();
        let causes = [
            Cause::NoPool(Unmatched::Group { nearest: secret() }),
            Cause::NoTarget,
            Cause::AutoscalerUnable(secret()),
            Cause::MetricUnavailable(secret()),
            Cause::GitHubUnavailable(secret()),
            Cause::CreationRefused(secret()),
            Cause::MaximumReached(secret()),
            Cause::PolicyCeiling(secret()),
            Cause::RampLimit(secret()),
            Cause::ScheduledWindow(secret()),
            Cause::FixedNumber(0),
            Cause::FixedNumber(7),
            Cause::NotCountedYet(secret()),
            Cause::RunnersTaken(7),
            Cause::Backoff { until: at(0), attempts: 7 },
            Cause::Quarantined(vec![secret()]),
            Cause::RunnerComing,
            Cause::PodRefused(secret(), secret()),
            Cause::PodPending(secret(), secret()),
            Cause::ImagePull(secret(), secret()),
            Cause::PodStarting(secret()),
            Cause::Registration(secret()),
            Cause::Assignment(secret()),
        ];
        for cause in causes {
            let said = saying(cause, u32::MAX, Some(0));
            let all = format!("{}{}{}", said.essence, said.brief, said.text);
            assert!(!all.contains("evil") && !all.contains("node-7"), "{all}");
            assert!(said.brief.chars().count() <= BRIEF && !said.text.is_empty(), "{said:?}");
        }
        assert_eq!(cut(&"\u{e4}".repeat(141), BRIEF).chars().count(), BRIEF);
    }

    #[test]
    fn end_says_how_long_the_job_had_waited() {
        let started = |waited| closing(Ending::Started { at: at(0), waited: SignedDuration::from_secs(waited) });
        assert_eq!(started(-3), "Started at 08:00 UTC after waiting 0 s");
        assert_eq!(started(600), "Started at 08:00 UTC after waiting 10 min");
        assert_eq!(started(7_260), "Started at 08:00 UTC after waiting 2 h 1 min");
        assert_ne!(closing(Ending::Over), closing(Ending::Unwanted));
    }
}
