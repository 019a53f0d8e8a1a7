//! Towers and projectors beside a language model: what a multimodal model has besides, counted.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::formula;
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::Besides;

/// The file `ir/towers.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Towers {
    /// Encoders by the `model_type` of their configuration.
    towers: BTreeMap<String, Rule>,
    /// Parts of each multimodal family beside its language model, in order.
    families: BTreeMap<String, Vec<Part>>,
}

/// Parameters of an encoder or a projector.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// A formula of the configuration's fields; `outer.` is the whole model's, `text.` and others are sections of it.
    parameters: String,
    /// Formulas that it names, each of the same fields.
    #[serde(default, rename = "where")]
    terms: BTreeMap<String, String>,
    /// Defaults in transformers of fields that may be left out.
    #[serde(default)]
    defaults: BTreeMap<String, u64>,
    /// What releases call a field otherwise.
    #[serde(default)]
    also: BTreeMap<String, String>,
    /// What a field must be where it is there.
    #[serde(default)]
    only: Map<String, Value>,
}

/// A part of a multimodal model.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    /// Vision, audio or projector.
    name: String,
    /// Section of its configuration; without one, that of the whole model.
    section: Option<String>,
    /// The encoder if the section does not say which.
    tower: Option<String>,
    /// The rule of a part that is no encoder.
    rule: Option<Rule>,
}

static TOWERS: LazyLock<Towers> = LazyLock::new(|| {
    let text = include_str!("../../../towers.json");
    serde_json::from_str(text).expect("towers are valid; a test reads all")
});

/// What `object`, of the family `model_type`, has beside its language model; `None` where a part is of no known kind.
///
/// # Errors
///
/// [`ModelError`] where a part lacks a field.
pub(super) fn besides(
    model_type: &str,
    object: &Map<String, Value>,
) -> Result<Option<Vec<Besides>>, ModelError> {
    let Some(parts) = TOWERS.families.get(model_type) else { return Ok(None) };
    let mut all = Vec::new();
    for part in parts {
        let empty = Map::new();
        let section = part.section.as_ref().map_or(Some(object), |section| {
            object.get(section).map_or(Some(&empty), Value::as_object)
        });
        let Some(section) = section else { return Ok(None) };
        // Releases often name the tower as the whole model, or not at all.
        let own = section.get("model_type").and_then(Value::as_str);
        let own = own.filter(|own| !own.is_empty() && *own != model_type);
        let tower = own.or(part.tower.as_deref());
        let rule = part.rule.as_ref().or_else(|| TOWERS.towers.get(tower?));
        let Some(rule) = rule else { return Ok(None) };
        if rule.only.iter().any(|(field, only)| section.get(field).is_some_and(|it| it != only)) {
            return Ok(None);
        }
        let num_parameters = rule.count(model_type, section, object, 0)?;
        all.push(Besides { name: part.name.clone(), num_parameters });
    }
    Ok(Some(all))
}

/// Most formulas that name each other.
const DEEPEST: usize = 8;

impl Rule {
    fn count(
        &self,
        architecture: &str,
        section: &Map<String, Value>,
        object: &Map<String, Value>,
        deep: usize,
    ) -> Result<u64, ModelError> {
        self.formula(&self.parameters, architecture, section, object, deep)
    }

    fn formula(
        &self,
        formula: &str,
        architecture: &str,
        section: &Map<String, Value>,
        object: &Map<String, Value>,
        deep: usize,
    ) -> Result<u64, ModelError> {
        let size = |name: &str| {
            if let Some(term) = self.terms.get(name).filter(|_| deep < DEEPEST) {
                return self.formula(term, architecture, section, object, deep + 1);
            }
            let empty = Map::new();
            let (from, field) = match name.split_once('.') {
                Some(("outer", field)) => (object, field),
                Some((other, field)) => {
                    let other = object.get(&format!("{other}_config")).and_then(Value::as_object);
                    (other.unwrap_or(&empty), field)
                }
                None => (section, name),
            };
            let fields = Fields::new(architecture, from);
            match fields.find(field).map(|(_, value)| value) {
                Some(Value::Bool(flag)) => Ok(u64::from(*flag)),
                Some(Value::Array(all)) if self.defaults.contains_key(name) => {
                    // A list of indices counts as its length, a pair of sides as one of them.
                    let is_pair = all.len() == 2 && all[0] == all[1];
                    let side = all.first().and_then(Value::as_u64).filter(|_| is_pair);
                    Ok(side.unwrap_or(all.len() as u64))
                }
                Some(Value::Null) | None if self.also.contains_key(name) && deep < DEEPEST => {
                    self.formula(&self.also[name], architecture, section, object, deep + 1)
                }
                Some(Value::Null) | None => {
                    self.defaults.get(name).copied().ok_or_else(|| fields.missing(field))
                }
                Some(_) => fields.count_or(field, 0),
            }
        };
        let value = formula::value(formula, &size)?;
        let fields = Fields::new(architecture, section);
        value.ok_or_else(|| fields.unsupported("a tower of these sizes".to_owned()))
    }
}
