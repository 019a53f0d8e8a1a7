//! The files of settings: the one that the user names, and those that it names.
//!
//! Options are those of the tools' tables; each file spells them in the names and the form of its own tool.

use std::collections::BTreeMap;

use super::finding::{Edit, OptionChange, Replacement, SourceSpan};
use super::keys::Notation;
use super::text;
use super::words::bridge;
use crate::interchange::{
    Import, ImportError, Imported, LaunchScript, OwnKey, Target, Tool, basename, bridge_settings,
    settings, tool, tool_of, tool_of_file,
};

/// Values that make a tool derive an option from others, or take it from elsewhere.
const AUTOMATIC: [&str; 2] = ["-1", "auto"];

/// Files of settings.
#[derive(Clone)]
pub(super) struct Documents {
    /// Text of the file that the user names.
    text: String,
    /// Tool to which the settings belong.
    tool: &'static Tool,
    /// Files that settings may name, by their names.
    files: BTreeMap<String, String>,
    /// Files that the settings name, with the tool of each.
    named: Vec<(String, &'static Tool)>,
}

/// A file of settings.
#[derive(Clone, Copy)]
pub(super) struct Document<'a> {
    /// Name; `None` for the file that the user names.
    pub(super) file: Option<&'a str>,
    pub(super) text: &'a str,
    pub(super) tool: &'static Tool,
}

impl Documents {
    /// Files of settings to import.
    pub(super) fn of(import: &Import<'_>) -> Self {
        let own = tool_of(import);
        let script = LaunchScript::read(import.text, import.set, import.files).unwrap_or_default();
        let mut files = BTreeMap::new();
        let sibling = |path: &str| {
            Ok::<_, std::convert::Infallible>(import.files.get(basename(path)).cloned())
        };
        let Ok(()) = script.add_named_files(&mut files, sibling);
        let with_tool =
            |(name, text): (String, String)| tool_of_file(&name, &text).map(|tool| (name, tool));
        // A file that the script itself writes cannot be changed.
        let named = files.into_iter().filter(|(name, _)| !script.writes(name));
        let named = named.filter_map(with_tool).collect();
        Self {
            text: import.text.to_owned(),
            tool: own.unwrap_or(tool(Target::MEGATRON)),
            files: import.files.clone(),
            named,
        }
    }

    /// One file of a tool.
    pub(super) fn of_text(text: &str, tool: &'static Tool) -> Self {
        Self { text: text.to_owned(), tool, files: BTreeMap::new(), named: Vec::new() }
    }

    /// Tool to which the settings belong.
    pub(super) fn tool(&self) -> &'static Tool {
        self.tool
    }

    /// Reads the settings from the files.
    pub(super) fn settings(&self, import: &Import<'_>) -> Result<Imported, ImportError> {
        settings(&Import { text: &self.text, files: &self.files, ..import.clone() })
    }

    /// The files. The one that the user names comes first, except after files of the same tool that it names.
    pub(super) fn each(&self) -> Vec<Document<'_>> {
        let Self { text, tool, .. } = self;
        let main = Document { file: None, text, tool };
        let named = self.named.iter().map(|(name, tool)| {
            let (file, text) = (Some(name.as_str()), self.files[name].as_str());
            Document { file, text, tool }
        });
        let (own, others): (Vec<_>, Vec<_>) = named.partition(|it| it.tool.target == tool.target);
        own.into_iter().chain([main]).chain(others).collect()
    }

    /// Files in which an option is given; if it is not given, the file in which it would be.
    fn with(&self, option: &str) -> Vec<Document<'_>> {
        let mut all = self.each();
        let is_given = |it: &Document<'_>| it.given(option).is_some() && !it.is_automatic(option);
        if all.iter().any(is_given) {
            all.retain(is_given);
            return all;
        }
        let knows = |it: &&Document<'_>| it.knows(option) && !it.is_automatic(option);
        let is_there = |it: &&Document<'_>| it.given(option).is_some();
        let place = all.iter().find(knows).or_else(|| all.iter().find(is_there)).copied();
        place.or_else(|| all.into_iter().find(|it| it.file.is_none())).into_iter().collect()
    }

    /// Returns whether an option is given.
    pub(super) fn gives(&self, option: &str) -> bool {
        self.each().iter().any(|it| it.given(option).is_some())
    }

    /// Value of an option as written, without quotes.
    pub(super) fn value(&self, option: &str) -> Option<String> {
        let value =
            |it: &Document<'_>| Some(text::value(it.text, &it.given(option)?.0)?.to_owned());
        self.with(option).iter().find_map(value)
    }

    /// Name and place of an option, in the file that has it or would have it.
    pub(super) fn place(&self, option: &str) -> SourceSpan {
        let found = self.with(option).into_iter().next();
        let place = found.map(|it| it.place(option));
        place.unwrap_or(SourceSpan { option: option.to_owned(), file: None, line: None })
    }

    /// Changes of options as changes of the files' own keys; `None` if an option has no key.
    pub(super) fn own(&self, changes: Vec<OptionChange>) -> Option<Vec<OptionChange>> {
        let mut all: Vec<OptionChange> = Vec::new();
        for change in changes {
            for document in self.with(change.option()) {
                let own = document.own(&change)?.into_iter();
                all.extend(own.filter(|it| !all.contains(it)).collect::<Vec<_>>());
            }
        }
        Some(all)
    }

    /// The files with their keys changed, and the replacements; `None` if a change has no place.
    pub(super) fn changed(&self, changes: &[OptionChange]) -> Option<(Self, Vec<Replacement>)> {
        let mut new = self.clone();
        let mut all = Vec::new();
        for Document { file, text: before, .. } in self.each() {
            let is_here = |it: &&OptionChange| it.file.as_deref() == file;
            let here: Vec<OptionChange> = changes.iter().filter(is_here).cloned().collect();
            let (after, mut replacements) = text::changed(before, &here)?;
            for it in &mut replacements {
                it.file = file.map(str::to_owned);
            }
            all.append(&mut replacements);
            match file {
                Some(name) => drop(new.files.insert(name.to_owned(), after)),
                None => new.text = after,
            }
        }
        Some((new, all))
    }
}

impl Document<'_> {
    /// Returns whether the tool has an option.
    fn knows(&self, option: &str) -> bool {
        self.tool.tables.iter().any(|it| it.knows(option)) && self.has_key(option)
    }

    /// Names of an option, as spelled in this file.
    fn names(&self, option: &str) -> Vec<(String, OwnKey)> {
        let key = |name: String| OwnKey { name, ..OwnKey::default() };
        let is_python = self.tool.is_python && Notation::of(self.text) == Some(Notation::Python);
        let keys = if is_python {
            bridge_settings(option, None).into_iter().map(|(path, _)| key(path)).collect()
        } else {
            let mut keys = (self.tool.own_keys)(option);
            keys.retain(|it| (self.tool.takes_key)(&it.name, self.text));
            keys
        };
        let mut all: Vec<(String, OwnKey)> =
            keys.into_iter().map(|it| (self.spelled(&it), it)).collect();
        // The option itself may be a key that the tool does not know.
        let flag = OwnKey { name: option.to_owned(), is_flag: true, ..OwnKey::default() };
        let own = self.spelled(&flag);
        if all.iter().all(|it| it.0 != own) && text::has(self.text, &own) {
            all.push((own, key(option.to_owned())));
        }
        all
    }

    /// A key as spelled in this file: with dashes in a script, unless the script's words are `key=value`. A name that
    /// ends with a colon includes its value.
    fn spelled(&self, key: &OwnKey) -> String {
        let name = &key.name;
        if name.ends_with(':') {
            return text::word_from(self.text, name).unwrap_or(name).to_owned();
        }
        let is_word = key.is_flag && !name.starts_with("--") && !is_file(self.text);
        if !is_word {
            return name.clone();
        }
        let flag = format!("--{name}");
        let spellings = [flag.clone(), flag.replace('_', "-"), name.clone()];
        let given = spellings.iter().find(|it| text::has(self.text, it)).cloned();
        let is_hydra = || text::assignment(self.text).is_some();
        given.unwrap_or_else(|| if is_hydra() { name.clone() } else { flag })
    }

    /// Name of an option, if it is given.
    fn given(&self, option: &str) -> Option<(String, OwnKey)> {
        self.names(option).into_iter().find(|it| text::has(self.text, &it.0))
    }

    /// Returns whether the tool fills in the value of an option that is given.
    pub(super) fn is_automatic(&self, option: &str) -> bool {
        let given = self.given(option);
        let value = given.as_ref().and_then(|it| text::value(self.text, &it.0));
        value.is_some_and(|it| AUTOMATIC.contains(&it))
    }

    /// Returns whether an option is given.
    pub(super) fn gives(&self, option: &str) -> bool {
        self.given(option).is_some()
    }

    /// Returns whether the tool has a key for an option.
    pub(super) fn has_key(&self, option: &str) -> bool {
        !self.names(option).is_empty()
    }

    /// Name and place of an option.
    pub(super) fn place(&self, option: &str) -> SourceSpan {
        let given = self.given(option);
        let line = given.as_ref().and_then(|it| text::line_of(self.text, &it.0));
        let name = given.or_else(|| self.names(option).into_iter().next()).map(|it| it.0);
        let option = name.unwrap_or_else(|| option.to_owned());
        SourceSpan { option, file: self.file.map(str::to_owned), line }
    }

    /// A change of an option as changes of the file's own keys; `None` if there is no key for it.
    pub(super) fn own(&self, change: &OptionChange) -> Option<Vec<OptionChange>> {
        let option = change.option();
        if self.tool.is_python && option.starts_with("--") {
            return bridge::of_megatron(change);
        }
        let own = || self.given(option).or_else(|| self.names(option).into_iter().next());
        let all = match &change.edit {
            Edit::Rename { to, .. } => match to.split_once(':') {
                Some((start, value)) if !self.names(&format!("{start}:")).is_empty() => {
                    let (name, key) = self.names(&format!("{start}:")).swap_remove(0);
                    vec![if key.name.ends_with(':') {
                        OptionChange::rename(&name, to)
                    } else {
                        OptionChange::value(&name, key.word(start, value))
                    }]
                }
                _ => {
                    let name = own()?.0;
                    let dashes =
                        if name.starts_with("--") && !to.starts_with("--") { "--" } else { "" };
                    vec![OptionChange::rename(&name, format!("{dashes}{to}"))]
                }
            },
            Edit::Set { value, .. } => {
                let (name, key) = own()?;
                // A switch of the other tool may be a key with a value here.
                let is_switch = value.is_none() && (!key.is_flag || key.name == option);
                let word = |it: &str| key.word(option, it);
                let set =
                    || value.as_deref().map(word).or_else(|| (!is_switch).then(|| word("true")));
                vec![match value.as_deref() {
                    Some("false") if key.is_switch => OptionChange::remove(&name),
                    _ if key.is_switch => OptionChange::set(&name, None),
                    _ => OptionChange::set(&name, set()),
                }]
            }
            Edit::Remove { .. } => {
                let given = self.names(option).into_iter();
                let given = given.filter(|it| text::has(self.text, &it.0));
                let removed = given.map(|(name, key)| match key.off() {
                    Some(off) => OptionChange::value(&name, off),
                    None => OptionChange::remove(&name),
                });
                removed.collect()
            }
        };
        let here = |it: OptionChange| OptionChange { file: self.file.map(str::to_owned), ..it };
        Some(all.into_iter().map(here).collect())
    }
}

/// Returns whether a text is a file of keys, not a script.
fn is_file(text: &str) -> bool {
    Notation::of(text).is_some_and(|it| it != Notation::Python)
}
