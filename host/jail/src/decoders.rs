//! WebAssembly before it is compiled: whatever it is, it is taken or refused.

use std::borrow::Cow;

use wasmparser::Parser;

use crate::{component, encode, packing};

/// Compressed component of an example policy for version 0.1.0 of the contract.
const COMPONENT: &[u8] = include_bytes!("../tests/fixtures/0.1.0/newest-first-in-wat.wasm.gz");

/// The text of a module.
const TEXT: &str = include_str!("../../../examples/policies/wat/policy.wat");

#[test]
fn component_is_taken_or_refused_whatever_it_is() {
    pacer_fuzz::bytes!([packing::unpack(COMPONENT).unwrap()], |bytes| {
        let interfaces = component::interfaces(bytes).len();
        component::inspect(bytes).is_ok_and(|decisions| interfaces > decisions.len())
    });
}

#[test]
fn module_becomes_a_component_or_is_refused_whatever_it_is() {
    pacer_fuzz::bytes!([wat::parse_str(TEXT).unwrap()], |bytes| {
        // What is no module is passed on as it is.
        Parser::is_core_wasm(bytes) && encode::component_of(Cow::Borrowed(bytes)).is_ok()
    });
}

#[test]
fn text_becomes_a_component_or_is_refused_whatever_it_says() {
    pacer_fuzz::text!([TEXT], |text| encode::componentize(text.as_bytes()).is_ok());
}
