//! All that exists only for objects that ARC left: without them this module does nothing.

pub(crate) mod abandoned;
pub mod finalizer;
pub(crate) mod statefulset;
