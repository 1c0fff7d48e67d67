//! What the fleet would be by now if a policy in shadow decided, said beside a fleet that it changes nothing of.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::ListParams;
use pacer_api::{HorizontalRunnerAutoscaler, Runner};
use pacer_harness::github::Tail;
use pacer_harness::world::{Options, World};
use pacer_suites::webhook::hooked_world_with;
use pacer_suites::{BRISK, NAMESPACE, api, apply, deployment, only, queue, settled, succeeded, until, with_spec};
use serde_json::{Value, json};

use super::verbs::said;
use super::{annotation, metric, phase, status};

/// The name of the pool in statuses.
const POOL: &str = "default/web";

/// Keeps the minimum, whatever waits.
const STEADY: &str = "export const name = \"steady\";\nexport function capacity() { return { reservations: [] }; }\n";

/// Holds three runners more.
const SPARE: &str = "export const name = \"spare\";\nexport function capacity() {\n\
    \x20 return { reservations: [{ id: \"spare\", jobs: [], replicas: 3, effective: 0, expires: 600, reason: \"spare\" }] };\n}\n";

/// Fails where it is not told of GitHub's budget, which no simulation knows.
const FAULTY: &str = "export const name = \"faulty\";\nexport function capacity({ pool }) {\n\
    \x20 if (pool.name === \"web\" && !pool.budget) throw new Error(\"no budget\");\n  return { reservations: [] };\n}\n";

/// Two runners that stay, and a set that keeps them and has `shadow` in shadow.
async fn scene(shadow: &str) -> Result<World> {
    // A handful of short jobs: what GitHub takes to hand each one out would be much of their waits, and another one in each simulation.
    let at_once = |options: &mut Options| {
        options.github.behaviour.assigned_late = Duration::ZERO..=Duration::ZERO;
        options.github.behaviour.events_late = Tail::default();
    };
    let world = hooked_world_with(&[&BRISK[..], &["--shadow-simulation-interval=2s"]].concat(), at_once).await?;
    let mut web = with_spec(deployment("web", 2), "ephemeral", false.into());
    web["metadata"]["annotations"] = json!({annotation::POLICIES: "opinions"});
    apply(&world, &web).await?;
    settled(&world, 2).await?;
    let sheet = "capacity:\n- {module: steady.js, limits: {deadlineMilliseconds: 100}}\n\
                 - {module: shadow.js, mode: shadow, limits: {deadlineMilliseconds: 100}}\n";
    let set = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "opinions", "namespace": NAMESPACE},
        "data": {"policies.yaml": sheet, "steady.js": STEADY, "shadow.js": shadow},
    });
    apply(&world, &set).await?;
    status(&world, NAMESPACE, "opinions", "the set in force", phase("Active")).await?;
    let autoscaler = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1", "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"name": "web"}, "minReplicas": 2, "maxReplicas": 9,
            "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}],
        },
    });
    apply(&world, &autoscaler).await?;
    until::<HorizontalRunnerAutoscaler>(&world, "a number", |all| {
        all.iter().any(|one| one.status.as_ref().and_then(|status| status.desired_replicas) == Some(2))
    })
    .await?;
    // What happened before the pool is followed is in no simulation.
    metric(&world, "pacer_shadow_would_be_refused{namespace=\"default\",pool=\"web\",reason=\"NoJob\"}", |one| one == 1).await?;
    // Three rounds of two. A simulated wait may be off by a tenth: enough for what a busy machine takes between two jobs.
    queue(&world, "web", 6, Duration::from_secs(20))?;
    succeeded(&world, 6).await?;
    Ok(world)
}

/// The fleet has the runners it had, and the policy that decides has done well.
async fn unaffected(world: &World, names: &[String], told: &Value) -> Result<()> {
    let (now, _) = fleet(world).await?;
    ensure!(now == names, "{names:?} were there, and now {now:?}");
    let decides = &told["decisions"]["capacity"]["enforced"];
    ensure!(
        decides["breaker"] == "closed" && decides["policy"].as_str().is_some_and(|name| name.starts_with("steady@")),
        "{told}"
    );
    ensure!(told["phase"] == "Active" && told["lastError"].is_null(), "{told}");
    Ok(())
}

/// Names of the runners, and the number that is wanted.
async fn fleet(world: &World) -> Result<(Vec<String>, Option<i32>)> {
    let runners = api::<Runner>(world).list(&ListParams::default()).await?.items;
    let mut names: Vec<String> = runners.into_iter().filter_map(|runner| runner.metadata.name).collect();
    names.sort();
    let autoscaler = only(api::<HorizontalRunnerAutoscaler>(world).list(&ListParams::default()).await?.items)?;
    Ok((names, autoscaler.status.and_then(|status| status.desired_replicas)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_stays_as_it_is_and_the_status_says_what_the_policy_in_shadow_would_make_of_it() -> Result<()> {
    let world = scene(SPARE).await?;
    let (names, _) = fleet(&world).await?;
    for (policies, runners) in [("recorded", 2), ("in_force", 2), ("shadow", 5)] {
        let name = format!("pacer_shadow_would_be_runners{{namespace=\"default\",pool=\"web\",policies=\"{policies}\"}}");
        metric(&world, &name, |count| count == runners).await?;
    }
    let told = status(&world, NAMESPACE, "opinions", "what the fleet would be", |status| {
        let found = &status["wouldBe"][POOL];
        found["shadow"]["runners"] == 5 && found["jobs"] == 6
    })
    .await?;
    let found = &told["wouldBe"][POOL];
    println!("{found:#}");
    let minutes = |whose: &str| found[whose]["runnerMinutes"].as_f64().context("minutes");
    ensure!(found["recorded"]["runners"] == 2 && found["inForce"]["runners"] == 2 && found["jobs"] == 6, "{found:#}");
    ensure!(minutes("shadow")? > 1.5 * minutes("inForce")?, "{found:#}");
    let text =
        said(&world, &["status", "-n", NAMESPACE], true, &["would be    default/web, 6 jobs since", "in shadow  5"]).await?;
    println!("{text}");
    unaffected(&world, &names, &told).await?;
    ensure!(fleet(&world).await?.1 == Some(2), "the number is that of the policy that decides");

    // Out of shadow again: nothing is said or simulated any more.
    let set = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "opinions", "namespace": NAMESPACE},
        "data": {"policies.yaml": "capacity: {module: steady.js}\n", "steady.js": STEADY}});
    apply(&world, &set).await?;
    status(&world, NAMESPACE, "opinions", "nothing about what the fleet would be", |status| {
        status["digest"] != told["digest"] && status["wouldBe"].is_null()
    })
    .await?;
    let shown = world.operator.as_ref().context("no operator")?.metrics().await?;
    ensure!(!shown.contains("pacer_shadow_would_be_runners{"), "{shown}");
    world.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_fails_in_the_simulation_changes_nothing_but_what_is_said_of_it() -> Result<()> {
    let world = scene(FAULTY).await?;
    let (names, _) = fleet(&world).await?;
    metric(&world, "pacer_shadow_would_be_refused{namespace=\"default\",pool=\"web\",reason=\"ShadowFailed\"}", |one| one == 1)
        .await?;
    let told = status(&world, NAMESPACE, "opinions", "why nothing is said", |status| {
        status["wouldBe"][POOL]["reason"] == "ShadowFailed"
    })
    .await?;
    ensure!(told["wouldBe"][POOL]["message"].as_str().is_some_and(|text| text.contains("kept failing")), "{told}");
    // Asked beside real decisions it does not fail so: what failed in the simulation counts nowhere else. On a starved machine a call may miss its
    // deadline.
    let shadow = &told["decisions"]["capacity"]["shadow"];
    let fault = shadow["lastFault"].as_str().unwrap_or("it ran past its deadline");
    ensure!(shadow["breaker"] == "closed" && fault.contains("deadline"), "{told}");
    unaffected(&world, &names, &told).await?;
    queue(&world, "web", 2, Duration::from_secs(1))?;
    succeeded(&world, 8).await?;
    unaffected(&world, &names, &told).await?;
    world.stop().await;
    Ok(())
}
