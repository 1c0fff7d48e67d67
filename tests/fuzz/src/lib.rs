//! Tries decoders of foreign bytes with anything: whatever the bytes are, they are read or refused.
//!
//! A decoder is a test that calls [`bytes!`] or [`text!`] with messages that are in order and a closure, which reads its input, fails where what was
//! read is wrong, and says whether it was read. It lies in a module named `decoders` beside the code, or in the test target `decoders`, so that
//! `tests/fuzz/run.sh` finds it.
//!
//! In `cargo test` the closure has to read every message, is given what lies in `__fuzz__/<test>/crashes` (findings), and then for a short while messages
//! with some [`Damaged`] places and bytes of any kind. Built for libFuzzer (`make fuzz-decoders`) it is given what the fuzzer makes of these
//! messages, guided by the branches that they reach.

mod damage;

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

pub use bolero;

pub use damage::{Damaged, Input};

/// How many inputs of a kind one test takes in `cargo test`. `BOLERO_RANDOM_ITERATIONS` in the environment goes before it.
pub const INPUTS: usize = 512;

/// How long it takes them at most. `BOLERO_RANDOM_TEST_TIME_MS` in the environment goes before it.
pub const TIME: Duration = Duration::from_millis(700);

/// Names the directory into which a fuzzer gets its first inputs.
const DIRECTORY: &str = "PACER_FUZZ_SEEDS";

/// Leaves messages to the fuzzer where it looks for them; says whether there is one.
///
/// # Errors
///
/// When a file can't be written.
pub fn plant(messages: &[Vec<u8>]) -> io::Result<bool> {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return Ok(false) };
    for (number, message) in messages.iter().enumerate() {
        fs::write(Path::new(&directory).join(format!("message-{number}")), message)?;
    }
    Ok(true)
}

/// A decoder of bytes: messages that are in order, and what reads them and says whether it did.
#[macro_export]
macro_rules! bytes {
    ($messages:expr, $read:expr) => {{
        // Says where it lies and returns, if that is all that is asked.
        let raw = $crate::bolero::check!();
        let read: fn(&[u8]) -> bool = $read;
        let messages: Vec<Vec<u8>> = $messages.into_iter().map(|message| AsRef::<[u8]>::as_ref(&message).to_vec()).collect();
        let guided = $crate::plant(&messages).unwrap();
        for message in messages.iter().filter(|_| !guided) {
            assert!(read(message), "a message in order is refused: {}", message.escape_ascii());
        }
        // A fuzzer stays in here.
        raw.with_iterations($crate::INPUTS).with_test_time($crate::TIME).for_each(|bytes: &[u8]| {
            read(bytes);
        });
        let damaged = $crate::bolero::check!().with_generator($crate::Damaged::new(messages));
        damaged.with_iterations($crate::INPUTS).with_test_time($crate::TIME).for_each(|input: &$crate::Input| {
            read(input.bytes());
        });
    }};
}

/// A decoder of texts; bytes that are none reach it nowhere.
#[macro_export]
macro_rules! text {
    ($messages:expr, $read:expr) => {
        $crate::bytes!($messages, |bytes: &[u8]| {
            let read: fn(&str) -> bool = $read;
            std::str::from_utf8(bytes).is_ok_and(read)
        })
    };
}
