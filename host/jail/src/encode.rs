//! From what compilers write to a component: text, and core modules with or without their component type.
//!
//! Authors then need nothing but their compiler. A module that carries no component type gets it from the names it exports, and one that
//! imports `wasi_snapshot_preview1` gets answers from inside the component ([`PREVIEW1`]), because policies have no WASI.

use std::borrow::Cow;
use std::collections::BTreeSet;

use pacer_policy::{CONTRACTS, Decision, LoadError, Refusal};
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{Resolve, WorldId};

use crate::caps;
use crate::component::{self, inspect};

/// The texts of [`CONTRACTS`], to which the world of a module is added.
const WITS: [&str; CONTRACTS.len()] =
    [include_str!("../../../wit/policy/v0.1.0/policy.wit"), include_str!("../../../wit/policy/v0.2.0/policy.wit")];

/// Name of the core module that old WASI is imported from.
const PREVIEW1: &str = "wasi_snapshot_preview1";

/// How sections begin that only debuggers read.
const DEBUG: &str = ".debug_";

/// Imports that are looked at of those that nobody offers.
const DENIED: usize = 100;

/// Name of the world of a module without a type.
const WORLD: &str = "detected";

/// What stands in for it.
const PREVIEW1_ADAPTER: &str = include_str!("encode/preview1.wat");

/// Turns WebAssembly text or a core module into a component. A component is only checked.
///
/// A module must export the contract's functions under their full names, such as `pacer:policy/scale-down@0.1.0#select`, or carry a
/// component type as guest toolchains write it.
///
/// # Errors
///
/// When it is no WebAssembly, exports no decision, imports anything that is not offered, or its functions differ from the contract's.
pub(crate) fn componentize(source: &[u8]) -> Result<Vec<u8>, LoadError> {
    let module = binary(source)?;
    if Parser::is_component(&module) || !Parser::is_core_wasm(&module) {
        return inspect(&module).map(|_| module);
    }
    caps::check(&module)?;
    let found = Module::read(&module)?;
    found.imports()?;
    let invalid = |error| LoadError::new(Refusal::Invalid, format!("the module can't be made a component: {error:#}"));
    let mut module = without_debug_information(&module)?;
    if !found.typed {
        let (contract, world) = found.world()?;
        embed_component_metadata(&mut module, &contract, world, StringEncoding::UTF8).map_err(invalid)?;
    }
    let mut encoder = ComponentEncoder::default().validate(true).module(&module).map_err(invalid)?;
    if found.preview1 {
        encoder = encoder.adapter(PREVIEW1, &binary(PREVIEW1_ADAPTER.as_bytes())?).map_err(invalid)?;
    }
    let component = encoder.encode().map_err(invalid)?;
    // A type section of something else makes an empty component, which is no error for the encoder.
    inspect(&component).map(|_| component)
}

/// The module without what debuggers read, which is many times the rest. The names of functions stay, by which traps are told.
fn without_debug_information(module: &[u8]) -> Result<Vec<u8>, LoadError> {
    let malformed = |error: wasmparser::BinaryReaderError| LoadError::new(Refusal::Invalid, error.to_string());
    let mut kept = Vec::with_capacity(module.len());
    let mut begin = 0;
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload.map_err(malformed)?;
        let end = match &payload {
            Payload::Version { range, .. } => range.end,
            _ => match payload.as_section() {
                Some((_, range)) => range.end,
                None => continue,
            },
        };
        if !matches!(&payload, Payload::CustomSection(section) if section.name().starts_with(DEBUG)) {
            kept.extend_from_slice(module.get(begin..end).unwrap_or_default());
        }
        begin = end;
    }
    Ok(kept)
}

/// The component of a module as it lies in a policy set: made of a core module, or passed on. It is not checked yet.
pub(crate) fn component_of(raw: Cow<'_, [u8]>) -> Result<Vec<u8>, LoadError> {
    if !Parser::is_core_wasm(&raw) {
        return Ok(raw.into_owned());
    }
    componentize(&raw).map_err(|error| {
        // What is wrong with it is not that it is a core module.
        if matches!(error.code, Refusal::Import | Refusal::Contract) {
            return error;
        }
        let message = format!(
            "it is a core module that can't be made a component ({}); build it with the SDK for wasm32-unknown-unknown, or embed the \
             contract's types with `wasm-tools component embed`",
            error.message
        );
        LoadError::new(Refusal::CoreModule, message)
    })
}

/// The binary form of text; anything else as it is.
fn binary(source: &[u8]) -> Result<Vec<u8>, LoadError> {
    if !source.trim_ascii_start().starts_with(b"(") && !source.trim_ascii_start().starts_with(b";;") {
        return Ok(source.to_vec());
    }
    let parsed = wat::parse_bytes(source);
    parsed.map(Cow::into_owned).map_err(|error| LoadError::new(Refusal::Invalid, format!("the text is no WebAssembly: {error}")))
}

/// What matters about a core module here.
#[derive(Default)]
struct Module {
    /// It carries its component type.
    typed: bool,
    /// It imports old WASI.
    preview1: bool,
    /// What it exports under the contract's names, each with the version of the contract.
    decisions: Vec<(Decision, &'static str)>,
    /// Version of the lifecycle that it exports.
    lifecycle: Option<&'static str>,
    /// Versions of the log that it imports.
    logs: BTreeSet<&'static str>,
    /// A function of another version of the contract.
    foreign: Option<String>,
    /// What it imports and nobody offers, each with its module: one that has a type imports few things, and the first of these need not be wrong.
    denied: Vec<(String, String)>,
}

impl Module {
    fn read(bytes: &[u8]) -> Result<Self, LoadError> {
        let malformed = |error: wasmparser::BinaryReaderError| LoadError::new(Refusal::Invalid, error.to_string());
        let mut found = Self::default();
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.map_err(malformed)? {
                Payload::CustomSection(section) => found.typed |= section.name().starts_with("component-type"),
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        let import = import.map_err(malformed)?;
                        let log = import.module.strip_prefix("pacer:policy/log@").and_then(served);
                        found.preview1 |= import.module == PREVIEW1;
                        found.logs.extend(log);
                        if log.is_none() && import.module != PREVIEW1 && found.denied.len() < DENIED {
                            found.denied.push((import.module.to_owned(), import.name.to_owned()));
                        }
                    }
                }
                Payload::ExportSection(exports) => {
                    for export in exports {
                        found.export(export.map_err(malformed)?.name);
                    }
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Refuses what imports more than there is. With a component type, interfaces and the names of its toolchain are left to the encoder: what is
    /// imported of others shows in the component.
    fn imports(&self) -> Result<(), LoadError> {
        let foreign = |module: &str| !module.contains(':') && !module.starts_with(['$', '[', '_']);
        let mut denied = self.denied.iter().filter(|(module, _)| !self.typed || foreign(module));
        denied.next().map_or(Ok(()), |(module, name)| Err(component::denied(module, Some(name))))
    }

    fn export(&mut self, name: &str) {
        let Some((interface, _)) = name.strip_prefix("pacer:policy/").and_then(|name| name.split_once('#')) else { return };
        let Some((interface, version)) = interface.split_once('@') else { return };
        let decision = Decision::ALL.into_iter().find(|decision| decision.as_str() == interface);
        match (decision, served(version)) {
            (None, version) if interface == "lifecycle" => self.lifecycle = version.or(self.lifecycle),
            (None, _) => {}
            // The decision came with the later version.
            (Some(Decision::Recover), Some("0.1.0")) | (Some(_), None) => self.foreign = Some(name.to_owned()),
            (Some(decision), Some(version)) => self.decisions.push((decision, version)),
        }
    }

    /// The contract with a world of exactly what the module exports.
    fn world(&self) -> Result<(Resolve, WorldId), LoadError> {
        let Some((_, first)) = self.decisions.first() else {
            return Err(match &self.foreign {
                Some(name) => LoadError::new(
                    Refusal::Contract,
                    format!("it exports {name} and this host speaks {}: build it for one of these", CONTRACTS.join(" and ")),
                ),
                None => LoadError::new(
                    Refusal::Exports,
                    format!(
                        "it carries no component type and exports no function of {}: export for instance \
                         pacer:policy/scale-down@0.1.0#select, or build it with a component toolchain",
                        CONTRACTS.join(" or ")
                    ),
                ),
            });
        };
        let imports: String = self.logs.iter().map(|version| format!("import pacer:policy/log@{version};")).collect();
        let decisions = self.decisions.iter().map(|(decision, version)| (decision.as_str(), *version));
        let exports = decisions.chain([("lifecycle", self.lifecycle.unwrap_or(first))]);
        let exports: String = exports.map(|(interface, version)| format!("export pacer:policy/{interface}@{version};")).collect();
        let text = format!("package pacer:detected;\nworld {WORLD} {{ {imports} {exports} }}\n");
        let broken = |what: String| LoadError::new(Refusal::Invalid, format!("the contract can't be read: {what}"));
        let mut contract = Resolve::default();
        for wit in WITS {
            contract.push_str("policy.wit", wit).map_err(|error| broken(format!("{error:#}")))?;
        }
        let package = contract.push_str("detected.wit", &text).map_err(|error| broken(format!("{error:#}")))?;
        let world = contract.select_world(&[package], Some(WORLD)).map_err(|error| broken(format!("{error:#}")))?;
        Ok((contract, world))
    }
}

/// The version, where this host speaks it.
fn served(version: &str) -> Option<&'static str> {
    let mut versions = CONTRACTS.into_iter().filter_map(|contract| contract.strip_prefix("pacer:policy@"));
    versions.find(|served| *served == version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::load;

    /// A policy that keeps every runner, as text.
    fn keeper(more: &str) -> String {
        format!(
            r#"(module
                {more}
                (memory (export "memory") 1)
                (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
                (func (export "pacer:policy/lifecycle@0.1.0#describe") (result i32) (i32.const 1024))
                (func (export "pacer:policy/lifecycle@0.1.0#validate-settings") (param i32 i32) (result i32) (i32.const 2048))
                (func (export "pacer:policy/scale-down@0.1.0#select") (param i32) (result i32) (i32.const 2048))
                (data (i32.const 1024) "\0c\08\00\00\01\00\00\00\0c\08\00\00\01\00\00\00")
                (data (i32.const 2060) "k"))"#
        )
    }

    #[test]
    fn text_becomes_a_policy_that_loads() {
        let component = componentize(keeper("").as_bytes()).unwrap();
        let (policy, _) = load::load(&Engine::new().unwrap(), &component).unwrap();
        let takes = policy.linked.takes();
        assert_eq!((policy.description.name.as_str(), takes.scale_down, takes.restart), ("k", true, false));
        assert_eq!(componentize(&component), Ok(component));
    }

    #[test]
    fn text_of_the_newer_contract_becomes_a_policy_that_takes_its_decision() {
        let recover = keeper("").replace("0.1.0", "0.2.0").replace("scale-down@0.2.0#select", "recover@0.2.0#decide");
        let scale_down = keeper("").replace("0.1.0", "0.2.0");
        // With the lifecycle and the log of the version before.
        let beside = keeper(r#"(import "pacer:policy/log@0.1.0" "write" (func (param i32 i32 i32)))"#)
            .replace("scale-down@0.1.0#select", "recover@0.2.0#decide");
        for (source, decision) in [(recover, Decision::Recover), (scale_down, Decision::ScaleDown), (beside, Decision::Recover)] {
            let component = componentize(source.as_bytes()).unwrap();
            let (policy, _) = load::load(&Engine::new().unwrap(), &component).unwrap();
            let takes = policy.linked.takes();
            let taken: Vec<Decision> = takes.iter().filter(|(_, takes)| **takes).map(|(decision, _)| decision).collect();
            assert_eq!((policy.description.name.as_str(), taken), ("k", vec![decision]));
        }
    }

    #[test]
    fn old_wasi_is_answered_inside() {
        let printing = keeper(
            r#"(import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))
               (import "wasi_snapshot_preview1" "poll_oneoff" (func (param i32 i32 i32 i32) (result i32)))
               (import "wasi_snapshot_preview1" "path_open" (func (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))"#,
        );
        let component = componentize(printing.as_bytes()).unwrap();
        assert_eq!(inspect(&component), Ok(vec![Decision::ScaleDown]));
    }

    #[test]
    fn names_stay_and_debug_information_goes() {
        let more = r#"(@custom ".debug_info" "a") (@custom "producers" "\00") (@custom ".debug_str" "bb") (func $names_it)"#;
        let module = binary(keeper(more).as_bytes()).unwrap();
        let kept = without_debug_information(&module).unwrap();
        let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        for (text, stays) in [("names_it", true), ("producers", true), (".debug_info", false), (".debug_str", false)] {
            assert_eq!((has(&module, text), has(&kept, text)), (true, stays), "{text}");
        }
        assert_eq!(without_debug_information(&kept).unwrap(), kept);
        let component = componentize(&module).unwrap();
        assert!(has(&component, "names_it") && !has(&component, ".debug_"));
        assert_eq!(componentize(&kept).unwrap(), component);
    }

    #[test]
    fn refusals_say_what_to_do() {
        let version = keeper("").replace("@0.1.0", "@9.0.0");
        for (source, code, says) in [
            ("(module)", Refusal::Exports, "carries no component type"),
            ("(module", Refusal::Invalid, "the text is no WebAssembly"),
            (version.as_str(), Refusal::Contract, "pacer:policy@0.1.0"),
            (
                &keeper("(import \"env\" \"now\" (func))"),
                Refusal::Import,
                "it imports now from env, which is not offered: the only import a policy has is pacer:policy/log",
            ),
            (
                &keeper("(import \"wasi:clocks/wall-clock@0.2.0\" \"now\" (func (param i32)))"),
                Refusal::Import,
                "policies have no WASI",
            ),
            (
                &keeper("(import \"pacer:policy/log@0.3.0\" \"write\" (func (param i32 i32 i32)))"),
                Refusal::Import,
                "build it for",
            ),
            (&keeper("").replace("#select\") (param i32)", "#select\") (param i64)"), Refusal::Invalid, "select"),
            ("just words", Refusal::NotWebAssembly, "not WebAssembly"),
        ] {
            let error = componentize(source.as_bytes()).unwrap_err();
            assert_eq!(error.code, code, "{source}: {error}");
            assert!(error.message.contains(says), "{error}");
        }
    }
}
