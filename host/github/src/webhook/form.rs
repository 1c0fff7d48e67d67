//! Form-encoded deliveries: the JSON is in the field `payload`.

/// The value of the first field of that name in an `application/x-www-form-urlencoded` body (WHATWG URL, 5.1): `+` is a space, `%xx` a byte,
/// and a `%` without two digits stands for itself. None where there is no such field.
pub(super) fn field(body: &[u8], name: &str) -> Option<Vec<u8>> {
    body.split(|byte| *byte == b'&').find_map(|pair| {
        let mut parts = pair.splitn(2, |byte| *byte == b'=');
        let key = decode(parts.next()?);
        (key == name.as_bytes()).then(|| decode(parts.next().unwrap_or_default()))
    })
}

fn decode(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match (first, after) {
            (b'+', after) => (b' ', after),
            (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, after),
                _ => (b'%', rest.get(1..).unwrap_or_default()),
            },
            (other, after) => (*other, after),
        };
        bytes.push(byte);
        rest = after;
    }
    bytes
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_found_and_decoded() {
        for (body, expected) in [
            ("payload=%7B%22a%22%3A+1%7D", Some("{\"a\": 1}")),
            ("x=1&payload=a%2Bb&payload=c", Some("a+b")),
            ("pay%6Coad=1", Some("1")),
            ("payload=100%&y", Some("100%")),
            ("payload=%4x%zz%", Some("%4x%zz%")),
            ("payload==", Some("=")),
            ("payload", Some("")),
            ("Payload=1", None),
            ("", None),
        ] {
            assert_eq!(field(body.as_bytes(), "payload").as_deref(), expected.map(str::as_bytes), "{body}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_comes_back(bytes: Vec<u8>) {
            let encoded = bytes.iter().fold(String::from("hook=1&payload="), |mut text, byte| {
                match byte {
                    b' ' => text.push('+'),
                    byte if byte.is_ascii_alphanumeric() => text.push(char::from(*byte)),
                    byte => write!(text, "%{byte:02X}").unwrap(),
                }
                text
            });
            prop_assert_eq!(field(encoded.as_bytes(), "payload"), Some(bytes));
        }

        #[test]
        fn nothing_panics_or_grows(body: Vec<u8>) {
            prop_assert!(field(&body, "payload").is_none_or(|value| value.len() <= body.len()));
        }
    }
}
