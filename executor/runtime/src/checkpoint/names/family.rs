//! The module of a parameter, by the names of its family.

use ir::model::{TensorModule, TensorNames};

use super::super::parameter::{ModelParameter, ParameterId};

/// The prefix of a parameter's tensor name and its module, in a model of `num_layers` layers.
pub(super) fn find(
    names: &TensorNames,
    parameter: &ModelParameter,
    num_layers: u32,
) -> Option<(String, &'static TensorModule)> {
    let further = further_norm(parameter);
    let parameter = further.as_ref().unwrap_or(parameter);
    let ParameterId { op, name, .. } = &parameter.id;
    let Some(layer) = parameter.layer else {
        return Some((String::new(), names.module(None, op, name)?));
    };
    let stack = parameter.block_name.as_str();
    let module = names.module(Some(stack), op, name)?;
    // Blocks that predict further tokens are numbered after the layers.
    let first = if stack == FURTHER { num_layers } else { 0 };
    Some((names.prefix(stack)?.replace('#', &(first + layer).to_string()), module))
}

/// Name of the blocks that predict further tokens.
const FURTHER: &str = "mtp";

/// The norm before the head of a block that predicts a further token: part of the head here, but of the block in files.
fn further_norm(parameter: &ModelParameter) -> Option<ModelParameter> {
    let (module, op) = parameter.id.op.strip_prefix(FURTHER)?.split_once('.')?;
    let number: u32 = module.parse().ok()?;
    let id = ParameterId { op: format!("{FURTHER}.head.{op}"), ..parameter.id.clone() };
    let (layer, block_name) = (number.checked_sub(1), FURTHER.to_owned());
    Some(ModelParameter { id, layer, block_name, ..parameter.clone() })
}

/// Parts of names of tensors that files may have in addition to parameters: buffers of angles and masks, copies of tied
/// tables, poolers, modules for multi-token prediction that transformers leaves out.
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
    "mtp.",
];
