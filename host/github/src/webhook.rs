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

pub use delivery::{Delivery, Event, Refusal, open};
pub use payload::{Account, FailedStep, JobAction, Ping, Repository, WorkflowJob};
pub use signature::{SecretsError, SignatureError, Verifier};
