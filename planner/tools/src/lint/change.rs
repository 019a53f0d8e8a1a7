//! Changes of settings, independent of tools.

use ir::cluster::Precision;
use ir::framework::{TensorOverlap, UpdatedParameters, WhenReduced};
use ir::graph::{Recompute, TokenDispatcher};
use ir::layout::{LayoutSpec, Offload, ZeroStage};
use ir::schedule::ScheduleKind;

use super::finding::OptionChange;
use crate::interchange::{Imported, StatedStages, Target, tool};

macro_rules! changes {
    ($(
        $(#[doc = $text:literal])+
        $name:ident($value:ty): $first:ident $(. $rest:ident)* $(, $other:literal)* => $flag:expr;
    )+) => {
        /// A change of one setting.
        #[derive(Clone, Debug, PartialEq)]
        pub(super) enum Change {
            $($(#[doc = $text])+ $name($value),)+
            /// One group of all replicas that shards the states, instead of several groups.
            OneShardGroup,
            /// Gradients are reduced during backward.
            ReplicasOverlap {
                /// True if updated parameters are also gathered during forward.
                gathers: bool,
            },
            /// No offload to the host.
            NoOffload,
            /// Stages are cut to balance their times.
            RebalanceStages,
        }

        impl Change {
            /// Path of the changed field in `plan.json`, followed by paths of other fields whose options may express
            /// the change.
            pub(super) const fn fields(&self) -> &'static [&'static str] {
                match self {
                    $(Self::$name(_) => {
                        &[concat!(stringify!($first) $(, ".", stringify!($rest))*) $(, $other)*]
                    })+
                    Self::OneShardGroup => &["layout.zero_shard", "shard_groups", "copies"],
                    Self::ReplicasOverlap { .. } => &["framework.gradients.reduced"],
                    Self::NoOffload => &["layout.offload"],
                    Self::RebalanceStages => &["stages", "layout.pipeline_parallel"],
                }
            }

            /// The change as arguments of `planner evaluate`; `None` if there are none for it.
            pub(super) fn planner_options(&self) -> Option<Vec<OptionChange>> {
                match self {
                    $(Self::$name(value) => {
                        let flag: Option<&str> = $flag;
                        Some(vec![OptionChange::value(flag?, value)])
                    })+
                    Self::NoOffload => Some(vec![OptionChange::remove("--offload")]),
                    Self::RebalanceStages => Some(Vec::new()),
                    Self::OneShardGroup | Self::ReplicasOverlap { .. } => None,
                }
            }

            /// Sets only the field of the change.
            fn set_field(&self, imported: &mut Imported) {
                match *self {
                    $(Self::$name(value) => imported.$first $(. $rest)* = value.into(),)+
                    Self::OneShardGroup => imported.shard_groups = 1,
                    Self::ReplicasOverlap { gathers } => {
                        let framework = &mut imported.framework;
                        framework.gradients.reduced = WhenReduced::BesideBackward;
                        if gathers {
                            framework.parameters.gathered = UpdatedParameters::BesideForward;
                        }
                    }
                    Self::NoOffload => imported.layout.offload = Offload::NONE,
                    Self::RebalanceStages => {}
                }
            }
        }
    };
}

// Each change with its field, other fields whose options may express it, and the option of `planner evaluate`.
changes! {
    /// Tensor-parallel degree.
    TensorParallel(u32): layout.tensor_parallel => Some("--tp");
    /// Sequence parallelism over the tensor-parallel ranks, on or off.
    SequenceParallel(bool): layout.sequence_parallel, "layout.tensor_parallel"
        => Some("--sequence-parallel");
    /// Pipeline-parallel degree.
    Pipeline(u32): layout.pipeline_parallel => Some("--pp");
    /// Virtual stages of each pipeline rank.
    VirtualStages(u32): layout.virtual_stages, "stages" => Some("--virtual-stages");
    /// Context-parallel degree.
    Context(u32): layout.context_parallel => Some("--cp");
    /// Expert-parallel degree.
    Expert(u32): layout.expert_parallel => Some("--ep");
    /// Expert-tensor-parallel degree.
    ExpertTensor(u32): layout.expert_tensor_parallel => Some("--etp");
    /// Sequences of a micro-batch.
    MicroBatch(u32): layout.micro_batch_size, "pipeline_batch" => Some("--micro-batch-size");
    /// Sequences of a step.
    GlobalBatch(u64): training.global_batch_size => Some("--global-batch-size");
    /// Tokens of a sequence.
    Sequence(u64): training.sequence_length => Some("--seq-len");
    /// Recompute of activations.
    Recompute(Recompute): layout.recompute => Some("--recompute");
    /// ZeRO stage.
    Zero(ZeroStage): layout.zero_stage => Some("--zero");
    /// Number format of matrix products.
    Precision(Precision): training.precision => Some("--precision");
    /// Multiple to which the vocabulary is padded, per tensor-parallel rank.
    VocabularyMultiple(u32): framework.tensor_parallel.vocabulary_multiple => None;
    /// Token dispatcher of experts.
    Dispatcher(TokenDispatcher): layout.switches.token_dispatcher => None;
    /// Number of ranks.
    Gpus(u32): num_gpus, "replicas" => Some("--gpus");
}

/// Adjusts a stated number of micro-batches to a change of degrees or of the micro-batch size, so that the global batch
/// stays the same, if the batch divides. A change of the global batch clears the number.
fn keep_batch(imported: &mut Imported, before: &LayoutSpec, change: &Change) {
    let ranks = |it: &LayoutSpec| {
        [it.tensor_parallel, it.context_parallel, it.pipeline_parallel]
            .into_iter()
            .map(u64::from)
            .fold(1, u64::saturating_mul)
    };
    let after = imported.layout;
    let Some(rounds) = &mut imported.training.num_micro_batches else { return };
    if matches!(change, Change::GlobalBatch(_)) {
        imported.training.num_micro_batches = None;
        return;
    }
    let sequences = u64::from(*rounds) * u64::from(before.micro_batch_size);
    let product = ranks(&after).saturating_mul(sequences);
    let divisor = ranks(before).saturating_mul(u64::from(after.micro_batch_size));
    if let Some(kept) = product.checked_div(divisor)
        && kept > 0
        && product.is_multiple_of(divisor)
    {
        *rounds = kept as u32;
    }
}

/// For each value, a list that contains only the change to that value.
pub(super) fn each<T>(
    change: impl Fn(T) -> Change,
    values: impl IntoIterator<Item = T>,
) -> Vec<Vec<Change>> {
    values.into_iter().map(|it| vec![change(it)]).collect()
}

impl Change {
    /// Returns whether the change is to a tensor-parallel degree that spans more than the `domain` ranks of a fast
    /// network.
    pub(super) fn crosses(&self, domain: u32) -> bool {
        matches!(self, Self::TensorParallel(degree) if !domain.is_multiple_of(*degree))
    }

    /// Applies the change to settings. If the number of stages changes, layers are spread evenly if they divide, else
    /// so that the times of the stages are balanced.
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

    /// Sets the field of the change, and fields that the tool sets with it.
    fn set(&self, imported: &mut Imported) {
        let is_megatron = imported.source.shares_framework(Target::MEGATRON);
        let has_fp32_gradients = tool(imported.source).has_fp32_gradients;
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
                    // Megatron overlaps further communication only with an option for it.
                    if is_megatron {
                        framework.tensor_parallel.overlap = TensorOverlap::Gradients;
                    }
                }
            }
            Self::SequenceParallel(true) if is_megatron => {
                framework.tensor_parallel.overlap = TensorOverlap::Gradients;
            }
            // Default of Megatron: parameters are gathered before forward.
            Self::Zero(_) if is_megatron && layout.zero_stage == ZeroStage::None => {
                framework.parameters.gathered = UpdatedParameters::BeforeForward;
            }
            Self::Precision(Precision::Bf16) => training.fp32_gradients |= has_fp32_gradients,
            _ => {}
        }
        self.set_field(imported);
    }
}
