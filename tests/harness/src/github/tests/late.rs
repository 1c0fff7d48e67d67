//! A GitHub that is late, believes itself, and refuses.

use super::*;

const RUNNERS: &str = "repos/acme/app/actions/runners?per_page=100";
const MINUTE: Duration = Duration::from_secs(60);

async fn late(change: impl FnOnce(&mut Behaviour)) -> SimGitHub {
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
