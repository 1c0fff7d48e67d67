//! Why a job waits: `pacer explain job` and `pacer explain queue`.
//!
//! Jobs are known from the ledgers of autoscalers and, where polling alone tells of them, from their statuses; [`pacer_core::waiting`] has the rule.

use anyhow::{Result, bail, ensure};
use jiff::Timestamp;
use kube::ResourceExt;
use pacer_api::HorizontalRunnerAutoscaler;
use pacer_core::count::counted;
use pacer_core::demand::{OVERDUE, TOLD};
use pacer_core::estimate::{Estimate, Pace, starts};
use pacer_core::ledger::{Job, State};
use pacer_core::policy::Quantiles;
use pacer_core::recovery::Rerun;
use pacer_core::waiting::{PoolQueue, Queued, Waits};
use pacer_github::GitHub;
use pacer_operator::target::Target;
use pacer_policy::{Inquiry, Record};
use serde::Serialize;

use super::place::Place;
use super::unknown::{self, Unknown};
use crate::archive::ago;
use crate::cluster::Cluster;
use crate::plain;
use crate::report::{Format, Report};
use crate::table;

/// What is asked about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) id: u64,
    /// `owner/name`, where the URL says it.
    pub(super) repository: Option<String>,
}

/// What the command line adds to it.
pub(super) struct Hints {
    pub(super) labels: Vec<String>,
    pub(super) repository: Option<String>,
    pub(super) all: bool,
    /// With the credentials of whoever asks; none without any.
    pub(super) github: Option<GitHub>,
}

/// What is told about a job.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Story {
    job: u64,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    repository: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    labels: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queued_at: Option<Timestamp>,
    /// `namespace/name` of the autoscaler that counts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    autoscaler: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// From 1, among the jobs that wait for the same pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<u32>,
    /// How many wait for the same pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<u32>,
    /// The runner that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    runner: Option<String>,
    /// One word; none for a job that does not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    /// The same as a sentence.
    why: String,
    /// Since when it is that.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// When it will probably start; none where nothing tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<Guess>,
    /// How it died with its runner, and whether it runs again; none where no receipt tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery: Option<String>,
}

/// When a job will probably start, and what that is reckoned from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Guess {
    #[serde(flatten)]
    estimate: Estimate,
    /// Starts of runners of the pool that were seen.
    starts_seen: u32,
    /// Jobs of the pool whose run was seen.
    jobs_seen: u32,
}

/// Reads `ID`, or a URL of GitHub that names a job.
pub(super) fn parse(text: &str) -> Result<Asked> {
    let number = |part: &str| part.parse::<u64>().ok();
    if let Some(id) = number(text) {
        return Ok(Asked { id, repository: None });
    }
    let path = text.split_once("://").map_or(text, |(_, rest)| rest).split(['?', '#']).next().unwrap_or_default();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let after = |word: &str| parts.iter().position(|part| *part == word).and_then(|at| number(parts.get(at + 1)?));
    let id = after("job").or_else(|| after("jobs"));
    let Some(id) = id else { bail!("{text} is no job: say GitHub's id of it, or its URL, which ends in /job/ID") };
    let begins = parts.iter().position(|part| *part == "actions").and_then(|at| at.checked_sub(2));
    let repository = begins.and_then(|at| Some(format!("{}/{}", parts.get(at)?, parts.get(at + 1)?)));
    Ok(Asked { id, repository })
}

/// Reads the cluster and tells about one job.
pub(super) async fn explain(cluster: &Cluster, asked: &Asked, hints: &Hints, format: Format) -> Result<Report> {
    let place = Place::read(cluster, hints.all).await?;
    let now = Timestamp::now();
    let found = stories(&place, now).into_iter().find(|story| story.job == asked.id);
    let death = place.death(asked.id);
    let found = found.or_else(|| death.as_ref().map(|(record, _)| Story::dead(asked.id, record)));
    let recovery = death.map(|(_, words)| recovered(words, place.rerun(asked.id).as_ref()));
    let found = found.map(|story| Story { recovery, ..story });
    if found.is_some() {
        ensure!(hints.labels.is_empty(), "--labels has no effect: an autoscaler knows job {} and its labels", asked.id);
    }
    let repository = hints.repository.as_ref().or(asked.repository.as_ref());
    let (story, github) = match (found, repository) {
        (Some(story), _) => (Some(story), String::new()),
        (None, Some(repository)) => {
            let found = unknown::explain(&place, asked.id, repository, &hints.labels, hints.github.as_ref()).await?;
            (found.0.map(|found| Story::unknown(asked.id, repository, found)), found.1)
        }
        (None, None) => (None, String::new()),
    };
    let Some(story) = story else {
        let scope = if hints.all { "any namespace" } else { &format!("namespace {}", cluster.namespace) };
        let elsewhere = if hints.all { "" } else { ", look in the others with -A" };
        bail!(
            "{github}no autoscaler of {scope} knows job {}: it is over since some minutes, no webhook about it came (pacer doctor), polling alone tells of it \
             and it has waited for less than {} s or behind {TOLD} others, or no autoscaler takes it. To see who would take it{elsewhere}, give \
             --repository OWNER/NAME, and credentials for GitHub (GITHUB_TOKEN), which knows its labels, or --labels a,b as the workflow's runs-on has \
             them",
            asked.id,
            OVERDUE.as_secs()
        )
    };
    let text = match format {
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&story)?),
        Format::Text => story.text(now),
    };
    Ok(Report { text, notes: place.notes() + &github, failure: None })
}

/// What a receipt says of a job that died, and what became of that.
fn recovered(words: String, rerun: Option<&Rerun>) -> String {
    match rerun {
        None => words,
        Some(rerun) => format!("{words}; {}", rerun.reason),
    }
}

/// Reads the cluster and tells about all jobs that wait.
pub(super) async fn queue(cluster: &Cluster, all: bool, format: Format) -> Result<Report> {
    let place = Place::read(cluster, all).await?;
    let now = Timestamp::now();
    let mut waiting: Vec<Story> = stories(&place, now).into_iter().filter(|story| story.state == "queued").collect();
    waiting.sort_by_key(|story| (story.queued_at, story.job));
    let text = match format {
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&waiting)?),
        Format::Text if waiting.is_empty() => {
            let scope = if all { "any namespace".to_owned() } else { format!("namespace {} (-A shows all)", cluster.namespace) };
            format!("No job waits, as far as the autoscalers of {scope} were told.\n")
        }
        Format::Text => listed(&waiting, now),
    };
    Ok(Report { text, notes: place.notes(), failure: None })
}

fn listed(waiting: &[Story], now: Timestamp) -> String {
    let head = ["JOB", "REPOSITORY", "POOL", "PLACE", "QUEUED", "STARTS", "CAUSE", "WHY"].map(str::to_owned).to_vec();
    let text = |text: &Option<String>| text.as_deref().map(plain::line).unwrap_or_default();
    let row = |story: &Story| {
        let place = story.place.zip(story.waiting).map_or_else(String::new, |(place, of)| format!("{place} of {of}"));
        let queued = story.queued_at.map_or_else(String::new, |at| ago(at, now));
        let starts = story.estimate.map_or_else(String::new, |guess| guess.brief(now));
        let cause = story.cause.unwrap_or_default().to_owned();
        let (repository, pool, why) = (text(&story.repository), text(&story.pool), plain::line(&story.why));
        vec![story.job.to_string(), repository, pool, place, queued, starts, cause, why]
    };
    table::left(&std::iter::once(head).chain(waiting.iter().map(row)).collect::<Vec<_>>())
}

/// All jobs that autoscalers know.
pub(super) fn stories(place: &Place, now: Timestamp) -> Vec<Story> {
    let mut stories = Vec::new();
    for autoscaler in &place.autoscalers {
        let ledger = place.ledger(autoscaler);
        let target = place.target_of(autoscaler);
        let pool = target.map(|target| place.pool(target, Some(autoscaler), now));
        let mut queued: Vec<(Timestamp, u64)> =
            ledger.open().filter(|(_, job)| job.state == State::Queued).map(|(id, job)| (job.queued, id)).collect();
        queued.sort_unstable();
        let of = u32::try_from(queued.len()).unwrap_or(u32::MAX);
        let pace = target.map(|target| place.pace(target)).unwrap_or_default();
        let moments: Vec<Timestamp> = queued.iter().map(|(at, _)| *at).collect();
        let estimates = pool.as_ref().map(|pool| starts(pool, &pace, &moments, now)).unwrap_or_default();
        let queue = PoolQueue::of(pool.as_ref());
        for (id, job) in ledger.all() {
            let mut story = Story::of(id, job, autoscaler, target);
            if job.state == State::Queued {
                let nth = queued.binary_search(&(job.queued, id)).unwrap_or_default();
                story.estimate = estimates.get(nth).copied().flatten().map(|estimate| Guess::of(estimate, &pace));
                let nth = u32::try_from(nth).unwrap_or(u32::MAX).saturating_add(1);
                (story.place, story.waiting) = (Some(nth), Some(of));
                story.waits(&queue.waits(Queued { at: job.queued, place: nth }));
            }
            stories.push(story);
        }
    }
    stories
}

impl Story {
    /// Of a job that no autoscaler knows.
    fn unknown(job: u64, repository: &str, found: Unknown) -> Self {
        let Unknown { state, labels, workflow, queued_at, runner, autoscaler, cause, why } = found;
        Self {
            job,
            state: state.unwrap_or("unknown"),
            repository: Some(repository.to_owned()),
            workflow,
            labels,
            queued_at,
            autoscaler,
            pool: None,
            place: None,
            waiting: None,
            runner,
            cause,
            why,
            since: None,
            estimate: None,
            recovery: None,
        }
    }
}

impl Guess {
    fn of(estimate: Estimate, pace: &Pace) -> Self {
        let seen = |quantiles: Option<Quantiles>| quantiles.map_or(0, |quantiles| quantiles.samples);
        Self { estimate, starts_seen: seen(pace.starts), jobs_seen: seen(pace.runs) }
    }

    fn text(&self, now: Timestamp) -> String {
        let Estimate { likely, latest } = self.estimate;
        if latest <= now {
            return "any moment".to_owned();
        }
        let seen = format!(
            "from {} and {} of this pool",
            counted(self.starts_seen.into(), "start"),
            counted(self.jobs_seen.into(), "job")
        );
        format!("probably {}, nine times out of ten {} ({seen})", until(likely, now), by(latest, now))
    }

    /// The same in one cell.
    fn brief(&self, now: Timestamp) -> String {
        until(self.estimate.likely, now)
    }
}

/// `in 3 min`.
fn until(at: Timestamp, now: Timestamp) -> String {
    match at.duration_since(now).as_secs() {
        ..=0 => "any moment".to_owned(),
        seconds => format!("in {}", lasting(seconds)),
    }
}

/// `within 3 min`: never less than it is.
fn by(at: Timestamp, now: Timestamp) -> String {
    let seconds = at.duration_since(now).as_secs().max(1);
    let unit = match seconds {
        ..120 => 1,
        120..7_200 => 60,
        7_200.. => 3_600,
    };
    format!("within {}", lasting((seconds + unit - 1) / unit * unit))
}

fn lasting(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200.. => format!("{} h", seconds / 3_600),
    }
}

impl Story {
    fn of(id: u64, job: &Job, autoscaler: &HorizontalRunnerAutoscaler, target: Option<&Target>) -> Self {
        let (state, why) = match (job.state, &job.runner) {
            (State::Queued, _) => ("queued", String::new()),
            (State::InProgress, Some(runner)) => ("in-progress", format!("it runs on runner {runner}")),
            (State::InProgress, None) => ("in-progress", "it runs".to_owned()),
            (State::Completed, _) => ("completed", "it is over".to_owned()),
        };
        Self {
            job: id,
            state,
            repository: Some(job.about.repository.to_string()).filter(|name| !name.is_empty()),
            workflow: Some(job.about.workflow.to_string()).filter(|name| !name.is_empty()),
            labels: job.about.labels.iter().map(ToString::to_string).collect(),
            queued_at: Some(job.queued),
            autoscaler: Some(format!("{}/{}", autoscaler.namespace().unwrap_or_default(), autoscaler.name_any())),
            pool: target.map(|target| target.reference().to_string()),
            place: None,
            waiting: None,
            runner: job.runner.as_ref().map(ToString::to_string),
            cause: None,
            why,
            since: Some(job.since),
            estimate: None,
            recovery: None,
        }
    }

    /// A job that only a receipt still tells of.
    fn dead(id: u64, record: &Record) -> Self {
        let job = match &record.input {
            Some(Inquiry::Recover(request)) => request.jobs.iter().find(|job| job.id == id),
            _ => None,
        };
        let text = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
        Self {
            job: id,
            state: "completed",
            repository: text(job.map(|job| &job.repository)),
            workflow: text(job.map(|job| &job.workflow)),
            labels: job.map(|job| job.labels.clone()).unwrap_or_default(),
            queued_at: None,
            autoscaler: None,
            pool: Some(record.pool.to_string()),
            place: None,
            waiting: None,
            runner: text(job.map(|job| &job.runner)),
            cause: None,
            why: "it died with its runner".to_owned(),
            since: Some(record.at),
            estimate: None,
            recovery: None,
        }
    }

    fn waits(&mut self, waits: &Waits) {
        self.cause = Some(waits.cause.word());
        self.why = waits.cause.to_string();
        self.since = Some(waits.since);
    }

    pub(super) fn text(&self, now: Timestamp) -> String {
        let what = match self.state {
            "queued" => "waits",
            "in-progress" => "runs",
            "completed" => "is over",
            "held" => "is held back",
            _ => "is not known to any autoscaler",
        };
        let mut text = format!("Job {} {what}: {}.\n\n", self.job, plain::line(&self.why));
        let mut line = |title: &str, words: Option<String>| {
            if let Some(words) = words {
                text.push_str(&format!("  {title:<11}{}\n", plain::line(&words)));
            }
        };
        line("since", self.since.map(|at| crate::archive::when(at, now)));
        line("queued", self.queued_at.map(|at| crate::archive::when(at, now)));
        line("starts", self.estimate.map(|guess| guess.text(now)));
        line("recovery", self.recovery.clone());
        line("place", self.place.zip(self.waiting).map(|(place, of)| format!("{place} of {of} that wait for this pool")));
        line("pool", self.pool.clone());
        line("autoscaler", self.autoscaler.clone());
        line("repository", self.repository.clone());
        line("workflow", self.workflow.clone());
        line("labels", Some(self.labels.join(", ")).filter(|labels| !labels.is_empty()));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moment_of_a_start_is_told_with_what_it_is_reckoned_from() {
        let at = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
        let guess = |likely, latest| Guess {
            estimate: Estimate { likely: at(likely), latest: at(latest) },
            starts_seen: 1,
            jobs_seen: 200,
        };
        for (likely, latest, expected) in [
            (40, 300, "probably in 40 s, nine times out of ten within 5 min (from 1 start and 200 jobs of this pool)"),
            (-5, 30, "probably any moment, nine times out of ten within 30 s (from 1 start and 200 jobs of this pool)"),
            (7_300, 90_000, "probably in 2 h, nine times out of ten within 25 h (from 1 start and 200 jobs of this pool)"),
            (130, 301, "probably in 2 min, nine times out of ten within 6 min (from 1 start and 200 jobs of this pool)"),
            (130, 7_150, "probably in 2 min, nine times out of ten within 2 h (from 1 start and 200 jobs of this pool)"),
            (-9, -5, "any moment"),
        ] {
            assert_eq!(guess(likely, latest).text(at(0)), expected);
        }
    }

    #[test]
    fn fields_of_a_job_stay_on_their_line_and_steer_no_terminal() {
        let forged = || "a\n  runner     b\u{1b}[2J".to_owned();
        let story = Story {
            job: 7,
            state: "queued",
            repository: Some(forged()),
            workflow: Some(forged()),
            labels: vec![forged()],
            queued_at: None,
            autoscaler: None,
            pool: None,
            place: None,
            waiting: None,
            runner: None,
            cause: None,
            why: forged(),
            since: None,
            estimate: None,
            recovery: Some(forged()),
        };
        let expected = "Job 7 waits: a runner b [2J.\n\n  recovery   a runner b [2J\n  repository a runner b [2J\n  workflow   a runner b [2J\n  \
                        labels     a runner b [2J\n";
        assert_eq!(story.text(Timestamp::UNIX_EPOCH), expected);
        let text = listed(&[story], Timestamp::UNIX_EPOCH);
        assert_eq!(text.lines().count(), 2, "{text:?}");
        assert!(!text.contains(|char: char| char.is_control() && char != '\n'), "{text:?}");
    }

    #[test]
    fn jobs_are_named_by_id_or_url() {
        let asked = |id, repository: Option<&str>| Some(Asked { id, repository: repository.map(str::to_owned) });
        for (text, expected) in [
            ("38000000001", asked(38_000_000_001, None)),
            ("https://github.com/acme/app/actions/runs/7/job/9?pr=1#step:2", asked(9, Some("acme/app"))),
            ("github.example.com/acme/app/actions/runs/7/job/9", asked(9, Some("acme/app"))),
            ("https://api.github.com/repos/acme/app/actions/jobs/9", asked(9, Some("acme/app"))),
            ("https://github.com/acme/app/actions/runs/7", None),
            ("web", None),
        ] {
            assert_eq!(parse(text).ok(), expected, "{text}");
        }
    }
}
