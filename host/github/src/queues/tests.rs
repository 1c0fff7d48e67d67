use std::sync::atomic::{AtomicBool, AtomicU32};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;

use super::*;
use crate::client::ClientOptions;
use crate::credentials::Credentials;
use crate::endpoints::Endpoints;
use crate::error::ErrorKind;
use crate::secret::Secret;

/// A GitHub in memory with runs of one job each, by the same ids.
#[derive(Clone, Default)]
struct Fake(Arc<State>);

#[derive(Default)]
struct State {
    /// Status of each workflow run by its id.
    runs: Mutex<BTreeMap<u64, &'static str>>,
    /// When the runs were created, as they say.
    created: Mutex<Option<jiff::Timestamp>>,
    refusal: Mutex<Option<(u16, &'static str)>>,
    calls: Mutex<Vec<(Instant, String, bool)>>,
    /// Calls left in the hour; no limits when 0.
    remaining: AtomicU32,
    stuck: AtomicBool,
}

impl Fake {
    fn client(&self, token: &str) -> GitHub {
        let fake = self.clone();
        let answer = move |request: http::Request<Bytes>| {
            let fake = fake.clone();
            async move { fake.answer(&request).await }
        };
        let transport = BoxCloneSyncService::new(tower::service_fn(answer));
        let credentials = Credentials::Token(Secret::new(token));
        GitHub::with_transport(credentials, Endpoints::default(), &ClientOptions::default(), transport).unwrap()
    }

    async fn answer(&self, request: &http::Request<Bytes>) -> Result<http::Response<Bytes>, tower::BoxError> {
        let path = request.uri().path_and_query().unwrap().to_string();
        if self.0.stuck.load(Ordering::SeqCst) {
            self.note(&path, true);
            std::future::pending::<()>().await;
        }
        if let Some((status, retry_after)) = *lock(&self.0.refusal) {
            self.note(&path, true);
            let response = http::Response::builder().status(status).header("retry-after", retry_after);
            return Ok(response.body(Bytes::new())?);
        }
        let body = self.body(&path).to_string();
        let tag = format!("\"{body:?}\"").replace('\\', "");
        let fresh = request.headers().get("if-none-match").is_some_and(|known| known.as_bytes() == tag.as_bytes());
        self.note(&path, !fresh);
        let mut response = http::Response::builder().header("etag", &tag);
        let remaining = self.0.remaining.load(Ordering::SeqCst);
        if remaining > 0 {
            let left = if fresh { remaining } else { self.0.remaining.fetch_sub(1, Ordering::SeqCst) - 1 };
            let reset = (jiff::Timestamp::now().as_second() + 3_600).to_string();
            response = response.header("x-ratelimit-limit", "5000").header("x-ratelimit-remaining", left.to_string());
            response = response.header("x-ratelimit-reset", reset);
        }
        let (status, body) = if fresh { (304, Bytes::new()) } else { (200, Bytes::from(body)) };
        Ok(response.status(status).body(body)?)
    }

    fn body(&self, path: &str) -> Value {
        let runs = lock(&self.0.runs);
        if let Some(rest) = path.split_once("/actions/runs/").map(|(_, rest)| rest) {
            let id: u64 = rest.split('/').next().unwrap().parse().unwrap();
            let status = runs.get(&id).copied().unwrap_or("completed");
            let job = json!({"id": id, "run_id": id, "status": status, "created_at": "2027-01-15T08:00:00Z", "labels": ["x"]});
            return json!({"total_count": 1, "jobs": [job]});
        }
        let status = path.split_once("status=").unwrap().1.split('&').next().unwrap();
        let page = path.split_once("&page=").map_or(1, |(_, page)| page.parse::<usize>().unwrap());
        let created = *lock(&self.0.created);
        let entry = |(id, it)| json!({"id": id, "status": it, "created_at": created});
        let listed: Vec<Value> = runs.iter().rev().filter(|(_, it)| **it == status).map(entry).collect();
        let shown: Vec<&Value> = listed.iter().skip((page - 1) * 100).take(100).collect();
        json!({"total_count": listed.len(), "workflow_runs": shown})
    }

    fn note(&self, path: &str, paid: bool) {
        lock(&self.0.calls).push((Instant::now(), path.to_owned(), paid));
    }

    fn set(&self, runs: impl IntoIterator<Item = (u64, &'static str)>) {
        *lock(&self.0.runs) = runs.into_iter().collect();
    }

    fn refuse(&self, refusal: Option<(u16, &'static str)>) {
        *lock(&self.0.refusal) = refusal;
    }

    fn count(&self) -> usize {
        lock(&self.0.calls).len()
    }

    fn paid(&self) -> usize {
        lock(&self.0.calls).iter().filter(|(_, _, paid)| *paid).count()
    }

    /// Seconds between listings so far: each begins with a look at the queued runs, and has another soon after.
    fn gaps(&self) -> Vec<u64> {
        let calls = lock(&self.0.calls);
        let first =
            |(at, path, _): &(Instant, String, bool)| (path.contains("=queued") && !path.contains("&page")).then_some(*at);
        let mut begun: Vec<Instant> = calls.iter().filter_map(first).collect();
        begun.dedup_by(|later, earlier| later.duration_since(*earlier) < Duration::from_millis(200));
        begun.windows(2).map(|pair| (pair[1] - pair[0]).as_millis().div_ceil(1_000) as u64).collect()
    }
}

struct World {
    queues: Queues,
    news: mpsc::Receiver<QueueNews>,
    shutdown: CancellationToken,
}

fn world() -> World {
    let shutdown = CancellationToken::new();
    let (queues, news) = Queues::new(Pace::queues(), shutdown.clone());
    World { queues, news, shutdown }
}

fn app() -> Repository {
    Repository::new("acme", "app")
}

async fn listed(interest: &Interest) -> Arc<QueueListing> {
    let mut listings = interest.listings();
    let listing = listings.wait_for(Option::is_some).await.unwrap();
    listing.clone().unwrap()
}

fn ids(listing: &QueueListing) -> Vec<u64> {
    listing.jobs.iter().map(|job| job.id).collect()
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn many_interests_cost_one_poller_and_an_unchanged_queue_nothing() {
    let fake = Fake::default();
    fake.set([(1, "queued"), (2, "in_progress")]);
    let world = world();
    let interests: Vec<_> = (0..100).map(|_| world.queues.want(&fake.client("t"), &app(), Reading::all(INTERVAL))).collect();
    for interest in &interests {
        assert_eq!(ids(&*listed(interest).await), [1, 2]);
    }
    assert_eq!((fake.count(), fake.paid(), world.queues.pollers()), (5, 4, 1));
    pass(61).await;
    assert_eq!(fake.gaps(), [10; 6]);
    assert_eq!(fake.paid(), 4, "what did not change is free");
    let other = world.queues.want(&fake.client("another"), &app(), Reading::all(INTERVAL));
    let third = world.queues.want(&fake.client("t"), &Repository::new("acme", "lib"), Reading::all(INTERVAL));
    listed(&other).await;
    listed(&third).await;
    assert_eq!(world.queues.pollers(), 3);
}

#[tokio::test(start_paused = true)]
async fn news_come_with_changes_only() {
    let fake = Fake::default();
    let mut world = world();
    let github = fake.client("t");
    let interest = world.queues.want(&github, &app(), Reading::all(INTERVAL));
    let news = QueueNews { client: github.id().clone(), repository: app() };
    assert_eq!(world.news.recv().await, Some(news.clone()), "the first listing");
    assert_eq!(interest.latest().unwrap().jobs.len(), 0);
    pass(35).await;
    assert!(world.news.try_recv().is_err());
    let queued = Instant::now();
    fake.set([(7, "queued")]);
    assert_eq!(world.news.recv().await, Some(news));
    assert!(queued.elapsed() <= Duration::from_secs(11));
    assert_eq!(ids(&interest.latest().unwrap()), [7]);
    fake.set([(7, "in_progress")]);
    assert!(world.news.recv().await.is_some());
    assert_eq!(interest.latest().unwrap().runs, crate::RunCounts { in_progress: 1, ..crate::RunCounts::default() });
}

#[tokio::test(start_paused = true)]
async fn the_shortest_wanted_interval_holds_while_it_is_wanted() {
    let fake = Fake::default();
    let world = world();
    let github = fake.client("t");
    let slow = world.queues.want(&github, &app(), Reading::all(Duration::from_secs(60)));
    listed(&slow).await;
    pass(125).await;
    let fast = world.queues.want(&github, &app(), Reading::all(Duration::from_secs(5)));
    pass(12).await;
    drop(fast);
    pass(70).await;
    assert_eq!(fake.gaps(), [60, 60, 5, 5, 5, 60]);
}

#[tokio::test(start_paused = true)]
async fn nobody_interested_means_no_calls() {
    let fake = Fake::default();
    let world = world();
    let github = fake.client("t");
    let first = world.queues.want(&github, &app(), Reading::all(INTERVAL));
    let second = world.queues.want(&github, &app(), Reading::all(INTERVAL));
    listed(&first).await;
    drop(first);
    pass(11).await;
    assert_eq!((fake.count(), world.queues.pollers()), (6, 1));
    drop(second);
    pass(100).await;
    assert_eq!((fake.count(), world.queues.pollers()), (6, 0));

    let again = world.queues.want(&github, &app(), Reading::all(INTERVAL));
    assert!(again.latest().is_none(), "what is old is not shown");
    listed(&again).await;
    fake.0.stuck.store(true, Ordering::SeqCst);
    pass(11).await;
    world.shutdown.cancel();
    world.queues.join().await;
    assert_eq!(world.queues.pollers(), 0, "a call in flight does not hold the shutdown up");
}

#[tokio::test(start_paused = true)]
async fn haste_wakes_the_poller_and_fades() {
    let fake = Fake::default();
    let world = world();
    let interest = world.queues.want(&fake.client("t"), &app(), Reading::all(INTERVAL));
    listed(&interest).await;
    pass(5).await;
    interest.hurry();
    pass(60).await;
    assert_eq!(fake.gaps(), [5, 1, 2, 3, 4, 6, 8, 10, 10, 10]);
}

#[tokio::test(start_paused = true)]
async fn failures_slow_down_keep_the_listing_and_heal() {
    let fake = Fake::default();
    fake.set([(1, "queued")]);
    let mut world = world();
    let interest = world.queues.want(&fake.client("t"), &app(), Reading::all(INTERVAL));
    assert!(world.news.recv().await.is_some());
    fake.refuse(Some((403, "100")));
    let mut health = interest.health();
    let failed = health.wait_for(|health| health.failures == 1).await.unwrap().clone();
    assert!(matches!(failed.error.unwrap().kind(), ErrorKind::RateLimited { secondary: true, .. }));
    assert!(world.news.recv().await.is_some(), "a failure is news");
    assert_eq!(ids(&interest.latest().unwrap()), [1], "the last good listing stays");
    interest.hurry();
    fake.refuse(None);
    health.wait_for(|health| health.failures == 0).await.unwrap();
    assert!(world.news.recv().await.is_some(), "its end is news");
    assert_eq!(fake.gaps(), [10, 100], "haste does not shorten GitHub's wait");
}

#[tokio::test(start_paused = true)]
async fn a_long_queue_is_read_in_parts_within_the_secondary_limit() {
    let fake = Fake::default();
    fake.set((1..=250).map(|id| (id, "queued")));
    let world = world();
    let interest = world.queues.want(&fake.client("t"), &app(), Reading::all(INTERVAL));
    let first = listed(&interest).await;
    assert_eq!((first.complete, first.left, first.jobs.len(), first.runs.queued), (false, 190, 60, 250));
    let mut listings = interest.listings();
    let whole = listings.wait_for(|it| it.as_ref().is_some_and(|listing| listing.complete)).await.unwrap().clone().unwrap();
    assert_eq!((whole.left, whole.jobs.len()), (0, 250));
    pass(600).await;
    let calls = lock(&fake.0.calls).clone();
    for (at, ..) in &calls {
        let minute = calls.iter().filter(|(other, ..)| *other >= *at && other.duration_since(*at) < Duration::from_secs(60));
        assert!(minute.count() <= 500, "GitHub allows 900 points a minute to all");
    }
    assert_eq!(fake.paid(), 3 + 1 + 250, "three pages of runs, one empty list, the jobs of each run once");
}

#[tokio::test(start_paused = true)]
async fn runs_that_events_tell_of_are_asked_for_their_jobs_when_they_are_overdue() {
    let fake = Fake::default();
    let ago = |seconds: i64| jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
    fake.set((1..=250).map(|id| (id, "queued")));
    *lock(&fake.0.created) = Some(ago(5));
    let world = world();
    let github = fake.client("t");
    let reading = Reading::overdue(Duration::from_secs(60));
    let interest = world.queues.want(&github, &app(), reading);
    let first = listed(&interest).await;
    assert_eq!((first.complete, first.jobs.len(), first.calls), (false, 0, 7), "three pages, one without runs, and three again");
    assert_eq!(first.covers, lock(&fake.0.created).map(|created| created), "what was queued before is over");
    // Those that have got old are read in their turn, without haste.
    *lock(&fake.0.created) = Some(ago(61));
    let before = fake.count();
    pass(61).await;
    let second = interest.latest().unwrap();
    assert_eq!((second.jobs.len(), second.left, fake.count() - before), (60, 190, 67));
    assert_eq!(fake.gaps(), [60]);
    // Somebody else has no events.
    let _all = world.queues.want(&github, &app(), Reading::all(Duration::from_secs(60)));
    *lock(&fake.0.created) = Some(ago(5));
    let mut listings = interest.listings();
    listings.wait_for(|it| it.as_ref().is_some_and(|listing| listing.complete)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn queues_spend_no_more_than_their_share_of_a_short_budget() {
    let fake = Fake::default();
    fake.0.remaining.store(400, Ordering::SeqCst);
    let world = world();
    let github = fake.client("t");
    let interests = ["a", "b"].map(|name| world.queues.want(&github, &Repository::new("acme", name), Reading::all(INTERVAL)));
    // Every listing finds everything changed.
    for round in 0..600_u64 {
        fake.set((0..6).map(|id| (1 + round * 6 + id, "queued")));
        pass(3).await;
    }
    // Two listings before the budget was known, then at most a quarter of 400 calls in an hour, of which half passed.
    assert!(fake.paid() <= 20 + 100, "{}", fake.paid());
    assert!(interests[0].latest().unwrap().fetched_at.elapsed() < Duration::from_secs(1_800));
}

#[tokio::test(start_paused = true)]
async fn repositories_at_rest_take_turns_and_one_with_a_job_does_not() {
    let fake = Fake::default();
    let world = world();
    let github = fake.client("t");
    let minute = Duration::from_secs(60);
    let name = |number: u32| Repository::new("acme", format!("r{number}"));
    let mut interests: Vec<_> =
        (0..100).map(|number| world.queues.want(&github, &name(number), Reading::at_rest(minute))).collect();
    for interest in &interests {
        listed(interest).await;
    }
    pass(3_600).await;
    let before = fake.count();
    pass(3_600).await;
    let calls = fake.count() - before;
    assert!((1_000..=1_600).contains(&calls), "{calls} calls in an hour");

    let board = Arc::clone(&interests[7].lease.board);
    interests[7] = {
        let next = world.queues.want(&github, &name(7), Reading::overdue(minute));
        assert!(Arc::ptr_eq(&board, &next.lease.board), "the listing that there is stays in use");
        next
    };
    let of_it =
        || lock(&fake.0.calls).iter().filter(|(_, path, _)| path.contains("/r7/") && path.contains("=in_progress")).count();
    let before = of_it();
    pass(3_600).await;
    let listings = of_it() - before;
    assert!((58..=61).contains(&listings), "{listings} listings in an hour");
}
