//! Links between the pages, and the table of contents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use anyhow::{Result, ensure};

use super::{files, read, repository};

const CONTENTS: &str = "docs/SUMMARY.md";

/// Where links lead, with the line that each is on. Code is left out.
fn links(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(page) {
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, after)) = after.split_once(')') else { break };
            found.push((number, target.to_owned()));
            rest = after;
        }
    }
    found
}

/// Lines outside of code, without what is between backticks.
fn prose(page: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (index, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            // Every second part is code; text of links may be.
            let outside: Vec<&str> = line.split('`').step_by(2).collect();
            lines.push((index + 1, outside.join("`")));
        }
    }
    lines
}

/// The anchors of a page, as GitHub and mdBook make them from headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in page.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let Some(title) = line.strip_prefix('#').filter(|_| !fenced) else { continue };
        let kept = title.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        let anchor: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
        let before = times.entry(anchor.clone()).or_default();
        anchors.insert(if *before == 0 { anchor } else { format!("{anchor}-{before}") });
        *before += 1;
    }
    anchors
}

/// Where a link of a page leads, relative to the repository; `None` when it leaves it.
fn resolved(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in Path::new(page).parent()?.join(target).components() {
        match part {
            Component::ParentDir => drop(parts.pop()?),
            Component::Normal(name) => parts.push(name.to_str()?.to_owned()),
            _ => {}
        }
    }
    Some(parts.join("/"))
}

/// What is wrong with the links of a page.
fn broken(page: &str, content: &str) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (line, target) in links(content) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (path, anchor) = target.split_once('#').map_or((target.as_str(), None), |(path, anchor)| (path, Some(anchor)));
        let there = if path.is_empty() { Some(page.to_owned()) } else { resolved(page, path) };
        let Some(there) = there.filter(|there| repository(there).exists()) else {
            wrong.push(format!("{page}:{line}: {target} does not exist"));
            continue;
        };
        let Some(anchor) = anchor else { continue };
        if there.ends_with(".md") && !anchors(&read(&there)?).contains(anchor) {
            wrong.push(format!("{page}:{line}: {there} has no heading for #{anchor}"));
        }
    }
    Ok(wrong)
}

#[test]
fn links_of_all_pages_lead_to_files_and_headings() -> Result<()> {
    let mut wrong = Vec::new();
    for page in files(".", ".md")? {
        wrong.extend(broken(&page, &read(&page)?)?);
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn contents_have_every_page_once_and_every_page_that_a_page_links_to() -> Result<()> {
    let listed: Vec<String> = links(&read(CONTENTS)?).into_iter().filter_map(|(_, target)| resolved(CONTENTS, &target)).collect();
    let chapters: BTreeSet<String> = listed.iter().cloned().collect();
    ensure!(chapters.len() == listed.len(), "{CONTENTS} has a page twice");
    let mut missing: BTreeSet<String> = files("docs", ".md")?.into_iter().filter(|page| page != CONTENTS).collect();
    for chapter in &chapters {
        let linked = links(&read(chapter)?).into_iter().filter(|(_, target)| !target.contains("://"));
        missing.extend(linked.filter_map(|(_, target)| {
            let path = target.split('#').next().filter(|path| path.ends_with(".md"))?;
            resolved(chapter, path)
        }));
    }
    let missing: Vec<_> = missing.difference(&chapters).collect();
    ensure!(missing.is_empty(), "{CONTENTS} lacks {missing:#?}");
    Ok(())
}

#[test]
fn broken_links_are_found_beside_those_that_lead_somewhere() -> Result<()> {
    let page = "# A\n\n[a](README.md) [b](../README.md#install) [c](#a) [`d`](https://example.com/x)\n\n```\n[code](gone.md)\n```\n`[e](gone.md)`\n\
                [f](gone.md) [g](../README.md#gone)\n[h](#b)\n";
    let found = broken("docs/page.md", page)?;
    let expected = [
        "docs/page.md:9: gone.md does not exist",
        "docs/page.md:9: README.md has no heading for #gone",
        "docs/page.md:10: docs/page.md has no heading for #b",
    ];
    // Its own headings are those of the file.
    ensure!(found.iter().filter(|one| !one.contains("#a")).eq(expected.iter()), "{found:#?}");
    Ok(())
}
