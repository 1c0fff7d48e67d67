//! Native code of the interpreter, compiled ahead into a file beside the program.
//!
//! Compiling it takes most of ten seconds of processor time, in every process that is given a text. The file is trusted as the program is, if it is of the
//! same owner, or the superuser's, and nobody else may write to it. Even so its code is only ever loaded in a process that is locked in.

use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use crate::component::Digest;
use crate::protocol::CODE_BYTES;
use crate::text;

/// The first line of such a file: of which interpreter this is the code, and which code.
fn head(code: &[u8]) -> String {
    format!("pacer interpreter {} {}\n", text::interpreter(), Digest::of(code))
}

/// Of a longer file the end is missing, and it counts as damaged.
const MOST_BYTES: u64 = (CODE_BYTES + 1024) as u64;

/// Write permission of the group and of everybody.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The code in a file; none when there is no file, or it is of another interpreter, or damaged, or others than the owner of `program` could have written it.
pub(super) fn read(file: &Path, program: &Path) -> Option<Vec<u8>> {
    let owner = std::fs::metadata(program).ok()?.uid();
    let opened = File::open(file).ok()?;
    let found = opened.metadata().ok()?;
    if ![owner, 0].contains(&found.uid()) || found.mode() & WRITABLE_BY_OTHERS != 0 {
        tracing::warn!(file = %file.display(), "the native code of the interpreter is not used: somebody else than the owner of the program may write it");
        return None;
    }
    let mut content = Vec::new();
    opened.take(MOST_BYTES).read_to_end(&mut content).ok()?;
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
    let written = File::create(new).and_then(|mut to| {
        to.set_permissions(Permissions::from_mode(0o644))?;
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
    fn file_that_is_damaged_or_of_another_interpreter_or_writable_by_others_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let (program, file) = (directory.path().join("pacer"), directory.path().join("pacer.interpreter"));
        std::fs::write(&program, "").unwrap();
        assert_eq!(read(&file, &program), None);
        write(&file, b"native\ncode").unwrap();
        assert_eq!(read(&file, &program).as_deref(), Some(&b"native\ncode"[..]));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
        for (mode, used) in [(0o664, false), (0o646, false), (0o600, true)] {
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&file, &program).is_some(), used, "{mode:o}");
        }
        let good = std::fs::read(&file).unwrap();
        let other = String::from_utf8(good.clone()).unwrap().replacen(&text::interpreter().to_string(), &"0".repeat(64), 1);
        let cut = good[..good.len() - 1].to_vec();
        for bad in [other.into_bytes(), cut, b"pacer interpreter".to_vec(), Vec::new()] {
            std::fs::write(&file, bad).unwrap();
            assert_eq!(read(&file, &program), None);
        }
        assert!(write(&directory.path().join("none/pacer.interpreter"), b"").is_err());
    }
}
