//! One delivery: from headers and raw body to an event.

use std::borrow::Cow;

use http::{HeaderMap, StatusCode, header};

use super::form;
use super::payload::{self, Ping, WorkflowJob};
use super::signature::{SignatureError, Signed, Verifier};
use crate::json::Misread;

/// Longest text that is taken over from a header.
const HEADER_LIMIT: usize = 100;

/// A delivery whose sender is known, as far as secrets are given, and whose payload could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The event's identity, which all its deliveries share (`X-GitHub-Delivery`); empty where the sender gives none.
    pub guid: String,
    /// Id of the webhook (`X-GitHub-Hook-ID`); empty where the sender gives none.
    pub hook: String,
    /// The event that is delivered.
    pub event: Event,
}

/// What a delivery tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A webhook was made, or somebody tries it.
    Ping(Ping),
    /// Something happened to a job.
    WorkflowJob(Box<WorkflowJob>),
    /// Another event, by its name. Its payload is not read.
    Other(String),
}

/// Why a delivery is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The header that names the event is missing.
    #[error("the header X-GitHub-Event is missing: this address takes webhooks of GitHub only")]
    NoEvent,
    /// A content type that GitHub does not send.
    #[error("content type {0:?} is neither application/json nor application/x-www-form-urlencoded")]
    ContentType(String),
    /// The sender is not known.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// A form without the field that holds the JSON.
    #[error("the form has no field named payload")]
    NoPayload,
    /// The JSON does not say what it must.
    #[error("the payload of the event {event} could not be read: {source}")]
    Payload {
        /// Name of the event.
        event: &'static str,
        /// Why the payload could not be read.
        source: Misread,
    },
}

impl Refusal {
    /// The HTTP status that says so.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoEvent => StatusCode::BAD_REQUEST,
            Self::ContentType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Signature(_) => StatusCode::UNAUTHORIZED,
            Self::NoPayload | Self::Payload { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}

/// Checks who sent a delivery and reads it. Header names are case-insensitive; a missing content type counts as JSON.
///
/// # Errors
///
/// When the signature is missing or wrong, or the delivery has not the form that GitHub gives it.
pub fn open(verifier: &Verifier, headers: &HeaderMap, body: &[u8]) -> Result<Delivery, Refusal> {
    let mut check = verifier.begin(headers)?;
    check.update(body);
    open_signed(check.finish()?, headers, body)
}

/// Reads a delivery whose sender was checked while it arrived, as [`open`] does.
///
/// # Errors
///
/// When the delivery has not the form that GitHub gives it.
pub fn open_signed(_signed: Signed, headers: &HeaderMap, body: &[u8]) -> Result<Delivery, Refusal> {
    let name = text(headers, "x-github-event");
    let is_form = is_form(headers)?;
    let json = || -> Result<Cow<'_, [u8]>, Refusal> {
        if is_form { form::field(body, "payload").ok_or(Refusal::NoPayload) } else { Ok(Cow::Borrowed(body)) }
    };
    let event = match name.as_str() {
        "" => return Err(Refusal::NoEvent),
        "ping" => Event::Ping(payload::ping(&json()?).map_err(|source| Refusal::Payload { event: "ping", source })?),
        "workflow_job" => {
            let job = payload::workflow_job(&json()?).map_err(|source| Refusal::Payload { event: "workflow_job", source })?;
            Event::WorkflowJob(Box::new(job))
        }
        _ => Event::Other(name),
    };
    Ok(Delivery { guid: text(headers, "x-github-delivery"), hook: text(headers, "x-github-hook-id"), event })
}

fn is_form(headers: &HeaderMap) -> Result<bool, Refusal> {
    let given = text(headers, header::CONTENT_TYPE.as_str());
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" => Ok(false),
        "" if !headers.contains_key(header::CONTENT_TYPE) => Ok(false),
        "application/x-www-form-urlencoded" => Ok(true),
        _ => Err(Refusal::ContentType(given)),
    }
}

/// A header's text, at most [`HEADER_LIMIT`] characters of it.
fn text(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.chars().take(HEADER_LIMIT).collect()
}
