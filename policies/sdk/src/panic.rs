//! What is said of a panic before it ends the instance.

/// How the operator knows the line: `PANIC` of `host/policy/src/fault.rs`.
#[cfg(any(target_arch = "wasm32", test))]
const MARK: &str = "panic: ";

/// Most of a panic's text, in bytes: a fault shows 512, and the place is worth more than the end of a long text.
#[cfg(any(target_arch = "wasm32", test))]
const TEXT_BYTES: usize = 320;

/// Most of a file's path, in bytes.
#[cfg(any(target_arch = "wasm32", test))]
const FILE_BYTES: usize = 120;

/// Has a panic write what it is and where into the operator's log, before the trap in which it ends: the trap itself says neither.
pub fn tell() {
    #[cfg(target_arch = "wasm32")]
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.payload_as_str().unwrap_or("with a value that is no text");
        let place = panic.location().map(|place| (place.file(), place.line()));
        crate::log::warn(&line(text, place));
    }));
}

#[cfg(any(target_arch = "wasm32", test))]
fn line(text: &str, place: Option<(&str, u32)>) -> String {
    let mut line = String::from(MARK);
    let end = (0..=TEXT_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    line.push_str(text.get(..end).unwrap_or_default());
    if end < text.len() {
        line.push('…');
    }
    if let Some((file, number)) = place {
        line.push_str(", at ");
        line.push_str(short(file));
        line.push(':');
        line.push_str(&number.to_string());
    }
    line
}

/// A path without the directories of the machine on which the module was built: those from the crate on.
#[cfg(any(target_arch = "wasm32", test))]
fn short(file: &str) -> &str {
    let absolute = file.starts_with('/') || file.get(1..3) == Some(":\\");
    let crate_and_file = if absolute {
        let source = ["/src/", "\\src\\"].iter().find_map(|source| file.rfind(source));
        let above = file.get(..source.unwrap_or(0)).unwrap_or_default();
        match (source, above.rfind(['/', '\\'])) {
            (Some(_), Some(at)) => file.get(at + 1..),
            _ => file.rfind(['/', '\\']).and_then(|at| file.get(at + 1..)),
        }
    } else {
        Some(file)
    };
    let shown = crate_and_file.unwrap_or(file);
    let start = (shown.len().saturating_sub(FILE_BYTES)..shown.len()).find(|at| shown.is_char_boundary(*at)).unwrap_or(0);
    shown.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_text_and_place() {
        assert_eq!(line("no runner", Some(("src/lib.rs", 7))), "panic: no runner, at src/lib.rs:7");
        assert_eq!(line("no runner", None), "panic: no runner");
    }

    #[test]
    fn long_texts_leave_room_for_the_place() {
        let said = line(&"ä".repeat(4_000), Some((&format!("{}/lib.rs", "d/".repeat(4_000)), u32::MAX)));
        assert!(said.len() <= 512 && said.contains("…, at ") && said.ends_with("/lib.rs:4294967295"), "{said}");
    }

    #[test]
    fn places_do_not_tell_the_directories_of_a_machine() {
        for (file, shown) in [
            ("src/lib.rs", "src/lib.rs"),
            ("policies/spot-first/src/lib.rs", "policies/spot-first/src/lib.rs"),
            (
                "/home/a/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/jiff-0.2.1/src/civil/date.rs",
                "jiff-0.2.1/src/civil/date.rs",
            ),
            ("/rustc/59807616e/library/core/src/slice/mod.rs", "core/src/slice/mod.rs"),
            ("C:\\Users\\a\\mine\\src\\lib.rs", "mine\\src\\lib.rs"),
            ("/home/a/build.rs", "build.rs"),
            ("", ""),
        ] {
            assert_eq!(short(file), shown);
        }
    }
}
