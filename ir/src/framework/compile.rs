//! Choices that a framework leaves to its users: compiled parts and computation of the loss.

use super::{Compile, Framework, Fusion, LossAbility};
use crate::graph::{Loss, LossGradient};

/// Bytes per logit that Liger's `liger_cross_entropy_kernel` reads and writes in forward and in backward: it reads a
/// row twice, for its statistics and for the gradient, and writes the gradient over the row.
const LIGER_BYTES: [f64; 2] = [6.0, 0.0];

impl Framework {
    /// The framework with this part compiled; `None` if the framework does not leave that to the user.
    #[must_use]
    pub fn with_compile(mut self, compile: Compile) -> Option<Self> {
        if !self.abilities.compile.contains(&compile) {
            return None;
        }
        let kernels = &mut self.kernels;
        kernels.fusion = if compile == Compile::None { Fusion::Eager } else { Fusion::Compiled };
        kernels.loss.gradient = match (compile, kernels.loss.gradient) {
            (
                Compile::Full,
                LossGradient::Apart | LossGradient::LossParallel | LossGradient::Uncast,
            ) => LossGradient::Fused,
            (Compile::Regional, LossGradient::Compiled) => LossGradient::LossParallel,
            (_, gradient) => gradient,
        };
        Some(self)
    }

    /// The framework with this loss; `None` if the framework does not have it.
    #[must_use]
    pub fn with_loss(mut self, loss: Loss) -> Option<Self> {
        let kernels = &mut self.kernels.loss;
        let is_able = match loss {
            Loss::Plain => !kernels.gradient.has_chunks(),
            Loss::Chunked(chunks) => {
                kernels.gradient = LossGradient::Chunked;
                kernels.chunks = chunks;
                self.abilities.losses.contains(&LossAbility::Chunked)
            }
            Loss::Fused => {
                kernels.gradient = LossGradient::WithHead;
                [kernels.forward_bytes_per_logit, kernels.backward_bytes_per_logit] = LIGER_BYTES;
                self.abilities.losses.contains(&LossAbility::Fused)
            }
        };
        is_able.then_some(self)
    }
}
