//! Webhooks that two replicas of `pacer webhook` receive, or the operator itself, by `--webhook-addr`.

use anyhow::{Context, Result};
use pacer_harness::github::{Hook, HookOwner, Scope, Tail};
use pacer_harness::operator;
use pacer_harness::receivers::{self, Receivers};
use pacer_harness::world::{Options, World};

use crate::manifests::shipped;
use crate::{BRISK, world_with};

/// Secret of the webhooks.
pub const SECRET: &str = "a secret of the suite";

/// Two replicas of `pacer webhook`, as shipped, receive webhooks beside the operator of this world.
pub fn receive(options: &mut Options) {
    options.manifests.push(shipped("webhook/rbac.yaml"));
    let mut replica = receiver();
    for argument in options.operator.iter().flat_map(|operator| &operator.args) {
        // What the chart tells both of.
        if argument.starts_with("--common-runner-labels=") {
            replica.args.push(argument.clone());
        } else if argument.starts_with("--tenancy=") {
            replica.args.push("--proved-scopes-only".to_owned());
        }
    }
    options.receivers = Some(receivers::Options { replica, replicas: 2 });
}

/// The operator of this world receives webhooks itself, for tests of that, and for those that look at its own side of a connection.
pub fn receive_itself(options: &mut Options) {
    if let Some(operator) = &mut options.operator {
        operator.args.push("--webhook-addr=127.0.0.1:0".to_owned());
        operator.env.push(("GITHUB_WEBHOOK_SECRET_TOKEN".to_owned(), SECRET.to_owned()));
    }
}

/// Sends the events of this owner to the receivers beside the operator, or to the operator as it listens now.
///
/// # Errors
///
/// When it receives none.
pub fn hook(world: &World, owner: impl Into<HookOwner>) -> Result<()> {
    let own =
        || world.operator.as_ref().and_then(|operator| operator.webhook_address()).map(|address| format!("http://{address}/"));
    let url = world.receivers.as_ref().map(Receivers::url).or_else(own).context("no address for webhooks")?;
    world.github.add_hook(Hook { owner: owner.into(), url, secret: SECRET.to_owned() });
    Ok(())
}

/// `pacer webhook` as it is shipped, with its own role.
#[must_use]
pub fn receiver() -> operator::Options {
    operator::Options {
        verb: "webhook".to_owned(),
        service_account: "pacer-webhook".to_owned(),
        args: vec!["--webhook-addr=127.0.0.1:0".to_owned()],
        env: vec![("GITHUB_WEBHOOK_SECRET_TOKEN".to_owned(), SECRET.to_owned())],
        ..operator::Options::default()
    }
}

/// A world in which [two replicas](receive) receive the events of `acme/app`.
///
/// # Errors
///
/// When a part of it does not start.
pub async fn hooked_world(arguments: &[&str]) -> Result<World> {
    hooked_world_with(arguments, |_| {}).await
}

/// The same as [`hooked_world`] with changed options.
///
/// # Errors
///
/// When a part of it does not start.
pub async fn hooked_world_with(arguments: &[&str], change: impl FnOnce(&mut Options)) -> Result<World> {
    let world = world_with(arguments, |options| {
        receive(options);
        change(options);
    })
    .await?;
    hook(&world, Scope::repository("acme", "app"))?;
    Ok(world)
}

/// The same as [`hooked_world`] with [a short timer](BRISK).
///
/// # Errors
///
/// When a part of it does not start.
pub async fn brisk_hooked_world(arguments: &[&str]) -> Result<World> {
    hooked_world(&[&BRISK[..], arguments].concat()).await
}

/// The same as [`brisk_hooked_world`] with a GitHub that sends its events at once, for tests that compare what events told with what happened within
/// seconds.
///
/// # Errors
///
/// When a part of it does not start.
pub async fn promptly_hooked_world(arguments: &[&str]) -> Result<World> {
    let prompt = |options: &mut Options| options.github.behaviour.events_late = Tail::default();
    hooked_world_with(&[&BRISK[..], arguments].concat(), prompt).await
}
