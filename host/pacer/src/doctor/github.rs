//! Whether GitHub accepts the operator's credentials for every place where its fleets register runners, and how much budget is left.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use kube::ResourceExt as _;
use pacer_api::{RunnerDeployment, RunnerSet};
use pacer_core::scope::Scope;
use pacer_github::{Error, ErrorKind, GitHub};

use super::Checked;
use super::finding::{Finding, Severity};
use super::installation::Installation;
use crate::default_github;
use crate::reader::Reader;

/// The part of the hourly budget below which it is worth saying.
const LOW: u32 = 10;

/// Most scopes that are asked about; each costs a call.
const SCOPES: usize = 100;

pub(super) async fn check(reader: &mut Reader, installation: &Installation) -> Result<Checked> {
    let healthy = "GitHub accepts the operator's credentials for every fleet that uses them".to_owned();
    let done = |findings| Ok(Checked { healthy: healthy.clone(), findings });
    let arguments = match installation.arguments(reader).await {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return done(Vec::new()),
        Err(error) => {
            reader.unread.push(format!("the operator's credentials (--no-github leaves them out): {error:#}"));
            return done(Vec::new());
        }
    };
    if let Some(file) = arguments.github.github_ca_file.as_ref().filter(|file| !file.exists()) {
        let file = file.display();
        reader.unread.push(format!(
            "GitHub: the operator trusts the authorities in {file} of its pod, and there is no such file here; copy it, or give --no-github"
        ));
        return done(Vec::new());
    }
    let scopes = scopes(reader).await;
    let namespace = &installation.namespace;
    let object = format!("Namespace {namespace}");
    let github = match default_github::client(&arguments.github) {
        Ok(Some(github)) => github,
        Ok(None) if scopes.is_empty() => return done(Vec::new()),
        Ok(None) => {
            return done(vec![Finding {
                severity: Severity::Problem,
                object,
                what: "the operator has no GitHub credentials".to_owned(),
                why: format!("fleets without githubAPICredentialsFrom cannot register runners: {}", names(&scopes)),
                cure: format!(
                    "kubectl create secret generic controller-manager --namespace={namespace} --from-literal=github_token=TOKEN; \
                     kubectl rollout restart deployment --namespace={namespace}"
                ),
            }]);
        }
        Err(error) => {
            return done(vec![Finding {
                severity: Severity::Problem,
                object,
                what: format!("the operator's GitHub credentials make no sense: {error:#}"),
                why: "the operator does not start with them".to_owned(),
                cure: format!("correct the Secret that the operator's Deployment in {namespace} names, then restart it"),
            }]);
        }
    };
    let mut findings = Vec::new();
    for (scope, fleets) in scopes.iter().take(SCOPES) {
        if let Err(error) = github.list_runners(scope).await {
            findings.push(refused(scope, fleets, &error));
        }
    }
    if scopes.len() > SCOPES {
        reader.unread.push(format!("{} of {} scopes at GitHub", scopes.len() - SCOPES, scopes.len()));
    }
    findings.extend(low(&github));
    done(findings)
}

/// Where fleets without credentials of their own register runners, and which fleets.
async fn scopes(reader: &mut Reader) -> BTreeMap<Scope, BTreeSet<String>> {
    let mut scopes: BTreeMap<Scope, BTreeSet<String>> = BTreeMap::new();
    for one in reader.namespaced::<RunnerDeployment>("").await {
        let config = &one.spec.template.spec.config;
        if let (None, Ok(scope)) = (config.credentials_secret(), config.scope()) {
            scopes.entry(scope).or_default().insert(format!(
                "RunnerDeployment {}/{}",
                one.namespace().unwrap_or_default(),
                one.name_any()
            ));
        }
    }
    for one in reader.namespaced::<RunnerSet>("").await {
        let config = &one.spec.config;
        if let (None, Ok(scope)) = (config.credentials_secret(), config.scope()) {
            scopes.entry(scope).or_default().insert(format!(
                "RunnerSet {}/{}",
                one.namespace().unwrap_or_default(),
                one.name_any()
            ));
        }
    }
    scopes
}

fn names(scopes: &BTreeMap<Scope, BTreeSet<String>>) -> String {
    scopes.values().flatten().cloned().collect::<Vec<_>>().join(", ")
}

fn refused(scope: &Scope, fleets: &BTreeSet<String>, error: &Error) -> Finding {
    let limited = matches!(error.kind(), ErrorKind::RateLimited { .. });
    Finding {
        severity: if limited { Severity::Warning } else { Severity::Problem },
        object: fleets.iter().cloned().collect::<Vec<_>>().join(", "),
        what: format!("the runners of {scope} cannot be listed: {error:#}"),
        why: "without a listing idle runners are not removed, and without the right no runner registers".to_owned(),
        cure: error.advice(),
    }
}

fn low(github: &GitHub) -> Vec<Finding> {
    let low = github.budgets().into_iter().filter(|budget| budget.remaining < budget.limit / LOW);
    low.map(|budget| Finding {
        severity: Severity::Warning,
        object: format!("GitHub, {} calls{}", budget.resource.name(), budget.owner.map(|owner| format!(" of {owner}")).unwrap_or_default()),
        what: format!("{} of {} calls of this hour are left", budget.remaining, budget.limit),
        why: format!("with none left, runners do not register until {}", budget.resets_at),
        cure: "use a GitHub App, whose budget grows with the organization, webhooks in place of polling, or credentials for each team".to_owned(),
    })
    .collect()
}
