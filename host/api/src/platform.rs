//! What the runners of a pool run on, as far as their template says so.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodOS;
use pacer_core::target::Platform;

use crate::names::annotation;
use crate::{RunnerPodSpec, RunnerSetSpec, RunnerTemplate};

impl RunnerPodSpec {
    /// What the pod runs on.
    #[must_use]
    pub fn platform(&self) -> Platform {
        of_pod(self.settings.os.as_ref(), self.node_selector.as_ref())
    }
}

impl RunnerTemplate {
    /// The platform whose labels the runners have: what their pods run on, or for runners that are registered just in time, what the request says.
    #[must_use]
    pub fn platform(&self) -> Platform {
        let annotations = self.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
        registered(self.spec.pod.platform(), annotations)
    }
}

impl RunnerSetSpec {
    /// As [`RunnerTemplate::platform`].
    #[must_use]
    pub fn platform(&self) -> Platform {
        let template = &self.stateful.template;
        let pod = template.spec.as_ref().map(|pod| of_pod(pod.os.as_ref(), pod.node_selector.as_ref()));
        let annotations = template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
        registered(pod.unwrap_or_default(), annotations)
    }
}

/// Whether these annotations of a Runner ask for its registration before its pod exists.
#[must_use]
pub fn is_just_in_time(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(annotation::JUST_IN_TIME).is_some_and(|value| value == "true")
}

fn of_pod(os: Option<&PodOS>, selector: Option<&BTreeMap<String, String>>) -> Platform {
    Platform::of_pod(os.map(|os| os.name.as_str()), selector)
}

fn registered(platform: Platform, annotations: Option<&BTreeMap<String, String>>) -> Platform {
    if annotations.is_some_and(is_just_in_time) { platform.with_defaults() } else { platform }
}

#[cfg(test)]
mod tests {
    use pacer_core::target::{Architecture, OperatingSystem};
    use serde_json::{Value, json};

    use super::*;

    /// Platforms of a RunnerDeployment's and of a RunnerSet's template that say the same.
    fn platforms(annotations: &Value, pod: &Value) -> [Platform; 2] {
        let metadata = json!({"annotations": annotations});
        let template: RunnerTemplate = serde_json::from_value(json!({"metadata": metadata, "spec": pod})).unwrap();
        let mut containers = pod.clone();
        containers["containers"] = json!([]);
        let set = json!({"serviceName": "", "selector": {}, "template": {"metadata": metadata, "spec": containers}});
        let set: RunnerSetSpec = serde_json::from_value(set).unwrap();
        [template.platform(), set.platform()]
    }

    #[test]
    fn both_kinds_of_pools_say_what_their_runners_run_on() {
        let windows = Platform { os: Some(OperatingSystem::Windows), architecture: None };
        let arm = Platform { os: None, architecture: Some(Architecture::Arm64) };
        for (pod, expected) in [
            (json!({}), Platform::default()),
            (json!({"nodeSelector": {"kubernetes.io/os": "windows"}}), windows),
            (json!({"os": {"name": "windows"}}), windows),
            (json!({"nodeSelector": {"kubernetes.io/arch": "arm64"}}), arm),
        ] {
            assert_eq!(platforms(&json!({}), &pod), [expected; 2], "{pod}");
            let ahead = platforms(&json!({"actions.summerwind.dev/just-in-time": "true"}), &pod);
            assert_eq!(ahead, [expected.with_defaults(); 2], "{pod}");
        }
        let off = platforms(&json!({"actions.summerwind.dev/just-in-time": "false"}), &json!({}));
        assert_eq!(off, [Platform::default(); 2]);
    }
}
