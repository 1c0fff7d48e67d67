//! Messages with some places damaged.

use std::fmt;

use bolero::{Driver, ValueGenerator};

/// What places are damaged with: what means something in JSON, YAML, headers, numbers, times and names.
const PIECES: &[&str] = &[
    "",
    " ",
    "\n",
    "\n  ",
    "\t",
    "\r",
    ":",
    ": ",
    ",",
    ".",
    ";",
    "=",
    "/",
    "@",
    "-",
    "- ",
    "+",
    "{",
    "}",
    "[",
    "]",
    "[[[[[[[[",
    "<",
    ">",
    "'",
    "\"",
    "\\",
    "\\u",
    "\\u0000",
    "\\ud83d",
    "\\ude00",
    "%",
    "%2",
    "&a ",
    "*a",
    "<<: *a",
    "!!binary ",
    "|\n",
    "0",
    "9",
    "-1",
    "1e5",
    "1e400",
    "0.1234567890123456789",
    "18446744073709551616",
    "99999999999999999999",
    "null",
    "true",
    "e",
    "E",
    "h",
    "m",
    "s",
    "ns",
    "µs",
    "Ki",
    "T",
    "Z",
    "[UTC]",
    "2999-12-31T23:59:59Z",
    "2026-99-01T00:00:00Z",
    "../",
    "\u{0}",
    "\u{1b}[31m",
    "\u{202e}",
    "é",
    "😀",
];

/// Most places that are damaged at once.
const PLACES: usize = 5;

/// Most bytes that a piece takes the place of.
const REPLACED: usize = 6;

/// Most bytes of any kind in one place.
const NOISE: usize = 4;

/// Makes inputs of messages: pieces in the place of some bytes, bytes of any kind, a part of another message, an end that is missing.
#[derive(Clone, Debug)]
pub struct Damaged {
    messages: Vec<Vec<u8>>,
}

/// What a decoder is given. Shows itself as text.
#[derive(Clone, PartialEq, Eq)]
pub struct Input(Vec<u8>);

impl Input {
    /// What the decoder is to read.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl Damaged {
    /// Makes its inputs from these messages.
    #[must_use]
    pub fn new(messages: Vec<Vec<u8>>) -> Self {
        Self { messages }
    }

    /// What comes to one place.
    fn piece<D: Driver>(&self, driver: &mut D) -> Option<Vec<u8>> {
        Some(match (0_u8..8).generate(driver)? {
            0 => {
                let length = (0..=NOISE).generate(driver)?;
                (0..length).map(|_| (0..=u8::MAX).generate(driver)).collect::<Option<_>>()?
            }
            1 => {
                let other = one(driver, &self.messages)?;
                let (begin, end) = ((0..=other.len()).generate(driver)?, (0..=other.len()).generate(driver)?);
                other.get(begin.min(end)..begin.max(end))?.to_vec()
            }
            _ => one(driver, PIECES)?.as_bytes().to_vec(),
        })
    }
}

impl ValueGenerator for Damaged {
    type Output = Input;

    fn generate<D: Driver>(&self, driver: &mut D) -> Option<Input> {
        let mut bytes = one(driver, &self.messages)?.clone();
        for _ in 0..(0..PLACES).generate(driver)? {
            let begin = (0..=bytes.len()).generate(driver)?;
            let end = (begin + (0..REPLACED).generate(driver)?).min(bytes.len());
            bytes.splice(begin..end, self.piece(driver)?);
        }
        if (0_u8..8).generate(driver)? == 0 {
            bytes.truncate((0..=bytes.len()).generate(driver)?);
        }
        Some(Input(bytes))
    }
}

/// Any one of them.
fn one<'a, D: Driver, T>(driver: &mut D, of: &'a [T]) -> Option<&'a T> {
    if of.is_empty() { None } else { of.get((0..of.len()).generate(driver)?) }
}
