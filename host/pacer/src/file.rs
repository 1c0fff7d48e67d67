//! Files that a command is given. They are read up to a bound: what is named may be a device that never ends.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::table;

/// Why a file can't be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// The file system refuses, or the file is no text where one is wanted.
    #[error("{} can't be read", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A directory, where a file is wanted.
    #[error("{} is a directory: name a file", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// It is longer than what is wanted can be.
    #[error("{} has more than {}, which is the limit for {what}", path.display(), table::bytes(*most))]
    Large {
        /// The file.
        path: PathBuf,
        /// Bytes that it may have.
        most: usize,
        /// What is wanted, in words: `a policy`.
        what: &'static str,
    },
}

/// The bytes of a file that holds `what`, which has at most so many.
///
/// # Errors
///
/// When it can't be read, is a directory, or has more.
pub(crate) fn read(path: &Path, most: usize, what: &'static str) -> Result<Vec<u8>, FileError> {
    let failed = |source| FileError::Io { path: path.to_owned(), source };
    let opened = File::open(path).map_err(failed)?;
    if opened.metadata().is_ok_and(|found| found.is_dir()) {
        return Err(FileError::Directory { path: path.to_owned() });
    }
    let mut bytes = Vec::new();
    let one_more = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    opened.take(one_more).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > most { Err(FileError::Large { path: path.to_owned(), most, what }) } else { Ok(bytes) }
}

/// The same of a text.
///
/// # Errors
///
/// As for [`read`], and when it is not UTF-8.
pub(crate) fn read_text(path: &Path, most: usize, what: &'static str) -> Result<String, FileError> {
    let bytes = read(path, most, what)?;
    let no_text = |error| FileError::Io { path: path.to_owned(), source: io::Error::new(io::ErrorKind::InvalidData, error) };
    String::from_utf8(bytes).map_err(|error| no_text(error.utf8_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_bound_and_a_device_that_never_ends_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("settings.yaml");
        std::fs::write(&path, "spare: 1").unwrap();
        assert_eq!(read(&path, 8, "it").unwrap(), b"spare: 1");
        assert_eq!(read_text(&path, 8, "it").unwrap(), "spare: 1");
        let told = |path: &Path, most| read_text(path, most, "a text of settings").unwrap_err().to_string();
        assert!(told(&path, 7).ends_with("settings.yaml has more than 7 bytes, which is the limit for a text of settings"));
        let endless = told(Path::new("/dev/zero"), 4 << 20);
        assert_eq!(endless, "/dev/zero has more than 4.0 MiB, which is the limit for a text of settings");
        assert!(told(directory.path(), 8).ends_with(" is a directory: name a file"));
        assert!(told(&directory.path().join("none"), 8).ends_with("none can't be read"));
        std::fs::write(&path, [0xff]).unwrap();
        assert!(told(&path, 8).ends_with("settings.yaml can't be read"));
    }
}
