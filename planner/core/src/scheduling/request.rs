//! Request for a schedule, and its checks.

use ir::units::Nanos;
use simulator::Durations;

/// Request for a schedule.
#[derive(Clone, Debug)]
pub struct SchedulingRequest<'a> {
    /// Times of each stage's passes, and of messages. With two stages a rank, V-shaped placements are tried as well;
    /// stages beyond the first round of ranks are in the order of the model either way.
    pub durations: &'a Durations,
    /// Number of pipeline ranks.
    pub num_ranks: u32,
    /// Number of micro-batches.
    pub num_micro_batches: u32,
    /// Memory that a stage holds for a micro-batch.
    pub kept: StageMemory,
    /// The most memory that a rank may hold, in the unit of `kept`.
    pub limit: u64,
}

/// Memory that a stage holds for a micro-batch, in any unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageMemory {
    /// Memory held from the forward on.
    pub activations: u64,
    /// Memory held from the input gradient to the weight gradient; at most `activations`.
    pub for_weight_grad: u64,
}

/// Reason why there is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulingError {
    /// A number that is zero.
    #[error("`{name}` is 0; a schedule needs at least 1")]
    Zero {
        /// Name of the number.
        name: &'static str,
    },
    /// Stages that do not divide over the ranks.
    #[error("{num_stages} stages on {num_ranks} ranks; each rank needs as many as the others")]
    Stages {
        /// Stages with durations.
        num_stages: usize,
        /// Number of ranks.
        num_ranks: u32,
    },
    /// More memory is held for the weight gradient than is held at all.
    #[error("{for_weight_grad} kept for the weight gradient, of {activations} that there are")]
    StageMemory {
        /// Memory held for the weight gradient.
        for_weight_grad: u64,
        /// Memory held from the forward on.
        activations: u64,
    },
    /// One micro-batch at a time does not fit.
    #[error("a limit of {limit}, but one micro-batch alone keeps {needed} on a rank")]
    Memory {
        /// The limit.
        limit: u64,
        /// Memory that one micro-batch needs.
        needed: u64,
    },
    /// More actions than a search can go through.
    #[error("{actions} actions are more than the {most} that are scheduled")]
    TooLarge {
        /// Three actions for each stage and micro-batch.
        actions: u64,
        /// The largest number.
        most: u64,
    },
}

/// The largest number of actions: three for each forward in the families' largest schedules. Scheduling them takes some
/// seconds.
const MOST_ACTIONS: u64 = 3 << 19;

impl SchedulingRequest<'_> {
    /// Number of actions: forward, input gradient and weight gradient for each stage and micro-batch.
    pub(super) fn num_actions(&self) -> u64 {
        3 * self.durations.stages.len() as u64 * u64::from(self.num_micro_batches)
    }

    /// Checks the request, and returns the number of stages per rank.
    pub(super) fn stages_per_rank(&self) -> Result<u32, SchedulingError> {
        let SchedulingRequest { num_ranks, num_micro_batches, kept, limit, .. } = *self;
        for (name, number) in
            [("pipeline_parallel", num_ranks), ("num_micro_batches", num_micro_batches)]
        {
            if number == 0 {
                return Err(SchedulingError::Zero { name });
            }
        }
        let num_stages = self.durations.stages.len();
        if num_stages == 0 || !num_stages.is_multiple_of(num_ranks as usize) {
            return Err(SchedulingError::Stages { num_stages, num_ranks });
        }
        let StageMemory { activations, for_weight_grad } = kept;
        if for_weight_grad > activations {
            return Err(SchedulingError::StageMemory { for_weight_grad, activations });
        }
        let v = num_stages as u64 / u64::from(num_ranks);
        let needed = activations.saturating_mul(v);
        if needed > limit {
            return Err(SchedulingError::Memory { limit, needed });
        }
        let actions = self.num_actions();
        if actions > MOST_ACTIONS {
            return Err(SchedulingError::TooLarge { actions, most: MOST_ACTIONS });
        }
        Ok(v as u32)
    }
}

/// Makespan, longest span and peak memory: smaller is better.
pub(super) type Score = (Nanos, Nanos, u64);
