//! Changes of settings, in no tool's words.

use ir::cluster::Precision;
use ir::framework::{TensorOverlap, UpdatedParameters, WhenReduced};
use ir::graph::{Recompute, TokenDispatcher};
use ir::layout::{LayoutSpec, Offload, ZeroStage};
use ir::schedule::ScheduleKind;

use crate::interchange::{Imported, StatedStages, Target};

/// A change of one setting.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// Ranks over which products are sharded.
    TensorParallel(u32),
    /// Whether the sequence is sharded over those too.
    SequenceParallel(bool),
    /// Pipeline ranks.
    Pipeline(u32),
    /// Stages of each.
    VirtualStages(u32),
    /// Ranks that share a sequence.
    Context(u32),
    /// Ranks that share the experts.
    Expert(u32),
    /// Ranks over which an expert is sharded.
    ExpertTensor(u32),
    /// Sequences of a micro-batch.
    MicroBatch(u32),
    /// Sequences of a step.
    GlobalBatch(u64),
    /// Tokens of a sequence.
    Sequence(u64),
    /// What is computed again.
    Recompute(Recompute),
    /// What replicas share.
    Zero(ZeroStage),
    /// All replicas share it.
    OneShardGroup,
    /// Exchanges of replicas are hidden, those of updated parameters too.
    ReplicasOverlap {
        /// Whether parameters are gathered.
        gathers: bool,
    },
    /// Number format of products.
    Precision(Precision),
    /// What a vocabulary is padded to a multiple of, on each tensor-parallel rank.
    VocabularyMultiple(u32),
    /// What carries tokens to experts.
    Dispatcher(TokenDispatcher),
    /// Nothing lies on the host.
    NoOffload,
    /// Layers of stages, so that none holds up the others.
    RebalanceStages,
    /// Ranks.
    Gpus(u32),
}

/// Where micro-batches are counted, as many as before are of another batch once they or the replicas are others: the
/// batch stays where it can.
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
    /// The field of a plan that is changed, as in `plan.json`, and others that say something of it.
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

    /// The settings with this changed. Stages are cut evenly where that is possible, else so that none holds up the
    /// others.
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
                    // Megatron overlaps more only where it is told to.
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
                    // Megatron gathers before forward unless it is told otherwise, which nobody had a reason to.
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
                // Both have nothing else, or nothing else by default.
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
