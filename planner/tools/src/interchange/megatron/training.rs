//! Batch, precision and optimizer in Megatron's arguments.

use ir::cluster::Precision;
use ir::plan::Optimizer;

use super::super::argument::{Argument, Section};
use super::super::setting::Setting;

/// Arguments of how the model is trained, by topic.
pub(super) fn sections(setting: &Setting<'_>) -> Vec<Section> {
    vec![
        Section::new("batch", batch(setting)),
        Section::new("precision", precision(setting)),
        Section::new("optimizer", optimizer(setting)),
    ]
}

fn batch(setting: &Setting<'_>) -> Vec<Argument> {
    let (training, layout) = (&setting.training, &setting.layout);
    let each = layout.micro_batch_size;
    let rounds = layout.num_micro_batches;
    vec![
        Argument::value("--seq-length", training.sequence_length, "tokens of a sequence"),
        Argument::value("--micro-batch-size", each, "sequences that a replica computes at once"),
        Argument::value(
            "--global-batch-size",
            training.global_batch_size,
            format!("{} replicas, {rounds} micro-batches of {each} each", layout.data_parallel),
        ),
    ]
}

fn precision(setting: &Setting<'_>) -> Vec<Argument> {
    let training = &setting.training;
    let mut all = Vec::new();
    let sixteen = Argument::switch("--bf16", "activations and weights in 16 bits");
    match training.precision {
        Precision::Fp32 => {}
        Precision::Fp16 => {
            all.push(Argument::switch("--fp16", "activations and weights in 16 bits"));
        }
        Precision::Bf16 => all.push(sixteen),
        Precision::Fp8 => {
            all.push(sixteen);
            let why = "products in 8 bits: e4m3 forward, e5m2 for gradients";
            all.push(Argument::value("--fp8-format", "hybrid", why));
            let why = "one scale for each tensor, as predicted";
            all.push(Argument::value("--fp8-recipe", "tensorwise", why));
        }
        Precision::Fp4 => {
            all.push(sixteen);
            all.push(Argument::value("--fp4-format", "e2m1", "products in 4 bits"));
            all.push(Argument::value("--fp4-recipe", "nvfp4", "a scale for each 16 elements"));
        }
    }
    match (training.precision, training.fp32_gradients) {
        (Precision::Fp32, _) => {}
        (_, true) => all.push(Argument::switch(
            "--accumulate-allreduce-grads-in-fp32",
            "gradients are added up and reduced in 32 bits",
        )),
        (Precision::Fp16, false) => {}
        (_, false) => all.push(Argument::switch(
            "--grad-reduce-in-bf16",
            "gradients are added up and reduced in 16 bits",
        )),
    }
    all
}

fn optimizer(setting: &Setting<'_>) -> Vec<Argument> {
    let (training, layout) = (&setting.training, &setting.layout);
    let mut all = Vec::new();
    match training.optimizer {
        Optimizer::AdamW => {
            let why = "Adam with decoupled weight decay, Megatron's default";
            all.push(Argument::value("--optimizer", "adam", why));
        }
        Optimizer::Momentum => {
            all.push(Argument::value("--optimizer", "sgd", "gradient descent"));
            all.push(Argument::value("--sgd-momentum", 0.9, "with momentum"));
        }
        Optimizer::Sgd => {
            all.push(Argument::value("--optimizer", "sgd", "gradient descent"));
            all.push(Argument::value("--sgd-momentum", "0.0", "plain"));
        }
    }
    if training.bf16_moments || layout.offload.optimizer {
        let why = "the optimizer that takes a number format for each of its states";
        all.push(Argument::switch("--use-precision-aware-optimizer", why));
    }
    if training.bf16_moments {
        let why = "2 bytes a parameter instead of 4";
        all.push(Argument::value("--exp-avg-dtype", "bf16", why));
        all.push(Argument::value("--exp-avg-sq-dtype", "bf16", why));
    }
    all
}
