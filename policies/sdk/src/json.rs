//! Reads JSON into any type that serde can make, and says where it stopped: `windows[2].from`.
//!
//! Small on purpose, because every policy carries it and an operator compiles every policy: a general reader tells lines and columns, prints
//! floating point numbers and rounds any of them correctly, which is more code than most policies have of their own.

use std::fmt::{self, Display, Write};

use serde::de::{self, DeserializeOwned, DeserializeSeed, Expected, Unexpected, Visitor};

use crate::lifecycle::Problem;

/// How deep arrays and objects may lie in each other.
const DEPTH: u32 = 64;

/// Reads one value and nothing after it.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    let mut reader = Reader { text, at: 0, depth: 0 };
    let value = T::deserialize(&mut reader).and_then(|value| {
        reader.skip_space();
        if reader.at < text.len() { Err(reader.wrong("more follows the end of it")) } else { Ok(value) }
    });
    value.map_err(|Error { path, message }| Problem { path, message })
}

#[derive(Debug)]
struct Error {
    path: String,
    message: String,
}

impl Error {
    /// The error lies in the field or item called so.
    fn under(mut self, name: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = [name, dot, &self.path].concat();
        self
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: Display>(message: T) -> Self {
        let mut text = String::new();
        // Writing to a string can't fail.
        let _ = write!(text, "{message}");
        Self { path: String::new(), message: text }
    }

    // The way serde says it itself brings the printing of floating point numbers, and names types of Rust.
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("{} is expected, found {}", wanted(expected), Found(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }
}

/// What serde expects, as somebody calls it who writes JSON.
fn wanted(expected: &dyn Expected) -> String {
    let mut name = String::new();
    // Writing to a string can't fail.
    let _ = write!(name, "{expected}");
    let words = match name.as_str() {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0 to 18446744073709551615",
        "i8" | "i16" | "i64" | "isize" => "a whole number",
        "i32" => "a whole number from -2147483648 to 2147483647",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "an array",
        "a map" => "an object",
        "unit" => "null",
        name if name.starts_with("struct ") => "an object",
        _ => return name,
    };
    words.to_owned()
}

struct Found<'a>(Unexpected<'a>);

impl Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Unexpected::Bool(value) => write!(f, "{value}"),
            Unexpected::Unsigned(value) => write!(f, "{value}"),
            Unexpected::Signed(value) => write!(f, "{value}"),
            Unexpected::Float(_) => f.write_str("a number with a fraction"),
            Unexpected::Str(value) => write!(f, "{value:?}"),
            Unexpected::Unit => f.write_str("null"),
            Unexpected::Seq => f.write_str("an array"),
            Unexpected::Map => f.write_str("an object"),
            _ => f.write_str("something else"),
        }
    }
}

struct Reader<'de> {
    text: &'de str,
    at: usize,
    depth: u32,
}

impl<'de> Reader<'de> {
    /// An error that shows where it is by what is there.
    fn wrong(&self, what: &str) -> Error {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let near = crate::types::shortened(rest, 20);
        if near.is_empty() {
            return de::Error::custom(format_args!("it is no JSON: {what}, at the end"));
        }
        de::Error::custom(format_args!("it is no JSON: {what}, before {near:?}"))
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        self.skip_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t'));
    }

    fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) -> usize {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let count = rest.iter().take_while(|byte| wanted(**byte)).count();
        self.at += count;
        count
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn word(&mut self, word: &str) -> Result<(), Error> {
        if self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            self.at += word.len();
            return Ok(());
        }
        Err(self.wrong("a value is missing"))
    }

    fn string(&mut self) -> Result<String, Error> {
        if !self.take(b'"') {
            return Err(self.wrong("a string is missing"));
        }
        let mut text = String::new();
        loop {
            let from = self.at;
            self.skip_while(|byte| byte != b'"' && byte != b'\\' && byte >= 0x20);
            text.push_str(self.text.get(from..self.at).unwrap_or_default());
            let ended = self.text.as_bytes().get(self.at).copied();
            self.at += usize::from(ended.is_some());
            match ended {
                Some(b'"') => return Ok(text),
                Some(b'\\') => text.push(self.escaped()?),
                _ => return Err(self.wrong("a string does not end")),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, Error> {
        let letter = self.text.as_bytes().get(self.at).copied();
        self.at += usize::from(letter.is_some());
        Ok(match letter {
            Some(letter @ (b'"' | b'\\' | b'/')) => char::from(letter),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let first = self.unit()?;
                let code = if (0xd800..0xdc00).contains(&first) && self.word("\\u").is_ok() {
                    let second = self.unit()?;
                    if !(0xdc00..0xe000).contains(&second) {
                        return Err(self.wrong("half a character"));
                    }
                    0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                } else {
                    first
                };
                char::from_u32(code).ok_or_else(|| self.wrong("half a character"))?
            }
            _ => return Err(self.wrong("an unknown escape")),
        })
    }

    fn unit(&mut self) -> Result<u32, Error> {
        let digits = self.text.get(self.at..self.at + 4).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let unit = unit.ok_or_else(|| self.wrong("four hexadecimal digits are missing"))?;
        self.at += 4;
        Ok(unit)
    }

    fn number(&mut self) -> Result<Number, Error> {
        let negative = self.take(b'-');
        let from = self.at;
        if self.skip_while(|byte| byte.is_ascii_digit()) == 0 {
            return Err(self.wrong("a value is missing"));
        }
        let whole = self.text.get(from..self.at).unwrap_or_default();
        if whole.len() > 1 && whole.starts_with('0') {
            return Err(self.wrong("a number begins with 0"));
        }
        let fraction_at = self.at + 1;
        let mut fraction = "";
        if self.text.as_bytes().get(self.at) == Some(&b'.') {
            self.at += 1;
            if self.skip_while(|byte| byte.is_ascii_digit()) == 0 {
                return Err(self.wrong("digits are missing"));
            }
            fraction = self.text.get(fraction_at..self.at).unwrap_or_default();
        }
        if matches!(self.text.as_bytes().get(self.at), Some(b'e' | b'E')) {
            return Err(self.wrong("a number has an exponent: write it out"));
        }
        let too_long = |reader: &Self| reader.wrong("a number has too many digits");
        if fraction.is_empty() {
            let value: u64 = whole.parse().map_err(|_| too_long(self))?;
            if !negative {
                return Ok(Number::Unsigned(value));
            }
            return 0_i64.checked_sub_unsigned(value).map(Number::Signed).ok_or_else(|| too_long(self));
        }
        // Up to 2^53 and 10^22 both are exact, and so is their quotient but for the one rounding that any reader does.
        let digits: u64 = [whole, fraction].concat().parse().map_err(|_| too_long(self))?;
        if digits > 1 << 53 || fraction.len() > 22 {
            return Err(too_long(self));
        }
        let power = (0..fraction.len()).fold(1.0, |power, _| power * 10.0);
        #[expect(clippy::cast_precision_loss, reason = "checked above")]
        let value = digits as f64 / power;
        Ok(Number::Float(if negative { -value } else { value }))
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        self.at += 1;
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(self.wrong("it lies too deep"));
        }
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }
}

enum Number {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
}

impl<'de> de::Deserializer<'de> for &mut Reader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek() {
            Some(b'n') => {
                self.word("null")?;
                visitor.visit_unit()
            }
            Some(b't') => {
                self.word("true")?;
                visitor.visit_bool(true)
            }
            Some(b'f') => {
                self.word("false")?;
                visitor.visit_bool(false)
            }
            Some(b'"') => visitor.visit_string(self.string()?),
            Some(b'[') => self.nested(|reader| {
                let mut items = Items { reader, index: 0, ended: false };
                let value = visitor.visit_seq(&mut items)?;
                if items.ended || items.next()?.is_none() {
                    Ok(value)
                } else {
                    Err(items.reader.wrong("there are too many items"))
                }
            }),
            Some(b'{') => self.nested(|reader| {
                let mut fields = Fields { reader, first: true, key: String::new() };
                visitor.visit_map(&mut fields)
            }),
            _ => match self.number()? {
                Number::Unsigned(value) => visitor.visit_u64(value),
                Number::Signed(value) => visitor.visit_i64(value),
                Number::Float(value) => visitor.visit_f64(value),
            },
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.peek() == Some(b'n') {
            self.word("null")?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    /// A variant without content is a string, one with content an object of one field.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.peek() != Some(b'{') {
            return visitor.visit_enum(Variant { reader: self, content: false });
        }
        self.nested(|reader| {
            let value = visitor.visit_enum(Variant { reader, content: true })?;
            if reader.take(b'}') { Ok(value) } else { Err(reader.wrong("a variant has one field")) }
        })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

struct Items<'a, 'de> {
    reader: &'a mut Reader<'de>,
    index: usize,
    ended: bool,
}

impl Items<'_, '_> {
    /// Goes to the next item, or past the end.
    fn next(&mut self) -> Result<Option<()>, Error> {
        if self.ended {
            return Ok(None);
        }
        if self.reader.take(b']') {
            self.ended = true;
            return Ok(None);
        }
        if self.index > 0 && !self.reader.take(b',') {
            return Err(self.reader.wrong("a comma or bracket is missing"));
        }
        Ok(Some(()))
    }
}

impl<'de> de::SeqAccess<'de> for &mut Items<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.next()?.is_none() {
            return Ok(None);
        }
        let index = self.index;
        self.index += 1;
        seed.deserialize(&mut *self.reader).map(Some).map_err(|error| error.under(&format!("[{index}]")))
    }
}

struct Fields<'a, 'de> {
    reader: &'a mut Reader<'de>,
    first: bool,
    key: String,
}

impl<'de> de::MapAccess<'de> for &mut Fields<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        if self.reader.take(b'}') {
            return Ok(None);
        }
        if !std::mem::take(&mut self.first) && !self.reader.take(b',') {
            return Err(self.reader.wrong("a comma or brace is missing"));
        }
        self.key = self.reader.string()?;
        if !self.reader.take(b':') {
            return Err(self.reader.wrong("a colon is missing"));
        }
        let key = de::value::StrDeserializer::<Error>::new(&self.key);
        seed.deserialize(key).map(Some).map_err(|error| error.under(&self.key))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(&mut *self.reader).map_err(|error| error.under(&self.key))
    }
}

struct Variant<'a, 'de> {
    reader: &'a mut Reader<'de>,
    content: bool,
}

impl<'de> de::EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Error> {
        let name = self.reader.string()?;
        if self.content && !self.reader.take(b':') {
            return Err(self.reader.wrong("a colon is missing"));
        }
        let variant = seed.deserialize(de::value::StrDeserializer::<Error>::new(&name))?;
        Ok((variant, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        if self.content { de::Deserialize::deserialize(self.reader) } else { Ok(()) }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        if self.content { seed.deserialize(self.reader) } else { Err(self.reader.wrong("the variant has content")) }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        if self.content {
            de::Deserializer::deserialize_any(self.reader, visitor)
        } else {
            Err(self.reader.wrong("the variant has content"))
        }
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        if self.content {
            de::Deserializer::deserialize_any(self.reader, visitor)
        } else {
            Err(self.reader.wrong("the variant has content"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::Value;

    use super::*;

    #[test]
    fn reads_what_serde_json_reads() {
        for text in [
            "null",
            " true ",
            "false",
            "0",
            "-7",
            "18446744073709551615",
            "-9223372036854775808",
            "0.5",
            "-12.25",
            "1.10",
            "\"\"",
            r#""a\"b\\c\/\b\f\n\r\té😀\u00e9\ud83d\ude00""#,
            "[]",
            "[ 1 , [ 2 ] ]",
            "{}",
            r#"{ "a" : { "b" : [ { } , null ] } , "c" : "}" }"#,
        ] {
            assert_eq!(read::<Value>(text).map_err(|problem| problem.message), Ok(serde_json::from_str(text).unwrap()), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_json() {
        for text in [
            "",
            "nul",
            "nulls",
            "01",
            "-",
            "1.",
            "+1",
            "1e3",
            "\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\ud800\"",
            "\"\n\"",
            "[",
            "[1",
            "[1 2]",
            "[1,]",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{} {}",
            "99999999999999999999",
            "0.12345678901234567890123",
            "'a'",
        ] {
            assert!(read::<Value>(text).is_err(), "{text}");
        }
        assert!(read::<Value>(&"[".repeat(100)).is_err_and(|problem| problem.message.contains("too deep")));
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "kebab-case")]
    enum Kind {
        Plain,
        Sized(u32),
        Named { size: u32 },
        Pair(u32, u32),
    }

    #[test]
    fn variants_are_strings_or_objects() {
        let text = r#"["plain", {"sized": 3}, {"named": {"size": 4}}, {"pair": [5, 6]}]"#;
        let kinds = [Kind::Plain, Kind::Sized(3), Kind::Named { size: 4 }, Kind::Pair(5, 6)];
        assert_eq!(read::<Vec<Kind>>(text), Ok(Vec::from(kinds)));
        for (text, path) in [
            (r#"["other"]"#, "[0]"),
            (r#"[{"sized": 3, "x": 1}]"#, "[0]"),
            (r#"[{"sized": "3"}]"#, "[0]"),
            (r#"["sized"]"#, "[0]"),
        ] {
            assert_eq!(read::<Vec<Kind>>(text).unwrap_err().path, path, "{text}");
        }
    }

    #[test]
    fn tuples_have_their_length() {
        assert_eq!(read::<(u32, String)>(r#"[1, "a"]"#), Ok((1, "a".to_owned())));
        assert!(read::<(u32,)>("[1, 2]").is_err());
        assert!(read::<(u32, u32)>("[1]").is_err());
    }

    #[test]
    fn places_are_told() {
        type Deep = std::collections::BTreeMap<String, Vec<std::collections::BTreeMap<String, u8>>>;
        assert_eq!(read::<Deep>(r#"{"a":[{},{"b":1,"c":256}]}"#).unwrap_err().path, "a[1].c");
        assert_eq!(read::<Deep>(r#"{"a":[{},{"b":1,"c":1]}"#).unwrap_err().path, "a[1]");
        assert_eq!(read::<Deep>(r#"{"a":7}"#).unwrap_err().message, "an array is expected, found 7");
    }

    #[test]
    fn wrong_values_are_told_without_types_of_rust() {
        #[derive(Debug, Default, Deserialize, PartialEq)]
        #[serde(default)]
        struct Settings {
            replicas: u32,
            effective: i32,
            now: f64,
            shadow: bool,
            name: String,
            labels: Vec<String>,
            nested: Option<Box<Settings>>,
        }
        for (text, path, message) in [
            (r#"{"replicas":"x"}"#, "replicas", "a whole number from 0 to 4294967295 is expected, found \"x\""),
            (r#"{"replicas":-1}"#, "replicas", "a whole number from 0 to 4294967295 is expected, found -1"),
            (
                r#"{"replicas":1.5}"#,
                "replicas",
                "a whole number from 0 to 4294967295 is expected, found a number with a fraction",
            ),
            (r#"{"replicas":4294967296}"#, "replicas", "a whole number from 0 to 4294967295 is expected, found 4294967296"),
            (r#"{"effective":null}"#, "effective", "a whole number from -2147483648 to 2147483647 is expected, found null"),
            (r#"{"now":true}"#, "now", "a number is expected, found true"),
            (r#"{"shadow":"yes"}"#, "shadow", "true or false is expected, found \"yes\""),
            (r#"{"name":[]}"#, "name", "a string is expected, found an array"),
            (r#"{"labels":{}}"#, "labels", "an array is expected, found an object"),
            (r#"{"nested":{"nested":7}}"#, "nested.nested", "an object is expected, found 7"),
        ] {
            assert_eq!(read::<Settings>(text).map(drop), Err(Problem::new(path, message)), "{text}");
        }
    }
}
