//! `pacer trace import`: what GitHub remembers of jobs, as a trace, so that policies can be tried before anything is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use pacer_api::autoscaler::ScaleUpTrigger;
use pacer_api::duration;
use pacer_core::scope::Scope;
use pacer_github::{Error, ErrorKind, GitHub, PastJob, Repository};
use pacer_trace::{About, Header, PoolSettings, Record, Trace, What, file};

use crate::arguments::GitHubArguments;
use crate::default_github;
use crate::plain;
use crate::report::Report;
use crate::table;

/// As long as GitHub keeps workflow runs, unless an organization says otherwise.
const LONGEST: Duration = Duration::from_hours(90 * 24);

/// Runs that GitHub lists of a time; of one with more, each half is asked for.
const LISTED: u64 = 1_000;

/// Times that a call is tried whose failure may pass.
const TRIES: u32 = 6;

/// How often progress is told.
const TELL: Duration = Duration::from_secs(10);

/// Label sets that become pools; jobs of rarer ones are left out.
const POOLS: usize = 200;

/// Arguments of `pacer trace import`.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Organization whose repositories are imported, as far as the credentials can read them.
    #[arg(long, value_name = "LOGIN", required_unless_present = "repository", conflicts_with = "repository")]
    organization: Option<String>,
    /// Repository to import, OWNER/NAME. Repeatable.
    #[arg(long, value_name = "OWNER/NAME", value_parser = repository)]
    repository: Vec<Repository>,
    /// How far back to import. GitHub keeps 90 days.
    #[arg(long, default_value = "168h", value_parser = duration::parse, value_name = "DURATION")]
    since: Duration,
    /// Also imports jobs that ran on GitHub-hosted runners, to estimate what they would need here.
    #[arg(long)]
    hosted: bool,
    /// Share of the credentials' hourly rate limit that the import leaves to others. Below it, the import waits for the next hour.
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(0..=90), value_name = "PERCENT")]
    leave: u32,
    /// The new file; it must not exist. A name that ends in .zst makes it compressed.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    github: GitHubArguments,
}

fn repository(text: &str) -> Result<Repository, String> {
    match text.split_once('/') {
        Some((owner, name)) if !owner.is_empty() && !name.is_empty() && !name.contains('/') => Ok(Repository::new(owner, name)),
        _ => Err("write OWNER/NAME, for instance acme/app".to_owned()),
    }
}

/// A job and where it belongs.
#[derive(Clone, Debug)]
struct Imported {
    repository: Arc<str>,
    run: u64,
    job: PastJob,
}

/// `pacer trace import`.
pub(super) fn import(arguments: &Arguments) -> Result<Report> {
    let since = arguments.since;
    ensure!(since <= LONGEST && since > Duration::ZERO, "--since has to be at most 2160h: GitHub remembers no more than 90 days");
    ensure!(!arguments.out.exists(), "--out {} exists: name a new file", arguments.out.display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let to = Timestamp::now();
    let from = to.checked_sub(since).context("--since")?;
    let (jobs, mut notes) = runtime.block_on(read(arguments, from, to))?;
    let (trace, more) = trace(jobs, from, to);
    notes.extend(more);
    file::write(&arguments.out, &trace)?;
    let count = trace.records.iter().filter(|record| matches!(record.what, What::JobQueued { .. })).count();
    let text = format!("{}: {} jobs from {from} to {to}\n", arguments.out.display(), table::number(count as u64));
    Ok(Report { text, notes: notes.iter().map(|note| format!("note: {note}\n")).collect(), failure: None })
}

/// All jobs of the time, and what could not be read.
async fn read(arguments: &Arguments, from: Timestamp, to: Timestamp) -> Result<(Vec<Imported>, Vec<String>)> {
    let github = default_github::client(&arguments.github, &default_github::options(&arguments.github))?.context(
        "no GitHub credentials: give --github-token, or an App by --github-app-id and --github-app-private-key, or the variables of these",
    )?;
    collect(arguments, &Caller { github, leave: arguments.leave }, (from, to)).await
}

async fn collect(
    arguments: &Arguments,
    caller: &Caller,
    (from, to): (Timestamp, Timestamp),
) -> Result<(Vec<Imported>, Vec<String>)> {
    let (mut jobs, mut notes) = (Vec::new(), Vec::new());
    let repositories = match &arguments.organization {
        Some(organization) => caller.repositories(organization).await.with_context(|| format!("reading {organization}"))?,
        None => arguments.repository.clone(),
    };
    for (index, repository) in repositories.iter().enumerate() {
        match caller.jobs(repository, (from, to), &format!("{} of {} repositories", index + 1, repositories.len())).await {
            Ok(all) => jobs.extend(all.into_iter().filter(|one| (arguments.hosted || !one.job.hosted) && !one.job.skipped)),
            Err(error) if arguments.organization.is_some() && concerns_one(&error) => {
                notes.push(format!("{repository} is left out: {error:#}"));
            }
            // It says itself what to do about it.
            Err(error) => return Err(error.into()),
        }
    }
    Ok((jobs, notes))
}

/// Whether the other repositories can be read all the same.
fn concerns_one(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Forbidden { .. } | ErrorKind::NotVisible { .. } | ErrorKind::Decode | ErrorKind::Invalid)
}

/// Calls GitHub as fast as others allow.
struct Caller {
    github: GitHub,
    leave: u32,
}

impl Caller {
    async fn repositories(&self, organization: &str) -> Result<Vec<Repository>, Error> {
        let scope = Scope::Organization(organization.to_owned());
        let (mut all, mut next) = (Vec::new(), None);
        loop {
            let page = self.patiently(&scope, async || self.github.repositories(organization, next.as_ref()).await).await?;
            all.extend(page.items);
            next = page.next;
            if next.is_none() {
                return Ok(all);
            }
        }
    }

    async fn jobs(&self, repository: &Repository, time: (Timestamp, Timestamp), place: &str) -> Result<Vec<Imported>, Error> {
        let (scope, name) = (repository.scope(), Arc::from(repository.to_string()));
        let runs = self.runs(repository, time).await?;
        let (mut all, mut told) = (Vec::new(), Instant::now());
        for (index, run) in runs.iter().copied().enumerate() {
            if told.elapsed() >= TELL {
                told = Instant::now();
                say(&format!("{repository} ({place}): jobs of {index} of {} workflow runs", runs.len()));
            }
            let mut next = None;
            loop {
                let page = self.patiently(&scope, async || self.github.past_jobs(repository, run, next.as_ref()).await).await?;
                all.extend(page.items.into_iter().map(|job| Imported { repository: Arc::clone(&name), run, job }));
                next = page.next;
                if next.is_none() {
                    break;
                }
            }
        }
        Ok(all)
    }

    /// Ids of the workflow runs of a time.
    async fn runs(&self, repository: &Repository, time: (Timestamp, Timestamp)) -> Result<BTreeSet<u64>, Error> {
        let scope = repository.scope();
        let (mut times, mut ids) = (vec![time], BTreeSet::new());
        while let Some((from, to)) = times.pop() {
            let mut next = None;
            loop {
                let page =
                    self.patiently(&scope, async || self.github.past_runs(repository, (from, to), next.as_ref()).await).await?;
                if let Some(halves) = halves(from, to).filter(|_| page.total.is_some_and(|total| total >= LISTED)) {
                    times.extend(halves);
                    break;
                }
                ids.extend(page.items.iter().map(|run| run.id));
                next = page.next;
                if next.is_none() {
                    break;
                }
            }
        }
        Ok(ids)
    }

    /// A call, when there is enough left of the budget; again when a limit ends, and when what failed may pass.
    async fn patiently<T>(&self, scope: &Scope, call: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
        let mut failures = 0;
        loop {
            if let Some(budget) = self.github.budget(scope)
                && u64::from(budget.remaining) * 100 < u64::from(budget.limit) * u64::from(self.leave)
            {
                say(&format!(
                    "{} of {} calls of this hour are left, and --leave={} leaves them to others; going on at {}",
                    budget.remaining, budget.limit, self.leave, budget.resets_at
                ));
                tokio::time::sleep(budget.resets_in() + Duration::from_secs(1)).await;
            }
            let error = match call().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if let ErrorKind::RateLimited { until, .. } = error.kind() {
                say(&format!("GitHub wants a pause; going on at {until}"));
            }
            let pause = match limit(error.kind(), error.retry_after()) {
                Some(pause) => pause,
                None if error.is_transient() && failures < TRIES => {
                    failures += 1;
                    Duration::from_secs(1 << failures)
                }
                None => return Err(error),
            };
            tokio::time::sleep(pause).await;
        }
    }
}

/// Both halves of a time; none of a second, which GitHub divides no further.
fn halves(from: Timestamp, to: Timestamp) -> Option<[(Timestamp, Timestamp); 2]> {
    let length = to.duration_since(from);
    let middle = from.checked_add(length / 2).ok()?;
    (length > SignedDuration::from_secs(1)).then_some([(from, middle), (middle, to)])
}

/// How long a call waits that failed because of a limit. When the limit ends may be told by GitHub's clock, and the clock here may differ; `told` is
/// how long it lasts.
fn limit(kind: &ErrorKind, told: Option<Duration>) -> Option<Duration> {
    match kind {
        ErrorKind::Deferred { .. } => told,
        ErrorKind::RateLimited { .. } => told.map(|told| told + Duration::from_secs(1)),
        _ => None,
    }
}

/// Progress, which is no part of the result.
fn say(text: &str) {
    let _closed = writeln!(std::io::stderr(), "{}", plain::text(text));
}

/// Jobs as a trace: a pool for each set of labels, as large as the most jobs of it that ran at once.
fn trace(mut jobs: Vec<Imported>, from: Timestamp, to: Timestamp) -> (Trace, Vec<String>) {
    let mut notes = Vec::new();
    jobs.sort_by_key(|one| (one.job.queued, one.job.id));
    // Jobs of an attempt that were not run again are listed with the next attempt as well, under other ids.
    let mut seen = BTreeSet::new();
    jobs.sort_by_key(|one| one.job.attempt);
    jobs.retain(|one| {
        let same = (one.run, one.job.name.clone(), one.job.started, one.job.completed, one.job.runner.clone());
        one.job.runner.is_none() || seen.insert(same)
    });
    jobs.retain(|one| (from..=to).contains(&one.job.queued));
    jobs.sort_by_key(|one| (one.job.queued, one.job.id));

    let mut of_labels: BTreeMap<Vec<String>, Vec<&Imported>> = BTreeMap::new();
    for one in &jobs {
        of_labels.entry(label_set(&one.job.labels)).or_default().push(one);
    }
    let mut pools: Vec<(Vec<String>, Vec<&Imported>)> = of_labels.into_iter().collect();
    pools.sort_by_key(|(_, jobs)| std::cmp::Reverse(jobs.len()));
    let left: usize = pools.iter().skip(POOLS).map(|(_, jobs)| jobs.len()).sum();
    if left > 0 {
        notes.push(format!("{left} jobs of {} rare sets of labels are left out", pools.len() - POOLS));
    }
    pools.truncate(POOLS);

    let mut records = Vec::new();
    let mut steps: Vec<Record> = Vec::new();
    for (labels, jobs) in &pools {
        let name = if labels.is_empty() { "self-hosted".to_owned() } else { labels.join("-") };
        let pool: Arc<str> = Arc::from(format!("imported/{name}"));
        records.push(Record {
            at: from,
            what: What::Pool(PoolSettings {
                pool: pool.clone(),
                labels: labels.iter().map(|label| Arc::from(label.as_str())).collect(),
                ephemeral: true,
                max: most_at_once(jobs, to),
                scale_down_delay_seconds: 600,
                job_life_seconds: ScaleUpTrigger::DEFAULT_DURATION.as_secs(),
                webhooks: true,
                ..PoolSettings::default()
            }),
        });
        for one in jobs {
            let about = About {
                repository: one.repository.clone(),
                workflow: one.job.workflow.clone(),
                labels: one.job.labels.clone(),
                attempt: one.job.attempt,
                pool: Some(pool.clone()),
            };
            let job = one.job.id;
            steps.push(Record { at: one.job.queued, what: What::JobQueued { job, about } });
            steps.extend(one.job.started.map(|at| Record { at, what: What::JobStarted { job, runner: one.job.runner.clone() } }));
            steps.extend(one.job.completed.map(|at| Record { at, what: What::JobCompleted { job } }));
        }
    }
    steps.retain(|record| record.at <= to);
    // Stable, so that a job's steps of the same second stay in their order.
    steps.sort_by_key(|record| record.at);
    records.extend(steps);
    records.push(Record { at: to, what: What::Checkpoint {} });
    notes.push(
        "GitHub tells nothing of how runners were started: each pool is as large as the most of its jobs that ran at once, and `pacer simulate` \
         assumes starts, see its --assumed-start"
            .to_owned(),
    );
    (Trace { header: Header::new(from), records }, notes)
}

/// What a pool for these labels is called by: `self-hosted` says nothing.
fn label_set(labels: &[Arc<str>]) -> Vec<String> {
    let labels: BTreeSet<String> = labels.iter().map(|label| label.to_lowercase()).collect();
    labels.into_iter().filter(|label| label != "self-hosted").collect()
}

/// Jobs that ran at the same time, at the most; at least 1.
fn most_at_once(jobs: &[&Imported], to: Timestamp) -> u32 {
    let mut steps: Vec<(Timestamp, i32)> = Vec::new();
    for one in jobs {
        if let Some(started) = one.job.started {
            steps.extend([(started, 1), (one.job.completed.unwrap_or(to), -1)]);
        }
    }
    // Ends first.
    steps.sort_unstable();
    let (mut now, mut most) = (0, 1);
    for (_, step) in steps {
        now += step;
        most = most.max(now);
    }
    u32::try_from(most).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use pacer_github::{ClientOptions, Credentials, Endpoints};
    use pacer_trace::History;
    use tower::util::BoxCloneSyncService;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    fn job(id: u64, labels: &[&str], times: [i64; 3]) -> Imported {
        let [queued, started, completed] = times.map(at);
        let job = PastJob {
            id,
            attempt: 1,
            name: format!("job-{id}").into(),
            workflow: "CI".into(),
            labels: labels.iter().map(|label| Arc::from(*label)).collect(),
            queued,
            started: Some(started),
            completed: Some(completed),
            runner: Some(format!("runner-{id}").into()),
            hosted: false,
            skipped: false,
        };
        Imported { repository: "acme/app".into(), run: 1, job }
    }

    #[test]
    fn each_set_of_labels_becomes_a_pool_as_large_as_what_ran_at_once() {
        let mut cancelled = job(5, &["gpu"], [3, 0, 20]);
        (cancelled.job.started, cancelled.job.runner) = (None, None);
        let jobs = vec![
            job(1, &["self-hosted", "Linux"], [0, 5, 50]),
            job(2, &["linux"], [1, 6, 60]),
            job(3, &["linux", "self-hosted"], [2, 50, 70]),
            job(4, &["gpu"], [3, 9, 500]),
            cancelled,
            job(6, &["gpu"], [-9, 9, 10]),
        ];
        let (trace, notes) = trace(jobs, at(0), at(100));
        let history = History::of(&trace);
        assert!(history.problems.is_empty() && notes.len() == 1, "{:?} {notes:?}", history.problems);
        let max = |pool: &str| history.pools[pool].settings[0].1.max;
        assert_eq!((history.pools.len(), max("imported/linux"), max("imported/gpu")), (2, 2, 1));
        assert_eq!(history.jobs.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5], "one was queued too early");
        assert_eq!((history.jobs[&4].completed, history.jobs[&5].started), (None, None));
        assert_eq!(history.ended, at(100));
    }

    #[test]
    fn a_job_that_was_not_run_again_counts_once() {
        let first = job(1, &["linux"], [0, 5, 50]);
        let mut again = first.clone();
        (again.job.id, again.job.attempt) = (9, 2);
        let (trace, _) = trace(vec![again, first], at(0), at(100));
        assert_eq!(History::of(&trace).jobs.keys().copied().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_time_is_halved_down_to_a_second() {
        assert_eq!(halves(at(0), at(10)), Some([(at(0), at(5)), (at(5), at(10))]));
        let mut time = (at(0), at(90 * 86_400));
        let mut steps = 0;
        while let Some([_, later]) = halves(time.0, time.1) {
            (time, steps) = (later, steps + 1);
        }
        assert!(
            steps < 25 && time.1 == at(90 * 86_400) && time.1.duration_since(time.0) <= SignedDuration::from_secs(1),
            "{steps}"
        );
    }

    #[test]
    fn a_limit_lasts_as_long_as_github_says_whatever_the_clock_here_shows() {
        let told = Some(Duration::from_secs(30));
        // By the clock here both ended long ago.
        let until = Timestamp::UNIX_EPOCH;
        assert_eq!(limit(&ErrorKind::RateLimited { until, secondary: false }, told), Some(Duration::from_secs(31)));
        assert_eq!(limit(&ErrorKind::Deferred { until }, told), told);
        assert_eq!(limit(&ErrorKind::Server, told), None, "a server that fails has no limit");
    }

    #[tokio::test]
    async fn advice_about_a_failure_is_told_once() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: Arguments,
        }
        let line = <Line as clap::Parser>::try_parse_from(["import", "--repository=acme/app", "--out=jobs.jsonl"]).unwrap();
        let transport = BoxCloneSyncService::new(tower::service_fn(|_: http::Request<_>| async {
            let answer = http::Response::builder().status(404).body(br#"{"message": "Not Found"}"#.to_vec().into());
            Ok::<_, tower::BoxError>(answer?)
        }));
        let (credentials, endpoints) = (Credentials::Token("x".into()), Endpoints::default());
        let github = GitHub::with_transport(credentials, endpoints, &ClientOptions::default(), transport).unwrap();
        let error = collect(&line.arguments, &Caller { github, leave: 25 }, (at(0), at(100))).await.err().unwrap();
        let (said, advice) = (plain::causes(&error), error.downcast::<Error>().unwrap().advice());
        assert_eq!(said.matches(&advice).count(), 1, "{said}");
    }

    #[test]
    fn a_repository_has_an_owner_and_a_name() {
        assert_eq!(repository("acme/app"), Ok(Repository::new("acme", "app")));
        for wrong in ["acme", "/app", "acme/", "acme/app/x"] {
            assert!(repository(wrong).is_err(), "{wrong}");
        }
    }
}
