//! Texts that people write into objects: whatever they are, they are read or refused, and what is read is what was written.
//!
//! Who reads what comes from elsewhere, and where that is tried with anything (`make fuzz-decoders` for long):
//!
//! | what | tried in |
//! | --- | --- |
//! | lengths of time, quantities, moments with an offset; ledgers of jobs | here |
//! | schedules: recurrence rules and time zones | `host/operator/src/autoscaler/spec.rs`; the rules alone: `host/core/src/schedule/tests.rs` |
//! | policy sets, settings, tenancy files, both ends of the protocol with policy processes, receipts | `host/policy/src/decoders.rs` |
//! | compressed modules, WebAssembly before it is compiled | `host/jail/src/packing.rs`, `host/jail/src/decoders.rs` |
//! | answers of GitHub and their headers; webhooks: forms, payloads and signatures; keys, URLs and numbers of credentials | `host/github/tests/decoders` |
//! | manifests, signatures, challenges, tokens and references of registries, pull secrets, keys | `host/registry/src/decoders.rs` |
//! | traces | `host/trace/src/decoders.rs` |
//! | tables of node prices; what browsers and readers of metrics send with a request | `host/pacer/src/{run/settings,ui/access,health/scraper}.rs` |
//!
//! Objects themselves are read by the kinds' derived readers. Settings, requests and answers of JavaScript policies are read inside of WebAssembly,
//! in a process that holds nothing.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use proptest::prelude::*;

use crate::autoscaler::OffsetTime;
use crate::job_ledger::{self, JobLedgerSpec};
use crate::status_ledger::{self, LedgerEntry};
use crate::{duration, quantity};

#[test]
fn duration_is_read_or_refused_whatever_it_says() {
    pacer_fuzz::text!(["10m", "1h30m", "+2h3m4.005s", "300ms", ".5s7ns", "0", "90µs"], |text| {
        let Ok(read) = duration::parse(text) else { return false };
        assert_eq!(duration::parse(&format!("{}ns", read.as_nanos())), Ok(read), "{text:?}");
        true
    });
}

#[test]
fn quantity_is_read_or_refused_whatever_it_says() {
    pacer_fuzz::text!(["1Gi", "500m", "-1.5Ki", "1e6", "+12E-3", "0.000000001"], |text| {
        let Some(read) = quantity::nanos(&Quantity(text.to_owned())) else { return false };
        if !text.trim().starts_with(['-', '+']) {
            assert_eq!(quantity::nanos(&Quantity(format!("-{}", text.trim()))), Some(-read), "{text:?}");
        }
        true
    });
}

#[test]
fn moment_is_read_or_refused_and_written_as_the_same_one() {
    let messages =
        ["2026-01-31T08:00:00+09:00", "2026-06-30T23:59:59-03:30", "0000-01-01T00:00:00+23:59", "2026-01-31t08:00:00.5z"];
    pacer_fuzz::text!(messages, |text| {
        let Ok(read) = text.parse::<OffsetTime>() else { return false };
        // RFC 3339 has years of four digits.
        if (0..=9_999).contains(&read.zoned().year()) {
            let written = read.to_string();
            let again: OffsetTime = written.parse().unwrap_or_else(|error| panic!("{text:?} is {written}: {error}"));
            assert_eq!(again.offset(), read.offset(), "{text:?}");
            // Parts of a second are not written.
            let lost = read.timestamp().duration_since(again.timestamp());
            assert!(lost.as_secs() == 0 && !lost.is_negative(), "{text:?} is {written}");
        }
        true
    });
}

/// Whoever may write a tenant's objects may write these as well.
const LEDGERS: [&str; 2] = [
    r#"{"jobs":{"1":{"queued":"2026-01-01T00:00:00Z","started":"2026-01-01T00:00:05Z","workflow":"w","attempt":2,"runner":"web-a"},"2":{"queued":"2026-01-01T00:00:00Z","until":"2026-01-01T00:10:00Z"}},"workflows":{"w":{"name":"build","repository":"acme/app","labels":["x"]}}}"#,
    r#"{"jobs":{}}"#,
];

#[test]
fn ledger_of_jobs_is_read_or_refused_whatever_it_says() {
    pacer_fuzz::text!(LEDGERS, |text| {
        let Ok(spec) = serde_json::from_str::<JobLedgerSpec>(text) else { return false };
        let ledger = job_ledger::read([&spec]);
        assert!(ledger.all().count() <= spec.jobs.len());
        assert!(spec.all().all(|(id, _)| spec.has(id) && spec.job(id).is_some()));
        let _unused = spec.unused_workflows().count();
        true
    });
}

const ENTRIES: [&str; 1] = [
    r#"[{"state":"Queued","since":"2026-01-01T00:00:00Z","expires":"2026-01-01T00:10:00Z","repository":"acme/app","workflow":"build","labels":["x"],"jobs":[1,4,-1]},{"state":"InProgress","since":"2026-01-01T00:00:09Z","queued":"2026-01-01T00:00:00Z","attempt":2,"expires":"2026-01-06T00:00:09Z","repository":"acme/app","jobs":[2,3],"runners":["web-a",""]}]"#,
];

#[test]
fn ledger_of_an_earlier_version_is_read_or_refused_whatever_it_says() {
    pacer_fuzz::text!(ENTRIES, |text| {
        let Ok(entries) = serde_json::from_str::<Vec<LedgerEntry>>(text) else { return false };
        assert!(status_ledger::read(&entries).all().count() <= entries.iter().map(|entry| entry.jobs.len()).sum());
        true
    });
}

proptest! {
    #[test]
    fn duration_is_the_sum_of_its_parts(hours in 0_u64..100_000, minutes in 0_u64..1_000, millis in 0_u64..1_000_000) {
        let seconds = format!("{}.{:03}", millis / 1_000, millis % 1_000);
        let expected = Duration::from_secs(hours * 3_600 + minutes * 60) + Duration::from_millis(millis);
        prop_assert_eq!(duration::parse(&format!("{hours}h{minutes}m{seconds}s")), Ok(expected));
    }

    #[test]
    fn quantity_of_a_number_is_that_number(number in any::<i64>()) {
        prop_assert_eq!(quantity::nanos(&Quantity(number.to_string())), Some(i128::from(number) * 1_000_000_000));
    }
}
