//! Form-encoded deliveries: the JSON is in the field `payload`.

use std::borrow::Cow;

/// The value of the first field of that name in an `application/x-www-form-urlencoded` body. None where there is no such field.
pub(super) fn field<'a>(body: &'a [u8], name: &str) -> Option<Cow<'a, [u8]>> {
    let (_, value) = form_urlencoded::parse(body).find(|(key, _)| key == name)?;
    Some(match value {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_field_is_decoded_when_names_match() {
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
            assert_eq!(field(body.as_bytes(), "payload"), expected.map(|text| text.as_bytes().into()), "{body}");
        }
    }
}
