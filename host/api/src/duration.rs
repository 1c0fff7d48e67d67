//! Lengths of time as Go writes them, which is how ARC's manifests and flags do.

use std::time::Duration;

/// A text that is no length of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no duration: write numbers with units, such as 90s, 30m or 1h30m (units: h, m, s, ms, us, ns)")]
pub struct DurationError(String);

/// Reads Go's notation: one or more decimal numbers, each with a unit (`h`, `m`, `s`, `ms`, `us`, `ns`), or `0`.
///
/// # Errors
///
/// When the text is anything else, is negative, or exceeds about 584 years.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let error = || DurationError(text.to_owned());
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(error());
    }
    let mut nanos = 0_u64;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?);
        let (unit, tail) = tail.split_at(tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len()));
        let part = unit_nanos(unit).and_then(|unit| scaled(number, unit)).ok_or_else(error)?;
        nanos = nanos.checked_add(part).ok_or_else(error)?;
        rest = tail;
    }
    Ok(Duration::from_nanos(nanos))
}

fn unit_nanos(unit: &str) -> Option<u64> {
    Some(match unit {
        "h" => 3_600_000_000_000,
        "m" => 60_000_000_000,
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" | "µs" | "μs" => 1_000,
        "ns" => 1,
        _ => return None,
    })
}

/// `number` times `unit`; what is below a nanosecond is cut off.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // An hour has 13 digits of nanoseconds, so what comes after 18 cannot count.
    let digits = fraction.get(..fraction.len().min(18))?;
    let part = match digits {
        "" => 0,
        digits => u128::from(digits.parse::<u64>().ok()?) * u128::from(unit) / 10_u128.pow(u32::try_from(digits.len()).ok()?),
    };
    whole.checked_mul(unit)?.checked_add(u64::try_from(part).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("10m", Some(600_000_000_000)),
            ("1h30m", Some(5_400_000_000_000)),
            ("+90s", Some(90_000_000_000)),
            ("300ms", Some(300_000_000)),
            ("1.5h", Some(5_400_000_000_000)),
            (".5s", Some(500_000_000)),
            ("1.s", Some(1_000_000_000)),
            ("2h3m4.005s", Some(7_384_005_000_000)),
            ("5us", Some(5_000)),
            ("5µs7ns", Some(5_007)),
            ("", None),
            ("10", None),
            ("-10m", None),
            ("m", None),
            (".s", None),
            ("1.2.3s", None),
            ("10 m", None),
            ("1d", None),
            ("99999999h", None),
        ] {
            assert_eq!(parse(text).ok().map(|duration| duration.as_nanos()), expected, "{text:?}");
        }
        assert!(parse("soon").unwrap_err().to_string().starts_with("\"soon\" is no duration: write numbers"));
    }
}
