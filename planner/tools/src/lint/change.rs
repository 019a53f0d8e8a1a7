//! Changes of settings, independent of tools.

use ir::cluster::Precision;
use ir::framework::{TensorOverlap, UpdatedParameters, WhenReduced};
use ir::graph::{Recompute, TokenDispatcher};
use ir::layout::{LayoutSpec, Offload, ZeroStage};
use ir::schedule::ScheduleKind;

use crate::interchange::{Imported, StatedStages, Target};

/// A change of one setting.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// Tensor-parallel degree.
    TensorParallel(u32),
    /// Sequence parallelism over the tensor-parallel ranks, on or off.
    SequenceParallel(bool),
    /// Pipeline-parallel degree.
    Pipeline(u32),
    /// Virtual stages of each pipeline rank.
    VirtualStages(u32),
    /// Context-parallel degree.
    Context(u32),
    /// Expert-parallel degree.
    Expert(u32),
    /// Expert-tensor-parallel degree.
    ExpertTensor(u32),
    /// Sequences of a micro-batch.
    MicroBatch(u32),
    /// Sequences of a step.
    GlobalBatch(u64),
    /// Tokens of a sequence.
    Sequence(u64),
    /// Recompute of activations.
    Recompute(Recompute),
    /// ZeRO stage.
    Zero(ZeroStage),
    /// One group of all replicas that shards the states, instead of several groups.
    OneShardGroup,
    /// Gradients are reduced during backward.
    ReplicasOverlap {
        /// True if updated parameters are also gathered during forward.
        gathers: bool,
    },
    /// Number format of matrix products.
    Precision(Precision),
    /// Multiple to which the vocabulary is padded, per tensor-parallel rank.
    VocabularyMultiple(u32),
    /// Token dispatcher of experts.
    Dispatcher(TokenDispatcher),
    /// No offload to the host.
    NoOffload,
    /// Stages cut such that their times are balanced.
    RebalanceStages,
    /// Number of ranks.
    Gpus(u32),
}

/// Adjusts a stated number of micro-batches to a change of degrees or micro-batch size such that the global batch stays
/// the same, where that divides. A change of the global batch clears the number.
fn keep_batch(imported: &mut Imported, before: &LayoutSpec, change: &Change) {
    let ranks = |it: &LayoutSpec| {
        [it.tensor_parallel, it.context_parallel, it.pipeline_parallel]
            .into_iter()
            .map(u64::from)
            .product::<u64>()
    };
    let after = imported.layout;
    let Some(rounds) = &mut imported.training.num_micro_batches else { return };
    if matches!(change, Change::GlobalBatch(_)) {
        imported.training.num_micro_batches = None;
        return;
    }
    let product = u64::from(*rounds) * ranks(&after) * u64::from(before.micro_batch_size);
    let divisor = ranks(before) * u64::from(after.micro_batch_size);
    if let Some(kept) = product.checked_div(divisor)
        && kept > 0
        && product.is_multiple_of(divisor)
    {
        *rounds = kept as u32;
    }
}

impl Change {
    /// Paths of the changed field in `plan.json`, then those of other fields whose options may express the change.
    pub(super) const fn fields(&self) -> &'static [&'static str] {
        match self {
            Self::TensorParallel(_) => &["layout.tensor_parallel"],
            Self::SequenceParallel(_) => &["layout.sequence_parallel", "layout.tensor_parallel"],
            Self::Pipeline(_) => &["layout.pipeline_parallel"],
            Self::VirtualStages(_) => &["layout.virtual_stages", "stages"],
            Self::Context(_) => &["layout.context_parallel"],
            Self::Expert(_) => &["layout.expert_parallel"],
            Self::ExpertTensor(_) => &["layout.expert_tensor_parallel"],
            Self::MicroBatch(_) => &["layout.micro_batch_size", "pipeline_batch"],
            Self::GlobalBatch(_) => &["training.global_batch_size"],
            Self::Sequence(_) => &["training.sequence_length"],
            Self::Recompute(_) => &["layout.recompute"],
            Self::Zero(_) => &["layout.zero_stage"],
            Self::OneShardGroup => &["layout.zero_shard", "shard_groups", "copies"],
            Self::Precision(_) => &["training.precision"],
            Self::Dispatcher(_) => &["layout.switches.token_dispatcher"],
            Self::NoOffload => &["layout.offload"],
            Self::RebalanceStages => &["stages", "layout.pipeline_parallel"],
            Self::Gpus(_) => &["num_gpus", "replicas"],
            Self::ReplicasOverlap { .. } => &["framework.gradients.reduced"],
            Self::VocabularyMultiple(_) => &["framework.tensor_parallel.vocabulary_multiple"],
        }
    }

    /// Applies the change to settings. If the number of stages changes, layers are cut evenly where they divide, else
    /// such that the times of the stages are balanced.
    pub(super) fn apply(&self, imported: &mut Imported, num_layers: u32) {
        let before = imported.layout;
        self.set(imported);
        keep_batch(imported, &before, self);
        let layout = &mut imported.layout;
        if layout.pipeline_parallel == 1 {
            layout.virtual_stages = 1;
        }
        let is_plain =
            [ScheduleKind::OneFOneB, ScheduleKind::Interleaved].contains(&layout.schedule);
        if is_plain || layout.pipeline_parallel == 1 {
            let is_interleaved = layout.virtual_stages > 1;
            layout.schedule =
                if is_interleaved { ScheduleKind::Interleaved } else { ScheduleKind::OneFOneB };
        }
        let stages = |it: &LayoutSpec| it.pipeline_parallel.saturating_mul(it.virtual_stages);
        let now = stages(layout);
        if *self == Self::RebalanceStages {
            imported.stages = StatedStages::Balanced;
        } else if now != stages(&before) {
            let is_even = now > 0 && num_layers.is_multiple_of(now);
            imported.stages = if is_even { StatedStages::Even } else { StatedStages::Balanced };
        }
    }

    fn set(&self, imported: &mut Imported) {
        let is_megatron = matches!(imported.source, Target::Megatron | Target::MegatronBridge);
        let Imported { layout, training, framework, .. } = imported;
        match *self {
            Self::TensorParallel(degree) => {
                if layout.expert_tensor_parallel == layout.tensor_parallel {
                    layout.expert_tensor_parallel = degree;
                }
                layout.expert_tensor_parallel = layout.expert_tensor_parallel.min(degree);
                if degree == 1 {
                    layout.sequence_parallel = false;
                } else if layout.tensor_parallel == 1 {
                    layout.sequence_parallel = true;
                    // Megatron overlaps more only with an option for it.
                    if is_megatron {
                        framework.tensor_parallel.overlap = TensorOverlap::Gradients;
                    }
                }
                layout.tensor_parallel = degree;
            }
            Self::SequenceParallel(is_on) => {
                layout.sequence_parallel = is_on;
                if is_megatron && is_on {
                    framework.tensor_parallel.overlap = TensorOverlap::Gradients;
                }
            }
            Self::Pipeline(degree) => layout.pipeline_parallel = degree,
            Self::VirtualStages(stages) => layout.virtual_stages = stages,
            Self::Context(degree) => layout.context_parallel = degree,
            Self::Expert(degree) => layout.expert_parallel = degree,
            Self::ExpertTensor(degree) => layout.expert_tensor_parallel = degree,
            Self::MicroBatch(sequences) => layout.micro_batch_size = sequences,
            Self::GlobalBatch(sequences) => training.global_batch_size = Some(sequences),
            Self::Sequence(tokens) => training.sequence_length = Some(tokens),
            Self::Recompute(recompute) => layout.recompute = recompute,
            Self::Zero(stage) => {
                if is_megatron && layout.zero_stage == ZeroStage::None {
                    // Default of Megatron: parameters are gathered before forward.
                    framework.parameters.gathered = UpdatedParameters::BeforeForward;
                }
                layout.zero_stage = stage;
            }
            Self::OneShardGroup => imported.shard_groups = 1,
            Self::ReplicasOverlap { gathers } => {
                framework.gradients.reduced = WhenReduced::BesideBackward;
                if gathers {
                    framework.parameters.gathered = UpdatedParameters::BesideForward;
                }
            }
            Self::Precision(precision) => {
                training.precision = precision;
                // Megatron's bf16 has fp32 gradients by default, torchtitan's always.
                let is_in_fp32 = is_megatron || imported.source == Target::TorchTitan;
                training.fp32_gradients |= is_in_fp32 && precision == Precision::Bf16;
            }
            Self::VocabularyMultiple(multiple) => {
                framework.tensor_parallel.vocabulary_multiple = multiple;
            }
            Self::Dispatcher(dispatcher) => layout.switches.token_dispatcher = dispatcher,
            Self::NoOffload => layout.offload = Offload::NONE,
            Self::RebalanceStages => {}
            Self::Gpus(ranks) => imported.num_gpus = Some(ranks),
        }
    }
}
