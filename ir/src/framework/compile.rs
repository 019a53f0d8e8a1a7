//! What a framework leaves to its users: what is compiled, and whether the loss is computed in pieces.

use super::{Compile, Framework, Fusion};
use crate::graph::LossGradient;

impl Framework {
    /// The framework with this compiled; `None` if it does not leave that to the user.
    #[must_use]
    pub fn with_compile(mut self, compile: Compile) -> Option<Self> {
        if !self.abilities.compile.contains(&compile) {
            return None;
        }
        let kernels = &mut self.kernels;
        kernels.fusion = if compile == Compile::None { Fusion::Eager } else { Fusion::Compiled };
        kernels.loss.gradient = match (compile, kernels.loss.gradient) {
            (Compile::Full, LossGradient::Apart | LossGradient::Uncast) => LossGradient::Fused,
            (Compile::Regional, LossGradient::Compiled) => LossGradient::Apart,
            (_, gradient) => gradient,
        };
        Some(self)
    }

    /// The framework with head and loss in pieces; `None` if it does not have that.
    #[must_use]
    pub fn with_chunked_loss(mut self) -> Option<Self> {
        self.kernels.loss.gradient = LossGradient::Chunked;
        self.abilities.chunked_loss.then_some(self)
    }
}
