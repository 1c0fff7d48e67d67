//! How many runners the share of busy ones asks for: the metric PercentageRunnersBusy (arc-behaviour 3.4).
//!
//! Numbers are decimals as they were written, where ARC has binary floats. The results are the same but for products that a float misses by a
//! hair: 100 runners times 1.1 are 110 here and 111 in ARC (110.00000000000001, rounded up), and times 0.29 they are 29 here and 28 in
//! ARC (28.999999999999996, cut off). Numbers with more than 28 digits, in hexadecimal, infinite or not a number are refused.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::autoscale::Suggestion;

/// What `spec.metrics[]` says about the metric, as written. Empty texts and an adjustment of 0 count as absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    /// `scaleUpThreshold`: share of busy runners from which the fleet is scaled up; 0.8 when absent.
    pub scale_up_threshold: Option<&'a str>,
    /// `scaleDownThreshold`: share of busy runners below which the fleet is scaled down; 0.3 when absent.
    pub scale_down_threshold: Option<&'a str>,
    /// `scaleUpFactor`: what the number is multiplied by to scale up; 1.3 when neither it nor the adjustment is given.
    pub scale_up_factor: Option<&'a str>,
    /// `scaleDownFactor`: what the number is multiplied by to scale down; 0.7 when neither it nor the adjustment is given.
    pub scale_down_factor: Option<&'a str>,
    /// `scaleUpAdjustment`: runners that are added to scale up, in place of the factor.
    pub scale_up_adjustment: Option<i32>,
    /// `scaleDownAdjustment`: runners that are taken away to scale down, in place of the factor.
    pub scale_down_adjustment: Option<i32>,
}

/// When the fleet grows or shrinks, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Share of busy runners from which the fleet grows.
    pub up_threshold: Decimal,
    /// Share of busy runners below which the fleet shrinks.
    pub down_threshold: Decimal,
    /// By how much the fleet is scaled up at `up_threshold` or above.
    pub up: Change,
    /// By how much the fleet is scaled down below `down_threshold`.
    pub down: Change,
}

/// How a fleet changes its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// By multiplication; rounded up when the fleet grows, cut off when it shrinks.
    Factor(Decimal),
    /// By adding or taking away this number of runners.
    Adjustment(u32),
}

/// Numbers of runners that the metric is computed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The target's number of runners so far.
    pub before: u32,
    /// Its runners that GitHub lists as busy.
    pub busy: u32,
    /// Further ones that GitHub refused to remove because they run a job.
    pub terminating_busy: u32,
    /// Its runners that GitHub lists.
    pub registered: u32,
}

/// A field that does not make sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The text of a threshold or factor can't be read as a decimal number.
    #[error("spec.metrics[].{field} is {text:?}, which {cause}")]
    Number {
        /// Name of the field.
        field: &'static str,
        /// Text of the field.
        text: String,
        /// What is wrong with it.
        cause: DecimalError,
    },
    /// An adjustment is below 0.
    #[error("spec.metrics[].{field} is {value}: it must not be negative")]
    Negative {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: i32,
    },
    /// Two ways to change at once.
    #[error("spec.metrics[].{factor} and spec.metrics[].{adjustment} exclude each other: remove one of them")]
    Both {
        /// Name of the factor's field.
        factor: &'static str,
        /// Name of the adjustment's field.
        adjustment: &'static str,
    },
}

impl Rules {
    /// Reads the fields. Defaults: thresholds 0.8 and 0.3, factors 1.3 and 0.7.
    ///
    /// # Errors
    ///
    /// Names the field that is no number, is negative, or contradicts another.
    pub fn parse(fields: &Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            up_threshold: number("scaleUpThreshold", fields.scale_up_threshold)?.unwrap_or(Decimal::tenths(8)),
            down_threshold: number("scaleDownThreshold", fields.scale_down_threshold)?.unwrap_or(Decimal::tenths(3)),
            up: change(
                ("scaleUpFactor", fields.scale_up_factor),
                ("scaleUpAdjustment", fields.scale_up_adjustment),
                Decimal::tenths(13),
            )?,
            down: change(
                ("scaleDownFactor", fields.scale_down_factor),
                ("scaleDownAdjustment", fields.scale_down_adjustment),
                Decimal::tenths(7),
            )?,
        })
    }

    /// What the count asks for. 0 means that the metric has nothing to say.
    ///
    /// A fleet of no runners with none busy stays at 0. One of no runners of which some are still busy counts as busy beyond any threshold.
    #[must_use]
    pub fn suggest(&self, count: &Count) -> Suggestion {
        let before = count.before;
        let (side, replicas) = if count.share_against(self.up_threshold).is_some_and(Ordering::is_ge) {
            let replicas = match self.up {
                Change::Factor(factor) => factor.times_rounded_up(before),
                Change::Adjustment(step) => before.saturating_add(step),
            };
            (format!("at or above {}", self.up_threshold), replicas)
        } else if count.share_against(self.down_threshold).is_some_and(Ordering::is_lt) {
            let replicas = match self.down {
                Change::Factor(factor) => factor.times_cut_off(before),
                Change::Adjustment(step) => before.saturating_sub(step),
            };
            (format!("below {}", self.down_threshold), replicas)
        } else {
            (format!("neither below {} nor at {} or above", self.down_threshold, self.up_threshold), before)
        };
        Suggestion { replicas, what: format!("{count}, {side}: {before} -> {replicas}") }
    }
}

impl Count {
    fn all_busy(&self) -> i128 {
        i128::from(self.busy).saturating_add(i128::from(self.terminating_busy))
    }

    /// How the share of busy runners compares to a threshold; none when there is nothing to divide.
    fn share_against(&self, threshold: Decimal) -> Option<Ordering> {
        if self.before == 0 {
            return (self.all_busy() > 0).then_some(Ordering::Greater);
        }
        let threshold_times_before = threshold.coefficient.saturating_mul(i128::from(self.before));
        Some(self.all_busy().saturating_mul(threshold.unit()).cmp(&threshold_times_before))
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} busy", self.all_busy(), self.before)?;
        match (self.terminating_busy, self.registered) {
            (0, registered) if registered == self.before => Ok(()),
            (0, registered) => write!(f, " ({registered} registered)"),
            (terminating, registered) if registered == self.before => write!(f, " ({terminating} of them to be removed)"),
            (terminating, registered) => write!(f, " ({terminating} of them to be removed, {registered} registered)"),
        }
    }
}

fn number(field: &'static str, text: Option<&str>) -> Result<Option<Decimal>, FieldError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    text.parse().map(Some).map_err(|cause| FieldError::Number { field, text: text.to_owned(), cause })
}

fn change(
    (factor, factor_text): (&'static str, Option<&str>),
    (adjustment, value): (&'static str, Option<i32>),
    default: Decimal,
) -> Result<Change, FieldError> {
    let given = number(factor, factor_text)?;
    let value = value.unwrap_or(0);
    let step = u32::try_from(value).map_err(|_| FieldError::Negative { field: adjustment, value })?;
    match (given, step) {
        (Some(_), 1..) => Err(FieldError::Both { factor, adjustment }),
        (None, 1..) => Ok(Change::Adjustment(step)),
        (given, 0) => Ok(Change::Factor(given.unwrap_or(default))),
    }
}

/// A decimal number, exactly as written: at most 28 digits, before and after the point together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    /// All digits; below 10^28, so that products with counts of runners fit.
    coefficient: i128,
    /// How many of them are after the point; at most 28.
    scale: u32,
}

/// A text that is no decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// The text does not have the form of a decimal number.
    #[error("is no decimal number such as 0.8")]
    Malformed,
    /// More digits than are kept.
    #[error("has more than {} digits", Decimal::DIGITS)]
    TooManyDigits,
}

impl Decimal {
    const DIGITS: usize = 28;

    const fn tenths(count: i128) -> Self {
        Self { coefficient: count, scale: 1 }
    }

    /// What the coefficient is divided by.
    fn unit(self) -> i128 {
        10_i128.saturating_pow(self.scale)
    }

    fn times(self, count: u32) -> i128 {
        self.coefficient.saturating_mul(i128::from(count))
    }

    fn times_cut_off(self, count: u32) -> u32 {
        replicas(self.times(count).div_euclid(self.unit()))
    }

    fn times_rounded_up(self, count: u32) -> u32 {
        let product = self.times(count);
        let rest = i128::from(product.rem_euclid(self.unit()) != 0);
        replicas(product.div_euclid(self.unit()).saturating_add(rest))
    }
}

/// Less than none are none.
fn replicas(number: i128) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

impl FromStr for Decimal {
    type Err = DecimalError;

    /// Reads an optional sign, digits with at most one point, and an optional power of ten: `0.8`, `.5`, `-1`, `13e-1`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (sign, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let (number, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i32>().map_err(|_| DecimalError::Malformed)?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let written = format!("{whole}{fraction}");
        if written.is_empty() || !written.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(DecimalError::Malformed);
        }
        let significant = written.trim_end_matches('0');
        let dropped = written.len().saturating_sub(significant.len());
        let significant = significant.trim_start_matches('0');
        if significant.is_empty() {
            return Ok(Self { coefficient: 0, scale: 0 });
        }
        // Digits after the point of what is left; negative for zeros that are to be put back before it.
        let after_point = i64::try_from(fraction.len())
            .unwrap_or(i64::MAX)
            .saturating_sub(i64::try_from(dropped).unwrap_or(i64::MAX))
            .saturating_sub(i64::from(exponent));
        let zeros = usize::try_from(after_point.saturating_neg()).unwrap_or(0);
        let scale = u32::try_from(after_point.max(0)).unwrap_or(u32::MAX);
        if significant.len().saturating_add(zeros) > Self::DIGITS || scale as usize > Self::DIGITS {
            return Err(DecimalError::TooManyDigits);
        }
        let digits = format!("{significant}{}", "0".repeat(zeros));
        let coefficient = digits.parse::<i128>().map_err(|_| DecimalError::TooManyDigits)?.saturating_mul(sign);
        Ok(Self { coefficient, scale })
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.coefficient < 0 { "-" } else { "" };
        let unit = self.unit().unsigned_abs();
        let absolute = self.coefficient.unsigned_abs();
        write!(f, "{sign}{}", absolute / unit)?;
        match self.scale as usize {
            0 => Ok(()),
            width => write!(f, ".{:0width$}", absolute % unit),
        }
    }
}

#[cfg(test)]
#[path = "busy/tests.rs"]
mod tests;
