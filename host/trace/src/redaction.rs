//! Names replaced by keyed hashes: the same name gives the same hash under the same key, and nobody without the key can try names.

use std::sync::Arc;

use ring::hmac;

use crate::Trace;
use crate::record::{About, Record, What};

/// Hexadecimal digits of a hash that are kept: a clash among a million names is a matter of one in ten million.
const DIGITS: usize = 16;

/// Replaces names of repositories, workflows, runners, nodes, zones, scopes and credentials, and drops free text. Labels and pools stay: what fits where depends on them.
#[derive(Debug)]
pub struct Redaction(hmac::Key);

impl Redaction {
    /// Makes a redaction; the same key gives the same hashes in every trace.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// The same trace without names.
    #[must_use]
    pub fn apply(&self, trace: &Trace) -> Trace {
        let records = trace.records.iter().filter(|record| record.what != What::Unknown);
        let records = records.map(|record| Record { at: record.at, what: self.what(&record.what) }).collect();
        Trace { header: crate::Header { redacted: true, ..trace.header.clone() }, records }
    }

    fn what(&self, what: &What) -> What {
        let mut what = what.clone();
        match &mut what {
            What::JobQueued { about, .. } => {
                *about = About {
                    repository: self.name("repository", &about.repository),
                    workflow: self.name("workflow", &about.workflow),
                    ..about.clone()
                };
            }
            What::JobStarted { runner: Some(runner), .. }
            | What::JobAssigned { runner, .. }
            | What::RunnerCreated { runner, .. }
            | What::RunnerRegistered { runner }
            | What::RunnerBusy { runner }
            | What::RunnerIdle { runner }
            | What::RunnerEnded { runner, .. } => *runner = self.name("runner", runner),
            What::RunnerPlaced { runner, node } => {
                *runner = self.name("runner", runner);
                *node = self.name("node", node);
            }
            What::Node(facts) => {
                facts.node = self.name("node", &facts.node);
                facts.zone = facts.zone.as_ref().map(|zone| self.name("zone", zone));
            }
            // It names taints and labels of nodes.
            What::Room(room) => room.message.clear(),
            What::Listings(listings) => {
                listings.credentials = self.name("credentials", &listings.credentials);
                listings.scopes.iter_mut().for_each(|one| one.scope = self.name("scope", &one.scope));
            }
            What::Budget(budget) => {
                budget.credentials = self.name("credentials", &budget.credentials);
                for window in &mut budget.windows {
                    window.owner = window.owner.as_ref().map(|owner| self.name("scope", owner));
                }
            }
            // Policies write what they like into a reason.
            What::Decision { why, .. } => why.clear(),
            // It names runners.
            What::Receipt { summary, receipt, .. } => {
                summary.clear();
                *receipt = None;
            }
            What::Pool(settings) => settings.scope = settings.scope.as_ref().map(|scope| self.name("scope", scope)),
            What::JobStarted { runner: None, .. }
            | What::JobCompleted { .. }
            | What::Resumed { .. }
            | What::Checkpoint {}
            | What::Unknown => {}
        }
        what
    }

    fn name(&self, kind: &str, name: &str) -> Arc<str> {
        let tag = hmac::sign(&self.0, format!("{kind}\0{name}").as_bytes());
        let hash: String = hex::encode(tag.as_ref()).chars().take(DIGITS).collect();
        Arc::from(format!("{kind}-{hash}"))
    }
}
