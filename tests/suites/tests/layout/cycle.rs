//! Cycles in the graph of modules. A module and those below it may use each other; every other cycle is a fault.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

use super::arrows::{Arrow, Arrows, parent};

/// Modules that use each other in a circle, each with the arrow to the next one.
pub(crate) type Cycle<'a> = Vec<(&'a str, &'a Arrow)>;

/// The lowest module that both are below, or that one of them is.
fn common<'a>(a: &'a str, b: &str) -> &'a str {
    let mut above = a;
    while !(above.is_empty() || b == above || b.starts_with(&format!("{above}::"))) {
        above = parent(above).unwrap_or_default();
    }
    above
}

/// Whether a module is below another one, which is not itself.
fn is_below(module: &str, above: &str) -> bool {
    module != above && (above.is_empty() || module.strip_prefix(above).is_some_and(|rest| rest.starts_with("::")))
}

/// The cycles whose common ancestor is not one of their modules, short ones first; one whose arrows are all part of shorter ones is left out.
///
/// So a parent that uses its children, which use each other and the parent, is none; but one that leads from a child to a module beside
/// its parent, and from there to the parent, is.
pub(crate) fn cycles(arrows: &Arrows) -> Vec<Cycle<'_>> {
    let mut found: Vec<Cycle<'_>> = Vec::new();
    for (from, targets) in arrows {
        for (to, arrow) in targets {
            let above = common(from, to);
            if above == from || above == to {
                continue;
            }
            if let Some(way_back) = shortest(arrows, to, from, above) {
                found.push(std::iter::once((from.as_str(), arrow)).chain(way_back).collect());
            }
        }
    }
    found.sort_by_key(Vec::len);
    let mut known = BTreeSet::new();
    found.retain(|cycle| {
        let before = known.len();
        known.extend(cycle.iter().map(|(from, arrow)| (*from, &arrow.path, arrow.line)));
        known.len() > before
    });
    found
}

/// The shortest way between two modules that stays below a third one.
fn shortest<'a>(arrows: &'a Arrows, from: &'a str, to: &str, above: &str) -> Option<Cycle<'a>> {
    let mut reached: BTreeMap<&str, Cycle<'_>> = [(from, Vec::new())].into();
    let mut waiting = VecDeque::from([from]);
    while let Some(module) = waiting.pop_front() {
        let way = reached.get(module).cloned().unwrap_or_default();
        if module == to {
            return Some(way);
        }
        for (next, arrow) in arrows.get(module).into_iter().flatten().filter(|(next, _)| is_below(next, above)) {
            if !reached.contains_key(next.as_str()) {
                reached.insert(next, way.iter().copied().chain([(module, arrow)]).collect());
                waiting.push_back(next);
            }
        }
    }
    None
}

/// What a person needs to take a cycle out: its modules, and the line that makes each arrow.
pub(crate) fn describe(cycle: &Cycle<'_>) -> String {
    let first = cycle.first().map_or("", |(module, _)| module);
    let names: Vec<&str> = cycle.iter().map(|(module, _)| *module).chain([first]).collect();
    let mut text = format!("{}\n", names.join(" -> "));
    for (module, Arrow { file, line, path }) in cycle {
        let _ = writeln!(text, "    {module}: {file}:{line} names {path}");
    }
    text
}
