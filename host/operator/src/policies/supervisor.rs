//! Starts a keeper for every set that somebody asks for, and ends those of sets that nobody asks for any more.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use pacer_api::names::annotation;
use tokio::task::{Id, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::keeper::Keeper;
use super::record::Records;
use super::{START_PATIENCE, SetKey};
use crate::context::Context;

/// A keeper that ended although it must not is started again after this.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Keeps the sets until `stop`.
pub async fn run(ctx: Arc<Context>, stop: CancellationToken) {
    let mut wanted = ctx.policies.wanted.subscribe();
    let mut keepers: JoinSet<()> = JoinSet::new();
    let mut running: HashMap<SetKey, (Id, CancellationToken)> = HashMap::new();
    let period = ctx.settings.sync_period.max(Duration::from_secs(1));
    loop {
        let asked: BTreeSet<SetKey> = wanted.borrow_and_update().clone();
        for key in asked.iter().filter(|key| !running.contains_key(key)).cloned().collect::<Vec<_>>() {
            let token = stop.child_token();
            let (keeper, until) = (Keeper::new(key.clone(), ctx.clone()), token.clone());
            let task = keepers.spawn(async move {
                until.run_until_cancelled(keeper.run()).await;
            });
            running.insert(key, (task.id(), token));
        }
        for key in running.keys().filter(|key| !asked.contains(key)).cloned().collect::<Vec<_>>() {
            if let Some((_, token)) = running.remove(&key) {
                token.cancel();
            }
            forget(&ctx, &key).await;
        }
        tokio::select! {
            _ = wanted.changed() => {}
            Some(ended) = keepers.join_next_with_id() => {
                let id = ended.as_ref().map_or_else(tokio::task::JoinError::id, |(id, ())| *id);
                let key = running.iter().find(|(_, (task, _))| *task == id).map(|(key, _)| key.clone());
                // One that was told to end is not among the running any more.
                if let Some(key) = key {
                    tracing::error!(set = %key, panicked = ended.is_err(), "a policy set is no longer watched; starting again");
                    running.remove(&key);
                    sleep(RESTART_PAUSE).await;
                }
            }
            () = sleep(period) => {
                let referenced = referenced(&ctx);
                ctx.policies.wanted.send_if_modified(|wanted| {
                    let before = wanted.len();
                    wanted.retain(|key| referenced.contains(key));
                    wanted.len() != before
                });
            }
            () = stop.cancelled() => break,
        }
    }
    while keepers.join_next().await.is_some() {}
}

/// Asks for all sets that objects name and waits until they have been looked at, so that a restart begins with the policies that decided
/// before it. For the start, once all stores are full.
pub(crate) async fn prime(ctx: &Context) {
    if ctx.policies.builtin_only() {
        return;
    }
    for key in referenced(ctx) {
        ctx.policies.want(&key);
    }
    if timeout(START_PATIENCE, ctx.policies.settled()).await.is_err() {
        tracing::warn!(
            "some policy sets could not be looked at in time; the shipped policies decide in their place until they are"
        );
    }
}

/// The sets that are asked for.
fn referenced(ctx: &Context) -> BTreeSet<SetKey> {
    let key = |namespace: Option<String>, name: Option<&str>| {
        let name = name.map(str::trim).filter(|name| !name.is_empty())?;
        Some(SetKey { namespace: namespace?, name: name.to_owned() })
    };
    let targets = ctx.stores.targets();
    let asked =
        targets.iter().filter_map(|target| key(Some(target.namespace().to_owned()), target.policies().map(String::as_str)));
    let sets = ctx.stores.sets.state();
    // What their owners ask for now, not what they asked for when the set was made.
    let sets = sets.iter().filter_map(|set| key(set.namespace(), ctx.policy_set_of(set).as_deref()));
    let autoscalers = ctx.stores.autoscalers.state();
    let autoscalers = autoscalers
        .iter()
        .filter_map(|object| key(object.namespace(), object.annotations().get(annotation::POLICIES).map(String::as_str)));
    asked.chain(sets).chain(autoscalers).chain(ctx.policies.options.default.clone()).collect()
}

async fn forget(ctx: &Context, key: &SetKey) {
    ctx.policies.withdraw(key);
    let records = Records::new(ctx.client.clone(), &ctx.policies.options.namespace, key.clone());
    match records.forget().await {
        Ok(()) => tracing::info!(set = %key, "policy set not asked for any more"),
        Err(error) => tracing::warn!(set = %key, %error, "records of a policy set that nobody asks for were not removed"),
    }
}
