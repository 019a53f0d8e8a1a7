//! The backends that operators run on.

use super::attention::{Grads, KeyVisibility, Scoring, blocks};
use super::kernels::BasicKernels;
use crate::array::Array;

/// A backend that the operators run on. The methods are whole operators, which a backend may replace by fused kernels.
pub trait Kernels: BasicKernels {
    /// [`attention::forward`](super::attention::forward).
    fn attention_forward(
        q: Array<Self>,
        k: Array<Self>,
        v: Array<Self>,
        scoring: &Scoring<Self>,
        visibility: KeyVisibility,
    ) -> (Array<Self>, Array<Self>) {
        blocks::forward(q, k, v, scoring, visibility)
    }

    /// [`attention::input_grad`](super::attention::input_grad).
    #[expect(clippy::too_many_arguments, reason = "those of the function")]
    fn attention_input_grad(
        q: Array<Self>,
        k: Array<Self>,
        v: Array<Self>,
        out: Array<Self>,
        log_sum_exp: Array<Self>,
        grad: Array<Self>,
        scoring: &Scoring<Self>,
        visibility: KeyVisibility,
    ) -> Grads<Self> {
        blocks::input_grad(q, k, v, out, log_sum_exp, grad, scoring, visibility)
    }
}
