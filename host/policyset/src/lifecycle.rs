//! The life cycle of one policy set: follows its ConfigMap, stages and activates new contents, rolls bad ones back, and reports that.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, OptionFuture};
use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::watch_object;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use pacer_api::names::annotation;
use pacer_cluster::answer::{ignore_not_found, is_forbidden};
use pacer_cluster::events::Reason;
use pacer_cluster::object::ObjectKey;
use pacer_policy::{Bundle, BundleError, Decision, Digest, IsolationLevel, PolicyHost, StagedSet, Turn};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use crate::content::Content;
use crate::history::{Entry, History, Tried, parse};
use crate::pull::Lack;
use crate::report::{Detail, Report, Subject, Trial, content_digest, dated, summary, undated};
use crate::trial::{Precedent, QUARANTINED, precedent, refusal};
use crate::{Cluster, Failure, Phase, PolicySets, View};

/// Changes of a ConfigMap within this time are staged together.
const DEBOUNCE: Duration = Duration::from_millis(200);

/// A content whose policies keep failing this soon after its activation is rolled back.
const PROBATION: SignedDuration = SignedDuration::from_mins(10);

/// The status is not written more often than this, whatever happens.
const STATUS_PACE: Duration = Duration::from_secs(1);

/// Numbers alone are written no more often than this.
const NUMBERS_PACE: Duration = Duration::from_secs(60);

/// What the API server did not take is tried again after this.
const RETRY: Duration = Duration::from_secs(5);

/// What is remembered of the ConfigMap; its content is up to a MiB and is not.
struct About {
    reference: ObjectReference,
    content: Digest,
    /// The content as it is tried.
    subject: Subject,
    disabled: bool,
    /// Without the time of its counts, which is of no interest here.
    status: Option<String>,
}

impl About {
    fn of(object: &ConfigMap) -> Self {
        Self {
            reference: ObjectReference { resource_version: object.resource_version(), ..object.object_ref(&()) },
            content: content_digest(object),
            subject: Subject::of(object),
            disabled: object.annotations().get(annotation::POLICIES_DISABLED).is_some_and(|word| word == "true"),
            status: object.annotations().get(annotation::POLICY_STATUS).map(|text| undated(text)),
        }
    }
}

/// The active content.
struct Active {
    staged: Arc<StagedSet>,
    since: Timestamp,
    /// It is not what the ConfigMap holds.
    earlier: Option<Earlier>,
}

/// Why an earlier content is active.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Earlier {
    Refused,
    RolledBack,
}

struct Staged {
    content: Content,
    outcome: Result<(Bundle, Arc<StagedSet>), Failure>,
}

/// A write of the status that is not answered yet.
struct Writing {
    /// What the status says then, without the time of its counts.
    text: String,
    purpose: Purpose,
    answer: BoxFuture<'static, Result<(), kube::Error>>,
}

/// What goes on with the answer to a write.
enum Purpose {
    /// The trial of this content.
    Trial { trial: Trial, turn: Turn, content: Content },
    /// Nothing, until this essence has changed.
    Status { essence: String },
}

/// One policy set.
pub(super) struct Lifecycle {
    key: ObjectKey,
    sets: Arc<PolicySets>,
    cluster: Cluster,
    history: History,
    about: Option<About>,
    pending: Option<Content>,
    due: Option<Instant>,
    /// Gets what the pending content names in registries.
    pulling: Option<BoxFuture<'static, Result<Content, Lack>>>,
    /// Pulls of the newest content that failed.
    pulls_failed: u32,
    /// For the pending content, once it is due.
    turn: Option<BoxFuture<'static, Turn>>,
    staging: Option<BoxFuture<'static, Staged>>,
    /// The write of the status that is under way. Nothing else goes on until it is answered, not even an orderly stop: an answer that
    /// nobody waits for leaves open what the next process will read.
    writing: Option<Writing>,
    /// What earlier processes left as the status of this set.
    left: Option<Report>,
    /// The newest trial that was written down, by whichever process.
    trial: Option<Trial>,
    active: Option<Active>,
    failure: Option<(Failure, Timestamp)>,
    /// The content that was staged or refused last.
    judged: Option<Digest>,
    /// Digests of contents that were rolled back, with the reason.
    rejected: HashMap<String, String>,
    /// The active content, while it is not in the history yet.
    unrecorded: Option<(Bundle, Content)>,
    /// It has been staged or refused once.
    looked: bool,
    /// The active policies whose circuit breaker was open when that was last read.
    failing: Vec<(Decision, String)>,
    /// The essence of the status that was written last, and when.
    written: Option<(String, Instant)>,
    /// No request that failed is repeated before this.
    retry: Option<Instant>,
}

impl Lifecycle {
    pub(super) fn new(key: ObjectKey, sets: Arc<PolicySets>, cluster: Cluster) -> Self {
        let history = History::new(cluster.client.clone(), &sets.options.namespace, key.clone()).kept_by(sets.tells(&key));
        Self {
            key,
            sets,
            cluster,
            history,
            about: None,
            pending: None,
            due: None,
            pulling: None,
            pulls_failed: 0,
            turn: None,
            staging: None,
            writing: None,
            left: None,
            trial: None,
            active: None,
            failure: None,
            judged: None,
            rejected: HashMap::new(),
            unrecorded: None,
            looked: false,
            failing: Vec::new(),
            written: None,
            retry: None,
        }
    }

    pub(super) async fn run(&mut self) {
        self.read_history().await;
        let api: Api<ConfigMap> = Api::namespaced(self.cluster.client.clone(), &self.key.namespace);
        let mut objects = pin!(watch_object(api, &self.key.name).default_backoff());
        loop {
            self.finish_writing().await;
            let write = self.next_write();
            let changed = self.active.as_ref().map(|active| Arc::clone(&active.staged));
            tokio::select! {
                object = objects.next() => match object {
                    Some(Ok(Some(object))) => self.present(object).await,
                    Some(Ok(None)) => self.absent().await,
                    Some(Err(error)) => self.unreadable(&error).await,
                    None => return,
                },
                Some(()) = OptionFuture::from(self.due.map(sleep_until)) => self.begin().await,
                Some(pulled) = OptionFuture::from(self.pulling.as_mut()) => {
                    self.pulling = None;
                    self.pulled(pulled).await;
                }
                Some(turn) = OptionFuture::from(self.turn.as_mut()) => {
                    self.turn = None;
                    self.stage(turn);
                }
                Some(staged) = OptionFuture::from(self.staging.as_mut()) => {
                    self.staging = None;
                    self.staged(staged).await;
                }
                Some(()) = OptionFuture::from(changed.as_ref().map(|staged| staged.changed())) => self.health_changed().await,
                Some(()) = OptionFuture::from(write.map(sleep_until)) => self.write().await,
            }
        }
    }

    /// Learns which contents were rolled back before a restart.
    async fn read_history(&mut self) {
        loop {
            match self.history.list().await {
                Ok(entries) => {
                    let rejected = entries.into_iter().filter_map(|entry| Some((entry.digest, entry.rejected?)));
                    self.rejected = rejected.collect();
                    return;
                }
                // Nothing can be written to it either; the policy set works without.
                Err(error) if is_forbidden(&error) => {
                    tracing::warn!(set = %self.key, %error, "the history of a policy set can't be read; apply the operator's current roles");
                    return;
                }
                Err(error) => {
                    tracing::warn!(set = %self.key, %error, "history of a policy set not read, trying again");
                    sleep(STATUS_PACE).await;
                }
            }
        }
    }

    async fn present(&mut self, object: ConfigMap) {
        let about = About::of(&object);
        let changed = self.about.as_ref().is_none_or(|before| before.subject != about.subject);
        let was_disabled = self.about.as_ref().is_some_and(|before| before.disabled);
        let disabled = about.disabled;
        let returned = self.about.is_none() && self.looked;
        // What others try ended none of our processes.
        if self.about.is_none() && !self.looked && self.tells() {
            self.left = about.status.as_deref().and_then(Report::read);
        }
        self.about = Some(about);
        if returned {
            // It was said not to exist.
            self.failure = None;
            if let Some(active) = &mut self.active {
                active.earlier.get_or_insert(Earlier::Refused);
            }
            self.publish().await;
        }
        if changed {
            // What is there at the start has been there for long.
            let wait = if self.looked { DEBOUNCE } else { Duration::ZERO };
            let due = Instant::now() + wait;
            // What was pulled in vain is pulled again later than that.
            self.due = Some(self.due.map_or(due, |before| before.min(due)));
            (self.pending, self.pulling, self.turn) = (Some(Content::of(object)), None, None);
            self.pulls_failed = 0;
        }
        if disabled == was_disabled {
            return;
        }
        if disabled || self.looked {
            self.publish().await;
        }
        if disabled {
            let note = format!("policy set {} is switched off; the shipped policies decide", self.key);
            tracing::warn!(set = %self.key, "policy set switched off by its annotation");
            self.event(Reason::PolicyDisabled, &note).await;
        }
    }

    async fn absent(&mut self) {
        let before = self.about.take();
        self.judged = None;
        (self.pending, self.due, self.pulling, self.turn, self.staging, self.trial) = (None, None, None, None, None, None);
        self.pulls_failed = 0;
        if before.is_none() && self.looked {
            return;
        }
        if before.is_some_and(|before| before.disabled) {
            // A user who switches a policy set off and then removes it does not want it back.
            self.active = None;
            if let Err(error) = self.history.forget().await {
                tracing::warn!(set = %self.key, %error, "history of a policy set that was switched off and removed not deleted");
            }
        }
        if self.active.is_none() {
            self.fall_back().await;
        }
        let default = self.sets.is_default(&self.key);
        // A default policy set is optional.
        if self.active.is_some() || !default {
            let message = match &self.active {
                Some(active) => format!(
                    "it does not exist; the policies it held last ({}) stay active until it is there again (an empty policy set, {{}}, \
                     brings the defaults back)",
                    active.staged.digest().short()
                ),
                None => "it does not exist; create it in this namespace, or correct the annotation".to_owned(),
            };
            self.refuse(Failure { reason: "PolicySetNotFound", message }, Reason::PolicySetMissing).await;
        } else {
            self.failure = None;
            self.publish().await;
        }
    }

    async fn unreadable(&mut self, error: &watcher::Error) {
        tracing::warn!(set = %self.key, %error, "watch on a policy set failed, trying again");
        let forbidden = match error {
            watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => is_forbidden(error),
            _ => false,
        };
        // Anything else passes, and what is active stays active until then.
        if self.looked || !forbidden {
            return;
        }
        if self.active.is_none() {
            self.fall_back().await;
        }
        let message = format!("it can't be read: {error}; the operator needs list and watch on ConfigMaps of its namespace");
        self.refuse(Failure { reason: "PolicySetUnreadable", message }, Reason::PolicyRefused).await;
    }

    /// The pending content is due.
    async fn begin(&mut self) {
        self.due = None;
        let Some(content) = self.pending.take() else { return };
        // A newer content supersedes one that is being staged, whose process ends.
        self.staging = None;
        match precedent(&Subject::of(&content.object), self.left.as_ref()) {
            Precedent::Barred(trial, failure) => {
                PolicySets::count(&self.sets.totals().refusals);
                self.trial = Some(trial);
                self.judged = Some(content_digest(&content.object));
                self.retreat(Earlier::Refused).await;
                let event = if failure.reason == QUARANTINED { Reason::PolicyQuarantined } else { Reason::PolicyRefused };
                self.refuse(failure, event).await;
            }
            Precedent::None | Precedent::Harmless(_) => self.gather(content).await,
        }
    }

    /// Has this content staged when its turn comes.
    fn queue(&mut self, content: Content) {
        let (host, owner) = (Arc::clone(self.sets.host()), self.key.namespace.clone());
        self.pending = Some(content);
        self.turn = Some(async move { host.turn(&owner).await }.boxed());
    }

    /// Nobody else is staged in the place of the pending content now.
    fn stage(&mut self, turn: Turn) {
        let Some(content) = self.pending.take() else { return };
        let subject = Subject::of(&content.object);
        match precedent(&subject, self.left.as_ref()) {
            Precedent::Harmless(trial) => {
                self.trial = Some(trial);
                self.begin_staging(turn, content);
            }
            Precedent::None | Precedent::Barred(..) => self.write_trial(Trial { subject, at: now() }, turn, content),
        }
    }

    fn begin_staging(&mut self, turn: Turn, content: Content) {
        let host = Arc::clone(self.sets.host());
        self.staging = Some(stage(turn, host, self.key.namespace.clone(), content).boxed());
    }

    /// Has the next process know that this one tries a content, which begins with the answer.
    fn write_trial(&mut self, trial: Trial, turn: Turn, content: Content) {
        let Some(about) = self.about.as_ref().filter(|_| self.tells()) else { return self.begin_staging(turn, content) };
        let before = about.status.as_deref().and_then(Report::read);
        let mut report = before.unwrap_or_else(|| Report { phase: Phase::Staging.as_str().to_owned(), ..Report::default() });
        if report.content.as_ref() == Some(&trial.subject.content) {
            report.content = None;
        }
        report.trial = Some(trial.clone());
        let text = report.text();
        let answer = self.patch(&dated(&text, now()));
        self.writing = Some(Writing { text, purpose: Purpose::Trial { trial, turn, content }, answer });
    }

    /// Waits for the write that is under way, if any, and goes on from its answer.
    async fn finish_writing(&mut self) {
        let Some(writing) = self.writing.as_mut() else { return };
        let outcome = (&mut writing.answer).await;
        let Some(Writing { text, purpose, .. }) = self.writing.take() else { return };
        if let (Ok(()), Some(about)) = (&outcome, self.about.as_mut()) {
            about.status = Some(text);
        }
        match purpose {
            Purpose::Status { essence } => self.status_written(essence, outcome),
            Purpose::Trial { trial, turn, content } => self.trial_written(trial, turn, content, outcome),
        }
    }

    fn trial_written(&mut self, trial: Trial, turn: Turn, content: Content, outcome: Result<(), kube::Error>) {
        match outcome {
            Ok(()) => self.trial = Some(trial),
            // The policy set works without.
            Err(error) if is_forbidden(&error) => {
                tracing::warn!(set = %self.key, %error, "a restart amid the trial of this policy set will try it again");
            }
            Err(error) => {
                tracing::warn!(set = %self.key, %error, "that a policy set is tried is not written down yet, so it is not tried");
                self.pending = Some(content);
                self.due = Some(Instant::now() + RETRY);
                return;
            }
        }
        if self.about.as_ref().is_some_and(|about| self.judged == Some(about.content)) {
            self.judged = None;
        }
        self.begin_staging(turn, content);
    }

    /// Writes a text as the status of the ConfigMap.
    fn patch(&self, text: &str) -> BoxFuture<'static, Result<(), kube::Error>> {
        let api: Api<ConfigMap> = Api::namespaced(self.cluster.client.clone(), &self.key.namespace);
        let name = self.key.name.clone();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation::POLICY_STATUS: text}}}));
        async move { ignore_not_found(api.patch_metadata(&name, &PatchParams::default(), &patch).await) }.boxed()
    }

    /// The process stops in an orderly way: what it was trying did it no harm.
    pub(super) async fn interrupted(mut self) {
        self.finish_writing().await;
        self.staging = None;
        if !self.tells() {
            return;
        }
        let said = self.about.as_ref().and_then(|about| Report::read(about.status.as_deref()?));
        let judged = self.judged.map(|content| content.to_string());
        let is_open = |said: &Report| {
            let content = said.trial.as_ref().map(|trial| &trial.subject.content);
            said.trial == self.trial && content.is_some() && said.content.as_ref() != content && judged.as_ref() != content
        };
        let Some(said) = said.filter(is_open) else { return };
        if let Err(error) = self.patch(&Report { trial: None, ..said }.text()).await {
            tracing::warn!(set = %self.key, %error, "the next process will take the trial of this policy set for what ended this one");
        }
    }

    async fn staged(&mut self, Staged { content, outcome }: Staged) {
        self.judged = Some(content_digest(&content.object));
        match outcome {
            Ok((bundle, staged)) => match self.rejected.get(&bundle.digest().to_string()).cloned() {
                Some(why) => {
                    self.retreat(Earlier::RolledBack).await;
                    let failure = Failure { reason: "PolicyRolledBack", message: format!("{why}; change it to try again") };
                    self.refuse(failure, Reason::PolicyRolledBack).await;
                }
                None => self.activate(bundle, staged, content).await,
            },
            Err(failure) => {
                PolicySets::count(&self.sets.totals().refusals);
                self.retreat(Earlier::Refused).await;
                self.refuse(failure, Reason::PolicyRefused).await;
            }
        }
    }

    /// The newest content can't be used: what stays active is an earlier one.
    async fn retreat(&mut self, why: Earlier) {
        match &mut self.active {
            Some(active) => active.earlier = Some(why),
            None => {
                self.fall_back().await;
                if let Some(active) = &mut self.active {
                    active.earlier = Some(why);
                }
            }
        }
    }

    async fn activate(&mut self, bundle: Bundle, staged: Arc<StagedSet>, content: Content) {
        self.failure = None;
        if let Some(active) = self.active.as_mut().filter(|active| active.staged.digest() == staged.digest()) {
            active.earlier = None;
            self.publish().await;
            // A record says where its modules lie, and these may have been put elsewhere.
            if content.pulled.as_ref().is_some_and(|pulled| !pulled.modules.is_empty()) {
                self.unrecorded = Some((bundle, content));
                self.write_history().await;
            }
            return;
        }
        let digest = staged.digest().to_string();
        // After a restart it has been active for as long as the status says.
        let said = self.about.as_ref().and_then(|about| Report::read(about.status.as_deref()?));
        let said = said.filter(|said| said.digest.as_ref() == Some(&digest) && said.phase == Phase::Active.as_str());
        let since = said.as_ref().and_then(|said| said.activated_at).unwrap_or_else(now);
        let note = format!("policy set {} is active ({}): {}", self.key, staged.digest().short(), summary(&staged));
        tracing::info!(set = %self.key, digest, decisions = summary(&staged), "policy set activated");
        self.active = Some(Active { staged, since, earlier: None });
        self.failing.clear();
        PolicySets::count(&self.sets.totals().activations);
        self.publish().await;
        self.unrecorded = Some((bundle, content));
        self.write_history().await;
        if said.is_none() {
            self.event(Reason::PolicyActivated, &note).await;
        }
    }

    /// Activates the last known good content of the history other than the active one, when there is one.
    async fn fall_back(&mut self) {
        let current = self.active.as_ref().map(|active| active.staged.digest().to_string());
        let entries = match self.history.list().await {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(set = %self.key, %error, "history of a policy set not read");
                return;
            }
        };
        // What was just refused, or ended a process, is not tried again from here.
        let refused = self.judged.map(|content| content.to_string());
        let usable = |entry: &Entry| {
            let is_current = Some(&entry.digest) == current.as_ref() || Some(&entry.read_from) == refused.as_ref();
            entry.rejected.is_none() && !is_current && entry.tried != Tried::InVain && entry.is_trusted(self.sets.keys())
        };
        for entry in entries.into_iter().filter(usable) {
            let (digest, since) = (entry.digest.clone(), entry.activated);
            let turn = self.sets.host().turn(&self.key.namespace).await;
            if entry.tried == Tried::Never
                && let Err(error) = self.history.begin(&entry).await
            {
                tracing::warn!(set = %self.key, digest, %error, "an entry in the history of a policy set can't be marked as tried");
            }
            let Some(bundle) = entry.bundle(&turn, self.sets.host(), &self.key.namespace).await else {
                tracing::warn!(set = %self.key, digest, "an entry in the history of a policy set is damaged and skipped");
                continue;
            };
            match bundle.stage_in(&turn, self.sets.host()).await {
                Ok(staged) => {
                    if entry.tried == Tried::Never
                        && let Err(error) = self.history.end(&entry).await
                    {
                        tracing::warn!(set = %self.key, digest, %error, "an entry in the history of a policy set can't be marked as good");
                    }
                    tracing::warn!(set = %self.key, digest, "the last known good content of a policy set is active");
                    self.active = Some(Active { staged: Arc::new(staged), since, earlier: Some(Earlier::Refused) });
                    return;
                }
                Err(error) => {
                    tracing::warn!(set = %self.key, digest, %error, "an entry in the history of a policy set is refused by this version");
                    // It did no harm, and may be staged once others hold less.
                    if entry.tried == Tried::Never
                        && error.is_crowded_out()
                        && let Err(error) = self.history.withdraw(&entry).await
                    {
                        tracing::warn!(set = %self.key, digest, %error, "an entry in the history of a policy set stays marked as tried");
                    }
                }
            }
        }
    }

    /// Reports why a content is not activated; what is active stays active.
    async fn refuse(&mut self, failure: Failure, event: Reason) {
        tracing::warn!(set = %self.key, reason = failure.reason, error = failure.message, "policy set not activated");
        let note = format!("{}: {}", failure.reason, failure.message);
        let before = self.failure.as_ref().filter(|(before, _)| *before == failure).map(|(_, at)| *at);
        // A restart finds the same content refused for the same reason.
        let said = self.about.as_ref().and_then(|about| Report::read(about.status.as_deref()?)).and_then(|said| said.last_error);
        let said = said.filter(|said| said.reason == failure.reason && said.message == failure.message).map(|said| said.at);
        let known = before.or(said);
        self.failure = Some((failure, known.unwrap_or_else(now)));
        self.publish().await;
        if known.is_none() {
            self.event(event, &note).await;
        }
    }

    /// A policy failed in a new way, or a circuit breaker opened or closed; of an active policy or of one in shadow. All of that is in the
    /// status, which is written next.
    async fn health_changed(&mut self) {
        let failing = self.view().failing();
        let before = std::mem::replace(&mut self.failing, failing.clone());
        if failing == before {
            return;
        }
        self.publish().await;
        let Some(active) = self.active.as_ref() else { return };
        let (staged, digest) = (Arc::clone(&active.staged), active.staged.digest());
        let probation = now().duration_since(active.since) < PROBATION && active.earlier.is_none();
        let Some((decision, policy)) = failing.iter().find(|one| !before.contains(one)).cloned() else {
            let note = format!("policies of {} have recovered and are asked again", self.key);
            self.event(Reason::PolicyRecovered, &note).await;
            return;
        };
        let fault = staged.enforced(decision).and_then(|standing| standing.health.last_fault);
        let fault = fault.map(|fault| fault.to_string()).unwrap_or_default();
        let note = format!("{policy} kept failing at {decision} ({fault}); the shipped policy decides for now");
        self.event(Reason::PolicyDegraded, &note).await;
        if probation {
            self.roll_back(&digest.to_string(), decision, &policy, &fault).await;
        }
    }

    async fn roll_back(&mut self, digest: &str, decision: Decision, policy: &str, fault: &str) {
        let since = self.active.as_ref().map(|active| active.since);
        self.fall_back().await;
        let Some(active) = self.active.as_mut().filter(|active| active.staged.digest().to_string() != digest) else {
            // There is no earlier content: its other policies stay active, and the shipped policy takes this decision.
            return;
        };
        active.earlier = Some(Earlier::RolledBack);
        self.failing.clear();
        let why = format!(
            "{policy} kept failing at {decision} ({fault}) within {} min of its activation at {}, so the content before it is active again",
            PROBATION.as_mins(),
            since.unwrap_or_else(now)
        );
        self.rejected.insert(digest.to_owned(), why.clone());
        PolicySets::count(&self.sets.totals().rollbacks);
        self.unrecorded = None;
        let failure = Failure { reason: "PolicyRolledBack", message: format!("{why}; change it to try again") };
        self.refuse(failure, Reason::PolicyRolledBack).await;
        if let Err(error) = self.history.reject(digest, &why).await {
            tracing::warn!(set = %self.key, %error, "the roll back of a policy set is not in its history; a restart will try it again");
        }
    }

    fn view(&self) -> View {
        let disabled = self.about.as_ref().is_some_and(|about| about.disabled);
        let staged = self.active.as_ref().map(|active| Arc::clone(&active.staged));
        let view = View { staged, phase: Phase::Active, failure: self.failure.as_ref().map(|(failure, _)| failure.clone()) };
        let phase = match &self.active {
            _ if disabled => Phase::Disabled,
            None if self.failure.is_none() && self.about.is_some() => Phase::Staging,
            None if self.failure.is_none() => Phase::Missing,
            None => Phase::Refused,
            Some(Active { earlier: Some(Earlier::RolledBack), .. }) => Phase::RolledBack,
            Some(Active { earlier: Some(Earlier::Refused), .. }) => Phase::LastGood,
            Some(_) if self.about.is_none() => Phase::LastGood,
            Some(_) if view.failing().is_empty() => Phase::Active,
            Some(_) => Phase::Degraded,
        };
        View { staged: view.staged.filter(|_| !disabled), phase, ..view }
    }

    /// Makes what there is the active policies, and tells the operator which policy set changed.
    async fn publish(&mut self) {
        self.looked = true;
        self.sets.publish(&self.key, self.view());
        // A closed channel means that the operator stops.
        let _stopping = self.cluster.changed.send(self.key.clone()).await;
    }

    fn tells(&self) -> bool {
        self.sets.tells(&self.key)
    }

    async fn event(&mut self, reason: Reason, note: &str) {
        if !self.tells() {
            return;
        }
        // Events that relate to different versions of the object are not merged, which would drop all notes but the first.
        let about = self.about.as_ref().map(|about| about.reference.clone());
        let object = about.clone().unwrap_or_else(|| self.key.reference::<ConfigMap>());
        let object = ObjectReference { resource_version: None, ..object };
        self.cluster.events.publish(reason, &object, about, note).await;
    }

    async fn write_history(&mut self) {
        let Some((bundle, content)) = self.unrecorded.take() else { return };
        let at = self.active.as_ref().map_or_else(now, |active| active.since);
        if let Err(error) = self.history.keep(&bundle, &content, at).await {
            tracing::warn!(set = %self.key, %error, "an activated policy set is not in its history yet; a restart would need its ConfigMap");
            // Without the right to write, trying again is of no use.
            if !is_forbidden(&error) {
                self.unrecorded = Some((bundle, content));
                self.retry = Some(Instant::now() + RETRY);
            }
        }
    }

    fn report(&self, detail: Detail) -> String {
        let active = self.active.as_ref().map(|active| (active.staged.as_ref(), active.since));
        let report = Report::new(self.view().phase, active, self.failure.as_ref(), self.judged, detail);
        let isolation = self.sets.host().isolation().filter(|isolation| isolation.level != IsolationLevel::Full);
        let report = Report { trial: self.trial.clone(), isolation: isolation.map(ToString::to_string), ..report };
        // They change by themselves, as counts do.
        match detail {
            Detail::Essence => report.text(),
            Detail::Whole => report.foretelling(self.sets.prospects().told(&self.key)).text(),
        }
    }

    /// When there may be something to write.
    fn next_write(&self) -> Option<Instant> {
        if !self.tells() {
            return None;
        }
        if let (Some(_), Some(retry)) = (&self.unrecorded, self.retry) {
            return Some(retry);
        }
        let about = self.about.as_ref().filter(|_| self.looked)?;
        // The verdict follows in a moment, and would have to wait its turn.
        let is_staging = self.judged != Some(about.content);
        let whole = self.report(Detail::Whole);
        let (essence, at) = match &self.written {
            None if about.status.as_ref() == Some(&whole) => return Some(Instant::now() + NUMBERS_PACE),
            None if is_staging => return Some(self.retry.unwrap_or(Instant::now() + STATUS_PACE)),
            None => return Some(self.retry.unwrap_or_else(Instant::now)),
            Some(written) => written,
        };
        let at = if *essence == self.report(Detail::Essence) && about.status.is_some() {
            *at + NUMBERS_PACE
        } else {
            *at + STATUS_PACE
        };
        // Counters change without an event: they are compared again when they may be written.
        let at = if about.status.as_ref() == Some(&whole) { at.max(Instant::now() + NUMBERS_PACE) } else { at };
        let at = if is_staging { at.max(Instant::now() + STATUS_PACE) } else { at };
        Some(self.retry.map_or(at, |retry| at.max(retry)))
    }

    async fn write(&mut self) {
        self.retry = None;
        self.write_history().await;
        let (whole, essence) = (self.report(Detail::Whole), self.report(Detail::Essence));
        if self.about.as_ref().is_none_or(|about| about.status.as_ref() == Some(&whole)) {
            return;
        }
        let answer = self.patch(&dated(&whole, now()));
        self.writing = Some(Writing { text: whole, purpose: Purpose::Status { essence }, answer });
    }

    fn status_written(&mut self, essence: String, outcome: Result<(), kube::Error>) {
        match outcome {
            Ok(()) => self.written = Some((essence, Instant::now())),
            Err(error) => {
                tracing::warn!(set = %self.key, %error, "status of a policy set not written; Events and conditions say the same");
                let wait = if is_forbidden(&error) { NUMBERS_PACE } else { RETRY };
                self.retry = Some(Instant::now() + wait);
            }
        }
    }
}

async fn stage(turn: Turn, host: Arc<PolicyHost>, owner: String, content: Content) -> Staged {
    let staged = async {
        let bundle = parse(&turn, &host, &owner, &content).await?;
        let staged = bundle.stage_in(&turn, &host).await?;
        Ok((bundle, Arc::new(staged)))
    };
    let outcome = staged.await.map_err(|error: BundleError| refusal(&error));
    Staged { content, outcome }
}

/// In whole seconds, as it is written down.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

mod gathering;
#[cfg(test)]
mod tests;
