//! Objects that the API server takes and that the operator's types cannot hold.

use std::time::Duration;

use anyhow::{Context, Result};
use pacer_harness::world::World;
use pacer_suites::fleet::{Kind, runner_set};
use pacer_suites::{PATIENCE, apply, brisk_world, deployment, end, figure, for_both_kinds, kubectl, runners, settled};
use serde_json::{Value, json};

for_both_kinds!(an_unreadable_fleet_stops_no_other_one);

/// A moment that Kubernetes can write and the operator's clock does not have.
const TOO_LATE: &str = "9999-12-31T23:59:59Z";

/// Waits until a step succeeds. A definition that was changed and a figure announce nothing.
async fn eventually(world: &World, what: &str, step: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let done = tokio::time::timeout(PATIENCE, async {
        while !step().await.unwrap_or_default() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    world.check(done.map_err(|_| format!("{what}: not in time"))).await?;
    Ok(())
}

async fn an_unreadable_fleet_stops_no_other_one(kind: Kind) -> Result<()> {
    let mut world = brisk_world(&[], |_| {}).await?;
    let (web, other) = (kind.fleet("web", 2), kind.fleet("other", 1));
    web.apply(&world).await?;
    other.apply(&world).await?;
    settled(&world, 3).await?;

    // The shipped definitions refuse such a time; those of ARC do not, and neither did all of ours.
    let plural = format!("{}s", kind.as_str().to_lowercase());
    let definition = format!("{plural}.actions.summerwind.dev");
    let place = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/effectiveTime/pattern";
    let laxer = json!([{"op": "remove", "path": place}]).to_string();
    kubectl(&world, &["patch", "customresourcedefinitions", &definition, "--type=json", "-p", &laxer]).await?;
    let change = json!({"spec": {"effectiveTime": TOO_LATE}}).to_string();
    eventually(&world, "a fleet with a time that is too late", async || {
        kubectl(&world, &["patch", &plural, "web", "--type=merge", "-p", &change]).await?;
        Ok(true)
    })
    .await?;
    let mut odd = match kind {
        Kind::RunnerDeployment => deployment("odd", 1),
        Kind::RunnerSet => runner_set("odd", 1),
    };
    let spec = odd.pointer_mut("/spec").and_then(Value::as_object_mut).context("no spec")?;
    spec.insert("effectiveTime".to_owned(), json!(TOO_LATE));
    apply(&world, &odd).await?;
    let unreadable = format!("pacer_unreadable_objects{{kind=\"{}\"}}", kind.as_str());
    let counted = async |world: &World, wanted: u64| {
        eventually(world, &format!("{wanted} unreadable ones"), async || Ok(figure(world, &unreadable).await == wanted)).await
    };
    counted(&world, 2).await?;

    // One that was read keeps its runners, one that never was has none, and others go on.
    other.scale(&world, 3).await?;
    runners(&world, "two more of the other fleet", |counts| counts.online == 5 && counts.registered == 5).await?;

    // So it is when both cannot be read from the start.
    let operator = world.operator.as_mut().context("no operator")?;
    operator.kill9().await;
    operator.restart().await?;
    operator.until_acting(PATIENCE).await?;
    counted(&world, 2).await?;
    other.scale(&world, 4).await?;
    runners(&world, "one more of the other fleet", |counts| counts.online == 6 && counts.registered == 6).await?;

    // What is corrected counts again.
    let correction = json!({"spec": {"effectiveTime": null}}).to_string();
    kubectl(&world, &["patch", &plural, "web", "--type=merge", "-p", &correction]).await?;
    kubectl(&world, &["delete", &plural, "odd"]).await?;
    counted(&world, 0).await?;
    web.scale(&world, 3).await?;
    settled(&world, 7).await?;
    end(world).await
}
