//! Errors of JSON in plain words: which field, its value, and the valid values.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::{printable, printable_lines, shortened};

/// `text` with `null` in place of infinities and NaN, which Python writes though JSON does not have them; published
/// configurations contain them.
pub fn without_infinities(text: &str) -> Cow<'_, str> {
    const WORDS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
    if !WORDS.iter().any(|word| text.contains(word)) {
        return Cow::Borrowed(text);
    }
    let (mut rest, mut plain) = (text, String::with_capacity(text.len()));
    let (mut is_quoted, mut is_escaped) = (false, false);
    while let Some(next) = rest.chars().next() {
        let word = WORDS.iter().find(|word| !is_quoted && rest.starts_with(**word));
        let taken = word.map_or(next.len_utf8(), |word| word.len());
        plain.push_str(if word.is_some() { "null" } else { &rest[..taken] });
        is_quoted ^= next == '"' && !is_escaped;
        is_escaped = next == '\\' && !is_escaped;
        rest = &rest[taken..];
    }
    Cow::Owned(plain)
}

/// Error of a JSON text, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct JsonError {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// The field, its value and the valid values, in words.
    pub problem: String,
}

/// Reads a value from JSON.
///
/// # Errors
///
/// [`JsonError`] on broken JSON, and on JSON of another form.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        JsonError { line, column, problem: problem(text, &error) }
    })
}

/// Message for `error`, which occurred on reading `text`: without line and column, but with the field in question.
///
/// ```
/// let text = r#"{"gpu": {"memory_bytes": "80GB"}}"#;
/// # #[derive(serde::Deserialize)] struct Gpu { memory_bytes: f64 }
/// # #[derive(serde::Deserialize)] struct File { gpu: Gpu }
/// # impl File { fn used(&self) -> f64 { self.gpu.memory_bytes } } let _ = File::used;
/// let error = serde_json::from_str::<File>(text).map(|_| ()).unwrap_err();
/// assert_eq!(
///     ir::text::json::problem(text, &error),
///     "`gpu.memory_bytes` is \"80GB\", but must be a number of bytes, such as 85899345920, which are 80 GiB"
/// );
/// ```
pub fn problem(text: &str, error: &serde_json::Error) -> String {
    let whole = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = whole.strip_suffix(&place).unwrap_or(&whole);
    match error.classify() {
        // Errors on values that were already parsed have no position.
        Category::Data if error.line() == 0 => {
            with_path(message, &[]).replacen("this is ", "a field is ", 1)
        }
        Category::Data => match keys(text, offset(text, error)).as_slice() {
            // Serde also reads a struct's fields from a list, in order.
            [Key::Index(_), ..] => {
                "this is a list, in `[ ]`, but must be one object, in `{ }`\nhint: give what is in the list by itself"
                    .to_owned()
            }
            keys => with_path(message, keys),
        },
        _ => misspelt(text, offset(text, error), message),
    }
}

/// Number of bytes of a text that were read before an error.
fn offset(text: &str, error: &serde_json::Error) -> usize {
    let lines = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    let offset = lines.map(str::len).sum::<usize>() + error.column();
    offset.min(text.len())
}

/// A step on the path from a value to one within it.
#[derive(Clone, Debug)]
enum Key {
    /// The value of a field; `None` before its name is read.
    Field(Option<String>),
    /// Index in a list.
    Index(usize),
}

/// The path to the value at byte `end`.
fn keys(text: &str, end: usize) -> Vec<Key> {
    let bytes = text.as_bytes();
    let mut keys: Vec<Key> = Vec::new();
    let mut at = 0;
    while at < end {
        let start = at;
        at += 1;
        match bytes[start] {
            b'{' => keys.push(Key::Field(None)),
            b'[' => keys.push(Key::Index(0)),
            b'}' | b']' => {
                keys.pop();
            }
            b',' => match keys.last_mut() {
                Some(Key::Field(name)) => *name = None,
                Some(Key::Index(index)) => *index += 1,
                None => {}
            },
            b'"' => {
                while at < end && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
                if let Some(Key::Field(name @ None)) = keys.last_mut() {
                    let quoted = text.get(start..at).unwrap_or_default();
                    *name = Some(serde_json::from_str(quoted).unwrap_or_default());
                }
            }
            _ => {}
        }
    }
    keys
}

/// Path in text: `levels[0].ranks`.
fn path(keys: &[Key]) -> String {
    let mut path = String::new();
    for key in keys {
        match key {
            Key::Field(Some(name)) if path.is_empty() => path.push_str(&printable(name)),
            Key::Field(Some(name)) => path.extend([".", &printable(name)]),
            Key::Field(None) => {}
            Key::Index(index) => path.extend(["[", &index.to_string(), "]"]),
        }
    }
    path
}

/// Rewrites a message of serde about the value at `keys`.
fn with_path(message: &str, keys: &[Key]) -> String {
    let is = |path: String| if path.is_empty() { "this".to_owned() } else { format!("`{path}`") };
    let split = |start: &str| {
        let rest = message.strip_prefix(start)?;
        rest.split_once(", expected ")
            .or(rest.split_once(", there are no fields").map(|(it, _)| (it, "")))
    };
    if let Some((found, expected)) = split("invalid type: ").or_else(|| split("invalid value: ")) {
        let (found, number) = found_in_words(found);
        let quotes = if number { "\nhint: a number stands without quotes" } else { "" };
        let expected = expected_in_words(expected, keys);
        return format!("{} is {found}, but must be {expected}{quotes}", is(path(keys)));
    }
    if let Some((_, expected)) = split("invalid length ") {
        let expected = expected_in_words(expected.split(" with ").next().unwrap_or_default(), keys);
        return format!(
            "{} has another length than it must; {expected} is expected",
            is(path(keys))
        );
    }
    if let Some((found, expected)) = split("unknown variant ") {
        let nearest = nearest(found, expected);
        // The unknown name may be that of a field or that of a value.
        if let Some((Key::Field(Some(name)), within)) = keys.split_last()
            && name == found.trim_matches('`')
        {
            let within = is(path(within));
            return format!(
                "{within} has {found}, but may have only {}{nearest}",
                expected.replace("one of ", "")
            );
        }
        return format!("{} is {found}, but must be {expected}{nearest}", is(path(keys)));
    }
    if let Some((found, expected)) = split("unknown field ") {
        let within = keys.split_last().map(|(_, rest)| path(rest)).unwrap_or_default();
        let within = if within.is_empty() { "it".to_owned() } else { format!("`{within}`") };
        let known = if expected.is_empty() {
            "no field".to_owned()
        } else {
            expected.replace("one of ", "")
        };
        return format!(
            "{found} is not a field that is known; {within} may have {known}{}",
            nearest(found, expected)
        );
    }
    if let Some(field) = message.strip_prefix("missing field ") {
        let within = path(keys);
        let of = if within.is_empty() { String::new() } else { format!(" in `{within}`") };
        return format!("{field} is missing{of}");
    }
    if let Some(field) = message.strip_prefix("duplicate field ") {
        return format!("{field} is there twice");
    }
    let message = printable_lines(message);
    match keys.last() {
        Some(Key::Field(Some(name))) if !message.contains(&format!("{}`", printable(name))) => {
            format!("`{}`: {message}", path(keys))
        }
        _ => message.into_owned(),
    }
}

/// Description of the value that was found, and whether it is a number in quotes.
fn found_in_words(found: &str) -> (String, bool) {
    let words = match found {
        "map" => "an object".to_owned(),
        "sequence" => "a list".to_owned(),
        "null" | "unit value" | "Option value" => "`null`".to_owned(),
        _ => {
            let kinds = ["string ", "integer ", "floating point ", "boolean ", "number "];
            let value = kinds.iter().find_map(|kind| found.strip_prefix(kind)).unwrap_or(found);
            shortened(&printable(value))
        }
    };
    let quoted = found.strip_prefix("string \"").and_then(|it| it.strip_suffix('"'));
    (words, quoted.is_some_and(|it| it.parse::<f64>().is_ok()))
}

/// Units of fields by the end of their names.
const UNITS: [(&str, &str); 5] = [
    ("flops_per_second", "operations a second, such as 9.89e14, which are 989 TFLOP/s"),
    ("bytes_per_second", "bytes a second, such as 4.5e11, which are 450 GB/s"),
    ("bytes", "bytes, such as 85899345920, which are 80 GiB"),
    ("seconds", "seconds, such as 5e-6, which are 5 us"),
    ("watts", "watts, such as 700"),
];

/// Description of a type of Rust or serde for the author of a file.
fn expected_in_words(expected: &str, keys: &[Key]) -> String {
    const TYPES: [(&[&str], &str); 9] = [
        (&["u8"], "a whole number from 0 to 255"),
        (&["u16"], "a whole number from 0 to 65535"),
        (&["u32"], "a whole number from 0 to 4294967295"),
        (&["u64", "usize", "u128"], "a whole number, 0 or more"),
        (&["i8", "i16", "i32", "i64", "isize"], "a whole number"),
        (&["f32", "f64"], "a number"),
        (
            &["a string", "string", "str", "a borrowed string", "a character"],
            "a text in double quotes",
        ),
        (&["a boolean", "bool"], "`true` or `false`"),
        (&["a sequence", "sequence", "an array"], "a list, in `[ ]`"),
    ];
    let unit = keys.iter().rev().find_map(|key| match key {
        Key::Field(Some(name)) => UNITS.iter().find(|(end, _)| name.ends_with(end)),
        _ => None,
    });
    let known = TYPES.iter().find(|(names, _)| names.contains(&expected));
    match (known, unit) {
        (Some((_, words)), Some((_, unit))) if words.contains("number") => {
            format!("a number of {unit}")
        }
        (Some((_, words)), _) => (*words).to_owned(),
        (None, _) if expected.starts_with("a nonzero ") => "a whole number, 1 or more".to_owned(),
        (None, _) if expected.starts_with("tuple ") || expected.starts_with("an array ") => {
            "a list, in `[ ]`".to_owned()
        }
        (None, _) if expected.starts_with("enum ") || expected == "string or map" => {
            "one of its names, in double quotes".to_owned()
        }
        (None, _)
            if expected.contains("struct ")
                || expected.contains("map")
                || expected.contains("enum ") =>
        {
            "an object, in `{ }`".to_owned()
        }
        (None, _) => printable(expected).into_owned(),
    }
}

/// Hint that names the nearest of the expected names, if one is near.
fn nearest(found: &str, expected: &str) -> String {
    nearest_of(found, expected)
        .map_or_else(String::new, |best| format!("\nhint: `{best}` is the nearest"))
}

/// The name nearest to `found` among those in backquotes, if one is near.
pub(crate) fn nearest_of<'a>(found: &str, names: &'a str) -> Option<&'a str> {
    // Splitting at backquotes yields a name at every second position.
    super::nearest(found, names.split('`').skip(1).step_by(2)).into_iter().next()
}

/// Reason why a text is not JSON: the syntax of other notations, else the parser's message.
fn misspelt(text: &str, end: usize, message: &str) -> String {
    let bytes = text.as_bytes();
    // The parser stops at the unexpected character or before it.
    let is_told = |at: &usize| bytes.get(*at).is_some_and(|c| !c.is_ascii_whitespace());
    let at = [end.wrapping_sub(1), end].into_iter().find(is_told).unwrap_or(end);
    let rest = text.get(at..).unwrap_or_default();
    let word: String =
        rest.chars().take_while(|c| c.is_ascii_alphanumeric() || "_-".contains(*c)).collect();
    let is_python = ["True", "False", "None"].contains(&word.as_str());
    let is_within_text =
        ["escape", "while parsing a string", "unicode"].iter().any(|it| message.contains(it));
    match (message, rest.chars().next()) {
        _ if message.starts_with("EOF while parsing") => {
            let what = match message.rsplit(' ').next() {
                Some("object") => "an object, `{`, has no end",
                Some("list") => "a list, `[`, has no end",
                Some("string") => "a text in quotes has no end",
                _ => "a value is missing",
            };
            format!("the file ends here, though {what}")
        }
        // A line break within quotes, after which nothing follows.
        _ if message.starts_with("control character")
            && text.get(at..).is_none_or(|rest| rest.trim().is_empty()) =>
        {
            "the file ends here, though a text in quotes has no end".to_owned()
        }
        _ if is_within_text => printable(message).into_owned(),
        (_, Some('#' | '/')) => "JSON has no comments\nhint: remove what begins here".to_owned(),
        (_, Some('\'')) => {
            "JSON has texts and names of fields in double quotes, not in single ones".to_owned()
        }
        _ if is_python => {
            let ours = if word == "None" { "null".to_owned() } else { word.to_lowercase() };
            format!("`{word}` is of Python\nhint: `{ours}` is the same in JSON")
        }
        _ if ["NaN", "Infinity", "nan", "inf", "Inf", "NAN"].contains(&word.as_str()) => {
            format!(
                "`{word}` is no number in JSON\nhint: `null`, or no such field, says that there is none"
            )
        }
        ("key must be a string", Some(_)) if !word.is_empty() => {
            format!("`{}` must stand in double quotes", shortened(&word))
        }
        ("trailing comma", _) => "nothing follows the last comma\nhint: remove it".to_owned(),
        ("trailing characters", _) => "something follows what should be the end".to_owned(),
        ("expected `,` or `}`", Some('"')) => "a comma is missing before it".to_owned(),
        ("expected `,` or `]`", Some('"')) => "a comma is missing before it".to_owned(),
        _ => printable(message).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::problem;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only what cannot be read is looked at")]
    struct File {
        name: String,
        gpu: Gpu,
        #[serde(default)]
        levels: Vec<Gpu>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only what cannot be read is looked at")]
    struct Gpu {
        count: u32,
        #[serde(default)]
        kind: Option<Kind>,
        #[serde(default)]
        peak_flops_per_second: BTreeMap<String, f64>,
        #[serde(default)]
        is_new: bool,
        #[serde(default)]
        by_kind: BTreeMap<Kind, u32>,
    }

    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Volta,
        Hopper,
    }

    fn check(text: &str, expected: &str) {
        let error = serde_json::from_str::<File>(text).unwrap_err();
        assert_eq!(problem(text, &error), expected, "{text}: {error}");
    }

    #[test]
    fn fields_are_named_with_what_they_must_be() {
        check(
            r#"{"name": "x", "gpu": {"count": "8"}}"#,
            "`gpu.count` is \"8\", but must be a whole number from 0 to 4294967295\nhint: a number stands without quotes",
        );
        check(
            "{\"name\": \"x\",\n \"gpu\": {\"count\": 8,\n \"peak_flops_per_second\": {\"bf16\": \"fast\"}}}",
            "`gpu.peak_flops_per_second.bf16` is \"fast\", but must be a number of operations a second, such as 9.89e14, \
             which are 989 TFLOP/s",
        );
        check(r#"{"name": 5}"#, "`name` is `5`, but must be a text in double quotes");
        check(
            r#"{"name": "x", "gpu": {"count": 1, "is_new": 1}}"#,
            "`gpu.is_new` is `1`, but must be `true` or `false`",
        );
        check(r#"{"name": "x", "gpu": 5}"#, "`gpu` is `5`, but must be an object, in `{ }`");
        check(
            r#"{"name": "x", "gpu": {"count": 1}, "levels": [{"count": 2}, {"count": -1}]}"#,
            "`levels[1].count` is `-1`, but must be a whole number from 0 to 4294967295",
        );
        check(
            r#"{"name": "x", "gpu": {"count": 1}, "levels": {}}"#,
            "`levels` is an object, but must be a list, in `[ ]`",
        );
        check(r#"{"name": "x", "gpu": {}, "levels": []}"#, "`count` is missing in `gpu`");
        check(r#"{"name": "x"}"#, "`gpu` is missing");
        check(
            r#"{"name": "x", "gpu": {"coutn": 1}}"#,
            "`coutn` is not a field that is known; `gpu` may have `count`, `kind`, `peak_flops_per_second`, `is_new`, `by_kind`\n\
             hint: `count` is the nearest",
        );
        check(
            r#"{"name": "x", "gpu": {"count": 1, "kind": "hoper"}}"#,
            "`gpu.kind` is `hoper`, but must be `volta` or `hopper`\nhint: `hopper` is the nearest",
        );
    }

    #[test]
    fn lists_and_names_of_fields_are_told_too() {
        check(
            r#"[{"name": "x"}]"#,
            "this is a list, in `[ ]`, but must be one object, in `{ }`\nhint: give what is in the list by itself",
        );
        check(
            r#"{"name": "x", "gpu": {"count": 1, "by_kind": {"volt": 1}}}"#,
            "`gpu.by_kind` has `volt`, but may have only `volta` or `hopper`\nhint: `volta` is the nearest",
        );
    }

    #[test]
    fn other_notations_are_told_apart() {
        check("{\"name\": True}", "`True` is of Python\nhint: `true` is the same in JSON");
        check("{\"name\": None}", "`None` is of Python\nhint: `null` is the same in JSON");
        check(
            "{\"name\": NaN}",
            "`NaN` is no number in JSON\nhint: `null`, or no such field, says that there is none",
        );
        check(
            "{'name': 'x'}",
            "JSON has texts and names of fields in double quotes, not in single ones",
        );
        check("{// of mine\n}", "JSON has no comments\nhint: remove what begins here");
        check("{\n # of mine\n}", "JSON has no comments\nhint: remove what begins here");
        check("{\"name\": \"x\",}", "nothing follows the last comma\nhint: remove it");
        check("{name: 1}", "`name` must stand in double quotes");
        check("{\"name\": \"x\" \"gpu\": 1}", "a comma is missing before it");
        check("{\"name\": \"x\",", "the file ends here, though a value is missing");
        check("{\"name\": \"it's", "the file ends here, though a text in quotes has no end");
        check("{\"name\": \"it\\'s\"}", "invalid escape");
    }
}
