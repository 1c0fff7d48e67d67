//! From actions-runner-controller v0.27.6 to this operator and back: objects are made by hand as ARC leaves them (arc-behaviour 2), on the
//! real API server, with agents that really hold their registrations.

mod adopt;
mod back;
mod fleet;
