//! A whole world comes up, tells what is in it, and goes.

#![cfg(test)]

use std::time::{Duration, Instant};

use pacer_harness::world::{Options, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_world_without_an_operator() {
    let world = World::start(Options { operator: None, ..Options::default() }).await.unwrap();
    let output = world.plane.kubectl(&["get", "runners.actions.summerwind.dev", "--all-namespaces"]).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let failure = world.check(Err::<(), _>("something is missing")).await.unwrap_err().to_string();
    for part in ["something is missing", "=== pods by stage", "node-3", "=== GitHub"] {
        assert!(failure.contains(part), "{part}: {failure}");
    }
    assert_eq!(world.check(Ok::<_, String>(7)).await.unwrap(), 7);
    assert_eq!(world.operator_calls(None).unwrap().total(), 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_lives_dies_and_lives_again() {
    let mut world = World::start(Options::default()).await.unwrap();
    let operator = world.operator.as_mut().unwrap();
    assert!(operator.metrics().await.unwrap().contains("# EOF"));
    let first = operator.pid();
    let usage = operator.usage().unwrap();
    assert!(usage.resident > 1_000_000 && usage.cpu > Duration::ZERO, "{usage:?}");
    eprintln!("operator: {} MiB, {:?}", usage.resident >> 20, usage.cpu);

    operator.kill9().await;
    assert!(operator.exit().is_some_and(|status| status.code().is_none()));
    operator.restart().await.unwrap();
    operator.until_acting(Duration::from_secs(30)).await.unwrap();
    assert_ne!(operator.pid(), first);

    let started = Instant::now();
    let status = operator.terminate().await.unwrap();
    assert!(status.success(), "{status}: {}", operator.log_tail(4_000));
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(operator.metrics().await.is_err());
    assert!(operator.entries().iter().any(|entry| entry.get("message").is_some()));
}
