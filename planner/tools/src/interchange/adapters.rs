//! Adapters (LoRA) of settings: their targets as PEFT takes them, on the layers of a model.

use ir::graph::{ALL_LINEAR, AdapterError, Adapters, Graph, module_paths};
use ir::model::{GraphOptions, Model};
use regex_lite::Regex;

use super::error::ImportError;
use super::imported::Imported;
use super::unread::Unread;

/// Names that come before a layer's number in the paths of modules: of language models, of multimodal models, of
/// Megatron.
const BEFORE_LAYERS: [&str; 5] = [
    "model.layers",
    "model.language_model.layers",
    "language_model.model.layers",
    "model.model.layers",
    "decoder.layers",
];

/// Layers whose numbers patterns are tried with. Layers of a kind are adapted alike.
const MOST_LAYERS: u32 = 128;

/// Characters that names of modules do not have.
const OF_PATTERNS: [char; 11] = ['\\', '[', ']', '(', ')', '|', '*', '+', '?', '^', '$'];

/// Returns whether a target is a regular expression.
pub(super) fn is_pattern(target: &str) -> bool {
    target.contains(OF_PATTERNS)
}

/// Graph of the model as the settings train it. Targets of their adapters become layers of the model by PEFT's rules
/// (`check_target_module_exists`): a regular expression must match a whole module path, and a name that matches no
/// module is ignored if others match.
pub(crate) fn trained_graph(
    imported: &mut Imported,
    model: &Model,
    options: GraphOptions,
) -> Result<Graph, ImportError> {
    let unbuilt = |error: AdapterError| ImportError::unbuilt(&error);
    let graph = model.graph(options).map_err(|error| unbuilt(error.into()))?;
    let Some(adapters) = &mut imported.adapters else { return Ok(graph) };
    let others = resolve(&mut adapters.targets, &graph)?;
    let why = "no linear layer of the model, as it is planned, has this name";
    imported.unread.extend(others.iter().map(|name| Unread::new(name, why)));
    graph.with_adapters(adapters).map_err(unbuilt)
}

/// Replaces patterns by the layers that they match. Removes the names that match no layer and returns them; if no name
/// matches any layer, the targets stay unchanged.
fn resolve(targets: &mut Vec<String>, graph: &Graph) -> Result<Vec<String>, ImportError> {
    let layers = Adapters::layers(graph);
    let (mut known, mut others) = (Vec::new(), Vec::new());
    for target in targets.iter() {
        let found: Vec<&str> = if is_pattern(target) {
            let pattern = pattern(target)?;
            layers.iter().copied().filter(|op| matches(&pattern, op)).collect()
        } else if layers.iter().any(|op| Adapters::names(target, op)) {
            vec![target]
        } else {
            Vec::new()
        };
        match found.as_slice() {
            [] => others.push(target.clone()),
            found => known.extend(found.iter().map(|it| (*it).to_owned())),
        }
    }
    if known.is_empty() {
        return Ok(Vec::new());
    }
    *targets = known;
    Ok(others)
}

fn pattern(target: &str) -> Result<Regex, ImportError> {
    Regex::new(&format!("^(?:{target})$")).map_err(|error| {
        ImportError::unknown(
            format!("`{target}`, of the layers that have an adapter, is not read: {error}"),
            format!("names of layers, such as `q_proj`, or `{ALL_LINEAR}`"),
        )
    })
}

/// Returns whether a pattern matches the whole path of the operator's module, in any layer.
fn matches(pattern: &Regex, op: &str) -> bool {
    BEFORE_LAYERS.iter().any(|before| {
        module_paths(op).iter().any(|path| {
            (0..MOST_LAYERS).any(|layer| pattern.is_match(&format!("{before}.{layer}.{path}")))
        })
    })
}

/// Words in names of options that say that adapters are trained.
const WORDS: [&str; 6] = ["lora", "qlora", "peft", "dora", "adapter", "adapters"];

/// Words next to `adapter` in names of options for a projector between parts of a model.
const OF_PROJECTORS: [&str; 4] = ["mm", "mlp", "pretrain", "freeze"];

/// Reports settings that no table has and that look like those of adapters: the plan has no adapters for them.
pub(super) fn name_unknown(imported: &mut Imported) {
    if imported.adapters.is_some() {
        return;
    }
    let is_one = |it: &&mut Unread| {
        let name = it.option.to_lowercase();
        let words: Vec<&str> = name.split(|c: char| !c.is_alphanumeric()).collect();
        let is_projector = words.iter().any(|it| OF_PROJECTORS.contains(it));
        let is_word =
            |it: &&str| WORDS.contains(it) && !(is_projector && it.starts_with("adapter"));
        it.is_unknown && words.iter().any(is_word)
    };
    for unread in imported.unread.iter_mut().filter(is_one) {
        "low-rank adapters, by its name, that are not read: all parameters are planned as trained; \
         `planner evaluate --lora-rank 16` plans adapters"
            .clone_into(&mut unread.why);
        unread.saves_memory = true;
    }
}
