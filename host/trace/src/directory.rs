//! A trace in many files, so that what is old can go: each tells at its beginning what was not over by then, and is a trace by itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};

use crate::file::{self, Contents, FileError, Writer};
use crate::record::Subject;
use crate::{Header, History, Record, Trace, What};

/// How files begin and end that belong to a directory.
const NAME: (&str, &str) = ("trace-", ".jsonl.zst");

/// GitHub cancels a workflow run after 35 days, so the end of an older job was missed.
const LONGEST_JOB: SignedDuration = SignedDuration::from_hours(35 * 24);

/// How large files and their directory may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files. The oldest ones go first; the newest stays in any case.
    pub total: u64,
    /// Bytes of the lines of one file, uncompressed, beyond which the next one is begun. Reading a file takes some times that.
    pub lines: u64,
}

/// Writes into the newest file of a directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    limits: Limits,
    file: PathBuf,
    writer: Writer,
}

impl Directory {
    /// Goes on in the newest file, of whose lives it tells, or begins the first one. One that can't be gone on with is left as it is.
    ///
    /// # Errors
    ///
    /// When the directory can't be made, read or written.
    pub fn open(path: &Path, limits: Limits, now: Timestamp) -> Result<(Self, Option<History>), FileError> {
        fs::create_dir_all(path).map_err(io_error(path))?;
        let newest = files(path)?.pop();
        let known = newest.and_then(|file| Some((file::read(&file).ok().filter(|known| !known.trace.header.redacted)?, file)));
        let (file, writer, history) = match known {
            Some((contents, file)) => {
                let writer = Writer::append(&file, &contents)?;
                (file, writer, Some(History::of(&contents.trace)))
            }
            None => {
                let file = path.join(name(now));
                let mut writer = Writer::create(&file, &Header::new(now))?;
                // A process that is killed a moment later leaves a trace.
                writer.flush()?;
                (file, writer, None)
            }
        };
        Ok((Self { path: path.to_owned(), limits, file, writer }, history))
    }

    /// Adds a record. It is in a file after the next [`Directory::flush`], or earlier.
    ///
    /// # Errors
    ///
    /// When the file can't be written.
    pub fn record(&mut self, record: &Record) -> Result<(), FileError> {
        self.writer.record(record)
    }

    /// Writes what waits. Begins the next file when this one is long enough, and deletes the oldest ones when all together are too large.
    ///
    /// # Errors
    ///
    /// When a file can't be written, read or deleted.
    pub fn flush(&mut self, now: Timestamp) -> Result<(), FileError> {
        self.writer.flush()?;
        if self.writer.lines() > self.limits.lines {
            self.turn(now)?;
        }
        let mut files =
            files(&self.path)?.into_iter().map(|file| Ok((size(&file)?, file))).collect::<Result<Vec<_>, FileError>>()?;
        let mut total: u64 = files.iter().map(|(size, _)| size).sum();
        files.retain(|(_, file)| *file != self.file);
        for (size, file) in files {
            if total <= self.limits.total {
                break;
            }
            fs::remove_file(&file).map_err(io_error(&file))?;
            total = total.saturating_sub(size);
        }
        Ok(())
    }

    /// The next file, which tells what was not over.
    fn turn(&mut self, now: Timestamp) -> Result<(), FileError> {
        let file = self.path.join(name(now));
        if file == self.file {
            return Ok(());
        }
        let Trace { header, mut records } = file::read(&self.file)?.trace.cut(now, now);
        let is_lost = |record: &Record| {
            matches!(record.what.subject(), Some(Subject::Job(_))) && now.duration_since(record.at) > LONGEST_JOB
        };
        records.retain(|record| record.what != What::Checkpoint {} && !is_lost(record));
        let mut writer = Writer::create(&file, &header)?;
        records.iter().try_for_each(|record| writer.record(record))?;
        writer.flush()?;
        // Whatever stays open is told in each file; it must not make the next one too long at once.
        self.limits.lines = self.limits.lines.max(writer.lines().saturating_mul(2));
        (self.file, self.writer) = (file, writer);
        Ok(())
    }
}

/// Reads a trace: a file, or all files of a directory as one.
///
/// # Errors
///
/// When a file can't be read, is no trace, or has a line in the middle that is no record.
pub fn read(path: &Path) -> Result<Contents, FileError> {
    if !path.is_dir() {
        return file::read(path);
    }
    let mut whole: Option<Contents> = None;
    for file in files(path)? {
        let Contents { trace, lines, whole: bytes, torn } = file::read(&file)?;
        match &mut whole {
            None => whole = Some(Contents { trace, lines, whole: bytes, torn }),
            Some(before) => {
                before.trace.header.redacted |= trace.header.redacted;
                before.trace.records.extend(trace.records);
                (before.lines, before.whole, before.torn) = (before.lines + lines, before.whole + bytes, before.torn + torn);
            }
        }
    }
    whole.ok_or_else(|| FileError::Empty { path: path.to_owned() })
}

/// Name of a file that begins now. Names sort by time.
fn name(now: Timestamp) -> String {
    format!("{}{}{}", NAME.0, now.strftime("%Y%m%dT%H%M%S%.3fZ"), NAME.1)
}

/// The files of a directory, the oldest first. One that a process was killed over before it had written a byte is none.
fn files(path: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(io_error(path))? {
        let entry = entry.map_err(io_error(path))?;
        let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(NAME.0) && name.ends_with(NAME.1));
        if is_named && size(&entry.path())? > 0 {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn size(file: &Path) -> Result<u64, FileError> {
    Ok(fs::metadata(file).map_err(io_error(file))?.len())
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> FileError + '_ {
    |source| FileError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{About, PoolSettings};

    const LIMITS: Limits = Limits { total: 4_096, lines: 2_000 };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    fn record(seconds: i64, what: What) -> Record {
        Record { at: at(seconds), what }
    }

    fn job(job: u64) -> What {
        What::JobQueued { job, about: About { repository: format!("acme/{job:x}").into(), ..About::default() } }
    }

    #[test]
    fn the_files_of_a_directory_are_one_trace_and_each_is_one_by_itself() {
        let limits = Limits { total: 1 << 20, ..LIMITS };
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, history) = Directory::open(directory.path(), limits, at(0)).unwrap();
        assert!(history.is_none());
        let pool = PoolSettings { pool: "ci/web".into(), ..PoolSettings::default() };
        writer.record(&record(0, What::Pool(pool))).unwrap();
        for second in 1..40_u64 {
            let now = i64::try_from(second).unwrap();
            writer.record(&record(now, job(second))).unwrap();
            // The first stays open.
            if second > 1 {
                writer.record(&record(now, What::JobCompleted { job: second })).unwrap();
            }
            writer.flush(at(now)).unwrap();
        }
        let all = files(directory.path()).unwrap();
        assert!(all.len() > 2, "{all:?}");
        let last = History::of(&file::read(all.last().unwrap()).unwrap().trace);
        assert!(last.problems.is_empty() && last.pools.contains_key("ci/web"), "{:?}", last.problems);
        assert_eq!((last.jobs[&1].queued, last.jobs[&1].completed), (at(1), None));
        let whole = History::of(&read(directory.path()).unwrap().trace);
        assert_eq!((whole.jobs.len(), whole.started, whole.problems.len()), (39, at(0), 0));

        let (_, history) = Directory::open(directory.path(), limits, at(90)).unwrap();
        assert!(history.unwrap().jobs.contains_key(&1), "it is gone on with");
        assert_eq!(files(directory.path()).unwrap(), all);
    }

    #[test]
    fn the_oldest_files_go_when_all_are_too_large() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, _) = Directory::open(directory.path(), LIMITS, at(0)).unwrap();
        let mut first = None;
        for second in 1..2_000_u64 {
            let now = i64::try_from(second).unwrap();
            writer.record(&record(now, job(second.wrapping_mul(0x9e37_79b9_7f4a_7c15)))).unwrap();
            writer.record(&record(now, What::JobCompleted { job: second.wrapping_mul(0x9e37_79b9_7f4a_7c15) })).unwrap();
            if second % 10 == 0 {
                writer.flush(at(now)).unwrap();
            }
            first = first.or(files(directory.path()).unwrap().first().cloned());
        }
        let all = files(directory.path()).unwrap();
        let total: u64 = all.iter().map(|file| size(file).unwrap()).sum();
        assert!(total <= LIMITS.total + 2_000 && !all.contains(&first.unwrap()), "{total} bytes in {all:?}");
    }

    #[test]
    fn a_process_that_is_killed_as_it_begins_leaves_a_directory_that_can_be_read_and_gone_on_with() {
        let directory = tempfile::tempdir().unwrap();
        let (_, history) = Directory::open(directory.path(), LIMITS, at(0)).unwrap();
        assert!(
            history.is_none() && read(directory.path()).unwrap().trace.header.started == at(0),
            "it holds its header at once"
        );
        // As an earlier version left it, which wrote the header with the first records.
        fs::write(directory.path().join(name(at(5))), "").unwrap();
        assert_eq!(read(directory.path()).unwrap().trace.header.started, at(0));
        let (mut writer, history) = Directory::open(directory.path(), LIMITS, at(9)).unwrap();
        assert_eq!(history.unwrap().started, at(0));
        writer.record(&record(9, job(1))).unwrap();
        writer.flush(at(9)).unwrap();
        assert_eq!(History::of(&read(directory.path()).unwrap().trace).jobs.len(), 1);
    }

    #[test]
    fn what_can_not_be_gone_on_with_is_left_and_another_file_begun() {
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join(name(at(0)));
        fs::write(&other, "something else").unwrap();
        let (mut writer, history) = Directory::open(directory.path(), LIMITS, at(9)).unwrap();
        writer.flush(at(9)).unwrap();
        assert!(history.is_none() && fs::read(&other).unwrap() == b"something else");
        assert_eq!(files(directory.path()).unwrap().len(), 2);
        assert!(matches!(read(tempfile::tempdir().unwrap().path()), Err(FileError::Empty { .. })));
    }
}
