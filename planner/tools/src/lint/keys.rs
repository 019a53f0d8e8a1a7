//! Keys of files and their positions, in JSON, YAML and TOML, and in Python with one assignment per line.

use std::ops::Range;

use crate::interchange::{bridge_setting, is_script, is_toml};

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Path of keys, with dots between them.
    pub(super) path: String,
    /// Byte range of the last key of the path, without quotes.
    pub(super) name: Range<usize>,
    /// Byte range of the value, with quotes and brackets.
    pub(super) value: Range<usize>,
    /// Byte range that is removed with the key: a whole line, or the entry with its comma.
    pub(super) whole: Range<usize>,
}

/// Notation of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notation {
    Json,
    Yaml,
    Toml,
    /// Lines such as `config.model.seq_length = 4096`.
    Python,
}

impl Notation {
    /// Notation of a text by its form; `None` for shell words without keys.
    pub(super) fn of(text: &str) -> Option<Self> {
        if text.trim_start().starts_with('{') {
            Some(Self::Json)
        } else if text.lines().any(|line| python_setting(line).is_some()) {
            Some(Self::Python)
        } else if is_toml(text) {
            Some(Self::Toml)
        } else {
            (!is_script(text)).then_some(Self::Yaml)
        }
    }

    /// Text of a value in this notation.
    pub(super) fn written(self, value: &str) -> String {
        let is_plain = value.parse::<f64>().is_ok() || ["true", "false"].contains(&value);
        match self {
            Self::Json | Self::Toml if !is_plain => format!("\"{value}\""),
            Self::Json | Self::Yaml | Self::Toml | Self::Python => value.to_owned(),
        }
    }
}

/// All keys of a text that have values or nested keys, in order.
pub(super) fn keys(text: &str) -> Vec<Key> {
    match Notation::of(text) {
        None => Vec::new(),
        Some(Notation::Json) => {
            let mut json = Json { text, at: 0, keys: Vec::new() };
            json.value("");
            json.keys
        }
        Some(Notation::Yaml) => yaml(text),
        Some(Notation::Toml) => toml(text),
        Some(Notation::Python) => python(text),
    }
}

/// Keys of tables, and the tables themselves: `[a.b]`, followed by lines `key = value`.
fn toml(text: &str) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut table = String::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let from = start;
        start += line.len();
        let plain = line.trim_start();
        let at = from + line.len() - plain.len();
        let whole = from..start;
        if let Some(name) = plain.strip_prefix('[').and_then(|it| it.split(']').next()) {
            name.clone_into(&mut table);
            let end = at + 1 + name.len();
            keys.push(Key { path: table.clone(), name: at + 1..end, value: end..end, whole });
        } else if let Some((key, value)) = plain.split_once('=').filter(|it| !it.0.contains('#')) {
            let dot = if table.is_empty() { "" } else { "." };
            let path = format!("{table}{dot}{}", key.trim());
            let value_at = at + key.len() + 1 + value.len() - value.trim_start().len();
            let value = value.trim_start();
            let end = value_at + without_comment(value).len();
            let name = at..at + key.trim_end().len();
            keys.push(Key { path, name, value: value_at..end, whole });
        }
    }
    keys
}

/// A value of YAML or TOML without the comment that follows it on its line.
fn without_comment(value: &str) -> &str {
    let quoted = value.chars().next().filter(|first| ['"', '\''].contains(first));
    let closed = quoted.and_then(|quote| value[1..].find(quote));
    let from = closed.map_or(0, |end| end + 2);
    let comment = value[from..].find(" #").map_or(value.len(), |at| from + at);
    value[..comment].trim_end()
}

/// Ranges, within a line of Python, of a path and of the value that is assigned to it.
fn python_setting(line: &str) -> Option<(Range<usize>, Range<usize>)> {
    let is_path = |path: &str| path.chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c));
    bridge_setting(line).filter(|(path, _)| is_path(&line[path.clone()]))
}

fn python(text: &str) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if let Some((path, value)) = python_setting(line) {
            let moved = |range: &Range<usize>| start + range.start..start + range.end;
            keys.push(Key {
                path: line[path.clone()].to_owned(),
                name: moved(&path),
                value: moved(&value),
                whole: start..start + line.len(),
            });
        }
        start += line.len();
    }
    keys
}

fn yaml(text: &str) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    // Parent keys of the line, each with its indent and its index in `keys`.
    let mut above: Vec<(usize, usize)> = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let from = start;
        start += line.len();
        let plain = line.trim_start();
        let indent = line.len() - plain.len();
        if plain.trim_end().is_empty() || plain.starts_with('#') {
            continue;
        }
        // A list may have the same indent as its key.
        let is_item = plain.starts_with("- ");
        while above.last().is_some_and(|(of, _)| *of > indent || *of == indent && !is_item) {
            above.pop();
        }
        for (_, index) in &above {
            let end = start;
            let key = &mut keys[*index];
            key.value.end = from + line.trim_end().len();
            key.whole.end = end;
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        let length = plain.find(|c: char| !is_word(c)).unwrap_or(plain.len());
        let Some(rest) = plain[length..].strip_prefix(':').filter(|_| length > 0 && !is_item)
        else {
            continue;
        };
        let parent = above.last().map(|(_, index)| format!("{}.", keys[*index].path));
        let path = format!("{}{}", parent.unwrap_or_default(), &plain[..length]);
        let name = from + indent..from + indent + length;
        let value_at = name.end + 1 + (rest.len() - rest.trim_start_matches(' ').len());
        let value = rest.trim_start_matches(' ');
        let to = value_at + without_comment(value).len();
        above.push((indent, keys.len()));
        keys.push(Key { path, name, value: value_at..to, whole: from..start });
    }
    keys
}

/// A JSON scanner that collects keys.
struct Json<'a> {
    text: &'a str,
    at: usize,
    keys: Vec<Key>,
}

impl Json<'_> {
    fn next(&mut self) -> Option<u8> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text.as_bytes().get(self.at).copied()
    }

    /// Reads a string; returns the range within its quotes.
    fn string(&mut self) -> Option<Range<usize>> {
        let start = self.at + 1;
        let bytes = self.text.as_bytes();
        let mut at = start;
        while *bytes.get(at)? != b'"' {
            at += if bytes[at] == b'\\' { 2 } else { 1 };
        }
        self.at = at + 1;
        Some(start..at)
    }

    /// Reads a value under a path; `None` if the text ends within it.
    fn value(&mut self, path: &str) -> Option<Range<usize>> {
        let first = self.next()?;
        let start = self.at;
        match first {
            b'"' => {
                self.string()?;
            }
            b'{' => {
                self.at += 1;
                while self.next()? != b'}' {
                    self.entry(path)?;
                }
                self.at += 1;
            }
            b'[' => {
                self.at += 1;
                while self.next()? != b']' {
                    self.value("[]")?;
                    if self.next()? == b',' {
                        self.at += 1;
                    }
                }
                self.at += 1;
            }
            _ => {
                let rest = &self.text[start..];
                let ends = |c: char| c.is_whitespace() || ",}]".contains(c);
                let length = rest.find(ends)?;
                if length == 0 {
                    return None;
                }
                self.at += length;
            }
        }
        Some(start..self.at)
    }

    /// Reads a key, its value, and the comma after it.
    fn entry(&mut self, path: &str) -> Option<()> {
        if self.next()? != b'"' {
            return None;
        }
        let name = self.string()?;
        if self.next()? != b':' {
            return None;
        }
        self.at += 1;
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{}", &self.text[name.clone()]);
        // Keys are in the order of the text: this one comes before its nested keys.
        let index = self.keys.len();
        let from = name.start - 1;
        self.keys.push(Key { path: path.clone(), name, value: from..from, whole: from..from });
        let value = self.value(&path)?;
        let mut to = value.end;
        if self.next()? == b',' {
            self.at += 1;
            to = self.at;
        }
        let key = &mut self.keys[index];
        key.value = value;
        key.whole.end = to;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> Vec<String> {
        keys(text).iter().map(|it| format!("{}={}", it.path, &text[it.value.clone()])).collect()
    }

    #[test]
    fn keys_are_found_by_their_paths() {
        let json = "{\"a\": {\"on\": true, \"b\": [1, {\"c\": 2}]}, \"d\": {\"on\": \"x, y\"}}";
        let expected =
            ["a={\"on\": true, \"b\": [1, {\"c\": 2}]}", "a.on=true", "a.b=[1, {\"c\": 2}]"];
        assert_eq!(listed(json)[..3], expected);
        assert_eq!(listed(json)[4..], ["d={\"on\": \"x, y\"}", "d.on=\"x, y\""]);
        let yaml = "a:\n  on: true # why\n  b:\n  - 1\n  - 2\nd:\n  on: 'x #y' # why\n";
        let expected = [
            "a=on: true # why\n  b:\n  - 1\n  - 2",
            "a.on=true",
            "a.b=- 1\n  - 2",
            "d=on: 'x #y' # why",
            "d.on='x #y'",
        ];
        let found: Vec<String> = listed(yaml).iter().map(|it| it.replace("=\n  ", "=")).collect();
        assert_eq!(found, expected);
        let python = "x = 1\nconfig.model.a = [\"b\"]  # why\n    cfg.ddp.on = True\n";
        assert_eq!(listed(python), ["model.a=[\"b\"]", "ddp.on=True"]);
    }

    /// A truncated text yields the keys before its end.
    #[test]
    fn half_a_file_has_half_of_the_keys() {
        assert_eq!(listed("{\"a\": 1, \"b\": {\"c\": 2"), ["a=1", "b=", "b.c="]);
        assert_eq!(listed("{"), Vec::<String>::new());
        assert_eq!(listed(""), Vec::<String>::new());
    }
}
