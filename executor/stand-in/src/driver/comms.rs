//! Communicators, and what is to be given to streams for them.

use std::collections::BTreeMap;

use super::codes::Code;
use super::post::Post;
use crate::exchange::{Element, Exchange, Kind, Reduction};
use crate::members::{Ending, Member, MemberCall};
use crate::recording::{Access, Part};

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
    pub(super) numbers: Numbers,
}

/// How many calls there were that pair with those of others.
#[derive(Default)]
pub(super) struct Numbers {
    /// With those of all.
    of_all: u64,
    /// From one rank to another.
    messages: BTreeMap<(u32, u32), u64>,
}

impl Comm {
    /// What a call has to say to other ranks, and to hear from them.
    pub(super) fn post(&mut self, call: &MemberCall, accesses: &[Access]) -> Result<Post, Code> {
        let invalid = Code::NCCL_INVALID_ARGUMENT;
        let element = Element::of(call.element).ok_or(invalid)?;
        let reduction = || call.reduction.and_then(Reduction::of).ok_or(invalid);
        let peer = || call.peer.and_then(|peer| u32::try_from(peer).ok()).ok_or(invalid);
        let kind = match call.function.as_str() {
            "ncclAllReduce" => Kind::AllReduce(element, reduction()?),
            "ncclReduce" => Kind::Reduce(element, reduction()?, peer()?),
            "ncclReduceScatter" => Kind::ReduceScatter(element, reduction()?),
            "ncclAllGather" => Kind::AllGather,
            "ncclBroadcast" => Kind::Broadcast(peer()?),
            "ncclSend" => Kind::Send(peer()?),
            _ => Kind::Receive(peer()?),
        };
        let rank = self.member.rank;
        let number = match kind {
            Kind::Send(to) => self.numbers.messages.entry((rank, to)).or_default(),
            Kind::Receive(from) => self.numbers.messages.entry((from, rank)).or_default(),
            _ => &mut self.numbers.of_all,
        };
        *number += 1;
        let part_bytes = call.count as usize * element.bytes();
        let exchange = Exchange { kind, part_bytes, rank, num_ranks: self.member.num_ranks };
        Ok(Post::new(exchange, &self.member.communicator, *number, accesses))
    }
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
