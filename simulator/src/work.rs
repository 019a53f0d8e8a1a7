//! Work of a step: the passes, transfers and memory of its actions. Where the numbers come from is
//! the caller's business.

use std::collections::BTreeMap;
use std::ops::{Add, AddAssign, Mul};

use ir::collective::Collective;
use ir::schedule::ActionKind;
use ir::units::{Bytes, Nanos};
use smallvec::{SmallVec, smallvec};

use crate::{Durations, PassTimes};

/// Work of every stage and every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// By stage.
    pub stages: Vec<StageWork>,
    /// By pipeline rank.
    pub ranks: Vec<RankWork>,
    /// Pipeline ranks that meet in a collective; see [`GroupCollective::group`].
    pub groups: Vec<Vec<u32>>,
    /// Order of messages between stages.
    pub messages: Messages,
    /// By how much kernels run slower while a transfer of their rank is under way, in thousandths of
    /// their rate.
    pub slowdown_per_mille: u32,
    /// How long the two passes of an overlapped pair take together, by the stage of the forward and that
    /// of the backward; where a pair is not listed, one follows the other.
    pub pairs: BTreeMap<(u32, u32), Nanos>,
}

/// Order of messages between stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Messages {
    /// Those before them: a rank sends one after the other, in the order in which it makes them, and
    /// receives one after the other, in the order in which it needs them. They share the link of the
    /// transfers over replicas.
    #[default]
    Queue,
    /// Nothing: each takes its own time.
    Delay,
}

/// Work of a stage for one micro-batch, and once a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageWork {
    /// From input to output.
    pub forward: Pass,
    /// Both gradients in one.
    pub backward: Pass,
    /// Gradients of activations alone.
    pub input_grad: Pass,
    /// Gradients of parameters alone.
    pub weight_grad: Pass,
    /// The forward of the first micro-batch, if it differs.
    pub first_forward: Option<Pass>,
    /// The backward of the last micro-batch, if it differs.
    pub last_backward: Option<Pass>,
    /// The gradient of parameters of the last micro-batch, if it differs.
    pub last_weight_grad: Option<Pass>,
    /// Transfers that reduce its gradients once they are all there.
    pub reduce: Vec<Transfer>,
    /// Its update.
    pub update: Pass,
    /// The message to the next stage, where that is on another rank.
    pub send_forward: Message,
    /// The message to the stage before.
    pub send_backward: Message,
    /// Memory of its passes.
    pub kept: ActivationBytes,
}

/// Memory of a stage's passes for a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivationBytes {
    /// ActivationBytes from forward to backward.
    pub activations: Bytes,
    /// Part of it that is kept from the input gradient to the weight gradient.
    pub for_weight_grad: Bytes,
    /// Held during backward, or during the input gradient where the two are apart.
    pub workspace: Bytes,
}

/// Work and memory of a pipeline rank that belong to none of its stages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankWork {
    /// Held from the beginning to the end.
    pub memory: Bytes,
    /// How much memory there is.
    pub memory_capacity: Option<Bytes>,
    /// The first of the ranks that it stands for.
    pub first_rank: u32,
    /// Number of ranks that do the same at the same time, itself included.
    pub multiplicity: u32,
    /// Transfers that begin with the step, one after the other; each for a stage.
    pub prefetch: Vec<(u32, Transfer)>,
}

/// The parts of a pass or of an update, one after the other; most have one.
pub type Pass = SmallVec<[Part; 1]>;

/// A part of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Kernels, and exchanges of their own.
    Run(Run),
    /// A transfer begins, and the next part does not wait for it.
    Start(Transfer),
    /// Nothing, until all transfers that began are over; but for their copies to the host.
    Wait,
    /// Nothing, until all copies to the host are over too.
    WaitForHost,
    /// Nothing, until so many of the rank's transfers are over, counting from the start of the step.
    WaitFor(u32),
    /// A collective with other pipeline ranks, which begins when all have joined it.
    Collective(GroupCollective),
}

/// Kernels with exchanges of their own, which were played through before: nothing but the transfers of
/// their rank can make them take longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// From beginning to end, if no transfer is under way.
    pub time: Nanos,
    /// For how long of that kernels run.
    pub kernels: Nanos,
    /// How long its exchanges use the link that transfers use.
    pub on_link: Nanos,
    /// For how long of that kernels wait.
    pub waits_on_link: Nanos,
}

impl Run {
    /// A run of kernels alone.
    pub const fn of_kernels(time: Nanos) -> Self {
        Self { time, kernels: time, on_link: Nanos::ZERO, waits_on_link: Nanos::ZERO }
    }
}

impl Add for Run {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            time: self.time + other.time,
            kernels: self.kernels + other.kernels,
            on_link: self.on_link + other.on_link,
            waits_on_link: self.waits_on_link + other.waits_on_link,
        }
    }
}

impl AddAssign for Run {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<u64> for Run {
    type Output = Self;

    fn mul(self, count: u64) -> Self {
        Self {
            time: self.time * count,
            kernels: self.kernels * count,
            on_link: self.on_link * count,
            waits_on_link: self.waits_on_link * count,
        }
    }
}

/// Collective of a rank with its replicas; a rank's transfers run one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// What it does.
    pub collective: Collective,
    /// How long it takes if nothing else uses its link.
    pub time: Nanos,
    /// What it moves, as [`Collective`] has it.
    pub bytes: Bytes,
    /// What comes from the host before it can begin.
    pub from_host: HostCopy,
    /// What goes to the host once it is over, which later transfers do not wait for.
    pub to_host: HostCopy,
}

impl Transfer {
    /// One without copies.
    pub const fn new(collective: Collective, time: Nanos, bytes: Bytes) -> Self {
        let none = HostCopy { time: Nanos::ZERO, bytes: Bytes::ZERO };
        Self { collective, time, bytes, from_host: none, to_host: none }
    }
}

/// A copy between a device and its host. Those in one direction come one after the other, and neither kernels nor
/// transfers take longer beside them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCopy {
    /// From beginning to end.
    pub time: Nanos,
    /// What it moves.
    pub bytes: Bytes,
}

/// A collective of pipeline ranks, which none of them goes on without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupCollective {
    /// Who takes part: an index of [`Work::groups`].
    pub group: u32,
    /// What is done, and how long that takes once all are there.
    pub transfer: Transfer,
    /// Whether gradients are reduced, and not a mere number of theirs.
    pub is_reduction: bool,
}

/// Message from a rank to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// From the sender to the receiver.
    pub time: Nanos,
    /// What it moves.
    pub bytes: Bytes,
}

impl StageWork {
    /// A stage that only computes, and whose messages take `send`; each micro-batch keeps `1 B`.
    pub fn plain(passes: PassTimes, send: Nanos) -> Self {
        let compute = |kind| smallvec![Part::Run(Run::of_kernels(passes.of(kind)))];
        let message = Message { time: send, bytes: Bytes::ZERO };
        Self {
            forward: compute(ActionKind::Forward),
            backward: compute(ActionKind::Backward),
            input_grad: compute(ActionKind::InputGrad),
            weight_grad: compute(ActionKind::WeightGrad),
            send_forward: message,
            send_backward: message,
            kept: ActivationBytes {
                activations: Bytes::new(1),
                for_weight_grad: Bytes::new(1),
                workspace: Bytes::ZERO,
            },
            ..Self::default()
        }
    }

    /// The parts of an action; none for what neither computes nor updates. `is_first` and `is_last` say
    /// whether it is the first of its kind on its rank and stage, or the last.
    pub fn parts(&self, kind: ActionKind, is_first: bool, is_last: bool) -> &[Part] {
        let special = match kind {
            ActionKind::Forward if is_first => &self.first_forward,
            ActionKind::Backward if is_last => &self.last_backward,
            ActionKind::WeightGrad if is_last => &self.last_weight_grad,
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

impl Part {
    /// The time of a run; none of what only waits.
    pub(crate) fn time(&self) -> Nanos {
        match self {
            Self::Run(run) => run.time,
            _ => Nanos::ZERO,
        }
    }
}

impl Work {
    /// Work of stages that only compute, each rank alone, with messages that are nothing but a delay.
    pub fn plain(durations: &Durations, num_ranks: u32) -> Self {
        let stage = |passes: &PassTimes| StageWork::plain(*passes, durations.send);
        let rank = |first_rank| RankWork { first_rank, multiplicity: 1, ..RankWork::default() };
        Self {
            stages: durations.stages.iter().map(stage).collect(),
            ranks: (0..num_ranks).map(rank).collect(),
            groups: Vec::new(),
            messages: Messages::Delay,
            slowdown_per_mille: 0,
            pairs: BTreeMap::new(),
        }
    }
}
