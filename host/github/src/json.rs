//! JSON of GitHub, read with the path of what is wrong with it.

use serde::de::{DeserializeOwned, Error as _};

/// Where JSON is not what was expected, and how. Its text may quote a value; GitHub's answers are reported without them.
pub type Misread = serde_path_to_error::Error<serde_json::Error>;

/// Reads all of it.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Misread> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut json)?;
    json.end().map_err(at_root)?;
    Ok(read)
}

/// What is wrong with it as a whole, or with what is made of it.
pub(crate) fn wrong(what: &str) -> Misread {
    at_root(serde_json::Error::custom(what))
}

/// An error of which nobody noted the path.
pub(crate) fn at_root(error: serde_json::Error) -> Misread {
    Misread::new(serde_path_to_error::Track::new().path(), error)
}

/// Why an answer could not be read, without what is in it.
pub(crate) fn without_values(misread: &Misread) -> String {
    let error = misread.inner();
    let text = error.to_string();
    // Names of fields are ours; the values that other texts quote are not.
    if !error.is_data() {
        return text;
    }
    match text.starts_with("missing field") {
        true => misread.to_string(),
        false => format!("an unexpected value of {} at line {} column {}", misread.path(), error.line(), error.column()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Page {
        #[serde(rename = "runners")]
        _runners: Vec<Entry>,
    }

    #[derive(Debug, serde::Deserialize)]
    struct Entry {
        #[serde(rename = "id")]
        _id: u64,
    }

    #[test]
    fn misread_answer_names_the_field_and_quotes_no_value() {
        for (json, expected) in [
            (r#"{"runners": [{"id": 1}, {"id": "secret"}]}"#, "an unexpected value of runners[1].id at line 1 column 39"),
            (r#"{"runners": [{"id": 1}, {}]}"#, "runners[1]: missing field `id` at line 1 column 26"),
            (r#"{"runners": ["secret"]}"#, "an unexpected value of runners[0] at line 1 column 21"),
            (r#"{"runners": ["#, "EOF while parsing a list at line 1 column 13"),
            (r#"{"runners": []} secret"#, "trailing characters at line 1 column 17"),
        ] {
            assert_eq!(without_values(&read::<Page>(json.as_bytes()).unwrap_err()), expected, "{json}");
        }
    }
}
