//! Which ConfigMap is the cluster's default policy set: that of the operator's `--policies`.

use anyhow::{Result, bail};
use pacer_cluster::object::ObjectKey;
use pacer_policyset::DEFAULT_NAME;

/// Where the operator is unless somebody put it elsewhere.
pub(crate) const OPERATOR_NAMESPACE: &str = "actions-runner-system";

/// The default set, for commands that read what an operator was told.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DefaultSetArguments {
    /// Namespace of the operator.
    #[arg(long, default_value = OPERATOR_NAMESPACE, value_name = "NAMESPACE")]
    pub(crate) operator_namespace: String,
    /// --policies of the operator, its default policy set: NAMESPACE/NAME, or NAME in the operator's namespace. Empty: none.
    #[arg(long, default_value = DEFAULT_NAME, value_name = "CONFIGMAP")]
    policies: String,
}

impl DefaultSetArguments {
    /// The set; none where there is to be none.
    pub(crate) fn key(&self) -> Result<Option<ObjectKey>> {
        parse(&self.policies, &self.operator_namespace)
    }
}

/// Reads `--policies`: `namespace/name`, a name in the operator's own namespace, or empty for no default set.
pub(crate) fn parse(text: &str, own: &str) -> Result<Option<ObjectKey>> {
    config_map("--policies", text, own)
}

/// Reads a flag that names a ConfigMap: `namespace/name`, a name in the operator's own namespace, or empty for none.
pub(crate) fn config_map(flag: &str, text: &str, own: &str) -> Result<Option<ObjectKey>> {
    let text = text.trim();
    let (namespace, name) = text.split_once('/').unwrap_or((own, text));
    if !text.is_empty() && (namespace.is_empty() || name.is_empty() || name.contains('/')) {
        bail!(
            "{flag} {text:?}: say NAMESPACE/NAME of a ConfigMap, NAME for one in the operator's own namespace, or nothing for none"
        );
    }
    Ok((!text.is_empty()).then(|| ObjectKey::new(namespace, name)))
}
