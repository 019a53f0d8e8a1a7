//! Tasks of ranks.

use cost_models::Group;
use ir::collective::Collective;
use ir::schedule::{Action, GenerateError};
use ir::units::{Bytes, Flops, Nanos};
use traces::timeline::Side;

/// Something that a rank does, which begins when all that it comes after is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// For which action of the schedule.
    pub action: Action,
    /// The kind of the task.
    pub kind: TaskKind,
    /// Predicted time, with nothing overlapped.
    pub time: Nanos,
    /// Tasks of the same rank whose results it needs, each before it.
    pub needs: Vec<TaskId>,
    /// Tasks of the same rank that it merely follows, each before it.
    pub follows: Vec<TaskId>,
}

/// Index of a task of a rank.
pub type TaskId = u32;

/// Kind of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskKind {
    /// Kernels of the device.
    Compute {
        /// Operations of their products.
        flops: Flops,
        /// Bytes that they read and write.
        touched: Bytes,
    },
    /// The host computes, or launches kernels more slowly than the device runs them.
    Host,
    /// A collective within a group.
    Collective {
        /// Which.
        collective: Collective,
        /// Between whom.
        members: Members,
        /// The size of the whole buffer, as [`Collective`] has it.
        bytes: Bytes,
    },
    /// A message to another rank.
    Send {
        /// To which.
        to: Peer,
        /// Number of the message between these two ranks.
        tag: u32,
        /// Its size.
        bytes: Bytes,
    },
    /// A message from another rank.
    Receive {
        /// From which.
        from: Peer,
        /// Number of the message between these two ranks.
        tag: u32,
        /// Its size.
        bytes: Bytes,
    },
    /// A copy between the device and its host.
    Copy {
        /// To which of the two.
        to: Side,
        /// Its size.
        bytes: Bytes,
    },
}

/// Who takes part in a collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// The group of the rank along an axis of the mesh.
    Along(Group),
    /// The ranks with the same place in these pipeline ranks.
    Pipeline(Vec<u32>),
}

/// The other end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The rank with the same place in a pipeline rank.
    Pipeline(u32),
    /// The next rank of the rank's group, the first after the last.
    Next(Group),
    /// The rank before in the rank's group, the last before the first.
    Before(Group),
}

impl Members {
    /// The ranks, in order, of which `rank` is one; `stride` lies between neighbours of the pipeline.
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
    /// The rank that it is to `rank`; `stride` lies between neighbours of the pipeline.
    pub fn rank(self, rank: u32, stride: u32) -> u32 {
        let moved = |group: Group, by: u32| {
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

/// The place of a rank in its group.
const fn place(group: Group, rank: u32) -> u32 {
    rank / group.stride % group.size
}

/// Why a step has no such graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TasksError {
    /// The schedule does not take the layout's numbers; of a checked layout, never.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// Something that is predicted as a time in all, and not as the collectives and messages it consists of.
    #[error("{what}\nhint: {works}")]
    Opaque {
        /// What.
        what: String,
        /// Steps that have a graph of tasks.
        works: &'static str,
    },
}
