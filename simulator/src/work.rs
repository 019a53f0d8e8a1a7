//! Work of a step: the passes, transfers and memory of its actions, with times given by the caller.

use std::collections::BTreeMap;

use ir::collective::Collective;
use ir::schedule::ActionKind;
use ir::units::{Bytes, Nanos};
use smallvec::{SmallVec, smallvec};

use crate::{Durations, PassTimes};

/// Work of every stage and every pipeline rank of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepWork {
    /// Work of each stage.
    pub stages: Vec<StageWork>,
    /// Work of each pipeline rank.
    pub ranks: Vec<RankWork>,
    /// Groups of pipeline ranks that run collectives; see [`GroupCollective::group`].
    pub groups: Vec<Vec<u32>>,
    /// Order of messages between stages.
    pub messages: Messages,
    /// Slowdown of kernels while a transfer of their rank is in flight, in thousandths of their rate.
    pub slowdown_per_mille: u32,
    /// Time of the two passes of an overlapped pair together, by the stage of the forward and that of the backward;
    /// pairs that are not listed run one after the other.
    pub pairs: BTreeMap<(u32, u32), Nanos>,
}

/// Order of messages between stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Messages {
    /// Messages queue: a rank sends one after the other, in the order in which it makes them, and receives one after
    /// the other, in the order in which it needs them. They share the link of the transfers over replicas.
    #[default]
    Queue,
    /// Messages are delays, independent of each other.
    Delay,
}

/// Work of a stage for one micro-batch, and once per step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageWork {
    /// The forward pass.
    pub forward: PassParts,
    /// The backward pass, with both gradients.
    pub backward: PassParts,
    /// The pass for gradients of activations alone.
    pub input_grad: PassParts,
    /// The pass for gradients of parameters alone.
    pub weight_grad: PassParts,
    /// The forward of the first micro-batch, if it differs.
    pub first_forward: Option<PassParts>,
    /// The backward of the last micro-batch, if it differs.
    pub last_backward: Option<PassParts>,
    /// The weight gradient of the last micro-batch, if it differs.
    pub last_weight_grad: Option<PassParts>,
    /// Transfers that reduce its gradients after the last of them.
    pub reduce: Vec<Transfer>,
    /// The update of the stage's rank, on its first stage.
    pub update: PassParts,
    /// Message to the next stage, if that is on another rank.
    pub send_forward: TimedMessage,
    /// Message to the stage before, if that is on another rank.
    pub send_backward: TimedMessage,
    /// Memory of the stage's passes.
    pub kept: ActivationBytes,
}

/// Memory of a stage's passes for a micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivationBytes {
    /// Bytes from forward to backward.
    pub activations: Bytes,
    /// Part of `activations` that is held from the input gradient to the weight gradient.
    pub for_weight_grad: Bytes,
    /// Bytes held during backward, or during the input gradient where gradients are split.
    pub workspace: Bytes,
}

/// Work and memory of a pipeline rank outside of its stages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankWork {
    /// Memory held throughout the step.
    pub memory: Bytes,
    /// Capacity of the device's memory.
    pub memory_capacity: Option<Bytes>,
    /// The first of the ranks that this one represents.
    pub first_rank: u32,
    /// Number of ranks that it represents: all do the same at the same time.
    pub multiplicity: u32,
    /// Transfers that begin with the step, one after the other, each with its stage.
    pub prefetch: Vec<(u32, Transfer)>,
}

/// The parts of a pass or of an update, one after the other; most have one.
pub type PassParts = SmallVec<[PassPart; 1]>;

/// A part of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassPart {
    /// Kernels with their own exchanges.
    Run(Run),
    /// Begins a transfer, without waiting for it.
    Start(Transfer),
    /// Waits until all transfers that began have ended, but not their copies to the host.
    Wait,
    /// Waits until all copies to the host have ended as well.
    WaitForHost,
    /// Waits until this number of the rank's transfers have ended, counted from the start of the step.
    WaitFor(u32),
    /// A collective with other pipeline ranks, which begins when all have joined it.
    Collective(GroupCollective),
}

/// Kernels with their own exchanges, simulated before: only the transfers of their rank can slow them down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Duration with no transfer in flight.
    pub time: Nanos,
    /// Time during which kernels run.
    pub kernels: Nanos,
    /// Time during which its exchanges use the link of the transfers.
    pub on_link: Nanos,
    /// Time during which its kernels wait for that link.
    pub waits_on_link: Nanos,
}

impl Run {
    /// A run of kernels alone.
    pub const fn of_kernels(time: Nanos) -> Self {
        Self { time, kernels: time, on_link: Nanos::ZERO, waits_on_link: Nanos::ZERO }
    }
}

/// Collective of a rank with its replicas; transfers of a rank run one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The collective operation.
    pub collective: Collective,
    /// Time with nothing else on its link.
    pub time: Nanos,
    /// Bytes, as defined by [`Collective`].
    pub bytes: Bytes,
    /// Copy from the host that must end before it begins.
    pub from_host: HostCopy,
    /// Copy to the host that follows it; later transfers do not wait for it.
    pub to_host: HostCopy,
}

impl Transfer {
    /// A transfer without copies.
    pub const fn new(collective: Collective, time: Nanos, bytes: Bytes) -> Self {
        let none = HostCopy { time: Nanos::ZERO, bytes: Bytes::ZERO };
        Self { collective, time, bytes, from_host: none, to_host: none }
    }
}

/// A copy between a device and its host. Copies in one direction run one after the other, and slow down neither kernels
/// nor transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCopy {
    /// Duration of the copy.
    pub time: Nanos,
    /// Bytes that are copied.
    pub bytes: Bytes,
}

/// A collective of pipeline ranks that each of them waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupCollective {
    /// Ranks that take part: an index of [`StepWork::groups`].
    pub group: u32,
    /// The collective, and its time once all ranks have joined.
    pub transfer: Transfer,
    /// True if it reduces gradients, false for a number such as their norm.
    pub is_reduction: bool,
}

/// Message from one rank to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimedMessage {
    /// Time from sender to receiver.
    pub time: Nanos,
    /// Bytes that are sent.
    pub bytes: Bytes,
}

impl StageWork {
    /// The message that a send of this kind sends.
    pub(crate) fn message(&self, send: ActionKind) -> TimedMessage {
        match send {
            ActionKind::SendForward => self.send_forward,
            _ => self.send_backward,
        }
    }

    /// A stage that only computes, with messages that take `send`; each micro-batch holds 1 byte.
    pub fn plain(passes: PassTimes, send: Nanos) -> Self {
        let compute = |kind| smallvec![PassPart::Run(Run::of_kernels(passes.of(kind)))];
        let message = TimedMessage { time: send, bytes: Bytes::ZERO };
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

    /// Parts of an action; empty where it neither computes nor updates. `is_first` and `is_last` say whether it is the
    /// first, or the last, of its kind on its rank and stage.
    pub fn parts(&self, kind: ActionKind, is_first: bool, is_last: bool) -> &[PassPart] {
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

impl PassPart {
    /// Time of a run; zero for other parts.
    pub(crate) fn time(&self) -> Nanos {
        match self {
            Self::Run(run) => run.time,
            _ => Nanos::ZERO,
        }
    }
}

impl StepWork {
    /// Work of stages that only compute, with messages as delays, and one rank per pipeline rank.
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
