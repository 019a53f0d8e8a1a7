//! Communicators, and their calls that are not enqueued yet.

use std::collections::BTreeMap;

use super::codes::Code;
use super::post::Post;
use crate::exchange::{NcclCall, NcclDataType, NcclFunction, ReduceOp};
use crate::members::{Member, MemberCall, MemberState};
use crate::recording::{Access, NamedAccesses};

/// All communicators by handle. Ended ones are kept for the report.
#[derive(Default)]
pub(super) struct Comms {
    comms: BTreeMap<usize, Comm>,
}

/// A rank's membership of a communicator.
pub(super) struct Comm {
    pub(super) member: Member,
    /// Number of queries that still return "in progress"; none if that never ends.
    pub(super) polls_left: Option<u32>,
    /// Calls that are enqueued once the state is no longer "in progress".
    pub(super) pending: Vec<Start>,
    /// Asynchronous error, returned by all queries.
    pub(super) error: Option<Code>,
    pub(super) numbers: Numbers,
}

/// Numbers of calls that pair with those of other ranks.
#[derive(Default)]
pub(super) struct Numbers {
    /// Number of collectives.
    of_all: u64,
    /// Number of messages from one rank to another.
    messages: BTreeMap<(u32, u32), u64>,
}

impl Comm {
    /// The messages of a call to and from other ranks.
    pub(super) fn post(&mut self, call: &MemberCall, accesses: &[Access]) -> Result<Post, Code> {
        let invalid = Code::NCCL_INVALID_ARGUMENT;
        let element = NcclDataType::of(call.element).ok_or(invalid)?;
        let reduction = || call.reduction.and_then(ReduceOp::of).ok_or(invalid);
        let peer = || call.peer.and_then(|peer| u32::try_from(peer).ok()).ok_or(invalid);
        let function = match call.function.as_str() {
            "ncclAllReduce" => NcclFunction::AllReduce(element, reduction()?),
            "ncclReduce" => NcclFunction::Reduce(element, reduction()?, peer()?),
            "ncclReduceScatter" => NcclFunction::ReduceScatter(element, reduction()?),
            "ncclAllGather" => NcclFunction::AllGather,
            "ncclBroadcast" => NcclFunction::Broadcast(peer()?),
            "ncclSend" => NcclFunction::Send(peer()?),
            _ => NcclFunction::Receive(peer()?),
        };
        let rank = self.member.rank;
        let number = match function {
            NcclFunction::Send(to) => self.numbers.messages.entry((rank, to)).or_default(),
            NcclFunction::Receive(from) => self.numbers.messages.entry((from, rank)).or_default(),
            _ => &mut self.numbers.of_all,
        };
        *number += 1;
        let part_bytes = call.count as usize * element.bytes();
        let nccl_call = NcclCall { function, part_bytes, rank, num_ranks: self.member.num_ranks };
        Ok(Post::new(nccl_call, &self.member.communicator, *number, accesses))
    }
}

/// Calls that are enqueued as one.
pub(super) struct Start {
    pub(super) stream: usize,
    pub(super) parts: Vec<NamedAccesses>,
    pub(super) calls: Vec<MemberCall>,
    /// True where the call never ends because another rank is missing.
    pub(super) is_stuck: bool,
}

/// Number of queries of a communicator that return "in progress".
pub(super) const POLLS: u32 = 2;

impl Comms {
    pub(super) fn insert(&mut self, handle: usize, comm: Comm) {
        self.comms.insert(handle, comm);
    }

    /// The communicator of a handle, if it has not ended.
    pub(super) fn get(&mut self, handle: usize) -> Result<&mut Comm, Code> {
        let is_open = |comm: &&mut Comm| comm.member.ending == MemberState::Open;
        self.comms.get_mut(&handle).filter(is_open).ok_or(Code::NCCL_INVALID_ARGUMENT)
    }

    /// Returns whether streams still wait for the ranks of a communicator.
    pub(super) fn is_stuck(&self, handle: Option<usize>) -> bool {
        let comm = handle.and_then(|handle| self.comms.get(&handle));
        comm.is_some_and(|comm| comm.member.ending != MemberState::Aborted)
    }

    /// All memberships.
    pub(super) fn members(&self) -> Vec<Member> {
        self.comms.values().map(|comm| comm.member.clone()).collect()
    }
}
