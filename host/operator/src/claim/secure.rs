//! A runner gets its claims: it keeps its own, takes a free one over, waits for one that is about to be free, or has one made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};
use pacer_api::names::{annotation, label};
use pacer_api::{Runner, claim_revision};
use pacer_cluster::answer::status;
use pacer_cluster::clock::Clock;
use pacer_cluster::live;
use pacer_cluster::object::ObjectKey;
use pacer_core::claim::{self, Choice, Claim};
use pacer_core::facts::Refuser;
use serde_json::{Value, json};

use super::{AGAIN, Claims, LOOK, Taking, change, holder, own_name, retention};
use crate::pod::ClaimedVolume;

/// Claims that are tried in one pass, when others are quicker.
const TRIES: usize = 4;

/// So long after it was made, a runner waits for a claim that is about to be free: longer than a pod takes to end and GitHub to confirm it.
const PATIENCE: SignedDuration = SignedDuration::from_secs(30);

/// What came of a runner's asking for its claims.
pub(crate) enum Secured {
    /// They are its own.
    Ready(Vec<ClaimedVolume>),
    /// One can't be made.
    Refused {
        /// Who refuses the claim.
        by: Refuser,
        /// Why the claim can't be made.
        message: String,
    },
    /// They are not all there yet; try again after this.
    Later(Duration),
}

/// What came of asking for one claim.
enum Found {
    /// Name of the runner's claim.
    Claim(String),
    /// None, for this reason.
    Not(Secured),
}

impl Claims {
    /// Gets a runner the claims that its pod needs.
    ///
    /// # Errors
    ///
    /// When the API server did not do its part; what was got by then is kept.
    pub(crate) async fn secure(&self, runner: &Runner, clock: Clock) -> Result<Secured, kube::Error> {
        let mut volumes = Vec::new();
        let Some(set) = runner.labels().get(label::RUNNER_SET_NAME) else { return Ok(Secured::Ready(volumes)) };
        for template in runner.spec.claim_templates() {
            let asking = Asking { all: self, set, runner, template, clock };
            match asking.one().await? {
                Found::Claim(claim) => volumes.push(ClaimedVolume { volume: template.name_any(), claim }),
                Found::Not(secured) => return Ok(secured),
            }
        }
        Ok(Secured::Ready(volumes))
    }
}

/// A runner that needs a claim of one template.
struct Asking<'a> {
    all: &'a Claims,
    /// Name of its RunnerSet.
    set: &'a str,
    runner: &'a Runner,
    template: &'a PersistentVolumeClaim,
    clock: Clock,
}

impl Asking<'_> {
    /// Name of the claim, or why there is none.
    async fn one(&self) -> Result<Found, kube::Error> {
        let mut tried = BTreeSet::new();
        for _ in 0..TRIES {
            let (choice, known) = self.choose(&tried);
            let outcome = match (choice, &known) {
                (Choice::Keep(_), Some(claim)) => return Ok(Found::Claim(claim.name_any())),
                (Choice::Take(_), Some(claim)) => self.take(claim).await,
                (Choice::Await(_), _) => return Ok(Found::Not(Secured::Later(LOOK))),
                _ => return self.make().await,
            };
            let name = known.map(|claim| claim.name_any()).unwrap_or_default();
            match outcome {
                Ok(true) => return Ok(Found::Claim(name)),
                Ok(false) => {
                    self.forget(&name);
                    tried.insert(name);
                }
                Err(error) => {
                    self.forget(&name);
                    return Err(error);
                }
            }
        }
        Ok(Found::Not(Secured::Later(AGAIN)))
    }

    fn namespace(&self) -> String {
        self.runner.namespace().unwrap_or_default()
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        self.all.cluster.api(&self.namespace())
    }

    /// Chooses, and records it before anybody else can choose.
    fn choose(&self, tried: &BTreeSet<String>) -> (Choice, Option<Arc<PersistentVolumeClaim>>) {
        let (namespace, me) = (self.namespace(), self.runner.name_any());
        self.all.with_takings(|takings| {
            // A runner waits for one claim at a time; what it waited for before is for others.
            takings.retain(|_, taking| !taking.waits || taking.runner != me);
            let mut known = self.all.of_set(&namespace, self.set);
            known.retain(|claim| !tried.contains(&claim.name_any()));
            let described: Vec<Claim<'_>> = known.iter().map(|claim| self.all.describe(takings, claim, Some(&me))).collect();
            let created = self.runner.metadata.creation_timestamp.as_ref().map_or(self.clock.now, |time| time.0);
            let patient = self.clock.now.duration_since(created) < PATIENCE;
            let choice = claim::choose(&described, &claim_revision(self.template), patient, self.clock.now);
            let chosen = match choice {
                Choice::Keep(index) | Choice::Take(index) | Choice::Await(index) => known.get(index).cloned(),
                Choice::Make => None,
            };
            if let Some(claim) = &chosen {
                let waits = matches!(choice, Choice::Await(_));
                takings.insert(ObjectKey::new(namespace, claim.name_any()), Taking { runner: me, at: self.clock.instant, waits });
            }
            (choice, chosen)
        })
    }

    /// Somebody else may have it.
    fn forget(&self, claim: &str) {
        self.all.with_takings(|takings| takings.remove(&ObjectKey::new(self.namespace(), claim)));
    }

    /// Writes its name on a free claim. False when somebody was quicker.
    async fn take(&self, claim: &PersistentVolumeClaim) -> Result<bool, kube::Error> {
        let (claims, name) = (self.claims(), claim.name_any());
        let signed = |version: Option<&String>| {
            json!({"metadata": {
                "resourceVersion": version,
                "labels": self.labels(),
                "annotations": {
                    annotation::CLAIM_TAKEN: self.clock.now.to_string(),
                    annotation::CLAIM_UNUSABLE: Value::Null,
                    annotation::CLAIM_ASIDE: Value::Null,
                },
            }})
        };
        if change(&claims, &name, &signed(claim.metadata.resource_version.as_ref())).await? {
            return Ok(true);
        }
        // Whoever binds and resizes claims changes them as well.
        let aside = |meta: &ObjectMeta| meta.annotations.iter().flatten().any(|(key, _)| key == annotation::CLAIM_ASIDE);
        let as_chosen = |meta: &ObjectMeta| holder(meta) == holder(&claim.metadata) && aside(meta) == aside(&claim.metadata);
        match live::metadata::<PersistentVolumeClaim>(&self.all.cluster.client, &self.namespace(), &name).await? {
            Some(now) if now.deletion_timestamp.is_none() && as_chosen(&now) => {
                change(&claims, &name, &signed(now.resource_version.as_ref())).await
            }
            _ => Ok(false),
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (label::RUNNER_SET_NAME.to_owned(), self.set.to_owned()),
            (label::RUNNER_STATEFUL_SET_NAME.to_owned(), self.runner.name_any()),
            (label::CLAIM_REVISION.to_owned(), claim_revision(self.template)),
        ])
    }

    /// A claim of its own.
    async fn make(&self) -> Result<Found, kube::Error> {
        let (namespace, me) = (self.namespace(), self.runner.name_any());
        let name = own_name(self.template, &me);
        let set = self.all.cluster.stores.runner_sets.get(&ObjectRef::new(self.set).within(&namespace));
        let mut labels = self.template.labels().clone();
        // As a StatefulSet does.
        labels.extend(set.iter().flat_map(|set| set.spec.stateful.selector.match_labels.clone().unwrap_or_default()));
        labels.extend(self.labels());
        let mut annotations = self.template.annotations().clone();
        annotations.insert(annotation::CLAIM_TAKEN.to_owned(), self.clock.now.to_string());
        let claim = PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.clone()),
                labels: Some(labels),
                annotations: Some(annotations),
                owner_references: set.as_deref().and_then(retention::owner).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: self.template.spec.clone(),
            status: None,
        };
        let refused = |by, message| Ok(Found::Not(Secured::Refused { by, message }));
        let error = match self.claims().create(&PostParams::default(), &claim).await {
            Ok(_) => return Ok(Found::Claim(name)),
            Err(error) => error,
        };
        match status(&error) {
            // Made by an earlier try whose answer was lost.
            Some(answer) if answer.is_already_exists() => {
                match live::metadata::<PersistentVolumeClaim>(&self.all.cluster.client, &namespace, &name).await? {
                    Some(found) if found.deletion_timestamp.is_some() => Ok(Found::Not(Secured::Later(AGAIN))),
                    Some(found) if holder(&found) == Some(&me) => Ok(Found::Claim(name)),
                    Some(_) => refused(
                        Refuser::Pod,
                        format!(
                            "the claim {name} exists already and is not this runner's: delete it, or give the claim template or the RunnerSet \
                         another name"
                        ),
                    ),
                    None => Ok(Found::Not(Secured::Later(AGAIN))),
                }
            }
            Some(answer) if answer.is_forbidden() || answer.is_invalid() => {
                let by = if answer.message.contains("exceeded quota") { Refuser::Quota } else { Refuser::Pod };
                refused(by, format!("the claim {name} can't be made: {}", answer.message))
            }
            _ => Err(error),
        }
    }
}
