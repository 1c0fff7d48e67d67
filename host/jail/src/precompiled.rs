//! Loads native code: the only `unsafe` line of the project. Everything that the argument for it needs is in this file.

use wasmtime::component::Component;

use crate::engine::Engine;

/// The component whose native code this is.
///
/// # Errors
///
/// When it was made by another version of wasmtime or for another configuration.
pub(crate) fn load(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the code has to come from a wasmtime that may be trusted, unchanged. It comes from the executable that is running now: the
    // operator got it from a stager, kept it in memory and passed it on through a socket that no other process has an end of. That of the
    // interpreter may also come from a file beside the executable, of the same owner and writable for nobody else, with its digest. Whether it was made by the same version and for the same configuration is checked by wasmtime. A component that deceives the
    // compiler in a stager would deceive it here as well. And should it be believed wrongly, then in a process that is locked in as if that
    // had happened already: this is never called in the operator's own.
    #[expect(unsafe_code, reason = "wasmtime has no other way to load code that another process compiled")]
    unsafe {
        Component::deserialize(engine.wasmtime(), code)
    }
}
