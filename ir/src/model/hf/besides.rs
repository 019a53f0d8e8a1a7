//! Parts that are counted and not planned: towers and projectors of multimodal models, and whole families without a
//! graph.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Number, Value};

use super::formula;
use super::heads::{self, Class, Task};
use crate::model::error::{ModelError, list};
use crate::model::fields::Fields;
use crate::model::transformer::Besides;

/// The file `ir/towers.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TowerTable {
    /// Formulas that any rule may name.
    formulas: BTreeMap<String, String>,
    /// Encoders by the `model_type` of their configuration.
    towers: BTreeMap<String, Rule>,
    families: BTreeMap<String, Multimodal>,
    /// Families that have no graph, as a whole.
    counted: BTreeMap<String, Counted>,
    /// Other heads of these encoders, by their outputs.
    heads: BTreeMap<Task, Rule>,
}

/// A family of multimodal models.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Multimodal {
    /// The `model_type` of the language model where its configuration does not state it.
    text: Option<String>,
    tied: Option<Tied>,
    /// Parts other than the language model, in order.
    parts: Vec<ModelPart>,
}

/// Condition for a tied head; the outer configuration decides in transformers since version 5.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Tied {
    /// Only where it says so.
    IfStated,
    /// Unless it says otherwise.
    UnlessStated,
    /// Where it or the language model's configuration says so.
    AsText,
    /// As the language model's own configuration states, whatever the outer one does.
    Inner,
}

/// A family that is counted as a whole.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Counted {
    /// Supported classes, by their heads; the first is the default.
    classes: Vec<String>,
    /// Operators or facts that its graph would need.
    why: String,
    parts: Vec<ModelPart>,
}

/// Parameters of an encoder or a projector.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// A formula of the configuration's fields; `outer.` is the whole model's, `text.` and others are sections of it.
    /// `LIST:any` is the length of a list, `LIST:sum` its sum (of a number, that for each layer), `LIST:first` its
    /// first number, `LIST:WORD` how often it has a word (1 for the word itself), `LIST:WORD:N` how often in the first
    /// `N`.
    parameters: String,
    /// Formulas that it names, each of the same fields.
    #[serde(default, rename = "where")]
    terms: BTreeMap<String, String>,
    /// Defaults in transformers of fields that may be absent.
    #[serde(default)]
    defaults: BTreeMap<String, u64>,
    /// Other names of fields in some releases.
    #[serde(default)]
    also: BTreeMap<String, String>,
    /// Values that fields must have where they are present.
    #[serde(default)]
    only: Map<String, Value>,
}

/// A part of a multimodal model.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelPart {
    /// Vision, audio or projector.
    name: String,
    /// Section of the part's configuration; without one, the configuration of the whole model.
    section: Option<String>,
    /// The encoder, where the section does not name one.
    tower: Option<String>,
    /// The rule of a part that is no encoder.
    rule: Option<Rule>,
    /// Classes that have the part; all classes if empty.
    #[serde(default)]
    classes: Vec<String>,
    /// True where a configuration without the section has no such part.
    #[serde(default)]
    optional: bool,
}

static TOWERS: LazyLock<TowerTable> = LazyLock::new(|| {
    let text = include_str!("../../../towers.json");
    serde_json::from_str(text).expect("towers are valid; a test reads all")
});

/// Parts of `object`, of the family `model_type`, in addition to its language model; `None` where a part is of no known
/// kind.
///
/// # Errors
///
/// [`ModelError`] where a part lacks a field.
pub(super) fn besides(
    model_type: &str,
    object: &Map<String, Value>,
) -> Result<Option<Vec<Besides>>, ModelError> {
    let Some(family) = TOWERS.families.get(model_type) else { return Ok(None) };
    Ok(count(model_type, family.parts.iter(), object)?.ok())
}

/// The `model_type` of a multimodal family's language model where a configuration does not say it.
pub(super) fn text(model_type: &str) -> Option<&'static str> {
    TOWERS.families.get(model_type)?.text.as_deref()
}

/// Field that says whether the head is tied.
pub(super) const TIED: &str = "tie_word_embeddings";

/// Value of [`TIED`] for the language model of a multimodal one; `None` where its own configuration decides.
pub(super) fn tied(model_type: &str, object: &Map<String, Value>) -> Option<Value> {
    let stated = object.get(TIED).filter(|it| !it.is_null());
    let rule = TOWERS.families.get(model_type).and_then(|family| family.tied);
    match (rule, stated) {
        (Some(Tied::Inner), _) => None,
        (Some(Tied::AsText), Some(Value::Bool(false))) if object.contains_key("text_config") => {
            None
        }
        (_, Some(stated)) => Some(stated.clone()),
        (Some(Tied::AsText) | None, None) => None,
        (Some(rule), None) => {
            let is_nested = object.contains_key("text_config");
            is_nested.then(|| Value::Bool(rule == Tied::UnlessStated))
        }
    }
}

/// Parameters of `object` if its family is counted as a whole; `None` for other families.
///
/// # Errors
///
/// [`ModelError`] where the class has another head, or a part is of no known kind or lacks a field.
pub(super) fn counted(
    model_type: &str,
    object: &Map<String, Value>,
) -> Result<Option<ModelError>, ModelError> {
    let Some(Counted { classes, why, parts }) = TOWERS.counted.get(model_type) else {
        return Ok(None);
    };
    let fields = Fields::new(model_type, object);
    let Class { name: class, task } = heads::class(classes, fields)?;
    let is_of = |part: &ModelPart, class: &String| part.classes.contains(class);
    let of_class = |part: &&ModelPart| part.classes.is_empty() || is_of(part, &class);
    let mut parts_of_class = match count(model_type, parts.iter().filter(of_class), object)? {
        Ok(parts) => parts,
        Err(unknown) => return Err(fields.unsupported(unknown)),
    };
    let architecture = model_type.to_owned();
    if let Some(task) = task {
        let is_apart = parts.iter().any(|part| is_of(part, &classes[0]));
        let Some(rule) = TOWERS.heads.get(&task).filter(|_| is_apart) else {
            let supported = list(classes.iter().map(String::as_str));
            return Err(ModelError::UnsupportedClass { architecture, class, supported });
        };
        let mut labelled = object.clone();
        labelled.insert("num_labels".to_owned(), heads::num_labels(fields)?.into());
        let num_parameters = rule.count(model_type, &labelled, object, 0)?;
        parts_of_class.push(Besides { name: "head".to_owned(), num_parameters });
    }
    let (why, parts) = (why.clone(), parts_of_class);
    Ok(Some(ModelError::CountedAlone { architecture, class, why, parts }))
}

/// Parts with their parameters, or a description of a part that is not known.
fn count<'p>(
    model_type: &str,
    parts: impl Iterator<Item = &'p ModelPart>,
    object: &Map<String, Value>,
) -> Result<Result<Vec<Besides>, String>, ModelError> {
    let mut all = Vec::new();
    for part in parts {
        let empty = Map::new();
        let is_there = |name: &String| object.get(name).is_some_and(|it| !it.is_null());
        if part.optional && !part.section.as_ref().is_some_and(is_there) {
            continue;
        }
        let section = part.section.as_ref().map_or(Some(object), |section| {
            object.get(section).map_or(Some(&empty), Value::as_object)
        });
        let name = part.section.as_ref().unwrap_or(&part.name);
        let Some(section) = section else {
            return Ok(Err(format!("a `{name}` that is no object")));
        };
        // Published configurations often give the tower the name of the whole model, or no name.
        let own = section.get("model_type").and_then(Value::as_str);
        let own = own.filter(|own| !own.is_empty() && *own != model_type);
        let tower = own.or(part.tower.as_deref());
        let rule = part.rule.as_ref().or_else(|| TOWERS.towers.get(tower?));
        let Some(rule) = rule else {
            let kind = tower.unwrap_or("unknown kind");
            return Ok(Err(format!("a `{name}` of `{kind}`")));
        };
        let differs = |(field, only): &(&String, &Value)| {
            section.get(field.as_str()).is_some_and(|it| it != *only)
        };
        if let Some((field, _)) = rule.only.iter().find(differs) {
            return Ok(Err(format!("`{field}` {} of its `{name}`", section[field.as_str()])));
        }
        let num_parameters = rule.count(model_type, section, object, 0)?;
        all.push(Besides { name: part.name.clone(), num_parameters });
    }
    Ok(Ok(all))
}

/// Largest depth of formulas that name each other.
const DEEPEST: usize = 12;

/// The field with the number of layers.
const LAYERS: &str = "num_hidden_layers";

/// Sizes of the layers that differ from the others.
const BY_LAYER: &str = "per_layer_config";

/// The object that the name in a formula refers to, and the field in it; `None` where such layers differ from each
/// other.
fn named<'o, 'n>(
    name: &'n str,
    section: &'o Map<String, Value>,
    object: &'o Map<String, Value>,
) -> Option<(&'o Map<String, Value>, &'n str)> {
    static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    let is_told = name == TIED && object.get(TIED).is_some_and(|it| !it.is_null());
    let of_whole = if is_told { object } else { section };
    let Some((of, field)) = name.split_once('.') else { return Some((of_whole, name)) };
    if of == "outer" {
        return Some((object, field));
    }
    let all = [(object, format!("{of}_config")), (section, of.to_owned()), (object, of.to_owned())];
    let mut found = all.iter().filter_map(|(object, name)| object.get(name)?.as_object());
    let found = found.next().unwrap_or(&EMPTY);
    if of != BY_LAYER {
        return Some((found, field));
    }
    let Some(first) = found.values().next() else { return Some((found, field)) };
    let alike = found.values().all(|layer| layer == first);
    first.as_object().filter(|_| alike).map(|first| (first, field))
}

/// A number with a decimal point but without a fraction.
fn whole(real: &Number) -> Option<u64> {
    let real = real.as_f64().filter(|real| real.fract() == 0.0 && (0.0..1e15).contains(real))?;
    Some(real as u64)
}

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
            let term = self.terms.get(name).or_else(|| TOWERS.formulas.get(name));
            if let Some(term) = term.filter(|_| deep < DEEPEST) {
                return self.formula(term, architecture, section, object, deep + 1);
            }
            let Some((from, field)) = named(name, section, object) else {
                let fields = Fields::new(architecture, section);
                return Err(fields.unsupported(format!("layers of several kinds in `{BY_LAYER}`")));
            };
            let fields = Fields::new(architecture, from);
            let (field, of_list) =
                field.split_once(':').map_or((field, None), |(field, of)| (field, Some(of)));
            let value = fields.find(field).map(|(_, value)| value).filter(|it| !it.is_null());
            let value = match (value, of_list) {
                (Some(Value::Array(all)), Some(of)) => {
                    return Ok(asked_of(all, of, |name| {
                        self.formula(name, architecture, section, object, deep + 1)
                    }));
                }
                (Some(Value::String(text)), Some(word)) => return Ok(u64::from(text == word)),
                (value, Some("sum") | None) => value,
                (_, Some(_)) => None,
            };
            match value {
                Some(Value::Bool(flag)) => Ok(u64::from(*flag)),
                Some(Value::Number(real)) if !real.is_u64() => {
                    whole(real).ok_or_else(|| fields.unsupported(format!("`{field}` {real}")))
                }
                None if self.also.contains_key(name) && deep < DEEPEST => {
                    self.formula(&self.also[name], architecture, section, object, deep + 1)
                }
                None => self.defaults.get(name).copied().ok_or_else(|| fields.missing(field)),
                Some(_) if of_list.is_some() => {
                    let layers = self.formula(LAYERS, architecture, section, object, deep + 1)?;
                    Ok(fields.count_or(field, 0)?.saturating_mul(layers))
                }
                Some(_) => fields.count_or(field, 0),
            }
        };
        let value = formula::value(formula, &size)?;
        let fields = Fields::new(architecture, section);
        value.ok_or_else(|| fields.unsupported("a tower of these sizes".to_owned()))
    }
}

/// Number that a formula derives from a list; see [`Rule::parameters`].
fn asked_of(all: &[Value], of: &str, formula: impl Fn(&str) -> Result<u64, ModelError>) -> u64 {
    let (word, most) = of.split_once(':').unwrap_or((of, LAYERS));
    let is = |value: &&Value| match value {
        Value::String(text) => text == word,
        value => value.as_u64().is_some_and(|number| word.parse() == Ok(number)),
    };
    match word {
        "any" => all.len() as u64,
        "first" => all.first().and_then(Value::as_u64).unwrap_or_default(),
        "sum" => all.iter().filter_map(Value::as_u64).fold(0, u64::saturating_add),
        _ => {
            let most = formula(most).unwrap_or(u64::MAX);
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            all.iter().take(most).filter(is).count() as u64
        }
    }
}
