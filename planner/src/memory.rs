//! What fills the memory of a rank.

use cost_models::states::ModelStates;
use ir::layout::{LayoutSpec, ZeroStage};
use ir::plan::MemoryUse;
use ir::schedule::{ScheduleKind, Updates};
use ir::units::Bytes;

use crate::evaluate::Evaluator;
use crate::stages::{Holdings, Stage};

/// What CUDA, its libraries and NCCL hold on a GPU beside the allocator: 1113 MiB.
///
/// # Source
///
/// BigScience's notes on their V100 and A100 runs, which subtract this from nvidia-smi's figure.
pub const CONTEXT: Bytes = Bytes::new(1113 << 20);

/// What the caching allocator reserves beyond what is allocated, in per cent.
///
/// # Source
///
/// SimuMax's published runs on 8 B200: the mean of reserved over allocated, 200 ranks of 25 runs.
pub const ALLOCATOR_SLACK_PERCENT: u64 = 4;

/// Blocks whose gathered parameters a rank holds at once under ZeRO-3: the one that computes and the
/// one that is fetched meanwhile (Zhao et al. 2023, *PyTorch FSDP*, arXiv 2304.11277, section 3.4).
const GATHERED_BLOCKS: u64 = 2;

const GIB: f64 = (1u64 << 30) as f64;

impl Evaluator<'_> {
    /// Memory of pipeline rank `rank`, with the activations of the schedule's closed form.
    pub fn memory(&self, stage: &Holdings, rank: usize) -> MemoryUse {
        let LayoutSpec { schedule, virtual_stages, .. } = self.spec;
        let [p, v, m] = [self.spec.pipeline_parallel, virtual_stages, self.spec.num_micro_batches]
            .map(u64::from);
        let chunks = schedule.peak_chunks_in_flight(rank as u64, p, v, m);
        // The last block's backward follows its forward at once, unless all forwards come first.
        let last = match schedule {
            ScheduleKind::GPipe | ScheduleKind::LoopedBfs => m,
            _ => 1,
        };
        let of_rank = u64::from(schedule.stages_per_rank(virtual_stages));
        let activations =
            Bytes::new((stage.saved * chunks).get().div_ceil(of_rank)) + stage.saved_by_last * last;
        self.memory_with(stage, rank, activations, stage.recompute_working_set)
    }

    /// Memory of pipeline rank `rank` that keeps `kept` for backward at its peak, what is computed again
    /// at that time included.
    fn memory_at_peak(&self, stage: &Holdings, rank: usize, kept: Bytes) -> MemoryUse {
        let recomputed = stage.recompute_working_set.min(kept);
        self.memory_with(stage, rank, kept - recomputed, recomputed)
    }

    fn memory_with(
        &self,
        stage: &Holdings,
        rank: usize,
        activations: Bytes,
        recomputed: Bytes,
    ) -> MemoryUse {
        let LayoutSpec { zero_stage: zero, zero_shard, pipeline_parallel, .. } = self.spec;
        let framework = &self.problem.hardware.framework;
        let states = ModelStates::new(stage.dense, zero, zero_shard.into(), self.bytes)
            + ModelStates::new(stage.expert, zero, self.spec.expert_shards().into(), self.bytes);
        let gathered = if zero == ZeroStage::Parameters {
            let gather = GATHERED_BLOCKS * self.bytes.parameter + self.bytes.gradient;
            let gathered = if framework.keeps_gathered && pipeline_parallel > 1 {
                stage.dense * (self.bytes.parameter + self.bytes.gradient)
            } else {
                stage.largest_block * gather
            };
            Bytes::new(gathered)
        } else {
            Bytes::ZERO
        };
        let element = self.bytes.parameter + self.bytes.gradient;
        // The one that comes into an operator and the one that goes out. The largest are the loss's.
        let gradients = if framework.fuses_loss { 1 } else { 2 };
        let weight_gradient = Bytes::new(stage.largest_weight * element);
        let mut memory = MemoryUse {
            parameters_bytes: states.parameters * self.weight_versions(rank)
                + Bytes::new((states.parameters.get() as f64 * framework.parameter_copies) as u64),
            gradients_bytes: states.gradients + self.gradient_copies(&states),
            optimizer_bytes: states.optimizer + self.update_copies(&states),
            gathered_bytes: gathered,
            activations_bytes: activations,
            recompute_bytes: recomputed,
            // Gradients of activations, or that of a weight, as the product makes it and as it is added up:
            // where the ones are largest, the other is small.
            workspace_bytes: (stage.largest_tensor * gradients).max(weight_gradient),
            // One message on its way in each direction, and one being used.
            buffers_bytes: stage.message * 4,
            ..MemoryUse::default()
        };
        memory.allocator_bytes = Bytes::new(memory.total().get() / 100 * ALLOCATOR_SLACK_PERCENT);
        let libraries = framework.libraries_gib * GIB;
        memory.context_bytes = CONTEXT + Bytes::new(libraries as u64);
        memory
    }

    /// Gradients in 16 bits beside those in 32.
    fn gradient_copies(&self, states: &ModelStates) -> Bytes {
        let keeps = self.problem.hardware.framework.keeps_16_bit_gradients;
        let is_mixed = self.bytes.gradient > self.bytes.parameter;
        if !keeps || !is_mixed {
            return Bytes::ZERO;
        }
        (states.gradients * self.bytes.parameter).shard(self.bytes.gradient)
    }

    /// What the update keeps beside its state.
    fn update_copies(&self, states: &ModelStates) -> Bytes {
        let each =
            self.problem.hardware.framework.update_bytes / self.bytes.optimizer.max(1) as f64;
        Bytes::new((states.optimizer.get() as f64 * each) as u64)
    }

    /// How many versions of its weights a rank keeps: one, or where they are updated after each
    /// micro-batch, one for each micro-batch in flight, as each backward needs the weights that its forward
    /// used.
    ///
    /// # Source
    ///
    /// Harlap et al. 2018, *PipeDream* (arXiv 1806.03377), section 3.3: weight stashing.
    fn weight_versions(&self, rank: usize) -> u64 {
        let LayoutSpec { schedule, pipeline_parallel, virtual_stages, num_micro_batches, .. } =
            self.spec;
        match schedule.updates() {
            Updates::AfterFlush => 1,
            Updates::AfterEachMicroBatch => {
                let [p, v, m] =
                    [pipeline_parallel, virtual_stages, num_micro_batches].map(u64::from);
                schedule.peak_chunks_in_flight(rank as u64, p, v, m)
            }
        }
    }

    /// Memory of the rank that needs most, and which it is.
    pub fn peak_memory(&self, stages: &[Stage]) -> (MemoryUse, usize) {
        let kept = self.in_order.map(|(order, chunks)| order.activations(stages, chunks));
        let memory = |rank: usize| match &kept {
            Some(kept) => self.memory_at_peak(&stages[rank].holdings, rank, kept[rank]),
            None => self.memory(&stages[rank].holdings, rank),
        };
        let mut fullest = (memory(0), 0);
        for rank in 1..stages.len() {
            let memory = memory(rank);
            if memory.total() > fullest.0.total() {
                fullest = (memory, rank);
            }
        }
        fullest
    }
}
