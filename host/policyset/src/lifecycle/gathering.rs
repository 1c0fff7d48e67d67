//! The part of a life cycle in which modules come from registries. Whatever becomes of it, what is active stays active.

use std::sync::Arc;

use futures::FutureExt;
use pacer_cluster::events::Reason;
use pacer_core::reference::Reference;
use tokio::time::Instant;

use super::{Earlier, Lifecycle};
use crate::content::{Content, Pulled, remote};
use crate::pull::{Lack, held, pause};
use crate::report::content_digest;
use crate::{Failure, PolicySets};

impl Lifecycle {
    /// Looks for the modules of a content that lie in registries: in its records, and then there.
    pub(super) async fn gather(&mut self, content: Content) {
        let remote = remote(&content.object);
        if remote.references.is_empty() || content.pulled.is_some() {
            return self.queue(content);
        }
        let held = match self.history.list().await {
            Ok(records) => held(&remote, &records, self.sets.keys()),
            Err(error) => {
                tracing::warn!(set = %self.key, %error, "history of a policy set not read, so that its modules are pulled");
                Pulled::default()
            }
        };
        if held.missing(&remote).is_empty() {
            return self.queue(content.with(held));
        }
        // Nobody waits for a registry: after a restart, the last good content decides until it has answered.
        if !self.looked {
            if self.active.is_none() {
                self.fall_back().await;
            }
            if let Some(active) = &mut self.active {
                active.earlier = Some(Earlier::Refused);
            }
            self.publish().await;
        }
        if let Some(failure) = self.not_admitted(&held.missing(&remote)) {
            return self.pulled(Err(Lack { content, failure, may_pass: true })).await;
        }
        let (client, namespace) = (self.cluster.client.clone(), self.key.namespace.clone());
        self.pulling = Some(Arc::clone(&self.sets.puller).pull(client, namespace, content, held).boxed());
    }

    /// Why these may not be pulled. The cluster's default set is that of whoever runs the operator.
    fn not_admitted(&self, references: &[Reference]) -> Option<Failure> {
        let namespace = (!self.sets.is_default(&self.key)).then_some(self.key.namespace.as_str())?;
        references.iter().find_map(|reference| self.sets.puller.refusal(namespace, reference))
    }

    /// A pull has come to its end.
    pub(super) async fn pulled(&mut self, outcome: Result<Content, Lack>) {
        let Lack { content, failure, may_pass } = match outcome {
            Ok(content) => {
                self.pulls_failed = 0;
                return self.queue(content);
            }
            Err(lack) => lack,
        };
        if self.failure.as_ref().is_none_or(|(before, _)| *before != failure) {
            PolicySets::count(&self.sets.totals().refusals);
        }
        self.judged = Some(content_digest(&content.object));
        // A verdict beside the trial of another content would say that the other one is being tried.
        self.trial = None;
        self.retreat(Earlier::Refused).await;
        self.refuse(failure, Reason::PolicyRefused).await;
        if may_pass {
            self.pulls_failed = self.pulls_failed.saturating_add(1);
            self.due = Some(Instant::now() + pause(self.pulls_failed));
            self.pending = Some(content);
        }
    }
}
