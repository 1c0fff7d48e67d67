//! The control plane starts, enforces what a real one does, restarts and ends.

#![cfg(test)]

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::Api;
use kube::api::PostParams;
use kube::runtime::wait::{await_condition, conditions};
use pacer_harness::controlplane::{Apply, Audit, Caller, ControlPlane, Options, StaticUser};
use serde_json::json;

const ROLE: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: default}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
"#;

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_of_ones_own() {
    let directory = tempfile::tempdir().unwrap();
    let definitions = directory.path().join("crds.yaml");
    std::fs::write(&definitions, DEFINITION).unwrap();
    let options = Options { audit: Audit::Writes, definitions: vec![definitions], ..Options::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    eprintln!("up in {:?}", plane.started_in());

    rbac_is_enforced(&plane).await;
    owned_objects_are_collected(&plane).await;
    state_survives_a_restart(&plane).await;

    let path = plane.directory().to_owned();
    let pids = plane.pids().await;
    plane.stop().await;
    assert!(!path.exists());
    assert!(pids.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()));
}

async fn rbac_is_enforced(plane: &ControlPlane) {
    plane.apply_text(ROLE, Apply::ServerSide).await.unwrap();
    plane.apply_text(ROLE, Apply::ClientSide).await.unwrap();
    let kubeconfig = plane.kubeconfig_for_service_account("default", "reader").await.unwrap();
    let content = kube::config::Kubeconfig::read_from(&kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(content, &Default::default()).await.unwrap();
    let reader = kube::Client::try_from(config).unwrap();

    let mut map = ConfigMap::default();
    map.metadata.name = Some("mine".into());
    Api::<ConfigMap>::default_namespaced(reader.clone()).create(&PostParams::default(), &map).await.unwrap();
    let refused = Api::<Pod>::default_namespaced(reader).list(&Default::default()).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");

    let caller = Caller::service_account("default", "reader");
    let calls = plane.api_calls(&[caller], None).unwrap();
    assert_eq!((calls.count("create", "configmaps"), calls.total()), (1, 1), "{calls}");
    let admin = plane.api_calls(&[Caller::User(StaticUser::Admin.name().into())], None).unwrap();
    assert_eq!(admin.count("create", "serviceaccounts/token"), 1, "{admin}");
}

async fn owned_objects_are_collected(plane: &ControlPlane) {
    let client = plane.admin().unwrap();
    let things: Api<kube::api::DynamicObject> = Api::default_namespaced_with(
        client.clone(),
        &kube::api::ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk("example.com", "v1", "Thing")),
    );
    let owner: kube::api::DynamicObject =
        serde_json::from_value(json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "owner"}})).unwrap();
    let owner = things.create(&PostParams::default(), &owner).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let owned: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "owned", "ownerReferences": [{
        "apiVersion": "example.com/v1", "kind": "Thing", "name": "owner", "uid": owner.metadata.uid, "controller": true,
    }]}}))
    .unwrap();
    let owned = maps.create(&PostParams::default(), &owned).await.unwrap();
    things.delete("owner", &Default::default()).await.unwrap();
    let uid = owned.metadata.uid.unwrap();
    let gone = await_condition(maps, "owned", conditions::is_deleted(&uid));
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("collected without a 30 s resync").unwrap();
}

async fn state_survives_a_restart(plane: &ControlPlane) {
    let maps: Api<ConfigMap> = Api::default_namespaced(plane.admin().unwrap());
    plane.restart_apiserver().await.unwrap();
    maps.get("mine").await.unwrap();
    let blocked = tokio::time::timeout(Duration::from_millis(100), maps.get("mine"));
    assert!(plane.without_apiserver(blocked).await.is_err(), "nobody answers");
    maps.get("mine").await.unwrap();
    assert!(plane.logs(10_000).await.contains("kube-apiserver"));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_live_side_by_side() {
    let (one, two) = tokio::join!(ControlPlane::start(Options::default()), ControlPlane::start(Options::default()));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one.url(), two.url());
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "only-here"}})).unwrap();
    let first: Api<Namespace> = Api::all(one.admin().unwrap());
    first.create(&PostParams::default(), &namespace).await.unwrap();
    let second: Api<Namespace> = Api::all(two.admin().unwrap());
    assert_eq!(second.get_opt("only-here").await.unwrap(), None);
    let output = two.kubectl(&["get", "namespaces", "-o", "name"]).await.unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("namespace/kube-system"));
    // Dropped, not stopped: their processes end with the handles.
    let pids = one.pids().await;
    drop((one, two));
    assert!(pids.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()));
}
