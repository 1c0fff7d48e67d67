//! Events for webhooks: whom they concern and what they say.

use std::time::Duration;

use http::StatusCode;
use ring::digest;
use serde_json::{Value, json};

use super::State;
use crate::github::{
    hook::{Delivery, Hook, HookOwner, JobAction},
    payload,
    place::{DeliveryId, HookId, JobId, Scope},
};

/// An identity in the form of a UUID, different for every number.
fn guid(number: u64) -> String {
    let digest = hex::encode(digest::digest(&digest::SHA256, &number.to_be_bytes()));
    let part = |from: usize, to: usize| digest.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

impl State {
    pub(in crate::github) fn add_hook(&mut self, hook: Hook) -> HookId {
        if let HookOwner::Scope(scope) = &hook.owner {
            self.accounts.ensure(scope);
        }
        let id = HookId(self.number());
        self.hooks.hooks.insert(id, hook);
        id
    }

    pub(in crate::github) fn remove_hook(&mut self, id: HookId) {
        self.hooks.hooks.remove(&id);
    }

    fn new_delivery(&mut self, hook: HookId, guid: String) -> Delivery {
        Delivery {
            id: DeliveryId(self.number()),
            hook,
            guid,
            action: None,
            job: None,
            redelivery: false,
            delivered_at: None,
            duration: Duration::ZERO,
            status: 0,
            installation: None,
        }
    }

    pub(in crate::github) fn ping(&mut self, hook: HookId) {
        let guid = guid(self.number());
        let delivery = self.new_delivery(hook, guid);
        self.hooks.enqueue(delivery, Duration::ZERO);
        self.signals.outbox = true;
    }

    /// Tells every webhook whose owner has the job's repository.
    pub(in crate::github) fn emit(&mut self, job: JobId, action: JobAction) {
        if self.hooks.hooks.is_empty() {
            return;
        }
        let Some(job) = self.jobs.all.get(&job).cloned() else { return };
        let keys: Vec<String> = self
            .accounts
            .lineage(job.repository)
            .filter_map(|place| self.accounts.get(place))
            .map(|place| place.scope.key())
            .collect();
        let tells = |hook: &Hook| match &hook.owner {
            HookOwner::Scope(scope) => keys.contains(&scope.key()).then_some(None),
            HookOwner::App(app) => {
                let installation = self.credentials.installation_for(*app, &self.accounts, job.repository)?;
                Some(Some(installation.id))
            }
        };
        let receivers: Vec<(HookId, Option<u64>)> = self.hooks.told().filter_map(|(id, hook)| Some((id, tells(hook)?))).collect();
        let guid = guid(self.number());
        for (hook, installation) in receivers {
            self.hooks.emitted += 1;
            let (turn, delivering) = (self.hooks.emitted, self.hooks.delivering);
            let is_turn = |every: Option<u64>| every.is_some_and(|every| turn.is_multiple_of(every));
            let copies = if is_turn(delivering.duplicate_every) { 2 } else { 1 };
            for _ in 0..copies {
                let blank = self.new_delivery(hook, guid.clone());
                let delivery = Delivery { action: Some(action), job: Some(job.clone()), installation, ..blank };
                let id = delivery.id;
                let late = self.chance.of(self.settings.behaviour.events_late);
                self.hooks.enqueue(delivery, delivering.delay.max(late));
                if is_turn(delivering.drop_every) {
                    self.hooks.queue.retain(|(_, queued)| *queued != id);
                    let now = self.now();
                    self.hooks.tried_now(id, StatusCode::BAD_GATEWAY.as_u16(), Duration::ZERO, now);
                }
            }
        }
        self.signals.outbox = true;
        self.signals.changed = true;
    }

    /// Queues the event of an earlier delivery again.
    pub(in crate::github) fn redeliver(&mut self, id: DeliveryId) -> Option<DeliveryId> {
        let earlier = self.hooks.delivery(id)?.clone();
        let blank = self.new_delivery(earlier.hook, earlier.guid.clone());
        let again =
            Delivery { action: earlier.action, job: earlier.job, installation: earlier.installation, redelivery: true, ..blank };
        let id = again.id;
        let late = self.chance.within(&self.settings.behaviour.redelivery_late);
        self.hooks.enqueue(again, late);
        self.signals.outbox = true;
        Some(id)
    }

    /// The JSON that a webhook receives: an event of a job, or a ping where the delivery has no job.
    pub(in crate::github) fn event_body(&self, delivery: &Delivery) -> Value {
        match &delivery.job {
            Some(job) => payload::job_event(&self.origin, &self.accounts, delivery, job.repository),
            None => json!({
                "zen": "Anything added dilutes everything else.",
                "hook_id": delivery.hook.0,
                "hook": {
                    "type": "Repository",
                    "id": delivery.hook.0,
                    "name": "web",
                    "active": true,
                    "events": ["workflow_job"],
                    "config": {"content_type": "json", "insecure_ssl": "0"},
                },
            }),
        }
    }

    /// The headers that GitHub sends with an event, without the signature.
    pub(in crate::github) fn event_headers(&self, delivery: &Delivery) -> Vec<(&'static str, String)> {
        let (kind, number) = match self.hooks.get(delivery.hook).map(|hook| &hook.owner) {
            Some(HookOwner::App(app)) => ("integration", *app),
            Some(HookOwner::Scope(scope)) => {
                let number = self.accounts.find(scope).and_then(|place| self.accounts.get(place)).map_or(0, |place| place.number);
                match scope {
                    Scope::Repository { .. } => ("repository", number),
                    Scope::Organization(_) => ("organization", number),
                    Scope::Enterprise(_) => ("business", number),
                }
            }
            None => ("repository", 0),
        };
        vec![
            ("content-type", "application/json".to_owned()),
            ("user-agent", "GitHub-Hookshot/044aadd".to_owned()),
            ("x-github-event", if delivery.job.is_some() { "workflow_job" } else { "ping" }.to_owned()),
            ("x-github-delivery", delivery.guid.clone()),
            ("x-github-hook-id", delivery.hook.to_string()),
            ("x-github-hook-installation-target-type", kind.to_owned()),
            ("x-github-hook-installation-target-id", number.to_string()),
        ]
    }
}
