//! What a fleet does when things go wrong around it, on the real API server: the operator is killed, GitHub fails or lies, the API server
//! restarts, nodes vanish, pods cannot start, operators compete.
//!
//! Every test that is not about volumes is one of RunnerDeployments and of RunnerSets with volumes. All end with the same assertions: no job
//! was cut short by a deletion, exactly the wanted number is there, in the cluster and at GitHub, no two pods had one claim at the same time,
//! and no claim is left that the retention policy does not keep.

mod creation;
mod credentials;
mod github;
mod kill;
mod leader;
mod link;
mod nodes;
mod orphans;
mod starts;
mod unreadable;
mod webhooks;
