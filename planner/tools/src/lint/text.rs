//! Settings as text: positions of options, and the text with options changed.
//!
//! Scripts and lists of arguments have words that begin with `--`. JSON, YAML, TOML and Python files have keys, which
//! are found by their paths. The result of a change is `None` if its place cannot be found.

use std::ops::Range;

use super::finding::{Edit, OptionChange, Replacement};
use super::keys::{Key, Notation, keys};
use crate::interchange::tools;

/// Line, from 1, of a byte offset in a text.
fn line_at(text: &str, at: usize) -> usize {
    text[..at].bytes().filter(|byte| *byte == b'\n').count() + 1
}

/// Line, from 1, where an option is first given.
pub(super) fn line_of(text: &str, option: &str) -> Option<usize> {
    Some(line_at(text, places(text, option).first()?.name.start))
}

/// Value of an option as written, without quotes.
pub(super) fn value<'a>(text: &'a str, option: &str) -> Option<&'a str> {
    text.get(places(text, option).last()?.values.clone()?).map(unquoted)
}

/// A value without the quotes around it.
pub(super) fn unquoted(value: &str) -> &str {
    let within = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    within('"').or_else(|| within('\'')).unwrap_or(value)
}

/// The first word with a prefix.
pub(super) fn word_from<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    tokens(text).into_iter().map(|it| &text[it]).find(|word| word.starts_with(start))
}

/// Place of the last word of the form `a.b=value` in a script, as programs that use Hydra accept them.
pub(super) fn assignment(text: &str) -> Option<Range<usize>> {
    let is_script = Notation::of(text).is_none();
    let is_one = |it: &Range<usize>| {
        let key = text[it.clone()].split_once('=').map_or("", |it| it.0);
        let is_letter = |c: char| c.is_ascii_alphanumeric() || "_.+".contains(c);
        !key.starts_with('-') && key.contains('.') && key.chars().all(is_letter)
    };
    tokens(text).into_iter().filter(|_| is_script).rfind(is_one)
}

/// Returns whether an option is given.
pub(super) fn has(text: &str, option: &str) -> bool {
    !places(text, option).is_empty()
}

/// Returns whether a change alters a text: removing an absent option does not, nor setting the present value.
pub(super) fn is_changed(text: &str, change: &OptionChange) -> bool {
    match &change.edit {
        Edit::Remove { option } | Edit::Rename { option, .. } => has(text, option),
        Edit::Set { option, value: None } => !has(text, option),
        Edit::Set { option, value: Some(value) } => {
            self::value(text, option) != Some(unquoted(value))
        }
    }
}

/// The text with options changed, and the replacements; `None` if one of the changes has no place.
pub(super) fn changed(text: &str, changes: &[OptionChange]) -> Option<(String, Vec<Replacement>)> {
    let mut all = Vec::new();
    for change in changes {
        all.extend(replacements(text, change)?);
    }
    let text = applied(text, &all)?;
    Some((text, all))
}

/// The text with replacements applied; `None` if they overlap.
pub(super) fn applied(text: &str, replacements: &[Replacement]) -> Option<String> {
    let mut sorted: Vec<&Replacement> = replacements.iter().collect();
    sorted.sort_by_key(|it| (it.from, it.to));
    let mut new = String::with_capacity(text.len());
    let mut at = 0;
    for Replacement { from, to, with, .. } in sorted {
        if *from < at {
            return None;
        }
        new.push_str(&text[at..*from]);
        new.push_str(with);
        at = *to;
    }
    new.push_str(&text[at..]);
    Some(new)
}

/// Replacement of a byte range by nothing.
fn removed(from: usize, to: usize) -> Replacement {
    replaced(from, to, String::new())
}

fn replaced(from: usize, to: usize, with: String) -> Replacement {
    Replacement { file: None, from, to, with }
}

/// Byte ranges of an option and its values.
struct Placed {
    name: Range<usize>,
    /// Range of its values; `None` for a switch.
    values: Option<Range<usize>>,
    /// Range that is removed with a key of a file: its line, or its entry with the comma.
    whole: Option<Range<usize>>,
}

impl Placed {
    fn removed(&self, text: &str) -> Replacement {
        let mut from = self.name.start;
        let mut to = self.values.as_ref().map_or(self.name.end, |values| values.end);
        let bytes = text.as_bytes();
        let is_quote = |at: usize| matches!(bytes.get(at), Some(b'"' | b'\''));
        if let Some(whole) = &self.whole {
            // The last entry of a JSON object is removed with the comma before it.
            let before = text[..whole.start].trim_end();
            let is_last = Notation::of(text) == Some(Notation::Json)
                && before.ends_with(',')
                && bytes.get(whole.end - 1) != Some(&b',');
            let from = if is_last { before.len() - 1 } else { whole.start };
            return removed(from, whole.end);
        }
        if is_quote(to) {
            // A quote that closes here was opened before the name, or before the value.
            let of_whole = from > 0 && bytes[from - 1] == bytes[to];
            let of_value = self
                .values
                .as_ref()
                .is_some_and(|it| it.start > 0 && bytes[it.start - 1] == bytes[to]);
            if of_whole {
                from -= 1;
            }
            to += usize::from(of_whole || of_value);
        }
        let is_alone = bytes.get(to) == Some(&b' ');
        removed(from, to + usize::from(is_alone))
    }
}

fn replacements(text: &str, change: &OptionChange) -> Option<Vec<Replacement>> {
    let places = places(text, change.option());
    match &change.edit {
        Edit::Remove { .. } => Some(places.iter().map(|it| it.removed(text)).collect()),
        Edit::Rename { option, to } => {
            let place = places.first().filter(|_| self::places(text, to).is_empty())?;
            let Range { start, end } = place.name;
            let parents = |path: &str| path.rsplit_once('.').map(|(parents, _)| parents.to_owned());
            let with = match &place.whole {
                Some(_) if parents(option) != parents(to) => return None,
                Some(_) if Notation::of(text) != Some(Notation::Python) => {
                    to.rsplit('.').next().unwrap_or(to)
                }
                Some(_) => to,
                None => to,
            };
            Some(vec![replaced(start, end, with.to_owned())])
        }
        Edit::Set { option, value } => match (places.split_last(), value) {
            (Some((last, others)), value) => {
                // If an option is given several times, the last one counts.
                let mut all: Vec<Replacement> = others.iter().map(|it| it.removed(text)).collect();
                if let Some(value) = value {
                    let Range { start, end } = last.values.clone()?;
                    if last.whole.is_some() {
                        // A key with nested keys cannot be set to a value.
                        let is_value = !text[start..end].starts_with(['\n', '{']);
                        let with = Notation::of(text)?.written(value);
                        all.push(is_value.then(|| replaced(start, end, with))?);
                        return Some(all);
                    }
                    let is_quoted = start > 0 && matches!(text.as_bytes()[start - 1], b'"' | b'\'');
                    let with = if is_quoted { value.clone() } else { shell_word(value) };
                    all.push(replaced(start, end, with));
                }
                Some(all)
            }
            (None, value) => Some(vec![inserted(text, option, value.as_deref())?]),
        },
    }
}

/// Shell words of a value: plain text as it is, any other text as one quoted word.
fn shell_word(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+%@ ".contains(c);
    if value.chars().all(is_plain) { value.to_owned() } else { format!("'{value}'") }
}

fn inserted(text: &str, option: &str, value: Option<&str>) -> Option<Replacement> {
    if option.starts_with("--") {
        let anchored =
            tools().flat_map(|tool| tool.anchors).find_map(|anchor| places(text, anchor).pop());
        let at = anchored.map_or_else(
            || {
                tokens(text)
                    .into_iter()
                    .rfind(|it| text[it.clone()].starts_with("--"))
                    .map(|it| it.start)
            },
            |it| Some(it.name.start),
        )?;
        // The quote before a quoted option stays in front of that option.
        let is_quoted = at > 0
            && matches!(text.as_bytes()[at - 1], b'"' | b'\'')
            && tokens(text).into_iter().any(|it| {
                it.start == at && text.as_bytes().get(it.end) == text.as_bytes().get(at - 1)
            });
        let at = at - usize::from(is_quoted);
        let value = value.map_or(String::new(), |it| format!(" {}", shell_word(it)));
        return Some(replaced(at, at, format!("{option}{value} ")));
    }
    if let Some(word) = assignment(text) {
        let value = shell_word(value.unwrap_or("true"));
        return Some(replaced(word.start, word.start, format!("{option}={value} ")));
    }
    inserted_key(text, option, value.unwrap_or("true"))
}

/// Inserts a new key under its parent.
fn inserted_key(text: &str, option: &str, value: &str) -> Option<Replacement> {
    let (notation, keys) = (Notation::of(text)?, keys(text));
    let written = notation.written(value);
    let (parent, key) = match option.rsplit_once('.') {
        Some((parent, key)) => (Some(parent), key),
        None => (None, option),
    };
    let put = |at: usize, with: String| Some(replaced(at, at, with));
    let above = parent.and_then(|parent| keys.iter().find(|it| it.path == parent));
    match (notation, parent, above) {
        (Notation::Python, ..) => {
            // The new line follows the last line of the same section, else the last line of all.
            let section = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
            let of_section = |it: &&Key| section(&it.path) == section(option);
            let last_key = keys.iter().rfind(of_section).or(keys.last())?;
            let before = &text[last_key.whole.start..last_key.name.start];
            put(last_key.whole.end, format!("{before}{option} = {written}\n"))
        }
        (Notation::Json, None, _) => put(text.find('{')? + 1, entry(text, 0, key, &written)?),
        (Notation::Json, Some(_), Some(above)) => {
            let at = above.value.start;
            let is_object = text[at..].starts_with('{');
            is_object.then(|| put(at + 1, entry(text, at, key, &written)?))?
        }
        (Notation::Json, Some(parent), None) if !parent.contains('.') => {
            let object = format!("{{\"{key}\": {written}}}");
            put(text.find('{')? + 1, entry(text, 0, parent, &object)?)
        }
        (Notation::Toml, Some(_), Some(above)) => {
            put(above.name.end + 1, format!("\n{key} = {written}"))
        }
        (Notation::Toml, Some(parent), None) => {
            let line = if text.ends_with('\n') { "" } else { "\n" };
            put(text.len(), format!("{line}\n[{parent}]\n{key} = {written}\n"))
        }
        (Notation::Yaml, None, _) => {
            put(keys.first().map_or(0, |it| it.whole.start), format!("{key}: {written}\n"))
        }
        (Notation::Yaml, Some(_), Some(above)) => {
            let prefix = format!("{}.", above.path);
            let child = keys.iter().find(|it| it.path.starts_with(&prefix))?;
            let indent = &text[child.whole.start..child.name.start];
            put(child.whole.start, format!("{indent}{key}: {written}\n"))
        }
        (Notation::Yaml, Some(parent), None) if !parent.contains('.') => {
            let at = keys.first().map_or(0, |it| it.whole.start);
            put(at, format!("{parent}:\n  {key}: {written}\n"))
        }
        _ => None,
    }
}

/// Text of a new first entry for the object that begins at or after an offset; it ends with a comma if other entries
/// follow.
fn entry(text: &str, object: usize, key: &str, value: &str) -> Option<String> {
    let inside = &text[object + text[object..].find('{')? + 1..];
    let comma = if inside.trim_start().starts_with('}') { "" } else { "," };
    Some(format!("\n  \"{key}\": {value}{comma}"))
}

/// All places of an option in a text.
fn places(text: &str, option: &str) -> Vec<Placed> {
    if !option.starts_with('-') {
        let keys = keys(text).into_iter().filter(|it| it.path == option);
        let placed = |Key { name, value, whole, .. }| Placed {
            name,
            values: Some(value),
            whole: Some(whole),
        };
        let placed: Vec<Placed> = keys.map(placed).collect();
        if !placed.is_empty() {
            return placed;
        }
        if Notation::of(text).is_some() {
            return Vec::new();
        }
        // A word without dashes, such as torchtitan's `activation-checkpoint:full` or Hydra's `trainer.nnodes=2`.
        let place = |name: Range<usize>| {
            let word = &text[name.clone()];
            let rest = word.trim_start_matches('+').strip_prefix(option)?;
            let value = name.end - rest.len();
            match rest.strip_prefix('=') {
                Some(_) => Some(Placed {
                    name: name.start..value,
                    values: Some(value + 1..name.end),
                    whole: None,
                }),
                None => (word == option).then_some(Placed { name, values: None, whole: None }),
            }
        };
        return tokens(text).into_iter().filter_map(place).collect();
    }
    let tokens = tokens(text);
    let mut all = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let word = &text[token.clone()];
        if let Some(rest) = word.strip_prefix(option)
            && rest.starts_with('=')
        {
            let end = token.start + option.len();
            let values = Some(end + 1..token.end);
            all.push(Placed { name: token.start..end, values, whole: None });
        }
        if word != option {
            continue;
        }
        let mut end = token.end;
        let mut first = None;
        for next in &tokens[index + 1..] {
            let between = &text[end..next.start];
            let is_near =
                !between.replace("\\\n", "").contains(['\n', ';', ')', '(', '|', '&', '<', '>']);
            let word = &text[next.clone()];
            if !is_near || word.starts_with("--") || word.starts_with(['>', '|', '&']) {
                break;
            }
            first = first.or(Some(next.start));
            end = next.end;
        }
        let values = first.map(|first| first..end);
        all.push(Placed { name: token.clone(), values, whole: None });
    }
    all
}

/// Approximate shell words: text between blanks, quotes and brackets, without comments. Blanks end words within quotes
/// too, since a quoted list of arguments contains several words.
fn tokens(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut all = Vec::new();
    let mut quote = None;
    let mut start = None;
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        let is_break = byte == b'\\' && bytes.get(at + 1) == Some(&b'\n');
        let ends = byte.is_ascii_whitespace()
            || is_break
            || match quote {
                Some(quote) => byte == quote,
                None => b"\"'();".contains(&byte),
            };
        if ends {
            all.extend(start.take().map(|start| start..at));
            quote = match (byte, quote) {
                (b'"' | b'\'', None) => Some(byte),
                (_, Some(open)) if byte == open => None,
                _ => quote,
            };
            at += 1;
        } else if byte == b'#' && start.is_none() && quote.is_none() {
            at = text[at..].find('\n').map_or(bytes.len(), |length| at + length);
        } else {
            start = start.or(Some(at));
            let opens = byte == b'$' && quote != Some(b'\'');
            at = match bytes.get(at + 1) {
                Some(b'(' | b'{') if opens => closed(bytes, at + 1),
                _ => at + 1,
            };
        }
    }
    all.extend(start.map(|start| start..bytes.len()));
    all
}

/// Offset after the bracket that closes the one at `from`.
fn closed(bytes: &[u8], from: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in bytes.iter().enumerate().skip(from) {
        match byte {
            b'(' | b'{' => depth += 1,
            b')' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(option: &str, value: &str) -> OptionChange {
        OptionChange::set(option, Some(value.to_owned()))
    }

    #[test]
    fn options_change_in_place() {
        let check = |text: &str, change: OptionChange, expected: &str| {
            assert_eq!(changed(text, &[change]).unwrap().0, expected, "{text}");
        };
        check("--tp 4 --pp 2", set("--tp", "8"), "--tp 8 --pp 2");
        check("--tp=4 --pp 2", set("--tp", "8"), "--tp=8 --pp 2");
        check("A=(\n  --tp $TP # why\n  --b\n)", set("--tp", "8"), "A=(\n  --tp 8 # why\n  --b\n)");
        check("x --tp $((A * 2)) \\\n --b", set("--tp", "8"), "x --tp 8 \\\n --b");
        check("--tp \"4\" --b", OptionChange::remove("--tp"), "--b");
        check("\"--tp\" \\\n 4 --b", OptionChange::remove("--b"), "\"--tp\" \\\n 4 ");
        check("# --tp 2\n--tp 4", set("--tp", "8"), "# --tp 2\n--tp 8");
        check("--layers '([0]*3)' --b", set("--layers", "1"), "--layers '1' --b");
        check("\"--a 1\"\n\"--b (2|3) --c\"", set("--b", "4"), "\"--a 1\"\n\"--b 4 --c\"");
        check(
            "ARGS=\"--micro-batch-size 1 --b\"",
            OptionChange::set("--sp", None),
            "ARGS=\"--sp --micro-batch-size 1 --b\"",
        );
        check("{\"zero\": {\"stage\": 2}}", set("zero.stage", "1"), "{\"zero\": {\"stage\": 1}}");
        check("{\"a\": 1}", set("b", "2"), "{\n  \"b\": 2,\"a\": 1}");
        check("a: 1\nb: x # no\n", set("b", "y"), "a: 1\nb: y # no\n");
        check("# a, or b,\na: 1\nb: 2\n", OptionChange::remove("a"), "# a, or b,\nb: 2\n");
    }

    #[test]
    fn lines_are_those_of_options() {
        let text = "#!/bin/bash\n# --bf16\nA=(\n  --bf16\n)\n";
        assert_eq!(line_of(text, "--bf16"), Some(4));
        assert_eq!(line_of(text, "--fp16"), None);
        assert_eq!(
            line_of("{\n \"layout\": {\n  \"tensor_parallel\": 4}}", "layout.tensor_parallel"),
            Some(3)
        );
    }
}
