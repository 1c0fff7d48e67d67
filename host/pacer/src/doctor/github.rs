//! GitHub, as the credentials of the operator and of tenants see it: who is accepted where, runner groups, webhooks, how long the budget
//! lasts, the clock.

mod account;
mod agent;
mod app;
mod budget;
mod clock;
mod group;
mod webhook;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use pacer_core::scope::Scope;
use pacer_github::{Error, ErrorKind, GitHub};

use self::account::{Holder, Usable};
use super::Checked;
use super::finding::{Finding, Severity};
use super::fleet::Fleet;
use super::installation::Installation;
use super::tenancy::CredentialsNamespaces;
use crate::plain;
use crate::reader::Reader;

/// Most scopes that are asked about; each costs a call.
const SCOPES: usize = 100;

/// One holder's client and its fleets at scopes where GitHub accepts it.
struct Reached<'a> {
    github: GitHub,
    fleets: Vec<&'a Fleet>,
}

pub(super) async fn check(
    reader: &mut Reader,
    installation: &Installation,
    fleets: &[Fleet],
    places: &CredentialsNamespaces,
) -> Result<Vec<Checked>> {
    let accepted = |findings| Checked { healthy: "GitHub accepts the credentials of every fleet".to_owned(), findings };
    let arguments = match installation.arguments(reader).await {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return Ok(vec![accepted(Vec::new())]),
        Err(error) => {
            let causes = plain::causes(&error);
            reader.unread.push(format!("the operator's credentials (--no-github leaves them out): {causes}"));
            return Ok(vec![accepted(Vec::new())]);
        }
    };
    if let Some(file) = arguments.github.github_ca_file.as_ref().filter(|file| !file.exists()) {
        let file = file.display();
        reader.unread.push(format!(
            "GitHub: the operator trusts the authorities in {file} of its pod, and there is no such file here; copy it, or give --no-github"
        ));
        return Ok(vec![accepted(Vec::new())]);
    }
    let mut holders: BTreeMap<Holder, Vec<&Fleet>> = BTreeMap::from([(Holder::Operator, Vec::new())]);
    for fleet in fleets {
        holders.entry(Holder::of(fleet, places)).or_default().push(fleet);
    }
    let (mut findings, mut reached, mut asked) = (Vec::new(), Vec::new(), 0_usize);
    for (holder, fleets) in holders {
        let github = match account::client(reader, &holder, &fleets, &arguments.github, &installation.namespace).await {
            Usable::Client(github) => github,
            Usable::Nothing => continue,
            Usable::Broken(finding) => {
                findings.push(*finding);
                continue;
            }
        };
        let mut scopes: BTreeMap<&Scope, Vec<&Fleet>> = BTreeMap::new();
        for fleet in fleets {
            scopes.entry(&fleet.scope).or_default().push(fleet);
        }
        let mut accepted = Vec::new();
        for (scope, fleets) in scopes {
            if asked >= SCOPES {
                reader.unread.push(format!("{scope} at GitHub: no more than {SCOPES} scopes are asked about"));
                continue;
            }
            asked += 1;
            match github.list_runners(scope).await {
                Ok(_) => accepted.extend(fleets),
                Err(error) => findings.push(refused(scope, &fleets, &holder, &error)),
            }
        }
        reached.push(Reached { github, fleets: accepted });
    }
    Ok(vec![
        accepted(findings),
        app::check(&reached).await,
        group::check(reader, &reached).await,
        webhook::check(&reached, &arguments.redelivery.webhook_url).await,
        agent::check(&reached, &arguments.pods.runner_image).await,
        budget::check(&reached),
        clock::check(&reached),
    ])
}

/// Names of fleets, each once.
fn names(fleets: &[&Fleet]) -> String {
    fleets.iter().map(|fleet| fleet.title.as_str()).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
}

fn refused(scope: &Scope, fleets: &[&Fleet], holder: &Holder, error: &Error) -> Finding {
    let limited = matches!(error.kind(), ErrorKind::RateLimited { .. });
    Finding {
        severity: if limited { Severity::Warning } else { Severity::Problem },
        object: names(fleets),
        what: format!("the runners of {scope} cannot be listed with {holder}: {}", error.without_advice()),
        why: "without a listing idle runners are not removed, and without the right no runner registers".to_owned(),
        cure: error.advice(),
    }
}

#[cfg(test)]
mod tests {
    use pacer_github::{ClientOptions, Credentials, Endpoints};
    use tower::util::BoxCloneSyncService;

    use super::*;

    #[tokio::test]
    async fn cure_of_a_refusal_is_told_once() {
        let transport = BoxCloneSyncService::new(tower::service_fn(|_: http::Request<_>| async {
            let answer = http::Response::builder().status(401).body(br#"{"message": "Bad credentials"}"#.to_vec().into());
            Ok::<_, tower::BoxError>(answer?)
        }));
        let (credentials, endpoints) = (Credentials::Token("x".into()), Endpoints::default());
        let github = GitHub::with_transport(credentials, endpoints, &ClientOptions::default(), transport).unwrap();
        let scope = Scope::Organization("acme".to_owned());
        let error = github.list_runners(&scope).await.err().unwrap();
        let Finding { what, cure, .. } = refused(&scope, &[], &Holder::Operator, &error);
        assert!(what.contains("answered 401") && !what.contains(&cure) && !what.ends_with("; "), "{what}");
        assert_eq!(cure, error.advice());
    }
}
