//! Where `pacer record` writes: one file that grows, or a directory whose oldest files go.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use jiff::Timestamp;
use pacer_trace::file::{self, FileError, Writer};
use pacer_trace::{Directory, Header, History, Limits, Record};

use super::{FLUSH, FLUSH_COMPRESSED, LINES_OF_A_FILE, RECORD_BYTES};

/// What is open for writing.
pub(super) enum Output {
    File { writer: Writer, flush: Duration },
    Directory(Box<Directory>),
}

impl Output {
    /// Goes on with what is there, of whose lives it tells, or begins anew. A directory is what exists as one, or has a name that ends in a slash; `total`
    /// bounds its bytes.
    ///
    /// # Errors
    ///
    /// When it can't be read or written, when it is a redacted file, or when bytes of a single file are to be bounded.
    pub(super) fn open(path: &Path, total: Option<u64>, now: Timestamp) -> Result<(Self, Option<History>)> {
        if path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            let limits = Limits { total: total.unwrap_or(RECORD_BYTES), lines: LINES_OF_A_FILE };
            let (directory, history) = Directory::open(path, limits, now)?;
            return Ok((Self::Directory(Box::new(directory)), history));
        }
        if total.is_some() {
            bail!(
                "--record-bytes bounds a directory, and {0} is a file: give --out {0}/, or leave --record-bytes out",
                path.display()
            );
        }
        let flush = if file::is_compressed(path) { FLUSH_COMPRESSED } else { FLUSH };
        match file::read(path) {
            Ok(contents) if contents.trace.header.redacted => {
                bail!("{} is redacted, so nothing can be added to it: give another file", path.display());
            }
            Ok(contents) => {
                let writer = Writer::append(path, &contents)?;
                Ok((Self::File { writer, flush }, Some(History::of(&contents.trace))))
            }
            Err(FileError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                let writer = Writer::create(path, &Header::new(now))?;
                Ok((Self::File { writer, flush }, None))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// How often it is to be flushed.
    pub(super) fn interval(&self) -> Duration {
        match self {
            Self::File { flush, .. } => *flush,
            Self::Directory(_) => FLUSH_COMPRESSED,
        }
    }

    /// Adds a record. It is on the disk after the next [`Output::flush`], or earlier.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub(super) fn record(&mut self, record: &Record) -> Result<(), FileError> {
        match self {
            Self::File { writer, .. } => writer.record(record),
            Self::Directory(directory) => directory.record(record),
        }
    }

    /// Writes what waits.
    ///
    /// # Errors
    ///
    /// When it can't be written, or an old file can't be deleted.
    pub(super) fn flush(&mut self, now: Timestamp) -> Result<(), FileError> {
        match self {
            Self::File { writer, .. } => writer.flush(),
            Self::Directory(directory) => directory.flush(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use pacer_trace::What;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_795_000_000 + second).unwrap()
    }

    fn checkpoint(second: i64) -> Record {
        Record { at: at(second), what: What::Checkpoint {} }
    }

    fn refusal(path: &Path, total: Option<u64>) -> String {
        Output::open(path, total, at(0)).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn file_or_directory_is_gone_on_with() {
        let home = tempfile::tempdir().unwrap();
        let existing = home.path().join("existing");
        std::fs::create_dir(&existing).unwrap();
        for (path, interval) in [
            (home.path().join("week.jsonl"), FLUSH),
            (home.path().join("week.jsonl.zst"), FLUSH_COMPRESSED),
            (home.path().join("new/"), FLUSH_COMPRESSED),
            (existing, FLUSH_COMPRESSED),
        ] {
            for second in [1, 3] {
                let (mut output, history) = Output::open(&path, None, at(second)).unwrap();
                assert_eq!((history.is_some(), output.interval()), (second == 3, interval), "{}", path.display());
                output.record(&checkpoint(second + 1)).unwrap();
                output.flush(at(second + 1)).unwrap();
            }
            let records = pacer_trace::read(&path).unwrap().trace.records;
            let ends: Vec<Timestamp> = records.iter().map(|record| record.at).collect();
            assert!(ends.ends_with(&[at(2), at(4)]), "{}: {ends:?}", path.display());
        }
        assert!(home.path().join("new").is_dir() && home.path().join("week.jsonl").is_file());
    }

    #[test]
    fn directory_keeps_to_the_bytes_that_it_was_given() {
        let home = tempfile::tempdir().unwrap();
        for second in 0..4 {
            let old = home.path().join(format!("trace-2026-11-0{}T00:00:00Z.jsonl.zst", second + 1));
            Output::open(&old, None, at(second)).unwrap().0.flush(at(second)).unwrap();
        }
        let files = || std::fs::read_dir(home.path()).unwrap().count();
        assert_eq!(files(), 4);
        let (mut output, _) = Output::open(home.path(), Some(1), at(9)).unwrap();
        output.flush(at(9)).unwrap();
        assert_eq!(files(), 1, "the newest stays");
    }

    #[test]
    fn bound_of_a_file_and_an_addition_to_a_redacted_one_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("week.jsonl");
        let told = refusal(&path, Some(1));
        assert!(told.contains("--record-bytes bounds a directory") && told.contains("week.jsonl/"), "{told}");
        assert!(!path.exists());
        let mut writer = Writer::create(&path, &Header { redacted: true, ..Header::new(at(0)) }).unwrap();
        writer.flush().unwrap();
        assert!(refusal(&path, None).contains("is redacted"));
    }
}
