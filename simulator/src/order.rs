//! A schedule as the simulation goes through it: what each action needs, and who waits for it.

use ir::schedule::{
    Action, ActionKind, GenerateError, Schedule, ScheduleKind, StagePlacement, Step, Updates,
    add_optimizer_steps, add_reduction, generate, generate_steps,
};

/// The order in which each rank works, with what every action needs looked up once.
///
/// Receives are open from the beginning, and parameters are gathered within passes; so neither has a
/// place in it. A result that another rank needs is sent where the schedule has its send, or where it
/// has none as soon as it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub(crate) ranks: Vec<Vec<Op>>,
    pub(crate) num_stages: u32,
    pub(crate) num_micro_batches: u32,
}

/// Operation in a rank's order: an action, with what it needs and makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    pub(crate) kind: ActionKind,
    /// None of its kind came before, of its stage on its rank.
    pub(crate) is_first: bool,
    /// None of its kind comes after; for gradients of parameters, none that makes any.
    pub(crate) is_last: bool,
    pub(crate) pair: Pair,
    pub(crate) stage: u32,
    pub(crate) micro_batch: u32,
    /// The result that it needs; [`NONE`] if it needs none of another pass.
    pub(crate) need: u32,
    /// The result that it makes, or sends; [`NONE`] if nobody needs one.
    pub(crate) result: u32,
    /// The rank that needs its result.
    pub(crate) user: u32,
    /// Whether what it needs comes from another rank.
    pub(crate) receives: bool,
}

/// Whether an action runs at the same time as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pair {
    Alone,
    /// With the one that follows.
    First,
    /// With the one before.
    Second,
}

/// No result.
pub(crate) const NONE: u32 = u32::MAX;

impl Op {
    /// The action that it is.
    pub fn action(&self) -> Action {
        Action { stage: self.stage, kind: self.kind, micro_batch: self.micro_batch }
    }

    /// Whether none of its kind came before, of its stage on its rank.
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    /// Whether none of its kind comes after; for gradients of parameters, none that makes any.
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// Whether it runs beside the one that follows.
    pub fn is_first_of_pair(&self) -> bool {
        self.pair == Pair::First
    }

    /// The number of the message that it needs, where what it needs comes from another rank.
    pub fn receives(&self) -> Option<u32> {
        self.receives.then_some(self.need)
    }

    /// The number of the message that it sends and the rank that needs it, if it is a send.
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

    /// Order of a family's schedule with its reductions and updates, as
    /// [`add_reduction`](ir::schedule::add_reduction) and
    /// [`add_optimizer_steps`](ir::schedule::add_optimizer_steps) put them; without the checks of a
    /// [`Schedule`], which what a family generates passes.
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
        ranks: &[Vec<Step>],
        placement: &StagePlacement,
        (num_stages, num_micro_batches): (u32, u32),
        has_communication: bool,
    ) -> Self {
        let slots = Slots::new(placement, ranks.len() as u32, num_stages, num_micro_batches);
        let sends_at_once = !has_communication;
        let ranks = ranks.iter().zip(0..).map(|(steps, rank)| {
            let num_actions: usize = steps.iter().map(|step| step.actions().count()).sum();
            let mut ops = Vec::with_capacity(2 * num_actions);
            let mut sends: Vec<Op> = Vec::new();
            for step in steps {
                for (action, pair) in paired(step) {
                    let (op, is_crossed) = slots.op(rank, action, pair);
                    let send = send_of(action.kind).filter(|_| is_crossed && sends_at_once);
                    sends.extend(send.map(|kind| Op {
                        kind,
                        need: NONE,
                        receives: false,
                        pair: Pair::Alone,
                        ..op
                    }));
                    let keeps = !is_crossed || action.kind.is_send();
                    ops.push(if keeps { op } else { Op { result: NONE, ..op } });
                }
                ops.append(&mut sends);
            }
            mark_ends(&mut ops, num_stages);
            ops
        });
        Self { ranks: ranks.collect(), num_stages, num_micro_batches }
    }

    /// How many results passes make; those that nobody needs included.
    pub(crate) fn num_results(&self) -> usize {
        2 * self.num_stages as usize * self.num_micro_batches as usize
    }

    /// Actions of all ranks, messages that they send included.
    pub fn num_actions(&self) -> usize {
        self.ranks.iter().map(Vec::len).sum()
    }

    /// Operations of each rank, in order: passes, messages that it sends, reductions, updates.
    pub fn ranks(&self) -> &[Vec<Op>] {
        &self.ranks
    }

    /// How many numbers of messages there are.
    pub fn num_messages(&self) -> u32 {
        self.num_results() as u32
    }

    /// The passes of a rank, in their order.
    pub fn passes(&self, rank: usize) -> impl Iterator<Item = Action> {
        self.ranks[rank].iter().filter(|op| op.kind.is_compute()).map(Op::action)
    }
}

/// Steps of each rank in a schedule of a family that updates at its end: passes, reductions, updates.
pub(crate) fn steps_of_family(
    kind: ScheduleKind,
    p: u32,
    m: u32,
    v: u32,
) -> Result<Vec<Vec<Step>>, GenerateError> {
    let mut ranks = generate_steps(kind, p, m, v)?;
    for (steps, rank) in ranks.iter_mut().zip(0..) {
        end_with_updates(steps, &kind.placement(), p, p * v, rank);
    }
    Ok(ranks)
}

/// The actions of a step that take part, each with whether it runs beside the other.
pub(crate) fn paired(step: &Step) -> impl Iterator<Item = (Action, Pair)> {
    let actions = match *step {
        Step::One(action) => [Some((action, Pair::Alone)), None],
        Step::Overlapped(first, second) => {
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
pub(crate) const fn send_of(kind: ActionKind) -> Option<ActionKind> {
    match kind {
        ActionKind::Forward => Some(ActionKind::SendForward),
        ActionKind::Backward | ActionKind::InputGrad => Some(ActionKind::SendBackward),
        _ => None,
    }
}

/// Puts the reduction of each of a rank's stages after the last of its gradients, and the updates at the end.
fn end_with_updates(
    steps: &mut Vec<Step>,
    placement: &StagePlacement,
    p: u32,
    num_stages: u32,
    rank: u32,
) {
    let action = |stage, kind| Step::One(Action { stage, kind, micro_batch: 0 });
    let stages: Vec<u32> = placement.stages(p, num_stages, rank).collect();
    let is_last_grad = |step: &Step, stage: u32| {
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

/// Marks which actions are the first and the last of their kind. Those that make gradients of parameters, whole
/// backwards and second parts, are one: where a schedule has both, the last of them completes the gradients.
fn mark_ends(ops: &mut [Op], num_stages: u32) {
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

/// Where results are noted: forward and backward of each stage and micro-batch.
struct Slots {
    num_stages: u32,
    num_micro_batches: u32,
    /// The rank of each stage, for even and for odd micro-batches: no placement tells more apart.
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

    /// An action with what it needs and makes, and whether another rank needs that.
    fn op(&self, rank: u32, action: Action, pair: Pair) -> (Op, bool) {
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
        let op = Op {
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
