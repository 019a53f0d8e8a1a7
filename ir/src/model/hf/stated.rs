//! Values that are fixed for a family, or read from a field of the configuration.

use serde::Deserialize;
use serde_json::Value;

use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::AttentionGate;

/// A field of the configuration with its default in transformers.
#[expect(clippy::struct_field_names, reason = "the word of the families' files")]
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Field<T> {
    pub(super) field: String,
    /// The field that is read where `field` is absent.
    pub(super) or: Option<String>,
    pub(super) default: T,
}

impl<T> Field<T> {
    /// The field that is read: `field` itself, unless only the other field is present.
    pub(super) fn name(&self, fields: Fields<'_>) -> &str {
        let is_there = |name: &&String| fields.find(name).is_some();
        self.or.as_ref().filter(|or| !is_there(&&self.field) && is_there(or)).unwrap_or(&self.field)
    }
}

/// A value that is fixed for the family, or a field of the configuration.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Stated<T> {
    Fixed(T),
    Field(Field<T>),
}

impl<T: Default> Default for Stated<T> {
    fn default() -> Self {
        Self::Fixed(T::default())
    }
}

pub(super) const fn always() -> Stated<bool> {
    Stated::Fixed(true)
}

pub(super) const fn one() -> Stated<f64> {
    Stated::Fixed(1.0)
}

/// Reads the value of an optional rule; `None` where the family has no such rule.
pub(super) fn optional<'r, R, T>(
    rule: Option<&'r R>,
    read: impl FnOnce(&'r R) -> Result<T, ModelError>,
) -> Result<Option<T>, ModelError> {
    rule.map(read).transpose()
}

/// A type that can be read from a field.
pub(super) trait Readable: Copy {
    fn read(fields: Fields<'_>, name: &str, default: Self) -> Result<Self, ModelError>;
}

impl Readable for bool {
    fn read(fields: Fields<'_>, name: &str, default: Self) -> Result<Self, ModelError> {
        fields.flag_or(name, default)
    }
}

impl Readable for f64 {
    fn read(fields: Fields<'_>, name: &str, default: Self) -> Result<Self, ModelError> {
        fields.real_or(name, default)
    }
}

/// Laguna's words, and its flags.
impl Readable for AttentionGate {
    fn read(fields: Fields<'_>, name: &str, default: Self) -> Result<Self, ModelError> {
        match fields.find(name).map(|(_, value)| value) {
            None => Ok(default),
            Some(Value::Bool(true)) => Ok(Self::Heads),
            Some(Value::Bool(false)) => Ok(Self::Features),
            Some(Value::String(word)) if word == "per-head" => Ok(Self::Heads),
            Some(Value::String(word)) if word == "per-element" => Ok(Self::Features),
            Some(other) => Err(fields.unsupported(format!("`{name}` {other}"))),
        }
    }
}

/// Sizes of at least 1.
impl Readable for u64 {
    fn read(fields: Fields<'_>, name: &str, default: Self) -> Result<Self, ModelError> {
        fields.size_or(name, default)
    }
}

impl<T: Readable> Field<T> {
    pub(super) fn read(&self, fields: Fields<'_>) -> Result<T, ModelError> {
        T::read(fields, self.name(fields), self.default)
    }
}

/// Numbers that may be null, which means none.
impl Readable for Option<f64> {
    fn read(fields: Fields<'_>, name: &str, default: Self) -> Result<Self, ModelError> {
        match fields.find(name) {
            None => Ok(default),
            Some(_) => Ok(fields.optional_real(name)?.map(|real| real.0)),
        }
    }
}

impl Field<u64> {
    /// Reads a count of at least 0.
    pub(super) fn count(&self, fields: Fields<'_>) -> Result<u64, ModelError> {
        fields.count_or(self.name(fields), self.default)
    }
}

impl<T: Readable> Stated<T> {
    pub(super) fn read(&self, fields: Fields<'_>) -> Result<T, ModelError> {
        match self {
            Self::Fixed(value) => Ok(*value),
            Self::Field(field) => field.read(fields),
        }
    }
}

impl Stated<String> {
    /// The text, with the name of its field; that name is empty for a fixed text.
    pub(super) fn word<'a>(
        &'static self,
        fields: Fields<'a>,
    ) -> Result<(&'static str, &'a str), ModelError> {
        match self {
            Self::Fixed(word) => Ok(("", word)),
            Self::Field(Field { field, default, .. }) => {
                Ok((field, fields.text_or(field, default)?))
            }
        }
    }
}

/// A field with a number of experts or groups.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Number {
    field: String,
    /// Default in transformers; a field without one is required.
    default: Option<u64>,
    /// True where null is allowed, and means none.
    #[serde(default)]
    or_null: bool,
    /// Value that null stands for, where transformers accepts null.
    when_null: Option<u64>,
    /// True where zero is allowed.
    #[serde(default)]
    or_zero: bool,
}

impl Number {
    pub(super) fn read(&self, fields: Fields<'_>) -> Result<Option<u64>, ModelError> {
        let name = &self.field;
        if self.or_zero && fields.find(name).is_some_and(|(_, value)| *value == 0) {
            return Ok(Some(0));
        }
        match self.default {
            default if self.or_null => {
                let is_null = fields.find(name).is_some_and(|(_, value)| value.is_null());
                let when_null = self.when_null.filter(|_| is_null);
                Ok(fields.nullable_size_or(name, default)?.or(when_null))
            }
            Some(default) if self.or_zero => fields.count_or(name, default).map(Some),
            Some(default) => fields.size_or(name, default).map(Some),
            None => fields.size(name).map(Some),
        }
    }
}
