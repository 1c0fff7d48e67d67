//! The operator's Deployment: what it was told, whether it runs, and who acts.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Container, PodSpec, Secret};
use kube::{Api, ResourceExt as _};
use pacer_cluster::lease::shards::group_holder;
use pacer_core::shard::Shards;

use super::Checked;
use super::finding::{Finding, Severity};
use crate::arguments::{RunArguments, WebhookArguments, as_go_wrote_them};
use crate::plain;
use crate::reader::Reader;

/// How far clocks may be apart before it is said.
const SKEW: SignedDuration = SignedDuration::from_secs(30);

/// What is known of the operator.
pub(super) struct Installation {
    pub(super) namespace: String,
    deployment: Option<Deployment>,
    /// Of the webhook server, where it is one of its own.
    webhook: Option<Deployment>,
}

/// Finds the Deployments whose containers start `pacer run` and `pacer webhook`.
pub(super) async fn read(reader: &mut Reader, namespace: &str) -> Result<Installation> {
    let deployments: Vec<Deployment> = reader.of_namespace(namespace).await;
    let runs = |verb| deployments.iter().find(|deployment| process(deployment, verb).is_some()).cloned();
    Ok(Installation { namespace: namespace.to_owned(), deployment: runs("run"), webhook: runs("webhook") })
}

/// The container that runs the operator. ARC's own is told by its command, which this one does not have.
fn operator(deployment: &Deployment) -> Option<(&PodSpec, &Container)> {
    process(deployment, "run")
}

/// The container that starts pacer with this verb.
fn process<'a>(deployment: &'a Deployment, verb: &str) -> Option<(&'a PodSpec, &'a Container)> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let runs = |container: &&Container| container.args.iter().flatten().next().is_some_and(|first| first == verb);
    pod.containers.iter().find(runs).map(|container| (pod, container))
}

impl Installation {
    /// `system:serviceaccount:NAMESPACE:NAME` of the operator; none without a Deployment.
    pub(super) fn account(&self) -> Option<String> {
        let (pod, _) = operator(self.deployment.as_ref()?)?;
        Some(self.account_of(pod))
    }

    /// Account and namespace of the webhook server, where it is a process of its own: the namespace whose autoscalers it serves, or empty for all.
    pub(super) fn receiver(&self) -> Option<(String, String)> {
        let (pod, container) = process(self.webhook.as_ref()?, "webhook")?;
        let watched = parse::<WebhookArguments>(container, &BTreeMap::new()).map(|arguments| arguments.watch_namespace);
        Some((self.account_of(pod), watched.unwrap_or_default()))
    }

    fn account_of(&self, pod: &PodSpec) -> String {
        let name = pod.service_account_name.as_deref().unwrap_or("default");
        format!("system:serviceaccount:{}:{name}", self.namespace)
    }

    /// Accounts of the processes that ask the API server who may have their metrics. Flags that can't be read are a finding of their own.
    pub(super) fn accounts_that_authorize_scrapers(&self) -> BTreeSet<String> {
        let operator = self.deployment.as_ref().and_then(operator);
        let operator =
            operator.and_then(|(pod, container)| Some((pod, parse::<RunArguments>(container, &BTreeMap::new()).ok()?.metrics)));
        let webhook = self.webhook.as_ref().and_then(|deployment| process(deployment, "webhook"));
        let webhook = webhook
            .and_then(|(pod, container)| Some((pod, parse::<WebhookArguments>(container, &BTreeMap::new()).ok()?.metrics)));
        let asks = [operator, webhook].into_iter().flatten().filter(|(_, metrics)| metrics.metrics_authorization);
        asks.map(|(pod, _)| self.account_of(pod)).collect()
    }

    /// The operator's flags as its Deployment gives them, without its environment.
    ///
    /// # Errors
    ///
    /// When this version of pacer does not take these flags.
    pub(super) fn flags(&self) -> Result<Option<RunArguments>> {
        let Some((_, container)) = self.deployment.as_ref().and_then(operator) else { return Ok(None) };
        parse(container, &BTreeMap::new()).map(Some)
    }

    /// The operator's flags with the variables that its Deployment sets, Secrets included.
    ///
    /// # Errors
    ///
    /// When a Secret can't be read, or this version of pacer does not take these flags.
    pub(super) async fn arguments(&self, reader: &Reader) -> Result<Option<RunArguments>> {
        let Some((_, container)) = self.deployment.as_ref().and_then(operator) else { return Ok(None) };
        let secrets: Api<Secret> = Api::namespaced(reader.client.clone(), &self.namespace);
        let (mut variables, mut read) = (BTreeMap::new(), BTreeMap::<String, Option<Secret>>::new());
        for variable in container.env.iter().flatten() {
            if let Some(value) = &variable.value {
                variables.insert(variable.name.clone(), value.clone());
            }
            let Some(reference) = variable.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref()) else { continue };
            if !read.contains_key(&reference.name) {
                let secret = secrets.get_opt(&reference.name).await;
                let secret = secret.with_context(|| format!("reading Secret {}/{}", self.namespace, reference.name))?;
                read.insert(reference.name.clone(), secret);
            }
            let secret = read.get(&reference.name).and_then(Option::as_ref);
            let value = secret.and_then(|secret| secret.data.as_ref()?.get(&reference.key));
            if let Some(value) = value.and_then(|value| String::from_utf8(value.0.clone()).ok()) {
                variables.insert(variable.name.clone(), value.trim().to_owned());
            }
        }
        parse(container, &variables).map(Some)
    }

    pub(super) async fn check(&self, reader: &mut Reader, now: Timestamp) -> Checked {
        let mut healthy = "the operator runs".to_owned();
        let Some(deployment) = &self.deployment else {
            let finding = Finding {
                severity: Severity::Problem,
                object: format!("Namespace {}", self.namespace),
                what: "has no Deployment that runs `pacer run`".to_owned(),
                why: "nobody acts on runners".to_owned(),
                cure: "helm install pacer deploy/chart --namespace NAMESPACE, or name the operator's own: --operator-namespace NAMESPACE"
                    .to_owned(),
            };
            return Checked { healthy, findings: vec![finding] };
        };
        let mut findings: Vec<Finding> = ready(deployment).into_iter().collect();
        match self.flags() {
            Ok(Some(arguments)) if arguments.election.enable_leader_election => {
                let election = &arguments.election;
                let namespace = election.leader_election_namespace.as_deref().unwrap_or(&self.namespace);
                let leases: Vec<Lease> = reader.of_namespace(namespace).await;
                let group = &election.leader_election_id;
                let shards = Shards::new(election.shards).filter(|shards| *shards != Shards::ONE);
                for name in election.leases() {
                    let lease = leases.iter().find(|lease| lease.name_any() == name);
                    let place = format!("{namespace}/{name}");
                    if let Some(holder) = lease.and_then(holder) {
                        healthy.push_str(&format!(", {holder} holds Lease {place}"));
                    }
                    findings.extend(leading(lease, &place, logs(deployment), now));
                }
                let group = leases.iter().find(|lease| lease.name_any() == *group);
                findings.extend(shards.and_then(|shards| of_others(group, namespace, shards)));
            }
            Ok(_) => healthy.push_str(", without leader election"),
            Err(error) => findings.push(Finding {
                severity: Severity::Problem,
                object: title(deployment),
                what: format!("has arguments that this version does not take: {}", plain::causes(&error)),
                why: "the operator does not start with them".to_owned(),
                cure: "correct them; `pacer run --help` lists all".to_owned(),
            }),
        }
        Checked { healthy, findings }
    }
}

fn title(deployment: &Deployment) -> String {
    format!("Deployment {}/{}", deployment.namespace().unwrap_or_default(), deployment.name_any())
}

/// The flags of a container. Variables become the flags that read them, so that those of this process do not count.
fn parse<Arguments: clap::Args>(container: &Container, variables: &BTreeMap<String, String>) -> Result<Arguments> {
    let run = Arguments::augment_args(clap::Command::new("pacer")).args_override_self(true);
    let from_environment = run.get_arguments().filter_map(|argument| {
        let value = variables.get(argument.get_env()?.to_str()?)?;
        Some(format!("--{}={value}", argument.get_long()?))
    });
    // The container's own come later and so win, as flags win over variables. The first of them is the verb.
    let words: Vec<String> = ["pacer".to_owned()]
        .into_iter()
        .chain(from_environment)
        .chain(container.args.iter().flatten().skip(1).cloned())
        .collect();
    let matches = run
        .mut_args(|argument| argument.env(None::<&str>))
        .try_get_matches_from(as_go_wrote_them(words.into_iter().map(Into::into)))?;
    Ok(Arguments::from_arg_matches(&matches)?)
}

/// The command that shows what the operator says.
fn logs(deployment: &Deployment) -> String {
    let namespace = deployment.namespace().unwrap_or_default();
    format!("kubectl logs deployment/{} --namespace={namespace} --tail=50", deployment.name_any())
}

fn ready(deployment: &Deployment) -> Option<Finding> {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let (namespace, name) = (deployment.namespace().unwrap_or_default(), deployment.name_any());
    let severity = if ready == 0 { Severity::Problem } else { Severity::Warning };
    (ready < wanted || wanted == 0).then(|| Finding {
        severity,
        object: title(deployment),
        what: format!("{ready} of {wanted} replicas are ready"),
        why: match severity {
            Severity::Problem => "nobody acts on runners".to_owned(),
            Severity::Warning => "nobody takes over when the replica that acts is lost".to_owned(),
        },
        cure: if wanted == 0 {
            format!("kubectl scale deployment {name} --namespace={namespace} --replicas=2")
        } else {
            let labels = deployment.spec.iter().filter_map(|spec| spec.selector.match_labels.as_ref()).flatten();
            let selector: Vec<String> = labels.map(|(label, value)| format!("{label}={value}")).collect();
            format!("kubectl describe pods --namespace={namespace} --selector={}; {}", selector.join(","), logs(deployment))
        },
    })
}

/// Who holds a lease, by the name that it has given itself.
fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// Whether replicas with another number of shards, or without any, act in place of these.
fn of_others(group: Option<&Lease>, namespace: &str, shards: Shards) -> Option<Finding> {
    let holder = holder(group?)?;
    (holder != group_holder(shards)).then(|| Finding {
        severity: Severity::Warning,
        object: format!("Lease {namespace}/{}", group.map(kube::ResourceExt::name_any).unwrap_or_default()),
        what: format!("it is held by {holder:?}, and this Deployment has --shards {}", shards.count()),
        why: "its replicas wait until those with another number are gone".to_owned(),
        cure: "give all replicas the same --shards, and end those that have another".to_owned(),
    })
}

/// Whether somebody holds the lease, by the clock of whoever renewed it.
fn leading(lease: Option<&Lease>, place: &str, logs: String, now: Timestamp) -> Option<Finding> {
    let finding = |severity, what: String, why: &str, cure: String| {
        Some(Finding { severity, object: format!("Lease {place}"), what, why: why.to_owned(), cure })
    };
    let spec = lease.and_then(|lease| lease.spec.as_ref());
    let (Some(holder), Some(renewed)) = (lease.and_then(holder), spec.and_then(|spec| spec.renew_time.as_ref())) else {
        return finding(Severity::Problem, "nobody holds it".to_owned(), "no replica acts on runners", logs);
    };
    let lasts = SignedDuration::from_secs(spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or(15).into());
    let age = now.duration_since(renewed.0);
    if age > lasts + SKEW {
        let what = format!("{holder} holds it and last renewed it {} s ago", age.as_secs());
        return finding(Severity::Problem, what, "no replica acts on runners", logs);
    }
    if age < -SKEW {
        let what = format!("{holder} renewed it {} s in the future of this machine's clock", -age.as_secs());
        let why = "GitHub refuses the App's tokens when the operator's clock is off, and this machine's may be the wrong one";
        return finding(Severity::Warning, what, why, "compare the clocks of this machine and of the operator's node".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(args: &[&str]) -> Container {
        serde_json::from_value(json!({"name": "manager", "args": args})).unwrap()
    }

    #[test]
    fn variables_of_the_deployment_count_and_its_flags_win() {
        let variables =
            BTreeMap::from([("GITHUB_TOKEN".to_owned(), "secret".to_owned()), ("GITHUB_URL".to_owned(), "https://a".to_owned())]);
        let run: RunArguments =
            parse(&container(&["run", "-enable-leader-election", "--github-url=https://b"]), &variables).unwrap();
        assert!(run.election.enable_leader_election);
        assert_eq!((run.github.github_token.as_deref(), run.github.github_url.as_deref()), (Some("secret"), Some("https://b")));
        assert!(parse::<RunArguments>(&container(&["run", "--no-such-flag"]), &variables).is_err());
    }

    #[test]
    fn replicas_with_another_number_of_shards_are_warned_of() {
        let lease = |holder: &str| -> Lease { serde_json::from_value(json!({"spec": {"holderIdentity": holder}})).unwrap() };
        let warns = |holder: &str| of_others(Some(&lease(holder)), "ns", Shards::new(2).unwrap()).is_some();
        assert_eq!(["2 shards", "", "3 shards", "pacer-a_1"].map(warns), [false, false, true, true]);
        assert!(of_others(None, "ns", Shards::new(2).unwrap()).is_none());
    }

    #[test]
    fn lease_that_is_not_renewed_is_a_problem_and_one_of_the_future_a_warning() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let lease = |holder: &str, renewed: &str| -> Lease {
            serde_json::from_value(json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}}))
                .unwrap()
        };
        let severity =
            |lease: Option<&Lease>| leading(lease, "ns/name", "kubectl logs".to_owned(), now).map(|finding| finding.severity);
        assert_eq!(severity(None), Some(Severity::Problem));
        assert_eq!(severity(Some(&lease("", "2026-01-01T00:10:00.000000Z"))), Some(Severity::Problem));
        assert_eq!(severity(Some(&lease("a", "2026-01-01T00:09:00.000000Z"))), Some(Severity::Problem));
        assert_eq!(severity(Some(&lease("a", "2026-01-01T00:09:50.000000Z"))), None);
        assert_eq!(severity(Some(&lease("a", "2026-01-01T00:11:00.000000Z"))), Some(Severity::Warning));
    }
}
