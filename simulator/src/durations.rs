//! Durations of actions.

use ir::schedule::{Action, ActionKind};
use ir::units::Nanos;

/// Durations of a stage's passes for one micro-batch. The unit is what the caller likes, as long
/// as it is the same everywhere; times come out in it too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassTimes {
    /// From input to output.
    pub forward: Nanos,
    /// Gradients of activations.
    pub input_grad: Nanos,
    /// Gradients of parameters.
    pub weight_grad: Nanos,
}

impl PassTimes {
    /// One unit for each pass.
    pub const UNIT: Self =
        Self { forward: Nanos::new(1), input_grad: Nanos::new(1), weight_grad: Nanos::new(1) };

    /// The time of an action on the compute stream: of a full backward the sum of its two parts, and
    /// none for what does not compute.
    pub fn of(&self, kind: ActionKind) -> Nanos {
        match kind {
            ActionKind::Forward => self.forward,
            ActionKind::Backward => self.input_grad + self.weight_grad,
            ActionKind::InputGrad => self.input_grad,
            ActionKind::WeightGrad => self.weight_grad,
            _ => Nanos::ZERO,
        }
    }

    /// All passes of a micro-batch.
    pub fn total(&self) -> Nanos {
        self.forward + self.input_grad + self.weight_grad
    }
}

/// Durations that do not depend on what happens at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durations {
    /// The passes of each stage.
    pub stages: Vec<PassTimes>,
    /// From the end of an action to when another rank has its result.
    pub send: Nanos,
}

impl Durations {
    /// The same passes on all of `num_stages` stages.
    pub fn equal(passes: PassTimes, num_stages: u32, send: Nanos) -> Self {
        Self { stages: vec![passes; num_stages as usize], send }
    }

    /// The time of an action on the compute stream.
    ///
    /// # Panics
    ///
    /// If the action's stage has no durations.
    pub fn of(&self, action: Action) -> Nanos {
        self.stages[action.stage as usize].of(action.kind)
    }
}
