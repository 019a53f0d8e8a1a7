//! The order of the actions of each rank.

use super::action::{Action, ActionKind, ScheduleStep};
use super::placement::StagePlacement;

/// The steps of each rank, in order. A `Schedule` value is valid: each micro-batch runs forward and backward once on
/// each stage, no action comes before its inputs, sends and receives (if there are any) pair up, and all ranks finish
/// if sends do not block.
///
/// Prints as a grid, a row for each rank:
///
/// ```
/// use ir::schedule::{ScheduleKind, generate};
///
/// let schedule = generate(ScheduleKind::OneFOneB, 2, 3, 1)?;
/// assert_eq!(schedule.to_string(), "0 | F0 F1 B0 F2 B1 B2\n1 | F0 B0 F1 B1 F2 B2\n");
/// # Ok::<(), ir::schedule::GenerateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    ranks: Vec<Vec<ScheduleStep>>,
    placement: StagePlacement,
    num_stages: u32,
    num_micro_batches: u32,
    updates: Updates,
}

impl Schedule {
    /// The steps of each rank.
    pub fn ranks(&self) -> &[Vec<ScheduleStep>] {
        &self.ranks
    }

    /// Number of ranks.
    pub fn num_ranks(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Number of stages of the model; each rank has one or more of them.
    pub fn num_stages(&self) -> u32 {
        self.num_stages
    }

    /// Number of micro-batches.
    pub fn num_micro_batches(&self) -> u32 {
        self.num_micro_batches
    }

    /// Placement of stages on ranks.
    pub fn placement(&self) -> &StagePlacement {
        &self.placement
    }

    /// Time of parameter updates.
    pub fn updates(&self) -> Updates {
        self.updates
    }

    /// The rank that runs `stage` for `micro_batch`.
    pub fn rank(&self, stage: u32, micro_batch: u32) -> u32 {
        let rank = self.placement.rank(self.num_ranks(), stage, micro_batch);
        rank.expect("a checked schedule places every stage that it has")
    }

    /// True if the schedule contains sends and receives.
    pub fn has_communication(&self) -> bool {
        self.actions().any(|(_, action)| action.kind.is_message())
    }

    /// All actions with their ranks, rank by rank.
    pub fn actions(&self) -> impl Iterator<Item = (u32, Action)> {
        let ranks = self.ranks.iter().zip(0..);
        ranks.flat_map(|(steps, rank)| {
            steps.iter().flat_map(move |step| step.actions().map(move |action| (rank, action)))
        })
    }

    /// The schedule in which rank `r` takes the steps `ranks[r]`, without checks: only [`Schedule::new`] may return it.
    pub(super) fn unchecked(
        ranks: Vec<Vec<ScheduleStep>>,
        placement: StagePlacement,
        num_micro_batches: u32,
    ) -> Self {
        let stages = ranks.iter().flatten().flat_map(|step| step.actions());
        let num_stages = stages.map(|action| action.stage.saturating_add(1)).max().unwrap_or(0);
        let updates = Updates::AfterFlush;
        Self { ranks, placement, num_stages, num_micro_batches, updates }
    }

    /// The schedule with another time of parameter updates.
    pub(crate) fn updating(self, updates: Updates) -> Self {
        Self { updates, ..self }
    }

    /// Peak number of micro-batches whose activations each rank holds, with each stage of each micro-batch counted
    /// separately. Activations are held from the forward to the end of the backward, or of [`ActionKind::WeightGrad`]
    /// where the two parts of backward are separate.
    pub fn peak_in_flight(&self) -> Vec<u32> {
        let peak = |steps: &Vec<ScheduleStep>| {
            let (mut held, mut peak) = (0_u32, 0);
            for action in steps.iter().flat_map(|step| step.actions()) {
                match action.kind {
                    ActionKind::Forward => held += 1,
                    ActionKind::Backward | ActionKind::WeightGrad => held -= 1,
                    _ => {}
                }
                peak = peak.max(held);
            }
            peak
        };
        self.ranks.iter().map(peak).collect()
    }

    /// The output of another stage that `action` needs: the forward of the preceding stage, or the gradient from the
    /// next stage. `None` where the rank's own order covers all needs, as for weight gradients.
    pub(crate) fn need(&self, action: Action) -> Option<Need> {
        let Action { stage, micro_batch, .. } = action;
        match action.kind {
            ActionKind::Forward => {
                Some(Need { stage: stage.checked_sub(1)?, micro_batch, pass: Pass::Forward })
            }
            ActionKind::Backward | ActionKind::InputGrad if stage + 1 < self.num_stages => {
                Some(Need { stage: stage + 1, micro_batch, pass: Pass::Backward })
            }
            _ => None,
        }
    }
}

/// Time of parameter updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updates {
    /// Once a step, after the last micro-batch: the pipeline is flushed.
    AfterFlush,
    /// After each micro-batch. A backward needs the weights that its forward used, so a stage stores a version for each
    /// micro-batch in flight (weight stashing).
    AfterEachMicroBatch,
}

/// Direction of data between stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Activations, down the stages.
    Forward,
    /// Gradients of activations, up the stages.
    Backward,
}

/// The output of a stage's pass, which an action of a neighbouring stage needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) stage: u32,
    pub(crate) micro_batch: u32,
    pub(crate) pass: Pass,
}
