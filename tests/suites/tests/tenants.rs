//! Many tenants under one operator, and several operators in one cluster: what goes wrong with one concerns nobody else.

mod beside;
mod claims;
mod credentials;
mod just_in_time;
mod namesakes;
mod policies;
mod tenancy;
