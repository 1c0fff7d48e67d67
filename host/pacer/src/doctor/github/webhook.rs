//! The webhook at GitHub: whether one sends to our address, sends the events of jobs, and is taken.

use pacer_core::redelivery::same_address;
use pacer_core::scope::Scope;
use pacer_github::{CredentialKind, Error, GitHub, HookOwner, RemoteDelivery, Repository, Webhook};

use super::{Reached, names};
use crate::doctor::Checked;
use crate::doctor::finding::{Finding, Severity};
use crate::doctor::fleet::Fleet;

/// The event that tells of jobs.
const EVENT: &str = "workflow_job";

/// A webhook that sends to one of our addresses.
#[derive(Debug)]
struct Ours {
    /// What messages call it; never its address, which may hold a password.
    title: String,
    active: bool,
    /// None where GitHub does not say, as of an App's own.
    events: Option<Vec<String>>,
    webhook: Webhook,
}

pub(super) async fn check(reached: &[Reached<'_>], urls: &[String]) -> Checked {
    let healthy = |text: &str| Checked { healthy: text.to_owned(), findings: Vec::new() };
    let hearing: Vec<&Fleet> =
        reached.iter().flat_map(|one| one.fleets.iter().copied()).filter(|fleet| fleet.has_trigger).collect();
    if hearing.is_empty() {
        return healthy("no autoscaler is told of jobs by webhooks");
    }
    if urls.is_empty() {
        return healthy("the webhook at GitHub is not looked at: the operator's --webhook-url does not say its address");
    }
    let (mut findings, mut found, mut unseen) = (Vec::new(), false, false);
    for Reached { github, fleets } in reached {
        let mut seen: Vec<Webhook> = Vec::new();
        for place in places(github, fleets) {
            let Ok(ours) = of_place(github, &place, urls).await else {
                unseen = true;
                continue;
            };
            for one in ours {
                found = true;
                if seen.contains(&one.webhook) {
                    continue;
                }
                // The newest page: what was refused before that is cured by now, or was asked for again.
                let deliveries = github.deliveries(&one.webhook, None).await.map(|page| page.deliveries).unwrap_or_default();
                findings.extend(judge(&one, &deliveries));
                seen.push(one.webhook);
            }
        }
    }
    if !found && unseen {
        return healthy("the webhook at GitHub is not looked at: it takes the permission \"Webhooks: read\" where it is");
    }
    if !found {
        findings.push(Finding {
            severity: Severity::Problem,
            object: "GitHub".to_owned(),
            what: "no webhook that these credentials see sends to --webhook-url".to_owned(),
            why: format!("nothing tells of jobs when they are queued: {}", names(&hearing)),
            cure: format!("add a webhook with that URL, the event \"Workflow jobs\" ({EVENT}) and the operator's secret, or correct the flag; docs/install.md#webhooks"),
        });
    }
    Checked { healthy: "GitHub's webhook sends to the operator, which takes its events".to_owned(), findings }
}

/// Where webhooks may be: the App's own, and those of scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    App,
    Owner(HookOwner),
}

fn places(github: &GitHub, fleets: &[&Fleet]) -> Vec<Place> {
    let mut places = Vec::new();
    let mut add = |place: Place| {
        if !places.contains(&place) {
            places.push(place);
        }
    };
    for fleet in fleets.iter().filter(|fleet| fleet.has_trigger) {
        if github.credentials() == CredentialKind::App {
            add(Place::App);
        }
        match &fleet.scope {
            Scope::Repository { owner, name } => {
                add(Place::Owner(HookOwner::Repository(Repository::new(owner, name))));
                add(Place::Owner(HookOwner::Organization(owner.clone())));
            }
            Scope::Organization(login) => add(Place::Owner(HookOwner::Organization(login.clone()))),
            Scope::Enterprise(_) => {}
        }
    }
    places
}

/// Those in a place that send to one of our addresses.
async fn of_place(github: &GitHub, place: &Place, urls: &[String]) -> Result<Vec<Ours>, Error> {
    let is_ours = |url: &str| urls.iter().any(|ours| same_address(ours, url));
    match place {
        Place::App => {
            let url = github.app_hook_url().await?;
            let ours = url.filter(|url| is_ours(url)).map(|_| Ours {
                title: "Webhook of the GitHub App".to_owned(),
                active: true,
                events: None,
                webhook: Webhook::App,
            });
            Ok(ours.into_iter().collect())
        }
        Place::Owner(owner) => {
            let name = match owner {
                HookOwner::Repository(repository) => repository.scope().to_string(),
                HookOwner::Organization(login) => Scope::Organization(login.clone()).to_string(),
            };
            let hooks = github.hooks(owner).await?.into_iter().filter(|hook| hook.url.as_deref().is_some_and(is_ours));
            Ok(hooks
                .map(|hook| Ours {
                    title: format!("Webhook {} of {name}", hook.id),
                    active: hook.active,
                    events: Some(hook.events),
                    webhook: Webhook::Of { owner: owner.clone(), hook: hook.id },
                })
                .collect())
        }
    }
}

/// What is wrong with a webhook whose newest deliveries these are, the newest first.
fn judge(ours: &Ours, deliveries: &[RemoteDelivery]) -> Option<Finding> {
    let finding = |what: String, cure: &str| {
        let why =
            "nothing tells of jobs when they are queued; polling finds them later, if the autoscaler has a metric".to_owned();
        Some(Finding { severity: Severity::Problem, object: ours.title.clone(), what, why, cure: cure.to_owned() })
    };
    if !ours.active {
        return finding("is switched off".to_owned(), "tick \"Active\" in its settings at GitHub");
    }
    if ours.events.as_ref().is_some_and(|events| !events.iter().any(|event| event == EVENT || event == "*")) {
        return finding(format!("does not send the event {EVENT}"), "tick \"Workflow jobs\" in its settings at GitHub");
    }
    let newest = deliveries.iter().find(|delivery| delivery.event == EVENT)?;
    match newest.status_code {
        _ if newest.succeeded() => None,
        code @ (401 | 403) => finding(
            format!("its newest event, of {}, was refused with {code}: the secrets differ", newest.delivered_at),
            "give the webhook and the operator the same secret (GITHUB_WEBHOOK_SECRET_TOKEN), and restart the operator",
        ),
        0 => finding(
            format!("its newest event, of {}, reached nobody", newest.delivered_at),
            "let its URL lead to the Service of the webhook server from outside, with a certificate that GitHub trusts",
        ),
        code => finding(
            format!("its newest event, of {}, was answered with {code}", newest.delivered_at),
            "see what answers at that URL: the log of the webhook server, and of what is in front of it, says why",
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn delivery(event: &str, status: u16) -> RemoteDelivery {
        let json = json!({"id": 1, "guid": "g", "delivered_at": "2026-01-01T00:00:00Z", "event": event, "status_code": status});
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn webhook_is_judged_by_its_settings_and_by_its_newest_event_about_jobs() {
        let ours = |active, events: Option<&[&str]>| Ours {
            title: "Webhook 1 of organization acme".to_owned(),
            active,
            events: events.map(|events| events.iter().map(|&event| event.to_owned()).collect()),
            webhook: Webhook::App,
        };
        let what = |ours: &Ours, deliveries: &[RemoteDelivery]| judge(ours, deliveries).map(|finding| finding.what);
        let good = ours(true, Some(&["push", "workflow_job"]));
        assert_eq!(what(&good, &[]), None);
        assert_eq!(what(&good, &[delivery("workflow_job", 200), delivery("workflow_job", 401)]), None);
        assert_eq!(what(&good, &[delivery("ping", 500)]), None, "other events are nobody's here");
        assert_eq!(what(&ours(false, None), &[]).unwrap(), "is switched off");
        assert_eq!(what(&ours(true, Some(&["push"])), &[]).unwrap(), "does not send the event workflow_job");
        assert_eq!(what(&ours(true, Some(&["*"])), &[]), None);
        for (status, words) in [(401, "the secrets differ"), (0, "reached nobody"), (502, "answered with 502")] {
            let said = what(&ours(true, None), &[delivery("ping", 200), delivery("workflow_job", status)]).unwrap();
            assert!(said.contains(words), "{status}: {said}");
        }
    }
}
