//! Registration, assignment and loss.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[tokio::test(start_paused = true)]
async fn an_ephemeral_runner_takes_one_job_and_is_gone() {
    let github = github().await;
    let mut session = runner(&github, &app(), "one");
    let job = job(&github);
    let job_event = Event::Job { id: job, duration: Duration::from_secs(1) };
    assert_eq!(session.next().await, job_event);
    assert_eq!((github.jobs().in_progress, github.runners().busy), (1, 1));
    assert!(session.finish(job, Conclusion::Success));
    assert!(!session.finish(job, Conclusion::Failure), "a job ends once");
    assert_eq!(session.next().await, Event::Removed);
    let done = github.job(job).unwrap();
    assert_eq!((done.state, done.conclusion, done.lost), (JobState::Completed, Some(Conclusion::Success), false));
    assert_eq!(done.runner.unwrap().id, session.runner_id());
    assert_eq!(github.registrations(&app()), []);
    drop(session);
    assert_eq!((github.leaked(), github.jobs().lost), (vec![], 0));
    github.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_persistent_runner_takes_jobs_in_order_of_age() {
    let github = github().await;
    github.add(&app());
    let jobs: Vec<JobId> = (0..3).map(|_| job(&github)).collect();
    let persistent = Registration { ephemeral: false, ..registration(&github, &app(), "one") };
    let mut session = github.register(persistent).unwrap();
    for id in jobs {
        assert!(matches!(session.next().await, Event::Job { id: got, .. } if got == id));
        session.finish(id, Conclusion::Success);
    }
    assert_eq!(github.registrations(&app()).len(), 1);
    github.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_agent_hears_of_its_job_and_of_its_deletion() {
    let github = github().await;
    let mut waiting = runner(&github, &app(), "one");
    let (event, _) = tokio::join!(waiting.next(), async { job(&github) });
    assert!(matches!(event, Event::Job { .. }));
    let mut idle = runner(&github, &app(), "two");
    let id = idle.runner_id();
    let (event, ()) = tokio::join!(idle.next(), async {
        github.with(|state| {
            let place = state.accounts.find(&app()).unwrap();
            state.delete_runner(place, id).unwrap();
        });
    });
    assert_eq!(event, Event::Removed);
    github.stop().await;
}

/// Runner's scope, group and labels; job's repository, group and labels; whether they fit.
#[tokio::test(start_paused = true)]
async fn jobs_go_to_runners_that_cover_them() {
    let (repo, org, corp) = (app(), Scope::organization("acme"), Scope::enterprise("corp"));
    let other = Scope::repository("acme", "other");
    type Case<'a> = (&'a Scope, Option<&'a str>, &'a [&'a str], &'a str, Option<&'a str>, &'a [&'a str], bool);
    let cases: [Case<'_>; 17] = [
        (&repo, None, &[], "acme/app", None, &["self-hosted", "linux", "X64"], true),
        (&repo, None, &["GPU"], "ACME/App", None, &["Self-Hosted", "gpu"], true),
        (&repo, None, &["gpu"], "acme/app", None, &[], true),
        (&repo, None, &[], "acme/app", None, &["gpu"], false),
        (&repo, None, &[], "acme/app", None, &["arm64"], false),
        (&other, None, &[], "acme/app", None, &[], false),
        (&org, None, &[], "acme/app", None, &[], true),
        (&org, None, &[], "else/app", None, &[], false),
        (&corp, None, &[], "acme/app", None, &[], true),
        (&corp, None, &[], "else/app", None, &[], false),
        (&org, Some("app only"), &[], "acme/app", None, &[], true),
        (&org, Some("app only"), &[], "acme/other", None, &[], false),
        (&org, Some("App Only"), &[], "acme/app", Some("app only"), &[], true),
        (&org, None, &[], "acme/app", Some("app only"), &[], false),
        (&org, None, &[], "acme/app", Some("default"), &[], true),
        (&corp, Some("else only"), &[], "acme/app", None, &[], false),
        (&corp, Some("acme only"), &[], "acme/app", None, &[], true),
    ];
    for (index, (scope, group, labels, repository, wanted, needs, fits)) in cases.into_iter().enumerate() {
        for job_first in [true, false] {
            let github = github().await;
            let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
            github.add_enterprise("corp", &["acme"]);
            github.add_group(&org, "app only", GroupVisibility::Selected(names(&["App"])));
            github.add_group(&corp, "acme only", GroupVisibility::Selected(names(&["acme"])));
            github.add_group(&corp, "else only", GroupVisibility::Selected(names(&["else"])));
            let spec = JobSpec { group: wanted.map(str::to_owned), ..JobSpec::new(repository, needs.iter().copied()) };
            let request = Registration {
                labels: labels.iter().map(|label| (*label).to_owned()).collect(),
                group: group.map(str::to_owned),
                ..registration(&github, scope, "one")
            };
            if job_first {
                github.queue_job(spec.clone()).unwrap();
            }
            let _session = github.register(request).unwrap();
            if !job_first {
                github.queue_job(spec).unwrap();
            }
            assert_eq!(github.jobs().in_progress == 1, fits, "case {index}, job first: {job_first}");
            github.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_nearest_runner_gets_the_job() {
    let github = github().await;
    github.add_enterprise("corp", &["acme"]);
    let scopes = [Scope::enterprise("corp"), Scope::organization("acme"), app()];
    let sessions: Vec<Session> = scopes.iter().map(|scope| runner(&github, scope, "one")).collect();
    for expected in sessions.iter().rev() {
        let id = job(&github);
        assert_eq!(github.job(id).unwrap().runner.unwrap().id, expected.runner_id());
    }
    github.stop().await;
}

#[tokio::test(start_paused = true)]
async fn registration_is_refused_with_githubs_words() {
    let github = github().await;
    let _taken = runner(&github, &app(), "taken");
    github.add(&Scope::repository("acme", "other"));
    let good = || registration(&github, &app(), "new");
    let refuse = |request: Registration| github.register(request).unwrap_err();
    assert_eq!(refuse(Registration { token: "NONSENSE".into(), ..good() }), RegistrationRefused::NotFound);
    assert_eq!(refuse(Registration { url_path: "acme/other".into(), ..good() }), RegistrationRefused::NotFound);
    assert_eq!(refuse(Registration { url_path: "acme/absent".into(), ..good() }), RegistrationRefused::NotFound);
    assert_eq!(refuse(Registration { url_path: "a/b/c".into(), ..good() }), RegistrationRefused::NotFound);
    assert_eq!(refuse(Registration { name: "Taken".into(), ..good() }), RegistrationRefused::NameTaken("Taken".into()));
    let error = refuse(Registration { group: Some("gpu".into()), ..good() });
    assert_eq!(error.to_string(), "Could not find any self-hosted runner group named \"gpu\".");
    let fault = Routes::of(RouteKind::RegisterRunner).scope(app());
    let fault = github.inject(Fault::new(fault, Effect::Status(503)));
    assert_eq!(refuse(good()), RegistrationRefused::Unavailable(503));
    assert_eq!(github.fault_hits(fault), 1);

    let early = good();
    tokio::time::advance(Duration::from_secs(3601)).await;
    let error = refuse(early);
    assert_eq!(error, RegistrationRefused::TokenExpired);
    assert!(error.to_string().contains("401 (Unauthorized)"), "{error}");

    github.deprecate_version(true);
    assert_eq!(refuse(Registration { disable_update: true, ..good() }), RegistrationRefused::VersionDeprecated);
    let _updating = github.register(good()).unwrap();
    assert_eq!(github.count(RouteKind::RegisterRunner), RouteCount { requests: 11, not_modified: 0, failed: 9 });
    github.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_replaced_registration_keeps_its_number_and_ends_the_old_session() {
    let github = github().await;
    let mut old = runner(&github, &app(), "one");
    let job = job(&github);
    assert!(matches!(old.next().await, Event::Job { .. }));
    let new = github.register(Registration { replace: true, ..registration(&github, &app(), "ONE") }).unwrap();
    assert_eq!(new.runner_id(), old.runner_id());
    assert_eq!(old.next().await, Event::Removed);
    assert!(github.job(job).unwrap().lost);
    drop(old);
    tokio::time::advance(SOON).await;
    let registered = github.registrations(&app());
    assert_eq!(registered.iter().map(|it| (it.online, it.live, it.job)).collect::<Vec<_>>(), [(true, true, None)]);
    github.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_vanished_agent_goes_offline_and_loses_its_job() {
    let github = github().await;
    let mut session = runner(&github, &app(), "one");
    let job = job(&github);
    session.next().await;
    let id = session.runner_id();
    drop(session);
    let state = |github: &SimGitHub| github.registrations(&app()).first().map(|it| (it.online, it.live, it.job));
    assert_eq!(state(&github), Some((true, false, Some(job))));
    github.wait_for(SOON, |view| view.runners().online == 0).await.unwrap();
    assert_eq!(state(&github), Some((false, false, Some(job))), "busy until the job is given up");
    github.wait_for(SOON, |view| view.jobs().lost == 1).await.unwrap();
    let lost = github.job(job).unwrap();
    assert_eq!((lost.conclusion, lost.lost), (Some(Conclusion::Failure), true));
    assert_eq!(github.leaked().iter().map(|it| it.id).collect::<Vec<_>>(), [id]);
    let waited = lost.completed_at.unwrap().duration_since(lost.started_at.unwrap());
    assert!(waited.as_secs() >= 2, "{waited}");
    github.stop().await;
}

#[tokio::test]
async fn job_runs_again_in_a_new_attempt_once_its_run_has_ended() {
    let github = github().await;
    let mut session = runner(&github, &app(), "one");
    let lost = job(&github);
    session.next().await;
    let path = format!("repos/acme/app/actions/jobs/{lost}/rerun");
    let api = Api::of(&github);
    let refused = api.post(&path).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(refused.message(), "The workflow run containing this job is already running");
    drop(session);
    github.wait_for(SOON * 2, |view| view.jobs().lost == 1).await.unwrap();
    assert_eq!(api.post(&path).await.status, StatusCode::CREATED);
    let run = github.job(lost).unwrap().run;
    let again = github.view(|view| view.all_jobs().find(|job| job.attempt == 2).cloned()).unwrap();
    assert_eq!((again.run, again.state, again.id != lost), (run, JobState::Queued, true));
    let seen = api.get(&format!("repos/acme/app/actions/runs/{run}")).await.json();
    assert!(seen["run_attempt"] == 2 && seen["status"] == "queued", "{seen}");
    let listed = api.get(&format!("repos/acme/app/actions/runs/{run}/jobs")).await.json();
    assert!(listed["total_count"] == 1 && listed["jobs"][0]["id"] == again.id.0, "{listed}");
    assert_eq!(api.post(&path).await.status, StatusCode::FORBIDDEN, "it runs again already");
    github.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_given_to_a_vanished_agent() {
    let github = github().await;
    drop(runner(&github, &app(), "one"));
    job(&github);
    assert_eq!(github.jobs().queued, 1);
    let _second = runner(&github, &app(), "two");
    assert_eq!(github.jobs().in_progress, 1);
    github.stop().await;
}

#[tokio::test(start_paused = true)]
async fn removal_needs_a_token_and_no_job() {
    let github = github().await;
    let mut session = runner(&github, &app(), "one");
    let elsewhere = github.registration_token(&Scope::organization("acme"));
    assert_eq!(session.remove(&elsewhere), Err(RemovalRefused::Token));
    let token = github.registration_token(&app());
    let id = job(&github);
    assert_eq!(session.remove(&token), Err(RemovalRefused::Busy));
    session.finish(id, Conclusion::Success);
    assert_eq!(session.remove(&token), Ok(()), "gone already");
    let mut idle = runner(&github, &app(), "two");
    github.expire_registration_tokens();
    assert_eq!(idle.remove(&token), Err(RemovalRefused::Token));
    assert_eq!(idle.remove(&github.registration_token(&app())), Ok(()));
    assert_eq!(idle.next().await, Event::Removed);
    assert_eq!(github.runners().registered, 0);
    github.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deprecated_version_takes_no_more_jobs() {
    let github = github().await;
    let pinned = Registration { disable_update: true, ephemeral: false, ..registration(&github, &app(), "pinned") };
    let mut pinned = github.register(pinned).unwrap();
    let first = job(&github);
    pinned.next().await;
    github.deprecate_version(true);
    pinned.finish(first, Conclusion::Success);
    assert_eq!(pinned.next().await, Event::VersionDeprecated);
    job(&github);
    assert_eq!(github.jobs().queued, 1);
    github.deprecate_version(false);
    assert!(matches!(pinned.next().await, Event::Job { .. }));
    github.stop().await;
}

#[tokio::test(start_paused = true)]
async fn assignment_takes_its_time() {
    let latency = Duration::from_secs(5);
    let github = SimGitHub::start(Settings { assignment_latency: latency, ..Settings::prompt() }).await.unwrap();
    let _session = runner(&github, &app(), "one");
    let id = job(&github);
    assert_eq!(github.jobs().queued, 1);
    github.wait_for(SOON, |view| view.jobs().in_progress == 1).await.unwrap();
    let job = github.job(id).unwrap();
    assert!(job.started_at.unwrap().duration_since(job.queued_at).as_secs() >= 5);
    github.stop().await;
}

#[tokio::test(start_paused = true)]
async fn cancelled_jobs_end_wherever_they_are() {
    let github = github().await;
    github.add(&app());
    let queued = job(&github);
    assert!(github.cancel_job(queued));
    assert!(!github.cancel_job(queued));
    let mut session = runner(&github, &app(), "one");
    assert_eq!(github.jobs().in_progress, 0, "a cancelled job is not given out");
    let running = job(&github);
    session.next().await;
    assert!(github.cancel_job(running));
    assert_eq!(session.next().await, Event::Removed);
    assert!(!session.finish(running, Conclusion::Success));
    assert_eq!(github.job(running).unwrap().conclusion, Some(Conclusion::Cancelled));
    github.stop().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_with_the_state_or_with_an_account_of_it() {
    let github = github().await;
    github.add(&app());
    job(&github);
    let error = github.wait_for(Duration::from_secs(1), |view| view.jobs().completed == 1).await.unwrap_err();
    assert_eq!((error.jobs.queued, error.within), (1, Duration::from_secs(1)));
    github.wait_for(Duration::ZERO, |view| view.jobs().queued == 1).await.unwrap();
    github.stop().await;
}

#[derive(Clone, Debug)]
enum Step {
    Register { scope: usize, ephemeral: bool, gpu: bool },
    Queue { repository: usize, gpu: bool },
    Finish(usize),
    Vanish(usize),
    Delete(usize),
    Cancel(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3_usize, any::<bool>(), any::<bool>()).prop_map(|(scope, ephemeral, gpu)| Step::Register { scope, ephemeral, gpu }),
        4 => (0..2_usize, any::<bool>()).prop_map(|(repository, gpu)| Step::Queue { repository, gpu }),
        3 => (0..8_usize).prop_map(Step::Finish),
        1 => (0..8_usize).prop_map(Step::Vanish),
        2 => (0..8_usize).prop_map(Step::Delete),
        1 => (0..8_usize).prop_map(Step::Cancel),
        1 => (0..3_000_u64).prop_map(Step::Wait),
    ]
}

/// What must hold between any two steps.
fn check(github: &SimGitHub, latency: bool) {
    github.with(|state| {
        let view = View(state);
        let counts = view.jobs();
        let of = |wanted: JobState| view.all_jobs().filter(|job| job.state == wanted).count() as u64;
        assert_eq!(counts.queued, of(JobState::Queued));
        assert_eq!(counts.in_progress, of(JobState::InProgress));
        assert_eq!(counts.completed, of(JobState::Completed));
        for job in view.all_jobs() {
            let holders: Vec<_> = state.runners.values().filter(|runner| runner.job == Some(job.id)).collect();
            assert_eq!(holders.len(), usize::from(job.state == JobState::InProgress), "{job:?}");
            assert!(holders.iter().all(|holder| Some(holder.id) == job.runner.as_ref().map(|runner| runner.id)));
        }
        let idle: BTreeSet<RunnerId> = state.idle.values().flatten().copied().collect();
        for runner in state.runners.values() {
            assert!(state.accounts.get(runner.place).unwrap().runners.contains(&runner.id));
            if !latency {
                assert_eq!(idle.contains(&runner.id), state.takes_jobs(runner), "{runner:?}");
            }
        }
        assert!(idle.iter().all(|id| state.runners.contains_key(id)), "a deleted runner waits for jobs");
        if !latency {
            // Nothing waits that could run: an unlabelled job and an idle runner of its repository do not coexist.
            let starving = view.all_jobs().any(|job| {
                job.state == JobState::Queued && job.spec.labels.is_empty() && {
                    state.runners.values().any(|runner| runner.place == job.repository && idle.contains(&runner.id))
                }
            });
            assert!(!starving);
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn jobs_and_runners_agree_whatever_happens(steps in prop::collection::vec(step(), 1..60), latency in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let assignment_latency = if latency { Duration::from_millis(700) } else { Duration::ZERO };
            let github = SimGitHub::start(Settings { assignment_latency, ..Settings::prompt() }).await.unwrap();
            let scopes = [app(), Scope::repository("acme", "other"), Scope::organization("acme")];
            let mut sessions: Vec<Session> = Vec::new();
            let mut jobs = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Register { scope, ephemeral, gpu } => {
                        let request = registration(&github, &scopes[scope], &format!("runner-{number}"));
                        let labels = if gpu { vec!["gpu".to_owned()] } else { vec![] };
                        sessions.push(github.register(Registration { ephemeral, labels, ..request }).unwrap());
                    }
                    Step::Queue { repository, gpu } => {
                        let labels: &[&str] = if gpu { &["gpu"] } else { &[] };
                        let spec = JobSpec::new(scopes[repository].to_string(), labels.iter().copied());
                        jobs.push(github.queue_job(spec).unwrap());
                    }
                    Step::Finish(index) => {
                        if let Some(session) = sessions.get_mut(index) {
                            let held = github.with(|state| state.runners.get(&session.runner_id()).and_then(|it| it.job));
                            if let Some(held) = held {
                                assert!(session.finish(held, Conclusion::Success));
                            }
                        }
                    }
                    Step::Vanish(index) if index < sessions.len() => drop(sessions.remove(index)),
                    Step::Delete(index) => {
                        if let Some(session) = sessions.get(index) {
                            let id = session.runner_id();
                            github.with(|state| {
                                let known = state.runners.get(&id).map(|it| (it.place, it.job.is_some()));
                                if let Some((place, busy)) = known {
                                    assert_eq!(state.delete_runner(place, id).is_err(), busy);
                                }
                            });
                        }
                    }
                    Step::Cancel(index) => {
                        if let Some(job) = jobs.get(index) {
                            github.cancel_job(*job);
                        }
                    }
                    Step::Wait(millis) => tokio::time::advance(Duration::from_millis(millis)).await,
                    Step::Vanish(_) => {}
                }
                tokio::task::yield_now().await;
                check(&github, latency);
            }
            // In the end no job hangs: agents that are gone lose theirs.
            drop(sessions);
            github.wait_for(SOON, |view| view.jobs().in_progress == 0 && view.runners().online == 0).await.unwrap();
            check(&github, latency);
            github.stop().await;
        });
    }
}
