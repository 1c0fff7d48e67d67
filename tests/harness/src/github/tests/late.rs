//! A GitHub that is late, believes itself, and refuses.

use super::*;

const RUNNERS: &str = "repos/acme/app/actions/runners?per_page=100";
const MINUTE: Duration = Duration::from_secs(60);

pub(super) async fn late(change: impl FnOnce(&mut Behaviour)) -> SimGitHub {
    let mut behaviour = Behaviour::prompt();
    change(&mut behaviour);
    let github = SimGitHub::start(Settings { behaviour, ..Settings::prompt() }).await.unwrap();
    github.add(&app());
    github
}

fn remove(github: &SimGitHub, id: RunnerId) -> bool {
    github.with(|state| {
        let place = state.runners[&id].place;
        state.delete_runner(place, id).is_ok()
    })
}

#[tokio::test(start_paused = true)]
async fn a_removal_goes_by_the_late_flag_and_the_agent_cancels_or_finishes() {
    for cancels in [true, false] {
        let github = late(|behaviour| {
            behaviour.busy_late = MINUTE..=MINUTE;
            behaviour.delete_trusts_flag = true;
            behaviour.cancels_when_removed = if cancels { 1.0 } else { 0.0 };
            behaviour.removal_noticed = Duration::from_secs(20)..=Duration::from_secs(20);
        })
        .await;
        let mut session = runner(&github, &app(), "one");
        let id = job(&github);
        assert!(matches!(session.next().await, Event::Job { id: given, .. } if given == id));
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(remove(&github, session.runner_id()), "its flag is not up yet");
        let noticed = tokio::time::timeout(Duration::from_secs(25), session.next()).await;
        if cancels {
            assert_eq!(noticed.unwrap(), Event::Removed);
            let killed = github.killed();
            assert_eq!((killed.len(), killed[0].job, killed[0].runner.as_str()), (1, id, "one"));
            assert!(!session.finish(id, Conclusion::Success), "it is over");
            assert_eq!(github.job(id).unwrap().conclusion, Some(Conclusion::Cancelled));
        } else {
            assert!(noticed.is_err(), "it works on");
            assert!(session.finish(id, Conclusion::Success));
            assert_eq!(session.next().await, Event::Removed);
            assert_eq!((github.jobs().succeeded, github.killed().len()), (1, 0));
        }
        let mut other = runner(&github, &app(), "two");
        job(&github);
        other.next().await;
        tokio::time::sleep(MINUTE * 2).await;
        assert!(!remove(&github, other.runner_id()), "its flag is up");
        github.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_agent_notices_at_its_next_poll_that_it_was_removed() {
    let github = late(|behaviour| behaviour.removal_noticed = MINUTE..=MINUTE).await;
    let mut session = runner(&github, &app(), "one");
    assert!(remove(&github, session.runner_id()));
    let begun = tokio::time::Instant::now();
    assert_eq!(session.next().await, Event::Removed);
    assert_eq!(begun.elapsed().as_secs(), 60);
    github.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_registered_runner_is_offline_before_it_listens_and_gets_its_job_later() {
    let seconds = |count| Duration::from_secs(count)..=Duration::from_secs(count);
    let github = late(|behaviour| (behaviour.online_late, behaviour.assigned_late) = (seconds(3), seconds(2))).await;
    let mut session = runner(&github, &app(), "one");
    let begun = tokio::time::Instant::now();
    let id = job(&github);
    assert_eq!((github.runners().registered, github.runners().online), (1, 0));
    assert!(matches!(session.next().await, Event::Job { id: given, .. } if given == id));
    assert_eq!((begun.elapsed().as_secs(), github.runners().online), (5, 1));
    github.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_flag_that_turns_false_in_mid_job_comes_back() {
    let github = late(|behaviour| behaviour.busy_drops = 1.0).await;
    let session = runner(&github, &app(), "one");
    job(&github);
    let shown = || github.with(|state| state.runners[&session.runner_id()].shown_busy);
    let mut seen = vec![shown()];
    for _ in 0..2 {
        tokio::time::sleep(MINUTE + Duration::from_secs(1)).await;
        seen.push(shown());
    }
    assert_eq!(seen, [true, false, true]);
    github.stop().await;
}

#[tokio::test]
async fn tags_are_of_a_token_and_an_unchanged_page_has_no_links() {
    let github = late(|behaviour| behaviour.tags_per_token = true).await;
    let _sessions: Vec<Session> = (0..5).map(|index| runner(&github, &app(), &format!("runner-{index}"))).collect();
    let page = "repos/acme/app/actions/runners?per_page=2&page=1";
    let (api, other) = (Api::of(&github), Api::with(&github, &format!("Bearer {}", github.add_pat(Person::admin("hubot")))));
    let mut forms = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let reply = api.get(page).await;
        assert!(reply.header("link").contains("rel=\"next\""));
        forms.insert(reply.header("etag").starts_with("W/"));
        let same = api.get_if_changed(page, reply.header("etag")).await;
        assert_eq!((same.status, same.header("link")), (StatusCode::NOT_MODIFIED, ""));
        assert_eq!(other.get_if_changed(page, reply.header("etag")).await.status, StatusCode::OK);
    }
    assert_eq!(forms.len(), 2, "weak and strong");
    github.stop().await;
}

#[tokio::test]
async fn each_endpoint_has_points_of_its_own() {
    let github = late(|behaviour| {
        behaviour.points_per_endpoint = Some(10);
        (behaviour.limit_is_429, behaviour.limit_tells_wait) = (0.5, 0.7);
    })
    .await;
    let api = Api::of(&github);
    for _ in 0..2 {
        assert_eq!(api.post("repos/acme/app/actions/runners/remove-token").await.status, StatusCode::CREATED);
    }
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let refused = api.post("repos/acme/app/actions/runners/remove-token").await;
        seen.insert((refused.status.as_u16(), refused.header("retry-after").is_empty()));
    }
    assert_eq!(seen, [(403, false), (403, true), (429, false), (429, true)].into());
    assert_eq!(api.get(RUNNERS).await.status, StatusCode::OK);
    github.stop().await;
}

#[tokio::test]
async fn a_page_of_a_long_listing_takes_its_time() {
    let takes = Duration::from_millis(80);
    let github = late(|behaviour| behaviour.page_takes = takes..=takes).await;
    let hook = github.add_hook(Hook { owner: app().into(), url: "http://127.0.0.1:1/".into(), secret: String::new() });
    let run = github.job(job(&github)).unwrap().run;
    let api = Api::of(&github);
    for path in [
        RUNNERS.to_owned(),
        "repos/acme/app/actions/runs?status=queued".to_owned(),
        format!("repos/acme/app/actions/runs/{run}/jobs"),
        format!("repos/acme/app/hooks/{hook}/deliveries"),
    ] {
        let begun = std::time::Instant::now();
        assert_eq!(api.get(&path).await.status, StatusCode::OK, "{path}");
        assert!(begun.elapsed() >= takes, "{path} took {:?}", begun.elapsed());
    }
    github.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_is_said_to_be_queued_until_some_time_after_its_agent_got_it() {
    let late_by = Duration::from_secs(2);
    let github = late(|behaviour| behaviour.in_progress_late = late_by..=late_by).await;
    let mut session = runner(&github, &app(), "one");
    let id = job(&github);
    assert!(matches!(session.next().await, Event::Job { id: given, .. } if given == id));
    let told = || github.with(|state| payload::job("", "acme/app", &state.jobs.all[&id]));
    let state = || github.job(id).unwrap().state;
    assert_eq!((state(), github.runners().busy, github.jobs().queued), (JobState::Queued, 1, 1));
    assert_eq!((&told()["runner_name"], &told()["started_at"]), (&Value::Null, &told()["created_at"]));
    // Nobody else gets it meanwhile.
    let mut other = runner(&github, &app(), "two");
    assert!(tokio::time::timeout(Duration::from_secs(1), other.next()).await.is_err());
    tokio::time::sleep(late_by).await;
    assert_eq!((state(), told()["runner_name"].as_str()), (JobState::InProgress, Some("one")));

    // One that is over before has begun before.
    github.with(|state| state.hooks.deliveries.clear());
    github.add_hook(Hook { owner: app().into(), url: "http://127.0.0.1:1/".into(), secret: String::new() });
    let short = job(&github);
    other.next().await;
    assert!(other.finish(short, Conclusion::Success));
    let actions: Vec<_> = github.with(|state| state.hooks.deliveries.values().filter_map(|it| it.action).collect());
    assert_eq!(actions, [JobAction::Queued, JobAction::InProgress, JobAction::Completed]);
    github.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_updates_itself_is_offline_for_a_while_and_keeps_its_number() {
    let takes = Duration::from_secs(5);
    let github = late(|behaviour| (behaviour.updates_itself, behaviour.update_takes) = (1.0, takes..=takes)).await;
    let id = job(&github);
    let mut session = github.register(Registration { ephemeral: false, ..registration(&github, &app(), "one") }).unwrap();
    let number = session.runner_id();
    let mut seen = Vec::new();
    for _ in 0..4 {
        let registered = github.registrations(&app());
        assert_eq!((registered.len(), registered[0].id, registered[0].job), (1, number, None));
        seen.push(registered[0].online);
        tokio::time::sleep(Duration::from_millis(1_450)).await;
    }
    assert_eq!(seen, [true, false, false, false]);
    assert!(matches!(session.next().await, Event::Job { id: given, .. } if given == id), "it waited for the new version");
    assert!(session.finish(id, Conclusion::Success));
    let next = job(&github);
    assert!(matches!(session.next().await, Event::Job { id: given, .. } if given == next));
    tokio::time::sleep(MINUTE).await;
    assert_eq!((github.runners().online, github.runners().busy), (1, 1), "it updates itself once, and never in mid-job");

    let fixed = Registration { disable_update: true, ..registration(&github, &app(), "two") };
    let mut fixed = github.register(fixed).unwrap();
    job(&github);
    let given = tokio::time::timeout(Duration::from_millis(10), fixed.next()).await;
    assert!(given.is_ok(), "it may not update itself");
    github.stop().await;
}

#[tokio::test]
async fn the_primary_limit_is_refused_in_two_ways() {
    let github = late(|behaviour| behaviour.limit_is_429 = 0.5).await;
    github.exhaust_rate_limit(MINUTE);
    let api = Api::of(&github);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let refused = api.get(RUNNERS).await;
        seen.insert((refused.status.as_u16(), refused.header("x-ratelimit-remaining").to_owned()));
    }
    assert_eq!(seen, [403, 429].map(|status| (status, "0".to_owned())).into());
    github.stop().await;
}

#[tokio::test]
async fn a_job_that_waits_for_something_else_is_listed_so_and_has_no_runner() {
    let github = late(|_| {}).await;
    let mut session = runner(&github, &app(), "one");
    let api = Api::of(&github);
    let listed = async |status: &str| {
        let runs = api.get(&format!("repos/acme/app/actions/runs?status={status}")).await.json();
        runs["workflow_runs"].as_array().unwrap().iter().map(|run| run["id"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    for (hold, status) in [(Hold::Approval, "waiting"), (Hold::Concurrency, "pending")] {
        let id = github.queue_job(JobSpec::new("acme/app", ["self-hosted"]).held(hold)).unwrap();
        let run = github.job(id).unwrap().run;
        let said = api.get(&format!("repos/acme/app/actions/jobs/{id}")).await.json();
        assert_eq!((&said["status"], github.jobs().held, github.runners().busy), (&status.into(), 1, 0));
        assert_eq!((listed(status).await, listed("queued").await), (vec![run.0], vec![]), "{status}");
        assert!(github.release_job(id) && !github.release_job(id));
        assert!(matches!(session.next().await, Event::Job { id: given, .. } if given == id));
        assert_eq!((listed(status).await, github.jobs().held), (vec![], 0));
        session.finish(id, Conclusion::Success);
        session = runner(&github, &app(), "one");
    }
    // A run goes on while another job of it has or needs a runner.
    let first = job(&github);
    let run = github.job(first).unwrap().run;
    session.next().await;
    let held = JobSpec::new("acme/app", ["self-hosted"]).in_run(run).held(Hold::Approval);
    let held = github.queue_job(held).unwrap();
    assert_eq!((listed("in_progress").await, listed("waiting").await), (vec![run.0], vec![]));
    session.finish(first, Conclusion::Success);
    assert_eq!((listed("in_progress").await, listed("waiting").await), (vec![], vec![run.0]));
    assert!(github.cancel_job(held));
    assert_eq!((listed("waiting").await, github.jobs().held), (vec![], 0));
    github.stop().await;
}
