//! Columns of a published row.

use serde_json::{Map, Value};

use super::run::Unsupported;

/// The columns of a row, which may be missing or of the wrong type.
#[derive(Clone, Debug)]
pub(super) struct Columns(Map<String, Value>);

impl Columns {
    /// The columns of a row. A row that is not an object is put into the column of the time, where the error is
    /// reported.
    pub(super) fn new(value: Value) -> Self {
        match value {
            Value::Object(fields) => Self(fields),
            other => Self(Map::from_iter([("step_time_s".to_owned(), other)])),
        }
    }

    /// The value of a column, by its path.
    pub(super) fn value(&self, path: &str) -> Option<&Value> {
        let mut names = path.split('.');
        let outermost = names.next().and_then(|name| self.0.get(name));
        let found = names.fold(outermost, |value, name| value.and_then(|value| value.get(name)));
        found.filter(|value| !value.is_null())
    }

    /// A value of any type as text; empty if it is missing.
    pub(super) fn as_text(&self, path: &str) -> String {
        match self.value(path) {
            None => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        }
    }

    /// A text; empty if it is missing.
    pub(super) fn text(&self, path: &str) -> &str {
        self.value(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// A boolean, if present.
    pub(super) fn flag(&self, path: &str) -> Option<bool> {
        self.value(path).and_then(Value::as_bool)
    }

    /// A non-negative integer, if present.
    pub(super) fn count(&self, path: &str) -> Result<Option<u64>, Unsupported> {
        self.value(path).map_or(Ok(None), |value| {
            let whole = value.as_f64().filter(|number| *number >= 0.0 && number.fract() == 0.0);
            let whole = value.as_u64().or(whole.map(|number| number as u64));
            whole
                .map(Some)
                .ok_or_else(|| Unsupported::new(format!("`{path}` is {value}, no whole number")))
        })
    }

    /// A required positive integer.
    pub(super) fn size(&self, path: &str) -> Result<u64, Unsupported> {
        match self.count(path)? {
            None => Err(Unsupported::new(format!("`{path}` is missing"))),
            Some(0) => Err(Unsupported::new(format!("`{path}` is 0"))),
            Some(size) => Ok(size),
        }
    }

    /// A degree of parallelism; 1 if it is missing.
    pub(super) fn degree(&self, path: &str) -> Result<u32, Unsupported> {
        let degree = self.count(path)?.unwrap_or(1);
        let fits = u32::try_from(degree).ok().filter(|degree| *degree > 0);
        fits.ok_or_else(|| Unsupported::new(format!("`{path}` is {degree}")))
    }

    /// A positive number, if present.
    pub(super) fn real(&self, path: &str) -> Result<Option<f64>, Unsupported> {
        self.value(path).map_or(Ok(None), |value| {
            let number = value.as_f64().filter(|number| number.is_finite() && *number > 0.0);
            number.map(Some).ok_or_else(|| Unsupported::new(format!("`{path}` is {value}")))
        })
    }

    /// The number that follows a word in a text.
    pub(super) fn number_after(&self, path: &str, word: &str) -> Option<u64> {
        let text = self.text(path);
        text.match_indices(word).find_map(|(place, _)| {
            let is_part = |it: char| it.is_alphanumeric() || it == '_';
            let is_word = !text[..place].ends_with(is_part);
            let digits =
                text[place + word.len()..].split(|it: char| !it.is_ascii_digit()).next()?;
            digits.parse().ok().filter(|_| is_word)
        })
    }

    /// Text of several columns, which is equal for two rows if all these columns are.
    pub(super) fn texts(&self, paths: &[String]) -> String {
        let text = |path: &String| self.value(path).map(Value::to_string).unwrap_or_default() + ";";
        paths.iter().map(text).collect()
    }
}
