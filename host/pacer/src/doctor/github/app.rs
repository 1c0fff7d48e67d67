//! Where GitHub Apps are installed.

use std::collections::BTreeSet;

use pacer_api::names::annotation;
use pacer_core::scope::Scope;
use pacer_github::{AppInstallation, CredentialKind};

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
        let silent = installations.iter().filter(|one| !one.suspended && !one.writes_checks);
        findings.extend(silent.filter_map(|one| unreported(one, fleets)));
    }
    let healthy = match places.is_empty() {
        true => "no credentials are those of a GitHub App".to_owned(),
        false => format!("GitHub Apps are installed in {}", places.into_iter().collect::<Vec<_>>().join(", ")),
    };
    Checked { healthy, findings }
}

/// Fleets whose autoscalers report jobs that wait where the App may not write check runs.
fn unreported(installation: &AppInstallation, fleets: &[&Fleet]) -> Option<Finding> {
    let is_there = |fleet: &&&Fleet| match &fleet.scope {
        Scope::Repository { owner: login, .. } | Scope::Organization(login) => login.eq_ignore_ascii_case(&installation.account),
        Scope::Enterprise(_) => false,
    };
    let asking: Vec<&Fleet> = fleets.iter().filter(is_there).copied().filter(|fleet| fleet.reports_jobs).collect();
    (!asking.is_empty()).then(|| Finding {
        severity: Severity::Warning,
        object: names(&asking),
        what: format!(
            "the GitHub App's installation in {} may not write check runs, and an annotation asks for reports of jobs that wait",
            installation.account
        ),
        why: "nobody sees at GitHub why jobs wait".to_owned(),
        cure: format!(
            "give the App the repository permission \"Checks: read and write\" and have an owner accept it at {}, or remove the annotation \
             {} of the autoscaler",
            installation.page,
            annotation::REPORT_WAITING
        ),
    })
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
