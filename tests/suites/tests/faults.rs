//! What a fleet does when things go wrong around it, on the real API server: the operator is killed, GitHub fails or lies, the API server
//! restarts, nodes vanish, pods cannot start, operators compete.
//!
//! Every test that is not about volumes is one of RunnerDeployments and of RunnerSets with volumes. All end with the same assertions: no job
//! was cut short by a deletion, exactly the wanted number is there, in the cluster and at GitHub, no two pods had one claim at the same time,
//! and no claim is left that the retention policy does not keep.

#[path = "faults/creation.rs"]
mod creation;
#[path = "faults/credentials.rs"]
mod credentials;
#[path = "faults/github.rs"]
mod github;
#[path = "faults/kill.rs"]
mod kill;
#[path = "faults/leader.rs"]
mod leader;
#[path = "faults/link.rs"]
mod link;
#[path = "faults/nodes.rs"]
mod nodes;
#[path = "faults/orphans.rs"]
mod orphans;
#[path = "faults/starts.rs"]
mod starts;
#[path = "faults/unreadable.rs"]
mod unreadable;
#[path = "faults/webhooks.rs"]
mod webhooks;
