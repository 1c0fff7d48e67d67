//! What senders see, and what is in the ledgers then.

use anyhow::{Result, ensure};
use pacer_harness::github::{Delivering, GroupVisibility, Hook, HookOwner, JobSpec, Scope};
use pacer_suites::{PATIENCE, change_template};
use ring::hmac;

use super::post::{request, send, signed, tag};
use super::*;

const NONE: &str = "no horizontalrunnerautoscaler to scale for this github event";

/// The tables of arc-behaviour 3.7, 9.5 and 9.9; differences are in docs/differences-from-arc.md.
#[tokio::test(flavor = "multi_thread")]
async fn the_vectors_of_arcs_webhook_server_hold() -> Result<()> {
    let world = world(|_| {}).await?;
    for organization in ["MYORG", "BADORG", "METAORG", "MARK"] {
        world.github.add(&Scope::repository(organization, "MYREPO"));
    }
    // Beside those that work: a target that does not exist, and triggers that ARC passes over.
    apply(&world, &autoscaler("a-broken", "nothing")).await?;
    for (name, triggers) in [
        ("a-none", json!([])),
        ("a-two", json!([{"githubEvent": {"workflowJob": {}}}, {"githubEvent": {"workflowJob": {}}}])),
        ("a-push", json!([{"githubEvent": {"push": {}}}])),
    ] {
        let mut broken = autoscaler(name, "test-name");
        broken["spec"]["scaleUpTriggers"] = triggers;
        apply(&world, &broken).await?;
    }
    pool(&world, "test-name", &json!({"organization": "MYORG", "labels": ["label1"]})).await?;
    pool(&world, "bad", &json!({"organization": "BADORG", "labels": ["bad-label"]})).await?;
    let mut labelled = deployment("meta", &json!({"organization": "METAORG"}));
    labelled["metadata"]["labels"] = json!({"label1": "label1"});
    apply(&world, &labelled).await?;
    apply(&world, &autoscaler("meta", "meta")).await?;
    pool(&world, "marker", &json!({"organization": "MARK"})).await?;
    let server = receiver(&world, &[]).await?;
    let address = address(&server)?;
    // Watches bring objects in their order.
    eventually(&address, &event("queued", 1, "MARK/MYREPO", &[]), "scaled marker by 1").await?;

    let job = |action: &str, id: u64, labels: &[&str]| event(action, id, "MYORG/MYREPO", labels);
    let done = |id: u64, conclusion: &str, runner: Value| {
        with(with(job("completed", id, &["label1"]), "conclusion", json!(conclusion)), "runner_id", runner)
    };
    let plain = &["label1"][..];
    let usual = &["self-hosted", "label1"][..];
    let mut vectors =
        vec![("ping", json!({"zen": "", "hook_id": 1}), "pong"), ("push", json!({}), ""), ("unheard_of", json!({}), "")];
    for (base, labels) in [(100, plain), (200, usual)] {
        vectors.push(("workflow_job", job("queued", base, labels), "scaled test-name by 1"));
        vectors.push(("workflow_job", event("queued", base + 1, "BADORG/MYREPO", labels), NONE));
        vectors.push(("workflow_job", event("queued", base + 2, "METAORG/MYREPO", labels), NONE));
    }
    vectors.extend([
        ("workflow_job", job("queued", 300, &["Label1", "Linux"]), "scaled test-name by 1"),
        ("workflow_job", job("queued", 301, &["label1", "windows"]), NONE),
        ("workflow_job", job("waiting", 302, plain), ""),
        ("workflow_job", job("in_progress", 303, plain), "recorded job 303 in progress for test-name"),
        ("workflow_job", done(304, "success", Value::Null), ""),
        ("workflow_job", done(305, "skipped", json!(5)), ""),
        ("workflow_job", done(306, "cancelled", json!(0)), "scaled test-name by -1"),
        ("workflow_job", done(307, "success", json!(5)), "scaled test-name by -1"),
        // A job that was counted is over, however it ended.
        ("workflow_job", done(100, "skipped", Value::Null), "scaled test-name by -1"),
    ]);
    for (kind, payload, text) in vectors {
        let answer = post(&address, kind, &payload).await?;
        ensure!((answer.status, answer.text.as_str()) == (200, text), "{kind} {payload}: {answer:?}");
    }
    let expected = [
        (100, State::Completed),
        (200, State::Queued),
        (300, State::Queued),
        (303, State::InProgress),
        (306, State::Completed),
        (307, State::Completed),
    ];
    ensure!(ledger(&world, "test-name").await? == States::from(expected), "{:?}", ledger(&world, "test-name").await?);
    for name in ["a-broken", "a-none", "a-two", "a-push", "bad", "meta"] {
        ensure!(ledger(&world, name).await?.is_empty(), "{name}");
    }
    let answer = send(&address, &request("GET", &[], "")).await?;
    ensure!((answer.status, answer.text.as_str()) == (200, "webhook server is running\n"), "{answer:?}");
    server.terminate().await;
    world.stop().await;
    Ok(())
}

/// No operator runs here, so nobody proves anything: the autoscaler is new, and one that has proved its scope gets the job all the same.
#[tokio::test(flavor = "multi_thread")]
async fn job_of_an_autoscaler_whose_scope_is_being_proved_is_to_be_delivered_again() -> Result<()> {
    let world = world(|_| {}).await?;
    pool(&world, "web", &json!({"repository": "acme/app", "labels": ["web"]})).await?;
    let from = json!({"secretRef": {"name": "own"}});
    let own = json!({"repository": "acme/app", "labels": ["own", "web"], "githubAPICredentialsFrom": from});
    pool(&world, "own", &own).await?;
    let server = receiver(&world, &[]).await?;
    let address = address(&server)?;
    eventually(&address, &event("queued", 1, "acme/app", &["web"]), "scaled web by 1").await?;
    let text = "the scope of default/own is being proved: see its condition ScopeProved; deliver it again\n";
    eventually(&address, &event("queued", 2, "acme/app", &["own"]), text).await?;
    let answer = post(&address, "workflow_job", &event("queued", 3, "acme/app", &["own"])).await?;
    ensure!((answer.status, answer.text.as_str()) == (503, text), "{answer:?}");
    let answer = post(&address, "workflow_job", &event("queued", 4, "acme/app", &["none"])).await?;
    ensure!((answer.status, answer.text.as_str()) == (200, NONE), "{answer:?}");
    ensure!(ledger(&world, "own").await?.is_empty(), "nothing is promised");
    server.terminate().await;
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_github_did_not_send_is_refused() -> Result<()> {
    let world = world(|_| {}).await?;
    pool(&world, "web", &json!({"repository": "acme/app"})).await?;
    let server = receiver(&world, &["--webhook-body-limit=5000", "--webhook-allow-sha1"]).await?;
    let address = address(&server)?;
    eventually(&address, &event("queued", 1, "acme/app", &[]), "scaled web by 1").await?;
    let body = event("queued", 2, "acme/app", &[]).to_string();
    let headers = signed("workflow_job", &body);
    let without = |name: &str| -> Vec<_> { headers.iter().filter(|(other, _)| *other != name).cloned().collect() };
    let changed = |name: &'static str, value: String| -> Vec<_> { without(name).into_iter().chain([(name, value)]).collect() };
    for (headers, body, status) in [
        (without("x-hub-signature-256"), body.clone(), 401),
        (headers.clone(), body.replace(":2,", ":3,"), 401),
        (changed("x-hub-signature-256", format!("sha256={}", "0".repeat(64))), body.clone(), 401),
        (changed("x-hub-signature-256", format!("sha1={}", tag(hmac::HMAC_SHA256, &body))), body.clone(), 401),
        (changed("content-type", "text/plain".to_owned()), body.clone(), 415),
        (without("x-github-event"), body.clone(), 400),
        (signed("workflow_job", "{}"), "{}".to_owned(), 422),
        (signed("workflow_job", "nonsense"), "nonsense".to_owned(), 422),
        (changed("content-type", "application/x-www-form-urlencoded".to_owned()), body.clone(), 422),
        (signed("ping", &" ".repeat(5001)), " ".repeat(5001), 413),
    ] {
        let answer = send(&address, &request("POST", &headers, &body)).await?;
        ensure!(answer.status == status && !answer.text.contains(SECRET), "{status} for {headers:?}: {answer:?}");
    }
    ensure!(ledger(&world, "web").await? == States::from([(1, State::Queued)]), "nothing of it counts");
    let sha1: Vec<_> = without("x-hub-signature-256")
        .into_iter()
        .chain([("x-hub-signature", format!("sha1={}", tag(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &body)))])
        .collect();
    let answer = send(&address, &request("POST", &sha1, &body)).await?;
    ensure!(answer.status == 200, "allowed by the option: {answer:?}");
    let form = body.bytes().fold(String::from("payload="), |text, byte| text + &format!("%{byte:02x}")).replace(":2,", ":4,");
    let mut headers = signed("workflow_job", &form);
    headers.retain(|(name, _)| *name != "content-type");
    headers.push(("content-type", "application/x-www-form-urlencoded".to_owned()));
    let answer = send(&address, &request("POST", &headers, &form)).await?;
    ensure!(answer.text == "scaled web by 1", "a form: {answer:?}");
    let metrics = server.metrics().await?;
    for line in [
        r#"pacer_webhook_events_total{event="unknown",action="none",outcome="refused"} 10"#,
        r#"pacer_webhook_events_total{event="workflow_job",action="queued",outcome="known"} 1"#,
    ] {
        ensure!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    server.terminate().await;
    ensure!(!server.logs().contains(SECRET), "the secret is in the log");
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_may_come_twice_in_any_order_and_after_changes() -> Result<()> {
    let world = world(|_| {}).await?;
    pool(&world, "web", &json!({"repository": "acme/app", "labels": ["web"]})).await?;
    let server = receiver(&world, &[]).await?;
    let address = address(&server)?;
    eventually(&address, &event("queued", 1, "acme/app", &["web"]), "scaled web by 1").await?;
    let deliver = async |action: &str, id: u64| -> Result<()> {
        let answer = post(&address, "workflow_job", &event(action, id, "acme/app", &["web"])).await?;
        ensure!(answer.status == 200 && answer.text != NONE, "{action} {id}: {answer:?}");
        Ok(())
    };
    for (action, id) in
        [("completed", 2), ("queued", 2), ("in_progress", 2), ("in_progress", 3), ("queued", 3), ("queued", 1), ("queued", 1)]
    {
        deliver(action, id).await?;
    }
    let states = States::from([(1, State::Queued), (2, State::Completed), (3, State::InProgress)]);
    ensure!(ledger(&world, "web").await? == states, "{:?}", ledger(&world, "web").await?);
    // From here on nobody would find the autoscaler by its labels; the jobs that it knows go on.
    change_template(&world, "web", &json!({"labels": ["else"]})).await?;
    eventually(&address, &event("queued", 4, "acme/app", &["else"]), "scaled web by 1").await?;
    let answer = post(&address, "workflow_job", &event("queued", 5, "acme/app", &["web"])).await?;
    ensure!(answer.text == NONE, "{answer:?}");
    deliver("in_progress", 1).await?;
    deliver("completed", 3).await?;
    deliver("completed", 1).await?;
    let states = States::from([(1, State::Completed), (2, State::Completed), (3, State::Completed), (4, State::Queued)]);
    ensure!(ledger(&world, "web").await? == states, "{:?}", ledger(&world, "web").await?);
    // Ten seconds from created_at to started_at, once per job that started.
    let metrics = server.metrics().await?;
    let labels = r#"{namespace="default",horizontalrunnerautoscaler="web"}"#;
    for line in [format!("pacer_job_queue_seconds_sum{labels} 20.0"), format!("pacer_job_queue_seconds_count{labels} 2")] {
        ensure!(metrics.contains(&line), "{line} is not in\n{metrics}\n{}", server.log_tail(20_000));
    }
    // However often and in which order they came.
    let about = r#"organization="",repository="app",repository_full_name="acme/app",owner="acme""#;
    for (name, more, value) in [
        ("github_workflow_jobs_queued_total", "", "5"),
        ("github_workflow_jobs_started_total", "", "3"),
        ("github_workflow_jobs_completed_total", "", "3"),
        ("github_workflow_job_conclusions_total", r#",job_conclusion="success""#, "3"),
        ("github_workflow_job_queue_duration_seconds_sum", "", "30.0"),
        ("github_workflow_job_run_duration_seconds_sum", r#",job_conclusion="success""#, "150.0"),
    ] {
        let line = format!("{name}{{{about}{more}}} {value}\n");
        ensure!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
    pacer_suites::delete::<HorizontalRunnerAutoscaler>(&world, "web").await?;
    eventually(&address, &event("completed", 4, "acme/app", &["else"]), NONE).await?;
    let dropped = async {
        while server.metrics().await?.contains(labels) {
            // It looks every ten seconds.
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
        Ok::<_, anyhow::Error>(())
    };
    tokio::time::timeout(PATIENCE, dropped).await.context("figures of an autoscaler that is gone")??;
    server.terminate().await;
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_simulated_github_delivers_badly_and_the_ledger_is_right() -> Result<()> {
    let world = world(|_| {}).await?;
    world.github.add_enterprise("corp", &["acme"]);
    pool(&world, "web", &json!({"enterprise": "corp", "labels": ["web"]})).await?;
    let server = receiver(&world, &[]).await?;
    let address = address(&server)?;
    let mut first = event("queued", 1, "acme/app", &["web"]);
    first["enterprise"] = json!({"slug": "corp"});
    eventually(&address, &first, "scaled web by 1").await?;
    let hook = world.github.add_hook(Hook {
        owner: HookOwner::Scope(Scope::organization("acme")),
        url: format!("http://{address}/"),
        secret: SECRET.to_owned(),
    });
    world.github.deliver(Delivering { duplicate_every: Some(3), reorder_within: 10, ..Delivering::default() });
    world.github.ping(hook);
    let jobs: Vec<_> =
        (0..60).map(|_| world.github.queue_job(JobSpec::new("acme/app", ["self-hosted", "web"]))).collect::<Result<_, _>>()?;
    for job in jobs.iter().take(20) {
        world.github.cancel_job(*job);
    }
    let delivered =
        world.github.wait_for(PATIENCE, |view| view.deliveries().pending == 0 && view.deliveries().accepted > 80).await;
    world.check(delivered).await?;
    ensure!(world.github.view(|view| view.deliveries().failed) == 0, "{:?}", world.github.deliveries());
    let states = ledger(&world, "web").await?;
    for (index, job) in jobs.iter().enumerate() {
        let expected = if index < 20 { State::Completed } else { State::Queued };
        ensure!(states.get(&job.0) == Some(&expected), "job {index}: {states:?}");
    }
    ensure!(states.len() == 61, "{states:?}");
    server.terminate().await;
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_autoscalers_one_is_chosen_and_the_others_are_named() -> Result<()> {
    let world = world(|_| {}).await?;
    for repository in ["app", "other"] {
        world.github.add(&Scope::repository("acme", repository));
    }
    let only_other = GroupVisibility::Selected(["other".to_owned()].into());
    world.github.add_enterprise("corp", &["acme"]);
    world.github.add_group(&Scope::enterprise("corp"), "Shared", GroupVisibility::Selected(["acme".to_owned()].into()));
    world.github.add_group(&Scope::enterprise("corp"), "Foreign", GroupVisibility::Selected(["else".to_owned()].into()));
    pool(&world, "shared", &json!({"enterprise": "corp", "group": "Shared", "labels": ["corp", "big"]})).await?;
    pool(&world, "foreign", &json!({"enterprise": "corp", "group": "Foreign", "labels": ["foreign"]})).await?;
    world.github.add_group(&Scope::organization("acme"), "Big", only_other);
    pool(&world, "hidden", &json!({"organization": "acme", "group": "Big", "labels": ["big", "gpu"]})).await?;
    pool(&world, "b-organization", &json!({"organization": "acme", "labels": ["web"]})).await?;
    pool(&world, "own", &json!({"repository": "acme/app", "labels": ["special"]})).await?;
    pool(&world, "a-organization", &json!({"organization": "acme", "labels": ["web", "special"]})).await?;
    let server = receiver(&world, &["--common-runner-labels=common"]).await?;
    let address = address(&server)?;
    let ages = api::<HorizontalRunnerAutoscaler>(&world).list(&kube::api::ListParams::default()).await?;
    let mut web: Vec<_> = ages.iter().filter(|one| one.name_any().ends_with("organization")).collect();
    web.sort_by_key(|one| (one.metadata.creation_timestamp.clone().map(|time| time.0), one.name_any()));
    let [first, second] = web.as_slice() else { anyhow::bail!("{web:?}") };
    let both = format!("scaled {} by 1; these match as well: default/{}", first.name_any(), second.name_any());
    eventually(&address, &event("queued", 1, "acme/app", &["web", "common"]), &both).await?;
    for (id, repository, labels, text) in [
        (2, "acme/other", ["web"], both.as_str()),
        (3, "acme/app", ["special"], "scaled own by 1"),
        (4, "acme/other", ["special"], "scaled a-organization by 1"),
        (5, "acme/app", ["gpu"], NONE),
        (6, "acme/other", ["big"], "scaled hidden by 1; these match as well: default/shared"),
        // The organization's group is not open to this repository; the enterprise's is.
        (7, "acme/app", ["big"], "scaled shared by 1"),
        (8, "acme/app", ["corp"], "scaled shared by 1"),
        (9, "acme/app", ["foreign"], NONE),
    ] {
        let mut job = event("queued", id, repository, &labels);
        job["enterprise"] = json!({"slug": "corp"});
        let answer = post(&address, "workflow_job", &job).await?;
        ensure!((answer.status, answer.text.as_str()) == (200, text), "{id}: {answer:?}");
    }
    let log = server.logs();
    ensure!(log.contains("its runner group is not open to this repository"), "the reason is not in the log");
    server.terminate().await;
    world.stop().await;
    Ok(())
}
