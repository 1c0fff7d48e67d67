//! Policies that are text: JavaScript in the `data` of a ConfigMap, run by a component that is in this program.
//!
//! Everywhere but in the ConfigMap such a policy is a *module* like others: the text behind a mark that no component begins with.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::component::Digest;
use crate::load::{LoadError, Refusal};

/// The component that runs texts.
pub const INTERPRETER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/interpreter.wasm"));

/// Longest text, in bytes. It is parsed anew in every call, so what a call may take limits it as well.
pub const TEXT_BYTES: usize = 256 << 10;

/// What a module that is a text begins with; a component begins with a zero and `asm`.
const MARK: &[u8] = b"\0pacer text, javascript\n";

static INTERPRETER_DIGEST: LazyLock<Digest> = LazyLock::new(|| Digest::of(INTERPRETER));

/// What a policy that is text is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Interpreted {
    /// SHA-256 of the text.
    pub text: String,
    /// SHA-256 of the component that runs it.
    pub interpreter: String,
}

impl Interpreted {
    /// By the interpreter of this program.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self { text: Digest::of(text.as_bytes()).to_string(), interpreter: interpreter().to_string() }
    }
}

/// SHA-256 of the component that runs texts.
#[must_use]
pub fn interpreter() -> Digest {
    *INTERPRETER_DIGEST
}

/// Whether the module of this name is a text: whether it ends in `.js`.
#[must_use]
pub fn is_text(name: &str) -> bool {
    name.ends_with(".js")
}

/// The module of a text.
///
/// # Errors
///
/// When it is too long, or not UTF-8.
pub fn module(text: &[u8]) -> Result<Vec<u8>, LoadError> {
    if text.len() > TEXT_BYTES {
        let message = format!("the text has {} bytes and may have {TEXT_BYTES}", text.len());
        return Err(LoadError::new(Refusal::TooLarge, message));
    }
    if let Err(error) = std::str::from_utf8(text) {
        return Err(LoadError::new(Refusal::Syntax, format!("the text is not UTF-8: {error}")));
    }
    Ok([MARK, text].concat())
}

/// The text of a module; none of a component.
#[must_use]
pub fn text_of(module: &[u8]) -> Option<&str> {
    std::str::from_utf8(module.strip_prefix(MARK)?).ok()
}

/// Identifies a module: by its bytes, and by the interpreter as well where it is a text.
#[must_use]
pub fn identity(module: &[u8]) -> Digest {
    match text_of(module) {
        None => Digest::of(module),
        Some(text) => {
            let Interpreted { text, interpreter } = Interpreted::of(text);
            Digest::of(format!("text {text}\ninterpreter {interpreter}\n").as_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_identified_by_itself_and_its_interpreter() {
        let one = module(b"export function restart() {}").unwrap();
        assert_eq!(text_of(&one), Some("export function restart() {}"));
        assert_ne!(identity(&one), Digest::of(&one));
        assert_ne!(identity(&one), identity(&module(b"export function restart() { }").unwrap()));
        assert_eq!((text_of(INTERPRETER), identity(INTERPRETER)), (None, interpreter()));
    }

    /// Receipts name the interpreter, so one version of this program has to have one, wherever and however often it is built. With `UPDATE_GOLDEN=1` the
    /// digest is written anew, after a change of the interpreter, of the contract, or of the pinned compiler.
    #[test]
    fn the_interpreter_is_the_same_wherever_it_is_built() {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/interpreter/DIGEST");
        let built = format!("{}\n", interpreter());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&file, &built).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), built);
    }

    #[test]
    fn a_text_that_is_too_long_or_no_utf_8_is_refused() {
        assert!(module(&vec![b' '; TEXT_BYTES]).is_ok());
        assert_eq!(module(&vec![b' '; TEXT_BYTES + 1]).unwrap_err().code, Refusal::TooLarge);
        assert_eq!(module(b"\xff").unwrap_err().code, Refusal::Syntax);
    }
}
