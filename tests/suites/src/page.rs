//! Pages of the documentation as readers copy from them.

/// A block of a page: what kind of text it is, and its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// Such as `sh`; empty where the page does not say.
    pub language: &'a str,
    /// What stands in it.
    pub text: &'a str,
}

/// The text under a heading of the second level; none without that heading.
#[must_use]
pub fn section<'a>(page: &'a str, heading: &str) -> Option<&'a str> {
    let (_, text) = page.split_once(&format!("\n## {heading}\n"))?;
    Some(text.split_once("\n## ").map_or(text, |(section, _)| section))
}

/// The blocks of a page or of a part of it, in order.
pub fn blocks(text: &str) -> impl Iterator<Item = Block<'_>> {
    // Outside and inside take turns.
    let inside = text.split("\n```").skip(1).step_by(2);
    inside.filter_map(|block| block.split_once('\n')).map(|(language, text)| Block { language, text })
}

/// The blocks in one language.
pub fn in_language<'a>(text: &'a str, language: &str) -> impl Iterator<Item = &'a str> {
    blocks(text).filter(move |block| block.language == language).map(|block| block.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A\n\n## One\n\n```sh\na\nb\n```\n\ntext\n\n```yaml\nc: 1\n```\n\n## Two\n\n```sh\nd\n```\n";

    #[test]
    fn blocks_are_those_of_their_section() {
        let of = |heading: &str| {
            section(PAGE, heading).map(|text| blocks(text).map(|block| (block.language, block.text)).collect::<Vec<_>>())
        };
        assert_eq!(of("One"), Some(vec![("sh", "a\nb"), ("yaml", "c: 1")]));
        assert_eq!(of("Two"), Some(vec![("sh", "d")]));
        assert_eq!(of("Three"), None);
        assert_eq!(in_language(PAGE, "sh").collect::<Vec<_>>(), ["a\nb", "d"]);
    }
}
