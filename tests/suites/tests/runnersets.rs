//! RunnerSets on the real API server, where they differ from RunnerDeployments: names, claims that go from one runner to the next, what ARC
//! left of them. What both have in common is in the suites `flows` and `faults`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::api::{ListParams, PostParams};
use pacer_api::condition::{self, ConditionType};
use pacer_api::{HorizontalRunnerAutoscaler, Runner, RunnerSet};
use pacer_harness::github::{RouteKind, Scope};
use pacer_harness::world::World;
use pacer_suites::fleet::{change, runner_set, with_volumes};
use pacer_suites::webhook::hooked_world;
use pacer_suites::{
    BRISK, api, apply, brisk_world, delete, end, event, nothing_left, only, queue, runners, running, settled, succeeded, until,
};
use serde_json::{Value, json};

async fn claims(world: &World) -> Result<BTreeSet<String>> {
    let all = api::<PersistentVolumeClaim>(world).list(&ListParams::default()).await?;
    Ok(all.iter().map(ResourceExt::name_any).collect())
}

/// Names and UIDs of all pods.
async fn pods(world: &World) -> Result<BTreeMap<String, String>> {
    let all = api::<Pod>(world).list(&ListParams::default()).await?;
    Ok(all.iter().map(|pod| (pod.name_any(), pod.uid().unwrap_or_default())).collect())
}

/// How many pods each claim has served.
fn served(world: &World) -> BTreeMap<String, usize> {
    let mut served = BTreeMap::new();
    for mount in world.nodes.iter().flat_map(|nodes| nodes.mounts()) {
        *served.entry(mount.claim).or_default() += 1;
    }
    served
}

/// Waits until the operator has seen so many runners at GitHub. One that is over before it was seen there looks like one that could not register,
/// and the next is made after a pause.
async fn known(world: &World, count: usize) -> Result<()> {
    until::<Runner>(world, &format!("{count} runners that the operator knows"), |all| {
        let known = |runner: &&&Runner| runner.status.as_ref().is_some_and(|status| status.runner_id.is_some());
        all.iter().filter(known).count() == count
    })
    .await?;
    Ok(())
}

/// Scales by the command that people use.
async fn kubectl_scale(world: &World, name: &str, replicas: u32) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    let output = world.plane.kubectl(&["scale", "runnerset", name, &replicas]).await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_becomes_runners_named_like_a_stateful_sets_pods_and_goes_back_to_nothing() -> Result<()> {
    let world = brisk_world(&["--common-runner-labels=common"], |_| {}).await?;
    let mut set = runner_set("web", 2);
    set["spec"]["minReadySeconds"] = json!(5);
    set["metadata"]["annotations"] = json!({"actions.summerwind.dev/policies": "opinions"});
    apply(&world, &set).await?;
    runners(&world, "2 online", |counts| counts.online == 2).await?;
    let sets = until::<RunnerSet>(&world, "a ready set", |all| {
        all.iter().any(|set| {
            let status = set.status.clone().unwrap_or_default();
            condition::holds(&status.conditions, ConditionType::Ready) && status.idle_replicas == Some(2)
        })
    })
    .await?;
    let status = only(sets)?.status.unwrap_or_default();
    let numbers = (status.replicas, status.available_replicas, status.updated_replicas, status.desired_replicas);
    ensure!(numbers == (Some(2), Some(2), Some(2), Some(2)) && status.observed_generation == Some(1), "{status:?}");
    ensure!(status.selector.as_deref() == Some("runnerset-name=web"), "{status:?}");
    let accepted = status.conditions.iter().find(|condition| condition.type_ == "Accepted").context("no Accepted")?;
    ensure!(accepted.status == "True" && accepted.message.contains("minReadySeconds"), "{accepted:?}");

    until::<RunnerSet>(&world, "a word about the missing policy set", |all| {
        let said = |condition: &Condition| condition.type_ == "PolicyAccepted" && condition.status == "False";
        all.iter().any(|set| set.status.iter().flat_map(|status| &status.conditions).any(said))
    })
    .await?;

    for pod in api::<Pod>(&world).list(&ListParams::default()).await? {
        let name = pod.name_any();
        let middle = name.strip_prefix("web-").and_then(|rest| rest.strip_suffix("-0"));
        ensure!(middle.is_some_and(|letters| letters.len() == 6), "{name}");
        let labels = pod.labels();
        for (key, value) in [
            ("app", "web"),
            ("runnerset-name", "web"),
            ("actions-runner", ""),
            ("statefulset.kubernetes.io/pod-name", name.as_str()),
            ("apps.kubernetes.io/pod-index", "0"),
        ] {
            ensure!(labels.get(key).map(String::as_str) == Some(value), "{key}: {labels:?}");
        }
        ensure!(labels.contains_key("runner-template-hash"), "{labels:?}");
        let spec = pod.spec.context("no spec")?;
        ensure!(spec.restart_policy.as_deref() == Some("Never"));
        ensure!((spec.hostname.as_deref(), spec.subdomain.as_deref()) == (Some(name.as_str()), Some("workers")));
        let container = spec.containers.first().context("no container")?;
        let variable = |name: &str| container.env.iter().flatten().find(|variable| variable.name == name);
        ensure!(variable("RUNNER_NAME").and_then(|found| found.value.clone()).as_deref() == Some(name.as_str()));
        ensure!(variable("RUNNER_LABELS").and_then(|found| found.value.clone()).as_deref() == Some("web,common"));
        let token = variable("RUNNER_TOKEN").context("no token")?;
        ensure!(token.value.is_none() && token.value_from.iter().any(|source| source.secret_key_ref.is_some()), "{token:?}");
    }

    kubectl_scale(&world, "web", 4).await?;
    settled(&world, 4).await?;
    known(&world, 4).await?;
    queue(&world, "web", 8, Duration::from_millis(200))?;
    succeeded(&world, 8).await?;
    settled(&world, 4).await?;
    let metrics = world.operator.as_ref().context("no operator")?.get("/metrics").await?;
    ensure!(metrics.contains(r#"runnerset_spec_replicas{runnerset="web",namespace="default"} 4"#), "{metrics}");
    kubectl_scale(&world, "web", 0).await?;
    settled(&world, 0).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_runner_gets_the_volume_of_the_one_before() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let mut set = with_volumes(runner_set("web", 3));
    set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": "Delete"});
    apply(&world, &set).await?;
    settled(&world, 3).await?;
    let first = claims(&world).await?;
    let pods: BTreeSet<String> =
        api::<Pod>(&world).list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
    ensure!(first == pods.iter().map(|pod| format!("cache-{pod}")).collect(), "{first:?} of {pods:?}");
    for claim in api::<PersistentVolumeClaim>(&world).list(&ListParams::default()).await? {
        ensure!(claim.labels().get("app").map(String::as_str) == Some("web"), "{:?}", claim.labels());
        ensure!(claim.owner_references().iter().any(|owner| owner.kind == "RunnerSet"), "{:?}", claim.owner_references());
    }
    for done in 1..=4 {
        known(&world, 3).await?;
        queue(&world, "web", 3, Duration::from_millis(200))?;
        succeeded(&world, done * 3).await?;
        settled(&world, 3).await?;
    }
    // Twelve jobs, fifteen runners, three volumes.
    let served = served(&world);
    let reused = if claims(&world).await? == first && served.len() == 3 && served.values().sum::<usize>() == 15 {
        Ok(())
    } else {
        Err(format!("{served:?} by claims {:?}, {first:?} at first", claims(&world).await?))
    };
    world.check(reused).await?;

    // What stays over is for the next increase.
    kubectl_scale(&world, "web", 1).await?;
    settled(&world, 1).await?;
    ensure!(claims(&world).await? == first, "claims went although they are retained");
    kubectl_scale(&world, "web", 3).await?;
    settled(&world, 3).await?;
    ensure!(claims(&world).await? == first, "claims were made although some were free");

    // No more than there are runners, once that is asked for.
    change::<RunnerSet>(&world, "web", &json!({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}})).await?;
    kubectl_scale(&world, "web", 1).await?;
    settled(&world, 1).await?;
    until::<PersistentVolumeClaim>(&world, "one claim", |all| all.len() == 1).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_a_set_that_is_gone_are_reported_used_again_and_deleted_after_their_time() -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    apply(&world, &with_volumes(runner_set("web", 2))).await?;
    settled(&world, 2).await?;
    let first = claims(&world).await?;
    delete::<RunnerSet>(&world, "web").await?;
    nothing_left(&world).await?;
    event(&world, "ClaimUnusable", |note| note.contains("no RunnerSet web")).await?;
    ensure!(claims(&world).await? == first, "claims went although nobody asked for it");

    // The set is back, and with it what is on the volumes.
    apply(&world, &with_volumes(runner_set("web", 2))).await?;
    settled(&world, 2).await?;
    ensure!(claims(&world).await? == first, "{:?} instead of {first:?}", claims(&world).await?);
    let unmarked = |claim: &&PersistentVolumeClaim| !claim.annotations().contains_key("actions.summerwind.dev/unusable-since");
    until::<PersistentVolumeClaim>(&world, "no marks", |all| all.iter().all(unmarked)).await?;
    delete::<RunnerSet>(&world, "web").await?;
    nothing_left(&world).await?;

    let operator = world.operator.as_mut().context("no operator")?;
    operator.terminate().await;
    operator.restart_with(&["--runner-set-claim-retention=1s"]).await?;
    until::<PersistentVolumeClaim>(&world, "no claims", |all| all.is_empty()).await?;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_webhooks_gets_one_runner_per_job_and_no_more_volumes_than_runners_at_once() -> Result<()> {
    let world = hooked_world(&BRISK).await?;
    let mut set = with_volumes(runner_set("web", 0));
    set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": "Delete"});
    apply(&world, &set).await?;
    let autoscaler = json!({
        "apiVersion": "actions.summerwind.dev/v1alpha1",
        "kind": "HorizontalRunnerAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"kind": "RunnerSet", "name": "web"},
            "minReplicas": 0,
            "maxReplicas": 8,
            "scaleUpTriggers": [{"githubEvent": {"workflowJob": {}}, "duration": "30m"}],
        },
    });
    apply(&world, &autoscaler).await?;
    let desired = |wanted: i32| {
        move |all: &[&HorizontalRunnerAutoscaler]| {
            all.iter().any(|one| one.status.as_ref().is_some_and(|status| status.desired_replicas == Some(wanted)))
        }
    };
    until(&world, "the first number", desired(0)).await?;
    queue(&world, "web", 20, Duration::from_secs(2))?;
    succeeded(&world, 20).await?;
    until(&world, "back to none", desired(0)).await?;
    settled(&world, 0).await?;
    let made = world.github.runners().ever_registered;
    ensure!(made == 20, "{made} runners were made for 20 jobs");
    let volumes = claims(&world).await?.len();
    let few = if volumes <= 16 { Ok(()) } else { Err(format!("{volumes} claims for at most 8 runners at once")) };
    world.check(few).await?;
    end(world).await
}

/// What ARC leaves for one replica of a RunnerSet: a StatefulSet, its pod with ARC's finalizer, its claim.
async fn left_by_arc(world: &World, owner: &RunnerSet, suffix: &str, token: &str) -> Result<()> {
    let set = owner.name_any();
    let name = format!("{set}-{suffix}");
    let pod = format!("{name}-0");
    let selected = json!({"app": set, "runnerset-name": set, "runner-template-hash": "84f8dbc5b9"});
    let environment: Vec<Value> = [
        ("RUNNER_NAME", pod.as_str()),
        ("RUNNER_TOKEN", token),
        ("RUNNER_REPO", "acme/app"),
        ("RUNNER_LABELS", &set),
        ("RUNNER_EPHEMERAL", "true"),
        ("GITHUB_URL", &world.github.api_url()),
    ]
    .map(|(name, value)| json!({"name": name, "value": value}))
    .to_vec();
    let container = json!({
        "name": "runner",
        "image": "summerwind/actions-runner",
        "env": environment,
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
    });
    let controlled_by = |kind: &str, version: &str, name: &str, uid: Option<String>| json!([{"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true}]);
    let stateful = json!({
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"runner-template-hash": "84f8dbc5b9"},
            "ownerReferences": controlled_by("RunnerSet", "actions.summerwind.dev/v1alpha1", &set, owner.uid()),
        },
        "spec": {
            "replicas": 1,
            "serviceName": "workers",
            "selector": {"matchLabels": selected},
            "template": {"metadata": {"labels": selected}, "spec": {"containers": [container]}},
            "volumeClaimTemplates": owner.spec.stateful.volume_claim_templates,
        },
    });
    let stateful = api::<StatefulSet>(world).create(&PostParams::default(), &serde_json::from_value(stateful)?).await?;
    let claim = json!({
        "metadata": {"name": format!("cache-{pod}"), "namespace": "default", "labels": {
            "app": set, "runnerset-name": set, "runner-template-hash": "84f8dbc5b9", "runner-statefulset-name": name,
        }},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    api::<PersistentVolumeClaim>(world).create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
    let object = json!({
        "metadata": {
            "name": pod,
            "namespace": "default",
            "labels": {
                "app": set,
                "runnerset-name": set,
                "runner-template-hash": "84f8dbc5b9",
                "actions-runner": "",
                "actions-runner-controller/inject-registration-token": "true",
                "statefulset.kubernetes.io/pod-name": pod,
            },
            "finalizers": ["actions.summerwind.dev/runner-pod"],
            "ownerReferences": controlled_by("StatefulSet", "apps/v1", &name, stateful.uid()),
        },
        "spec": {
            "restartPolicy": "Never",
            "hostname": pod,
            "subdomain": "workers",
            "containers": [container],
            "volumes": [{"name": "cache", "persistentVolumeClaim": {"claimName": format!("cache-{pod}")}}],
        },
    });
    api::<Pod>(world).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_runners_that_arc_left_of_which_four_are_busy_notice_nothing() -> Result<()> {
    // What its controller does to pods is ARC's matter; here they are as ARC leaves them.
    let mut world =
        brisk_world(&[], |options| options.plane.without_controllers.push("statefulset-controller".to_owned())).await?;
    world.operator.as_ref().context("no operator")?.terminate().await;
    let mut set = with_volumes(runner_set("web", 10));
    set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": "Delete"});
    apply(&world, &set).await?;
    let owner = api::<RunnerSet>(&world).get("web").await?;
    let token = world.github.registration_token(&Scope::repository("acme", "app"));
    for number in 0..10 {
        left_by_arc(&world, &owner, &format!("a2c4{number}"), &token).await?;
    }
    runners(&world, "10 online", |counts| counts.online == 10).await?;
    queue(&world, "web", 4, Duration::from_secs(180))?;
    running(&world, 4).await?;
    let registered = world.github.registrations(&Scope::repository("acme", "app"));
    let busy: BTreeSet<String> = registered.into_iter().filter(|one| one.job.is_some()).map(|one| one.name).collect();
    let (first, arcs) = (claims(&world).await?, pods(&world).await?);
    let seen = world.nodes.as_ref().context("no nodes")?.tally().seen();
    world.operator.as_mut().context("no operator")?.restart().await?;

    until::<StatefulSet>(&world, "no StatefulSets", |all| all.is_empty()).await?;
    until::<Pod>(&world, "pods of Runners", |all| {
        let of_runner = |pod: &&Pod| matches!(pod.owner_references(), [owner] if owner.kind == "Runner");
        all.len() == 10 && all.iter().all(of_runner)
    })
    .await?;
    settled(&world, 10).await?;
    ensure!(pods(&world).await? == arcs, "{:?} instead of {arcs:?}", pods(&world).await?);
    let made = world.nodes.as_ref().context("no nodes")?.tally().seen() - seen;
    ensure!(made == 0, "{made} pods were made where ten were there");
    ensure!(claims(&world).await? == first, "{:?} instead of {first:?}", claims(&world).await?);
    ensure!(world.github.count(RouteKind::DeleteRunner).requests == 0 && world.github.runners().ever_registered == 10);

    kubectl_scale(&world, "web", 12).await?;
    settled(&world, 12).await?;
    let now = pods(&world).await?;
    ensure!(arcs.iter().all(|(name, uid)| now.get(name) == Some(uid)), "a pod of ARC's is gone: {now:?}");
    ensure!(claims(&world).await?.is_superset(&first), "a claim of ARC's is gone");

    // Down, to those that are busy: nobody asks them, and their claims stay theirs.
    kubectl_scale(&world, "web", 4).await?;
    settled(&world, 4).await?;
    let left: BTreeSet<String> = pods(&world).await?.into_keys().collect();
    ensure!(left == busy, "{left:?} are left, {busy:?} were busy");
    ensure!(world.github.busy_deletes_refused() == 0, "busy runners were asked to go");
    ensure!(world.github.jobs().in_progress == 4, "{:?}", world.github.jobs());
    succeeded(&world, 4).await?;
    until::<Pod>(&world, "new pods for those that finished", |all| {
        all.len() == 4 && all.iter().all(|pod| pod.finalizers().is_empty() && !busy.contains(&pod.name_any()))
    })
    .await?;
    settled(&world, 4).await?;
    let taken = claims(&world).await?;
    ensure!(taken.len() == 12 && taken.is_superset(&first), "{taken:?} instead of {first:?} and two more");
    ensure!(world.github.jobs().lost == 0, "{:?}", world.github.jobs());
    end(world).await
}
