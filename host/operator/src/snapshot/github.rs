//! How GitHub is.

use std::collections::BTreeMap;
use std::sync::Arc;

use pacer_github::{CredentialKind, GitHub};

use super::{Budget, Credentials, Listing, Section};
use crate::access::{Accesses, ScopeListing};

/// Longest error that is told, in characters.
const ERROR: usize = 300;

/// Budgets and calls of all credentials, and how the runners of each scope are listed.
pub(super) fn health(accesses: &Accesses, own: Option<&GitHub>) -> (Section<Credentials>, Section<Listing>) {
    let all = accesses.listings();
    let of_objects = all.iter().map(|one| (one.credentials.to_string(), &one.github));
    let credentials: BTreeMap<String, &GitHub> =
        own.map(|own| ("default".to_owned(), own)).into_iter().chain(of_objects).collect();
    let credentials = credentials.into_iter().map(|(name, github)| (name.clone(), Arc::new(account(name, github)))).collect();
    let listings = all.iter().map(|one| {
        let listing = listing(one);
        (format!("{}/{}", listing.credentials, listing.scope), Arc::new(listing))
    });
    (credentials, listings.collect())
}

fn account(name: String, github: &GitHub) -> Credentials {
    let budgets = github.budgets().into_iter().map(|budget| Budget {
        resource: budget.resource.name().to_owned(),
        owner: budget.owner,
        limit: budget.limit,
        remaining: budget.remaining,
        resets_at: budget.resets_at,
    });
    let mut calls = BTreeMap::new();
    for count in github.calls() {
        let sum: &mut u64 = calls.entry(count.outcome.name().to_owned()).or_default();
        *sum = sum.saturating_add(count.calls);
    }
    let kind = match github.credentials() {
        CredentialKind::Token => "token",
        CredentialKind::App => "app",
        CredentialKind::Basic => "basic",
    };
    let (secondary_until, held_back) = (github.secondary_limit(), github.held_back());
    Credentials { name, kind: kind.to_owned(), budgets: budgets.collect(), secondary_until, held_back, calls }
}

fn listing(one: &ScopeListing) -> Listing {
    let listed = one.view.as_ref().map(|view| view.listing());
    let error = one.health.error.as_ref().map(|error| format!("{error:#}").chars().take(ERROR).collect());
    Listing {
        credentials: one.credentials.to_string(),
        scope: one.scope.to_string(),
        at: listed.map(|listing| listing.started),
        runners: listed.map_or(0, |listing| listing.runners.len()),
        failures: one.health.failures,
        error,
    }
}
