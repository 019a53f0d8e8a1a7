//! Settings of a run.

use executor_kernels::array::Element;
use executor_runtime::settings::{LearningRate, LossScaling, OptimizerSettings, Settings};
use ir::plan::Plan;
use ir::schedule::Updates;

use super::args::{PrecisionArg, RunArgs};

/// Final learning rate as a share of its peak.
const LEAST_SHARE: f64 = 0.1;

/// The usual limit on the norm of all gradients, as in the recipes of GPT-3 and Llama.
const USUAL_GRADIENT_NORM: f64 = 1.0;

/// The precision in which the run computes.
pub(super) fn precision(args: &RunArgs, plan: &Plan) -> PrecisionArg {
    args.training.precision.unwrap_or_else(|| PrecisionArg::of(plan.training.precision))
}

/// The settings that arguments and plan ask for.
pub(super) fn settings(args: &RunArgs, plan: &Plan) -> Settings {
    let precision = precision(args, plan);
    let usual = Settings::usual(plan.training.optimizer, precision.element());
    let Settings { optimizer, compute, master, .. } = usual;
    // With fp64 nothing is to be rounded.
    let has_bf16_moments = plan.training.bf16_moments && master == Element::F32;
    Settings {
        optimizer: OptimizerSettings {
            weight_decay: args.training.weight_decay.unwrap_or(optimizer.weight_decay),
            ..optimizer
        },
        max_gradient_norm: max_gradient_norm(args, plan),
        schedule: LearningRate {
            peak: args.training.learning_rate,
            warmup_steps: args.training.warmup_steps,
            decay_steps: args.training.decay_steps,
            least: args.training.learning_rate * LEAST_SHARE,
        },
        gradients: if plan.training.fp32_gradients { master } else { compute },
        moments: if has_bf16_moments { Element::BF16 } else { master },
        loss_scaling: (precision == PrecisionArg::Fp16).then(LossScaling::default),
        bucket_bytes: args.training.bucket_size << 20,
        expert_capacity_factor: args.training.expert_capacity_factor,
        replication: plan.training.replication(),
        straggler: args.training.straggler,
        seed: args.seed,
        ..usual
    }
}

/// Returns whether the default limit on the gradient norm is dropped: no limit was asked for, and the schedule updates
/// after each micro-batch, so that all gradients never exist at one time.
pub(super) fn leaves_out_gradient_norm(args: &RunArgs, plan: &Plan) -> bool {
    let updates = plan.layout.schedule.updates();
    args.training.max_gradient_norm.is_none() && updates == Updates::AfterEachMicroBatch
}

/// The limit on the norm of all gradients, if there is one.
fn max_gradient_norm(args: &RunArgs, plan: &Plan) -> Option<f64> {
    let usual = if leaves_out_gradient_norm(args, plan) { 0.0 } else { USUAL_GRADIENT_NORM };
    Some(args.training.max_gradient_norm.unwrap_or(usual)).filter(|norm| *norm > 0.0)
}
