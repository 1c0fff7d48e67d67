//! Credentials that are missing, wrong, or lack a right.

use anyhow::{Result, ensure};
use pacer_api::condition::ConditionType;
use pacer_api::{Runner, RunnerReplicaSet};
use pacer_harness::github::{APP_PRIVATE_KEY, Access, Installation, Person, RouteKind, Scope};
use pacer_suites::fleet::Kind;
use pacer_suites::{apply, brisk_world, end, event, for_both_kinds, runners, settled, until};
use serde_json::{Value, json};

for_both_kinds!(wrong_credentials_say_what_is_missing_block_nobody_and_heal);

fn secret(name: &str, content: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}, "stringData": content})
}

/// Waits until every Runner of a fleet says in its condition `Accepted` what is wrong.
async fn says(world: &pacer_harness::world::World, name: &str, wanted: &[&str]) -> Result<()> {
    until::<Runner>(world, &format!("the Runners of {name} to say {wanted:?}"), |all| {
        let ours: Vec<_> =
            all.iter().filter(|runner| runner.metadata.name.as_deref().is_some_and(|it| it.starts_with(name))).collect();
        !ours.is_empty()
            && ours.iter().all(|runner| {
                let conditions = runner.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
                conditions.iter().any(|condition| {
                    condition.type_ == ConditionType::Accepted.as_str()
                        && condition.status == "False"
                        && wanted.iter().all(|part| condition.message.contains(part))
                })
            })
    })
    .await?;
    Ok(())
}

async fn wrong_credentials_say_what_is_missing_block_nobody_and_heal(kind: Kind) -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let installation = || Installation::new(7, "acme");
    world.github.add_app(42);
    world.github.install_app(42, installation().with_permissions([("metadata", Access::Read), ("administration", Access::Read)]));
    let app = json!({"github_app_id": "42", "github_app_installation_id": "7", "github_app_private_key": APP_PRIVATE_KEY});
    let narrow = world.github.add_pat(Person::admin("narrow").with_scopes(["public_repo"]));
    apply(&world, &secret("app", &app)).await?;
    apply(&world, &secret("narrow", &json!({"github_token": narrow}))).await?;
    apply(&world, &secret("wrong", &json!({"github_token": "ghp_wrong"}))).await?;
    for (name, of) in [("app", "app"), ("narrow", "narrow"), ("wrong", "wrong"), ("none", "missing")] {
        let secret = json!({"secretRef": {"name": of}});
        kind.fleet(name, 3).with("githubAPICredentialsFrom", secret).apply(&world).await?;
    }
    kind.fleet("good", 5).apply(&world).await?;
    runners(&world, "the good ones", |counts| counts.online == 5).await?;

    let url = "/repos/acme/app/actions/runners/registration-token";
    let (by_app, by_person) = (["403", "administration", url], ["403", "repo", url]);
    event(&world, "FailedUpdateRegistrationToken", |note| by_app.iter().all(|part| note.to_lowercase().contains(part))).await?;
    event(&world, "FailedUpdateRegistrationToken", |note| by_person.iter().all(|part| note.contains(part))).await?;
    event(&world, "FailedUpdateRegistrationToken", |note| note.contains("401") && note.contains("expired or revoked")).await?;
    event(&world, "GitHubUnavailable", |note| note.contains("Secret default/missing") && note.contains("does not exist")).await?;
    says(&world, "app", &["403", url]).await?;
    says(&world, "narrow", &["403", "repo", url]).await?;
    says(&world, "wrong", &["401", url]).await?;
    until::<RunnerReplicaSet>(&world, "the set without a Secret to say so", |sets| {
        sets.iter().flat_map(|set| set.status.iter().flat_map(|status| &status.conditions)).any(|condition| {
            condition.type_ == ConditionType::Ready.as_str()
                && condition.reason == "SettingsRefused"
                && condition.message.contains("Secret default/missing")
        })
    })
    .await?;

    // No storm of calls that can only fail, and no pods that could not register.
    let pods = world.nodes.as_ref().map_or(0, |nodes| nodes.tally().seen());
    ensure!(pods == 5, "{pods} pods");
    let asked = world.github.count(RouteKind::RegistrationToken).requests;
    ensure!(asked <= 60, "{asked} tokens were asked for");

    world.github.install_app(42, installation());
    let right = world.github.pat().to_owned();
    for name in ["narrow", "wrong", "missing"] {
        apply(&world, &secret(name, &json!({"github_token": right}))).await?;
    }
    settled(&world, 17).await?;
    ensure!(world.github.registrations(&Scope::repository("acme", "app")).len() == 17);
    until::<Runner>(&world, "no complaint left", |all| {
        all.iter().all(|runner| {
            let conditions = runner.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            conditions.iter().all(|condition| condition.type_ != ConditionType::Accepted.as_str() || condition.status != "False")
        })
    })
    .await?;
    end(world).await
}
