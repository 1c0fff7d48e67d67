//! The files of the page, as they are in the repository.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;

/// A file of the page, with its name and content type.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    name: &'static str,
    kind: &'static str,
    content: &'static str,
}

const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// What is served at `/`.
pub(super) const INDEX: File =
    File { name: "index.html", kind: "text/html; charset=utf-8", content: include_str!("page/index.html") };

const OTHERS: [File; 12] = [
    File { name: "app.css", kind: STYLE, content: include_str!("page/app.css") },
    File { name: "app.js", kind: SCRIPT, content: include_str!("page/app.js") },
    File { name: "detail.js", kind: SCRIPT, content: include_str!("page/detail.js") },
    File { name: "dom.js", kind: SCRIPT, content: include_str!("page/dom.js") },
    File { name: "fleet.js", kind: SCRIPT, content: include_str!("page/fleet.js") },
    File { name: "live.js", kind: SCRIPT, content: include_str!("page/live.js") },
    File { name: "past.js", kind: SCRIPT, content: include_str!("page/past.js") },
    File { name: "repositories.js", kind: SCRIPT, content: include_str!("page/repositories.js") },
    File { name: "simulation.js", kind: SCRIPT, content: include_str!("page/simulation.js") },
    File { name: "state.js", kind: SCRIPT, content: include_str!("page/state.js") },
    File { name: "tables.js", kind: SCRIPT, content: include_str!("page/tables.js") },
    File { name: "waits.js", kind: SCRIPT, content: include_str!("page/waits.js") },
];

impl File {
    /// The file as an answer.
    pub(super) fn response(self) -> Response {
        ([(header::CONTENT_TYPE, self.kind)], self.content).into_response()
    }
}

/// [`INDEX`] over a trace that begins and ends at these moments, with a report or without: the page then has a slider.
pub(super) fn index_over(from: Timestamp, to: Timestamp, reported: bool) -> Response {
    let report = if reported { " data-report" } else { "" };
    let body = format!("<body data-from=\"{from}\" data-to=\"{to}\"{report}>");
    ([(header::CONTENT_TYPE, INDEX.kind)], INDEX.content.replacen("<body>", &body, 1)).into_response()
}

/// The file of that name.
pub(super) fn find(name: &str) -> Option<File> {
    OTHERS.into_iter().find(|file| file.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_page_is_served_and_asks_nobody_else() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ui/page");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let file = if name == INDEX.name { Some(INDEX) } else { find(&name) };
            let file = file.unwrap_or_else(|| panic!("{name} is not in the table of files"));
            for elsewhere in ["http://", "https://", "//cdn", "innerHTML", "eval("] {
                assert!(!file.content.contains(elsewhere), "{name} has {elsewhere}");
            }
            for inline in ["<style", "style=\"", " onclick", " onload"] {
                assert!(!file.content.contains(inline), "{name} has {inline}, which its security policy forbids");
            }
        }
    }
}
