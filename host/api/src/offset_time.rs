//! Moments that remember the UTC offset they were written with.

use std::fmt;

use k8s_openapi::jiff::{
    Timestamp, Zoned,
    fmt::temporal::{DateTimeParser, PiecesOffset},
    tz::{Offset, TimeZone},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The last year that RFC 3339 can name. Its last days are later than any [`Timestamp`], whose last one they stand for.
const LAST_YEAR: i16 = 9999;

/// Of the texts that the format `date-time` admits, those with whole nanoseconds and an offset of less than a day. The API server takes any
/// character for the point of the fraction and ignores what follows a second T, so that the number of digits is fixed here.
const PATTERN: &str = r"^[-0-9]{10}[Tt][0-9:]{8}(\.[0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$";

/// A moment as the user wrote it: RFC 3339, whole seconds, offset kept.
///
/// Recurrence is a matter of wall clocks: midnight in `+09:00` on the first of a month is another day in UTC. The API server keeps the
/// text, so the offset is there to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OffsetTime {
    timestamp: Timestamp,
    offset: Offset,
}

/// A text that is no RFC 3339 time with an offset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no RFC 3339 time with an offset, such as 2026-01-31T08:00:00+09:00 or 2026-01-31T08:00:00Z: {reason}")]
pub struct OffsetTimeError {
    text: String,
    reason: String,
}

impl OffsetTime {
    /// A moment with an offset.
    #[must_use]
    pub fn new(timestamp: Timestamp, offset: Offset) -> Self {
        Self { timestamp, offset }
    }

    /// The moment.
    #[must_use]
    pub fn timestamp(self) -> Timestamp {
        self.timestamp
    }

    /// The offset it was written with; 0 for `Z`.
    #[must_use]
    pub fn offset(self) -> Offset {
        self.offset
    }

    /// The moment on a wall clock of its offset.
    #[must_use]
    pub fn zoned(self) -> Zoned {
        self.timestamp.to_zoned(TimeZone::fixed(self.offset))
    }
}

impl std::str::FromStr for OffsetTime {
    type Err = OffsetTimeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |reason: String| OffsetTimeError { text: text.to_owned(), reason };
        let pieces = DateTimeParser::new().parse_pieces(text).map_err(|cause| error(cause.to_string()))?;
        let offset = match pieces.offset() {
            Some(PiecesOffset::Zulu) => Offset::UTC,
            Some(PiecesOffset::Numeric(offset)) => offset.offset(),
            _ => return Err(error("it has no offset".to_owned())),
        };
        // RFC 3339 has none, and written without them it would be another moment.
        if offset.seconds() % 60 != 0 {
            return Err(error("its offset has seconds".to_owned()));
        }
        let time = pieces.time().ok_or_else(|| error("it has no time of day".to_owned()))?;
        let written = pieces.date().to_datetime(time);
        let timestamp = match offset.to_timestamp(written) {
            Ok(timestamp) => timestamp,
            // People write the end of that year for "never".
            Err(_) if written.year() == LAST_YEAR => Timestamp::MAX,
            Err(cause) => return Err(error(cause.to_string())),
        };
        Ok(Self { timestamp, offset })
    }
}

impl fmt::Display for OffsetTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = self.offset.to_datetime(self.timestamp);
        write!(f, "{}", local.strftime("%Y-%m-%dT%H:%M:%S"))?;
        if self.offset.is_zero() {
            return f.write_str("Z");
        }
        let minutes = self.offset.seconds().abs() / 60;
        let sign = if self.offset.is_negative() { '-' } else { '+' };
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

impl Serialize for OffsetTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for OffsetTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for OffsetTime {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OffsetTime".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time", "pattern": PATTERN })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_survives() {
        for (text, unix) in [
            ("2021-05-01T00:00:00+09:00", 1_619_794_800),
            ("2021-05-01T00:00:00Z", 1_619_827_200),
            ("2021-05-01T00:00:00-03:30", 1_619_839_800),
        ] {
            let time: OffsetTime = text.parse().unwrap();
            assert_eq!(time.timestamp().as_second(), unix, "{text}");
            assert_eq!(time.to_string(), text);
            assert_eq!(time.zoned().date().to_string(), "2021-05-01");
        }
    }

    #[test]
    fn the_end_of_the_last_year_is_the_last_moment_there_is() {
        for text in ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59+14:00"] {
            let time: OffsetTime = text.parse().unwrap();
            assert!(time.timestamp().as_second() >= Timestamp::MAX.as_second() - 86_400, "{text}");
            let again: OffsetTime = time.to_string().parse().unwrap();
            assert_eq!((again.timestamp().as_second(), again.offset()), (time.timestamp().as_second(), time.offset()), "{text}");
        }
    }

    #[test]
    fn time_without_an_offset_of_minutes_is_refused() {
        for text in ["2021-05-01T00:00:00", "2021-05-01", "soon", "", "2021-13-01T00:00:00Z", "2021-05-01T00:00:00-03:30:59"] {
            let error = text.parse::<OffsetTime>().unwrap_err();
            assert!(error.to_string().contains("RFC 3339"), "{error}");
        }
    }
}
