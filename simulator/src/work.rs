//! What the actions of a step consist of: kernels, transfers, memory. Where the numbers come from is
//! the caller's business.

use ir::collective::Collective;
use ir::schedule::ActionKind;
use ir::units::{Bytes, Nanos};
use traces::timeline::Stream;

use crate::PassTimes;

/// What every stage and every rank does and holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// By stage.
    pub stages: Vec<StageWork>,
    /// By pipeline rank.
    pub ranks: Vec<RankWork>,
    /// Pipeline ranks that take part in a collective together; see [`Transfer::group`].
    pub groups: Vec<Vec<u32>>,
    /// What messages between stages wait for.
    pub messages: Messages,
    /// By how much kernels run slower while a transfer of their rank is under way, in thousandths of
    /// their rate.
    pub slowdown_per_mille: u32,
}

/// What messages between stages wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Messages {
    /// Their turn on the streams of both ranks, and their share of the links.
    #[default]
    Queue,
    /// Nothing: each takes its own time, as in [`earliest`](crate::earliest()).
    Delay,
}

/// What a stage does for one micro-batch, and once a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageWork {
    /// From input to output.
    pub forward: Vec<Segment>,
    /// Both gradients in one.
    pub backward: Vec<Segment>,
    /// Gradients of activations alone.
    pub input_grad: Vec<Segment>,
    /// Gradients of parameters alone.
    pub weight_grad: Vec<Segment>,
    /// The forward of the first micro-batch, if it differs.
    pub first_forward: Option<Vec<Segment>>,
    /// The backward of the last micro-batch, if it differs.
    pub last_backward: Option<Vec<Segment>>,
    /// The gradient of parameters of the last micro-batch, if it differs.
    pub last_weight_grad: Option<Vec<Segment>>,
    /// What gathers its parameters.
    pub unshard: Vec<Transfer>,
    /// What reduces its gradients.
    pub reduce: Vec<Transfer>,
    /// Its update, once its gradients are reduced.
    pub update: Vec<Segment>,
    /// The message to the next stage, where that is on another rank.
    pub send_forward: Transfer,
    /// The message to the stage before.
    pub send_backward: Transfer,
    /// Kept from forward to backward.
    pub activations: Bytes,
    /// What of it is kept from the input gradient to the weight gradient.
    pub kept_for_weight_grad: Bytes,
    /// Held during backward, or during the input gradient where the two are apart.
    pub backward_workspace: Bytes,
    /// What gathering its parameters takes.
    pub gathered: Bytes,
}

/// What a pipeline rank is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankWork {
    /// Held from the beginning to the end.
    pub memory: Bytes,
    /// How much memory there is.
    pub memory_capacity: Option<Bytes>,
    /// The first of the ranks that it stands for.
    pub first_rank: u32,
    /// How many ranks do the same at the same time, itself included.
    pub num_alike: u32,
    /// What begins with the step, one after the other; each for a stage.
    pub first: Vec<(u32, Transfer)>,
}

/// A part of an action. Parts follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Kernels.
    Compute(Nanos),
    /// A transfer begins, and the next part does not wait for it.
    Start(Transfer),
    /// Nothing, until all transfers that began on the stream are over.
    Wait(Stream),
    /// Nothing, until so many of the rank's transfers on the stream are over, counting from the start
    /// of the step.
    WaitFor(Stream, u32),
}

/// Something that a rank exchanges with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The stream on which it waits for its turn.
    pub stream: Stream,
    /// What it does.
    pub collective: Collective,
    /// How long it takes if nothing else crosses its link.
    pub time: Nanos,
    /// Which of the rank's links it crosses, counting network levels from the innermost.
    pub level: u8,
    /// What it moves, as [`Collective`] has it.
    pub bytes: Bytes,
    /// If pipeline ranks take part in it together, which: an index of [`Work::groups`]. It begins when
    /// all of them have come to it.
    pub group: Option<u32>,
}

impl Default for Transfer {
    fn default() -> Self {
        Self {
            stream: Stream::Send,
            collective: Collective::SendReceive,
            time: Nanos::ZERO,
            level: 0,
            bytes: Bytes::ZERO,
            group: None,
        }
    }
}

/// Whether an action is the first or the last of its kind, of its stage on its rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepEnd {
    /// None of its kind came before.
    pub is_first: bool,
    /// None of its kind comes after.
    pub is_last: bool,
}

impl StageWork {
    /// A stage that only computes, and whose messages take `send`; each micro-batch keeps `1 B`.
    pub fn plain(passes: PassTimes, send: Nanos) -> Self {
        let compute = |kind| vec![Segment::Compute(passes.of(kind))];
        let message = Transfer { time: send, ..Transfer::default() };
        Self {
            forward: compute(ActionKind::Forward),
            backward: compute(ActionKind::Backward),
            input_grad: compute(ActionKind::InputGrad),
            weight_grad: compute(ActionKind::WeightGrad),
            send_forward: message,
            send_backward: message,
            activations: Bytes::new(1),
            kept_for_weight_grad: Bytes::new(1),
            ..Self::default()
        }
    }

    /// The parts of an action on the compute stream; none for what does not compute. `end` says
    /// whether it is the first of its kind on the rank and stage, or the last.
    pub fn segments(&self, kind: ActionKind, end: StepEnd) -> &[Segment] {
        let special = match kind {
            ActionKind::Forward if end.is_first => &self.first_forward,
            ActionKind::Backward if end.is_last => &self.last_backward,
            ActionKind::WeightGrad if end.is_last => &self.last_weight_grad,
            _ => &None,
        };
        match (special, kind) {
            (Some(special), _) => special,
            (None, ActionKind::Forward) => &self.forward,
            (None, ActionKind::Backward) => &self.backward,
            (None, ActionKind::InputGrad) => &self.input_grad,
            (None, ActionKind::WeightGrad) => &self.weight_grad,
            (None, ActionKind::OptimizerStep) => &self.update,
            _ => &[],
        }
    }
}

impl Work {
    /// Work of stages that only compute, each rank alone, with messages that are nothing but a delay.
    pub fn plain(durations: &crate::Durations, num_ranks: u32) -> Self {
        let stage = |passes: &PassTimes| StageWork::plain(*passes, durations.send);
        let rank = |first_rank| RankWork { first_rank, num_alike: 1, ..RankWork::default() };
        Self {
            stages: durations.stages.iter().map(stage).collect(),
            ranks: (0..num_ranks).map(rank).collect(),
            groups: Vec::new(),
            messages: Messages::Delay,
            slowdown_per_mille: 0,
        }
    }
}
