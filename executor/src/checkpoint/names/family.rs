//! The names that Hugging Face's families have for what operators have here.

use super::super::parameter::{ModelParameter, ParameterId};
use super::module::{Module, Orientation};

/// Operators here, or a parameter of one after a colon, and modules there.
pub(super) type Modules = &'static [(&'static str, Module)];

/// Models whose files have the same names.
#[derive(Debug)]
pub(super) struct Family {
    /// Classes and `model_type`s, and words of the short form.
    pub(super) classes: &'static [&'static str],
    /// What is in no layer.
    pub(super) ends: Modules,
    /// Stacks of layers: what the blocks are called, what names begin with, `#` for the layer, and what is in one.
    pub(super) layers: &'static [(&'static str, &'static str, &'static [Modules])],
}

impl Family {
    /// What the name of a parameter begins with, and its module, in a model of so many layers.
    pub(super) fn find(
        &self,
        parameter: &ModelParameter,
        num_layers: u32,
    ) -> Option<(String, &'static Module)> {
        let further = further_norm(parameter);
        let parameter = further.as_ref().unwrap_or(parameter);
        let Some(layer) = parameter.layer else {
            return Some((String::new(), find(self.ends, parameter)?));
        };
        let (_, prefix, modules) =
            self.layers.iter().find(|(block, ..)| *block == parameter.block_name)?;
        let module = modules.iter().find_map(|modules| find(modules, parameter))?;
        // Those that predict further tokens are counted on from the layers.
        let first = if parameter.block_name == FURTHER { num_layers } else { 0 };
        Some((prefix.replace('#', &(first + layer).to_string()), module))
    }

    /// Whether its layers are `Conv1D`.
    pub(super) fn has_conv1d(&self) -> bool {
        let modules = self.layers.iter().flat_map(|(_, _, modules)| modules.iter().copied());
        modules.flatten().any(|(op, module)| {
            *op == "attention.output" && module.orientation == Orientation::InputsFirst
        })
    }
}

/// What the blocks are called that predict further tokens.
const FURTHER: &str = "mtp";

/// The norm before the head of a block that predicts a further token, which is in the head here, as one of that block.
fn further_norm(parameter: &ModelParameter) -> Option<ModelParameter> {
    let (module, op) = parameter.id.op.strip_prefix(FURTHER)?.split_once('.')?;
    let number: u32 = module.parse().ok()?;
    let id = ParameterId { op: format!("{FURTHER}.head.{op}"), ..parameter.id.clone() };
    let (layer, block_name) = (number.checked_sub(1), FURTHER.to_owned());
    Some(ModelParameter { id, layer, block_name, ..parameter.clone() })
}

fn find(modules: Modules, parameter: &ModelParameter) -> Option<&'static Module> {
    let (op, name) = (parameter.id.op.as_str(), parameter.id.name.as_str());
    let by_parameter = modules.iter().find(|(ours, _)| ours.split_once(':') == Some((op, name)));
    let is_usual = matches!(name, "weight" | "bias");
    let by_op = || modules.iter().find(|(ours, _)| is_usual && *ours == op);
    by_parameter.or_else(by_op).map(|(_, module)| module)
}

/// Parts of names of tensors that files may have beside the parameters: buffers of angles and masks, copies of a table
/// that others are tied to, poolers.
pub(super) const LEFT_OUT: &[&str] = &[
    "rotary_emb.inv_freq",
    "attn.bias",
    "attn.masked_bias",
    "attention.bias",
    "attention.masked_bias",
    "position_ids",
    "lm_head.weight",
    "lm_head.decoder.",
    "embed_out.weight",
    "cls.predictions.decoder.",
    "cls.seq_relationship.",
    "coder.embed_tokens.weight",
    ".pooler.",
];
