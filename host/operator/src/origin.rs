//! Where autoscalers expect webhooks from: scopes, and credentials that may list their webhooks.

use kube::ResourceExt;
use pacer_demand::redelivery::Origin;

use crate::access::Accesses;
use crate::stores::Stores;
use crate::target::TargetRef;

/// Those of the autoscalers with a trigger.
pub(crate) async fn origins(stores: &Stores, github: &Accesses) -> Vec<Origin> {
    let mut origins = Vec::new();
    for autoscaler in stores.autoscalers.state() {
        let namespace = autoscaler.namespace().unwrap_or_default();
        let target = autoscaler.spec.workflow_job_trigger().and(TargetRef::of(&autoscaler));
        let Some(target) = target.and_then(|target| stores.target(&target)) else { continue };
        let config = target.config();
        if github.tenancies().admits(&namespace, config).is_err() {
            continue;
        }
        let secret = autoscaler.spec.credentials_secret().or_else(|| config.credentials_secret());
        // What is wrong with them is reported by the autoscaler.
        let (Ok(github), Ok(scope)) = (github.github(&namespace, secret).await, config.scope()) else { continue };
        // Webhooks of a scope are everybody's who may use it with the same credentials.
        let github = if secret.is_some() { github } else { github.paid_by(None) };
        origins.push(Origin { github, scope });
    }
    origins
}
