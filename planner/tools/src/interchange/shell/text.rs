//! Text that may have unknown parts.

use std::collections::BTreeSet;

use super::word::Word;

/// Values that a function's local variables had before the function, restored at its end.
pub(super) type Locals = Vec<(String, Option<Vec<Text>>)>;

/// Text with holes at the places of unknown parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text {
    text: String,
    /// Byte offsets of the holes, ascending, each with the variables and commands on which it depends.
    holes: Vec<(usize, BTreeSet<String>)>,
}

impl Text {
    /// Text without holes.
    pub(super) fn known(text: &str) -> Self {
        Self { text: text.to_owned(), holes: Vec::new() }
    }

    /// A hole that depends on a variable or command.
    pub(super) fn unknown(name: &str) -> Self {
        Self::depending(BTreeSet::from([name.to_owned()]))
    }

    /// A hole that depends on some variables and commands.
    pub(super) fn depending(names: BTreeSet<String>) -> Self {
        Self { text: String::new(), holes: vec![(0, names)] }
    }

    /// The text, if it has no holes.
    pub(super) fn as_known(&self) -> Option<&str> {
        self.holes.is_empty().then_some(self.text.as_str())
    }

    /// Returns whether the text has neither known bytes nor holes.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.holes.is_empty()
    }

    /// Number of bytes that are known.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns whether no part of the text is known.
    pub(super) fn is_hole(&self) -> bool {
        self.text.is_empty() && !self.holes.is_empty()
    }

    /// Variables and commands on which the holes depend.
    pub(super) fn unknown_names(&self) -> BTreeSet<String> {
        self.holes.iter().flat_map(|(_, names)| names.iter().cloned()).collect()
    }

    /// Adds another text.
    pub(super) fn push(&mut self, other: &Self) {
        let from = self.text.len();
        self.text.push_str(&other.text);
        self.holes.extend(other.holes.iter().map(|(at, names)| (from + at, names.clone())));
    }

    /// Texts with a separator between them.
    pub(super) fn joined<'a>(all: impl IntoIterator<Item = &'a Self>, separator: &str) -> Self {
        let separator = Self::known(separator);
        let mut joined = Self::default();
        for (place, text) in all.into_iter().enumerate() {
            if place > 0 {
                joined.push(&separator);
            }
            joined.push(text);
        }
        joined
    }

    /// Parts between blanks, each with whether a blank is before it; the last is empty if the text ends with a blank.
    pub(super) fn split(&self) -> Vec<(bool, Self)> {
        let mut parts = vec![(false, Self::default())];
        let mut holes = self.holes.iter().peekable();
        for (at, c) in self.text.char_indices().chain([(self.text.len(), '\0')]) {
            let (_, last) = parts.last_mut().expect("never empty");
            while let Some((_, names)) = holes.next_if(|(hole, _)| *hole == at) {
                last.holes.push((last.text.len(), names.clone()));
            }
            match c {
                '\0' => {}
                _ if c.is_ascii_whitespace() => {
                    if last.is_empty() {
                        parts.pop();
                    }
                    parts.push((true, Self::default()));
                }
                _ => last.text.push(c),
            }
        }
        parts
    }

    /// The text as source for a nested shell, with an expansion for each hole.
    pub(super) fn source(&self) -> String {
        self.with_holes(|_, name| {
            let is_command = name.starts_with(['$', '`']);
            if is_command { name.to_owned() } else { format!("${{{name}}}") }
        })
    }

    /// The text as a file of keys, with `"${NAME}"` for each hole.
    pub(super) fn of_keys(&self) -> String {
        self.with_holes(|before, name| {
            let line = before.rsplit('\n').next().unwrap_or_default();
            let quote = if line.matches('"').count() % 2 == 0 { "\"" } else { "" };
            format!("{quote}${{{}}}{quote}", name.replace(['"', '\\', '\n'], " "))
        })
    }

    /// The text with each hole filled; `filled` gets the text before the hole and the first name that the hole depends
    /// on.
    fn with_holes(&self, filled: impl Fn(&str, &str) -> String) -> String {
        let mut text = String::new();
        let mut at = 0;
        for (hole, names) in &self.holes {
            text.push_str(&self.text[at..*hole]);
            at = *hole;
            let hole = filled(&text, names.first().map_or("", String::as_str));
            text.push_str(&hole);
        }
        text + &self.text[at..]
    }

    /// The text as a word of a command.
    pub(super) fn word(&self) -> Word {
        Word { text: self.text.clone(), unknown: self.unknown_names() }
    }
}
