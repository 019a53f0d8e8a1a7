//! Tasks of ranks.

use cost_models::StridedGroup;
use ir::collective::Collective;
use ir::schedule::{Action, GenerateError};
use ir::units::{Bytes, Flops, Nanos};
use traces::timeline::CopyDestination;

/// A unit of work of a rank, which begins when all tasks that it needs and follows are over.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The action of the schedule to which it belongs.
    pub action: Action,
    /// Kind of the task.
    pub kind: TaskKind,
    /// Predicted time, with nothing overlapped.
    pub time: Nanos,
    /// Earlier tasks of the same rank whose results it needs.
    pub needs: Vec<TaskId>,
    /// Earlier tasks of the same rank that it follows without needing their results.
    pub follows: Vec<TaskId>,
}

/// Index of a task within its rank.
pub type TaskId = u32;

/// Kind of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskKind {
    /// Kernels of the device.
    Compute {
        /// FLOPs of their matrix products.
        flops: Flops,
        /// Bytes that they read and write.
        touched: Bytes,
    },
    /// The host computes, or launches kernels more slowly than the device runs them.
    Host,
    /// A collective within a group.
    Collective {
        /// The collective operation.
        collective: Collective,
        /// Ranks that take part.
        members: Members,
        /// Bytes of the whole buffer, as defined by [`Collective`].
        bytes: Bytes,
    },
    /// A message to another rank.
    Send {
        /// Receiver.
        to: Peer,
        /// Number of the message between these two ranks.
        tag: u32,
        /// Bytes of the message.
        bytes: Bytes,
    },
    /// A message from another rank.
    Receive {
        /// Sender.
        from: Peer,
        /// Number of the message between these two ranks.
        tag: u32,
        /// Bytes of the message.
        bytes: Bytes,
    },
    /// A copy between the device and its host.
    Copy {
        /// Destination: device or host.
        to: CopyDestination,
        /// Bytes of the copy.
        bytes: Bytes,
    },
}

/// Ranks that take part in a collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// The group of the rank along an axis of the mesh.
    Along(StridedGroup),
    /// The ranks with the same position in each of these pipeline ranks.
    Pipeline(Vec<u32>),
}

/// The other end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The rank with the same position in a pipeline rank.
    Pipeline(u32),
    /// The next rank of the group, the first after the last.
    Next(StridedGroup),
    /// The previous rank of the group, the last before the first.
    Before(StridedGroup),
}

impl Members {
    /// The members in order, including `rank`; `stride` is the distance between neighbouring pipeline ranks.
    pub fn ranks(&self, rank: u32, stride: u32) -> Vec<u32> {
        match self {
            Self::Along(group) => {
                let first = rank - place(*group, rank) * group.stride;
                (0..group.size).map(|place| first + place * group.stride).collect()
            }
            Self::Pipeline(ranks) => {
                let mut ranks: Vec<u32> =
                    ranks.iter().map(|other| other * stride + rank % stride).collect();
                ranks.sort_unstable();
                ranks
            }
        }
    }
}

impl Peer {
    /// The peer of `rank`; `stride` is the distance between neighbouring pipeline ranks.
    pub fn rank(self, rank: u32, stride: u32) -> u32 {
        let moved = |group: StridedGroup, by: u32| {
            let place = place(group, rank);
            rank - place * group.stride + (place + by) % group.size * group.stride
        };
        match self {
            Self::Pipeline(other) => other * stride + rank % stride,
            Self::Next(group) => moved(group, 1),
            Self::Before(group) => moved(group, group.size - 1),
        }
    }
}

/// Index of a rank in its group.
const fn place(group: StridedGroup, rank: u32) -> u32 {
    rank / group.stride % group.size
}

/// Reason why a step has no graph of tasks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TasksError {
    /// The schedule does not allow the layout's numbers; never for a checked layout.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// Work that is predicted as one time, not as collectives and messages.
    #[error("{what}\nhint: {works}")]
    Opaque {
        /// The work, in words.
        what: String,
        /// Plans that have a graph of tasks.
        works: &'static str,
    },
}
