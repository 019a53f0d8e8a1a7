//! Checks that do not run the schedule: completeness, placement, pairs, and the order on each rank.

use std::collections::BTreeMap;

use super::error::{Defect, ScheduleError};
use crate::schedule::{Action, ActionKind, Schedule, ScheduleStep, Updates};

/// Checks everything but deadlock, and returns when the schedule updates parameters.
pub(super) fn structure(schedule: &Schedule) -> Result<Updates, ScheduleError> {
    let size = Size::new(schedule)?;
    let mut seen = Seen { size, done: vec![0; size.pairs()] };
    let communicates = schedule.has_communication();
    for (rank, steps) in schedule.ranks().iter().enumerate() {
        for (index, step) in steps.iter().enumerate() {
            let at = |defect| ScheduleError::at(defect, schedule.ranks(), (rank, index));
            pair(*step).map_err(at)?;
            for action in step.actions() {
                place(schedule, rank, action).map_err(at)?;
                if action.kind.has_micro_batch() {
                    seen.order(schedule, action, communicates).map_err(at)?;
                }
            }
        }
    }
    seen.complete(schedule)?;
    if communicates {
        seen.sent(schedule)?;
    }
    stage_actions(schedule)
}

/// Number of stages and micro-batches, no more than the actions can cover.
#[derive(Clone, Copy)]
struct Size {
    stages: u32,
    micro_batches: u32,
}

impl Size {
    fn new(schedule: &Schedule) -> Result<Self, ScheduleError> {
        let (stages, micro_batches) = (schedule.num_stages(), schedule.num_micro_batches());
        let ranks = schedule.ranks().len();
        if ranks == 0 || stages == 0 || micro_batches == 0 {
            let defect = Defect::Empty { ranks, micro_batches, stages };
            return Err(ScheduleError::nowhere(defect));
        }
        let size = Self { stages, micro_batches };
        let forwards = || {
            let actions = schedule.actions().map(|(_, action)| action);
            actions.filter(|action| action.kind == ActionKind::Forward)
        };
        let needed = u64::from(stages) * u64::from(micro_batches);
        // Checked before any table of that size is allocated: a cell like `4000000000F0` claims many stages.
        if needed > 64 + 2 * schedule.ranks().iter().map(|steps| steps.len() as u64).sum::<u64>() {
            let mut there: Vec<_> = forwards().map(|a| (a.stage, a.micro_batch)).collect();
            there.sort_unstable();
            there.dedup();
            let all = (0..stages).flat_map(|s| (0..micro_batches).map(move |m| (s, m)));
            let gap = all.zip(there.iter().copied().map(Some).chain(std::iter::repeat(None)));
            if let Some(((stage, micro_batch), _)) = gap.into_iter().find(|(a, b)| Some(*a) != *b) {
                let action = Action { stage, kind: ActionKind::Forward, micro_batch };
                return Err(ScheduleError::nowhere(Defect::Missing { action }));
            }
        }
        Ok(size)
    }

    fn pairs(self) -> usize {
        self.stages as usize * self.micro_batches as usize
    }

    fn index(self, stage: u32, micro_batch: u32) -> usize {
        stage as usize * self.micro_batches as usize + micro_batch as usize
    }
}

fn pair(step: ScheduleStep) -> Result<(), Defect> {
    let ScheduleStep::Overlapped(forward, backward) = step else { return Ok(()) };
    let is_backward = matches!(backward.kind, ActionKind::Backward | ActionKind::InputGrad);
    // A micro-batch's backward needs all of its forwards.
    let is_other = forward.micro_batch != backward.micro_batch;
    if forward.kind == ActionKind::Forward && is_backward && is_other {
        return Ok(());
    }
    Err(Defect::Pair { step })
}

fn place(schedule: &Schedule, rank: usize, action: Action) -> Result<(), Defect> {
    let num_micro_batches = schedule.num_micro_batches();
    if action.micro_batch >= num_micro_batches {
        return Err(Defect::MicroBatch { action, num_micro_batches });
    }
    let on =
        |micro_batch| schedule.placement().rank(schedule.num_ranks(), action.stage, micro_batch);
    let expected = on(action.micro_batch);
    let is_here = |expected: Option<u32>| expected.is_some_and(|r| r as usize == rank);
    // Actions of a stage as a whole may be on any rank that runs it for some micro-batch.
    if is_here(expected) || (!action.kind.has_micro_batch() && is_here(on(1))) {
        return Ok(());
    }
    Err(Defect::Rank { action, rank, expected })
}

/// Actions of each stage and micro-batch seen so far, with a bit for each kind.
struct Seen {
    size: Size,
    done: Vec<u8>,
}

fn bit(kind: ActionKind) -> u8 {
    match kind {
        ActionKind::Forward => 1,
        ActionKind::Backward => 1 << 1,
        ActionKind::InputGrad => 1 << 2,
        ActionKind::WeightGrad => 1 << 3,
        ActionKind::SendForward => 1 << 4,
        ActionKind::RecvForward => 1 << 5,
        ActionKind::SendBackward => 1 << 6,
        ActionKind::RecvBackward => 1 << 7,
        _ => 0,
    }
}

impl Seen {
    fn has(&self, stage: u32, micro_batch: u32, kind: ActionKind) -> bool {
        self.done[self.size.index(stage, micro_batch)] & bit(kind) != 0
    }

    /// Records an action, after checking that all actions that must precede it on its rank do.
    fn order(
        &mut self,
        schedule: &Schedule,
        action: Action,
        communicates: bool,
    ) -> Result<(), Defect> {
        use ActionKind as K;
        let Action { stage, kind, micro_batch } = action;
        let has = |kind| self.has(stage, micro_batch, kind);
        let mixed = match kind {
            K::Backward => has(K::InputGrad) || has(K::WeightGrad),
            K::InputGrad | K::WeightGrad => has(K::Backward),
            _ => false,
        };
        if mixed || has(kind) {
            return Err(Defect::Repeated { action, full: mixed });
        }
        let other_side = neighbour(schedule, action);
        if kind.is_message() {
            match other_side {
                None => return Err(Defect::NoPartner { action, same_rank: false }),
                Some((rank, other)) if rank == other => {
                    return Err(Defect::NoPartner { action, same_rank: true });
                }
                Some(_) => {}
            }
        }
        let crosses = || communicates && other_side.is_some_and(|(rank, other)| rank != other);
        let first = match kind {
            K::Forward if crosses() => Some(K::RecvForward),
            K::Backward | K::InputGrad if !has(K::Forward) => Some(K::Forward),
            K::Backward | K::InputGrad if crosses() => Some(K::RecvBackward),
            K::WeightGrad => Some(K::InputGrad),
            K::SendForward => Some(K::Forward),
            K::SendBackward if has(K::Backward) || has(K::InputGrad) => None,
            K::SendBackward => Some(backward_of(schedule, stage, micro_batch)),
            _ => None,
        };
        if let Some(first) = first.filter(|first| !has(*first)) {
            return Err(Defect::Order {
                action,
                needs: Action { stage, kind: first, micro_batch },
            });
        }
        self.done[self.size.index(stage, micro_batch)] |= bit(kind);
        Ok(())
    }

    fn complete(&self, schedule: &Schedule) -> Result<(), ScheduleError> {
        use ActionKind as K;
        for stage in 0..self.size.stages {
            for micro_batch in 0..self.size.micro_batches {
                let has = |kind| self.has(stage, micro_batch, kind);
                let missing = if !has(K::Forward) {
                    K::Forward
                } else if has(K::InputGrad) && !has(K::WeightGrad) {
                    K::WeightGrad
                } else if !has(K::InputGrad) && !has(K::Backward) {
                    K::Backward
                } else {
                    continue;
                };
                let defect =
                    Defect::Missing { action: Action { stage, kind: missing, micro_batch } };
                // Any action of the same stage and micro-batch locates the gap.
                let at = position(schedule, |action| {
                    (action.stage, action.micro_batch) == (stage, micro_batch)
                });
                return Err(match at {
                    Some(at) => ScheduleError::at(defect, schedule.ranks(), at),
                    None => ScheduleError::nowhere(defect),
                });
            }
        }
        Ok(())
    }

    /// Checks that every receive has a send. [`Self::order`] has checked that no needed receive is missing.
    fn sent(&self, schedule: &Schedule) -> Result<(), ScheduleError> {
        for (stage, micro_batch) in (0..self.size.stages)
            .flat_map(|stage| (0..self.size.micro_batches).map(move |m| (stage, m)))
        {
            for kind in [ActionKind::RecvForward, ActionKind::RecvBackward] {
                let receive = Action { stage, kind, micro_batch };
                if !self.has(stage, micro_batch, kind) {
                    continue;
                }
                let send = partner(receive);
                if self.has(send.stage, micro_batch, send.kind) {
                    continue;
                }
                let rank = neighbour(schedule, receive).map_or(0, |(_, other)| other);
                let at = position(schedule, |action| action == receive);
                let at = at.expect("an action that was seen stands somewhere");
                let defect = Defect::NotSent { receive, send, rank };
                return Err(ScheduleError::at(defect, schedule.ranks(), at));
            }
        }
        Ok(())
    }
}

/// The rank of an action's stage, and the rank of the stage with which it exchanges data. That is the next stage for
/// [`ActionKind::SendForward`] and for receiving or computing gradients, the preceding stage for other kinds.
fn neighbour(schedule: &Schedule, action: Action) -> Option<(u32, u32)> {
    use ActionKind as K;
    let Action { stage, micro_batch, kind } = action;
    let other = match kind {
        K::SendForward | K::RecvBackward | K::Backward | K::InputGrad => stage.checked_add(1)?,
        K::Forward | K::RecvForward | K::SendBackward => stage.checked_sub(1)?,
        _ => return None,
    };
    let rank = |stage| schedule.placement().rank(schedule.num_ranks(), stage, micro_batch);
    (other < schedule.num_stages()).then(|| rank(stage).zip(rank(other)))?
}

/// Kind of the action that computes the gradient that a stage sends: a full backward, or the first part of one.
fn backward_of(schedule: &Schedule, stage: u32, micro_batch: u32) -> ActionKind {
    let in_parts = Action { stage, kind: ActionKind::InputGrad, micro_batch };
    match position(schedule, |action| action == in_parts) {
        Some(_) => ActionKind::InputGrad,
        None => ActionKind::Backward,
    }
}

/// The matching half of a message.
pub(super) fn partner(message: Action) -> Action {
    message.partner().expect("a message between stages that are there")
}

fn position(schedule: &Schedule, is_it: impl Fn(Action) -> bool) -> Option<(usize, usize)> {
    schedule.ranks().iter().enumerate().find_map(|(rank, steps)| {
        steps.iter().position(|step| step.actions().any(&is_it)).map(|index| (rank, index))
    })
}

/// Counts of a stage's actions on a rank.
#[derive(Default)]
struct StageState {
    backwards: u32,
    all_backwards: u32,
    reductions: u32,
    all_reductions: u32,
    updates: u32,
    all_updates: u32,
    is_sharded: bool,
    is_gathered: bool,
}

/// Checks gathering, reduction and update of each stage on each of its ranks.
fn stage_actions(schedule: &Schedule) -> Result<Updates, ScheduleError> {
    use ActionKind as K;
    let mut stages: BTreeMap<(u32, u32), StageState> = BTreeMap::new();
    if schedule.actions().all(|(_, action)| action.kind.has_micro_batch()) {
        return Ok(schedule.updates());
    }
    for (rank, action) in schedule.actions() {
        let state = stages.entry((rank, action.stage)).or_default();
        match action.kind {
            K::Backward | K::WeightGrad => state.all_backwards += 1,
            K::ReduceGrad => state.all_reductions += 1,
            K::OptimizerStep => state.all_updates += 1,
            K::Unshard | K::Reshard => state.is_sharded = true,
            _ => {}
        }
    }
    for (kind, count) in [
        (K::ReduceGrad, (|state| state.all_reductions) as fn(&StageState) -> u32),
        (K::OptimizerStep, |state| state.all_updates),
    ] {
        if stages.values().any(|state| count(state) > 0)
            && let Some(((_, stage), _)) = stages.iter().find(|(_, state)| count(state) == 0)
        {
            let action = Action { stage: *stage, kind, micro_batch: 0 };
            return Err(ScheduleError::nowhere(Defect::Missing { action }));
        }
    }
    for (rank, steps) in schedule.ranks().iter().enumerate() {
        for (index, step) in steps.iter().enumerate() {
            for action in step.actions() {
                let state = stages.get_mut(&(rank as u32, action.stage));
                let state = state.expect("every stage of every rank was counted");
                state
                    .follow(action)
                    .map_err(|defect| ScheduleError::at(defect, schedule.ranks(), (rank, index)))?;
            }
        }
    }
    let each = stages.values().any(|state| state.all_updates > 1);
    Ok(if each { Updates::AfterEachMicroBatch } else { Updates::AfterFlush })
}

impl StageState {
    fn follow(&mut self, action: Action) -> Result<(), Defect> {
        use ActionKind as K;
        let gathered = self.is_gathered;
        match action.kind {
            K::Unshard if gathered => return Err(Defect::Sharding { action, gathered }),
            K::Unshard => self.is_gathered = true,
            K::Reshard if !gathered => return Err(Defect::Sharding { action, gathered }),
            K::Reshard => self.is_gathered = false,
            kind if kind.is_compute() && self.is_sharded && !gathered => {
                return Err(Defect::Sharding { action, gathered });
            }
            K::Backward | K::WeightGrad => self.backwards += 1,
            K::ReduceGrad => {
                self.reductions += 1;
                self.in_time(action, self.reductions, self.all_reductions)?;
            }
            K::OptimizerStep => {
                self.updates += 1;
                self.in_time(action, self.updates, self.all_updates)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks that the `done`-th of `all` reductions or updates is neither repeated nor too early: there is one after
    /// all backwards, or one after each.
    fn in_time(&self, action: Action, done: u32, all: u32) -> Result<(), Defect> {
        if done > 1 && all != self.all_backwards {
            return Err(Defect::Repeated { action, full: false });
        }
        let expected = if all == 1 { self.all_backwards } else { done };
        if self.backwards < expected {
            return Err(Defect::TooEarly { action, backwards: self.backwards, expected });
        }
        Ok(())
    }
}
