//! What the suites and the demo run on: a real control plane, a simulated GitHub, simulated nodes, the real operator.
//!
//! [`world::World::start`] brings up all of it. The parts can be had alone: [`controlplane::ControlPlane`],
//! [`github::SimGitHub`], [`ingress::Ingress`], [`nodes::Nodes`], [`operator::Operator`], [`receivers::Receivers`], [`registry::Registry`].
//! [`objects::until`] waits for states of objects.
//!
//! Everything is on loopback, in a temporary directory and on free ports, so that any number of worlds can live side by side.
//! Child processes end with their handles and with the process that started them.

pub mod child;
pub mod controlplane;
pub mod github;
pub mod http;
pub mod ingress;
pub mod nodes;
pub mod objects;
pub mod operator;
pub mod receivers;
pub mod registry;
pub mod world;
