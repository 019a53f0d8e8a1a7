//! Times of kernels that were measured on the machine itself.
//!
//! ```text
//! t = sum of costs x quantities
//! ```
//!
//! The quantities are defined in `ir/src/cluster/measured.rs`; their costs were fitted where the kernels ran.

use ir::cluster::{
    AttentionTime, KernelTimes, MeasuredKernels, MeasuredPasses, Precision, ProductTime, Times,
};
use ir::graph::Pass;
use ir::units::{Bytes, Seconds};

use super::attention::SelfAttentionShape;
use super::matmul::MatmulShape;

/// Measured costs of a precision, if there are any.
pub(super) fn times(
    measured: Option<&MeasuredKernels>,
    precision: Precision,
) -> Option<&KernelTimes> {
    measured?.by_precision.get(&precision)
}

/// Time of a product in a pass; in a pass that was not measured, as in forward.
pub(super) fn product(times: &KernelTimes, pass: Pass, shape: MatmulShape) -> Option<Seconds> {
    let MatmulShape { batch, m, n, k } = shape;
    let of_pass = of_pass(&times.products, pass).or(times.products.forward)?;
    Some(time(&of_pass, ProductTime::quantities([batch, m, n, k])))
}

/// Time of an attention forward or backward.
pub(super) fn attention(
    times: &KernelTimes,
    pass: Pass,
    shape: SelfAttentionShape,
) -> Option<Seconds> {
    let SelfAttentionShape { batch, sequence, heads, kv_heads, head_dim, causal } = shape;
    let sizes = [batch, sequence, heads, kv_heads, head_dim];
    let of_pass = of_pass(&times.attention, pass)?;
    Some(time(&of_pass, AttentionTime::quantities(sizes, causal)))
}

/// Time of a memory-bound operator, by its family in the pass, or else by the general cost.
pub(super) fn memory(times: &KernelTimes, family: &str, pass: Pass, bytes: Bytes) -> Seconds {
    let of_family = times.operators.get(family);
    let of_pass = of_family.and_then(|passes| of_pass(passes, pass)).unwrap_or(times.memory);
    if bytes == Bytes::ZERO { Seconds::ZERO } else { time(&of_pass, [1.0, bytes.as_f64()]) }
}

/// Time of a memory-bound kernel that belongs to no operator.
pub(super) fn plain_memory(times: &KernelTimes, bytes: Bytes) -> Seconds {
    if bytes == Bytes::ZERO {
        Seconds::ZERO
    } else {
        time::<2>(&times.memory, [1.0, bytes.as_f64()])
    }
}

fn of_pass<T: Copy>(passes: &MeasuredPasses<T>, pass: Pass) -> Option<T> {
    match pass {
        Pass::Forward => passes.forward,
        Pass::InputGrad => passes.input_grad,
        Pass::WeightGrad => passes.weight_grad,
    }
}

fn time<const N: usize>(times: &impl Times<N>, quantities: [f64; N]) -> Seconds {
    let costs = times.costs();
    Seconds::new(costs.iter().zip(quantities).map(|(cost, quantity)| cost * quantity).sum())
}
