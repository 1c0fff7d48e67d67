//! Webhook receivers beside the operator: replicas of `pacer webhook` behind one address, as `deploy/webhook` and the chart run them.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use futures::future::try_join_all;

use crate::controlplane::ControlPlane;
use crate::github::SimGitHub;
use crate::ingress::Ingress;
use crate::operator::{self, Operator, OperatorError, Usage};

/// How long each has until it receives.
const PATIENCE: Duration = Duration::from_secs(120);

/// How many replicas receive webhooks, and how they are started.
#[derive(Clone, Debug)]
pub struct Options {
    /// How each is started.
    pub replica: operator::Options,
    /// How many there are.
    pub replicas: usize,
}

/// Replicas of `pacer webhook`, which take turns; killed when the handle is dropped.
#[derive(Debug)]
pub struct Receivers {
    ingress: Ingress,
    replicas: Vec<Operator>,
}

impl Receivers {
    /// Starts them and waits until each knows the autoscalers.
    ///
    /// # Errors
    ///
    /// When one of them does not start.
    pub async fn start(plane: &ControlPlane, github: &SimGitHub, options: &Options) -> Result<Self, OperatorError> {
        let no_port = |source| OperatorError::Read { what: "the address before the receivers".to_owned(), source };
        let ingress = Ingress::start().await.map_err(no_port)?;
        let mut replicas = Vec::with_capacity(options.replicas);
        let mut addresses = Vec::with_capacity(options.replicas);
        for _ in 0..options.replicas {
            let replica = Operator::start(plane, github, &options.replica).await?;
            replica.until_ready("receiving", PATIENCE).await?;
            let none = || io::Error::other("it announced none");
            let what = || "the address for webhooks".to_owned();
            let address = replica.webhook_address().ok_or_else(|| OperatorError::Read { what: what(), source: none() })?;
            addresses.push(address);
            replicas.push(replica);
        }
        ingress.serve(addresses);
        Ok(Self { ingress, replicas })
    }

    /// The URL to register as a webhook's.
    #[must_use]
    pub fn url(&self) -> String {
        self.ingress.url()
    }

    /// The `/metrics` of all of them.
    ///
    /// # Errors
    ///
    /// When one does not answer with 200.
    pub async fn metrics(&self) -> Result<String, OperatorError> {
        Ok(try_join_all(self.replicas.iter().map(Operator::metrics)).await?.concat())
    }

    /// Memory and processor time of each.
    ///
    /// # Errors
    ///
    /// As for [`Operator::usage`].
    pub fn usage(&self) -> Result<Vec<Usage>, OperatorError> {
        self.replicas.iter().map(Operator::usage).collect()
    }

    /// The end of the log of each, in bytes.
    #[must_use]
    pub fn log_tails(&self, bytes: u64) -> String {
        self.replicas.iter().enumerate().fold(String::new(), |mut text, (number, replica)| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "receiver {number}:\n{}", replica.log_tail(bytes));
            text
        })
    }

    /// Ends them in order.
    pub async fn stop(self) {
        for replica in &self.replicas {
            replica.terminate().await;
        }
        self.ingress.stop().await;
    }
}
