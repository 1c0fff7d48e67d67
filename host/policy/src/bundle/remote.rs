//! What of a set lies in registries.

use std::collections::BTreeMap;

use pacer_core::reference::Reference;

use super::{FILE, manifest};

/// The modules of a set that lie in registries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Each once, in the order of their names.
    pub references: Vec<Reference>,
    /// The Secret of the set's namespace with credentials of registries.
    pub pull_secret: Option<String>,
}

/// Which modules of a set have to be pulled. None of one that can't be read: whoever reads it as a whole says why.
#[must_use]
pub fn remote(data: &BTreeMap<String, String>) -> Remote {
    let Some(manifest) = data.get(FILE).and_then(|text| manifest::read(text).ok()) else { return Remote::default() };
    let modules = manifest.decisions.iter().flat_map(|(_, written)| written).map(|written| written.module.0.as_str());
    let mut references: Vec<Reference> = modules.filter_map(|module| Reference::parse(module)?.ok()).collect();
    references.sort();
    references.dedup();
    Remote { references, pull_secret: manifest.pull_secret }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Remote {
        remote(&BTreeMap::from([(FILE.to_owned(), text.to_owned())]))
    }

    #[test]
    fn modules_of_registries_are_found_once() {
        let name = |path: &str| format!("oci://registry.example/{path}@sha256:{}", "a".repeat(64));
        let text = format!(
            "pullSecret: registry\nrestart: {{module: '{}'}}\ncapacity:\n- module: '{}'\n- {{module: '{}', mode: shadow}}\nscale-down: {{module: m}}\n",
            name("b"),
            name("a"),
            name("b")
        );
        let Remote { references, pull_secret } = of(&text);
        assert_eq!(references.iter().map(ToString::to_string).collect::<Vec<_>>(), [name("a"), name("b")]);
        assert_eq!(pull_secret.as_deref(), Some("registry"));
        for text in ["", "{}", "restart: builtin", "restart: [", "restart: {module: 'oci://registry.example/b:v1'}"] {
            assert_eq!(of(text), Remote::default(), "{text}");
        }
        assert_eq!(remote(&BTreeMap::new()), Remote::default());
    }
}
