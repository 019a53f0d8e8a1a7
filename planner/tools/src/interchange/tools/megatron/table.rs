//! Megatron's options that a plan decides.

use ir::cluster::Precision;
use ir::framework::AttentionLibrary;
use ir::graph::{LossGradient, Recompute, TokenDispatcher};
use ir::layout::ZeroStage;
use ir::plan::Optimizer;

use super::{recompute, stages};
use crate::interchange::error::ImportError;
use crate::interchange::imported::Imported;
use crate::interchange::options::{OptionError, Vocabulary};
use crate::interchange::run::Run;
use crate::interchange::table::{Reader, Table, Values};
use crate::interchange::target::Target;
use crate::interchange::unread::Unread;

/// Options of `megatron.training.arguments` in megatron-core 0.19.2.
pub(in super::super) static TABLE: Table =
    Table::new(Vocabulary::whole("Megatron-LM", include_str!("options.txt")), write, read);

/// Megatron-DeepSpeed, whose scripts are read but not written.
pub(super) const DEEPSPEED_TARGET: Target =
    Target::new("megatron-deepspeed", "Megatron-DeepSpeed", "megatron-deepspeed");

/// Options that identify a file as one with Megatron's arguments.
pub(super) const ANCHORS: [&str; 7] = [
    "--micro-batch-size",
    "--seq-length",
    "--global-batch-size",
    "--num-layers",
    "--hidden-size",
    "--bf16",
    "--tensor-model-parallel-size",
];

/// Options of Megatron-DeepSpeed: DeepSpeed's, and Megatron's except those that shard in another way.
pub(in super::super) static DEEPSPEED_TABLE: Table = Table::new(
    Vocabulary::whole(
        "Megatron-DeepSpeed",
        concat!(include_str!("deepspeed.txt"), include_str!("options.txt")),
    ),
    write,
    read,
)
.without(&[
    "--context-parallel-size",
    "--cp-comm-type",
    "--use-distributed-optimizer",
    "--use-megatron-fsdp",
    "--data-parallel-sharding-strategy",
    "--use-torch-fsdp2",
    "--torch-fsdp2-no-reshard-after-forward",
    "--ckpt-format",
    "--no-gradient-accumulation-fusion",
    "--num-distributed-optimizer-instances",
    "--overlap-grad-reduce",
    "--overlap-param-gather",
    "--recompute-modules",
    "--fine-grained-activation-offloading",
    "--offload-modules",
    "--sequence-parallel",
]);

fn write(option: &str, run: &Run<'_>) -> Option<Values> {
    match option {
        "--pipeline-model-parallel-layout" => Some(vec![stages::layout_text(&run.stages)]),
        "--fine-grained-activation-offloading" | "--offload-modules" => {
            recompute::write_offloaded(option, run)
        }
        _ => recompute::write(option, run),
    }
}

fn read(option: &str, reader: Reader<'_>, settings: &mut Imported) -> Result<(), ImportError> {
    let Reader { source, given } = reader;
    let Imported { layout, training, .. } = settings;
    match option {
        // With one tensor-parallel rank, Megatron switches sequence parallelism off.
        "--sequence-parallel" => layout.sequence_parallel &= layout.tensor_parallel > 1,
        "--num-virtual-stages-per-pipeline-rank" => {
            stages::read(given, source.num_layers, settings)?;
        }
        "--expert-tensor-parallel-size"
            if !given.has(option) || !(given.has("--num-experts") || source.has_experts) =>
        {
            layout.expert_tensor_parallel = layout.tensor_parallel;
        }
        "--moe-flex-dispatcher-backend" => {
            let backends =
                [("deepep", TokenDispatcher::DeepEp), ("hybridep", TokenDispatcher::HybridEp)];
            let backend = given.one_of(option, &backends)?;
            let dispatcher = &mut layout.switches.token_dispatcher;
            if *dispatcher == TokenDispatcher::DeepEp {
                *dispatcher = backend.unwrap_or(TokenDispatcher::DeepEp);
            }
        }
        "--use-megatron-fsdp" if given.has(option) => {
            let strategies = [
                ("no_shard", ZeroStage::None),
                ("optim", ZeroStage::OptimizerState),
                ("optim_grads", ZeroStage::Gradients),
                ("optim_grads_params", ZeroStage::Parameters),
            ];
            let strategy = given.one_of("--data-parallel-sharding-strategy", &strategies)?;
            layout.zero_stage = strategy.unwrap_or(ZeroStage::Parameters);
        }
        "--use-megatron-fsdp" if given.has("--use-torch-fsdp2") => {
            let stays = given.has("--torch-fsdp2-no-reshard-after-forward");
            layout.zero_stage = if stays { ZeroStage::Gradients } else { ZeroStage::Parameters };
        }
        "--recompute-granularity" => {
            layout.recompute = recompute::read(given)?;
            let (method, number) = ("--recompute-method", "--recompute-num-layers");
            if layout.recompute == Recompute::Full
                && given.count(number)?.is_some_and(|it: u32| it > 1)
            {
                let why = format!(
                    "`{method} uniform` keeps the input of each chunk of layers; that of every layer is planned"
                );
                settings.unread.push(Unread::new(number, why));
            }
        }
        "--fine-grained-activation-offloading" if given.has(option) => {
            layout.offload.activations = recompute::read_offloaded(given)?;
        }
        "--cross-entropy-fusion-impl" if !given.has("--cross-entropy-loss-fusion") => {
            settings.framework.kernels.loss.gradient = LossGradient::OverSoftmax;
        }
        // Megatron's own layers use FlashAttention only if an option says so.
        "--transformer-impl" if !settings.framework.memory.transformer_engine => {
            settings.framework.kernels.attention = if given.has_within("--use-flash-attn") {
                AttentionLibrary::FlashAttention2
            } else {
                AttentionLibrary::Unfused
            };
        }
        "--micro-batch-size" if !given.has(option) && source.stated.micro_batch_size.is_none() => {
            let works = "Megatron has no default for it".to_owned();
            return Err(OptionError::missing(option, works).into());
        }
        "--bf16" => {
            let formats = [
                ("--fp8-format", Precision::Fp8),
                ("--fp4-format", Precision::Fp4),
                (option, Precision::Bf16),
                ("--fp16", Precision::Fp16),
            ];
            let format = formats.into_iter().find(|(option, _)| given.has(option));
            training.precision = format.map_or(Precision::Fp32, |(_, format)| format);
        }
        "--sgd-momentum"
            if training.optimizer == Optimizer::Momentum
                && given.text(option)?.is_some_and(|it| it.parse() == Ok(0.0)) =>
        {
            training.optimizer = Optimizer::Sgd;
        }
        "--exp-avg-dtype" => {
            training.bf16_moments &= given.has("--use-precision-aware-optimizer");
        }
        _ => {}
    }
    Ok(())
}
