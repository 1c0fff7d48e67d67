//! The modules of a crate as its source files show them: what each one defines, imports and names. Code under `#[cfg(test)]` is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item, ItemMod, ItemUse, LitStr, Macro, Meta, UseTree};

/// A path in the code, segment by segment.
pub(crate) struct Mention {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

/// A name that a `use` brings into a module.
pub(crate) struct Import {
    pub(crate) name: String,
    pub(crate) of: Mention,
}

/// What one module says. Imports of function bodies count as imports of their module.
#[derive(Default)]
pub(crate) struct Module {
    pub(crate) file: PathBuf,
    pub(crate) defined: BTreeSet<String>,
    pub(crate) imports: Vec<Import>,
    pub(crate) globs: Vec<Vec<String>>,
    pub(crate) mentions: Vec<Mention>,
}

/// Reads the text of a source file; `None` when there is no such file.
pub(crate) type Files<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// The modules of the crate whose root is this file, by path: `""` is the root, `a::b` a grandchild.
pub(crate) fn modules(root: &Path, files: Files<'_>) -> Result<BTreeMap<String, Module>> {
    let mut reader = Reader { files, modules: BTreeMap::new() };
    let text = files(root).with_context(|| format!("{} is missing", root.display()))?;
    reader.file("", root, root.parent().unwrap_or(root), &text)?;
    Ok(reader.modules)
}

/// The path of a child module.
fn child(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

struct Reader<'a> {
    files: Files<'a>,
    modules: BTreeMap<String, Module>,
}

impl Reader<'_> {
    fn file(&mut self, path: &str, file: &Path, directory: &Path, text: &str) -> Result<()> {
        let parsed = syn::parse_file(text).with_context(|| format!("{} can't be parsed", file.display()))?;
        self.module(path, file, directory, &parsed.items)
    }

    /// `directory` is where the files of child modules are.
    fn module(&mut self, path: &str, file: &Path, directory: &Path, items: &[Item]) -> Result<()> {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        for item in items {
            match item {
                Item::Mod(declared) if !only_for_tests(&declared.attrs) => self.declared(path, file, directory, declared)?,
                Item::Mod(_) => {}
                item => {
                    module.defined.extend(defined_name(item).map(|name| name.unraw().to_string()));
                    module.visit_item(item);
                }
            }
        }
        self.modules.insert(path.to_owned(), module);
        Ok(())
    }

    fn declared(&mut self, parent: &str, file: &Path, directory: &Path, declared: &ItemMod) -> Result<()> {
        let name = declared.ident.unraw().to_string();
        let path = child(parent, &name);
        if let Some((_, items)) = &declared.content {
            return self.module(&path, file, &directory.join(name), items);
        }
        let beside = file.parent().unwrap_or(directory);
        let candidates = match explicit_path(&declared.attrs) {
            Some(explicit) => vec![beside.join(explicit)],
            None => vec![directory.join(format!("{name}.rs")), directory.join(&name).join("mod.rs")],
        };
        let found = candidates.iter().find_map(|candidate| Some((candidate, (self.files)(candidate)?)));
        let (found, text) = found.with_context(|| format!("no file of module {path} of {}", file.display()))?;
        let directory =
            if found.ends_with("mod.rs") { found.parent().unwrap_or(found).to_owned() } else { found.with_extension("") };
        self.file(&path, found, &directory, &text)
    }
}

/// Whether an item is marked `#[cfg(test)]`.
fn only_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<Ident>().is_ok_and(|condition| condition == "test")
    })
}

/// The file that `#[path = "..."]` names.
fn explicit_path(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    let value = &attribute.meta.require_name_value().ok()?.value;
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = value else { return None };
    Some(text.value())
}

fn defined_name(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.unraw().to_string()).collect()
}

impl Module {
    fn mention(&mut self, path: Vec<String>, line: usize) {
        self.mentions.push(Mention { path, line });
    }

    /// The names that a `use` declaration imports from below `prefix`.
    fn import(&mut self, prefix: &[String], tree: &UseTree) {
        let below = |name: &Ident| prefix.iter().cloned().chain([name.unraw().to_string()]).collect::<Vec<_>>();
        let (path, name, ident) = match tree {
            UseTree::Path(path) => return self.import(&below(&path.ident), &path.tree),
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.import(prefix, tree)),
            UseTree::Glob(_) => return self.globs.push(prefix.to_vec()),
            UseTree::Name(name) if name.ident == "self" => {
                (prefix.to_vec(), prefix.last().cloned().unwrap_or_default(), &name.ident)
            }
            UseTree::Name(name) => (below(&name.ident), name.ident.unraw().to_string(), &name.ident),
            UseTree::Rename(renamed) if renamed.ident == "self" => (prefix.to_vec(), renamed.rename.to_string(), &renamed.ident),
            UseTree::Rename(renamed) => (below(&renamed.ident), renamed.rename.unraw().to_string(), &renamed.ident),
        };
        self.imports.push(Import { name, of: Mention { path, line: ident.span().start().line } });
    }

    /// The paths in what a macro is given, which is not parsed any further.
    fn tokens(&mut self, tokens: TokenStream) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = trees.as_slice();
        let mut path = Vec::new();
        while let Some((first, tail)) = rest.split_first() {
            rest = tail;
            match (first, tail) {
                (TokenTree::Group(group), _) => self.tokens(group.stream()),
                (TokenTree::Punct(dot), [TokenTree::Ident(_), after @ ..]) if dot.as_char() == '.' => rest = after,
                (TokenTree::Ident(ident), tail) => {
                    path.push(ident.unraw().to_string());
                    if let [TokenTree::Punct(a), TokenTree::Punct(b), after @ ..] = tail
                        && (a.as_char(), b.as_char()) == (':', ':')
                        && matches!(after.first(), Some(TokenTree::Ident(_)))
                    {
                        rest = after;
                    } else {
                        self.mention(std::mem::take(&mut path), ident.span().start().line);
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !only_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.import(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(first) = path.segments.first() {
            self.mention(segments(path), first.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }

    /// Attributes name paths in strings as well: `#[serde(with = "nullable::seconds")]`.
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let Meta::List(list) = &attribute.meta else { return };
        for token in list.tokens.clone() {
            let line = token.span().start().line;
            if let Ok(text) = syn::parse2::<LitStr>(token.into())
                && let Ok(path) = text.parse::<syn::Path>()
            {
                self.mention(segments(&path), line);
            }
        }
        self.tokens(list.tokens.clone());
    }
}
