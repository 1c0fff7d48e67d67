//! The pod of a runner, as a pure function of its Runner and the operator's defaults.
//!
//! ```text
//! Runner -> template -> shape -> overrides -> evidence | registration -> finish (identity -> check) -> PodPlan
//! ```
//!
//! | stage | what it adds |
//! | --- | --- |
//! | `template` | containers with the Runner's own env, resources and policies; the claimed `work` volume of job pods |
//! | [`shape`] | what the runner image's contract asks for: env, volumes, docker sidecar or privileges. Also serves pod templates |
//! | `overrides` | the remaining pod-level fields of the Runner, its own volumes and mounts last |
//! | `evidence` | probe, hook and times by which the pod shows whether its runner has a job, and lets it finish |
//! | `registration` | for a runner that only registers: what its container does instead of running the agent |
//! | `identity` | name, owner, `RUNNER_NAME` and the reference to the registration token |
//! | `check` | refuses what the API server would refuse, in words that name the field |
//!
//! The rules are those of actions-runner-controller v0.27.6, so that its manifests and runner images keep working. Two things
//! that it did are left out on purpose:
//!
//! - The label `actions-runner-controller/inject-registration-token`. It does nothing but hand the pod to ARC's mutating webhook.
//!   This operator needs no injection, and a pod that carried the label would be refused wherever that webhook's configuration
//!   is still installed: its failure policy is `Fail`, and a live one would add a value beside our reference to the token.
//! - The label `pod-template-hash`, which was a hash of the registration token alone and compared with nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{LocalObjectReference, Pod, PodTemplateSpec};
use pacer_api::names::{DOCKER_CONTAINER, annotation, label};
use pacer_api::runner::Docker;
use pacer_api::{Runner, RunnerConfig};

mod access;
mod check;
mod containers;
mod env;
mod error;
mod evidence;
mod identity;
mod overrides;
mod registration;
mod runner_container;
mod sidecar;
mod template;
mod volumes;
mod warning;

pub use access::{Account, GeneratedAccess, SharedAccount};
pub use error::PodError;
pub use evidence::shows_worker;
pub use identity::PodIdentity;
pub use registration::{REGISTER, is_leftover, is_registration_only};
pub use warning::PodWarning;

/// All that the pod of a Runner is made from.
#[derive(Clone, Copy, Debug)]
pub struct PodInput<'a> {
    /// The Runner, as read from the API server: its name, namespace, UID, labels, annotations and spec are used.
    pub runner: &'a Runner,
    /// The operator's own settings.
    pub defaults: &'a PodDefaults,
    /// Base URL that the runner registers under, for instance `https://github.com/`: of the GitHub that its credentials belong to.
    pub server: &'a str,
    /// Where the pod reads its registration token.
    pub token: &'a TokenSource,
    /// Name of the ServiceAccount that was made for it, where it needs one ([`GeneratedAccess::of`]).
    pub account: Option<&'a str>,
    /// Claims that stand behind volumes of the pod.
    pub claims: &'a [ClaimedVolume],
}

/// A volume of a pod that is a claim which outlives the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedVolume {
    /// Name of the volume, which is that of the claim template.
    pub volume: String,
    /// Name of the claim.
    pub claim: String,
}

/// The operator's settings that reach pods. ARC's flags of the same meaning are named where they exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDefaults {
    /// Image of the `runner` container where neither `image` nor the container gives one (`--runner-image`).
    pub runner_image: String,
    /// Image of the `docker` sidecar where its container gives none (`--docker-image`).
    pub docker_image: String,
    /// Group that owns the docker socket, unless the runner image's name tells better (`--docker-gid`). A Unix group id.
    pub docker_gid: u32,
    /// Names of the pull secrets of pods that bring none (`--runner-image-pull-secret`).
    pub image_pull_secrets: Vec<String>,
    /// Registry mirror where `dockerRegistryMirror` is absent (`--docker-registry-mirror`). Empty counts as none.
    pub docker_registry_mirror: Option<String>,
    /// Whether runners report what they do into their Runner's status (`--runner-status-update-hook`).
    pub status_hook: bool,
    /// Grace period of pods that bring none: how long a runner may go on with its job when somebody deletes its pod (`--drain-timeout`).
    pub grace: Duration,
    /// Version in the user agent of runners; `NA` when absent, as ARC says of an unversioned build.
    pub version: Option<String>,
}

/// The Secret entry that holds what a runner registers with.
///
/// It lives in the namespace of the pod. The pod refers to it; its value is never part of a pod spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSource {
    /// Whether it is a registration token or a just-in-time configuration.
    pub holds: Held,
    /// Name of the Secret.
    pub name: String,
    /// Key within its data.
    pub key: String,
}

/// What a runner registers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// A registration token: one per credentials and scope, kept fresh by the operator.
    Token,
    /// The just-in-time configuration of this one runner, which is registered already.
    JustInTime {
        /// GitHub's id of it.
        id: u64,
    },
}

/// A pod that is ready to be created, and what its author should know about it.
#[derive(Clone, Debug, PartialEq)]
pub struct PodPlan {
    /// The pod, complete with name and owner.
    pub pod: Pod,
    /// What the manifest asks for in vain, in the order in which it was found. Not a reason to hold the pod back.
    pub warnings: Vec<PodWarning>,
}

/// A pod template that satisfies the runner image's contract, except for the runner's name and token.
#[derive(Clone, Debug, PartialEq)]
pub struct ShapedTemplate {
    /// The template, with exactly one container named `runner`.
    pub template: PodTemplateSpec,
    /// What the template asks for in vain.
    pub warnings: Vec<PodWarning>,
}

/// Builds the pod of a Runner. The same input gives the same pod.
///
/// # Errors
///
/// When the Runner asks for something that no pod can have: see [`PodError`]. Each text names the field and the cure, and is
/// meant for a condition of the Runner.
pub fn build(input: &PodInput<'_>) -> Result<PodPlan, PodError> {
    let spec = &input.runner.spec;
    let mut warnings = template::warnings(spec);
    if input.claims.is_empty() && !spec.claim_templates().is_empty() {
        warnings.push(PodWarning::ClaimTemplatesUnused);
    }
    let shaped = shape(template::of_runner(input.runner)?, &spec.config, input.server, input.defaults)?;
    warnings.extend(shaped.warnings);
    let mut template = shaped.template;
    overrides::apply(template.spec.get_or_insert_default(), input)?;
    let spec = template.spec.get_or_insert_default();
    let shows_worker = match is_registration_only(input.runner) {
        true => {
            registration::apply(spec);
            false
        }
        false => evidence::apply(spec, input.defaults),
    };
    let annotations = &mut template.metadata.get_or_insert_default().annotations;
    if shows_worker {
        annotations.get_or_insert_default().insert(annotation::WORKER_PROBE.to_owned(), "true".to_owned());
    } else if let Some(annotations) = annotations {
        // A Runner's annotations are its pod's, and this one is not for users to give.
        annotations.remove(annotation::WORKER_PROBE);
    }
    let mut plan = finish(template, PodIdentity::of(input.runner)?, input.token)?;
    warnings.append(&mut plan.warnings);
    Ok(PodPlan { warnings, ..plan })
}

/// Makes the pod of a shaped template: the last two stages, for every kind that makes runner pods.
///
/// # Errors
///
/// When its runner would have another name than the pod, or the API server would refuse it: two volumes or containers of one name, a mount of a volume that is not there, a
/// path mounted twice. Volumes that stand for claims must be in the template by now.
pub fn finish(template: PodTemplateSpec, identity: PodIdentity, token: &TokenSource) -> Result<PodPlan, PodError> {
    let mut pod = Pod { metadata: template.metadata.unwrap_or_default(), spec: template.spec, status: None };
    identity::apply(&mut pod, identity, token)?;
    check::accept(pod.spec.get_or_insert_default())?;
    Ok(PodPlan { pod, warnings: Vec::new() })
}

/// Adds to a pod template what the runner image's contract asks for: labels, env, volumes, docker. Parts of the template that
/// the contract does not speak about stay as they are.
///
/// Serves every kind that makes runner pods; `server` is [`PodInput::server`]. In container mode `kubernetes` the template must already have its `work` volume.
///
/// # Errors
///
/// When settings and template contradict each other: no `/runner` volume beside a docker sidecar, or a `work` volume that job
/// pods cannot share.
pub fn shape(
    template: PodTemplateSpec,
    config: &RunnerConfig,
    server: &str,
    defaults: &PodDefaults,
) -> Result<ShapedTemplate, PodError> {
    let mut warnings = Vec::new();
    let mut metadata = template.metadata.unwrap_or_default();
    metadata.labels.get_or_insert_with(BTreeMap::new).insert(label::RUNNER_POD.to_owned(), String::new());
    if let Some(secret) = config.credentials_secret() {
        let annotations = metadata.annotations.get_or_insert_with(BTreeMap::new);
        annotations.insert(annotation::CREDENTIALS_SECRET.to_owned(), secret.to_owned());
    }

    let mut spec = template.spec.unwrap_or_default();
    // Kubelet would start a finished runner again, with a token that may be used up; the operator decides about restarts.
    spec.restart_policy = Some("Never".to_owned());
    if spec.image_pull_secrets.as_ref().is_none_or(Vec::is_empty) && !defaults.image_pull_secrets.is_empty() {
        let secrets = defaults.image_pull_secrets.iter();
        spec.image_pull_secrets = Some(secrets.map(|name| LocalObjectReference { name: name.clone() }).collect());
    }
    if config.is_kubernetes_mode() {
        spec.containers.retain(|container| container.name != DOCKER_CONTAINER);
    }
    runner_container::complete(&mut spec, config, server, defaults, &mut warnings)?;
    if config.docker() == Docker::Sidecar {
        sidecar::complete(&mut spec, config, defaults, &mut warnings)?;
    }
    Ok(ShapedTemplate { template: PodTemplateSpec { metadata: Some(metadata), spec: Some(spec) }, warnings })
}
