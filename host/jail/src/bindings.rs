//! The contract as wasmtime sees it, generated from `wit/policy`. Nothing outside this crate knows these types.
//!
//! The world with all decisions covers the others: each exported interface has indices of its own, which are looked up only in components
//! that export it.

wasmtime::component::bindgen!({
    path: "../../wit/policy/v0.1.0",
    world: "policy",
});
