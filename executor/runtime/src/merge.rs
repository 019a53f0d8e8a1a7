//! Adapters merged into the weights that they adapt.

use ir::graph::{AdapterPart, OpKind};
use rayon::prelude::*;

use crate::checkpoint::ParameterId;
use crate::parameters::LocalParameter;
use crate::program::Program;

/// A whole weight with its adapter merged into it,
///
/// ```text
/// W + (alpha / rank) A B
/// ```
///
/// where `W` is `before` as it is stored, and `A` and `B` are the adapter's matrices, which `read` gives. A parameter
/// without an adapter is returned as stored.
///
/// # Errors
///
/// Errors of `read`.
///
/// # Source
///
/// Hu et al. 2021, *LoRA* (arXiv 2106.09685), section 4.1.
pub fn merged<E>(
    program: &Program,
    parameter: &LocalParameter,
    before: Vec<f64>,
    read: impl Fn(&ParameterId) -> Result<Vec<f64>, E>,
) -> Result<Vec<f64>, E> {
    let mut weight = parameter.as_stored(before);
    let Some(adapters) = &program.adapters else { return Ok(weight) };
    let part = |part: AdapterPart| parameter.id.of_adapter(part);
    if parameter.id.name != "weight" || !program.has_parameter(&part(AdapterPart::Down)) {
        return Ok(weight);
    }
    let down = read(&part(AdapterPart::Down))?;
    let up = read(&part(AdapterPart::Up))?;
    let experts = match program.op_kind(&parameter.id) {
        OpKind::GroupedLinear { num_experts, .. } => *num_experts as usize,
        _ => 1,
    };
    let rank = adapters.rank as usize;
    let factor = adapters.alpha as f64 / adapters.rank as f64;
    let outputs = up.len() / experts / rank;
    let inputs = down.len() / experts / rank;
    weight.par_chunks_mut(outputs).enumerate().for_each(|(row, weights)| {
        let expert = row / inputs;
        let of_expert = &up[expert * rank * outputs..(expert + 1) * rank * outputs];
        let columns = &down[row * rank..(row + 1) * rank];
        for (a, b) in columns.iter().zip(of_expert.chunks(outputs)) {
            for (weight, b) in weights.iter_mut().zip(b) {
                *weight += factor * a * b;
            }
        }
    });
    Ok(weight)
}
