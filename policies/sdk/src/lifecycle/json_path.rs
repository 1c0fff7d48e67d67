//! Where in a JSON text a reader stopped, as a path. A reader that tracks the path while it reads costs every policy 20 KiB.

use std::fmt::Write;

enum Container {
    Object { key: Option<String> },
    Array { index: usize },
}

/// The path of the value that `line` and `column` (both from 1, the column in bytes) lie in, such as `windows[2].from`.
pub(super) fn at(json: &str, line: usize, column: usize) -> String {
    let line_start: usize = json.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let read = json.get(..json.floor_char_boundary(line_start.saturating_add(column))).unwrap_or(json);
    // The reader has seen this character without entering what it starts.
    let read = read.strip_suffix(['{', '[', ',']).unwrap_or(read);
    render(&containers(read))
}

/// The containers that are still open at the end of `read`.
fn containers(read: &str) -> Vec<Container> {
    let mut open = Vec::new();
    let mut rest = read;
    while let Some((position, found)) = rest.char_indices().find(|(_, c)| "{}[],\"".contains(*c)) {
        rest = rest.get(position + 1..).unwrap_or_default();
        match (found, open.last_mut()) {
            ('{', _) => open.push(Container::Object { key: None }),
            ('[', _) => open.push(Container::Array { index: 0 }),
            ('}' | ']', _) => drop(open.pop()),
            (',', Some(Container::Object { key })) => *key = None,
            (',', Some(Container::Array { index })) => *index += 1,
            ('"', last) => {
                let end = string_end(rest);
                if let Some(Container::Object { key: key @ None }) = last {
                    *key = rest.get(..end).map(str::to_owned);
                }
                rest = rest.get(end + 1..).unwrap_or_default();
            }
            _ => {}
        }
    }
    open
}

/// Index of the quotation mark that ends the string which `text` is in.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.unwrap_or(text.len())
}

fn render(open: &[Container]) -> String {
    let mut path = String::new();
    for container in open {
        // Writing to a string can't fail.
        let _ = match container {
            Container::Object { key: None } => Ok(()),
            Container::Object { key: Some(key) } if path.is_empty() => write!(path, "{key}"),
            Container::Object { key: Some(key) } => write!(path, ".{key}"),
            Container::Array { index } => write!(path, "[{index}]"),
        };
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_place() {
        let json = "{\n \"a\": [1, {\"b \\\"[\": 2}],\n \"c\": {\"d\": 3}, \"e\": 4\n}";
        for (line, upto, path) in [
            (2, " \"a\": [1", "a[0]"),
            (2, " \"a\": [", "a"),
            (2, " \"a\": [1, {", "a[1]"),
            (2, " \"a\": [1, {\"b \\\"[\": 2", "a[1].b \\\"["),
            (3, " \"c\": {\"d\"", "c.d"),
            (3, " \"c\": {\"d\": 3}", "c"),
            (3, " \"c\": {\"d\": 3}, \"e\": 4", "e"),
            (1, "", ""),
            (9, "far away", ""),
        ] {
            assert_eq!(at(json, line, upto.len()), path, "{line}: {upto}");
        }
    }
}
