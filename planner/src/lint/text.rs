//! Settings as text: where an option stands, and the text with an option changed.
//!
//! Scripts and lists of arguments have words that begin with `--`; files of JSON and YAML have keys, of which the last
//! part is looked for. What cannot be found is not changed, and says so.

use std::ops::Range;

use super::finding::{OptionChange, Replacement};

/// Options beside which others are written: those that every run has, of the program and not of what starts it.
const ANCHORS: [&str; 12] = [
    "--micro-batch-size",
    "--seq-length",
    "--global-batch-size",
    "--num-layers",
    "--hidden-size",
    "--bf16",
    "--tensor-model-parallel-size",
    "--training.local_batch_size",
    "--training.seq_len",
    "--parallelism.tensor_parallel_degree",
    "--parallelism.data_parallel_shard_degree",
    "--per_device_train_batch_size",
];

/// The line, from 1, of a place in a text.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    text[..at].bytes().filter(|byte| *byte == b'\n').count() + 1
}

/// The line where an option is first given.
pub(super) fn line_of(text: &str, option: &str) -> Option<usize> {
    Some(line_at(text, places(text, option).first()?.name.start))
}

/// The value of an option, as it is written.
pub(super) fn value<'a>(text: &'a str, option: &str) -> Option<&'a str> {
    text.get(places(text, option).last()?.values.clone()?)
}

/// Whether an option is given.
pub(super) fn has(text: &str, option: &str) -> bool {
    !places(text, option).is_empty()
}

/// The text with options changed, and where; `None` where one of them cannot be.
pub(super) fn changed(text: &str, changes: &[OptionChange]) -> Option<(String, Vec<Replacement>)> {
    let mut all = Vec::new();
    for change in changes {
        all.extend(replacements(text, change)?);
    }
    let text = applied(text, &all)?;
    Some((text, all))
}

/// The text with parts of it replaced, which may not overlap.
pub(super) fn applied(text: &str, replacements: &[Replacement]) -> Option<String> {
    let mut sorted: Vec<&Replacement> = replacements.iter().collect();
    sorted.sort_by_key(|it| (it.from, it.to));
    let mut new = String::with_capacity(text.len());
    let mut at = 0;
    for Replacement { from, to, with } in sorted {
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

/// Nothing in the place of something.
fn removed(from: usize, to: usize) -> Replacement {
    Replacement { from, to, with: String::new() }
}

/// Where an option stands with its values.
struct Placed {
    name: Range<usize>,
    /// Its values; nothing of a switch.
    values: Option<Range<usize>>,
    /// Whether it is a key of a file.
    is_key: bool,
}

impl Placed {
    fn removed(&self, text: &str) -> Replacement {
        let mut from = self.name.start;
        let mut to = self.values.as_ref().map_or(self.name.end, |values| values.end);
        let bytes = text.as_bytes();
        let is_quote = |at: usize| matches!(bytes.get(at), Some(b'"' | b'\''));
        if self.is_key {
            from -= usize::from(from > 0 && is_quote(from - 1));
            let rest = &text[to..];
            let comma = rest.len() - rest.trim_start().len();
            to += if rest.trim_start().starts_with(',') { comma + 1 } else { 0 };
        } else if is_quote(to) {
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
    match change {
        OptionChange::Remove { option } if places.is_empty() && !option.starts_with('-') => {
            let word = tokens(text).into_iter().find(|it| text[it.clone()] == **option);
            Some(word.map(|Range { start, end }| removed(start, end)).into_iter().collect())
        }
        OptionChange::Remove { .. } => Some(places.iter().map(|it| it.removed(text)).collect()),
        OptionChange::Rename { to, .. } => {
            let place = places.first()?;
            let Range { start, end } = place.name;
            Some(vec![Replacement { from: start, to: end, with: to.clone() }])
        }
        OptionChange::Set { option, value } => match (places.split_last(), value) {
            (Some((last, others)), value) => {
                // Of several the last is taken.
                let mut all: Vec<Replacement> = others.iter().map(|it| it.removed(text)).collect();
                if let Some(value) = value {
                    let Range { start, end } = last.values.clone()?;
                    let is_quoted = start > 0 && matches!(text.as_bytes()[start - 1], b'"' | b'\'');
                    let with = if is_quoted { value.clone() } else { shell_word(value) };
                    all.push(Replacement { from: start, to: end, with });
                }
                Some(all)
            }
            (None, value) => Some(vec![inserted(text, option, value.as_deref())?]),
        },
    }
}

/// What several words or one mean to a shell.
fn shell_word(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+%@ ".contains(c);
    if value.chars().all(is_plain) { value.to_owned() } else { format!("'{value}'") }
}

fn inserted(text: &str, option: &str, value: Option<&str>) -> Option<Replacement> {
    if option.starts_with("--") {
        let anchored = ANCHORS.iter().find_map(|anchor| places(text, anchor).pop());
        let at = anchored.map_or_else(
            || {
                tokens(text)
                    .into_iter()
                    .rfind(|it| text[it.clone()].starts_with("--"))
                    .map(|it| it.start)
            },
            |it| Some(it.name.start),
        )?;
        // Before an option that is quoted itself, its quote comes first.
        let is_quoted = at > 0
            && matches!(text.as_bytes()[at - 1], b'"' | b'\'')
            && tokens(text).into_iter().any(|it| {
                it.start == at && text.as_bytes().get(it.end) == text.as_bytes().get(at - 1)
            });
        let at = at - usize::from(is_quoted);
        let value = value.map_or(String::new(), |it| format!(" {}", shell_word(it)));
        return Some(Replacement { from: at, to: at, with: format!("{option}{value} ") });
    }
    let value = value.unwrap_or("true");
    let is_json = text.trim_start().starts_with('{');
    let number = value.parse::<f64>().is_ok() || ["true", "false"].contains(&value);
    let written = if number { value.to_owned() } else { format!("\"{value}\"") };
    let (parent, key) = match option.rsplit_once('.') {
        Some((parent, key)) => (Some(parent), key),
        None => (None, option),
    };
    if is_json {
        let at = match parent {
            None => text.find('{')? + 1,
            Some(parent) => match places(text, parent).first() {
                Some(place) => place.name.end + text[place.name.end..].find('{')? + 1,
                None if !parent.contains('.') => {
                    let at = text.find('{')? + 1;
                    let with = format!("\n  \"{parent}\": {{\"{key}\": {written}}},");
                    return Some(Replacement { from: at, to: at, with });
                }
                None => return None,
            },
        };
        return Some(Replacement { from: at, to: at, with: format!("\n  \"{key}\": {written},") });
    }
    if parent.is_none() {
        let with = format!("{key}: {value}\n");
        return Some(Replacement { from: 0, to: 0, with });
    }
    None
}

/// All places of an option.
fn places(text: &str, option: &str) -> Vec<Placed> {
    if !option.starts_with('-') {
        return keys(text, option.rsplit('.').next().unwrap_or(option));
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
            all.push(Placed { name: token.start..end, values, is_key: false });
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
        all.push(Placed { name: token.clone(), values, is_key: false });
    }
    all
}

/// Places of a key of JSON or YAML.
fn keys(text: &str, key: &str) -> Vec<Placed> {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    let mut all = Vec::new();
    for (start, _) in text.match_indices(key) {
        let end = start + key.len();
        let before = text[..start].chars().next_back();
        if is_part(before) || is_part(text[end..].chars().next()) {
            continue;
        }
        let rest = text[end..].trim_start_matches(['"', '\'', ' ']);
        let Some(after) = rest.strip_prefix(':') else { continue };
        let from = text.len() - after.trim_start_matches([' ', '"']).len();
        let length = text[from..].find([',', '\n', '}', '"', '#']).unwrap_or(text.len() - from);
        let to = from + text[from..from + length].trim_end().len();
        all.push(Placed { name: start..end, values: Some(from..to), is_key: true });
    }
    all
}

/// Words of a shell, by and large: what stands between blanks, quotes and brackets; comments are none. Quotes hold
/// several words where they are a list of arguments, so blanks end words within them too.
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

/// Behind the bracket that closes the one at a place.
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
