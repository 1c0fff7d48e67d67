//! The contract as wasmtime sees it, generated from `wit/policy`. Nothing outside this crate knows these types.
//!
//! The world with all decisions covers the others: each exported interface has indices of its own, which are looked up only in components
//! that export it.

wasmtime::component::bindgen!({
    path: "../../wit/policy/v0.1.0",
    world: "policy",
});

/// Version 0.2.0, whose records and functions are those of 0.1.0 as far as that has them.
pub(crate) mod next {
    wasmtime::component::bindgen!({
        path: "../../wit/policy/v0.2.0",
        world: "policy",
    });
}
