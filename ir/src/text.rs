//! Untrusted text: decoded from bytes, compared by letters and digits, and escaped for printing, so that no character
//! moves the cursor, begins a line, is invisible, or reorders the text around it.

pub mod json;
mod nearest;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::str::Utf8Error;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub use nearest::{nearest, similarity};

/// The byte-order mark that Windows programs put before a text in UTF-8.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reason why bytes are not text in UTF-8.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotText {
    /// UTF-16, which Windows programs also write.
    #[error("it is text in UTF-16\nhint: save it in UTF-8")]
    Utf16,
    /// Bytes in another encoding.
    #[error(transparent)]
    NotUtf8(#[from] Utf8Error),
}

/// Decodes bytes as UTF-8, without the byte-order mark.
///
/// ```
/// use ir::text::{NotText, decoded};
///
/// assert_eq!(decoded(b"\xef\xbb\xbf{}")?, "{}");
/// assert!(matches!(decoded(b"\xff\xfe{\0}\0"), Err(NotText::Utf16)));
/// assert!(matches!(decoded(b"\xff{}"), Err(NotText::NotUtf8(_))));
/// # Ok::<(), NotText>(())
/// ```
///
/// # Errors
///
/// [`NotText`] where the bytes are not UTF-8.
pub fn decoded(bytes: &[u8]) -> Result<&str, NotText> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(NotText::Utf16);
    }
    let text = std::str::from_utf8(bytes)?;
    Ok(text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text))
}

/// A count with its noun: `1 rank`, `2 ranks`.
pub fn count_of(count: impl Into<u64>, one: &str, many: &str) -> String {
    let count = count.into();
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A word of a command that word processors or web pages changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typeset {
    /// Description of the change.
    pub what: &'static str,
    /// The word as it can be typed.
    pub plain: String,
}

/// Detects changes that word processors and web pages make to a word of a command: a dash for the two hyphens of an
/// option, quotes that a shell does not recognize, blanks that do not separate words. `None` if there are none.
///
/// ```
/// use ir::text::typeset;
///
/// let typeset_word = typeset("\u{2014}tp\u{a0}8").unwrap();
/// assert_eq!(typeset_word.what, "it begins with a long dash");
/// assert_eq!(typeset_word.plain, "--tp 8");
/// assert_eq!(typeset("--tp"), None);
/// ```
pub fn typeset(word: &str) -> Option<Typeset> {
    let is_dash = |c: char| ('\u{2010}'..='\u{2015}').contains(&c) || c == '\u{2212}';
    let is_blank = |c: char| c.is_whitespace() && !c.is_ascii() || c == '\u{200b}';
    let is_single = |c: char| ('\u{2018}'..='\u{201b}').contains(&c);
    let is_double = |c: char| ('\u{201c}'..='\u{201f}').contains(&c);
    let rest = word.trim_start_matches(|c| c == '-' || is_dash(c));
    let begins_with_dash = word[..word.len() - rest.len()].contains(is_dash);
    let what = match () {
        () if begins_with_dash => "it begins with a long dash",
        () if word.contains(is_blank) => "it has a blank that parts no words",
        () if word.contains(|c| is_single(c) || is_double(c)) => "its quotes are curly",
        () => return None,
    };
    let plain = rest.replace(is_blank, " ").replace(is_single, "'").replace(is_double, "\"");
    Some(Typeset {
        what,
        plain: if begins_with_dash {
            format!("--{plain}")
        } else {
            word[..word.len() - rest.len()].to_owned() + &plain
        },
    })
}

/// Normal form of a name for comparison: its letters and digits, in lower case.
///
/// ```
/// assert_eq!(ir::text::folded("ZB-H1"), ir::text::folded("zb_h1"));
/// ```
pub fn folded(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Characters that are invisible without being control characters, or that change how others show.
const UNSHOWN: [RangeInclusive<char>; 12] = [
    '\u{ad}'..='\u{ad}',        // soft hyphen
    '\u{61c}'..='\u{61c}',      // Arabic letter mark
    '\u{180e}'..='\u{180e}',    // Mongolian vowel separator
    '\u{200b}'..='\u{200b}', // zero-width space; what joins letters of a script, after it, is no harm
    '\u{200e}'..='\u{200f}', // marks of direction
    '\u{2028}'..='\u{202e}', // separators of lines; embeddings and overrides of direction
    '\u{2060}'..='\u{206f}', // word joiner, invisible operators, isolates of direction
    '\u{feff}'..='\u{feff}', // byte-order mark
    '\u{fff9}'..='\u{fffb}', // marks of annotations
    '\u{fffe}'..='\u{ffff}', // no characters, which XML does not take
    '\u{e0000}'..='\u{e0fff}', // tags
    '\u{f0000}'..='\u{10ffff}', // for private use
];

/// Returns whether a character shows as itself in any context.
fn is_shown(c: char) -> bool {
    c.is_ascii() && !c.is_ascii_control()
        || !c.is_control() && !UNSHOWN.iter().any(|range| range.contains(&c))
}

/// Returns whether a text shows as it is, on one line.
pub fn is_fit_to_print(text: &str) -> bool {
    text.chars().all(is_shown)
}

/// The text on one line, with escapes such as `\n` and `\u{1b}` for characters that do not show.
///
/// ```
/// use ir::text::printable;
///
/// assert_eq!(printable("Llama-3.1 8B"), "Llama-3.1 8B");
/// assert_eq!(printable("red\u{1b}[31m\nnext"), "red\\u{1b}[31m\\nnext");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// [`printable`] for a text that may be long: its beginning, and two dots where there is more.
pub fn shortened(text: &str) -> String {
    /// Enough to recognize a text.
    const MOST_CHARACTERS: usize = 40;
    let text = printable(text);
    match text.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{}..", &text[..end]),
        None => text.into_owned(),
    }
}

/// [`printable`] for a text of several lines: line breaks and tabs are kept.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_fit = |c: char| is_shown(c) || is_kept(c);
    if text.chars().all(is_fit) {
        return text.into();
    }
    let mut whole = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_fit(c) {
            whole.push(c);
        } else {
            whole.extend(c.escape_default());
        }
    }
    whole.into()
}

/// Deserializes a name in the form of [`printable`].
///
/// # Errors
///
/// An error where the value is not a string.
pub(crate) fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(printable(&text).into_owned())
}

/// Applies [`printable`] to all strings in a value, including names of fields.
pub fn printable_value(value: Value) -> Value {
    match value {
        Value::String(text) if !is_fit_to_print(&text) => Value::String(printable(&text).into()),
        Value::Array(values) => values.into_iter().map(printable_value).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (printable(&name).into_owned(), printable_value(value)))
            .collect(),
        other => other,
    }
}

/// A JSON document with escapes for characters that do not show; its meaning is unchanged.
pub fn printable_json(document: &str) -> Cow<'_, str> {
    let is_fit = |c: char| is_shown(c) || c == '\n';
    if document.chars().all(is_fit) {
        return document.into();
    }
    let mut whole = String::with_capacity(document.len() + 16);
    for c in document.chars() {
        if is_fit(c) {
            whole.push(c);
        } else {
            // Outside of strings JSON has none of these.
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(whole, "\\u{unit:04x}").expect("a string takes any text");
            }
        }
    }
    whole.into()
}
