//! Where GitHub Apps are installed.

use std::collections::{BTreeMap, BTreeSet};

use pacer_api::names::annotation;
use pacer_core::scope::Scope;
use pacer_github::{AppInstallation, AppPermission, CredentialKind};

use super::{Reached, names};
use crate::doctor::Checked;
use crate::doctor::finding::{Finding, Severity};
use crate::doctor::fleet::Fleet;

pub(super) async fn check(reached: &[Reached<'_>]) -> Checked {
    let (mut places, mut findings) = (BTreeSet::new(), Vec::new());
    for Reached { github, fleets } in reached.iter().filter(|one| one.github.credentials() == CredentialKind::App) {
        // What is refused here is refused to every fleet of these credentials, and told there.
        let Ok(installations) = github.installations().await else { continue };
        places.extend(installations.iter().map(|one| {
            let which = if one.all_repositories { "all repositories" } else { "selected repositories" };
            format!("{} ({which})", one.account)
        }));
        findings.extend(installations.iter().filter(|one| one.suspended).map(suspended));
        for installation in installations.iter().filter(|one| !one.suspended) {
            let there: Vec<&Fleet> = fleets.iter().copied().filter(|fleet| is_in(installation, &fleet.scope)).collect();
            findings.extend(unreported(installation, &there));
            findings.extend(unregistered(installation, &there));
        }
    }
    let healthy = match places.is_empty() {
        true => "no credentials are those of a GitHub App".to_owned(),
        false => format!("GitHub Apps are installed in {}", places.into_iter().collect::<Vec<_>>().join(", ")),
    };
    Checked { healthy, findings }
}

/// Whether runners of this scope register by this installation.
fn is_in(installation: &AppInstallation, scope: &Scope) -> bool {
    match scope {
        Scope::Repository { owner: login, .. } | Scope::Organization(login) => login.eq_ignore_ascii_case(&installation.account),
        Scope::Enterprise(_) => false,
    }
}

/// Fleets whose autoscalers report jobs that wait where the App may not write check runs.
fn unreported(installation: &AppInstallation, fleets: &[&Fleet]) -> Option<Finding> {
    let asking: Vec<&Fleet> = fleets.iter().copied().filter(|fleet| fleet.reports_jobs).collect();
    let forbidden = !asking.is_empty() && !installation.writes.contains(&AppPermission::Checks);
    forbidden.then(|| Finding {
        severity: Severity::Warning,
        object: names(&asking),
        what: format!(
            "the GitHub App's installation in {} may not write check runs, and an annotation asks for reports of jobs that wait",
            installation.account
        ),
        why: "nobody sees at GitHub why jobs wait".to_owned(),
        cure: format!(
            "{}, or remove the annotation {} of the autoscaler",
            give(AppPermission::Checks, installation),
            annotation::REPORT_WAITING
        ),
    })
}

/// Fleets whose runners the App may list and not register.
fn unregistered(installation: &AppInstallation, fleets: &[&Fleet]) -> Vec<Finding> {
    let mut without: BTreeMap<AppPermission, Vec<&Fleet>> = BTreeMap::new();
    for fleet in fleets {
        let takes = match fleet.scope {
            Scope::Repository { .. } => AppPermission::Administration,
            Scope::Organization(_) => AppPermission::SelfHostedRunners,
            Scope::Enterprise(_) => continue,
        };
        if !installation.writes.contains(&takes) {
            without.entry(takes).or_default().push(fleet);
        }
    }
    let finding = |(takes, fleets): (AppPermission, Vec<&Fleet>)| Finding {
        severity: Severity::Problem,
        object: names(&fleets),
        what: format!("the GitHub App's installation in {} may list their runners and not register any", installation.account),
        why: "GitHub refuses registration tokens with 403, so that no runner starts".to_owned(),
        cure: give(takes, installation),
    };
    without.into_iter().map(finding).collect()
}

/// How an installation gets a permission.
fn give(permission: AppPermission, installation: &AppInstallation) -> String {
    format!("give the App {permission} and have an owner accept it at {}", installation.page)
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
