//! Traces of others: whatever their bytes are, they are read or refused, and what was read can be worked with.

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::file::{self, FileError};
use super::tests::{at, sample};
use super::*;

/// What a text is damaged with.
const PIECES: [&str; 20] = [
    "",
    " ",
    "\n",
    "\r",
    "\t",
    ":",
    ",",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\u0000",
    "\u{1b}[31m",
    "null",
    "-1",
    "1e400",
    "99999999999999999999",
    "2999-12-31T23:59:59Z",
    "é",
];

fn lines() -> String {
    let trace = sample();
    let mut text = serde_json::to_string(&trace.header).unwrap() + "\n";
    for record in &trace.records {
        text += &(serde_json::to_string(record).unwrap() + "\n");
    }
    text
}

/// The sample with some letters replaced, and its lines in another order.
fn damaged() -> impl Strategy<Value = String> {
    let places = vec((any::<Index>(), 0_usize..6, select(&PIECES[..])), 0..5);
    (places, vec((any::<Index>(), any::<Index>()), 0..3)).prop_map(|(damages, swaps)| {
        let mut lines: Vec<String> = lines().lines().map(str::to_owned).collect();
        for (one, other) in swaps {
            let last = lines.len() - 1;
            lines.swap(1 + one.index(last), 1 + other.index(last));
        }
        let mut text: Vec<char> = (lines.join("\n") + "\n").chars().collect();
        for (place, length, piece) in damages {
            let place = place.index(text.len() + 1);
            text.splice(place..(place + length).min(text.len()), piece.chars());
        }
        text.into_iter().collect()
    })
}

fn compressed(parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().flat_map(|part| compress_to_vec(*part, CompressionLevel::Fastest)).collect()
}

proptest! {
    #[test]
    fn trace_is_read_or_refused_whatever_it_says(
        text in damaged(),
        cut in any::<Index>(),
        flips in vec((any::<Index>(), any::<u8>()), 0..4),
        zipped: bool,
    ) {
        let (first, second) = text.as_bytes().split_at(cut.index(text.len() + 1));
        let mut bytes = if zipped { compressed(&[first, second]) } else { text.clone().into_bytes() };
        let length = bytes.len();
        for (place, by) in flips {
            bytes[place.index(length)] ^= by;
        }
        let name = Path::new(if zipped { "a.jsonl.zst" } else { "a.jsonl" });
        match file::parse(name, &bytes) {
            Err(error) => {
                let message = error.to_string();
                prop_assert!(!message.contains(char::is_control) && message.len() < 2 << 10, "{message:?}");
            }
            Ok(contents) => {
                prop_assert_eq!(contents.whole + contents.torn, bytes.len() as u64);
                let _history = History::of(&contents.trace);
                let part = Redaction::new(b"key").apply(&contents.trace.cut(at(2), at(9)));
                let _history = History::of(&part);
            }
        }
    }

    #[test]
    fn lines_are_the_same_in_whatever_frames_they_come(cuts in vec(any::<Index>(), 0..5)) {
        let text = lines();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len())).chain([0, text.len()]).collect();
        cuts.sort_unstable();
        let parts: Vec<&[u8]> = cuts.windows(2).map(|ends| &text.as_bytes()[ends[0]..ends[1]]).collect();
        let contents = file::parse(Path::new("a.zst"), &compressed(&parts)).unwrap();
        prop_assert_eq!((contents.trace, contents.lines, contents.torn), (sample(), text.len() as u64, 0));
    }
}

#[test]
fn frame_that_holds_more_than_it_seems_is_refused_or_costs_nothing() {
    let large = 64 << 20;
    let header = lines().lines().next().unwrap().to_owned() + "\n";
    let endless = compressed(&[header.as_bytes(), &vec![b' '; large]]);
    assert!(endless.len() < 64 << 10, "{}", endless.len());
    let error = file::parse(Path::new("a.zst"), &endless).unwrap_err();
    assert!(matches!(error, FileError::Long { line: 2, .. }), "{error}");
    let empty = compressed(&[header.as_bytes(), &vec![b'\n'; large]]);
    let contents = file::parse(Path::new("a.zst"), &empty).unwrap();
    assert_eq!((contents.trace.records.len(), contents.torn), (0, 0));
}
