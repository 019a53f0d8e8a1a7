//! Order of operations of a schedule, with the dependencies of each.

use ir::schedule::{
    Action, ActionKind, GenerateError, Schedule, ScheduleKind, ScheduleStep, StagePlacement,
    Updates, add_optimizer_steps, add_reduction, generate, generate_steps,
};

/// The order of operations of each rank, with the dependencies of every action resolved.
///
/// Receives are posted from the beginning, and parameters are gathered within passes; so neither is in the order. A
/// result that another rank needs is sent where the schedule has its send, or, without sends, as soon as it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub(crate) ranks: Vec<Vec<RankOp>>,
    pub(crate) num_stages: u32,
    pub(crate) num_micro_batches: u32,
}

/// Operation in a rank's order: an action, with the result that it needs and the one that it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankOp {
    pub(crate) kind: ActionKind,
    /// True for the first action of its kind and stage on its rank.
    pub is_first: bool,
    /// True for the last action of its kind; for gradients of parameters, for the last action that computes any.
    pub is_last: bool,
    pub(crate) pair: Pair,
    pub(crate) stage: u32,
    pub(crate) micro_batch: u32,
    /// Index of the result that it needs; [`NONE`] if it needs no result of another pass.
    pub(crate) need: u32,
    /// Index of the result that it makes or sends; [`NONE`] if no operation needs it.
    pub(crate) result: u32,
    /// The rank that needs its result.
    pub(crate) user: u32,
    /// True if the result that it needs comes from another rank.
    pub(crate) receives: bool,
}

/// Position of an action in an overlapped pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pair {
    Alone,
    /// First of a pair, with the next action.
    First,
    /// Second of a pair, with the action before.
    Second,
}

/// Index that stands for no result.
pub(crate) const NONE: u32 = u32::MAX;

impl RankOp {
    /// The action of the operation.
    pub fn action(&self) -> Action {
        Action { stage: self.stage, kind: self.kind, micro_batch: self.micro_batch }
    }

    /// True if it is overlapped with the next operation.
    pub fn is_first_of_pair(&self) -> bool {
        self.pair == Pair::First
    }

    /// True if it sends the result of an action.
    pub(crate) fn sends_result_of(&self, action: Action) -> bool {
        let Action { stage, kind, micro_batch } = action;
        send_of(kind) == Some(self.kind) && (stage, micro_batch) == (self.stage, self.micro_batch)
    }

    /// Number of the message that it needs, where its input comes from another rank.
    pub fn receives(&self) -> Option<u32> {
        self.receives.then_some(self.need)
    }

    /// Number of the message that it sends, and the rank that needs it, if it is a send.
    pub fn sends(&self) -> Option<(u32, u32)> {
        self.kind.is_send().then_some((self.result, self.user))
    }
}

impl Order {
    /// Order of a schedule.
    pub fn new(schedule: &Schedule) -> Self {
        let numbers = (schedule.num_stages(), schedule.num_micro_batches());
        Self::of_ranks(
            schedule.ranks(),
            schedule.placement(),
            numbers,
            schedule.has_communication(),
        )
    }

    /// Order of a family's schedule with its reductions and updates, as [`add_reduction`](ir::schedule::add_reduction)
    /// and [`add_optimizer_steps`](ir::schedule::add_optimizer_steps) place them; without the checks of a [`Schedule`],
    /// which generated schedules pass.
    ///
    /// # Errors
    ///
    /// A family that does not take these numbers.
    pub fn of_family(kind: ScheduleKind, p: u32, m: u32, v: u32) -> Result<Self, GenerateError> {
        if kind.updates() == Updates::AfterEachMicroBatch {
            let schedule = generate(kind, p, m, v)?;
            return Ok(Self::new(&add_optimizer_steps(&add_reduction(&schedule))));
        }
        let ranks = steps_of_family(kind, p, m, v)?;
        Ok(Self::of_ranks(&ranks, &kind.placement(), (p * v, m), false))
    }

    fn of_ranks(
        ranks: &[Vec<ScheduleStep>],
        placement: &StagePlacement,
        (num_stages, num_micro_batches): (u32, u32),
        has_communication: bool,
    ) -> Self {
        let slots = Slots::new(placement, ranks.len() as u32, num_stages, num_micro_batches);
        let sends_at_once = !has_communication;
        let ranks = ranks.iter().zip(0..).map(|(steps, rank)| {
            let num_actions: usize = steps.iter().map(|step| step.actions().count()).sum();
            let mut ops = Vec::with_capacity(2 * num_actions);
            let mut sends: Vec<RankOp> = Vec::new();
            for step in steps {
                for (action, pair) in paired(step) {
                    let (op, is_crossed) = slots.op(rank, action, pair);
                    let send = send_of(action.kind).filter(|_| is_crossed && sends_at_once);
                    sends.extend(send.map(|kind| RankOp {
                        kind,
                        need: NONE,
                        receives: false,
                        pair: Pair::Alone,
                        ..op
                    }));
                    let keeps = !is_crossed || action.kind.is_send();
                    ops.push(if keeps { op } else { RankOp { result: NONE, ..op } });
                }
                ops.append(&mut sends);
            }
            mark_ends(&mut ops, num_stages);
            ops
        });
        Self { ranks: ranks.collect(), num_stages, num_micro_batches }
    }

    /// Number of results of all passes, including those that no operation needs.
    pub(crate) fn num_results(&self) -> usize {
        2 * self.num_stages as usize * self.num_micro_batches as usize
    }

    /// Number of operations of all ranks, including the messages that they send.
    pub fn num_actions(&self) -> usize {
        self.ranks.iter().map(Vec::len).sum()
    }

    /// Operations of each rank, in order: passes, messages that it sends, reductions, updates.
    pub fn ranks(&self) -> &[Vec<RankOp>] {
        &self.ranks
    }

    /// Number of different message numbers.
    pub fn num_messages(&self) -> u32 {
        self.num_results() as u32
    }

    /// The passes of a rank, in their order.
    pub fn passes(&self, rank: usize) -> impl Iterator<Item = Action> {
        self.ranks[rank].iter().filter(|op| op.kind.is_compute()).map(RankOp::action)
    }
}

/// Steps of each rank in a schedule of a family that updates at its end: passes, reductions, updates.
pub(crate) fn steps_of_family(
    kind: ScheduleKind,
    p: u32,
    m: u32,
    v: u32,
) -> Result<Vec<Vec<ScheduleStep>>, GenerateError> {
    let mut ranks = generate_steps(kind, p, m, v)?;
    for (steps, rank) in ranks.iter_mut().zip(0..) {
        end_with_updates(steps, &kind.placement(), p, p * v, rank);
    }
    Ok(ranks)
}

/// The actions of a step that are simulated, each with its position in an overlapped pair.
pub(crate) fn paired(step: &ScheduleStep) -> impl Iterator<Item = (Action, Pair)> {
    let actions = match *step {
        ScheduleStep::One(action) => [Some((action, Pair::Alone)), None],
        ScheduleStep::Overlapped(first, second) => {
            [Some((first, Pair::First)), Some((second, Pair::Second))]
        }
    };
    actions.into_iter().flatten().filter(|(action, _)| is_played(action.kind))
}

const fn is_played(kind: ActionKind) -> bool {
    kind.is_compute()
        || kind.is_send()
        || matches!(kind, ActionKind::ReduceGrad | ActionKind::OptimizerStep)
}

/// Kind of message that sends the result of a pass.
const fn send_of(kind: ActionKind) -> Option<ActionKind> {
    match kind {
        ActionKind::Forward => Some(ActionKind::SendForward),
        ActionKind::Backward | ActionKind::InputGrad => Some(ActionKind::SendBackward),
        _ => None,
    }
}

/// Inserts the reduction of each stage of a rank after the last of its gradients, and the updates at the end.
fn end_with_updates(
    steps: &mut Vec<ScheduleStep>,
    placement: &StagePlacement,
    p: u32,
    num_stages: u32,
    rank: u32,
) {
    let action = |stage, kind| ScheduleStep::One(Action { stage, kind, micro_batch: 0 });
    let stages: Vec<u32> = placement.stages(p, num_stages, rank).collect();
    let is_last_grad = |step: &ScheduleStep, stage: u32| {
        step.actions().any(|action| {
            let is_grad = matches!(action.kind, ActionKind::Backward | ActionKind::WeightGrad);
            is_grad && action.stage == stage
        })
    };
    for stage in &stages {
        let last = steps.iter().rposition(|step| is_last_grad(step, *stage));
        if let Some(last) = last {
            steps.insert(last + 1, action(*stage, ActionKind::ReduceGrad));
        }
    }
    steps.extend(stages.into_iter().map(|stage| action(stage, ActionKind::OptimizerStep)));
}

/// Marks the first and the last action of each kind. Full backwards and weight gradients count as one kind for the
/// last: where a schedule has both, the last of them completes the gradients.
fn mark_ends(ops: &mut [RankOp], num_stages: u32) {
    let mut seen = vec![0_u16; num_stages as usize];
    for op in ops.iter_mut() {
        let bit = 1 << op.kind as u16;
        op.is_first = seen[op.stage as usize] & bit == 0;
        seen[op.stage as usize] |= bit;
    }
    seen.fill(0);
    for op in ops.iter_mut().rev() {
        let kind = match op.kind {
            ActionKind::WeightGrad => ActionKind::Backward,
            kind => kind,
        };
        let bit = 1 << kind as u16;
        op.is_last = seen[op.stage as usize] & bit == 0;
        seen[op.stage as usize] |= bit;
    }
}

/// Indices of results: forward and backward of each stage and micro-batch.
struct Slots {
    num_stages: u32,
    num_micro_batches: u32,
    /// Rank of each stage, for even and for odd micro-batches, as no placement distinguishes more.
    ranks: Vec<[u32; 2]>,
}

impl Slots {
    fn new(placement: &StagePlacement, p: u32, num_stages: u32, num_micro_batches: u32) -> Self {
        let rank = |stage, micro_batch| {
            let rank = placement.rank(p, stage, micro_batch);
            rank.expect("a schedule places every stage that it has")
        };
        let ranks = (0..num_stages).map(|stage| [0, 1].map(|m| rank(stage, m))).collect();
        Self { num_stages, num_micro_batches, ranks }
    }

    fn slot(&self, stage: u32, is_backward: bool, micro_batch: u32) -> u32 {
        (stage * 2 + u32::from(is_backward)) * self.num_micro_batches + micro_batch
    }

    /// The operation of an action, and whether another rank needs its result.
    fn op(&self, rank: u32, action: Action, pair: Pair) -> (RankOp, bool) {
        use ActionKind as K;
        let Action { stage, kind, micro_batch } = action;
        let need = match kind {
            K::Forward => stage.checked_sub(1).map(|from| (from, false)),
            K::Backward | K::InputGrad => {
                (stage + 1 < self.num_stages).then_some((stage + 1, true))
            }
            _ => None,
        };
        let user = match kind {
            K::Forward | K::SendForward => {
                (stage + 1 < self.num_stages).then_some((stage + 1, false))
            }
            K::Backward | K::InputGrad | K::SendBackward => {
                stage.checked_sub(1).map(|user| (user, true))
            }
            _ => None,
        };
        let parity = (micro_batch & 1) as usize;
        let user_rank = user.map_or(rank, |(user, _)| self.ranks[user as usize][parity]);
        let receives = need.is_some_and(|(from, _)| self.ranks[from as usize][parity] != rank);
        let op = RankOp {
            kind,
            is_first: false,
            is_last: false,
            pair,
            stage,
            micro_batch,
            need: need.map_or(NONE, |(from, back)| self.slot(from, back, micro_batch)),
            result: user.map_or(NONE, |(_, back)| self.slot(stage, back, micro_batch)),
            user: user_rank,
            receives,
        };
        (op, user_rank != rank)
    }
}
