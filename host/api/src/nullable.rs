//! Reading `null` as absence, for fields that are not options.

use serde::{Deserialize, Deserializer};

/// Reads `null` as the type's default; ARC writes `null` for fields that have no value.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
