//! Webhook deliveries: who sent them, and what they say about jobs.
//!
//! ```text
//! headers + raw body --signature--> authentic --form or JSON--> payload --> Event
//! ```
//!
//! Read first: [`open`].

mod delivery;
mod form;
mod payload;
mod signature;

pub use delivery::{Delivery, Event, Refusal, open, open_signed};
pub use payload::{Account, FailedStep, JobAction, Ping, Repository, WorkflowJob};
pub use signature::{Check, SecretsError, SignatureError, Signed, Verifier};
