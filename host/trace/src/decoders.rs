//! Traces of others: whatever their bytes are, they are read or refused, and what was read can be worked with.

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::file::{self, FileError};
use super::tests::{at, sample};
use super::*;

fn lines() -> String {
    let trace = sample();
    let mut text = serde_json::to_string(&trace.header).unwrap() + "\n";
    for record in &trace.records {
        text += &(serde_json::to_string(record).unwrap() + "\n");
    }
    text
}

fn compressed(parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().flat_map(|part| compress_to_vec(*part, CompressionLevel::Fastest)).collect()
}

/// Whether what lies in a file of this name is a trace, and can be worked with.
fn is_read(name: &str, bytes: &[u8]) -> bool {
    match file::parse(Path::new(name), bytes) {
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains(char::is_control) && message.len() < 2 << 10, "{message:?}");
            false
        }
        Ok(contents) => {
            assert_eq!(contents.whole + contents.torn, bytes.len() as u64);
            let _history = History::of(&contents.trace);
            let part = Redaction::new(b"key").apply(&contents.trace.cut(at(2), at(9)));
            let _history = History::of(&part);
            true
        }
    }
}

/// The sample, and its lines in another order.
fn traces() -> Vec<String> {
    let text = lines();
    let (header, records) = text.split_once('\n').unwrap();
    let turned: Vec<&str> = records.lines().rev().collect();
    vec![format!("{header}\n{}\n", turned.join("\n")), text]
}

#[test]
fn trace_is_read_or_refused_whatever_it_says() {
    pacer_fuzz::bytes!(traces(), |bytes| is_read("a.jsonl", bytes));
}

#[test]
fn compressed_trace_is_read_or_refused_whatever_it_says() {
    let frames = traces().into_iter().map(|text| {
        let (first, second) = text.as_bytes().split_at(text.len() / 2);
        compressed(&[first, second])
    });
    pacer_fuzz::bytes!(frames, |bytes| is_read("a.jsonl.zst", bytes));
}

proptest! {
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
