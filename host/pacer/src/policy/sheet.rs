//! `policies.yaml` with one decision changed: what is written about the others stays as it is written, comments included.

use anyhow::{Result, anyhow};
use pacer_policy::{BUILTIN, Decision, Mode, yaml};
use serde_json::{Map, Value};

/// An entry of a decision: module, mode, settings, limits.
pub(super) type Entry = Map<String, Value>;

/// A file that can be changed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sheet {
    text: String,
    decisions: Map<String, Value>,
}

impl Sheet {
    /// Reads the file. What it means is checked by the operator's own reader.
    pub(super) fn read(text: &str) -> Result<Self> {
        let decisions = decisions(text)?;
        Ok(Self { text: text.to_owned(), decisions })
    }

    /// The text of the file, with every change so far.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The entries of a decision; none where the set does not mention it.
    pub(super) fn entries(&self, decision: Decision) -> Vec<Entry> {
        match self.decisions.get(decision.as_str()) {
            Some(Value::String(word)) => vec![Entry::from_iter([("module".to_owned(), word.clone().into())])],
            Some(Value::Object(entry)) => vec![entry.clone()],
            Some(Value::Array(entries)) => entries.iter().filter_map(Value::as_object).cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// The entry of a decision in this mode.
    pub(super) fn entry(&self, decision: Decision, mode: Mode) -> Option<Entry> {
        self.entries(decision).into_iter().find(|entry| mode_of(entry) == mode)
    }

    /// Puts an entry in the place of the one of this mode, or takes that away.
    pub(super) fn put(&mut self, decision: Decision, mode: Mode, entry: Option<Entry>) {
        let mut entries = self.entries(decision);
        entries.retain(|entry| mode_of(entry) != mode);
        if let Some(mut entry) = entry {
            match mode {
                Mode::Enforce => entry.remove("mode"),
                Mode::Shadow => entry.insert("mode".to_owned(), mode.as_str().into()),
            };
            entries.push(entry);
        }
        entries.sort_by_key(|entry| mode_of(entry) == Mode::Shadow);
        self.replace(decision, &entries);
    }

    /// Replaces whatever is said about a decision.
    pub(super) fn replace(&mut self, decision: Decision, entries: &[Entry]) {
        match entries {
            [] => self.decisions.remove(decision.as_str()),
            [entry] => self.decisions.insert(decision.to_string(), Value::Object(entry.clone())),
            entries => {
                let all = entries.iter().cloned().map(Value::Object).collect();
                self.decisions.insert(decision.to_string(), Value::Array(all))
            }
        };
        let written = with_block(&self.text, decision, &block(decision, entries));
        // Lines are no YAML: flow style, anchors and whatever else they do not tell make the whole file be written anew.
        let same = Self::read(&written).is_ok_and(|read| Decision::ALL.iter().all(|&one| read.entries(one) == self.entries(one)));
        self.text = if same { written } else { whole(self) };
    }

    /// The modules that it names.
    pub(super) fn modules(&self) -> Vec<String> {
        let entries = Decision::ALL.into_iter().flat_map(|decision| self.entries(decision));
        entries.filter_map(|entry| module_of(&entry).map(str::to_owned)).filter(|module| module != BUILTIN).collect()
    }
}

/// The mode of an entry.
pub(super) fn mode_of(entry: &Entry) -> Mode {
    if entry.get("mode").and_then(Value::as_str) == Some(Mode::Shadow.as_str()) { Mode::Shadow } else { Mode::Enforce }
}

/// The module of an entry.
pub(super) fn module_of(entry: &Entry) -> Option<&str> {
    entry.get("module").and_then(Value::as_str)
}

fn decisions(text: &str) -> Result<Map<String, Value>> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Map::new());
    }
    let value: Value = serde_saphyr::from_str(text)
        .map_err(|error| anyhow!("policies.yaml is not valid YAML: {}", yaml::Mistake::of(&error, text)))?;
    match value {
        Value::Object(decisions) => Ok(decisions),
        Value::Null => Ok(Map::new()),
        _ => Err(anyhow!("policies.yaml is no mapping of decisions")),
    }
}

fn whole(sheet: &Sheet) -> String {
    let text: String = Decision::ALL.into_iter().map(|decision| block(decision, &sheet.entries(decision))).collect();
    if text.is_empty() { "{}\n".to_owned() } else { text }
}

/// The lines about one decision.
fn block(decision: Decision, entries: &[Entry]) -> String {
    match entries {
        [] => String::new(),
        [entry] if entry.len() == 1 && module_of(entry) == Some(BUILTIN) => format!("{decision}: {BUILTIN}\n"),
        [entry] => format!("{decision}:\n{}", lines(entry, "  ", "  ")),
        entries => {
            let all: String = entries.iter().map(|entry| lines(entry, "  - ", "    ")).collect();
            format!("{decision}:\n{all}")
        }
    }
}

fn lines(entry: &Entry, first: &str, further: &str) -> String {
    let known = ["module", "mode", "settings", "limits"];
    let named = known.into_iter().filter_map(|key| entry.get_key_value(key));
    let others = entry.iter().filter(|(key, _)| !known.contains(&key.as_str()));
    let mut text = String::new();
    for (key, value) in named.chain(others) {
        let indent = if text.is_empty() { first } else { further };
        text.push_str(&format!("{indent}{key}: {}\n", scalar(value)));
    }
    text
}

/// JSON is YAML; words that can be nothing else stand as people write them.
fn scalar(value: &Value) -> String {
    let is_word = |word: &str| {
        word.starts_with(|char: char| char.is_ascii_lowercase())
            && word.contains(['.', '-'])
            && word.chars().all(|char| char.is_ascii_alphanumeric() || "-._".contains(char))
    };
    match value {
        Value::String(word) if is_word(word) || [BUILTIN, "enforce", "shadow"].contains(&word.as_str()) => word.clone(),
        value => value.to_string(),
    }
}

/// The text with the lines about a decision replaced; they come last where there were none.
fn with_block(text: &str, decision: Decision, block: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_key = |line: &&str| {
        let key = line.split_once(':').map_or("", |(key, _)| key.trim_end());
        key.trim_matches(['"', '\'']) == decision.as_str() && !line.starts_with(char::is_whitespace)
    };
    let Some(start) = lines.iter().position(is_key) else {
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return format!("{text}{end}{block}");
    };
    let tail = lines.get(start + 1..).unwrap_or_default();
    let is_next = |line: &&str| line.starts_with(|char: char| !char.is_whitespace() && char != '#' && char != '-');
    let mut end = start + 1 + tail.iter().position(is_next).unwrap_or(tail.len());
    // A comment at the margin belongs to what follows it.
    let at_margin = |line: &str| line.trim().is_empty() || line.starts_with('#');
    while end > start + 1 && lines.get(end - 1).is_some_and(|line| at_margin(line)) {
        end -= 1;
    }
    let join = |lines: Option<&[&str]>| lines.unwrap_or_default().iter().map(|line| format!("{line}\n")).collect::<String>();
    format!("{}{block}{}", join(lines.get(..start)), join(lines.get(end..)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(value: &Value) -> Entry {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn one_decision_is_changed_and_the_others_keep_their_lines() {
        let text = "# Ours.\nscale-down:   # caches\n  module: old.wasm\n  settings: {spare: 1}\n\n# Until May.\nrestart: builtin\ncapacity:\n- module: a.wasm\n- {module: b.wasm, mode: shadow}\n";
        let mut sheet = Sheet::read(text).unwrap();
        sheet.put(Decision::ScaleDown, Mode::Enforce, Some(entry(&json!({"module": "new.wasm.gz", "settings": {"spare": 2}}))));
        assert_eq!(
            sheet.text(),
            "# Ours.\nscale-down:\n  module: new.wasm.gz\n  settings: {\"spare\":2}\n\n# Until May.\nrestart: builtin\ncapacity:\n- module: a.wasm\n- {module: b.wasm, mode: shadow}\n"
        );
        sheet.put(Decision::Capacity, Mode::Enforce, Some(entry(&json!({"module": "builtin"}))));
        assert!(
            sheet.text().ends_with("restart: builtin\ncapacity:\n  - module: builtin\n  - module: b.wasm\n    mode: shadow\n"),
            "{}",
            sheet.text()
        );
        sheet.put(Decision::Restart, Mode::Enforce, None);
        assert!(!sheet.text().contains("restart"), "{}", sheet.text());
        assert_eq!(sheet.modules(), ["new.wasm.gz", "b.wasm"]);
    }

    #[test]
    fn what_lines_do_not_tell_is_written_anew() {
        for (text, left) in [
            ("{}", vec![]),
            ("{scale-down: {module: a.wasm}, capacity: builtin}", vec![entry(&json!({"module": "builtin"}))]),
            ("---\nscale-down: &one\n  module: a.wasm\ncapacity: *one\n", vec![entry(&json!({"module": "a.wasm"}))]),
            ("", vec![]),
            ("# nothing yet", vec![]),
        ] {
            let mut sheet = Sheet::read(text).unwrap();
            sheet.put(Decision::ScaleDown, Mode::Enforce, Some(entry(&json!({"module": "b.wasm"}))));
            let read = Sheet::read(sheet.text()).unwrap();
            assert_eq!(read.entries(Decision::ScaleDown), [entry(&json!({"module": "b.wasm"}))], "{text}");
            assert_eq!(read.entries(Decision::Capacity), left, "{text}");
        }
        let mut last = Sheet::read("scale-down: builtin\n").unwrap();
        last.put(Decision::ScaleDown, Mode::Enforce, None);
        assert!(Sheet::read(last.text()).unwrap().entries(Decision::ScaleDown).is_empty());
        assert!(Sheet::read("- a\n").is_err() && Sheet::read("a: [").is_err());
    }

    #[test]
    fn a_sheet_that_is_emptied_says_nothing() {
        let mut sheet = Sheet::read("restart: builtin\n").unwrap();
        sheet.replace(Decision::Restart, &[]);
        assert!(sheet.modules().is_empty() && Sheet::read(sheet.text()).is_ok());
    }
}
