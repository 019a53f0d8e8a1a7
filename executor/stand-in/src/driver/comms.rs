//! Communicators, and what is to be given to streams for them.

use std::collections::BTreeMap;

use super::codes::Code;
use crate::members::{Ending, Member, MemberCall};
use crate::recording::Part;

/// All communicators, by handle. Those that ended are kept for the report.
#[derive(Default)]
pub(super) struct Comms {
    comms: BTreeMap<usize, Comm>,
}

/// A rank's end of a communicator.
pub(super) struct Comm {
    pub(super) member: Member,
    pub(super) device: u32,
    /// Whether calls return when what they start was given to its stream.
    pub(super) is_blocking: bool,
    /// How often its state is still to be told as "in progress", if that ends at all.
    pub(super) polls_left: Option<u32>,
    /// Given to streams when the state is no longer "in progress".
    pub(super) pending: Vec<Start>,
    /// What went wrong, as all are told who ask.
    pub(super) error: Option<Code>,
}

/// Calls that are given to a stream as one.
pub(super) struct Start {
    pub(super) stream: usize,
    pub(super) parts: Vec<Part>,
    pub(super) calls: Vec<MemberCall>,
    /// Whether it never ends, since another rank does not come.
    pub(super) is_stuck: bool,
}

/// How often a communicator that does not block says "in progress" before it is done.
pub(super) const POLLS: u32 = 2;

impl Comms {
    pub(super) fn insert(&mut self, handle: usize, comm: Comm) {
        self.comms.insert(handle, comm);
    }

    /// The communicator of a handle, if it has not ended.
    pub(super) fn get(&mut self, handle: usize) -> Result<&mut Comm, Code> {
        let is_there =
            |comm: &&mut Comm| [Ending::Open, Ending::Finalised].contains(&comm.member.ending);
        self.comms.get_mut(&handle).filter(is_there).ok_or(Code::NCCL_INVALID_ARGUMENT)
    }

    /// Whether streams still wait for the ranks of a communicator.
    pub(super) fn is_stuck(&self, handle: Option<usize>) -> bool {
        let comm = handle.and_then(|handle| self.comms.get(&handle));
        comm.is_some_and(|comm| comm.member.ending != Ending::Aborted)
    }

    /// All memberships.
    pub(super) fn members(&self) -> Vec<Member> {
        self.comms.values().map(|comm| comm.member.clone()).collect()
    }
}
