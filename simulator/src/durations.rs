//! Durations of actions.

use ir::schedule::ActionKind;
use ir::units::Nanos;

/// Durations of a stage's passes for one micro-batch. The caller chooses the unit. It is the same everywhere, also for
/// the times that result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassTimes {
    /// Time of the forward pass.
    pub forward: Nanos,
    /// Time of the gradients of activations.
    pub input_grad: Nanos,
    /// Time of the gradients of parameters.
    pub weight_grad: Nanos,
}

impl PassTimes {
    /// One unit for each pass.
    pub const UNIT: Self =
        Self { forward: Nanos::new(1), input_grad: Nanos::new(1), weight_grad: Nanos::new(1) };

    /// Time of an action on the compute stream: for a full backward the sum of its two parts, and zero for actions that
    /// do not compute.
    pub fn of(&self, kind: ActionKind) -> Nanos {
        match kind {
            ActionKind::Forward => self.forward,
            ActionKind::Backward => self.input_grad + self.weight_grad,
            ActionKind::InputGrad => self.input_grad,
            ActionKind::WeightGrad => self.weight_grad,
            _ => Nanos::ZERO,
        }
    }

    /// Time of all passes of a micro-batch.
    pub fn total(&self) -> Nanos {
        self.forward + self.input_grad + self.weight_grad
    }
}

/// Durations that do not depend on overlapping actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durations {
    /// Durations of the passes of each stage.
    pub stages: Vec<PassTimes>,
    /// Time from the end of an action to the arrival of its result on another rank.
    pub send: Nanos,
}

impl Durations {
    /// Durations of the same passes on all of `num_stages` stages.
    pub fn equal(passes: PassTimes, num_stages: u32, send: Nanos) -> Self {
        Self { stages: vec![passes; num_stages as usize], send }
    }
}
