//! Which module uses which: every path of a module is followed, through imports and re-exports, to the module that defines its name.

use std::collections::BTreeMap;

use super::source::{Mention, Module};

/// Why a module depends on another one: the place in the code, and the path that is written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrow {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) path: String,
}

/// The first arrow from each module (outer key) to each other one (inner key).
pub(crate) type Arrows = BTreeMap<String, BTreeMap<String, Arrow>>;

/// The module above; `None` for the root.
pub(crate) fn parent(module: &str) -> Option<&str> {
    (!module.is_empty()).then(|| module.rsplit_once("::").map_or("", |(parent, _)| parent))
}

/// The arrows between the modules of one crate. Arrows between a module and what is below it are among them.
pub(crate) fn arrows(modules: &BTreeMap<String, Module>) -> Arrows {
    let mut found = Arrows::new();
    for (path, module) in modules {
        let mentions = module.imports.iter().map(|import| &import.of).chain(&module.mentions);
        for Mention { path: named, line } in mentions {
            let names = Names { modules, following: Vec::new() };
            let Some(Place::Item(definer)) = names.resolve(path, named) else { continue };
            if definer != *path {
                let arrow = Arrow { file: module.file.display().to_string(), line: *line, path: named.join("::") };
                found.entry(path.clone()).or_default().entry(definer).or_insert(arrow);
            }
        }
    }
    found
}

/// What a path leads to.
enum Place {
    /// A module itself.
    Module(String),
    /// Something that this module defines.
    Item(String),
}

#[derive(Clone)]
struct Names<'a> {
    modules: &'a BTreeMap<String, Module>,
    /// Names being looked up, so that imports which name each other end.
    following: Vec<(String, String)>,
}

impl Names<'_> {
    /// Where `path`, written in `module`, leads to; `None` when it leaves the crate.
    fn resolve(&self, module: &str, path: &[String]) -> Option<Place> {
        let mut here = module.to_owned();
        let mut inside = false;
        for (index, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => here.clear(),
                "self" => {}
                "super" => here = parent(&here)?.to_owned(),
                _ => match self.lookup(&here, name, index + 1 == path.len()) {
                    Some(Place::Module(module)) => here = module,
                    Some(item) => return Some(item),
                    // What a macro made there has no definition to be seen.
                    None => return inside.then_some(Place::Item(here)),
                },
            }
            inside = true;
        }
        Some(Place::Module(here))
    }

    /// What `name` is in a module. As the `last` segment it is an item before it is a module of the same name.
    fn lookup(&self, module: &str, name: &str, last: bool) -> Option<Place> {
        let asked = (module.to_owned(), name.to_owned());
        if self.following.contains(&asked) {
            return None;
        }
        let mut next = self.clone();
        next.following.push(asked);
        let known = self.modules.get(module)?;
        let item = || known.defined.contains(name).then(|| Place::Item(module.to_owned()));
        let imports = known.imports.iter().filter(|import| import.name == name);
        let imported: Vec<Place> = imports.filter_map(|import| next.resolve(module, &import.of.path)).collect();
        let (items, modules): (Vec<_>, Vec<_>) = imported.into_iter().partition(|place| matches!(place, Place::Item(_)));
        let below = if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") };
        let child = self.modules.contains_key(&below).then_some(Place::Module(below));
        let mut module_first = modules.into_iter().chain(child);
        let explicit = if last {
            item().or_else(|| items.into_iter().next()).or_else(|| module_first.next())
        } else {
            module_first.next().or_else(item).or_else(|| items.into_iter().next())
        };
        explicit.or_else(|| {
            known.globs.iter().find_map(|glob| match next.resolve(module, glob)? {
                Place::Module(from) if from != module => next.lookup(&from, name, last),
                _ => None,
            })
        })
    }
}
