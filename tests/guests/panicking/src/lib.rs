//! Fails as policies in Rust do, for the tests of what people are told of it.

#![allow(clippy::panic, clippy::indexing_slicing, reason = "this is what it is for")]

use pacer_policy_sdk::scale_down::{Choice, Request};
use pacer_policy_sdk::{Policy, ScaleDown};
use serde::Deserialize;

/// When the operator tries it, which it does with these settings as well.
const REHEARSED: f64 = 1_800_000_000.0;

/// Panics, or traps, as its settings say.
pub struct Panicking;

/// Settings, which say how the policy fails.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// One word; anything else does nothing.
    pub how: String,
}

impl Policy for Panicking {
    type Settings = Settings;
}

impl ScaleDown for Panicking {
    fn select(request: &Request, settings: &Settings) -> Result<Vec<Choice>, String> {
        let candidates = &request.candidates;
        if settings.how == "always" {
            panic!("of {}", candidates.len());
        }
        if (request.now - REHEARSED).abs() < 1.0 {
            return Ok(Vec::new());
        }
        match settings.how.as_str() {
            "index" => Ok(vec![Choice::new(0, candidates[candidates.len()].name.clone())]),
            "lines" => panic!("one line\nand \u{1b}[31manother"),
            "long" => panic!("{}", "too much ".repeat(100_000)),
            "value" => std::panic::panic_any(7),
            "trap" => gives_up(),
            "depth" => Ok(vec![Choice::new(deeper(candidates.len()), "unreachable")]),
            _ => Ok(Vec::new()),
        }
    }
}

/// A trap that says nothing of itself.
#[inline(never)]
fn gives_up() -> ! {
    #[cfg(target_arch = "wasm32")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    std::process::abort()
}

#[inline(never)]
fn deeper(by: usize) -> u32 {
    let here = [std::hint::black_box(by); 64];
    if by == 0 { 0 } else { deeper(here[by % 64] + 1).wrapping_add(1) }
}

pacer_policy_sdk::export!(Panicking: scale_down);
