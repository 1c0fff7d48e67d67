//! How lines are kept: JSON, one object a line; with a name that ends in `.zst` in frames of zstd, one after the other.
//!
//! A writer adds whole lines, or whole frames. One that was killed in the middle leaves a torn end, which readers leave out and the next writer
//! cuts off.
//!
//! A trace may come from somebody else: lines are read as they are decompressed, and a frame that holds more than it seems to costs no memory
//! beyond its records.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::Trace;
use crate::record::{FORMAT, Header, Record, VERSION};

/// Longest line. A record has some two hundred bytes; labels and names are bounded by GitHub.
const LINE: usize = 1 << 20;

/// Bytes of lines that make a frame, at the most.
const FRAME: usize = 1 << 20;

/// Bytes that are read or decompressed at a time.
const PIECE: usize = 64 << 10;

/// Most bytes of all lines of a file: some ten million records, which have to fit into memory.
const MOST: u64 = 2 << 30;

/// Longest message about a line, in characters: it quotes what is in the line.
const MESSAGE: usize = 300;

/// Why a trace can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file system refuses.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Error of the operating system, or of making a line of JSON.
        source: io::Error,
    },
    /// A directory without traces.
    #[error("{path} is a directory without a trace: name a file, or the directory that `pacer run --record` writes into")]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// The first line is no header.
    #[error(
        "{path} is no trace: its first line has to be {{\"format\":\"{FORMAT}\",\"version\":{VERSION},...}}; make one with `pacer record`"
    )]
    NoHeader {
        /// The file.
        path: PathBuf,
    },
    /// It is of another version.
    #[error(
        "{path} is a trace of version {found} and this program reads version {VERSION}: use the program that wrote it, or a newer one"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The version that its header names.
        found: u32,
    },
    /// A line is no record.
    #[error("{path}, line {line}: {message}")]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// Message of the JSON parser, at most 300 characters.
        message: String,
    },
    /// It has too many lines.
    #[error("{path} has more than {} GiB of lines: record into a directory, where the size of files is limited, or record a shorter time", MOST >> 30)]
    Large {
        /// The file.
        path: PathBuf,
    },
    /// A line is too long to be a record.
    #[error("{path}, line {line}: more than {LINE} bytes")]
    Long {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> FileError + '_ {
    |source| FileError::Io { path: path.to_owned(), source }
}

/// Whether a file of this name is compressed.
#[must_use]
pub fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("zst"))
}

/// A trace, and how much of its file is whole.
#[derive(Debug)]
pub struct Contents {
    /// The header, and the records of all whole lines.
    pub trace: Trace,
    /// Bytes of its lines, uncompressed.
    pub lines: u64,
    /// Bytes of the file up to the last whole line or frame.
    pub whole: u64,
    /// Bytes after that, which are left out.
    pub torn: u64,
}

/// Reads the trace in a file.
///
/// # Errors
///
/// When the file can't be read, is no trace, is too large, or has a line in the middle that is no record.
pub fn read(path: &Path) -> Result<Contents, FileError> {
    let file = File::open(path).map_err(io_error(path))?;
    let length = file.metadata().map_err(io_error(path))?.len();
    parse_from(path, BufReader::with_capacity(PIECE, file), length)
}

/// Reads the trace in the bytes of a file of this name.
#[cfg(test)]
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Contents, FileError> {
    parse_from(path, bytes, bytes.len() as u64)
}

/// Reads a trace piece by piece, so that what is none is refused at its beginning, however long it is. `length` is that of the file; 0 of a device.
fn parse_from(path: &Path, input: impl BufRead, length: u64) -> Result<Contents, FileError> {
    let mut lines = Lines::of(path);
    let mut input = Counted { input, read: 0 };
    let whole = if is_compressed(path) {
        let whole = decompress(&mut input, &mut lines)?;
        // Whoever compressed it may have left out the end of the last line.
        lines.end()?;
        whole
    } else {
        take_all(&mut input, &mut lines)?;
        let torn = lines.begun.len() as u64;
        lines.bytes = lines.bytes.saturating_sub(torn);
        input.read.saturating_sub(torn)
    };
    let header = lines.header.ok_or_else(|| FileError::NoHeader { path: path.to_owned() })?;
    let torn = length.max(input.read).saturating_sub(whole);
    let trace = Trace { header, records: lines.records };
    Ok(Contents { trace, lines: lines.bytes, whole, torn })
}

/// Counts the bytes that are read.
struct Counted<R> {
    input: R,
    read: u64,
}

impl<R: BufRead> Counted<R> {
    /// What comes next; empty at the end.
    fn next(&mut self, path: &Path) -> Result<&[u8], FileError> {
        self.input.fill_buf().map_err(io_error(path))
    }

    fn consume(&mut self, length: usize) {
        self.input.consume(length);
        self.read = self.read.saturating_add(length as u64);
    }
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let length = self.input.read(bytes)?;
        self.read = self.read.saturating_add(length as u64);
        Ok(length)
    }
}

/// Takes all lines of what is not compressed.
fn take_all(input: &mut Counted<impl BufRead>, lines: &mut Lines<'_>) -> Result<(), FileError> {
    loop {
        let piece = input.next(lines.path)?;
        let length = piece.len();
        if length == 0 {
            return Ok(());
        }
        lines.take(piece)?;
        input.consume(length);
    }
}

/// Takes the lines of all whole frames. Returns where the last of these ends.
fn decompress(input: &mut Counted<impl BufRead>, lines: &mut Lines<'_>) -> Result<u64, FileError> {
    let mut piece = vec![0; PIECE];
    while !input.next(lines.path)?.is_empty() {
        let (mark, at) = (lines.mark(), input.read);
        let Ok(mut frame) = StreamingDecoder::new(&mut *input) else { return Ok(at) };
        // A frame that turns out to be torn says nothing, whatever its lines were.
        let mut outcome = Ok(());
        loop {
            match frame.read(&mut piece) {
                Ok(0) => break,
                Ok(length) if outcome.is_ok() => outcome = lines.take(piece.get(..length).unwrap_or_default()),
                Ok(_) => {}
                Err(_) => {
                    lines.back_to(mark);
                    return Ok(at);
                }
            }
        }
        outcome?;
    }
    Ok(input.read)
}

/// Lines as they come, in pieces that end anywhere.
struct Lines<'a> {
    path: &'a Path,
    header: Option<Header>,
    records: Vec<Record>,
    /// Lines that have ended.
    number: usize,
    /// The line that has not ended.
    begun: Vec<u8>,
    /// Bytes of all pieces taken so far.
    bytes: u64,
}

/// How far lines had come.
struct Mark {
    has_header: bool,
    records: usize,
    number: usize,
    begun: Vec<u8>,
    bytes: u64,
}

impl<'a> Lines<'a> {
    fn of(path: &'a Path) -> Self {
        Self { path, header: None, records: Vec::new(), number: 0, begun: Vec::new(), bytes: 0 }
    }

    fn mark(&self) -> Mark {
        let (has_header, records) = (self.header.is_some(), self.records.len());
        Mark { has_header, records, number: self.number, begun: self.begun.clone(), bytes: self.bytes }
    }

    fn back_to(&mut self, mark: Mark) {
        if !mark.has_header {
            self.header = None;
        }
        self.records.truncate(mark.records);
        (self.number, self.begun, self.bytes) = (mark.number, mark.begun, mark.bytes);
    }

    fn take(&mut self, piece: &[u8]) -> Result<(), FileError> {
        self.bytes += piece.len() as u64;
        if self.bytes > MOST {
            return Err(FileError::Large { path: self.path.to_owned() });
        }
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            if self.begun.len().saturating_add(text.len()) > LINE {
                return Err(FileError::Long { path: self.path.to_owned(), line: self.number + 1 });
            }
            self.begun.extend_from_slice(text);
            if ends {
                self.end()?;
            }
        }
        Ok(())
    }

    /// The line that has begun is over.
    fn end(&mut self) -> Result<(), FileError> {
        let line = std::mem::take(&mut self.begun);
        self.number += 1;
        if self.header.is_none() {
            self.header = Some(header(self.path, &line)?);
        } else if !line.iter().all(u8::is_ascii_whitespace) {
            self.records.push(serde_json::from_slice(&line).map_err(|error| FileError::Line {
                path: self.path.to_owned(),
                line: self.number,
                message: error.to_string().chars().filter(|letter| !letter.is_control()).take(MESSAGE).collect(),
            })?);
        }
        Ok(())
    }
}

fn header(path: &Path, line: &[u8]) -> Result<Header, FileError> {
    let none = || FileError::NoHeader { path: path.to_owned() };
    let header: Header = serde_json::from_slice(line).map_err(|_| none())?;
    match header.version {
        _ if header.format != FORMAT => Err(none()),
        VERSION => Ok(header),
        found => Err(FileError::Version { path: path.to_owned(), found }),
    }
}

/// Adds lines to a file.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
    compressed: bool,
    /// Lines that are not in the file yet.
    pending: Vec<u8>,
    /// Bytes of all lines, uncompressed.
    lines: u64,
}

impl Writer {
    /// Begins a file that must not exist.
    ///
    /// # Errors
    ///
    /// When it exists, or can't be made.
    pub fn create(path: &Path, header: &Header) -> Result<Self, FileError> {
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(io_error(path))?;
        let mut writer = Self { path: path.to_owned(), file, compressed: is_compressed(path), pending: Vec::new(), lines: 0 };
        writer.line(header)?;
        Ok(writer)
    }

    /// Goes on after the whole part of a file that was read.
    ///
    /// # Errors
    ///
    /// When it can't be opened or cut.
    pub fn append(path: &Path, contents: &Contents) -> Result<Self, FileError> {
        let mut file = OpenOptions::new().write(true).open(path).map_err(io_error(path))?;
        file.set_len(contents.whole).and_then(|()| file.seek(SeekFrom::End(0))).map_err(io_error(path))?;
        let (compressed, lines) = (is_compressed(path), contents.lines);
        Ok(Self { path: path.to_owned(), file, compressed, pending: Vec::new(), lines })
    }

    /// Adds a record. It is in the file after the next [`Writer::flush`], or earlier.
    ///
    /// # Errors
    ///
    /// When the file can't be written.
    pub fn record(&mut self, record: &Record) -> Result<(), FileError> {
        self.line(record)
    }

    fn line(&mut self, value: &impl serde::Serialize) -> Result<(), FileError> {
        let bad = |error: serde_json::Error| FileError::Io { path: self.path.clone(), source: error.into() };
        let line = serde_json::to_vec(value).map_err(bad)?;
        self.lines += line.len() as u64 + 1;
        self.pending.extend(line);
        self.pending.push(b'\n');
        if self.pending.len() >= FRAME { self.flush() } else { Ok(()) }
    }

    /// Bytes of all lines of the file, uncompressed; those that wait included.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Bytes that wait for [`Writer::flush`].
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Writes what waits.
    ///
    /// # Errors
    ///
    /// When the file can't be written.
    pub fn flush(&mut self) -> Result<(), FileError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.pending);
        let bytes = if self.compressed { compress_to_vec(bytes.as_slice(), CompressionLevel::Fastest) } else { bytes };
        self.file.write_all(&bytes).map_err(io_error(&self.path))
    }
}

/// Writes a trace into a file that must not exist.
///
/// # Errors
///
/// When it exists, or can't be written.
pub fn write(path: &Path, trace: &Trace) -> Result<(), FileError> {
    let mut writer = Writer::create(path, &trace.header)?;
    trace.records.iter().try_for_each(|record| writer.record(record))?;
    writer.flush()
}
