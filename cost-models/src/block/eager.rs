//! Operators that PyTorch runs as several kernels, one function after the other.

use ir::framework::Fusion;
use ir::graph::{Activation, DimName, NormKind, OpKind, Pass};

/// Returns whether an operator runs as one kernel for each PyTorch function. No library has a kernel for a clamped
/// SwiGLU: unfused, it explains the additional time of GPT-OSS's steps on B200 and GB200 (3.3 to 3.9 ms for a layer of
/// 16,384 tokens with graphs of iterations, in the latest releases of Megatron-Bridge).
pub(super) fn is_eager(kind: &OpKind, fusion: Fusion) -> bool {
    match kind {
        OpKind::ClampedSwiGlu { .. } => fusion != Fusion::Compiled,
        OpKind::GatedActivation(_) => fusion.runs_gates_apart(),
        _ => fusion == Fusion::Eager,
    }
}

/// Ratio of the bytes that the PyTorch functions of an operator touch one by one, to those of one fused kernel that
/// reads its inputs and writes its outputs once.
///
/// | operator | forward | backward |
/// |---|---|---|
/// | root mean square norm: cast to fp32, square, mean, two products, cast | 36 of 4 bytes an element | 60 of 6 |
/// | rotary embedding: negated and joined halves, two products, a sum | 16 of 4 | 16 of 4 |
/// | gated activation: the function, a product | 10 of 6 | 18 of 10 |
/// | softmax of attention's scores: a scale, the mask, a softmax in fp32, a cast | 20 of 4 | 24 of 6 |
/// | GELU by tanh: a cube, a tanh, four products, two sums | 36 of 4 | 56 of 6 |
/// | clamped SwiGLU: two clamps, two products with numbers, a sigmoid, two products | 32 of 6 | 60 of 10 |
/// | others: one function | 1 | 1 |
///
/// # Source
///
/// Counted from `modeling_llama.py` and `activations.py` (`NewGELUActivation`) of transformers, and PyTorch's
/// derivatives of what they call.
pub(super) fn eager_passes(kind: &OpKind, pass: Pass) -> f64 {
    let is_forward = pass == Pass::Forward;
    let [touched, least] = match kind {
        OpKind::Norm { kind: NormKind::RmsNorm, .. } if is_forward => [36.0, 4.0],
        OpKind::Norm { kind: NormKind::RmsNorm, .. } => [60.0, 6.0],
        OpKind::Softmax { over: DimName::Context } if is_forward => [20.0, 4.0],
        OpKind::Softmax { over: DimName::Context } => [24.0, 6.0],
        OpKind::Rotary(_) => [16.0, 4.0],
        OpKind::Activation(Activation::GeluTanh) if is_forward => [36.0, 4.0],
        OpKind::Activation(Activation::GeluTanh) => [56.0, 6.0],
        OpKind::GatedActivation(_) if is_forward => [10.0, 6.0],
        OpKind::GatedActivation(_) => [18.0, 10.0],
        OpKind::ClampedSwiGlu { .. } if is_forward => [32.0, 6.0],
        OpKind::ClampedSwiGlu { .. } => [60.0, 10.0],
        _ => [1.0, 1.0],
    };
    touched / least
}
