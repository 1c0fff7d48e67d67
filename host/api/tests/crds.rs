//! The definitions are what the repository ships, what the API server accepts, and lose nothing that manifests say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "crds/manifests.rs"]
mod manifests;
#[path = "crds/pruning.rs"]
mod pruning;
#[path = "crds/structure.rs"]
mod structure;

use std::{fs, path::PathBuf};

use pacer_api::crd;

fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Set `UPDATE_GOLDEN=1` to write the files anew.
#[test]
fn the_shipped_files_are_what_the_types_say() {
    let directory = repository().join("deploy/chart/crds");
    let files = crd::files().unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(&directory).unwrap();
        for (name, text) in &files {
            fs::write(directory.join(name), text).unwrap();
        }
    }
    let mut shipped: Vec<String> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    shipped.sort();
    let mut expected: Vec<&String> = files.iter().map(|(name, _)| name).collect();
    expected.sort();
    assert_eq!(shipped.iter().collect::<Vec<_>>(), expected, "run with UPDATE_GOLDEN=1 and remove what is left over");
    for (name, text) in &files {
        let path = directory.join(name);
        assert!(fs::read_to_string(&path).unwrap() == *text, "{name} is not what the types say: run with UPDATE_GOLDEN=1");
    }
}

#[test]
fn client_side_apply_can_store_every_definition() {
    const LIMIT: usize = 256 * 1024;
    for definition in crd::all().unwrap() {
        let name = definition.metadata.name.clone().unwrap();
        let json = serde_json::to_string(&definition).unwrap();
        assert!(json.len() < LIMIT, "{name}: {} bytes as an annotation", json.len());
    }
    for (name, text) in crd::files().unwrap() {
        assert!(text.len() < LIMIT, "{name}: {} bytes", text.len());
    }
}

#[test]
fn a_file_reads_back_as_its_definition() {
    let definitions = crd::all().unwrap();
    let files = crd::files().unwrap();
    assert_eq!(definitions.len(), 6);
    for (definition, (name, text)) in definitions.iter().zip(&files) {
        let read: serde_json::Value = serde_saphyr::from_str(text).unwrap();
        assert_eq!(read, serde_json::to_value(definition).unwrap(), "{name}");
    }
    assert_eq!(crd::yaml().unwrap().matches("\nkind: CustomResourceDefinition\n").count(), 6);
}

#[test]
fn names_columns_and_subresources_are_those_of_arc_and_further_columns_come_last() {
    let summary: Vec<String> = crd::all()
        .unwrap()
        .iter()
        .map(|definition| {
            let names = &definition.spec.names;
            let version = &definition.spec.versions[0];
            let columns: Vec<String> = version
                .additional_printer_columns
                .iter()
                .flatten()
                .map(|column| format!("{}:{}:{}", column.name, column.type_, column.json_path))
                .collect();
            let scale = version.subresources.as_ref().and_then(|sub| sub.scale.as_ref());
            format!(
                "{} {} {:?} {} {} scale={} | {}",
                names.kind,
                names.plural,
                names.short_names,
                definition.spec.scope,
                version.name,
                scale.is_some_and(|scale| scale.label_selector_path.as_deref() == Some(".status.selector")),
                columns.join(" ")
            )
        })
        .collect();
    let age = "Age:date:.metadata.creationTimestamp";
    let template = "Enterprise:string:.spec.template.spec.enterprise Organization:string:.spec.template.spec.organization \
                    Repository:string:.spec.template.spec.repository Group:string:.spec.template.spec.group \
                    Labels:string:.spec.template.spec.labels";
    let counts = "Desired:number:.spec.replicas Current:number:.status.replicas Up-To-Date:number:.status.updatedReplicas \
                  Available:number:.status.availableReplicas";
    let expected = [
        format!(
            "Runner runners None Namespaced v1alpha1 scale=false | Enterprise:string:.spec.enterprise \
             Organization:string:.spec.organization Repository:string:.spec.repository Group:string:.spec.group \
             Labels:string:.spec.labels Status:string:.status.phase Message:string:.status.message WF \
             Repo:string:.status.workflow.repository WF Run:string:.status.workflow.runID {age} \
             Busy:boolean:.status.busy Job:string:.status.job Node:string:.status.nodeName \
             State-Age:date:.status.stateSince WF Job:string:.status.workflow.job"
        ),
        format!(
            "RunnerReplicaSet runnerreplicasets Some([\"rrs\"]) Namespaced v1alpha1 scale=true | Desired:number:.spec.replicas \
             Current:number:.status.replicas Ready:number:.status.readyReplicas {age} \
             Busy:number:.status.busyReplicas"
        ),
        format!(
            "RunnerDeployment runnerdeployments Some([\"rdeploy\"]) Namespaced v1alpha1 scale=true | {template} {counts} {age}"
        ),
        format!("RunnerSet runnersets None Namespaced v1alpha1 scale=true | {counts} {age}"),
        "HorizontalRunnerAutoscaler horizontalrunnerautoscalers Some([\"hra\"]) Namespaced v1alpha1 scale=false | \
         Min:number:.spec.minReplicas Max:number:.spec.maxReplicas Desired:number:.status.desiredReplicas \
         Schedule:string:.status.scheduledOverridesSummary Why:string:.status.conditions[?(@.type==\"Scaling\")].reason"
            .to_owned(),
        format!("JobLedger jobledgers None Namespaced v1alpha1 scale=false | Autoscaler:string:.spec.autoscaler {age}"),
    ];
    assert_eq!(summary, expected);
}
