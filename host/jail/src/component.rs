//! What can be said about a file without running or compiling it.

use pacer_core::gate::scrub;
use pacer_policy::{CONTRACTS, Decision, LoadError, RAW_BYTES, Refusal};
use wasmparser::{ComponentExternalKind, Parser, Payload, Validator, WasmFeatures};

use crate::caps;

/// What components may import: the log, and the types that its neighbours share.
const IMPORTS: [&str; 4] =
    ["pacer:policy/log@0.1.", "pacer:policy/types@0.1.", "pacer:policy/log@0.2.", "pacer:policy/types@0.2."];

/// Longest name of an import that is told, in bytes.
const IMPORT_BYTES: usize = 128;

/// Checks size, form, features, imports and exports; returns the decisions it exports.
pub(crate) fn inspect(bytes: &[u8]) -> Result<Vec<Decision>, LoadError> {
    form(bytes)?;
    caps::check(bytes)?;
    Validator::new_with_features(features()).validate_all(bytes).map_err(|error| {
        LoadError::new(Refusal::Invalid, format!("it is not valid WebAssembly for this host, or is truncated: {error}"))
    })?;
    let mut decisions = Vec::new();
    let mut lifecycle = false;
    let mut foreign = None;
    for payload in own(bytes) {
        match payload.map_err(|error| LoadError::new(Refusal::Invalid, error.to_string()))? {
            Payload::ComponentImportSection(imports) => {
                for import in imports {
                    let import = import.map_err(|error| LoadError::new(Refusal::Invalid, error.to_string()))?;
                    allowed(import.name.name)?;
                }
            }
            Payload::ComponentExportSection(exports) => {
                for export in exports {
                    let export = export.map_err(|error| LoadError::new(Refusal::Invalid, error.to_string()))?;
                    if export.kind != ComponentExternalKind::Instance {
                        continue;
                    }
                    match offered(export.name.name) {
                        // One that has both versions of an interface is asked by the newer one.
                        Export::Decision(decision) if decisions.contains(&decision) => {}
                        Export::Decision(decision) => decisions.push(decision),
                        Export::Lifecycle => lifecycle = true,
                        Export::OtherVersion => foreign = Some(export.name.name.to_owned()),
                        Export::Other => {}
                    }
                }
            }
            _ => {}
        }
    }
    if let (Some(name), true) = (&foreign, decisions.is_empty() || !lifecycle) {
        let message = format!("it exports {name} and this host speaks {}: build it for one of these", CONTRACTS.join(" and "));
        return Err(LoadError::new(Refusal::Contract, message));
    }
    if decisions.is_empty() {
        let message = "it exports none of the interfaces scale-down, restart, capacity and recover of pacer:policy";
        return Err(LoadError::new(Refusal::Exports, message));
    }
    if !lifecycle {
        return Err(LoadError::new(Refusal::Exports, "it does not export the interface lifecycle of pacer:policy"));
    }
    Ok(decisions)
}

/// Names of the interfaces that a component exports itself, not those of what is nested in it. What is no component has none.
#[must_use]
pub fn interfaces(component: &[u8]) -> Vec<&str> {
    let mut names = Vec::new();
    for payload in own(component).map_while(Result::ok) {
        if let Payload::ComponentExportSection(exports) = payload {
            let instances =
                exports.into_iter().map_while(Result::ok).filter(|export| export.kind == ComponentExternalKind::Instance);
            names.extend(instances.map(|export| export.name.name));
        }
    }
    names
}

/// What a component consists of itself, not what is nested in it.
fn own(bytes: &[u8]) -> impl Iterator<Item = wasmparser::Result<Payload<'_>>> {
    let mut depth = 0_usize;
    Parser::new(0).parse_all(bytes).filter(move |payload| {
        match payload {
            Ok(Payload::Version { .. }) => depth += 1,
            Ok(Payload::End(_)) => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 1 || payload.is_err()
    })
}

/// What the file is, by its first bytes; a file in a ConfigMap is quickly the wrong one.
fn form(bytes: &[u8]) -> Result<(), LoadError> {
    if bytes.len() > RAW_BYTES {
        let message = format!("it has {} bytes and may have {RAW_BYTES}", bytes.len());
        return Err(LoadError::new(Refusal::TooLarge, message));
    }
    if Parser::is_component(bytes) {
        return Ok(());
    }
    if Parser::is_core_wasm(bytes) {
        let message = "it is a core module and not a component: make one of it with `pacer policy componentize`";
        return Err(LoadError::new(Refusal::CoreModule, message));
    }
    let looks_like = match bytes {
        [] => "it is empty",
        [0x7f, b'E', b'L', b'F', ..] => {
            let message = "it is native code (ELF), for instance a precompiled component, which is never loaded";
            return Err(LoadError::new(Refusal::NativeCode, message));
        }
        [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] => "it is compressed once more",
        [0, b'a', b's', b'm', ..] => "it is truncated, or made for another version of WebAssembly",
        [b'(', ..] => "it is WebAssembly text, and only components are accepted: make one of it with `pacer policy componentize`",
        _ => "it is not WebAssembly",
    };
    Err(LoadError::new(Refusal::NotWebAssembly, looks_like))
}

fn allowed(import: &str) -> Result<(), LoadError> {
    if IMPORTS.iter().any(|allowed| import.starts_with(allowed)) {
        return Ok(());
    }
    Err(denied(import, None))
}

/// Something, or something from somewhere, that is imported and not offered.
pub(crate) fn denied(import: &str, name: Option<&str>) -> LoadError {
    let advice = if import.starts_with("wasi:") || import.starts_with("wasi_") {
        "policies have no WASI: build for wasm32-unknown-unknown, or with the toolchain's option for components without WASI"
    } else if import.starts_with("pacer:policy/") {
        "build it for pacer:policy@0.1.0 or pacer:policy@0.2.0"
    } else {
        "the only import a policy has is pacer:policy/log"
    };
    let import = scrub(import, IMPORT_BYTES);
    let import = name.map(|name| format!("{} from {import}", scrub(name, IMPORT_BYTES))).unwrap_or(import);
    LoadError::new(Refusal::Import, format!("it imports {import}, which is not offered: {advice}"))
}

enum Export {
    Decision(Decision),
    Lifecycle,
    OtherVersion,
    Other,
}

fn offered(export: &str) -> Export {
    let Some((interface, version)) = export.strip_prefix("pacer:policy/").and_then(|name| name.split_once('@')) else {
        return Export::Other;
    };
    let decision = Decision::ALL.into_iter().find(|decision| decision.as_str() == interface);
    match (decision, interface) {
        (None, "lifecycle") | (Some(_), _) if !["0.1.", "0.2."].iter().any(|known| version.starts_with(known)) => {
            Export::OtherVersion
        }
        // The decision came with the later version.
        (Some(Decision::Recover), _) if version.starts_with("0.1.") => Export::OtherVersion,
        (Some(decision), _) => Export::Decision(decision),
        (None, "lifecycle") => Export::Lifecycle,
        (None, _) => Export::Other,
    }
}

/// What the engine is configured for, so that a refusal names the feature before anything is compiled.
fn features() -> WasmFeatures {
    WasmFeatures::MUTABLE_GLOBAL
        | WasmFeatures::SATURATING_FLOAT_TO_INT
        | WasmFeatures::SIGN_EXTENSION
        | WasmFeatures::REFERENCE_TYPES
        | WasmFeatures::MULTI_VALUE
        | WasmFeatures::BULK_MEMORY
        | WasmFeatures::SIMD
        | WasmFeatures::TAIL_CALL
        | WasmFeatures::FLOATS
        | WasmFeatures::EXTENDED_CONST
        | WasmFeatures::COMPONENT_MODEL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_those_that_a_component_exports_itself() {
        let text = r#"(component
            (component (instance $none) (export "pacer:policy/restart@0.1.0" (instance $none)))
            (component $part)
            (instance $none)
            (export "pacer:policy/scale-down@0.2.0" (instance $none))
            (export "part" (component $part))
            (export "pacer:policy/lifecycle@0.2.0" (instance $none)))"#;
        let component = wat::parse_str(text).unwrap();
        let expected = ["pacer:policy/scale-down@0.2.0", "pacer:policy/lifecycle@0.2.0"];
        assert_eq!(interfaces(&component), expected);
        for end in 0..component.len() {
            let found = interfaces(&component[..end]);
            assert!(expected.starts_with(&found), "{found:?} in the first {end} bytes");
        }
        assert_eq!(interfaces(b"export function restart() {}"), [""; 0]);
    }
}
