//! Whether a tenancy says which namespaces may register where.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use pacer_policy::tenancy::{read, text};

use super::Checked;
use super::finding::{Finding, Severity};
use super::installation::Installation;
use crate::default_set::config_map;
use crate::reader::Reader;

/// Said where none is asked for: that is no fault, and worth knowing.
const NONE: &str = "no tenancy is in force: every namespace may use the operator's credentials for whatever they reach (--tenancy, \
                    docs/tenancy.md)";

pub(super) async fn check(reader: &mut Reader, installation: &Installation) -> Checked {
    let none = Checked { healthy: NONE.to_owned(), findings: Vec::new() };
    // Flags that can't be read are a finding about the Deployment.
    let Ok(Some(arguments)) = installation.flags() else { return none };
    let Ok(Some(key)) = config_map("--tenancy", &arguments.tenancy, &installation.namespace) else { return none };
    let healthy = format!("the tenancy in ConfigMap {key} is in force");
    let maps: Api<ConfigMap> = Api::namespaced(reader.client.clone(), &key.namespace);
    let wrong = match maps.get_opt(&key.name).await {
        Ok(Some(map)) => text(map.data.as_ref()).and_then(read).err().map(|error| error.to_string()),
        Ok(None) => Some("does not exist".to_owned()),
        Err(error) => {
            reader.unread.push(format!("ConfigMap {key}, the tenancy: {error}"));
            None
        }
    };
    let finding = wrong.map(|what| Finding {
        severity: Severity::Problem,
        object: format!("ConfigMap {key}"),
        what,
        why: "the last good tenancy stays in force; where there never was one, nothing new is allowed".to_owned(),
        cure: format!("kubectl edit configmap {} --namespace {}; docs/tenancy.md has the format", key.name, key.namespace),
    });
    Checked { healthy, findings: finding.into_iter().collect() }
}
