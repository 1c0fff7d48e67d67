//! What GitHub is asked about runners: registration, listing, removal.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, PoisonError};

use futures::stream::{self, StreamExt};
use http::{Method, StatusCode};
use jiff::Timestamp;
use octocrab::models::actions::SelfHostedRunnerToken;
use pacer_core::scope::Scope;
use serde::Deserialize;
use tokio::time::Instant;

use super::{JitAnswer, JitRequest, JustInTime, Listing, Page, RegistrationToken, RemoteRunner, Removal};
use crate::call::Endpoint;
use crate::client::{GitHub, body, success};
use crate::error::{Error, ErrorKind};
use crate::json;
use crate::secret::Secret;
use crate::stack::cache::Version;
use crate::stack::turn::Turn;

/// Runners per page: the most that GitHub gives.
const PER_PAGE: u64 = 100;
/// Pages of one listing that are asked for at a time.
const PAGES_AT_A_TIME: usize = 8;
/// Pages that a listing can have, however many it promises. GitHub allows 10,000 runners in a group; this is ten times as many.
const PAGES: u64 = 1_000;
/// Scopes whose last listing is kept to be compared with the next.
const REMEMBERED: usize = 1_024;

#[derive(Deserialize)]
struct WirePage {
    total_count: u64,
    runners: Vec<WireRunner>,
}

#[derive(Deserialize)]
struct WireRunner {
    id: u64,
    name: String,
    #[serde(default)]
    os: Option<String>,
    status: String,
    busy: bool,
    #[serde(default)]
    labels: Vec<WireLabel>,
}

#[derive(Deserialize)]
struct WireJit {
    runner: WireRunner,
    encoded_jit_config: String,
}

#[derive(Deserialize)]
struct WireLabel {
    name: String,
}

impl GitHub {
    /// Asks for a new registration token.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`ErrorKind`].
    pub async fn create_registration_token(&self, scope: &Scope) -> Result<RegistrationToken, Error> {
        let (answer, attempt) =
            self.send(Method::POST, Endpoint::RegistrationToken, scope, &runners("/registration-token")).await?;
        let answer = success(answer, &attempt).await?;
        let status = answer.status();
        let body = body(answer, &attempt).await?;
        let token: SelfHostedRunnerToken = json::read(&body)
            .map_err(|error| attempt.clone().misanswered(ErrorKind::Decode, status, json::without_values(&error)))?;
        let expires_at = Timestamp::from_second(token.expires_at.timestamp())
            .map_err(|error| attempt.misanswered(ErrorKind::Decode, status, error.to_string()))?;
        Ok(RegistrationToken { token: Secret::new(token.token), expires_at })
    }

    /// Registers a runner ahead of its agent. It takes one job, and is offline until the agent comes.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`ErrorKind`]. After [`ErrorKind::Server`], [`ErrorKind::Timeout`], [`ErrorKind::Network`] and
    /// [`ErrorKind::Decode`] it may be registered, and only its name tells.
    pub async fn register_just_in_time(&self, scope: &Scope, request: &JitRequest<'_>) -> Result<JitAnswer, Error> {
        let resource = runners("/generate-jitconfig");
        let (answer, attempt) = self.send_with(Method::POST, Endpoint::JitConfig, scope, &resource, request).await?;
        if answer.status() == StatusCode::CONFLICT {
            return Ok(JitAnswer::NameTaken);
        }
        let answer = success(answer, &attempt).await?;
        let status = answer.status();
        let body = body(answer, &attempt).await?;
        let made: WireJit =
            json::read(&body).map_err(|error| attempt.misanswered(ErrorKind::Decode, status, json::without_values(&error)))?;
        Ok(JitAnswer::Registered(JustInTime { id: made.runner.id, config: Secret::new(made.encoded_jit_config) }))
    }

    /// Reads all runners of a scope, pages after the first in parallel, all conditionally. Pages that did not change are not
    /// parsed again.
    ///
    /// Share listings through [`crate::runner_list`] rather than calling this for every runner.
    ///
    /// # Errors
    ///
    /// As GitHub refuses any of the pages; see [`ErrorKind`].
    pub async fn list_runners(&self, scope: &Scope) -> Result<Listing, Error> {
        let (fetched_at, started) = (Instant::now(), Timestamp::now());
        let mut pages = self.pages(scope).await?;
        let (mut asked, mut paid) = count(&pages);
        if !fit_together(&pages) {
            match self.pages(scope).await {
                Ok(again) => {
                    let more = count(&again);
                    (asked, paid) = (asked + more.0, paid + more.1);
                    pages = again;
                }
                // What is listed is true all the same.
                Err(error) if error.deferral().is_some() => {}
                Err(error) => return Err(error),
            }
        }
        let complete = fit_together(&pages);
        let (runners, changed) = self.remember(scope, pages);
        Ok(Listing { fetched_at, started, took: fetched_at.elapsed(), runners, changed, complete, pages: asked, paid })
    }

    /// Removes a runner's registration. GitHub refuses while it runs a job, which makes this the only proof that it does not.
    ///
    /// # Errors
    ///
    /// As GitHub refuses; see [`ErrorKind`]. After any error the runner must be taken to be registered, and after
    /// [`ErrorKind::Timeout`] and [`ErrorKind::Network`] it may be either.
    pub async fn remove_runner(&self, scope: &Scope, id: u64) -> Result<Removal, Error> {
        let runner = runners(&format!("/{id}"));
        let (answer, attempt) = self.send(Method::DELETE, Endpoint::RemoveRunner, scope, &runner).await?;
        let status = answer.status();
        match (status, octocrab::map_github_error(answer).await) {
            (StatusCode::NO_CONTENT, Ok(_)) => Ok(Removal::Removed),
            (_, Ok(_)) => Err(attempt.misanswered(ErrorKind::Decode, status, "expected 204; the runner may still be registered")),
            (StatusCode::UNPROCESSABLE_ENTITY, Err(octocrab::Error::GitHub { source, .. })) => {
                Ok(Removal::Busy { message: source.message.clone() })
            }
            (StatusCode::NOT_FOUND, Err(error)) => {
                let error = attempt.broken(error);
                self.prove_absence(scope, &runner, error).await
            }
            (_, Err(error)) => Err(attempt.broken(error)),
        }
    }

    /// A 404 also answers those who may not remove, or may not see, so the runner must be unseen where its siblings are seen.
    async fn prove_absence(&self, scope: &Scope, runner: &str, refusal: Error) -> Result<Removal, Error> {
        let (answer, attempt) = self.send(Method::GET, Endpoint::GetRunner, scope, runner).await?;
        match answer.status() {
            StatusCode::NOT_FOUND => {}
            status if status.is_success() => return Err(refusal),
            _ => {
                success(answer, &attempt).await?;
                return Err(refusal);
            }
        }
        self.get(Endpoint::ListRunners, scope, &runners("?per_page=1")).await?.json::<WirePage>()?;
        Ok(Removal::Absent)
    }

    /// Reads every page, or none when there is no turn for all of them.
    async fn pages(&self, scope: &Scope) -> Result<Vec<Page>, Error> {
        let expected = self.pages_before(scope);
        let turn = self.turn(Endpoint::ListRunners, scope, "actions/runners", calls(expected))?;
        let first = self.page(&turn, scope, 1).await?;
        // Instances that give fewer runners per page than asked for must not hide the others.
        let size = match first.runners.len() as u64 {
            0 => PER_PAGE,
            length if length < first.total => length,
            _ => PER_PAGE,
        };
        let last = first.total.div_ceil(size).clamp(1, PAGES);
        let more = match last.checked_sub(expected).filter(|more| *more > 0) {
            Some(more) => Some(self.turn(Endpoint::ListRunners, scope, "actions/runners?page=more", calls(more))?),
            None => None,
        };
        let turn = more.as_ref().unwrap_or(&turn);
        let mut rest = pin!(stream::iter(2..=last).map(|number| self.page(turn, scope, number)).buffered(PAGES_AT_A_TIME));
        let mut bytes = first.bytes;
        let mut pages = vec![first];
        // As long as there are any, whatever number the first one promises.
        while let Some(page) = rest.next().await {
            let page = page?;
            bytes = bytes.saturating_add(page.bytes);
            if page.runners.is_empty() {
                break;
            }
            if bytes > self.listing_bytes() {
                tracing::warn!(%scope, bytes, pages = pages.len(), "a listing of runners is too large; the rest of it is not read");
                break;
            }
            pages.push(page);
        }
        Ok(pages)
    }

    /// Pages of the last listing; one when there was none.
    fn pages_before(&self, scope: &Scope) -> u64 {
        let memory = self.runners_memory().lock().unwrap_or_else(PoisonError::into_inner);
        memory.get(scope).map_or(1, |last| last.pages.len() as u64).max(1)
    }

    async fn page(&self, turn: &Turn, scope: &Scope, number: u64) -> Result<Page, Error> {
        let suffix = match number {
            1 => format!("?per_page={PER_PAGE}"),
            _ => format!("?per_page={PER_PAGE}&page={number}"),
        };
        let read = self.get_in_turn(turn, Endpoint::ListRunners, scope, &runners(&suffix)).await?;
        let (version, paid, bytes) = (read.version, read.paid, read.len());
        if let Some(known) = version.and_then(|version| self.recall(scope, number, version)) {
            return Ok(Page { paid, ..known });
        }
        let page: WirePage = read.json()?;
        if page.runners.len() as u64 > PER_PAGE {
            return Err(read.absurd("a page has more runners than were asked for"));
        }
        let room = read.room(bytes)?;
        let (total, runners) = parse(page);
        Ok(Page { version, total, runners, paid, bytes, _room: room })
    }

    fn recall(&self, scope: &Scope, number: u64, version: Version) -> Option<Page> {
        let memory = self.runners_memory().lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        memory.get(scope)?.pages.get(index).filter(|page| page.version == Some(version)).cloned()
    }

    /// Keeps the pages for the next listing; gives all their runners and whether these are new.
    fn remember(&self, scope: &Scope, pages: Vec<Page>) -> (Arc<[RemoteRunner]>, bool) {
        let mut memory = self.runners_memory().lock().unwrap_or_else(PoisonError::into_inner);
        if memory.len() >= REMEMBERED && !memory.contains_key(scope) {
            memory.clear();
        }
        let last = memory.entry(scope.clone()).or_default();
        let same = last.pages.len() == pages.len()
            && last.pages.iter().zip(&pages).all(|(old, new)| Arc::ptr_eq(&old.runners, &new.runners));
        if let (true, Some(runners)) = (same, &last.runners) {
            return (Arc::clone(runners), false);
        }
        let runners: Arc<[RemoteRunner]> = match pages.as_slice() {
            [only] => Arc::clone(&only.runners),
            pages => {
                let mut seen = HashSet::new();
                let all = pages.iter().flat_map(|page| page.runners.iter());
                all.filter(|runner| seen.insert(runner.id)).cloned().collect()
            }
        };
        last.pages = pages;
        if let Some(old) = last.runners.as_ref().filter(|old| **old == runners) {
            return (Arc::clone(old), false);
        }
        last.runners = Some(Arc::clone(&runners));
        (runners, true)
    }
}

fn calls(pages: u64) -> u32 {
    u32::try_from(pages).unwrap_or(u32::MAX)
}

/// Pages asked for and pages paid for.
fn count(pages: &[Page]) -> (u32, u32) {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    (number(pages.len()), number(pages.iter().filter(|page| page.paid).count()))
}

fn fit_together(pages: &[Page]) -> bool {
    let Some(total) = pages.first().map(|page| page.total) else { return false };
    let ids: HashSet<u64> = pages.iter().flat_map(|page| page.runners.iter().map(|runner| runner.id)).collect();
    ids.len() as u64 == total && pages.iter().all(|page| page.total == total)
}

/// The path below a scope of its runners, and of what follows.
fn runners(suffix: &str) -> String {
    format!("actions/runners{suffix}")
}

fn parse(page: WirePage) -> (u64, Arc<[RemoteRunner]>) {
    // Neighbours mostly belong to one pool and share their labels.
    let mut last: Arc<[String]> = Arc::default();
    let runners = page.runners.into_iter().map(|wire| {
        let labels = wire.labels.into_iter().map(|label| label.name);
        let labels: Arc<[String]> = labels.collect();
        if *labels != *last {
            last = labels;
        }
        RemoteRunner {
            id: wire.id,
            name: wire.name.into(),
            online: wire.status == "online",
            busy: wire.busy,
            labels: Arc::clone(&last),
            os: wire.os.unwrap_or_default().into(),
        }
    });
    (page.total_count, runners.collect())
}
