//! A policy set that is about to change: one decision at a time, everything else as it is.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail, ensure};
use pacer_api::names::annotation;
use pacer_policy::bundle::FILE;
use pacer_policy::{BUILTIN, Decision, Digest, Mode};
use serde_json::Value;

use super::set::Content;
use super::sheet::{Entry, Sheet, module_of};

/// A policy for a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NewModule {
    /// The one in the operator.
    Builtin,
    /// A component or a text, for a key of the ConfigMap.
    File {
        /// The key that it would like to have.
        key: String,
        /// As it goes into the ConfigMap.
        bytes: Vec<u8>,
    },
}

/// What becomes of an entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Setting {
    /// The new module; the entry keeps its own when this is absent.
    pub(super) module: Option<NewModule>,
    /// The new settings, an empty object to remove them; the entry keeps its own when this is absent.
    pub(super) settings: Option<Value>,
}

/// A set with the annotations that switch parts of it off.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Draft {
    pub(super) content: Content,
    pub(super) annotations: BTreeMap<String, String>,
    sheet: Sheet,
}

/// One entry before and after.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Difference {
    pub(super) decision: Decision,
    pub(super) mode: Mode,
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
}

impl Draft {
    /// A set as it is.
    pub(super) fn new(content: Content, annotations: BTreeMap<String, String>) -> Result<Self> {
        let sheet = content.sheet()?;
        Ok(Self { content, annotations, sheet })
    }

    /// The whole set is switched off.
    pub(super) fn is_disabled(&self) -> bool {
        self.annotations.get(annotation::POLICIES_DISABLED).is_some_and(|word| word == "true")
    }

    /// Puts a policy in its place, or changes its settings there.
    pub(super) fn set(&mut self, decision: Decision, mode: Mode, setting: &Setting) -> Result<()> {
        let mut entry = match (self.sheet.entry(decision, mode), &setting.module) {
            (Some(entry), _) => entry,
            (None, Some(_)) => Entry::new(),
            (None, None) => bail!(
                "the set has no policy for {decision} in {mode} mode whose settings could be changed: name a file, or builtin{}",
                self.mentioned()
            ),
        };
        if let Some(module) = &setting.module {
            let key = match module {
                NewModule::Builtin => BUILTIN.to_owned(),
                NewModule::File { key, bytes } => self.place(decision, mode, key, bytes),
            };
            entry.insert("module".to_owned(), key.into());
        }
        match &setting.settings {
            Some(settings) if settings.as_object().is_some_and(serde_json::Map::is_empty) => {
                entry.remove("settings");
            }
            Some(settings) => {
                entry.insert("settings".to_owned(), settings.clone());
            }
            None => {}
        }
        if mode == Mode::Enforce {
            self.annotations.remove(&kept(decision));
        }
        self.sheet.put(decision, mode, Some(entry));
        Ok(())
    }

    /// The policy in shadow decides from now on.
    pub(super) fn promote(&mut self, decision: Decision) -> Result<()> {
        let Some(entry) = self.sheet.entry(decision, Mode::Shadow) else {
            bail!(
                "the set has no policy in shadow for {decision}: pacer policy set {decision} FILE --mode shadow{}",
                self.mentioned()
            );
        };
        self.sheet.put(decision, Mode::Shadow, None);
        self.sheet.put(decision, Mode::Enforce, Some(entry));
        self.annotations.remove(&kept(decision));
        Ok(())
    }

    /// What an earlier content said about a decision, or about all of them.
    pub(super) fn take_back(&mut self, earlier: &Content, decision: Option<Decision>) -> Result<()> {
        let Some(decision) = decision else {
            self.annotations.retain(|key, _| !Decision::ALL.iter().any(|decision| *key == kept(*decision)));
            // Other keys of the ConfigMap are not part of the set.
            if let Some(text) = earlier.data.get(FILE) {
                self.sheet = Sheet::read(text)?;
            }
            for (key, bytes) in &earlier.modules {
                self.content.modules.insert(key.clone(), bytes.clone());
            }
            return Ok(());
        };
        let mut entries = earlier.sheet()?.entries(decision);
        for entry in &mut entries {
            let mode = super::sheet::mode_of(entry);
            let module = module_of(entry).map(str::to_owned);
            if let Some((key, bytes)) = module.and_then(|key| Some((key.clone(), earlier.modules.get(&key)?))) {
                let key = self.place(decision, mode, &key, bytes);
                entry.insert("module".to_owned(), key.into());
            }
        }
        self.annotations.remove(&kept(decision));
        self.sheet.replace(decision, &entries);
        Ok(())
    }

    /// Whether it says the same about a decision, or about all, as an earlier content.
    pub(super) fn says_as(&self, earlier: &Content, decision: Option<Decision>) -> bool {
        let Ok(sheet) = earlier.sheet() else { return false };
        let of = |decision| decision_of(&self.sheet, &self.content, decision) == decision_of(&sheet, earlier, decision);
        decision.map_or_else(|| Decision::ALL.into_iter().all(of), of)
    }

    /// The shipped policy decides, and what decided before is kept for [`Self::enable`]; without a decision the whole set is switched off.
    pub(super) fn disable(&mut self, decision: Option<Decision>) -> Result<()> {
        let Some(decision) = decision else {
            ensure!(!self.is_disabled(), "the set is switched off already: pacer policy enable switches it on");
            self.annotations.insert(annotation::POLICIES_DISABLED.to_owned(), "true".to_owned());
            return Ok(());
        };
        ensure!(
            decision != Decision::Recover,
            "the shipped policy would rerun jobs: to stop reruns, remove recover from policies.yaml (kubectl edit configmap)"
        );
        ensure!(
            !self.annotations.contains_key(&kept(decision)),
            "{decision} is switched off already: pacer policy enable {decision} switches it on"
        );
        let entry = self.sheet.entry(decision, Mode::Enforce);
        ensure!(
            entry.as_ref().and_then(module_of) != Some(BUILTIN),
            "the set says builtin for {decision}: the shipped policy decides already"
        );
        self.annotations.insert(kept(decision), entry.map_or(Value::Null, Value::Object).to_string());
        let builtin = Entry::from_iter([("module".to_owned(), BUILTIN.into())]);
        self.sheet.put(decision, Mode::Enforce, Some(builtin));
        Ok(())
    }

    /// Undoes [`Self::disable`].
    pub(super) fn enable(&mut self, decision: Option<Decision>) -> Result<()> {
        let Some(decision) = decision else {
            let off: Vec<String> = Decision::ALL
                .into_iter()
                .filter(|one| self.annotations.contains_key(&kept(*one)))
                .map(|one| one.to_string())
                .collect();
            let hint = if off.is_empty() { String::new() } else { format!("; switched off in it: {}", off.join(", ")) };
            ensure!(self.is_disabled(), "the set is not switched off{hint}");
            self.annotations.remove(annotation::POLICIES_DISABLED);
            return Ok(());
        };
        let whole = if self.is_disabled() { "; the set as a whole is: pacer policy enable" } else { "" };
        let Some(before) = self.annotations.remove(&kept(decision)) else { bail!("{decision} is not switched off{whole}") };
        let entry = match serde_json::from_str(&before) {
            Ok(Value::Object(entry)) => Some(entry),
            Ok(Value::Null) => None,
            _ => {
                bail!("the annotation {} can't be read: use pacer policy set {decision}, or rollback {decision}", kept(decision))
            }
        };
        self.sheet.put(decision, Mode::Enforce, entry);
        Ok(())
    }

    /// Puts the set together; modules that only what is gone named go with it.
    pub(super) fn finish(&mut self, before: &Self) {
        let named = self.named();
        for key in before.named().difference(&named) {
            self.content.modules.remove(key);
        }
        if self.sheet != before.sheet || !self.content.data.contains_key(FILE) {
            self.content.data.insert(FILE.to_owned(), self.sheet.text().to_owned());
        }
    }

    /// Entries that are not the same in this draft as in an earlier one.
    pub(super) fn differences(&self, before: &Self) -> Vec<Difference> {
        let all = Decision::ALL.into_iter().flat_map(|decision| [(decision, Mode::Enforce), (decision, Mode::Shadow)]);
        let told = |draft: &Self, decision, mode| draft.sheet.entry(decision, mode).map(|entry| told(&entry, &draft.content));
        all.map(|(decision, mode)| Difference {
            decision,
            mode,
            before: told(before, decision, mode),
            after: told(self, decision, mode),
        })
        .filter(|difference| difference.before != difference.after)
        .collect()
    }

    /// Takes a module in, under the key that it would like where nobody else has it, and returns its key.
    fn place(&mut self, decision: Decision, mode: Mode, key: &str, bytes: &[u8]) -> String {
        let taken = |key: &str| {
            self.content.modules.get(key).is_some_and(|known| known != bytes)
                && self.users(key).iter().any(|user| *user != (decision, mode))
        };
        let key = if taken(key) {
            let (name, ending) = super::configmap::ending(key);
            format!("{name}-{}{ending}", Digest::of(bytes).hex(12))
        } else {
            key.to_owned()
        };
        self.content.modules.insert(key.clone(), bytes.to_vec());
        key
    }

    /// Who names a module; one that is switched off does as the one that decides.
    fn users(&self, key: &str) -> Vec<(Decision, Mode)> {
        let named = |entry: &Option<Entry>| entry.as_ref().and_then(module_of) == Some(key);
        let all = Decision::ALL.into_iter().flat_map(|decision| [(decision, Mode::Enforce), (decision, Mode::Shadow)]);
        let kept = self.kept().into_iter().filter(|(_, entry)| module_of(entry) == Some(key));
        let written = all.filter(|(decision, mode)| named(&self.sheet.entry(*decision, *mode)));
        written.chain(kept.map(|(decision, _)| (decision, Mode::Enforce))).collect()
    }

    /// Entries that are switched off.
    fn kept(&self) -> Vec<(Decision, Entry)> {
        let entry = |decision: Decision| match serde_json::from_str(self.annotations.get(&kept(decision))?) {
            Ok(Value::Object(entry)) => Some((decision, entry)),
            _ => None,
        };
        Decision::ALL.into_iter().filter_map(entry).collect()
    }

    fn named(&self) -> BTreeSet<String> {
        let kept = self.kept().into_iter().filter_map(|(_, entry)| module_of(&entry).map(str::to_owned));
        self.sheet.modules().into_iter().chain(kept).collect()
    }

    fn mentioned(&self) -> String {
        let mentioned: Vec<&str> =
            Decision::ALL.into_iter().filter(|one| !self.sheet.entries(*one).is_empty()).map(Decision::as_str).collect();
        if mentioned.is_empty() {
            "; it mentions no decision".to_owned()
        } else {
            format!("; it mentions {}", mentioned.join(", "))
        }
    }
}

/// The annotation that keeps what decided before a decision was switched off.
fn kept(decision: Decision) -> String {
    format!("{}-{decision}", annotation::POLICIES_DISABLED)
}

fn decision_of(sheet: &Sheet, content: &Content, decision: Decision) -> Vec<(Entry, Option<Digest>)> {
    let with_digest = |mut entry: Entry| {
        let bytes = module_of(&entry).and_then(|key| content.modules.get(key));
        let digest = bytes.map(|bytes| Digest::of(bytes));
        // The same module under another key is the same.
        if digest.is_some() {
            entry.remove("module");
        }
        (entry, digest)
    };
    sheet.entries(decision).into_iter().map(with_digest).collect()
}

/// An entry in words.
fn told(entry: &Entry, content: &Content) -> String {
    let module = module_of(entry).unwrap_or("no module");
    let bytes = content.modules.get(module).map_or_else(String::new, |bytes| format!(" ({})", Digest::of(bytes).short()));
    let part = |name: &str| entry.get(name).map_or_else(String::new, |value| format!(", {name} {value}"));
    format!("{module}{bytes}{}{}", part("settings"), part("limits"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn draft(text: &str, modules: &[(&str, &[u8])]) -> Draft {
        let modules = modules.iter().map(|(key, bytes)| ((*key).to_owned(), bytes.to_vec())).collect();
        let data = [(FILE.to_owned(), text.to_owned()), ("README".to_owned(), "ours".to_owned())].into();
        Draft::new(Content { data, modules }, BTreeMap::new()).unwrap()
    }

    fn changed(before: &Draft, edit: impl FnOnce(&mut Draft) -> Result<()>) -> Draft {
        let mut after = before.clone();
        edit(&mut after).unwrap();
        after.finish(before);
        after
    }

    fn file(key: &str, bytes: &[u8]) -> Setting {
        Setting { module: Some(NewModule::File { key: key.to_owned(), bytes: bytes.to_vec() }), settings: None }
    }

    fn keys(draft: &Draft) -> Vec<&str> {
        draft.content.modules.keys().map(String::as_str).collect()
    }

    const SET: &str = "scale-down: {module: a.wasm, settings: {spare: 1}}\ncapacity:\n  module: b.wasm\nrestart: builtin\n";

    #[test]
    fn setting_one_decision_leaves_the_others() {
        let before = draft(SET, &[("a.wasm", b"a"), ("b.wasm", b"b"), ("spare.wasm", b"s")]);
        let after = changed(&before, |draft| draft.set(Decision::ScaleDown, Mode::Enforce, &file("c.wasm.gz", b"c")));
        assert_eq!(keys(&after), ["b.wasm", "c.wasm.gz", "spare.wasm"]);
        assert_eq!(
            after.content.data[FILE],
            "scale-down:\n  module: c.wasm.gz\n  settings: {\"spare\":1}\ncapacity:\n  module: b.wasm\nrestart: builtin\n"
        );
        assert_eq!(after.content.data["README"], "ours");
        let [difference]: [Difference; 1] = after.differences(&before).try_into().unwrap();
        assert_eq!((difference.decision, difference.mode), (Decision::ScaleDown, Mode::Enforce));
        assert!(
            difference.before.unwrap().starts_with("a.wasm (sha256:")
                && difference.after.unwrap().ends_with("settings {\"spare\":1}")
        );
        // Settings alone, and none.
        let only = Setting { module: None, settings: Some(json!({"spare": 9})) };
        let after = changed(&before, |draft| draft.set(Decision::ScaleDown, Mode::Enforce, &only));
        assert_eq!(keys(&after).len(), 3);
        let none = Setting { module: None, settings: Some(json!({})) };
        let after = changed(&after, |draft| draft.set(Decision::ScaleDown, Mode::Enforce, &none));
        assert!(after.content.data[FILE].starts_with("scale-down:\n  module: a.wasm\ncapacity"), "{}", after.content.data[FILE]);
        let mut unchanged = before;
        let error = unchanged.set(Decision::ScaleDown, Mode::Shadow, &none).unwrap_err().to_string();
        assert!(
            error.contains("no policy for scale-down in shadow mode")
                && error.contains("it mentions scale-down, restart, capacity"),
            "{error}"
        );
    }

    #[test]
    fn a_key_that_another_decision_uses_is_not_overwritten() {
        let before = draft("scale-down: {module: m.wasm}\ncapacity: {module: m.wasm}\n", &[("m.wasm", b"old")]);
        let after = changed(&before, |draft| draft.set(Decision::ScaleDown, Mode::Enforce, &file("m.wasm", b"new")));
        assert_eq!(after.content.modules["m.wasm"], b"old");
        assert_eq!(keys(&after).len(), 2);
        let alone = draft("scale-down: {module: m.wasm}\n", &[("m.wasm", b"old")]);
        let after = changed(&alone, |draft| draft.set(Decision::ScaleDown, Mode::Enforce, &file("m.wasm", b"new")));
        assert_eq!((keys(&after), &after.content.modules["m.wasm"][..]), (vec!["m.wasm"], &b"new"[..]));
    }

    #[test]
    fn a_shadow_is_promoted_and_what_it_replaces_goes() {
        let before = draft(SET, &[("a.wasm", b"a"), ("b.wasm", b"b")]);
        let shadow = changed(&before, |draft| draft.set(Decision::ScaleDown, Mode::Shadow, &file("n.wasm", b"n")));
        assert!(shadow.content.data[FILE].contains("  - module: n.wasm\n    mode: shadow\n"), "{}", shadow.content.data[FILE]);
        let promoted = changed(&shadow, |draft| draft.promote(Decision::ScaleDown));
        assert!(
            promoted.content.data[FILE].starts_with("scale-down:\n  module: n.wasm\ncapacity"),
            "{}",
            promoted.content.data[FILE]
        );
        assert_eq!(keys(&promoted), ["b.wasm", "n.wasm"]);
        assert_eq!(promoted.differences(&shadow).len(), 2);
        let mut unchanged = before;
        assert!(unchanged.promote(Decision::Capacity).unwrap_err().to_string().contains("--mode shadow"));
    }

    #[test]
    fn one_decision_or_all_are_switched_off_and_on_again() {
        let before = draft(SET, &[("a.wasm", b"a"), ("b.wasm", b"b")]);
        let off = changed(&before, |draft| draft.disable(Some(Decision::ScaleDown)));
        assert!(off.content.data[FILE].starts_with("scale-down: builtin\n"), "{}", off.content.data[FILE]);
        assert_eq!(keys(&off), ["a.wasm", "b.wasm"], "what is switched off keeps its module");
        assert!(off.clone().disable(Some(Decision::ScaleDown)).is_err() && off.clone().disable(Some(Decision::Restart)).is_err());
        let on = changed(&off, |draft| draft.enable(Some(Decision::ScaleDown)));
        assert!(on.differences(&before).is_empty() && on.annotations.is_empty());
        let mut again = on;
        assert!(again.enable(Some(Decision::ScaleDown)).is_err() && again.enable(None).is_err());
        // Whoever sets another policy does not want the old one back.
        let other = changed(&off, |draft| draft.set(Decision::ScaleDown, Mode::Enforce, &file("c.wasm", b"c")));
        assert_eq!((keys(&other), other.annotations.len()), (vec!["b.wasm", "c.wasm"], 0));
        // One that the set does not mention is not mentioned again afterwards.
        let bare = draft("{}\n", &[]);
        let off = changed(&bare, |draft| draft.disable(Some(Decision::Capacity)));
        let on = changed(&off, |draft| draft.enable(Some(Decision::Capacity)));
        assert!(on.differences(&bare).is_empty(), "{on:?}");
        let refused = before.clone().disable(Some(Decision::Recover)).unwrap_err().to_string();
        assert!(refused.contains("would rerun jobs"), "the shipped policy reruns jobs where nobody did: {refused}");
        let whole = changed(&before, |draft| draft.disable(None));
        assert!(whole.is_disabled() && whole.content == before.content && whole.clone().disable(None).is_err());
        assert!(whole.clone().enable(Some(Decision::Restart)).unwrap_err().to_string().contains("the set as a whole is"));
        assert!(!changed(&whole, |draft| draft.enable(None)).is_disabled());
    }

    #[test]
    fn an_earlier_content_comes_back_for_one_decision_or_for_all() {
        let earlier = draft("scale-down: {module: a.wasm}\ncapacity: {module: a.wasm}\n", &[("a.wasm", b"good")]).content;
        let now = draft("scale-down: {module: a.wasm}\ncapacity: {module: b.wasm}\n", &[("a.wasm", b"bad"), ("b.wasm", b"b")]);
        assert!(!now.says_as(&earlier, Some(Decision::ScaleDown)) && now.says_as(&earlier, Some(Decision::Restart)));
        let one = changed(&now, |draft| draft.take_back(&earlier, Some(Decision::ScaleDown)));
        assert!(one.says_as(&earlier, Some(Decision::ScaleDown)) && !one.says_as(&earlier, None));
        assert_eq!((&one.content.modules["a.wasm"][..], &one.content.modules["b.wasm"][..]), (&b"good"[..], &b"b"[..]));
        let all = changed(&now, |draft| draft.take_back(&earlier, None));
        assert!(all.says_as(&earlier, None));
        assert_eq!(keys(&all), ["a.wasm"]);
    }
}
