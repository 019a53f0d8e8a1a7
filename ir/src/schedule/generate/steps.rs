//! Constructors of computation steps.

use crate::schedule::{Action, ActionKind, ScheduleStep};

pub(super) fn forward(stage: u32, micro_batch: u32) -> ScheduleStep {
    ScheduleStep::One(Action { stage, kind: ActionKind::Forward, micro_batch })
}

pub(super) fn backward(stage: u32, micro_batch: u32) -> ScheduleStep {
    ScheduleStep::One(Action { stage, kind: ActionKind::Backward, micro_batch })
}

pub(super) fn input_grad(stage: u32, micro_batch: u32) -> ScheduleStep {
    ScheduleStep::One(Action { stage, kind: ActionKind::InputGrad, micro_batch })
}

pub(super) fn weight_grad(stage: u32, micro_batch: u32) -> ScheduleStep {
    ScheduleStep::One(Action { stage, kind: ActionKind::WeightGrad, micro_batch })
}
