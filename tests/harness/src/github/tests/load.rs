//! A fleet of the size that the benches use.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_runners_and_ten_thousand_jobs() {
    const RUNNERS: usize = 2_000;
    const JOBS: u64 = 10_000;
    let github = SimGitHub::start(Settings { rate_limit: 1_000_000, ..Settings::prompt() }).await.unwrap();
    let token = github.registration_token(&app());
    let begun = std::time::Instant::now();
    let agents: Vec<_> = (0..RUNNERS)
        .map(|index| {
            let request = Registration {
                url_path: "acme/app".into(),
                token: token.clone(),
                name: format!("runner-{index}"),
                labels: vec!["big".into()],
                ..Registration::default()
            };
            let mut session = github.register(request).unwrap();
            tokio::spawn(async move {
                while let Event::Job { id, .. } = session.next().await {
                    session.finish(id, Conclusion::Success);
                }
            })
        })
        .collect();
    for _ in 0..JOBS {
        github.queue_job(JobSpec::new("acme/app", ["self-hosted", "big"])).unwrap();
    }
    let api = Api::of(&github);
    let mut listed = 0;
    for page in 1..=RUNNERS / 100 {
        let reply = api.get(&format!("repos/acme/app/actions/runners?per_page=100&page={page}")).await;
        listed += reply.json()["runners"].as_array().unwrap().len();
    }
    github.wait_for(Duration::from_secs(120), |view| view.jobs().succeeded == JOBS).await.unwrap();
    let elapsed = begun.elapsed();
    assert_eq!((listed, github.jobs().lost), (RUNNERS, 0));
    // Unoptimised and beside other work; a quadratic step would take minutes.
    assert!(elapsed < Duration::from_secs(60), "{elapsed:?}");
    for runner in github.registrations(&app()) {
        assert_eq!(api.delete(&format!("repos/acme/app/actions/runners/{}", runner.id)).await.status, StatusCode::NO_CONTENT);
    }
    for agent in agents {
        agent.await.unwrap();
    }
    assert_eq!(github.runners().registered, 0);
    eprintln!("{RUNNERS} runners, {JOBS} jobs: {elapsed:?}");
    github.stop().await;
}
