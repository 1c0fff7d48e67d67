//! Whether the API server would take a pod of each fleet: admission policies, quotas and webhooks are asked by a dry run, which makes nothing.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt as _};
use pacer_api::Runner;
use pacer_operator::pod::{self, ClaimedVolume, GeneratedAccess, Held, PodInput, TokenSource};
use pacer_operator::settings::Settings;

use super::Checked;
use super::finding::{Finding, Severity};
use super::fleet::Fleet;
use super::installation::Installation;
use crate::reader::Reader;
use crate::run;

/// Most fleets whose pod is tried.
const FLEETS: usize = 200;

/// Longest name of a pod that is tried, without its end.
const NAME: usize = 50;

/// Where runners register; no admission depends on it.
const SERVER: &str = "https://github.com/";

pub(super) async fn check(reader: &mut Reader, installation: &Installation, fleets: &[Fleet]) -> Checked {
    let mut findings = Vec::new();
    // Flags that can't be read are a finding about the Deployment.
    if let Ok(Some(arguments)) = installation.flags() {
        let settings = run::settings(&arguments);
        for fleet in fleets.iter().take(FLEETS) {
            match plan(fleet, &settings) {
                Ok(pod) => findings.extend(try_out(reader, fleet, &pod).await),
                Err(error) => findings.push(refused(fleet, &error.to_string())),
            }
        }
        if fleets.len() > FLEETS {
            reader.unread.push(format!("pods of {} fleets: no more than {FLEETS} are tried", fleets.len() - FLEETS));
        }
    }
    Checked { healthy: "the API server would take a pod of every fleet".to_owned(), findings }
}

/// A pod as the operator would make it.
fn plan(fleet: &Fleet, settings: &Settings) -> Result<Pod, pod::PodError> {
    let template = fleet.target.template(&settings.common_labels);
    let metadata = template.metadata.clone().unwrap_or_default();
    let name: String = fleet.target.name().chars().take(NAME).collect();
    let runner = Runner {
        metadata: ObjectMeta {
            name: Some(format!("{}-doctor", name.trim_end_matches(['-', '.']))),
            namespace: Some(fleet.target.namespace().to_owned()),
            // Of no object: the API server does not look for owners.
            uid: Some("00000000-0000-4000-8000-000000000000".to_owned()),
            labels: metadata.labels,
            annotations: metadata.annotations,
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    };
    let claim = |volume: &String| ClaimedVolume { volume: volume.clone(), claim: "pacer-doctor".to_owned() };
    let claims: Vec<ClaimedVolume> =
        runner.spec.claim_templates().iter().filter_map(|template| template.metadata.name.as_ref()).map(claim).collect();
    // Every namespace has it, and one of the operator's making is there only once a runner is.
    let account = GeneratedAccess::of(&runner.spec, settings.pod.status_hook).map(|_| "default");
    let token = TokenSource { holds: Held::Token, name: "pacer-doctor".to_owned(), key: "token".to_owned() };
    let input = PodInput { runner: &runner, defaults: &settings.pod, server: SERVER, token: &token, account, claims: &claims };
    Ok(pod::build(&input)?.pod)
}

async fn try_out(reader: &mut Reader, fleet: &Fleet, pod: &Pod) -> Option<Finding> {
    let api: Api<Pod> = Api::namespaced(reader.client.clone(), &pod.namespace().unwrap_or_default());
    let error = api.create(&PostParams { dry_run: true, ..PostParams::default() }, pod).await.err()?;
    match &error {
        kube::Error::Api(status) if is_verdict(status.code, &status.message) => Some(refused(fleet, &status.message)),
        _ => {
            reader.unread.push(format!("whether a pod of {} would be taken: {error}", fleet.title));
            None
        }
    }
}

/// Whether an answer is about the pod, and not about who asks (RBAC), how (a webhook that takes no dry runs), or the moment.
fn is_verdict(code: u16, message: &str) -> bool {
    let is_about_rights = message.contains("cannot create resource");
    matches!(code, 403 | 422) && !is_about_rights || code == 400 && !message.contains("dry run")
}

fn refused(fleet: &Fleet, message: &str) -> Finding {
    let namespace = fleet.target.namespace();
    let (severity, cure) = if message.contains("exceeded quota") {
        (
            Severity::Warning,
            format!("kubectl describe resourcequota --namespace={namespace}; raise it, or lower the maximum of the fleet"),
        )
    } else if message.contains("violates PodSecurity") {
        (
            Severity::Problem,
            format!(
                "kubectl label namespace {namespace} --overwrite pod-security.kubernetes.io/enforce=privileged; or let the fleet do without \
                 docker (examples/runnerdeployment-without-docker.yaml)"
            ),
        )
    } else {
        (Severity::Problem, "correct the fleet's template, or the policy that the message names".to_owned())
    };
    Finding {
        severity,
        object: fleet.title.clone(),
        what: format!("another pod of it would be refused: {message}"),
        why: "no more of its runners start".to_owned(),
        cure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_said_about_the_pod_is_a_verdict() {
        for (code, message, expected) in [
            (403, "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": privileged", true),
            (403, "pods \"a\" is forbidden: exceeded quota: small", true),
            (422, "Pod \"a\" is invalid: spec.containers[0].image: Required value", true),
            (403, "pods is forbidden: User \"x\" cannot create resource \"pods\" in API group \"\"", false),
            (400, "admission webhook \"a\" does not support dry run", false),
            (400, "admission webhook \"a\" denied the request: no", true),
            (500, "Internal error occurred: failed calling webhook \"a\"", false),
        ] {
            assert_eq!(is_verdict(code, message), expected, "{code} {message}");
        }
    }
}
