//! Compilation of a model's functions.

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
}
