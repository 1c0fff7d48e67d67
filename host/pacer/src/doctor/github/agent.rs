//! Whether the agents in runner images are recent enough for GitHub.

use std::collections::BTreeMap;

use pacer_core::scope::Scope;
use pacer_github::AgentVersion;

use super::Reached;
use crate::doctor::Checked;
use crate::doctor::finding::{Finding, Severity};
use crate::doctor::fleet::Fleet;

/// `default` is the image of fleets that name none.
pub(super) async fn check(reached: &[Reached<'_>], default: &str) -> Checked {
    let (mut findings, mut unknown) = (Vec::new(), false);
    for Reached { github, fleets } in reached {
        // The same for all scopes of an instance; the first answer is enough.
        let mut newest: BTreeMap<&str, Option<AgentVersion>> = BTreeMap::new();
        for fleet in fleets {
            let image = image_of(fleet).unwrap_or_else(|| default.to_owned());
            let Some(version) = AgentVersion::find(tag(&image)) else {
                unknown = true;
                continue;
            };
            let key = kind(&fleet.scope);
            let offered = match newest.get(key) {
                Some(known) => *known,
                None => {
                    let asked = github.newest_agent(&fleet.scope).await.ok().flatten();
                    newest.insert(key, asked);
                    asked
                }
            };
            findings.extend(offered.and_then(|newest| behind(fleet, &image, version, newest)));
        }
    }
    let healthy = match unknown {
        false => "the agents in runner images are as new as what GitHub offers",
        true => "no runner image names an agent that is older than what GitHub offers; some name no version",
    };
    Checked { healthy: healthy.to_owned(), findings }
}

/// The image that the spec, or its container `runner`, names.
fn image_of(fleet: &Fleet) -> Option<String> {
    let template = fleet.target.template(&[]);
    let containers = template.spec.pod.containers.clone().unwrap_or_default();
    let of_container = containers.into_iter().find(|container| container.name == "runner").and_then(|container| container.image);
    of_container.filter(|image| !image.is_empty()).or_else(|| fleet.target.config().image().map(str::to_owned))
}

/// What comes behind the name: a registry may have a port.
fn tag(image: &str) -> &str {
    let last = image.rsplit('/').next().unwrap_or_default();
    let named = last.split('@').next().unwrap_or_default();
    named.split_once(':').map_or("", |(_, tag)| tag)
}

fn kind(scope: &Scope) -> &'static str {
    match scope {
        Scope::Repository { .. } => "repository",
        Scope::Organization(_) => "organization",
        Scope::Enterprise(_) => "enterprise",
    }
}

/// A finding where more than corrections lie between the two.
fn behind(fleet: &Fleet, image: &str, version: AgentVersion, newest: AgentVersion) -> Option<Finding> {
    let is_behind = (version.major, version.minor) < (newest.major, newest.minor);
    is_behind.then(|| Finding {
        severity: Severity::Warning,
        object: fleet.title.clone(),
        what: format!("image {image} has agent {version}, and GitHub offers {newest}"),
        why: "GitHub gives no jobs to an agent for which there has been a newer one for thirty days".to_owned(),
        cure: "name an image with a newer agent in `image`, or in the operator's --runner-image".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_is_found_behind_ports_and_before_digests() {
        for (image, expected) in [
            ("summerwind/actions-runner:v2.330.0-ubuntu-22.04", "v2.330.0-ubuntu-22.04"),
            ("registry.local:5000/runner:2.330.0@sha256:00", "2.330.0"),
            ("registry.local:5000/runner", ""),
            ("runner@sha256:00", ""),
        ] {
            assert_eq!(tag(image), expected, "{image}");
        }
    }
}
