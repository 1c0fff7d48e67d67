//! Webhooks that nobody took.

use std::collections::BTreeMap;

use pacer_harness::github::{APP_PRIVATE_KEY, Access, Installation};
use pacer_harness::ingress::Ingress;
use pacer_harness::world::Options;

use super::*;

/// A world whose operator is reached through an ingress, and looks for what was missed every five seconds.
async fn behind(ingress: &Ingress, change: impl FnOnce(&mut Options)) -> Result<World> {
    let url = format!("--webhook-url={}", ingress.url());
    let world = world_with(&["--redelivery-period=5s", &url], |options| {
        receive_itself(options);
        change(options);
    })
    .await?;
    let owner = Scope::repository("acme", "app").into();
    world.github.add_hook(Hook { owner, url: ingress.url(), secret: SECRET.to_owned() });
    Ok(world)
}

fn receiver(world: &World) -> Result<String> {
    world.operator.as_ref().and_then(|operator| operator.webhook_address()).context("no address for webhooks")
}

/// Half of the events come while nobody is there to take them, and no metric would find their jobs.
#[tokio::test(flavor = "multi_thread")]
async fn events_that_nobody_took_are_asked_for_again() -> Result<()> {
    let ingress = Ingress::start().await?;
    let world = behind(&ingress, |_| {}).await?;
    ingress.serve([receiver(&world)?]);
    pool(&world, 0, &autoscaler(0, 60, by_webhook())).await?;
    queue(&world, "web", 20, Duration::from_secs(1))?;
    succeeded(&world, 20).await?;
    let outcome = world.github.wait_for(PATIENCE, |view| view.deliveries().accepted >= 60).await;
    world.check(outcome).await?;

    ingress.serve([]);
    // Longer than it takes to ask for all: a runner takes whichever job waits, so that the first few events would do for short ones.
    queue(&world, "web", 20, Duration::from_secs(15))?;
    let outcome = world.github.wait_for(PATIENCE, |view| view.deliveries().failed >= 20).await;
    world.check(outcome).await?;
    ingress.serve([receiver(&world)?]);
    succeeded(&world, 40).await?;
    settled(&world, 0).await?;
    let made = world.github.runners().ever_registered;
    ensure!(made == 40, "{made} runners were made for 40 jobs");

    // One showed that the receiver is back; before that it may have been tried in vain.
    let mut tries = BTreeMap::<String, usize>::new();
    for delivery in world.github.deliveries().into_iter().filter(|delivery| delivery.redelivery) {
        *tries.entry(delivery.guid).or_default() += 1;
    }
    ensure!(tries.len() == 20 && tries.values().sum::<usize>() <= 25, "asked for: {tries:?}");
    let operator = world.operator.as_ref().context("no operator")?;
    let counted = async {
        loop {
            let text = operator.get("/metrics").await?;
            let delivered = text.contains("pacer_webhook_redeliveries_total{outcome=\"delivered\"} 20");
            if delivered && text.contains("pacer_webhook_deliveries_missing 0") {
                return Ok::<_, anyhow::Error>(());
            }
            // Figures announce nothing.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.context("waiting for the figures")??;
    ensure!(operator.logs().contains("missed webhooks asked for again"), "nothing in the log");
    end(world).await?;
    ingress.stop().await;
    Ok(())
}

/// Credentials that may not read webhooks are no fault: it is said once, and polling finds the jobs.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_read_webhooks_polling_heals() -> Result<()> {
    let ingress = Ingress::start().await?;
    let world = behind(&ingress, |_| {}).await?;
    world.github.add_app(42);
    let permissions = [("metadata", Access::Read), ("administration", Access::Write), ("actions", Access::Read)];
    world.github.install_app(42, Installation::new(7, "acme").with_permissions(permissions));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "narrow", "namespace": "default"},
        "stringData": {"github_app_id": "42", "github_app_installation_id": "7", "github_app_private_key": APP_PRIVATE_KEY},
    });
    apply(&world, &secret).await?;
    let mut more = by_webhook();
    more["metrics"] = by_polling()["metrics"].clone();
    more["githubAPICredentialsFrom"] = json!({"secretRef": {"name": "narrow"}});
    pool(&world, 0, &autoscaler(0, 10, more)).await?;
    queue(&world, "web", 3, Duration::from_secs(1))?;
    succeeded(&world, 3).await?;
    let logs = world.operator.as_ref().context("no operator")?.logs();
    let said = logs.lines().filter(|line| line.contains("webhooks can't be listed with these credentials")).count();
    ensure!(said == 1, "said {said} times");
    end(world).await?;
    ingress.stop().await;
    Ok(())
}
