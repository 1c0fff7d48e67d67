//! Whether all kinds are defined as this version of pacer defines them.

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use pacer_api::crd;

use super::Checked;
use super::finding::{Finding, Severity};
use crate::reader::Reader;

/// What installs or renews the definitions.
const CURE: &str = "pacer crds apply";

pub(super) async fn check(reader: &mut Reader) -> Result<Checked> {
    let there: Vec<CustomResourceDefinition> = reader.everywhere("").await;
    let own = crd::all()?;
    let findings = own.iter().filter_map(|own| compare(own, there.iter().find(|one| one.name_any() == own.name_any())));
    Ok(Checked { healthy: "all kinds are defined as this version defines them".to_owned(), findings: findings.collect() })
}

fn compare(own: &CustomResourceDefinition, there: Option<&CustomResourceDefinition>) -> Option<Finding> {
    let object = format!("CustomResourceDefinition {}", own.name_any());
    let finding = |severity, what: &str, why: &str| {
        Some(Finding { severity, object: object.clone(), what: what.to_owned(), why: why.to_owned(), cure: CURE.to_owned() })
    };
    let Some(there) = there else {
        return finding(Severity::Problem, "does not exist", "the operator waits for it and does nothing else");
    };
    if !established(there) {
        return finding(Severity::Problem, "is not established", "the API server does not serve this kind");
    }
    let versions = |definition: &CustomResourceDefinition| {
        definition.spec.versions.iter().map(|version| (version.schema.clone(), version.subresources.clone())).collect::<Vec<_>>()
    };
    if versions(own) != versions(there) {
        let why = "fields that one of the two does not know are dropped or refused";
        return finding(Severity::Warning, "is not the one of this version of pacer", why);
    }
    None
}

fn established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
}
