//! Native code of the interpreter, compiled ahead into a file beside the program.
//!
//! Compiling it takes most of ten seconds of processor time, in every process that is given a text. What lies beside the program is trusted as the
//! program is: whoever can change one can change the other. Even so it is only ever loaded in a process that is locked in.

use std::io::{self, Write as _};
use std::path::Path;

use crate::component::Digest;
use crate::text;

/// The first line of such a file: of which interpreter this is the code, and which code.
fn head(code: &[u8]) -> String {
    format!("pacer interpreter {} {}\n", text::interpreter(), Digest::of(code))
}

/// The code in a file; none when there is no file, or it is of another interpreter, or damaged.
pub(super) fn read(file: &Path) -> Option<Vec<u8>> {
    let mut content = std::fs::read(file).ok()?;
    let end = content.iter().position(|byte| *byte == b'\n')?.saturating_add(1);
    let code = content.split_off(end);
    (content == head(&code).as_bytes()).then_some(code)
}

/// Writes such a file, so that nobody reads half of it.
///
/// # Errors
///
/// When the file, or another one beside it, can't be written.
pub(super) fn write(file: &Path, code: &[u8]) -> io::Result<()> {
    let mut name = file.to_path_buf().into_os_string();
    name.push(format!(".{}", std::process::id()));
    let new = Path::new(&name);
    let written = std::fs::File::create(new).and_then(|mut to| {
        to.write_all(head(code).as_bytes())?;
        to.write_all(code)
    });
    let placed = written.and_then(|()| std::fs::rename(new, file));
    if placed.is_err() {
        // The first error is the one to tell.
        let _ = std::fs::remove_file(new);
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_is_damaged_or_of_another_interpreter_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pacer.interpreter");
        assert_eq!(read(&file), None);
        write(&file, b"native\ncode").unwrap();
        assert_eq!(read(&file).as_deref(), Some(&b"native\ncode"[..]));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        let good = std::fs::read(&file).unwrap();
        let other = String::from_utf8(good.clone()).unwrap().replacen(&text::interpreter().to_string(), &"0".repeat(64), 1);
        let cut = good[..good.len() - 1].to_vec();
        for bad in [other.into_bytes(), cut, b"pacer interpreter".to_vec(), Vec::new()] {
            std::fs::write(&file, bad).unwrap();
            assert_eq!(read(&file), None);
        }
        assert!(write(&directory.path().join("none/pacer.interpreter"), b"").is_err());
    }
}
