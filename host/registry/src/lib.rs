//! Pulls the modules of policies from OCI registries.
//!
//! ```text
//! oci://registry/repository@sha256:... -> manifest, by that digest -> its one layer of WebAssembly or JavaScript, by the digest there -> bytes
//!                                             +-> tag sha256-....sig, or what refers to it -> payload, by its digest -> signature of a key that is
//!                                                 configured
//! ```
//!
//! A registry is somebody else's server: what it sends is bounded in bytes and time, is believed where a digest or a signature says so, and is
//! never repeated in a message. Nothing here looks into a module.
//!
//! Read first: [`Registries::pull`].

mod bundle;
mod challenge;
mod client;
mod credentials;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test whose scene can't be set has failed")]
mod decoders;
mod error;
mod exchange;
mod manifest;
mod signature;

pub use client::{Module, Registries};
pub use credentials::{Credentials, CredentialsError};
pub use error::PullError;
pub use manifest::Form;
pub use signature::{KeyError, VerificationKeys};
