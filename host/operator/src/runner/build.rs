//! The pod of a Runner: what has to be there first, then the pod itself.
//!
//! ```text
//! token | registration just in time -> account -> claims -> Supply -> pod::build -> create -> Made
//! ```

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Resource, ResourceExt};
use pacer_api::Runner;
use pacer_api::names::annotation;
use pacer_cluster::answer::status;
use pacer_cluster::events::Reason;
use pacer_cluster::live;
use pacer_cluster::object::Uid;
use pacer_cluster::owner::is_owned;
use pacer_core::facts::Refuser;
use pacer_core::namesake::{self, Namesake};
use pacer_github::runner_list::Haste;
use pacer_github::{JitAnswer, Removal};

use super::status::{says_refused, taken};
use super::{Runners, Subject};
use crate::access::{Access, NEXT_PERMIT};
use crate::account::{AccountError, Accounts};
use crate::arc::statefulset;
use crate::claim::{Claims, Secured};
use crate::error::Error;
use crate::just_in_time::{self, Configurations, Recalled};
use crate::pod::{self, ClaimedVolume, GeneratedAccess, PodInput, PodPlan, TokenSource};
use crate::published::IN_FLIGHT;
use crate::token::Tokens;

/// What pods need that is no part of them.
pub struct Supplies {
    /// Makes and renews Secrets with registration tokens.
    pub tokens: Tokens,
    /// Secrets with the just-in-time configurations of runners.
    pub configurations: Configurations,
    /// Makes and removes the ServiceAccounts of runners.
    pub accounts: Accounts,
    /// Gives runners their claims of RunnerSets.
    pub claims: Claims,
}

/// The pod that has this Runner's name, ARC's or that of an earlier Runner, is about to be its own or gone; the watch shows it, and this is only for
/// the case that something came between.
const HANDOVER: Duration = Duration::from_secs(2);

/// A pod that was refused is tried again after this.
const REFUSAL_RETRY: Duration = Duration::from_secs(10);

/// A registration that has been without an agent for so long is nobody's: pods start sooner, as a rule.
const ABANDONED: Duration = Duration::from_secs(300);

/// How soon a registration is tried again whose name was taken.
const AGAIN: Duration = Duration::from_secs(2);

/// What one pod is made with.
struct Supply {
    token: TokenSource,
    account: Option<String>,
    claims: Vec<ClaimedVolume>,
}

/// Why a pod is not made now.
enum Hindrance {
    /// Something is under way.
    Later(Duration),
    /// It can't be made as things are.
    Refused(PodRefusal),
    /// The API server or GitHub did not do their part.
    Failed(Error),
}

/// A refusal that is worth a condition of the Runner.
struct PodRefusal {
    by: Refuser,
    message: String,
    /// Whether to publish an Event; the refusal of a token has one of its own.
    event: bool,
    retry: Duration,
}

impl PodRefusal {
    fn new(by: Refuser, message: String) -> Self {
        Self { by, message, event: true, retry: REFUSAL_RETRY }
    }
}

impl<E: Into<Error>> From<E> for Hindrance {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// What the API server did with a pod.
enum Made {
    /// The API server created it.
    Created,
    /// It was made by an earlier try whose answer was lost, or the watch is late.
    Existed,
}

impl Runners {
    /// Makes the pod of a Runner that has none. Returns when to go on.
    pub(super) async fn make_pod(&self, of: Subject<'_>, access: &Access) -> Result<Duration, Error> {
        if let Some(wait) = self.refused_lately(of) {
            return Ok(wait);
        }
        if self.cluster.stores.pod_of(of.runner).is_some_and(|pod| statefulset::awaits_runner(&pod)) {
            return Ok(HANDOVER);
        }
        match self.try_to_make(of, access).await {
            Ok(made) => {
                let created = matches!(made, Made::Created);
                self.memory.known.change(of.uid, |known| {
                    known.creation.sent = Some(of.clock.instant);
                    known.creation.made_here |= created;
                });
                Ok(if created { self.settings.sync_period } else { IN_FLIGHT })
            }
            Err(Hindrance::Later(wait)) => Ok(wait),
            Err(Hindrance::Failed(error)) => Err(error),
            Err(Hindrance::Refused(PodRefusal { by, message, event, retry })) => {
                if event && !self.is_said(of, &message) {
                    self.cluster.events.publish(Reason::PodRefused, &of.runner.object_ref(&()), None, &message).await;
                }
                self.memory.known.change(of.uid, |known| known.refuse(by, message, of.clock));
                Ok(retry)
            }
        }
    }

    /// Whether this refusal was told already: by this process, or by the condition that an earlier one left.
    fn is_said(&self, of: Subject<'_>, message: &str) -> bool {
        let refusal = self.memory.known.get(of.uid).creation.refusal;
        refusal.is_some_and(|refusal| refusal.message == message) || says_refused(of.runner, message)
    }

    fn refused_lately(&self, of: Subject<'_>) -> Option<Duration> {
        let tried = self.memory.known.get(of.uid).creation.refused?;
        REFUSAL_RETRY.checked_sub(of.clock.instant.saturating_duration_since(tried)).filter(|left| !left.is_zero())
    }

    async fn try_to_make(&self, of: Subject<'_>, access: &Access) -> Result<Made, Hindrance> {
        let supply = self.supply(of, access).await?;
        let plan = self.build(of.runner, access.github().endpoints().runners(), &supply)?;
        let made = self.create(of.runner, &plan, &supply).await;
        // One that the API server refuses is built again once in a while, with the same warnings.
        let is_repeated = matches!(&made, Err(Hindrance::Refused(refusal)) if self.is_said(of, &refusal.message));
        for warning in plan.warnings.iter().filter(|_| !is_repeated) {
            self.cluster.events.publish(Reason::SpecIgnored, &of.runner.object_ref(&()), None, &warning.to_string()).await;
        }
        made
    }

    /// Sees to all that has to exist before the pod.
    async fn supply(&self, of: Subject<'_>, access: &Access) -> Result<Supply, Hindrance> {
        let of_namespace = |namespace: &str| self.cluster.stores.runners_in(namespace);
        if let Some(rival) = self.rival(of, access)? {
            return Err(Hindrance::Refused(PodRefusal::new(Refuser::Namesake, taken(&rival))));
        }
        if let Err(refusal) = self.github.tenancies().admits_pod(of.runner, of_namespace) {
            return Err(Hindrance::Refused(PodRefusal::new(Refuser::Tenancy, refusal.to_string())));
        }
        let token = match just_in_time::is_wanted(of.runner) {
            true => self.register(of, access).await?,
            false => self.token(of, access).await?,
        };
        let account = match self.account(of.runner).await {
            Ok(account) => account,
            Err(AccountError::Kube(error)) => return Err(Error::Kube(error).into()),
            Err(error) => return Err(Hindrance::Refused(PodRefusal::new(Refuser::Pod, error.to_string()))),
        };
        match self.supplies.claims.secure(of.runner, of.clock).await? {
            Secured::Ready(claims) => Ok(Supply { token, account, claims }),
            Secured::Later(wait) => Err(Hindrance::Later(wait)),
            Secured::Refused { by, message } => Err(Hindrance::Refused(PodRefusal::new(by, message))),
        }
    }

    /// The Runner that may register under this one's name, if that is another one.
    fn rival(&self, of: Subject<'_>, access: &Access) -> Result<Option<String>, Error> {
        let observer = &self.memory.observer;
        let others = observer.namesakes(of.runner, of.uid, Some(access));
        if others.is_empty() {
            return Ok(None);
        }
        let tenancies = self.github.tenancies();
        // One that may not register leaves the name to others.
        let admitted = |other: &&(Namesake, Arc<Runner>)| {
            other.0.may_be_registered() || tenancies.admits(&other.0.namespace, &other.1.spec.config).is_ok()
        };
        let own = observer.namesake(of.runner, of.uid);
        let holder = namesake::holder(others.iter().filter(admitted).map(|(other, _)| other).chain([&own]));
        let rival = holder.filter(|holder| **holder != own);
        Ok(rival.map(|rival| format!("{}/{}", rival.namespace, of.runner.name_any())))
    }

    /// Registers the runner ahead of its pod.
    async fn register(&self, of: Subject<'_>, access: &Access) -> Result<TokenSource, Hindrance> {
        let refused = |by, message: String| Hindrance::Refused(PodRefusal::new(by, message));
        if !of.runner.spec.config.is_ephemeral() {
            let message = format!(
                "a runner that is registered just in time takes one job: remove ephemeral: false, or the annotation {}",
                annotation::JUST_IN_TIME
            );
            return Err(refused(Refuser::Pod, message));
        }
        let configurations = &self.supplies.configurations;
        let begun = match configurations.recall(of.runner, of.uid).await? {
            Some(Recalled::Made { source, .. }) => return Ok(source),
            Some(Recalled::Unwritten(made)) => return Ok(configurations.keep(of.runner, of.uid, &made).await?),
            Some(Recalled::Begun) => true,
            None => false,
        };
        let Some(_permit) = access.permit() else { return Err(Hindrance::Later(NEXT_PERMIT)) };
        let name = of.runner.name_any();
        let answer = async {
            let Some(group) = just_in_time::group(of.runner, access).await? else { return Ok(None) };
            if !begun {
                configurations.begin(of.runner, of.uid).await?;
            }
            let request = just_in_time::request(of.runner, &name, group);
            Ok::<_, Error>(Some(access.github().register_just_in_time(access.scope(), &request).await?))
        };
        let answer = answer.await;
        // Nothing was registered, now or before: what has the name is another one's.
        let is_none = match &answer {
            Ok(Some(JitAnswer::Registered(_))) => false,
            Ok(Some(JitAnswer::NameTaken) | None) => true,
            Err(error) => error.deferral().is_some() || matches!(error, Error::GitHub(answer) if !answer.is_transient()),
        };
        if is_none && !begun {
            configurations.discard(of.runner, of.uid).await?;
        }
        match answer {
            Ok(Some(JitAnswer::Registered(made))) => {
                self.memory.known.change(of.uid, |known| known.registered(made.id));
                tracing::info!(runner = name, namespace = of.runner.namespace(), id = made.id, "runner registered just in time");
                Ok(self.supplies.configurations.keep(of.runner, of.uid, &made).await?)
            }
            Ok(Some(JitAnswer::NameTaken)) => self.reclaim(of, access, &name).await,
            Ok(None) => {
                let group = of.runner.spec.config.group().unwrap_or_default();
                Err(refused(
                    Refuser::Credentials,
                    format!("{} has no runner group {group:?}: make it, or name another one", access.scope()),
                ))
            }
            Err(error) => {
                if let Some(wait) = error.deferral() {
                    return Err(Hindrance::Later(wait));
                }
                let message = format!("not registered just in time at {}: {error}", access.scope());
                match &error {
                    Error::GitHub(answer) if !answer.is_transient() => Err(refused(Refuser::Credentials, message)),
                    _ => {
                        // Nobody says that it is not registered.
                        self.memory.known.change(of.uid, |known| known.creation.registering = true);
                        Err(error.into())
                    }
                }
            }
        }
    }

    /// The name is taken: what this Runner registered and nobody heard of, or what has long been without an agent, is removed.
    async fn reclaim(&self, of: Subject<'_>, access: &Access, name: &str) -> Result<TokenSource, Hindrance> {
        let listed = access.view().and_then(|view| {
            let entry = view.get(name)?;
            let offline = view.presence(entry.id).and_then(|presence| presence.offline_since).map(|since| since.elapsed());
            Some((entry.id, entry.online || entry.busy, offline.unwrap_or_default()))
        });
        let known = self.memory.known.get(of.uid);
        match listed {
            Some((id, false, offline)) if known.creation.registering || known.is_registered_as(id) || offline >= ABANDONED => {
                match access.github().remove_runner(access.scope(), id).await {
                    Ok(Removal::Removed | Removal::Absent) => {
                        tracing::info!(
                            runner = name,
                            namespace = of.runner.namespace(),
                            id,
                            "registration without an agent removed"
                        );
                        Err(Hindrance::Later(AGAIN))
                    }
                    Ok(Removal::Busy { .. }) => Err(Hindrance::Later(REFUSAL_RETRY)),
                    Err(error) if let Some(wait) = error.deferral() => Err(Hindrance::Later(wait)),
                    Err(error) => Err(error.into()),
                }
            }
            Some((id, true, _)) => {
                let message = format!(
                    "runner {id} of {} has the name {name} and is connected: remove it there, or give this Runner another name",
                    access.scope()
                );
                Err(Hindrance::Refused(PodRefusal::new(Refuser::Namesake, message)))
            }
            Some(_) | None => {
                access.await_listing(name, Haste::Registration, Duration::ZERO);
                Err(Hindrance::Later(AGAIN))
            }
        }
    }

    async fn token(&self, of: Subject<'_>, access: &Access) -> Result<TokenSource, Hindrance> {
        let namespace = of.runner.namespace().unwrap_or_default();
        let error = match self.supplies.tokens.ensure(&namespace, access, of.clock.now).await {
            Ok(Some(token)) => return Ok(token),
            Ok(None) => return Err(Hindrance::Later(NEXT_PERMIT)),
            Err(error) => error,
        };
        if let Some(wait) = error.deferral() {
            return Err(Hindrance::Later(wait));
        }
        // Somebody has to change something, and asking on and on may get the credentials blocked.
        let refused = match &error {
            Error::GitHub(refused) if !refused.is_transient() => {
                Some(format!("no registration token for {}: {refused:#}", access.scope()))
            }
            _ => None,
        };
        if !refused.as_ref().is_some_and(|message| self.is_said(of, message)) {
            let note = format!("no registration token for {}: {error}", access.scope());
            let reason = Reason::FailedUpdateRegistrationToken;
            self.cluster.events.publish(reason, &of.runner.object_ref(&()), None, &note).await;
        }
        match refused {
            Some(message) => {
                let refusal = PodRefusal::new(Refuser::Credentials, message);
                Err(Hindrance::Refused(PodRefusal { event: false, ..refusal }))
            }
            None => Err(error.into()),
        }
    }

    /// Makes the service account of a runner that needs one. Returns its name.
    async fn account(&self, runner: &Runner) -> Result<Option<String>, AccountError> {
        // One that only registers talks to nobody but GitHub.
        let access = GeneratedAccess::of(&runner.spec, self.settings.pod.status_hook);
        let Some(access) = access.filter(|_| !pod::is_registration_only(runner)) else { return Ok(None) };
        let shared = self.cluster.stores.shared_account_of(runner);
        self.supplies.accounts.ensure(runner, access, shared.as_ref()).await.map(Some)
    }

    fn build(&self, runner: &Runner, server: &str, supply: &Supply) -> Result<PodPlan, Hindrance> {
        let Supply { token, account, claims } = supply;
        let input = PodInput { runner, defaults: &self.settings.pod, server, token, account: account.as_deref(), claims };
        let refused = |message| PodRefusal { retry: self.settings.sync_period, ..PodRefusal::new(Refuser::Pod, message) };
        pod::build(&input).map_err(|error| Hindrance::Refused(refused(error.to_string())))
    }

    /// The pod that has the Runner's name already: people name stand-alone Runners, and pods.
    async fn found(&self, runner: &Runner) -> Result<Made, Hindrance> {
        let (namespace, name) = (runner.namespace().unwrap_or_default(), runner.name_any());
        let Some(pod) = live::metadata::<Pod>(&self.cluster.client, &namespace, &name).await? else { return Ok(Made::Existed) };
        let uid = Uid::of(runner)?;
        if is_owned(&pod, &uid) {
            return Ok(Made::Existed);
        }
        if pod.deletion_timestamp.is_some() {
            return Err(Hindrance::Later(HANDOVER));
        }
        let message = format!("pod '{name}' exists and is not this Runner's; delete the pod, or give the Runner another name");
        Err(Hindrance::Refused(PodRefusal::new(Refuser::Pod, message)))
    }

    async fn create(&self, runner: &Runner, plan: &PodPlan, supply: &Supply) -> Result<Made, Hindrance> {
        let turn = self.cluster.precedence.turn().await;
        let error = match self.cluster.beside::<Pod>(runner).create(&PostParams::default(), &plan.pod).await {
            Ok(_) => return Ok(Made::Created),
            Err(error) => error,
        };
        drop(turn);
        match status(&error) {
            Some(answer) if answer.is_already_exists() => self.found(runner).await,
            Some(answer) if answer.is_forbidden() || answer.is_invalid() => {
                if let Some(account) = &supply.account {
                    // Perhaps it is not there any more.
                    self.supplies.accounts.doubt(&runner.namespace().unwrap_or_default(), account).await;
                }
                let by = if answer.message.contains("exceeded quota") { Refuser::Quota } else { Refuser::Pod };
                Err(Hindrance::Refused(PodRefusal::new(by, answer.message.clone())))
            }
            _ => {
                // Nobody says that it was not made.
                if let Ok(uid) = Uid::of(runner) {
                    self.memory.known.change(&uid, |known| known.creation.unanswered = true);
                }
                Err(error.into())
            }
        }
    }
}
