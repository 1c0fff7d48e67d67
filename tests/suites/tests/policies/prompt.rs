//! How soon an edited policy set decides, on a machine that does nothing else.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use pacer_suites::{NAMESPACE, brisk_world, end_as_it_is};
use serde_json::Value;

use super::{active, fleet, put, texts};
use crate::guest::Guest;

/// How soon after `kubectl apply` a set is to decide.
const LIVE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "bounds seconds: make suites runs it when all others are over"]
async fn edited_component_and_edited_text_decide_within_two_seconds() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    fleet(&world, 20).await?;
    let component = async |opinion| {
        let guest = Guest::choosing(&[(0, opinion)]);
        put(&world, NAMESPACE, "opinions", "scale-down: {module: a.wasm}\n", &[("a.wasm", &guest)]).await
    };
    component("the first opinion").await?;
    let first = active(&world, &Value::Null).await?;
    component("the second opinion").await?;
    let applied = Instant::now();
    let second = active(&world, &first).await?;
    let of_component = applied.elapsed();

    // The first text has the interpreter compiled, once for all texts.
    texts::put(&world, &texts::text("the third opinion")).await?;
    let third = active(&world, &second).await?;
    texts::put(&world, &texts::text("the fourth opinion")).await?;
    let applied = Instant::now();
    active(&world, &third).await?;
    let of_text = applied.elapsed();
    println!("edited component in force after {of_component:?}, edited text after {of_text:?}");
    ensure!(of_component < LIVE && of_text < LIVE, "live after {of_component:?} and {of_text:?}");
    end_as_it_is(world).await
}
