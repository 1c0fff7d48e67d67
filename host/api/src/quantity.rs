//! The value of a Kubernetes quantity, whatever it is written like.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The quantity in units of 10^-9, rounded away from zero, as Kubernetes rounds.
///
/// `1Gi` and `1073741824`, or `0.5` and `500m`, give the same number. None when the text is no quantity or exceeds what fits: about
/// 1.7 * 10^29 units.
#[must_use]
pub fn nanos(quantity: &Quantity) -> Option<i128> {
    let text = quantity.0.trim();
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(split)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return None;
    }
    let mut mantissa = 0_i128;
    for digit in whole.bytes().chain(fraction.bytes()) {
        mantissa = mantissa.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    let (binary, decimal) = multiplier(suffix)?;
    let scaled = mantissa.checked_mul(2_i128.checked_pow(binary)?)?;
    let exponent = decimal.checked_add(9)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs());
    let magnitude = match power {
        _ if scaled == 0 => 0,
        Some(power) if exponent >= 0 => scaled.checked_mul(power)?,
        None if exponent >= 0 => return None,
        // The quotient of positive numbers; what is too small to count is still not zero.
        Some(power) => scaled / power + i128::from(scaled % power != 0),
        None => 1,
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// Whether the quantity is there and is zero.
#[must_use]
pub fn is_zero(quantity: &Quantity) -> bool {
    nanos(quantity) == Some(0)
}

/// Powers of 2 and of 10 that a suffix stands for.
fn multiplier(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "" => (0, 0),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => (0, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_kubernetes_reads_them() {
        let one = 1_000_000_000_i128;
        for (text, expected) in [
            ("0", Some(0)),
            ("0Gi", Some(0)),
            ("-0", Some(0)),
            ("1", Some(one)),
            ("+1", Some(one)),
            ("-1", Some(-one)),
            ("0.5", Some(one / 2)),
            (".5", Some(one / 2)),
            ("5.", Some(5 * one)),
            ("500m", Some(one / 2)),
            ("1M", Some(1_000_000 * one)),
            ("1e6", Some(1_000_000 * one)),
            ("1E6", Some(1_000_000 * one)),
            ("1E", Some(one * 10_i128.pow(18))),
            ("1Gi", Some(one << 30)),
            ("1.5Gi", Some(one * 3 * (1 << 29))),
            ("1e-10", Some(1)),
            ("1e-300", Some(1)),
            ("0e300", Some(0)),
            ("1e300", None),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("1 Gi", None),
            ("ten", None),
            ("1KiB", None),
        ] {
            assert_eq!(nanos(&Quantity(text.to_owned())), expected, "{text:?}");
        }
    }
}
