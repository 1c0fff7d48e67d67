//! Connections that the servers of this process did not keep. Labels are from closed sets.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Server of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpServer {
    /// Metrics and health.
    Metrics,
    /// GitHub's webhooks, in the operator or in `pacer webhook`.
    Webhook,
    /// The page for people.
    Page,
}

/// Why a connection was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionDrop {
    /// It waited longest when another one needed its place.
    Replaced,
    /// All places were taken by requests that are worked on.
    NoRoom,
    /// The head of a request, or the end of the connection, took too long.
    Slow,
    /// The head of a request was too large.
    HeadTooLarge,
}

impl ConnectionDrop {
    fn as_str(self) -> &'static str {
        match self {
            Self::Replaced => "replaced",
            Self::NoRoom => "no_room",
            Self::Slow => "slow",
            Self::HeadTooLarge => "head_too_large",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    server: &'static str,
    reason: &'static str,
}

/// The figures of all servers; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Family<Labels, Counter>);

impl Connections {
    /// Registers the series of dropped connections.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let connections = Self::default();
        registry.register("pacer_http_connections_dropped", "Connections that were not kept", connections.0.clone());
        connections
    }

    /// Those of one server.
    pub(super) fn of(&self, server: HttpServer) -> ConnectionMetrics {
        let server = match server {
            HttpServer::Metrics => "metrics",
            HttpServer::Webhook => "webhook",
            HttpServer::Page => "page",
        };
        ConnectionMetrics { server, connections: self.clone() }
    }
}

/// The figures of one server.
#[derive(Clone, Debug)]
pub struct ConnectionMetrics {
    server: &'static str,
    connections: Connections,
}

impl ConnectionMetrics {
    /// Counts a connection that was dropped.
    pub fn dropped(&self, why: ConnectionDrop) {
        self.connections.0.get_or_create(&Labels { server: self.server, reason: why.as_str() }).inc();
    }
}
