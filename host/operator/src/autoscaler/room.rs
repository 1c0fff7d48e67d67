//! How many more runners of a pool the nodes take, where a policy reads that.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pacer_api::Runner;
use pacer_core::policy::Attributes;
use pacer_core::reads::{Fact, Reads};

use super::Autoscalers;
use super::observe::Fleet;
use crate::pod::{self, Held, PodDefaults, PodInput, TokenSource};
use crate::target::Target;

impl Autoscalers {
    /// The attributes of a pool that say so; none where nodes may not be listed, or its pods ask for what is not understood.
    pub(super) async fn room(&self, target: &Target, fleet: &Fleet, reads: &Reads) -> Attributes {
        if !reads.has(Fact::Room) {
            return Attributes::new();
        }
        let Some(pod) = next_pod(target, &self.settings.pod) else { return Attributes::new() };
        let Some(survey) = self.decisions.surveyor.survey().await else { return Attributes::new() };
        let claims = || claims(&fleet.unfinished, |name| survey.counts(target.namespace(), name));
        survey.room(&pod).map(|room| room.attributes(claims())).unwrap_or_default()
    }
}

/// How many of these runners need room that the nodes do not show yet: their pods had no node when these were listed. They are the runners that the
/// pool's counts have, because a policy subtracts one from the other: a runner that has ended since then is still in both.
fn claims(unfinished: &[Arc<[String]>], has_node: impl Fn(&str) -> bool) -> u32 {
    let claims = unfinished.iter().flat_map(|names| names.iter()).filter(|name| !has_node(name)).count();
    u32::try_from(claims).unwrap_or(u32::MAX)
}

/// What the pod of one more runner would be; none where none can be built.
fn next_pod(target: &Target, defaults: &PodDefaults) -> Option<PodSpec> {
    let name = |name: &str| Some(name.to_owned());
    let metadata =
        ObjectMeta { name: name("next"), namespace: name(target.namespace()), uid: name("next"), ..ObjectMeta::default() };
    let runner = Runner { metadata, spec: target.template(&[]).spec, status: None };
    let token = TokenSource { holds: Held::Token, name: "token".to_owned(), key: "token".to_owned() };
    let server = "https://github.com/";
    pod::build(&PodInput { runner: &runner, defaults, server, token: &token, account: None, claims: &[] }).ok()?.pod.spec
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn runners_without_a_node_claim_room_and_those_of_all_sets_count() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Arc<[String]>>();
        let unfinished = [names(&["web-1", "web-2"]), names(&[]), names(&["web-3"])];
        assert_eq!(claims(&unfinished, |_| false), 3);
        assert_eq!(claims(&unfinished, |name| name == "web-2"), 2);
        assert_eq!(claims(&[], |_| false), 0);
    }

    #[test]
    fn the_next_pod_asks_for_what_the_template_says() {
        let defaults = PodDefaults {
            runner_image: "runner".to_owned(),
            docker_image: "dind".to_owned(),
            docker_gid: 1_001,
            image_pull_secrets: Vec::new(),
            docker_registry_mirror: None,
            status_hook: false,
            grace: Duration::from_secs(30),
            version: None,
        };
        let deployment = json!({
            "metadata": {"name": "web", "namespace": "ci"},
            "spec": {"template": {"spec": {
                "repository": "acme/app", "dockerEnabled": false, "nodeSelector": {"pool": "ci"},
                "resources": {"requests": {"cpu": "2"}},
            }}},
        });
        let target = Target::Deployment(Arc::new(serde_json::from_value(deployment).unwrap()));
        let pod = next_pod(&target, &defaults).unwrap();
        assert_eq!(pod.node_selector.unwrap()["pool"], "ci");
        let requests = pod.containers[0].resources.clone().unwrap().requests.unwrap();
        assert_eq!((pod.containers.len(), requests["cpu"].0.as_str()), (1, "2"));
    }
}
