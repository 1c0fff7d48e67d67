//! All nodes and what is requested on them, listed when a policy that asks for it is about to be asked.
//!
//! Pods are some 10 KiB each and are not kept: each becomes part of the sums of its node as it is read.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryFutureExt as _;
use k8s_openapi::api::core::v1::{Affinity, Container, Node, NodeSelectorTerm, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ListParams;
use kube::{Client, Resource, ResourceExt as _};
use pacer_api::names::label;
use pacer_api::quantity::nanos;
use pacer_core::allowed::Allowed;
use pacer_core::fit::{Amounts, Demand, Effect, FreeRoom, Host, PODS, Shape, Taint, Term, Toleration, Wish};
use pacer_core::policy::Attributes;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use crate::answer::is_forbidden;
use crate::unreadable::{self, Unreadable};
use crate::{nodes, page};

/// How long what was listed is used, and so at most two lists of nodes a minute.
const AGE: Duration = Duration::from_secs(30);

/// How long nothing is listed after that was not possible.
const FAILED: Duration = Duration::from_secs(60);

/// How long nothing is listed after that was forbidden.
const FORBIDDEN: Duration = Duration::from_secs(600);

/// How long a decision waits for the lists.
const PATIENCE: Duration = Duration::from_secs(3);

/// Objects on one page of a list.
const PAGE: u32 = 500;

/// Pages that are read at most: 20,000 pods. A larger cluster costs more than the fact is worth.
const PAGES: usize = 40;

/// Pods that are on nodes and not over.
const PODS_ON_NODES: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// Lists nodes and pods, and remembers what they come to.
pub struct Surveyor {
    client: Client,
    allowed: Arc<Allowed>,
    known: Mutex<Option<Known>>,
    left_out: Mutex<LeftOut>,
}

/// What of the lists cannot be read.
#[derive(Default)]
struct LeftOut {
    nodes: unreadable::Known,
    pods: unreadable::Known,
}

/// What was found, or that nothing was, until when.
struct Known {
    until: Instant,
    survey: Option<Arc<Survey>>,
}

/// All nodes at one moment.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    hosts: BTreeMap<String, Host>,
    /// Namespace and name of runner pods whose requests are counted.
    counted: HashSet<(String, String)>,
}

/// Why there is no survey.
#[derive(Debug, thiserror::Error)]
enum Obstacle {
    #[error("listing {what}: {source}")]
    Api { what: String, source: Box<kube::Error> },
    #[error("there are more than {} pods on nodes", PAGES * PAGE as usize)]
    TooMany,
    #[error("the API server took longer than {} s", PATIENCE.as_secs())]
    Late,
}

impl Surveyor {
    /// Lists through this client, and tells of nodes what may be passed on.
    #[must_use]
    pub fn new(client: Client, allowed: Arc<Allowed>) -> Self {
        Self { client, allowed, known: Mutex::new(None), left_out: Mutex::default() }
    }

    /// All nodes as they were half a minute ago at most; none where they may not be listed, or the API server takes its time. Others that ask
    /// meanwhile wait for the same answer.
    pub async fn survey(&self) -> Option<Arc<Survey>> {
        let mut known = self.known.lock().await;
        if let Some(known) = known.as_ref().filter(|known| Instant::now() < known.until) {
            return known.survey.clone();
        }
        let listed = tokio::time::timeout(PATIENCE, self.list()).await.unwrap_or(Err(Obstacle::Late));
        let (survey, age) = match listed {
            Ok(survey) => (Some(Arc::new(survey)), AGE),
            Err(Obstacle::Api { source, .. }) if is_forbidden(&source) => {
                tracing::info!(
                    error = %source,
                    "nodes and pods of all namespaces may not be listed, so that policies are not told how much room there is; grant the role pacer-room"
                );
                (None, FORBIDDEN)
            }
            Err(error) => {
                tracing::warn!(%error, "policies are not told how much room there is, trying again in a minute");
                (None, FAILED)
            }
        };
        *known = Some(Known { until: Instant::now() + age, survey: survey.clone() });
        survey
    }

    async fn list(&self) -> Result<Survey, Obstacle> {
        let mut survey = Survey::default();
        let mut left_out = self.left_out.lock().await;
        let take = |node: Node| drop(survey.hosts.insert(node.name_any(), host(&node, &self.allowed)));
        self.pages::<Node>("", take, &mut left_out.nodes).await?;
        self.pages::<Pod>(PODS_ON_NODES, |pod| survey.count(&pod), &mut left_out.pods).await?;
        Ok(survey)
    }

    async fn pages<K>(&self, fields: &str, mut take: impl FnMut(K), left_out: &mut unreadable::Known) -> Result<(), Obstacle>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let mut params = ListParams::default().limit(PAGE).fields(fields);
        let kind = K::kind(&());
        left_out.begin();
        for _ in 0..PAGES {
            let failed = |source| Obstacle::Api { what: K::plural(&()).into_owned(), source: Box::new(source) };
            let leave_out = |one: &Unreadable| left_out.list(&kind, one);
            match page::each(&self.client, None, &params, &mut take, leave_out).map_err(failed).await? {
                Some(next) => params = params.continue_token(&next),
                None => {
                    left_out.end();
                    return Ok(());
                }
            }
        }
        Err(Obstacle::TooMany)
    }
}

impl Survey {
    /// Room for pods like this one; none where the pod asks for what is not understood.
    #[must_use]
    pub fn room(&self, pod: &PodSpec) -> Option<FreeRoom> {
        Some(FreeRoom::on(self.hosts.values(), &wish(pod)?))
    }

    /// The attributes of a node that say what its pods request; none of one that is not known.
    #[must_use]
    pub fn requested(&self, node: &str) -> Attributes {
        self.hosts.get(node).map(Host::attributes).unwrap_or_default()
    }

    /// Whether a runner pod is among those whose requests are counted.
    #[must_use]
    pub fn counts(&self, namespace: &str, name: &str) -> bool {
        self.counted.contains(&(namespace.to_owned(), name.to_owned()))
    }

    fn count(&mut self, pod: &Pod) {
        let Some(spec) = &pod.spec else { return };
        let Some(host) = spec.node_name.as_ref().and_then(|node| self.hosts.get_mut(node)) else { return };
        add(&mut host.requested, &requests(spec));
        if pod.labels().contains_key(label::RUNNER_POD) {
            self.counted.insert((pod.namespace().unwrap_or_default(), pod.name_any()));
        }
    }
}

/// In the units of [`Amounts`], rounded up.
fn amount(resource: &str, quantity: &Quantity) -> u64 {
    let unit = if resource == "cpu" { 1_000_000 } else { 1_000_000_000 };
    let nanos = nanos(quantity).unwrap_or_default().max(0);
    u64::try_from(nanos / unit + i128::from(nanos % unit != 0)).unwrap_or(u64::MAX)
}

fn amounts<'a>(quantities: impl IntoIterator<Item = (&'a String, &'a Quantity)>) -> Amounts {
    quantities.into_iter().map(|(resource, quantity)| (resource.clone(), amount(resource, quantity))).collect()
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (resource, more) in more {
        let amount = sum.entry(resource.clone()).or_default();
        *amount = amount.saturating_add(*more);
    }
}

fn at_least(most: &mut Amounts, other: &Amounts) {
    for (resource, other) in other {
        let amount = most.entry(resource.clone()).or_default();
        *amount = (*amount).max(*other);
    }
}

/// A limit without a request is a request, as the API server has it.
fn of_resources(resources: Option<&ResourceRequirements>) -> Amounts {
    let all = |quantities: Option<&BTreeMap<String, Quantity>>| amounts(quantities.into_iter().flatten());
    let Some(resources) = resources else { return Amounts::new() };
    let mut wanted = all(resources.limits.as_ref());
    wanted.extend(all(resources.requests.as_ref()));
    wanted
}

/// What a pod requests, as the scheduler sums it up: its containers and sidecars together, or more where an init container needs more; and one of
/// the pods of its node.
fn requests(spec: &PodSpec) -> Amounts {
    let of = |container: &Container| of_resources(container.resources.as_ref());
    let mut sum = Amounts::new();
    let mut most = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let own = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sum, &own);
            at_least(&mut most, &sum);
        } else {
            // The sidecars that were started before run beside it.
            let mut beside = sum.clone();
            add(&mut beside, &own);
            at_least(&mut most, &beside);
        }
    }
    spec.containers.iter().for_each(|container| add(&mut sum, &of(container)));
    at_least(&mut sum, &most);
    // Pod-level requests stand for those of the containers.
    sum.extend(of_resources(spec.resources.as_ref()));
    add(&mut sum, &amounts(spec.overhead.iter().flatten()));
    sum.insert(PODS.to_owned(), 1);
    sum
}

/// None where its affinity is of a form that is not followed.
fn wish(spec: &PodSpec) -> Option<Wish> {
    let terms = match spec.affinity.as_ref().and_then(required) {
        Some(terms) => Some(terms.iter().map(term).collect::<Option<Vec<Term>>>()?),
        None => None,
    };
    let tolerations = spec.tolerations.iter().flatten().filter_map(|toleration| {
        let effect = match toleration.effect.as_deref().filter(|effect| !effect.is_empty()) {
            Some(effect) => Some(effect_of(effect)?),
            None => None,
        };
        let exists = toleration.operator.as_deref() == Some("Exists");
        let value = (!exists).then(|| toleration.value.clone().unwrap_or_default());
        Some(Toleration { key: toleration.key.clone().filter(|key| !key.is_empty()), value, effect })
    });
    Some(Wish {
        requests: requests(spec),
        selector: spec.node_selector.clone().unwrap_or_default(),
        terms,
        tolerations: tolerations.collect(),
    })
}

fn required(affinity: &Affinity) -> Option<&Vec<NodeSelectorTerm>> {
    let node = affinity.node_affinity.as_ref()?;
    Some(&node.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms)
}

fn term(term: &NodeSelectorTerm) -> Option<Term> {
    if term.match_fields.as_ref().is_some_and(|fields| !fields.is_empty()) {
        return None;
    }
    let demand = |operator: &str, values: Vec<String>| {
        let number = || values.first()?.parse().ok();
        Some(match operator {
            "In" => Demand::In(values),
            "NotIn" => Demand::NotIn(values),
            "Exists" => Demand::Exists,
            "DoesNotExist" => Demand::DoesNotExist,
            "Gt" => Demand::Above(number()?),
            "Lt" => Demand::Below(number()?),
            _ => return None,
        })
    };
    let all = term.match_expressions.iter().flatten();
    all.map(|one| Some((one.key.clone(), demand(&one.operator, one.values.clone().unwrap_or_default())?))).collect()
}

/// None for one that keeps nobody away.
fn effect_of(effect: &str) -> Option<Effect> {
    match effect {
        "NoSchedule" => Some(Effect::NoSchedule),
        "NoExecute" => Some(Effect::NoExecute),
        _ => None,
    }
}

fn host(node: &Node, allowed: &Allowed) -> Host {
    let facts = nodes::facts(node, allowed);
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).filter_map(|taint| {
        let effect = effect_of(&taint.effect)?;
        Some(Taint { key: taint.key.clone(), value: taint.value.clone().unwrap_or_default(), effect })
    });
    let allocatable = node.status.iter().flat_map(|status| status.allocatable.iter().flatten());
    Host {
        shape: Shape {
            instance_type: facts.instance_type(allowed).map(str::to_owned),
            capacity_type: facts.capacity_type().map(str::to_owned),
            zone: facts.zone(allowed).map(str::to_owned),
        },
        closed: facts.is_draining() || !facts.ready,
        labels: node.labels().clone(),
        taints: taints.collect(),
        allocatable: amounts(allocatable),
        requested: Amounts::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// An API server that answers lists with these codes and objects, and counts them.
    fn surveyor(answer: impl Fn(&str) -> (u16, Value) + Clone + Send + Sync + 'static) -> (Surveyor, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let (code, answer) = answer(&request.uri().to_string());
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap();
            async move { Ok::<_, kube::Error>(answer) }
        });
        let allowed = Allowed { node_labels: vec!["topology.kubernetes.io/zone".to_owned()], ..Allowed::default() };
        (Surveyor::new(Client::new(service, "default"), Arc::new(allowed)), asked)
    }

    fn list(kind: &str, items: &[Value], next: &str) -> Value {
        json!({"apiVersion": "v1", "kind": format!("{kind}List"), "metadata": {"continue": next}, "items": items})
    }

    fn node(name: &str, zone: &str) -> Value {
        json!({
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
            "status": {
                "allocatable": {"cpu": "3920m", "memory": "8Gi", "pods": "10"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        })
    }

    fn pod(name: &str, node: &str, cpu: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "ci", "labels": {"actions-runner": ""}},
            "spec": {"nodeName": node, "containers": [{"name": "runner", "resources": {"requests": {"cpu": cpu}}}]},
        })
    }

    fn spec(spec: Value) -> PodSpec {
        serde_json::from_value(spec).unwrap()
    }

    fn asking(cpu: &str) -> PodSpec {
        spec(json!({"containers": [{"name": "runner", "resources": {"limits": {"cpu": cpu}}}]}))
    }

    #[tokio::test]
    async fn room_is_what_the_pods_on_nodes_leave_and_is_listed_once() {
        let (surveyor, asked) = surveyor(|uri| match uri {
            nodes if nodes.contains("/nodes") => (200, list("Node", &[node("n-1", "a"), node("n-2", "b")], "")),
            next if next.contains("continue=more") => (200, list("Pod", &[pod("web-2", "n-1", "1")], "")),
            _ => (200, list("Pod", &[pod("web-1", "n-1", "500m"), pod("lost", "gone", "1")], "more")),
        });
        for _ in 0..3 {
            let survey = surveyor.survey().await.unwrap();
            let room = survey.room(&asking("1")).unwrap();
            let shapes: Vec<_> = room.shapes.iter().map(|(shape, pods)| (shape.zone.as_deref().unwrap(), *pods)).collect();
            assert_eq!((room.pods, shapes), (5, vec![("a", 2), ("b", 3)]));
            assert!(survey.counts("ci", "web-2") && !survey.counts("ci", "lost") && !survey.counts("other", "web-2"));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 3, "a page of nodes, and two of pods");
    }

    #[tokio::test]
    async fn nothing_is_told_and_nobody_asked_again_where_lists_are_refused() {
        for (code, reason) in [(403, "Forbidden"), (500, "InternalError")] {
            let refusal = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no"});
            let (surveyor, asked) = surveyor(move |_| (code, refusal.clone()));
            for _ in 0..3 {
                assert!(surveyor.survey().await.is_none());
            }
            assert_eq!(asked.load(Ordering::Relaxed), 1, "{reason}");
        }
    }

    #[tokio::test]
    async fn a_cluster_with_too_many_pods_is_given_up() {
        let (surveyor, asked) = surveyor(|uri| match uri.contains("/nodes") {
            true => (200, list("Node", &[node("n-1", "a")], "")),
            false => (200, list("Pod", &[], "more")),
        });
        assert!(surveyor.survey().await.is_none());
        assert_eq!(asked.load(Ordering::Relaxed), 1 + PAGES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_decision_goes_on_without_room_when_the_api_server_does_not_answer() {
        let service = tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, kube::Error>>());
        assert!(Surveyor::new(Client::new(service, "default"), Arc::default()).survey().await.is_none());
    }

    #[test]
    fn a_pod_requests_what_its_containers_need_at_once() {
        let cpu = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let container = |name: &str, resources: Value| json!({"name": name, "resources": resources});
        let sidecar = |resources: Value| json!({"name": "s", "restartPolicy": "Always", "resources": resources});
        for (of, pod, expected) in [
            ("none", json!({"containers": [{"name": "a"}]}), None),
            ("two", json!({"containers": [container("a", cpu("1")), container("b", cpu("500m"))]}), Some(1_500)),
            ("a limit alone", json!({"containers": [container("a", json!({"limits": {"cpu": "2"}}))]}), Some(2_000)),
            (
                "a request below its limit",
                json!({"containers": [container("a", json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}))]}),
                Some(1_000),
            ),
            (
                "an init container that needs more",
                json!({"containers": [container("a", cpu("1"))], "initContainers": [container("i", cpu("3"))]}),
                Some(3_000),
            ),
            (
                "a sidecar",
                json!({"containers": [container("a", cpu("1"))], "initContainers": [sidecar(cpu("250m")), container("i", cpu("1"))]}),
                Some(1_250),
            ),
            ("overhead", json!({"containers": [container("a", cpu("1"))], "overhead": {"cpu": "100m"}}), Some(1_100)),
            (
                "the pod itself",
                json!({"containers": [container("a", cpu("1"))], "resources": {"requests": {"cpu": "4"}}}),
                Some(4_000),
            ),
        ] {
            let requests = requests(&spec(pod));
            assert_eq!((requests.get("cpu").copied(), requests[PODS]), (expected, 1), "{of}");
        }
    }

    #[test]
    fn a_wish_is_read_from_selector_affinity_and_tolerations() {
        let affinity = |terms: Value| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        let expression =
            |operator: &str, values: Value| json!([{"matchExpressions": [{"key": "k", "operator": operator, "values": values}]}]);
        for (terms, expected) in [
            (expression("In", json!(["a"])), Some(Demand::In(vec!["a".to_owned()]))),
            (expression("NotIn", json!(["a"])), Some(Demand::NotIn(vec!["a".to_owned()]))),
            (expression("Exists", json!([])), Some(Demand::Exists)),
            (expression("DoesNotExist", json!([])), Some(Demand::DoesNotExist)),
            (expression("Gt", json!(["7"])), Some(Demand::Above(7))),
            (expression("Lt", json!(["7"])), Some(Demand::Below(7))),
            (expression("Near", json!(["7"])), None),
            (json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n-1"]}]}]), None),
        ] {
            let wish = wish(&spec(json!({"containers": [], "affinity": affinity(terms.clone())})));
            assert_eq!(wish.map(|wish| wish.terms.unwrap()[0][0].1.clone()), expected, "{terms}");
        }
        let wish = wish(&spec(json!({
            "containers": [],
            "nodeSelector": {"pool": "ci"},
            "tolerations": [
                {"operator": "Exists"},
                {"key": "team", "value": "ci", "effect": "NoSchedule"},
                {"key": "soft", "operator": "Exists", "effect": "PreferNoSchedule"},
            ],
        })))
        .unwrap();
        assert_eq!((wish.selector["pool"].as_str(), wish.terms), ("ci", None));
        let team = Toleration { key: Some("team".into()), value: Some("ci".into()), effect: Some(Effect::NoSchedule) };
        assert_eq!(wish.tolerations, [Toleration::default(), team]);
    }
}
