//! GitHub client of pacer: authentication, conditional cache, rate budget, and shared listings of runners and of jobs.
//!
//! [`GitHub`] makes typed calls by octocrab over a tower stack of our own (`stack`): deadline, bounded concurrency, rate gate,
//! conditional cache, authentication. Calls never sleep on rate limits and are never repeated; [`Error`] says what is missing.
//! [`runner_list::RunnerLists`] keeps one poller per credentials and scope, however many runners there are;
//! [`queues::Queues`] does the same for the jobs of repositories.

// The decoders are in a test target of their own; built for a fuzzer, the tests in here are linked with what counts branches all the same.
#[cfg(test)]
use pacer_fuzz as _;

mod agents;
mod budget;
mod call;
mod client;
mod clock;
mod counters;
mod credentials;
mod endpoints;
mod error;
mod groups;
mod history;
mod hooks;
mod installations;
mod jobs;
mod json;
mod jwt;
mod limit;
mod memory;
mod payer;
mod pollers;
pub mod queues;
pub mod runner_list;
mod runners;
mod secret;
mod stack;
pub mod webhook;

pub use agents::AgentVersion;
pub use budget::{Budget, Budgets};
pub use call::Endpoint;
pub use client::{ClientError, ClientOptions, GitHub};
pub use counters::{CacheUse, CallCount, Outcome};
pub use credentials::{ClientId, CredentialKind, CredentialParts, Credentials, CredentialsError, KeyFiles};
pub use endpoints::{Endpoints, EndpointsError};
pub use error::{Error, ErrorKind};
pub use groups::RunnerGroup;
pub use history::{Page, PageCursor, PastJob, PastRun};
pub use hooks::{DeliveryCursor, DeliveryPage, HookOwner, RemoteDelivery, RemoteHook, Webhook};
pub use installations::{AppInstallation, AppPermission};
pub use jobs::report::{CheckName, CheckRun, ReportedJob};
pub use jobs::{Activity, JobState, QueueListing, Reading, RemoteJob, Repository, RunCounts};
pub use json::Misread;
pub use jwt::AppKey;
pub use limit::Resource;
pub use memory::AnswerMemory;
pub use pacer_connect::{ConnectError as TransportError, ProxyRules};
pub use payer::Payer;
pub use runners::{JitAnswer, JitRequest, JustInTime, Listing, RegistrationToken, RemoteRunner, Removal};
pub use secret::{Secret, TOKEN_BEGINNINGS};
pub use stack::transport::Transport;
