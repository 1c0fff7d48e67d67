//! Pages of listings, their entity tags, and links between them.

use std::collections::HashMap;

use bytes::Bytes;
use jiff::Timestamp;

use super::{
    job::JobState,
    place::{PlaceId, RunId},
};

/// Name and value pairs of a URL's query.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Self(pairs.collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.get(name)?.parse().ok().filter(|number| *number > 0)
    }

    /// The query with `name` set to `value`.
    fn with(&self, name: &str, value: &str) -> String {
        let others = self.0.iter().filter(|(given, _)| given != name).map(|(name, value)| (name.as_str(), value.as_str()));
        let pairs: Vec<String> =
            others.chain([(name, value)]).map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        pairs.join("&")
    }
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escaped = tail.get(..2).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match (first, escaped) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Which part of a listing is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Paging {
    pub(super) per_page: usize,
    pub(super) page: usize,
}

impl Paging {
    /// GitHub's rule: 30 a page unless told otherwise, never more than 100.
    pub(super) fn of(query: &Query) -> Self {
        Self { per_page: query.number("per_page").unwrap_or(30).min(100), page: query.number("page").unwrap_or(1) }
    }

    pub(super) fn skip(&self) -> usize {
        (self.page - 1).saturating_mul(self.per_page)
    }

    /// The `Link` header for a listing of `total` items at `url`; none when there is one page only.
    pub(super) fn links(&self, total: usize, url: &str, query: &Query) -> Option<String> {
        let last = total.div_ceil(self.per_page).max(1);
        let link = |page: usize, rel: &str| format!("<{url}?{}>; rel=\"{rel}\"", query.with("page", &page.to_string()));
        let mut links = Vec::new();
        if self.page > 1 {
            links.push(link((self.page - 1).min(last), "prev"));
        }
        if self.page < last {
            links.push(link(self.page + 1, "next"));
            links.push(link(last, "last"));
        }
        if self.page > 1 {
            links.push(link(1, "first"));
        }
        (!links.is_empty()).then(|| links.join(", "))
    }
}

/// The `Link` header of a listing that goes on from a cursor.
pub(super) fn cursor_link(url: &str, query: &Query, cursor: &str) -> String {
    format!("<{url}?{}>; rel=\"next\"", query.with("cursor", cursor))
}

/// What a page shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Listing {
    Runners { name: Option<String> },
    Runs { state: Option<JobState>, created: Option<Period> },
    RunJobs { run: RunId },
}

/// `created=FROM..TO` of a search, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Period {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

impl Period {
    /// As the clients of this simulation write it; GitHub knows more ways.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (from, to) = text.split_once("..")?;
        Some(Self { from: from.parse().ok()?, to: to.parse().ok()? })
    }

    pub(super) fn has(&self, at: Timestamp) -> bool {
        // GitHub's times have whole seconds.
        (self.from.as_second()..=self.to.as_second()).contains(&at.as_second())
    }
}

/// A page of a listing in JSON, with the number of entries in the whole listing and the page's ETag.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) total: usize,
    pub(super) body: Bytes,
    pub(super) tag: String,
}

/// Rendered pages, valid as long as their place's version stands.
#[derive(Debug, Default)]
pub(super) struct Pages {
    rendered: HashMap<(PlaceId, Listing, Paging), (u64, Page)>,
}

/// More pages than this are forgotten, all at once.
const MOST_PAGES: usize = 4096;

impl Pages {
    pub(super) fn get(&self, key: &(PlaceId, Listing, Paging), version: u64) -> Option<Page> {
        self.rendered.get(key).filter(|(rendered, _)| *rendered == version).map(|(_, page)| page.clone())
    }

    pub(super) fn put(&mut self, key: (PlaceId, Listing, Paging), version: u64, page: Page) {
        if self.rendered.len() >= MOST_PAGES {
            self.rendered.clear();
        }
        self.rendered.insert(key, (version, page));
    }
}

/// The tag of a body, as weak as GitHub's.
pub(super) fn tag_of(parts: &[&[u8]]) -> String {
    let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
    for part in parts {
        digest.update(part);
    }
    format!("W/\"{}\"", hex::encode(digest.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("name=a%20b%2fc&status=in+progress&empty=&flag&bad=%zz");
        for (name, value) in [("name", "a b/c"), ("status", "in progress"), ("empty", ""), ("flag", ""), ("bad", "%zz")] {
            assert_eq!(query.get(name), Some(value), "{name}");
        }
        assert_eq!(query.get("absent"), None);
    }

    #[test]
    fn pages_are_linked_as_github_does() {
        let links = |text: &str, total| {
            let query = Query::parse(text);
            Paging::of(&query).links(total, "http://h/x", &query)
        };
        assert_eq!(links("per_page=100", 100), None);
        assert_eq!(
            links("per_page=100", 101).unwrap(),
            "<http://h/x?per_page=100&page=2>; rel=\"next\", <http://h/x?per_page=100&page=2>; rel=\"last\"",
        );
        assert_eq!(
            links("per_page=10&page=2", 25).unwrap(),
            "<http://h/x?per_page=10&page=1>; rel=\"prev\", <http://h/x?per_page=10&page=3>; rel=\"next\", \
             <http://h/x?per_page=10&page=3>; rel=\"last\", <http://h/x?per_page=10&page=1>; rel=\"first\"",
        );
        assert_eq!(links("per_page=1000&page=3", 250).unwrap().matches("rel=").count(), 2);
    }

    #[test]
    fn paging_has_githubs_defaults_and_bounds() {
        for (text, per_page, page) in
            [("", 30, 1), ("per_page=0&page=0", 30, 1), ("per_page=500&page=7", 100, 7), ("page=x", 30, 1)]
        {
            assert_eq!(Paging::of(&Query::parse(text)), Paging { per_page, page }, "{text}");
        }
    }
}
