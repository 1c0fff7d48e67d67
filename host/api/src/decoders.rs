//! Texts that people write into objects: whatever they are, they are read or refused, and what is read is what was written.
//!
//! Who reads what comes from elsewhere, and where that is tried with anything (`make fuzz-decoders` for long):
//!
//! | what | tried in |
//! | --- | --- |
//! | lengths of time, quantities, moments with an offset | here |
//! | schedules: recurrence rules and time zones | `host/operator/src/autoscaler/spec.rs`; the rules alone: `host/core/src/schedule/tests.rs` |
//! | policy sets, settings, tenancy files, both ends of the protocol with policy processes, receipts | `host/policy/src/decoders.rs` |
//! | compressed modules | `host/jail/src/packing.rs` |
//! | answers of GitHub | `host/github/tests/github/decoders.rs` |
//! | webhooks: forms and payloads; signatures | `host/github/tests/deliveries`; `host/github/src/webhook/signature.rs` |
//! | ledgers of jobs | `host/api/src/job_ledger/tests.rs` |
//!
//! Objects themselves are read by the kinds' derived readers.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::autoscaler::OffsetTime;
use crate::{duration, quantity};

const DURATIONS: [&str; 5] = ["10m", "1h30m", "+2h3m4.005s", "300ms", ".5s7ns"];

const QUANTITIES: [&str; 6] = ["1Gi", "500m", "-1.5Ki", "1e6", "+12E-3", "0.000000001"];

const MOMENTS: [&str; 5] = [
    "2026-01-31T08:00:00+09:00",
    "2026-02-29T08:00:00Z",
    "2026-06-30T23:59:60-03:30",
    "0000-01-01T00:00:00+23:59",
    "2026-01-31t08:00:00.5z",
];

/// What a text is damaged with.
const PIECES: [&str; 22] = [
    "",
    " ",
    "0",
    "9",
    "-",
    "+",
    ".",
    ":",
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
    "\u{0}",
    "99999999999999999999",
    "é",
];

fn damaged(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    let text = (select(texts), vec((any::<Index>(), 0_usize..4, select(&PIECES[..])), 0..5)).prop_map(|(text, damages)| {
        let mut text: Vec<char> = text.chars().collect();
        for (place, length, piece) in damages {
            let place = place.index(text.len() + 1);
            text.splice(place..(place + length).min(text.len()), piece.chars());
        }
        text.into_iter().collect()
    });
    prop_oneof![6 => text, 1 => any::<String>()]
}

proptest! {
    #[test]
    fn duration_is_read_or_refused_whatever_it_says(text in damaged(&DURATIONS)) {
        if let Ok(read) = duration::parse(&text) {
            prop_assert_eq!(duration::parse(&format!("{}ns", read.as_nanos())), Ok(read), "{:?}", text);
        }
    }

    #[test]
    fn duration_is_the_sum_of_its_parts(hours in 0_u64..100_000, minutes in 0_u64..1_000, millis in 0_u64..1_000_000) {
        let seconds = format!("{}.{:03}", millis / 1_000, millis % 1_000);
        let expected = Duration::from_secs(hours * 3_600 + minutes * 60) + Duration::from_millis(millis);
        prop_assert_eq!(duration::parse(&format!("{hours}h{minutes}m{seconds}s")), Ok(expected));
    }

    #[test]
    fn quantity_is_read_or_refused_whatever_it_says(text in damaged(&QUANTITIES)) {
        let read = quantity::nanos(&Quantity(text.clone()));
        if let (Some(read), false) = (read, text.trim().starts_with(['-', '+'])) {
            prop_assert_eq!(quantity::nanos(&Quantity(format!("-{}", text.trim()))), Some(-read), "{:?}", text);
        }
    }

    #[test]
    fn quantity_of_a_number_is_that_number(number in any::<i64>()) {
        prop_assert_eq!(quantity::nanos(&Quantity(number.to_string())), Some(i128::from(number) * 1_000_000_000));
    }

    #[test]
    fn moment_is_read_or_refused_and_written_as_the_same_one(text in damaged(&MOMENTS)) {
        // RFC 3339 has years of four digits.
        if let Ok(read) = text.parse::<OffsetTime>() && (0..=9_999).contains(&read.zoned().year()) {
            let written = read.to_string();
            let again: OffsetTime = written.parse().map_err(|error| TestCaseError::fail(format!("{text:?} is {written}: {error}")))?;
            prop_assert_eq!(again.offset(), read.offset(), "{:?}", text);
            // Parts of a second are not written.
            let lost = read.timestamp().duration_since(again.timestamp());
            prop_assert!(lost.as_secs() == 0 && !lost.is_negative(), "{text:?} is {written}");
        }
    }
}
