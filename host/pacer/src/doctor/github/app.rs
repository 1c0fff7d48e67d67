//! Where GitHub Apps are installed.

use std::collections::BTreeSet;

use pacer_github::{AppInstallation, CredentialKind};

use super::Reached;
use crate::doctor::Checked;
use crate::doctor::finding::{Finding, Severity};

pub(super) async fn check(reached: &[Reached<'_>]) -> Checked {
    let (mut places, mut findings) = (BTreeSet::new(), Vec::new());
    for Reached { github, .. } in reached.iter().filter(|one| one.github.credentials() == CredentialKind::App) {
        // What is refused here is refused to every fleet of these credentials, and told there.
        let Ok(installations) = github.installations().await else { continue };
        places.extend(installations.iter().map(|one| {
            let which = if one.all_repositories { "all repositories" } else { "selected repositories" };
            format!("{} ({which})", one.account)
        }));
        findings.extend(installations.iter().filter(|one| one.suspended).map(suspended));
    }
    let healthy = match places.is_empty() {
        true => "no credentials are those of a GitHub App".to_owned(),
        false => format!("GitHub Apps are installed in {}", places.into_iter().collect::<Vec<_>>().join(", ")),
    };
    Checked { healthy, findings }
}

fn suspended(installation: &AppInstallation) -> Finding {
    Finding {
        severity: Severity::Problem,
        object: format!("Installation {} of the GitHub App", installation.id),
        what: format!("in {} is suspended", installation.account),
        why: "runners cannot register there".to_owned(),
        cure: format!("an owner of {} unsuspends it at {}", installation.account, installation.page),
    }
}
