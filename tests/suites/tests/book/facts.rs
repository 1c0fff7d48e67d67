//! The facts that a policy may ask for: the same in the contract, in the documentation and in the program.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use pacer_core::reads::Fact;

use crate::read;

/// What a fact is asked for by, and an attribute that it comes as.
type Told = BTreeSet<(String, String)>;

/// The words in code of a text.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn in_the_program() -> Told {
    let of = |fact: Fact| fact.attributes().iter().map(move |key| (fact.to_string(), (*key).to_owned()));
    Fact::ALL.into_iter().flat_map(of).collect()
}

/// `| name | attributes | of | unit | source | there when |`, with nothing left out.
fn in_the_documentation(text: &str) -> Result<Told> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("| in `reads` | attribute | of |"));
    ensure!(lines.next().is_some() && lines.next().is_some(), "docs/policies.md has no table of facts");
    let mut told = Told::new();
    for line in lines.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        ensure!(cells.len() == 6 && cells.iter().all(|cell| !cell.is_empty()), "{line}");
        let [name, attributes, ..] = cells.as_slice() else { continue };
        let name = code(name).next().context("a name")?;
        told.extend(code(attributes).map(|key| (name.to_owned(), key.to_owned())));
    }
    Ok(told)
}

/// `- `name`: attributes, of what. Unit: ... Source: ... There when: ...`, with nothing left out.
fn in_the_contract(text: &str) -> Result<Told> {
    let comments = text.lines().filter_map(|line| line.trim().strip_prefix("///")).map(str::trim);
    let whole = comments.collect::<Vec<_>>().join("\n");
    let mut told = Told::new();
    for item in whole.split("\n- `").skip(1) {
        let item = item.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        let (name, rest) = item.split_once("`: ").with_context(|| item.clone())?;
        let places = ["Unit: ", "Source: ", "There when: "].map(|part| rest.find(part));
        ensure!(places.iter().all(Option::is_some) && places.is_sorted(), "{item}");
        let attributes = rest.split(", of ").next().unwrap_or_default();
        told.extend(code(attributes).map(|key| (name.to_owned(), key.to_owned())));
    }
    Ok(told)
}

#[test]
fn facts_are_the_same_in_contract_documentation_and_program() -> Result<()> {
    let program = in_the_program();
    let contract = in_the_contract(&read("wit/policy/v0.2.0/policy.wit")?)?;
    let documentation = in_the_documentation(&read("docs/policies.md")?)?;
    for (where_, told) in [("the contract", contract), ("docs/policies.md", documentation)] {
        let missing: Vec<_> = program.difference(&told).collect();
        let unknown: Vec<_> = told.difference(&program).collect();
        ensure!(missing.is_empty() && unknown.is_empty(), "{where_} lacks {missing:?}, and has {unknown:?}, which nobody tells");
    }
    Ok(())
}
