//! Pods that cannot be made or cannot start: waited for, not made again and again.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams};
use pacer_api::condition::{self, ConditionType};
use pacer_api::{Runner, RunnerReplicaSet};
use pacer_harness::github::{Effect, Fault, RouteKind, Routes};
use pacer_harness::nodes::{Affected, Trouble};
use pacer_harness::world::World;
use pacer_suites::fleet::Kind;
use pacer_suites::{TOKENS, api, apply, brisk_world, end, event, for_both_kinds, online_in, runners, settled, until};
use serde_json::json;

for_both_kinds!(
    runners_that_cannot_start_are_not_made_again_and_again,
    pods_that_the_kubelet_refuses_are_made_again_ever_more_slowly,
    a_quota_is_waited_for_and_blocks_no_other_namespace,
    a_runner_without_its_token_says_so_while_github_fails,
);

/// How many pods each fleet has had; fleets have names of one length.
fn made(world: &World) -> BTreeMap<String, usize> {
    let mut made = BTreeMap::new();
    for life in world.nodes.as_ref().map(|nodes| nodes.lives()).unwrap_or_default() {
        *made.entry(life.name.chars().take(5).collect()).or_default() += 1;
    }
    made
}

async fn runners_that_cannot_start_are_not_made_again_and_again(kind: Kind) -> Result<()> {
    let world = brisk_world(&["--registration-timeout=2s"], |_| {}).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;
    let fleet = |name: &str, trouble| nodes.inject(Affected { name_prefix: name.to_owned(), ..Affected::default() }, trouble);
    let image = fleet("image", Trouble::ImagePull);
    let config = fleet("confg", Trouble::ContainerConfig("secret \"settings\" not found".to_owned()));
    let crash = fleet("crash", Trouble::ExitsAtOnce(1));
    let masked = fleet("mskd0", Trouble::ExitsAtOnce(0));
    let old = fleet("oldie", Trouble::ExitsAtOnce(7));
    fleet("muted", Trouble::NeverRegisters);
    for name in ["image", "confg", "crash", "mskd0", "oldie", "muted", "fine0"] {
        kind.fleet(name, 3).apply(&world).await?;
    }
    // None of them blocks the one that works.
    runners(&world, "the fine ones", |counts| counts.online == 3).await?;

    // A version that GitHub refuses would be refused again.
    until::<Runner>(&world, "quarantine", |all| {
        let quarantined = all.iter().filter(|runner| {
            runner.status.as_ref().is_some_and(|status| condition::holds(&status.conditions, ConditionType::Quarantined))
        });
        quarantined.filter(|runner| runner.metadata.name.as_deref().is_some_and(|name| name.starts_with("oldie"))).count() == 3
    })
    .await?;
    event(&world, "RunnerQuarantined", |note| note.contains("update the runner image")).await?;
    until::<Runner>(&world, "the kubelet's reasons", |all| {
        let says = |fleet: &str, part: &str| {
            let ours = all.iter().filter(|runner| runner.metadata.name.as_deref().is_some_and(|name| name.starts_with(fleet)));
            ours.filter(|runner| {
                runner.status.as_ref().and_then(|status| status.message.as_deref()).is_some_and(|it| it.contains(part))
            })
            .count()
                == 3
        };
        says("image", "ImagePull") && says("confg", "secret \"settings\" not found")
    })
    .await?;
    // Three generations at once, then ever longer pauses.
    until::<RunnerReplicaSet>(&world, "back-off", |sets| {
        let waiting = sets.iter().filter(|set| {
            let status = set.status.clone().unwrap_or_default();
            let says = status.conditions.iter().any(|it| it.type_ == ConditionType::Ready.as_str() && it.reason == "BackingOff");
            says && status.failed_attempts.is_some_and(|attempts| attempts >= 3) && status.backoff_until.is_some()
        });
        waiting.count() == 2
    })
    .await?;
    event(&world, "RunnerReplaced", |note| note.contains("exit code 1")).await?;
    event(&world, "RunnerReplaced", |note| note.contains("exited without registering")).await?;
    let made = made(&world);
    for name in ["image", "confg", "oldie", "muted", "fine0"] {
        ensure!(made.get(name) == Some(&3), "{name}: {made:?}");
    }
    for name in ["crash", "mskd0"] {
        ensure!(made.get(name).is_some_and(|count| *count <= 12), "{name}: {made:?}");
    }

    // Repaired: what the kubelet tries again comes by itself, a new version comes with a new template.
    for trouble in [image, config, crash, masked, old] {
        nodes.heal(trouble);
    }
    kind.fleet("oldie", 3).renew(&world, "2").await?;
    for name in ["crash", "mskd0", "muted"] {
        kind.fleet(name, 3).delete(&world).await?;
    }
    settled(&world, 12).await?;
    end(world).await
}

async fn pods_that_the_kubelet_refuses_are_made_again_ever_more_slowly(kind: Kind) -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;
    let refused = nodes.inject(Affected::all(), Trouble::Refused("OutOfcpu"));
    kind.fleet("web-0", 1).apply(&world).await?;
    event(&world, "RunnerReplaced", |note| note.contains("never started") && note.contains("OutOfcpu")).await?;
    // The third attempt that is given up follows half a minute after the first, and the next one comes forty seconds later.
    until::<RunnerReplicaSet>(&world, "back-off", |sets| {
        sets.iter().any(|set| {
            let status = set.status.clone().unwrap_or_default();
            status.failed_attempts.is_some_and(|attempts| attempts >= 3) && status.backoff_until.is_some()
        })
    })
    .await?;
    let made = made(&world);
    ensure!(made.get("web-0").is_some_and(|count| *count <= 6), "{made:?}");

    nodes.heal(refused);
    settled(&world, 1).await?;
    let healthy = self::made(&world);
    ensure!(healthy.get("web-0").is_some_and(|count| *count <= 12), "{healthy:?}");
    end(world).await
}

async fn a_quota_is_waited_for_and_blocks_no_other_namespace(kind: Kind) -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let app = pacer_harness::github::Scope::repository("acme", "app");
    let quota = |pods: u32| {
        json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods", "namespace": "default"},
            "spec": {"hard": {"pods": pods.to_string()}},
        })
    };
    apply(&world, &quota(4)).await?;
    until::<k8s_openapi::api::core::v1::ResourceQuota>(&world, "the quota at work", |all| {
        all.iter().any(|quota| quota.status.as_ref().is_some_and(|status| status.used.is_some()))
    })
    .await?;
    kind.fleet("web", 10).apply(&world).await?;
    online_in(&world, &app, 4).await?;
    event(&world, "PodRefused", |note| note.contains("exceeded quota")).await?;
    until::<Runner>(&world, "six refused Runners", |all| {
        let refused = all.iter().filter(|runner| {
            let conditions = runner.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            conditions.iter().any(|it| {
                it.type_ == ConditionType::Accepted.as_str() && it.reason == "PodRefused" && it.message.contains("exceeded quota")
            })
        });
        all.len() == 10 && refused.count() == 6
    })
    .await?;
    world.plane.namespace("elsewhere").await?;
    kind.fleet("other", 3).within("elsewhere").apply(&world).await?;
    online_in(&world, &app, 7).await?;
    // The refused ones are tried again, not replaced.
    let calls = world.operator_calls(None)?;
    ensure!(calls.count("create", "runners") == 13, "{calls}");
    ensure!(calls.count("create", "pods") <= 7 + 6 * 4, "{calls}");
    apply(&world, &quota(10)).await?;
    online_in(&world, &app, 13).await?;
    let deleted = world.plane.kubectl(&["delete", kind.as_str(), "other", "--namespace", "elsewhere"]).await?;
    ensure!(deleted.status.success(), "{deleted:?}");
    settled(&world, 10).await?;
    end(world).await
}

async fn a_runner_without_its_token_says_so_while_github_fails(kind: Kind) -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let nodes = world.nodes.as_ref().context("no nodes")?;
    let missing = "secret \"runner-registration\" not found";
    let trouble = nodes.inject(Affected::all(), Trouble::ContainerConfig(missing.to_owned()));
    kind.fleet("web", 1).apply(&world).await?;
    until::<Pod>(&world, "its pod", |all| all.len() == 1).await?;
    // From now on every look at the Runner ends in an attempt to make the token again, which fails.
    world.github.inject(Fault::new(Routes::of(RouteKind::RegistrationToken), Effect::Status(502)).always());
    let tokens = ListParams::default().labels(TOKENS);
    let deleted = api::<Secret>(&world).delete_collection(&DeleteParams::default(), &tokens).await?;
    ensure!(deleted.left().is_some_and(|list| list.items.len() == 1), "the token was not there");
    until::<Runner>(&world, "the Runner to say what its pod waits for", |all| {
        all.iter().any(|runner| {
            let message = runner.status.as_ref().and_then(|status| status.message.as_deref());
            message.is_some_and(|message| message.contains(missing))
        })
    })
    .await?;
    let asked = world.github.count(RouteKind::RegistrationToken);
    ensure!(asked.failed > 0, "GitHub was not asked: {asked:?}");

    world.github.clear_faults();
    nodes.heal(trouble);
    settled(&world, 1).await?;
    end(world).await
}
