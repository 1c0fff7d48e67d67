//! Two operators at once: one leads, the other takes over, never both.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use pacer_harness::github::{Person, RouteKind};
use pacer_harness::operator::Operator;
use pacer_harness::world::World;
use pacer_suites::fleet::Kind;
use pacer_suites::{
    BRISK, PATIENCE, PATIENT_LEASE, delete_all, end, end_as_it_is, for_both_kinds, queue, runners, running, settled, succeeded,
    world, world_with,
};
use serde_json::json;

use super::link::Link;

for_both_kinds!(a_leader_that_is_cut_off_stops_before_the_next_one_acts);

/// When an operator said something first, by the clock that all share.
fn said(operator: &Operator, what: &str) -> Option<Timestamp> {
    operator
        .entries()
        .into_iter()
        .find(|entry| entry.get("message").and_then(serde_json::Value::as_str).is_some_and(|message| message.starts_with(what)))
        .and_then(|entry| entry.get("timestamp")?.as_str()?.parse().ok())
}

/// Changes that a caller asked of GitHub after a moment.
fn changes(world: &World, caller: &str, since: Timestamp) -> usize {
    let ours = world.github.calls().into_iter().filter(|call| call.caller == caller && call.at > since);
    ours.filter(|call| matches!(call.route, Some(RouteKind::DeleteRunner | RouteKind::RegistrationToken))).count()
}

async fn ended(operator: &Operator) -> Result<()> {
    let end = tokio::time::timeout(PATIENCE, async {
        while operator.exit().is_none() {
            // Another process announces nothing.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    end.await.with_context(|| format!("an operator without the lease goes on: {}", operator.log_tail(4_000)))?;
    ensure!(operator.exit().is_some_and(|status| !status.success()), "it ended as if nothing had happened");
    Ok(())
}

async fn a_leader_that_is_cut_off_stops_before_the_next_one_acts(kind: Kind) -> Result<()> {
    let mut operator = None;
    let mut world = world(|options| operator = options.operator.take()).await?;
    let mut options = operator.context("no operator's options")?;
    // The deadline is longer than an API server of a full machine may be silent for: the leader is to lose its lease when it is cut off, and not before.
    let election = ["--lease-duration=20s", "--lease-renew-deadline=15s", "--lease-retry-period=500ms"];
    options.args.extend(BRISK.iter().chain(&election).map(|&argument| argument.to_owned()));
    let port = world.plane.url().rsplit_once(':').and_then(|(_, port)| port.parse().ok()).context("no port")?;
    let link = Link::to(port).await?;
    let direct = world.plane.kubeconfig_for_service_account(&options.namespace, &options.service_account).await?;
    let linked = world.plane.directory().join("linked.kubeconfig");
    std::fs::write(&linked, std::fs::read_to_string(&direct)?.replace(world.plane.url(), &link.url()))?;
    let mut first = options.clone();
    first.args.push(format!("--kubeconfig={}", linked.display()));
    first.token = Some(world.github.add_pat(Person::admin("first")));
    options.token = Some(world.github.add_pat(Person::admin("second")));

    let first = Operator::start(&world.plane, &world.github, &first).await?;
    first.until_acting(PATIENCE).await?;
    world.operator = Some(Operator::start(&world.plane, &world.github, &options).await?);
    let fleet = kind.fleet("web", 20);
    fleet.apply(&world).await?;
    runners(&world, "20 online", |counts| counts.online == 20).await?;
    queue(&world, "web", 6, Duration::from_secs(40))?;
    running(&world, 6).await?;
    let second = world.operator.as_ref().context("no operator")?;
    let standby = tokio::time::timeout(PATIENCE, async {
        while !second.get("/readyz").await.is_ok_and(|text| text.contains("standby")) {
            // Another process announces nothing.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    standby.await.context("the second operator is no standby")?;

    // Cut off from the API server, but not from GitHub, in the middle of its work.
    fleet.scale(&world, 10).await?;
    runners(&world, "the first ones gone", |counts| counts.registered < 20).await?;
    link.set_whole(false);
    second.until_acting(PATIENCE).await?;
    let (lost, led) = (said(&first, "lease lost"), said(second, "leading").context("the second never led")?);
    ensure!(lost.is_some_and(|lost| lost < led), "lost {lost:?}, led {led}: {}", first.log_tail(4_000));
    link.set_whole(true);
    ended(&first).await?;
    settled(&world, 10).await?;
    ensure!(changes(&world, "user first", led) == 0, "the first one went on after {led}");

    // A process that stood still wakes up and believes that it leads.
    let mut third = first;
    third.restart().await?;
    second.pause();
    fleet.scale(&world, 14).await?;
    third.until_acting(PATIENCE).await?;
    let led = said(&third, "leading").context("the third never led")?;
    second.resume();
    ended(second).await?;
    succeeded(&world, 6).await?;
    settled(&world, 14).await?;
    ensure!(changes(&world, "user second", led) == 0, "the second one went on after {led}");

    delete_all(&world).await?;
    third.terminate().await;
    end(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_that_is_restarted_in_its_pod_goes_on_with_its_lease() -> Result<()> {
    let mut world = world_with(&PATIENT_LEASE, |_| {}).await?;
    let standby = world.operator.as_ref().context("no operator")?.twin().await?;
    standby.until_ready("standby", PATIENCE).await?;
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "actions-runner-system");
    let standing = async || -> Result<(Option<String>, Option<i32>)> {
        let spec = leases.get("actions-runner-controller").await?.spec.context("a lease without a spec")?;
        Ok((spec.holder_identity, spec.lease_transitions))
    };
    let before = standing().await?;

    let leader = world.operator.as_mut().context("no operator")?;
    leader.kill9().await;
    leader.restart().await?;
    // The lease of the process before it has not expired by then.
    leader.until_acting(PATIENCE).await?;
    let after = standing().await?;
    ensure!(after == before, "{before:?}, then {after:?}");
    ensure!(standby.get("/readyz").await?.contains("standby"));
    standby.terminate().await;
    end_as_it_is(world).await
}

/// A conflict is no proof that another operator has the Lease.
#[tokio::test(flavor = "multi_thread")]
async fn leader_goes_on_while_others_annotate_its_lease() -> Result<()> {
    const RENEWALS: usize = 40;
    let world = world_with(&["--lease-retry-period=100ms"], |_| {}).await?;
    let operator = world.operator.as_ref().context("no operator")?;
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "actions-runner-system");
    let mut renewals = BTreeSet::new();
    let mut annotated = 0_u64;
    let renewed = tokio::time::timeout(PATIENCE, async {
        while renewals.len() < RENEWALS {
            annotated += 1;
            let patch = Patch::Merge(json!({"metadata": {"annotations": {"tests/seen": annotated.to_string()}}}));
            let lease = leases.patch("actions-runner-controller", &PatchParams::default(), &patch).await?;
            renewals.extend(lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0));
        }
        anyhow::Ok(())
    });
    let renewed = renewed.await;
    ensure!(operator.exit().is_none(), "the leader gave up after {} renewals: {}", renewals.len(), operator.log_tail(4_000));
    renewed.context("the lease is not renewed")??;
    ensure!(said(operator, "lease taken").is_none() && said(operator, "lease lost").is_none(), "{}", operator.log_tail(4_000));
    end_as_it_is(world).await
}
