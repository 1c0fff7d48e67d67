//! How soon an edited policy set decides, on a machine that does nothing else.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use pacer_harness::world::World;
use pacer_suites::{NAMESPACE, apply, brisk_world, deployment, end_as_it_is, settled};
use serde_json::{Value, json};

use crate::guest::Guest;
use crate::{annotation, phase, put, status, texts};

/// How soon after `kubectl apply` a set is to decide.
const LIVE: Duration = Duration::from_secs(2);

/// The status of the set once it is another one that is active, and how long that took.
async fn live(world: &World, before: &Value) -> Result<Duration> {
    let began = Instant::now();
    let is_next = |status: &Value| status["phase"] == "Active" && status["digest"] != before["digest"];
    status(world, NAMESPACE, "opinions", "the edited set", is_next).await?;
    Ok(began.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "bounds seconds: make suites runs it when all others are over"]
async fn edited_component_and_edited_text_decide_within_two_seconds() -> Result<()> {
    let world = brisk_world(&[], |_| {}).await?;
    let mut web = deployment("web", 2);
    web["metadata"]["annotations"] = json!({annotation::POLICIES: "opinions"});
    apply(&world, &web).await?;
    settled(&world, 2).await?;

    let component = async |opinion| {
        let guest = Guest::choosing(&[(0, opinion)]);
        put(&world, NAMESPACE, "opinions", "scale-down: {module: a.wasm}\n", &[("a.wasm", &guest)]).await
    };
    component("the first opinion").await?;
    let first = status(&world, NAMESPACE, "opinions", "the first component", phase("Active")).await?;
    component("the second opinion").await?;
    let of_component = live(&world, &first).await?;

    // The first text has the interpreter compiled, once for all texts.
    texts::put(&world, &texts::text("the third opinion")).await?;
    live(&world, &status(&world, NAMESPACE, "opinions", "the second component", phase("Active")).await?).await?;
    let text = status(&world, NAMESPACE, "opinions", "the first text", phase("Active")).await?;
    texts::put(&world, &texts::text("the fourth opinion")).await?;
    let of_text = live(&world, &text).await?;
    println!("edited component in force after {of_component:?}, edited text after {of_text:?}");
    ensure!(of_component < LIVE && of_text < LIVE, "live after {of_component:?} and {of_text:?}");
    end_as_it_is(world).await
}
