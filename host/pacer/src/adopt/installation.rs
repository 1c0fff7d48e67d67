//! ARC itself: its programs, and what was installed around them.
//!
//! Found by what things are and refer to, since names depend on the release: the chart's and kustomize's differ, and both may be overridden.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Resource, ResourceExt};
use pacer_api::names::GROUP;

use super::Item;
use crate::reader::Reader;

/// Programs of ARC's image, by the command that starts them; what each is.
const PROGRAMS: [(&str, Program); 3] = [
    ("/manager", Program::Controller),
    ("/github-webhook-server", Program::WebhookServer),
    ("/actions-metrics-server", Program::MetricsServer),
];

/// Part of the names of everything in ARC's chart, and of its image.
const ARC: &str = "actions-runner-controller";

/// What the label `app.kubernetes.io/name` of this operator's own objects begins with. Its chart keeps ARC's value there, as others select by it, and
/// says this in `app.kubernetes.io/part-of`.
const OWN: &str = "pacer";

/// Name of ARC's Lease where no flag says another; this operator's as well.
const LEASE: &str = "actions-runner-controller";

/// What a Deployment of ARC's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Controller,
    WebhookServer,
    MetricsServer,
}

/// What was found of an installation of ARC in the cluster.
#[derive(Debug, Default)]
pub(crate) struct Installation {
    programs: Vec<(Program, Deployment)>,
    /// Definitions that lack what this operator adds.
    definitions: Vec<String>,
    webhooks: Vec<Item>,
    certificates: Vec<Item>,
    services: Vec<Item>,
    election: Vec<Item>,
    rights: Vec<Item>,
    accounts: Vec<Item>,
}

/// Looks for all of it.
pub(crate) async fn read(reader: &mut Reader) -> Installation {
    let programs: Vec<(Program, Deployment)> = reader
        .everywhere::<Deployment>("")
        .await
        .into_iter()
        .filter_map(|deployment| Some((program(&deployment)?, deployment)))
        .collect();
    let (webhooks, behind) = webhooks(reader).await;
    Installation {
        definitions: definitions(reader).await,
        certificates: certificates(reader, &behind).await,
        services: services(reader, &behind).await,
        election: election(reader, &programs).await,
        rights: rights(reader, &programs).await,
        accounts: accounts(reader, &programs).await,
        webhooks,
        programs,
    }
}

impl Installation {
    /// What has to be done before this operator runs, in this order.
    pub(crate) fn first(&self) -> Vec<Item> {
        let running = |program: &Program, deployment: &Deployment| *program == Program::Controller && replicas(deployment) > 0;
        let stop = self.programs.iter().filter(|(program, deployment)| running(program, deployment)).map(|(_, deployment)| Item {
            what: title(deployment),
            why: "ARC's controller runs. Two controllers would fight over every runner: stop it, and wait until its pod is gone".to_owned(),
            command: format!(
                "kubectl scale deployment {} --namespace={} --replicas=0",
                deployment.name_any(),
                deployment.namespace().unwrap_or_default()
            ),
        });
        let define = (!self.definitions.is_empty()).then(|| Item {
            what: format!("CustomResourceDefinitions {}", self.definitions.join(", ")),
            why: "are ARC's: what this operator keeps in statuses would be dropped. Its own have every field of theirs"
                .to_owned(),
            command: "pacer crds | kubectl apply --server-side --force-conflicts --filename=-".to_owned(),
        });
        stop.chain(self.webhooks.iter().cloned()).chain(define).collect()
    }

    /// What is left once ARC is stopped.
    pub(crate) fn leftovers(&self) -> Vec<Item> {
        let programs = self.programs.iter().map(|(program, deployment)| Item {
            what: title(deployment),
            why: match program {
                Program::Controller => "ARC's controller; keep it, stopped, for as long as you may want to go back",
                Program::WebhookServer => "ARC's webhook server: remove it once GitHub's webhooks lead to `pacer webhook`",
                Program::MetricsServer => "ARC's metrics server: remove it once GitHub's webhooks lead elsewhere",
            }
            .to_owned(),
            command: delete(deployment),
        });
        let helm: BTreeSet<(String, String)> = self.programs.iter().filter_map(|(_, deployment)| release(deployment)).collect();
        let helm = helm.into_iter().map(|(namespace, name)| Item {
            what: format!("Helm release {namespace}/{name}"),
            why: "Helm's records of ARC. `helm uninstall` would delete the Secret with GitHub's credentials as well, if the chart made it"
                .to_owned(),
            command: format!("kubectl delete secret --namespace={namespace} --selector=owner=helm,name={name}"),
        });
        let parts = [&self.certificates, &self.services, &self.election, &self.rights, &self.accounts];
        programs.chain(parts.into_iter().flatten().cloned()).chain(helm).collect()
    }
}

fn title<K: Resource<DynamicType = ()>>(object: &K) -> String {
    match object.namespace() {
        Some(namespace) => format!("{} {namespace}/{}", K::kind(&()), object.name_any()),
        None => format!("{} {}", K::kind(&()), object.name_any()),
    }
}

fn delete<K: Resource<DynamicType = ()>>(object: &K) -> String {
    delete_of(&K::kind(&()).to_lowercase(), object)
}

fn delete_of<K: Resource>(kind: &str, object: &K) -> String {
    let namespace = object.namespace().map(|namespace| format!(" --namespace={namespace}")).unwrap_or_default();
    format!("kubectl delete {kind} {}{namespace}", object.name_any())
}

fn app<K: Resource>(object: &K) -> &str {
    let label = |name: &str| object.labels().get(name).map_or("", String::as_str);
    match label("app.kubernetes.io/part-of") {
        OWN => OWN,
        _ => label("app.kubernetes.io/name"),
    }
}

fn replicas(deployment: &Deployment) -> i32 {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    wanted.max(deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0))
}

fn containers(deployment: &Deployment) -> impl Iterator<Item = &Container> {
    let pod = deployment.spec.iter().filter_map(|spec| spec.template.spec.as_ref());
    pod.flat_map(|pod| &pod.containers)
}

/// Which program of ARC's a Deployment runs. The same image runs runner scale sets, which are not this operator's.
fn program(deployment: &Deployment) -> Option<Program> {
    if app(deployment).starts_with(OWN) {
        return None;
    }
    containers(deployment).find_map(|container| {
        let arguments = || container.command.iter().chain(&container.args).flatten();
        let started = |command: &str| arguments().next().is_some_and(|first| first == command);
        let (_, program) = PROGRAMS.into_iter().find(|(command, _)| started(command))?;
        let has = |flag: &str| arguments().any(|argument| argument.trim_start_matches('-').starts_with(flag));
        let named = app(deployment).starts_with(ARC) || container.image.as_deref().is_some_and(|image| image.contains(ARC));
        // Others' controllers are called /manager as well.
        let is_arc = named || program != Program::Controller || has("runner-image") || has("docker-image");
        (is_arc && !has("auto-scaling-runner-set-only")).then_some(program)
    })
}

/// Definitions of the group without a `scale` subresource where this operator's have one.
async fn definitions(reader: &mut Reader) -> Vec<String> {
    let lacks = |definition: &CustomResourceDefinition| {
        let scaled = matches!(definition.spec.names.kind.as_str(), "RunnerDeployment" | "RunnerReplicaSet" | "RunnerSet");
        let has =
            |version: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion| {
                version.subresources.as_ref().is_some_and(|subresources| subresources.scale.is_some())
            };
        definition.spec.group == GROUP && scaled && !definition.spec.versions.iter().any(has)
    };
    reader
        .everywhere::<CustomResourceDefinition>("")
        .await
        .iter()
        .filter(|found| lacks(found))
        .map(ResourceExt::name_any)
        .collect()
}

/// Configurations whose webhooks are ARC's, and the Services behind them as (namespace, name).
async fn webhooks(reader: &mut Reader) -> (Vec<Item>, BTreeSet<(String, String)>) {
    let (mut items, mut services) = (Vec::new(), BTreeSet::new());
    let why = "calls ARC, and with ARC stopped it refuses what this operator makes";
    let mut note = |what: String, command: String, webhooks: Vec<(String, WebhookClientConfig)>| {
        if webhooks.iter().any(|(name, _)| name.ends_with(&format!(".{GROUP}"))) {
            services
                .extend(webhooks.into_iter().filter_map(|(_, to)| to.service).map(|service| (service.namespace, service.name)));
            items.push(Item { what, why: why.to_owned(), command });
        }
    };
    for found in reader.everywhere::<MutatingWebhookConfiguration>("").await {
        let webhooks = found.webhooks.iter().flatten().map(|webhook| (webhook.name.clone(), webhook.client_config.clone()));
        note(title(&found), delete(&found), webhooks.collect());
    }
    for found in reader.everywhere::<ValidatingWebhookConfiguration>("").await {
        let webhooks = found.webhooks.iter().flatten().map(|webhook| (webhook.name.clone(), webhook.client_config.clone()));
        note(title(&found), delete(&found), webhooks.collect());
    }
    (items, services)
}

/// Certificates for the Services behind the webhooks, their issuers and Secrets; none where cert-manager is not installed.
async fn certificates(reader: &mut Reader, behind: &BTreeSet<(String, String)>) -> Vec<Item> {
    let kind = |kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", kind));
    let of_arc = |certificate: &DynamicObject| {
        let names = certificate.data.pointer("/spec/dnsNames").and_then(serde_json::Value::as_array);
        let names = names.into_iter().flatten().filter_map(serde_json::Value::as_str);
        let serves =
            |name: &str| behind.iter().any(|(namespace, service)| name.starts_with(&format!("{service}.{namespace}.svc")));
        app(certificate).starts_with(ARC) || names.into_iter().any(serves)
    };
    let found = reader.dynamic::<DynamicObject>(&kind("Certificate")).await;
    let (mut items, mut issuers) = (Vec::new(), BTreeSet::new());
    for certificate in found.iter().filter(|certificate| of_arc(certificate)) {
        let (namespace, name) = (certificate.namespace().unwrap_or_default(), certificate.name_any());
        let text = |pointer: &str| certificate.data.pointer(pointer).and_then(serde_json::Value::as_str);
        if text("/spec/issuerRef/kind").unwrap_or("Issuer") == "Issuer" {
            issuers.extend(text("/spec/issuerRef/name").map(|issuer| (namespace.clone(), issuer.to_owned())));
        }
        let secret = text("/spec/secretName").unwrap_or_default();
        items.push(Item {
            what: format!("Certificate {namespace}/{name}"),
            why: format!("for ARC's admission webhooks, with its Secret {secret}"),
            command: format!(
                "{} && kubectl delete secret {secret} --namespace={namespace}",
                delete_of("certificates.cert-manager.io", certificate)
            ),
        });
    }
    let found = reader.dynamic::<DynamicObject>(&kind("Issuer")).await;
    let used = |issuer: &&DynamicObject| issuers.contains(&(issuer.namespace().unwrap_or_default(), issuer.name_any()));
    items.extend(found.iter().filter(used).map(|issuer| Item {
        what: format!("Issuer {}/{}", issuer.namespace().unwrap_or_default(), issuer.name_any()),
        why: "signs that certificate; check that nothing else uses it".to_owned(),
        command: delete_of("issuers.cert-manager.io", issuer),
    }));
    items
}

async fn services(reader: &mut Reader, behind: &BTreeSet<(String, String)>) -> Vec<Item> {
    let of_arc = |service: &Service| {
        app(service).starts_with(ARC) || behind.contains(&(service.namespace().unwrap_or_default(), service.name_any()))
    };
    let found = reader.everywhere::<Service>("").await;
    let found = found.iter().filter(|service| of_arc(service));
    found.map(|service| Item { what: title(service), why: "leads to ARC".to_owned(), command: delete(service) }).collect()
}

/// Leases and, of older versions, ConfigMaps of the controllers' election.
async fn election(reader: &mut Reader, programs: &[(Program, Deployment)]) -> Vec<Item> {
    let controllers = programs.iter().filter(|(program, _)| *program == Program::Controller);
    let elections: BTreeSet<(String, String)> = controllers
        .map(|(_, deployment)| {
            let arguments = containers(deployment).flat_map(|container| container.args.iter().flatten());
            let id = arguments.filter_map(|argument| argument.trim_start_matches('-').strip_prefix("leader-election-id=")).last();
            (deployment.namespace().unwrap_or_default(), id.unwrap_or(LEASE).to_owned())
        })
        .collect();
    let is_one = |namespace: Option<String>, name: String| elections.contains(&(namespace.unwrap_or_default(), name));
    let mut items = Vec::new();
    for lease in reader.everywhere::<Lease>("").await.iter().filter(|lease| is_one(lease.namespace(), lease.name_any())) {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        items.push(Item {
            what: title(lease),
            why: match holder.as_str() {
                "" => "elected ARC's leader. This operator uses the same one when it runs in the same namespace under the same \
                       --leader-election-id; otherwise remove it"
                    .to_owned(),
                holder => format!(
                    "elected ARC's leader, last {holder}. This operator uses the same one when it runs in the same namespace under the same \
                     --leader-election-id, and then acts only when ARC has let go of it; otherwise remove it"
                ),
            },
            command: delete(lease),
        });
    }
    for map in reader.everywhere::<ConfigMap>("").await.iter().filter(|map| is_one(map.namespace(), map.name_any())) {
        items.push(Item {
            what: title(map),
            why: "elected the leader of older versions of ARC".to_owned(),
            command: delete(map),
        });
    }
    items
}

/// Service accounts of the programs as (namespace, name); those that others use as well are left out.
fn users(programs: &[(Program, Deployment)]) -> BTreeSet<(String, String)> {
    let account = |deployment: &Deployment| {
        let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
        let name = pod.service_account_name.clone().filter(|name| !name.is_empty() && name != "default")?;
        Some((deployment.namespace().unwrap_or_default(), name))
    };
    programs.iter().filter_map(|(_, deployment)| account(deployment)).collect()
}

/// Roles of ARC's and what binds them: whatever is bound to its service accounts, or has its name.
async fn rights(reader: &mut Reader, programs: &[(Program, Deployment)]) -> Vec<Item> {
    let users = users(programs);
    let used = |subjects: &Option<Vec<Subject>>| {
        let account = |subject: &Subject| (subject.namespace.clone().unwrap_or_default(), subject.name.clone());
        subjects.iter().flatten().any(|subject| subject.kind == "ServiceAccount" && users.contains(&account(subject)))
    };
    // Roles of Kubernetes' own may be bound to anybody.
    let own = |reference: &RoleRef| {
        !reference.name.starts_with("system:") && !matches!(reference.name.as_str(), "cluster-admin" | "admin" | "edit" | "view")
    };
    let (mut items, mut cluster_roles, mut roles) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for binding in reader.everywhere::<ClusterRoleBinding>("").await {
        if used(&binding.subjects) || is_arcs(&binding) {
            cluster_roles
                .extend(Some(&binding.role_ref).filter(|reference| own(reference)).map(|reference| reference.name.clone()));
            items.push(Item { what: title(&binding), why: "rights of ARC's".to_owned(), command: delete(&binding) });
        }
    }
    for binding in reader.everywhere::<RoleBinding>("").await {
        if used(&binding.subjects) || is_arcs(&binding) {
            let namespace = binding.namespace().unwrap_or_default();
            if own(&binding.role_ref) && binding.role_ref.kind == "Role" {
                roles.insert((namespace, binding.role_ref.name.clone()));
            } else if own(&binding.role_ref) {
                cluster_roles.insert(binding.role_ref.name.clone());
            }
            items.push(Item { what: title(&binding), why: "rights of ARC's".to_owned(), command: delete(&binding) });
        }
    }
    let found = reader.everywhere::<ClusterRole>("").await;
    let found = found.iter().filter(|role| cluster_roles.contains(&role.name_any()) || is_arcs(*role));
    items.extend(found.map(|role| Item { what: title(role), why: "rights of ARC's".to_owned(), command: delete(role) }));
    let found = reader.everywhere::<Role>("").await;
    let found =
        found.iter().filter(|role| roles.contains(&(role.namespace().unwrap_or_default(), role.name_any())) || is_arcs(*role));
    items.extend(found.map(|role| Item { what: title(role), why: "rights of ARC's".to_owned(), command: delete(role) }));
    items
}

/// Whether an object's name is one of ARC's chart; those of runner scale sets begin with `gha-`.
fn is_arcs<K: Resource>(object: &K) -> bool {
    let name = object.name_any();
    name.contains(ARC) && !name.starts_with("gha-") && !app(object).starts_with(OWN)
}

async fn accounts(reader: &mut Reader, programs: &[(Program, Deployment)]) -> Vec<Item> {
    let users = users(programs);
    let found = reader.everywhere::<ServiceAccount>("").await;
    let found = found.iter().filter(|account| users.contains(&(account.namespace().unwrap_or_default(), account.name_any())));
    found
        .map(|account| Item { what: title(account), why: "ARC's programs ran as it".to_owned(), command: delete(account) })
        .collect()
}

/// Namespace and name of the Helm release that a Deployment belongs to.
fn release(deployment: &Deployment) -> Option<(String, String)> {
    let annotation = |name: &str| deployment.annotations().get(name).cloned();
    Some((annotation("meta.helm.sh/release-namespace")?, annotation("meta.helm.sh/release-name")?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(name: &str, image: &str, command: &str, args: &[&str]) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "arc", "labels": {"app.kubernetes.io/name": name}},
            "spec": {"selector": {}, "template": {"spec": {"containers": [
                {"name": "proxy", "image": "kube-rbac-proxy", "args": ["--secure-listen-address=0.0.0.0:8443"]},
                {"name": "manager", "image": image, "command": [command], "args": args},
            ]}}},
        }))
        .unwrap()
    }

    #[test]
    fn a_program_of_arcs_is_recognised_by_what_it_runs() {
        let image = "summerwind/actions-runner-controller:v0.27.6";
        let mirrored = "registry.example.com/ci/arc:1";
        let runner_image = ["--metrics-addr=127.0.0.1:8080", "--runner-image=summerwind/actions-runner:latest"];
        for (name, image, command, args, expected) in [
            ("arc", image, "/manager", &[][..], Some(Program::Controller)),
            ("actions-runner-controller", mirrored, "/manager", &[], Some(Program::Controller)),
            ("controller-manager", mirrored, "/manager", &runner_image, Some(Program::Controller)),
            ("hooks", mirrored, "/github-webhook-server", &[], Some(Program::WebhookServer)),
            ("jobs", image, "/actions-metrics-server", &[], Some(Program::MetricsServer)),
            ("cert-manager", "cert-manager", "/manager", &[], None),
            (
                "scale-sets",
                "ghcr.io/actions/gha-runner-scale-set-controller:0.14.2",
                "/manager",
                &["--auto-scaling-runner-set-only"],
                None,
            ),
            ("scale-sets", image, "/manager", &["--auto-scaling-runner-set-only"], None),
            ("pacer", "actions-runner-controller-replacement", "/manager", &runner_image, None),
            ("web", image, "/web", &[], None),
        ] {
            assert_eq!(program(&deployment(name, image, command, args)), expected, "{name} {image} {command} {args:?}");
        }
    }

    #[test]
    fn objects_of_this_operators_chart_are_not_arcs() {
        let object = |labels: &[(&str, &str)]| {
            let mut role = ClusterRole::default();
            role.metadata.name = Some("arc-actions-runner-controller-pacer".to_owned());
            role.metadata.labels =
                Some(labels.iter().map(|(label, value)| (format!("app.kubernetes.io/{label}"), (*value).to_owned())).collect());
            role
        };
        assert!(is_arcs(&object(&[])) && is_arcs(&object(&[("name", "actions-runner-controller")])));
        assert!(!is_arcs(&object(&[("name", "actions-runner-controller"), ("part-of", "pacer")])), "of the chart");
        assert!(!is_arcs(&object(&[("name", "pacer-webhook")])), "of the manifests");
    }

    #[test]
    fn one_that_is_scaled_to_nothing_and_has_no_pods_does_not_run() {
        let with = |wanted: Option<i32>, there: Option<i32>| {
            let mut deployment = deployment("arc", "x", "/manager", &[]);
            deployment.spec.as_mut().unwrap().replicas = wanted;
            deployment.status = Some(k8s_openapi::api::apps::v1::DeploymentStatus { replicas: there, ..Default::default() });
            replicas(&deployment)
        };
        assert_eq!([with(None, None), with(Some(0), Some(1)), with(Some(0), None), with(Some(2), Some(1))], [1, 1, 0, 2]);
    }
}
