use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;
use pacer_core::allowance::Purpose;
use tower::util::BoxCloneSyncService;

use super::*;
use crate::client::ClientOptions;
use crate::credentials::Credentials;
use crate::endpoints::Endpoints;
use crate::error::ErrorKind;
use crate::secret::Secret;

/// A GitHub in memory with one page of runners, or a refusal.
#[derive(Clone, Default)]
struct Fake {
    runners: Arc<Mutex<Vec<(u64, bool)>>>,
    refusal: Arc<Mutex<Option<(u16, &'static str)>>>,
    calls: Arc<Mutex<Vec<Instant>>>,
    stuck: Arc<AtomicU64>,
    /// Its answers tell of limits.
    limited: Arc<Mutex<bool>>,
}

impl Fake {
    fn client(&self, token: &str) -> GitHub {
        let fake = self.clone();
        let answer = move |request: http::Request<Bytes>| {
            let fake = fake.clone();
            async move {
                fake.calls.lock().unwrap().push(Instant::now());
                if fake.stuck.load(Ordering::SeqCst) > 0 {
                    std::future::pending::<()>().await;
                }
                if let Some((status, retry_after)) = *fake.refusal.lock().unwrap() {
                    let response = http::Response::builder().status(status).header("retry-after", retry_after);
                    return response.body(Bytes::new()).map_err(tower::BoxError::from);
                }
                let runners: Vec<_> = fake.runners.lock().unwrap().clone();
                let tag = format!("\"{runners:?}\"");
                let mut response = http::Response::builder().header("etag", &tag);
                if *fake.limited.lock().unwrap() {
                    for (name, value) in [("limit", "5000"), ("remaining", "4000"), ("reset", "4102444800")] {
                        response = response.header(format!("x-ratelimit-{name}"), value);
                    }
                }
                if request.headers().get("if-none-match").is_some_and(|known| known == tag.as_str()) {
                    return response.status(304).body(Bytes::new()).map_err(tower::BoxError::from);
                }
                let json: Vec<_> = runners
                    .iter()
                    .map(|(id, busy)| serde_json::json!({"id": id, "name": format!("r{id}"), "status": "online", "busy": busy}))
                    .collect();
                let body = serde_json::json!({"total_count": json.len(), "runners": json});
                response.body(Bytes::from(body.to_string())).map_err(tower::BoxError::from)
            }
        };
        let transport = BoxCloneSyncService::new(tower::service_fn(answer));
        let credentials = Credentials::Token(Secret::new(token));
        GitHub::with_transport(credentials, Endpoints::default(), &ClientOptions::default(), transport).unwrap()
    }

    fn set(&self, runners: &[(u64, bool)]) {
        *self.runners.lock().unwrap() = runners.to_vec();
    }

    fn refuse(&self, refusal: Option<(u16, &'static str)>) {
        *self.refusal.lock().unwrap() = refusal;
    }

    /// Seconds between calls so far.
    fn gaps(&self) -> Vec<u64> {
        let calls = self.calls.lock().unwrap();
        calls.windows(2).map(|pair| (pair[1] - pair[0]).as_millis().div_ceil(1_000) as u64).collect()
    }

    fn count(&self) -> usize {
        self.calls.lock().unwrap().len()
    }
}

fn runner_lists() -> (RunnerLists, CancellationToken) {
    let shutdown = CancellationToken::new();
    (RunnerLists::new(Pace::default(), shutdown.clone()), shutdown)
}

fn acme() -> Scope {
    Scope::Organization("acme".into())
}

async fn viewed(handle: &RunnerListHandle) -> Arc<RunnerListView> {
    let mut latest = handle.latest();
    let view = latest.wait_for(Option::is_some).await.unwrap();
    view.clone().unwrap()
}

async fn named(changes: &mut ChangeStream) -> Vec<String> {
    match changes.next().await {
        Some(Changes::Named(names)) => names.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_subscribers_cost_one_listing() {
    let fake = Fake::default();
    fake.set(&[(1, false), (2, true)]);
    let github = fake.client("t");
    let (runner_lists, _shutdown) = runner_lists();
    let handles: Vec<_> = (0..1_000).map(|_| runner_lists.subscribe(&fake.client("t"), &acme())).collect();
    for handle in &handles {
        assert!(viewed(handle).await.get("r2").unwrap().busy);
    }
    assert_eq!((fake.count(), runner_lists.pollers()), (1, 1));
    let other = runner_lists.subscribe(&fake.client("another"), &acme());
    let repository = Scope::Repository { owner: "acme".into(), name: "app".into() };
    let third = runner_lists.subscribe(&github, &repository);
    viewed(&other).await;
    viewed(&third).await;
    assert_eq!(runner_lists.pollers(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_idle_fleet_is_listed_slowly_and_for_free() {
    let fake = Fake::default();
    fake.set(&[(1, false)]);
    let github = fake.client("t");
    let (runner_lists, _shutdown) = runner_lists();
    let handle = runner_lists.subscribe(&github, &acme());
    let first = viewed(&handle).await;
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(fake.gaps(), [30; 10]);
    let last = viewed(&handle).await;
    assert_eq!(last.listing().paid, 0);
    assert!(Arc::ptr_eq(&first.listing().runners, &last.listing().runners));
    assert_eq!(last.presence(1).unwrap().idle_since, Some(first.listing().fetched_at));
}

#[tokio::test(start_paused = true)]
async fn haste_wakes_the_poller_and_fades() {
    let fake = Fake::default();
    let (runner_lists, _shutdown) = runner_lists();
    let handle = runner_lists.subscribe(&fake.client("t"), &acme());
    viewed(&handle).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    handle.hurry(Haste::Registration, Duration::ZERO, None);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(fake.gaps(), [10, 1, 2, 3, 4, 6, 8, 12, 18, 26, 30, 30, 30, 30]);
}

#[tokio::test(start_paused = true)]
async fn whoever_keeps_waiting_costs_a_dozen_listings_and_then_two_a_minute() {
    let fake = Fake::default();
    let (runner_lists, _shutdown) = runner_lists();
    let handle = runner_lists.subscribe(&fake.client("t"), &acme());
    let (mut views, began) = (handle.latest(), Instant::now());
    // Each listing makes those who wait look again, and ask again.
    while began.elapsed() < Duration::from_secs(600) {
        views.changed().await.unwrap();
        for why in [Haste::Registration, Haste::Removal] {
            handle.hurry(why, began.elapsed(), None);
        }
    }
    let calls = fake.calls.lock().unwrap();
    let within = |from: u64, to: u64| calls.iter().filter(|at| (from..to).contains(&at.duration_since(began).as_secs())).count();
    assert!(within(0, 60) <= 12, "{}", within(0, 60));
    assert!((1..10).all(|minute| within(minute * 60, minute * 60 + 60) <= 2));
}

#[tokio::test(start_paused = true)]
async fn changes_are_named_and_overflow_means_all() {
    let fake = Fake::default();
    fake.set(&[(1, false), (2, false)]);
    let (runner_lists, _shutdown) = runner_lists();
    let handle = runner_lists.subscribe(&fake.client("t"), &acme());
    let (mut changes, mut sleeper) = (handle.changes(), handle.changes());
    assert_eq!(changes.next().await, Some(Changes::All));
    fake.set(&[(2, true), (3, false)]);
    assert_eq!(named(&mut changes).await, ["r1", "r2", "r3"]);
    for round in 0..40 {
        fake.set(&[(2, round % 2 == 0), (3, false), (4 + round, false)]);
        handle.hurry(Haste::JobEnd, Duration::ZERO, None);
        assert!(named(&mut changes).await.contains(&format!("r{}", 4 + round)));
    }
    assert_eq!(sleeper.next().await, Some(Changes::All));
    fake.set(&[]);
    assert_eq!(named(&mut sleeper).await, ["r2", "r3", "r43"]);
    drop(handle);
    assert_eq!(sleeper.next().await, None, "streams end with the runner list");
}

#[tokio::test(start_paused = true)]
async fn failures_slow_down_keep_the_view_and_heal() {
    let fake = Fake::default();
    fake.set(&[(1, false)]);
    let (runner_lists, _shutdown) = runner_lists();
    let handle = runner_lists.subscribe(&fake.client("t"), &acme());
    viewed(&handle).await;
    fake.refuse(Some((403, "100")));
    let mut health = handle.health();
    let failed = health.wait_for(|health| health.failures == 1).await.unwrap().clone();
    assert!(matches!(failed.error.unwrap().kind(), ErrorKind::RateLimited { secondary: true, .. }));
    assert!(viewed(&handle).await.get("r1").is_some(), "the last good view stays");
    handle.hurry(Haste::Removal, Duration::ZERO, None);
    fake.refuse(None);
    health.wait_for(|health| health.failures == 0).await.unwrap();
    assert_eq!(fake.gaps(), [30, 100], "haste does not shorten GitHub's wait");

    handle.hurry(Haste::Removal, Duration::ZERO, None);
    fake.refuse(Some((500, "")));
    health.wait_for(|health| health.failures == 6).await.unwrap();
    assert_eq!(fake.gaps()[2..], [1, 2, 4, 8, 16, 32], "failures outweigh the haste that still fades");
}

/// Somebody who may make so many calls.
#[derive(Debug)]
struct Purse(&'static str, AtomicU32);

impl Payer for Purse {
    fn name(&self) -> &str {
        self.0
    }

    fn wait(&self, _: Purpose) -> Duration {
        if self.1.load(Ordering::Relaxed) == 0 { Duration::from_secs(60) } else { Duration::ZERO }
    }

    fn ask(&self, purpose: Purpose, calls: u32) -> Result<(), Duration> {
        let paid = self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(calls));
        paid.map(drop).map_err(|_| self.wait(purpose))
    }

    fn give_back(&self, calls: u32) {
        self.1.fetch_add(calls, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn listing_of_one_without_calls_goes_on_as_soon_as_another_can_pay() {
    let purse = |name, calls| -> Arc<dyn Payer> { Arc::new(Purse(name, AtomicU32::new(calls))) };
    let (poor, rich) = (purse("poor", 1), purse("rich", 100));
    let fake = Fake::default();
    fake.set(&[(1, false)]);
    let (runner_lists, _shutdown) = runner_lists();
    let handle = runner_lists.subscribe(&fake.client("t").paid_by(Some(poor.clone())), &acme());
    viewed(&handle).await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    handle.hurry(Haste::Registration, Duration::ZERO, Some(&poor));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(fake.count(), 1, "nobody can pay for another");
    let health = handle.health().borrow().clone();
    assert!(health.error.is_none() && health.failures == 0);
    handle.share(&rich);
    let asked = Instant::now();
    handle.hurry(Haste::Registration, Duration::ZERO, Some(&rich));
    let mut views = handle.latest();
    views.wait_for(|view| view.as_ref().is_some_and(|view| view.listing().fetched_at >= asked)).await.unwrap();
    assert!(asked.elapsed() <= Duration::from_secs(2), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_has_to_wait_for_its_turn_is_no_failure() {
    let fake = Fake::default();
    fake.set(&[(1, false)]);
    *fake.limited.lock().unwrap() = true;
    let github = fake.client("t");
    let (runner_lists, _shutdown) = runner_lists();
    let handle = runner_lists.subscribe(&github, &acme());
    viewed(&handle).await;
    let others = github.turn(crate::Endpoint::ListRunners, acme(), "others", 719).unwrap();
    drop(others);
    handle.hurry(Haste::Removal, Duration::ZERO, None);
    tokio::time::sleep(Duration::from_secs(120)).await;
    let health = handle.health().borrow().clone();
    assert!(health.error.is_none() && health.failures == 0);
    assert_eq!(fake.gaps()[0], 60, "the first of its account to go in a minute's time");
    assert!(fake.count() > 2);
    assert!(github.deferred().iter().any(|(purpose, count)| *purpose == Purpose::Listing && *count > 0));
}

#[tokio::test(start_paused = true)]
async fn a_fresh_view_can_be_awaited() {
    let fake = Fake::default();
    let (runner_lists, _shutdown) = runner_lists();
    let handle = runner_lists.subscribe(&fake.client("t"), &acme());
    viewed(&handle).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = Instant::now();
    fake.set(&[(1, false)]);
    let view = handle.newer_than(asked, Haste::Registration).await.unwrap();
    assert!(view.listing().fetched_at > asked && view.get("r1").is_some());
    assert!(asked.elapsed() <= Duration::from_secs(2));
    fake.refuse(Some((401, "")));
    let error = handle.newer_than(Instant::now(), Haste::Registration).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unauthorized);
}

#[tokio::test(start_paused = true)]
async fn pollers_end_with_their_last_handle_and_with_shutdown() {
    let fake = Fake::default();
    let github = fake.client("t");
    let (runner_lists, shutdown) = runner_lists();
    let first = runner_lists.subscribe(&github, &acme());
    let second = first.clone();
    viewed(&first).await;
    drop(first);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!((fake.count(), runner_lists.pollers()), (2, 1));
    drop(second);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!((fake.count(), runner_lists.pollers()), (2, 0));

    let again = runner_lists.subscribe(&github, &acme());
    viewed(&again).await;
    fake.stuck.store(1, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(31)).await;
    shutdown.cancel();
    runner_lists.join().await;
    assert_eq!(runner_lists.pollers(), 0, "a call in flight does not hold the shutdown up");
}
