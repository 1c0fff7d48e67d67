//! What a registry asks of those whom it does not know: the header `WWW-Authenticate`.

/// How it wants to be convinced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// By a token, which this service gives.
    Bearer {
        /// Where the service is.
        realm: String,
        /// What it is told that the token is for.
        service: Option<String>,
    },
    /// By name and password in each request.
    Basic,
}

/// Longest header that is read, in bytes.
const LONGEST: usize = 4 << 10;

/// The first challenge of a header that can be met; a token before a password.
pub(crate) fn read(header: &str) -> Option<Challenge> {
    let (mut basic, mut rest) = (false, header.get(..header.len().min(LONGEST))?);
    loop {
        let (scheme, after) = word(rest.trim_start_matches([',', ' ']));
        if scheme.is_empty() {
            return basic.then_some(Challenge::Basic);
        }
        let (found, after) = parameters(after);
        let get = |name: &str| found.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone());
        if scheme.eq_ignore_ascii_case("bearer")
            && let Some(realm) = get("realm")
        {
            return Some(Challenge::Bearer { realm, service: get("service") });
        }
        basic |= scheme.eq_ignore_ascii_case("basic");
        rest = after;
    }
}

/// A token of HTTP at the beginning, and what is behind it.
fn word(text: &str) -> (&str, &str) {
    let is_inner = |char: char| char.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(char);
    text.split_at(text.find(|char| !is_inner(char)).unwrap_or(text.len()))
}

/// Parameters `name=value` or `name="value"`, and what is behind them.
fn parameters(mut text: &str) -> (Vec<(String, String)>, &str) {
    let mut found = Vec::new();
    loop {
        let (name, after) = word(text.trim_start_matches([',', ' ']));
        let Some(after) = after.trim_start().strip_prefix('=').filter(|_| !name.is_empty()) else { return (found, text) };
        let after = after.trim_start();
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => unquoted(quoted),
            None => {
                let (value, after) = word(after);
                (value.to_owned(), after)
            }
        };
        found.push((name.to_owned(), value));
        text = after;
    }
}

/// A text up to the quote that ends it.
fn unquoted(text: &str) -> (String, &str) {
    let (mut value, mut escaped) = (String::new(), false);
    for (at, char) in text.char_indices() {
        match char {
            _ if escaped => {
                value.push(char);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => return (value, text.get(at + 1..).unwrap_or_default()),
            _ => value.push(char),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_of_registries_are_understood() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
        };
        let table = [
            (
                r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull""#,
                bearer("https://auth.example/token", Some("registry.example")),
            ),
            (r#"bearer service=x , realm="https://a.example/t?a=\"b\"""#, bearer("https://a.example/t?a=\"b\"", Some("x"))),
            (r#"Basic realm="x", Bearer realm="https://a.example/t""#, bearer("https://a.example/t", None)),
            (r#"Basic realm="tests", charset="UTF-8""#, Some(Challenge::Basic)),
            ("Basic", Some(Challenge::Basic)),
            (r#"Negotiate, Basic realm="x""#, Some(Challenge::Basic)),
            (r#"Bearer scope="x""#, None),
            (r#"Digest realm="x""#, None),
            ("", None),
            (", ,", None),
            ("Bearer realm=\"https://never.ends", bearer("https://never.ends", None)),
        ];
        for (header, challenge) in table {
            assert_eq!(read(header), challenge, "{header}");
        }
    }
}
