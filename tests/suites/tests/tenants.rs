//! Many tenants under one operator, and several operators in one cluster: what goes wrong with one concerns nobody else.

#[path = "tenants/beside.rs"]
mod beside;
#[path = "tenants/claims.rs"]
mod claims;
#[path = "tenants/credentials.rs"]
mod credentials;
#[path = "tenants/just_in_time.rs"]
mod just_in_time;
#[path = "tenants/namesakes.rs"]
mod namesakes;
#[path = "tenants/policies.rs"]
mod policies;
#[path = "tenants/tenancy.rs"]
mod tenancy;
