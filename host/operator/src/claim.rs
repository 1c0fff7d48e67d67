//! Claims of RunnerSets: each runner takes a free one over, with what is on its volume, or gets a new one.
//!
//! ```text
//! runner: claims of its set -> keep | take | await | make -> pod
//! stuck:  claims of its own -> their volumes are out of reach -> set aside -> another runner, with another claim
//! set:    claims of the set -> owners as the retention policy says -> delete what is too many (whenScaled: Delete)
//! sweep:  all claims        -> nobody can take it any more -> say so -> delete after the retention time, if there is one
//! ```
//!
//! Who has a claim is written on the claim, in ARC's label, under the precondition that nobody changed the claim meanwhile: two runners never
//! get the same one, whichever process looks at a store that is late. It is free again when neither a Runner nor a pod of that name exists,
//! so that giving it back takes no write and can't be forgotten. Volumes are never touched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource, ResourceExt};
use pacer_api::names::{annotation, label};
use pacer_api::runner_set::ClaimRetention;
use pacer_api::{Runner, RunnerSet, claim_revision};
use pacer_core::claim::{self, Choice, Claim, Condition, Held, Reach, Tenure, Unusable};
use pacer_core::facts::Refuser;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{made_as_seen, status};
use crate::events::Reason;
use crate::memory::{IN_FLIGHT, Memory, Taking, Takings};
use crate::observe::{Clock, Observed, pod_facts};
use crate::pod::ClaimedVolume;
use crate::runner;
use crate::stores::Stores;

/// Claims that are tried in one pass, when others are quicker.
const TRIES: usize = 4;

/// A runner whose claim is on its way out, or that was too slow, tries again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// So long after it was made, a runner waits for a claim that is about to be free: longer than a pod takes to end and GitHub to confirm it.
const PATIENCE: SignedDuration = SignedDuration::from_secs(30);

/// A runner that waits for a claim looks again after this.
const LOOK: Duration = Duration::from_millis(500);

/// What came of a runner's asking for its claims.
pub(crate) enum Secured {
    /// They are its own.
    Ready(Vec<ClaimedVolume>),
    /// One can't be made.
    Refused(Refuser, String),
    /// Not now.
    Later(Duration),
}

/// Gets a runner the claims that its pod needs.
///
/// # Errors
///
/// When the API server did not do its part; what was got by then is kept.
pub(crate) async fn secure(ctx: &Context, runner: &Runner, clock: Clock) -> Result<Secured, kube::Error> {
    let mut volumes = Vec::new();
    let Some(set) = runner.labels().get(label::RUNNER_SET_NAME) else { return Ok(Secured::Ready(volumes)) };
    for template in runner.spec.claim_templates() {
        let asking = Asking { ctx, set, runner, template, clock };
        match asking.one().await? {
            Ok(claim) => volumes.push(ClaimedVolume { volume: template.name_any(), claim }),
            Err(outcome) => return Ok(outcome),
        }
    }
    Ok(Secured::Ready(volumes))
}

/// A runner that needs a claim of one template.
struct Asking<'a> {
    ctx: &'a Context,
    /// Name of its RunnerSet.
    set: &'a str,
    runner: &'a Runner,
    template: &'a PersistentVolumeClaim,
    clock: Clock,
}

impl Asking<'_> {
    /// Name of the claim, or why there is none.
    async fn one(&self) -> Result<Result<String, Secured>, kube::Error> {
        let mut tried = BTreeSet::new();
        for _ in 0..TRIES {
            let (choice, known) = self.choose(&tried);
            let outcome = match (choice, &known) {
                (Choice::Keep(_), Some(claim)) => return Ok(Ok(claim.name_any())),
                (Choice::Take(_), Some(claim)) => self.take(claim).await,
                (Choice::Await(_), _) => return Ok(Err(Secured::Later(LOOK))),
                _ => return self.make().await,
            };
            let name = known.map(|claim| claim.name_any()).unwrap_or_default();
            match outcome {
                Ok(true) => return Ok(Ok(name)),
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
        Ok(Err(Secured::Later(AGAIN)))
    }

    fn namespace(&self) -> String {
        self.runner.namespace().unwrap_or_default()
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.ctx.client.clone(), &self.namespace())
    }

    /// Chooses, and takes note of it before anybody else can choose.
    fn choose(&self, tried: &BTreeSet<String>) -> (Choice, Option<Arc<PersistentVolumeClaim>>) {
        let (namespace, me) = (self.namespace(), self.runner.name_any());
        self.ctx.memory.claims(|takings| {
            // A runner waits for one claim at a time; what it waited for before is for others.
            takings.retain(|_, taking| !taking.waits || taking.runner != me);
            let mut known = of_set(&self.ctx.stores, &namespace, self.set);
            known.retain(|claim| !tried.contains(&claim.name_any()));
            let described: Vec<Claim<'_>> =
                known.iter().map(|claim| describe(Known::of(self.ctx), takings, claim, Some(&me))).collect();
            let created = self.runner.metadata.creation_timestamp.as_ref().map_or(self.clock.now, |time| time.0);
            let patient = self.clock.now.duration_since(created) < PATIENCE;
            let choice = claim::choose(&described, &claim_revision(self.template), patient, self.clock.now);
            let chosen = match choice {
                Choice::Keep(index) | Choice::Take(index) | Choice::Await(index) => known.get(index).cloned(),
                Choice::Make => None,
            };
            if let Some(claim) = &chosen {
                let waits = matches!(choice, Choice::Await(_));
                takings.insert((namespace, claim.name_any()), Taking { runner: me, at: self.clock.instant, waits });
            }
            (choice, chosen)
        })
    }

    /// Somebody else may have it.
    fn forget(&self, claim: &str) {
        self.ctx.memory.claims(|takings| takings.remove(&(self.namespace(), claim.to_owned())));
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
        match self.ctx.live_named::<PersistentVolumeClaim>(&self.namespace(), &name).await? {
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
    async fn make(&self) -> Result<Result<String, Secured>, kube::Error> {
        let (namespace, me) = (self.namespace(), self.runner.name_any());
        let name = own_name(self.template, &me);
        let set = self.ctx.stores.runner_sets.get(&ObjectRef::new(self.set).within(&namespace));
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
                owner_references: set.as_deref().and_then(owner).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: self.template.spec.clone(),
            status: None,
        };
        let refused = |message: String| Ok(Err(Secured::Refused(Refuser::Pod, message)));
        let error = match self.claims().create(&PostParams::default(), &claim).await {
            Ok(_) => return Ok(Ok(name)),
            Err(error) => error,
        };
        match status(&error) {
            // Made by an earlier try whose answer was lost.
            Some(answer) if answer.is_already_exists() => {
                match self.ctx.live_named::<PersistentVolumeClaim>(&namespace, &name).await? {
                    Some(found) if found.deletion_timestamp.is_some() => Ok(Err(Secured::Later(AGAIN))),
                    Some(found) if holder(&found) == Some(&me) => Ok(Ok(name)),
                    Some(_) => refused(format!(
                        "the claim {name} exists already and is not this runner's: delete it, or give the claim template or the RunnerSet \
                         another name"
                    )),
                    None => Ok(Err(Secured::Later(AGAIN))),
                }
            }
            Some(answer) if answer.is_forbidden() || answer.is_invalid() => {
                let by = if answer.message.contains("exceeded quota") { Refuser::Quota } else { Refuser::Pod };
                Ok(Err(Secured::Refused(by, format!("the claim {name} can't be made: {}", answer.message))))
            }
            _ => Err(error),
        }
    }
}

/// Sees to a runner whose pod no node takes: one that has waited too long for volumes that are out of reach makes room for another, and its
/// claims are set aside. Returns when to look again, where the volumes may be what keeps it waiting.
///
/// # Errors
///
/// When the API server did not do its part; what was set aside by then stays so, and the rest follows.
pub(crate) async fn reach(
    ctx: &Context,
    runner: &Runner,
    observed: &Observed,
    clock: Clock,
) -> Result<Option<Duration>, kube::Error> {
    let waiting = observed.facts.pod.as_ref().filter(|pod| pod.node.is_none() && pod.deleting.is_none());
    let Some((since, message)) = waiting.and_then(|pod| pod.unschedulable.as_ref()) else { return Ok(None) };
    let (Some(set), Some(owner)) = (runner.labels().get(label::RUNNER_SET_NAME), ctx.stores.set_of(runner)) else {
        // Nobody would make another.
        return Ok(None);
    };
    let (namespace, me) = (runner.namespace().unwrap_or_default(), runner.name_any());
    let mut mine = of_set(&ctx.stores, &namespace, set);
    mine.retain(|claim| claim.metadata.deletion_timestamp.is_none() && holder(&claim.metadata) == Some(&me));
    let tenures: Vec<Tenure> = mine.iter().map(|claim| tenure(runner, claim)).collect();
    let patience = SignedDuration::try_from(ctx.settings.claim_patience).unwrap_or(SignedDuration::MAX);
    match claim::reach(*since, message, &tenures, patience, clock.now) {
        Reach::Unconcerned => return Ok(None),
        Reach::Hope(left) => return Ok(Some(Duration::try_from(left).unwrap_or(LOOK))),
        Reach::Lost => {}
    }
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), &namespace);
    let mut aside = Vec::new();
    for (claim, tenure) in mine.iter().zip(&tenures).filter(|(_, tenure)| tenure.inherited) {
        let mark = json!({"metadata": {
            "resourceVersion": claim.resource_version(),
            "annotations": {annotation::CLAIM_ASIDE: clock.now.to_string()},
        }});
        if !tenure.aside && !change(&claims, &claim.name_any(), &mark).await? {
            return Ok(Some(AGAIN));
        }
        aside.push(claim.name_any());
    }
    runner::let_go(ctx, &namespace, &me, &observed.facts.uid, clock).await?;
    let note = format!(
        "replaced runner {me}: no node has reached the volumes of its claims {} for {} s, which were set aside ({message})",
        aside.join(", "),
        clock.now.duration_since(*since).as_secs(),
    );
    tracing::info!(
        runner = me,
        namespace,
        claims = aside.join(", "),
        scheduler = message,
        "runner given up: volumes out of reach"
    );
    ctx.events.publish(Reason::RunnerReplaced, &owner.object_ref(&()), Some(runner.object_ref(&())), &note).await;
    Ok(Some(ctx.settings.sync_period))
}

fn tenure(runner: &Runner, claim: &PersistentVolumeClaim) -> Tenure {
    let name = claim.name_any();
    let made = runner.spec.claim_templates().iter().any(|template| own_name(template, &runner.name_any()) == name);
    let unbound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending");
    Tenure { inherited: !unbound && !made, aside: claim.annotations().contains_key(annotation::CLAIM_ASIDE) }
}

/// What a claim is called that is made for a runner: as a StatefulSet would name it.
fn own_name(template: &PersistentVolumeClaim, runner: &str) -> String {
    format!("{}-{runner}", template.name_any())
}

/// Changes the metadata of a claim, unless it is gone or another one by now, which is answered with false.
async fn change(claims: &Api<PersistentVolumeClaim>, name: &str, patch: &Value) -> Result<bool, kube::Error> {
    made_as_seen(claims.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch)).await)
}

/// Deletes a claim as it was seen. False when it is gone or was changed.
async fn delete(ctx: &Context, claim: &PersistentVolumeClaim) -> Result<bool, kube::Error> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), &claim.namespace().unwrap_or_default());
    let as_seen = DeleteParams {
        preconditions: Some(Preconditions { uid: claim.uid(), resource_version: claim.resource_version() }),
        ..DeleteParams::default()
    };
    made_as_seen(claims.delete(&claim.name_any(), &as_seen).await)
}

/// Who has a claim or had it last, as it says.
fn holder(claim: &ObjectMeta) -> Option<&String> {
    claim.labels.as_ref()?.get(label::RUNNER_STATEFUL_SET_NAME)
}

/// The claims of a RunnerSet, whether that exists or not.
fn of_set(stores: &Stores, namespace: &str, set: &str) -> Vec<Arc<PersistentVolumeClaim>> {
    stores.claims.state_filter(|claim| {
        claim.metadata.namespace.as_deref() == Some(namespace)
            && claim.labels().get(label::RUNNER_SET_NAME).is_some_and(|name| name == set)
    })
}

/// Where it is looked up what became of a runner.
#[derive(Clone, Copy)]
struct Known<'a> {
    stores: &'a Stores,
    memory: &'a Memory,
}

impl<'a> Known<'a> {
    fn of(ctx: &'a Context) -> Self {
        Self { stores: &ctx.stores, memory: &ctx.memory }
    }
}

fn describe<'a>(known: Known<'_>, takings: &Takings, claim: &'a PersistentVolumeClaim, me: Option<&str>) -> Claim<'a> {
    let meta = &claim.metadata;
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let at = |key: &str| claim.annotations().get(key).and_then(|at| at.parse::<Timestamp>().ok());
    Claim {
        name: meta.name.as_deref().unwrap_or_default(),
        revision: claim.labels().get(label::CLAIM_REVISION).map(String::as_str),
        held: held(known, takings, claim, me),
        condition: match phase {
            _ if meta.deletion_timestamp.is_some() => Condition::Leaving,
            Some("Lost") => Condition::Lost,
            _ => Condition::Usable,
        },
        taken: at(annotation::CLAIM_TAKEN).or_else(|| meta.creation_timestamp.as_ref().map(|time| time.0)),
        aside: at(annotation::CLAIM_ASIDE),
    }
}

/// Who has a claim, by its label or by what this process wrote there and does not see yet. Nobody takes one that says nothing.
fn held(known: Known<'_>, takings: &Takings, claim: &PersistentVolumeClaim, me: Option<&str>) -> Held {
    let namespace = claim.namespace().unwrap_or_default();
    let recent = takings.get(&(namespace.clone(), claim.name_any())).filter(|taking| taking.at.elapsed() < IN_FLIGHT);
    let taken = recent.filter(|taking| !taking.waits).map(|taking| &taking.runner);
    let Some(holder) = taken.or_else(|| holder(&claim.metadata)) else { return Held::Other };
    if me == Some(holder) {
        return Held::Mine;
    }
    // Somebody waits for it already.
    let promised = recent.is_some_and(|taking| taking.waits && me != Some(&taking.runner));
    if promised {
        return Held::Other;
    }
    // ARC wrote the name of a StatefulSet, whose pod has a number at its end.
    match standing(known, &namespace, holder) {
        Held::Free => standing(known, &namespace, &format!("{holder}-0")),
        held => held,
    }
}

/// What became of the holder of a claim.
fn standing(known: Known<'_>, namespace: &str, holder: &str) -> Held {
    let runner = known.stores.runners.get(&ObjectRef::new(holder).within(namespace));
    let pod = known.stores.pods.get(&ObjectRef::new(holder).within(namespace));
    let facts = pod.as_deref().map(|pod| pod_facts(pod, false));
    match (runner, facts) {
        (None, None) => Held::Free,
        (_, Some(pod)) if pod.stopped() || pod.deleting.is_some() => Held::Ending,
        (Some(runner), None) if known.memory.is_leaving(&runner) => Held::Ending,
        _ => Held::Other,
    }
}

/// The set as the owner of its claims, if they are to go with it.
fn owner(set: &RunnerSet) -> Option<OwnerReference> {
    (set.spec.claims_when_deleted() == ClaimRetention::Delete).then(|| set.owner_ref(&())).flatten()
}

/// What is missing among the labels of a claim that a StatefulSet of ARC's made: the revision of its template, which is known by the claim's
/// name, and its holder where ARC did not come to write it.
fn missing(set: &RunnerSet, claim: &PersistentVolumeClaim) -> Option<Value> {
    let name = claim.name_any();
    let templates = set.spec.stateful.volume_claim_templates.iter().flatten();
    let of_it = |template: &&PersistentVolumeClaim| name.starts_with(&format!("{}-{}-", template.name_any(), set.name_any()));
    let template = templates.filter(of_it).max_by_key(|template| template.name_any().len())?;
    let pod = name.strip_prefix(&format!("{}-", template.name_any()))?;
    let holder = claim.labels().get(label::RUNNER_STATEFUL_SET_NAME).map_or(pod, String::as_str);
    let unknown = !claim.labels().contains_key(label::CLAIM_REVISION);
    unknown.then(|| json!({label::CLAIM_REVISION: claim_revision(template), label::RUNNER_STATEFUL_SET_NAME: holder}))
}

/// Revisions of the claim templates that a set has now.
fn revisions(set: &RunnerSet) -> Vec<String> {
    set.spec.stateful.volume_claim_templates.iter().flatten().map(claim_revision).collect()
}

/// Follows a set's retention policy: makes it the owner of its claims or takes it away, and deletes claims that nobody needs. Claims that ARC
/// left become the set's like all others.
///
/// # Errors
///
/// When the API server refuses.
pub(crate) async fn tend(ctx: &Context, set: &RunnerSet) -> Result<(), kube::Error> {
    let namespace = set.namespace().unwrap_or_default();
    let known = of_set(&ctx.stores, &namespace, &set.name_any());
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), &namespace);
    let owner = owner(set);
    for claim in known.iter().filter(|claim| claim.meta().deletion_timestamp.is_none()) {
        let mut owners = claim.owner_references().to_vec();
        owners.retain(|present| present.kind != RunnerSet::kind(&()) || present.name != set.name_any());
        owners.extend(owner.clone());
        let labels = missing(set, claim);
        if owners != claim.owner_references() || labels.is_some() {
            let labels = labels.unwrap_or_else(|| json!({}));
            let patch = json!({"metadata": {
                "resourceVersion": claim.resource_version(), "ownerReferences": owners, "labels": labels,
            }});
            change(&claims, &claim.name_any(), &patch).await?;
        }
    }
    if set.spec.claims_when_scaled() == ClaimRetention::Retain {
        return Ok(());
    }
    let revisions = revisions(set);
    let revisions: Vec<&str> = revisions.iter().map(String::as_str).collect();
    let wanted = usize::try_from(set.spec.replicas_or_default()).unwrap_or(usize::MAX);
    let surplus = ctx.memory.claims(|takings| {
        let described: Vec<Claim<'_>> = known.iter().map(|claim| describe(Known::of(ctx), takings, claim, None)).collect();
        claim::surplus(&described, &revisions, wanted)
    });
    for claim in surplus.into_iter().filter_map(|index| known.get(index)) {
        if delete(ctx, claim).await? {
            tracing::info!(namespace, claim = claim.name_any(), set = set.name_any(), "claim deleted: fewer runners are wanted");
        }
    }
    Ok(())
}

/// Finds claims that no runner will ever take again, says so once, and deletes them after the retention time where there is one.
pub(crate) async fn sweep(ctx: &Context) {
    let now = Timestamp::now();
    for claim in ctx.stores.claims.state() {
        if let Err(error) = judge(ctx, &claim, now).await {
            tracing::warn!(namespace = claim.namespace(), claim = claim.name_any(), %error, "claim not looked after");
        }
    }
}

async fn judge(ctx: &Context, claim: &PersistentVolumeClaim, now: Timestamp) -> Result<(), kube::Error> {
    let namespace = claim.namespace().unwrap_or_default();
    let Some(set) = claim.labels().get(label::RUNNER_SET_NAME) else { return Ok(()) };
    let marked = claim.annotations().get(annotation::CLAIM_UNUSABLE);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), &namespace);
    let annotate = async |key: &str, since: Value| {
        let patch = json!({"metadata": {"resourceVersion": claim.resource_version(), "annotations": {key: since}}});
        change(&claims, &claim.name_any(), &patch).await
    };
    if claim.annotations().contains_key(annotation::CLAIM_ASIDE) && is_reached(ctx, claim) {
        // A node came back as its runner was about to be replaced.
        annotate(annotation::CLAIM_ASIDE, Value::Null).await?;
        return Ok(());
    }
    let found = ctx.memory.claims(|takings| unusable(Known::of(ctx), takings, claim, &namespace, set));
    let Some(why) = found else {
        if marked.is_some() {
            annotate(annotation::CLAIM_UNUSABLE, Value::Null).await?;
        }
        return Ok(());
    };
    let Some(since) = marked.and_then(|since| since.parse::<Timestamp>().ok()) else {
        if annotate(annotation::CLAIM_UNUSABLE, json!(now.to_string())).await? {
            let note = format!("{}; {}", reason(why, set), advice(ctx.settings.claim_retention));
            ctx.events.publish(Reason::ClaimUnusable, &claim.object_ref(&()), None, &note).await;
        }
        return Ok(());
    };
    let Some(retention) = ctx.settings.claim_retention else { return Ok(()) };
    let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    // The watch may be late to show a set that was made again.
    let is_back = why == Unusable::SetGone && ctx.live_named::<RunnerSet>(&namespace, set).await?.is_some();
    if age >= retention && !is_back && delete(ctx, claim).await? {
        tracing::info!(namespace, claim = claim.name_any(), why = reason(why, set), "claim deleted: its retention time is over");
    }
    Ok(())
}

/// Whether a node has the pod that has a claim.
fn is_reached(ctx: &Context, claim: &PersistentVolumeClaim) -> bool {
    let Some(holder) = holder(&claim.metadata) else { return false };
    let pod = ctx.stores.pods.get(&ObjectRef::new(holder).within(&claim.namespace().unwrap_or_default()));
    pod.is_some_and(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()))
}

fn unusable(known: Known<'_>, takings: &Takings, claim: &PersistentVolumeClaim, namespace: &str, set: &str) -> Option<Unusable> {
    let set = known.stores.runner_sets.get(&ObjectRef::new(set).within(namespace));
    let revisions = set.as_deref().map(revisions);
    let revisions: Option<Vec<&str>> = revisions.as_ref().map(|all| all.iter().map(String::as_str).collect());
    claim::unusable(&describe(known, takings, claim, None), revisions.as_deref())
}

fn reason(why: Unusable, set: &str) -> String {
    match why {
        Unusable::SetGone => format!("no runner can use this claim: there is no RunnerSet {set}"),
        Unusable::TemplateGone => {
            format!("no runner can use this claim: RunnerSet {set} has no volumeClaimTemplate like the one it was made from")
        }
        Unusable::VolumeGone => "no runner can use this claim: its volume is gone".to_owned(),
        Unusable::OutOfReach => format!(
            "no node could reach the volume of this claim: another one has its place, and it is tried again at the earliest after an hour, \
             where RunnerSet {set} has no other; take the annotation {} away to have it used again now",
            annotation::CLAIM_ASIDE
        ),
    }
}

fn advice(retention: Option<Duration>) -> String {
    match retention {
        Some(retention) => format!("it is deleted in {} s unless that changes", retention.as_secs()),
        None => "delete it, or have the operator delete such claims with --runner-set-claim-retention".to_owned(),
    }
}

/// How many claims there are by namespace, RunnerSet and state.
pub(crate) fn census(stores: &Stores, memory: &Memory) -> BTreeMap<(String, String, &'static str), usize> {
    let mut counts = BTreeMap::new();
    for claim in stores.claims.state() {
        let namespace = claim.namespace().unwrap_or_default();
        let Some(set) = claim.labels().get(label::RUNNER_SET_NAME) else { continue };
        let known = Known { stores, memory };
        let state = memory.claims(|takings| match unusable(known, takings, &claim, &namespace, set) {
            Some(_) => "unusable",
            None if held(known, takings, &claim, None) == Held::Free => "free",
            None => "held",
        });
        *counts.entry((namespace, set.clone(), state)).or_default() += 1;
    }
    counts
}
