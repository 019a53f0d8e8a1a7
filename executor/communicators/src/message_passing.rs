//! Collectives, written once on top of messages.
//!
//! A rank sends all its messages before it waits, and sending does not wait, so ranks cannot wait for each other in a
//! cycle.

use burn::tensor::backend::Backend;
use executor_kernels::array::Array;
use traces::timeline::Stream;

use super::collective::{broadcast_tree, even_sizes};
use super::error::Result;
use super::traffic::Counters;
use super::transport::{Message, Transport};
use super::{
    ArraySpec, CollectiveCall, CommunicationError, Communicator, Group, InFlight, Reduction, Tag,
    Traffic,
};

/// A [`Communicator`] made of a transport and the collectives on top of it.
#[derive(Debug)]
pub struct MessagePassing<T> {
    rank: u32,
    num_ranks: u32,
    /// The transport.
    pub transport: T,
    sent: Counters,
}

impl<T> MessagePassing<T> {
    /// The communicator of a rank whose messages the transport carries.
    pub fn new(rank: u32, num_ranks: u32, transport: T) -> Self {
        Self { rank, num_ranks, transport, sent: Counters::default() }
    }

    fn endpoint<B: Backend>(&self) -> Endpoint<'_, B>
    where
        T: Transport<B>,
    {
        Endpoint { rank: self.rank, transport: &self.transport, sent: &self.sent }
    }
}

impl<B: Backend, T: Transport<B>> Communicator<B> for MessagePassing<T> {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn num_ranks(&self) -> u32 {
        self.num_ranks
    }

    fn send(&self, to: u32, tag: Tag, array: Array<B>) -> Result<()> {
        self.endpoint().deliver(to, tag, Message::Array(array))
    }

    fn receive(&self, from: u32, tag: Tag) -> Result<Array<B>> {
        self.endpoint().receive(from, tag)
    }

    fn start(
        &self,
        group: &Group,
        stream: Stream,
        call: CollectiveCall<B>,
    ) -> Result<InFlight<Vec<Array<B>>>> {
        let (position, tag) = (group.position_of(self.rank), Tag::Stream(stream));
        let member = Member { endpoint: self.endpoint(), group, tag, position };
        member.call(call).map(InFlight::done)
    }

    fn traffic(&self) -> Traffic {
        self.sent.read()
    }

    fn stop(&self, cause: &str) {
        self.transport.stop(cause);
    }
}

/// A rank's endpoint of all messages.
struct Endpoint<'a, B: Backend> {
    rank: u32,
    transport: &'a dyn Transport<B>,
    sent: &'a Counters,
}

impl<B: Backend> Endpoint<'_, B> {
    /// Sends a message, and counts its bytes if it goes to another rank.
    fn deliver(&self, to: u32, tag: Tag, message: Message<B>) -> Result<()> {
        let num_bytes = message.num_bytes();
        self.transport.deliver(to, tag, message)?;
        if to != self.rank {
            self.sent.add(tag.stream(), num_bytes);
        }
        Ok(())
    }

    fn receive(&self, from: u32, tag: Tag) -> Result<Array<B>> {
        match self.transport.wait(from, tag)? {
            Message::Array(array) => Ok(array),
            Message::Signal => self.confused(from, tag, ["an array", "that it is at a barrier"]),
        }
    }

    /// The error where ranks make different calls, so that a message is of another kind than expected.
    fn confused<T>(&self, from: u32, tag: Tag, [expected, found]: [&'static str; 2]) -> Result<T> {
        Err(CommunicationError::Confused { rank: self.rank, tag, expected, from, found })
    }
}

/// A rank in a group on a stream. It and its peers are named by their positions in the group.
struct Member<'a, B: Backend> {
    endpoint: Endpoint<'a, B>,
    group: &'a Group,
    tag: Tag,
    position: usize,
}

impl<B: Backend> Member<'_, B> {
    fn call(&self, call: CollectiveCall<B>) -> Result<Vec<Array<B>>> {
        let len = self.group.len();
        Ok(match call {
            CollectiveCall::Broadcast { root, array } => {
                vec![self.broadcast(self.group.position_of(root), array)?]
            }
            CollectiveCall::Reduce { root, array, reduction } => {
                let (root, shape) = (self.group.position_of(root), array.shape());
                let part = self.reduce_scatter(cut(array, len), reduction)?;
                if self.position != root {
                    self.send(root, part)?;
                    return Ok(Vec::new());
                }
                vec![join(self.receive_others(part).collect::<Result<_>>()?, &shape)]
            }
            CollectiveCall::AllReduce { array, .. } if len == 1 => vec![array],
            CollectiveCall::AllReduce { array, reduction } => {
                let shape = array.shape();
                let part = self.reduce_scatter(cut(array, len), reduction)?;
                vec![join(self.all_gather(part)?, &shape)]
            }
            CollectiveCall::AllGather { array, dim } => {
                let arrays = self.all_gather(array)?;
                let is_like_first = |other: &Array<B>| other.shape() == arrays[0].shape();
                debug_assert!(arrays.iter().all(is_like_first), "arrays of one shape are joined");
                vec![Array::concat(arrays, dim)]
            }
            CollectiveCall::ReduceScatter { array, dim, sizes, reduction } => {
                vec![self.reduce_scatter(array.split(dim, &sizes), reduction)?]
            }
            CollectiveCall::Exchange { sends, receives, specs } => {
                for (to, array) in sends {
                    self.endpoint.deliver(to, self.tag, Message::Array(array))?;
                }
                let array = |from| self.endpoint.receive(from, self.tag);
                let arrays: Vec<_> = receives.into_iter().map(array).collect::<Result<_>>()?;
                let is_known = specs.is_none_or(|specs| arrays.iter().map(ArraySpec::of).eq(specs));
                debug_assert!(is_known, "specs are known");
                arrays
            }
            CollectiveCall::Barrier => {
                self.barrier()?;
                Vec::new()
            }
        })
    }

    fn send(&self, to: usize, array: Array<B>) -> Result<()> {
        self.endpoint.deliver(self.group.ranks()[to], self.tag, Message::Array(array))
    }

    fn receive(&self, from: usize) -> Result<Array<B>> {
        self.endpoint.receive(self.group.ranks()[from], self.tag)
    }

    /// The arrays of all members in the order of the group: `own`, and those received from the others.
    fn receive_others(&self, own: Array<B>) -> impl Iterator<Item = Result<Array<B>>> {
        let mut own = Some(own);
        let array = move |position| match own.take_if(|_| position == self.position) {
            Some(own) => Ok(own),
            None => self.receive(position),
        };
        (0..self.group.len()).map(array)
    }

    fn broadcast(&self, root: usize, array: Option<Array<B>>) -> Result<Array<B>> {
        let (parent, children) = broadcast_tree(self.position, root, self.group.len());
        let array = match parent {
            None => array.expect("the root of a broadcast gives the array"),
            Some(parent) => self.receive(parent)?,
        };
        children.into_iter().try_for_each(|child| self.send(child, array.clone()))?;
        Ok(array)
    }

    fn all_gather(&self, array: Array<B>) -> Result<Vec<Array<B>>> {
        let (position, len) = (self.position, self.group.len());
        (1..len).try_for_each(|reach| self.send((position + reach) % len, array.clone()))?;
        self.receive_others(array).collect()
    }

    fn reduce_scatter(&self, parts: Vec<Array<B>>, reduction: Reduction) -> Result<Array<B>> {
        assert_eq!(
            parts.len(),
            self.group.len(),
            "there is a part for each rank of {}",
            self.group
        );
        let mut parts: Vec<_> = parts.into_iter().enumerate().collect();
        let (_, own) = parts.remove(self.position);
        // Starts with the next rank, so that not all send to the same rank at once.
        parts.rotate_left(self.position);
        parts.into_iter().try_for_each(|(to, part)| self.send(to, part))?;
        let spec = ArraySpec::of(&own);
        let mut result: Option<Array<B>> = None;
        for (other, next) in self.group.ranks().iter().zip(self.receive_others(own)) {
            let next = next?;
            let other_spec = ArraySpec::of(&next);
            if other_spec != spec {
                let (rank, other) = (self.endpoint.rank, *other);
                return Err(CommunicationError::Mismatch { rank, spec, other, other_spec });
            }
            result = Some(match result {
                Some(result) if result.num_elements() > 0 => reduction.combine(result, next),
                _ => next,
            });
        }
        Ok(result.expect("a rank's group has at least itself"))
    }

    fn barrier(&self) -> Result<()> {
        let len = self.group.len();
        // After the round of reach `r`, a rank has received signals, directly or through other ranks, from the
        // `2 r - 1` ranks before it.
        for reach in (0..usize::BITS).map(|bit| 1 << bit).take_while(|reach| *reach < len) {
            let to = self.group.ranks()[(self.position + reach) % len];
            let from = self.group.ranks()[(self.position + len - reach) % len];
            self.endpoint.deliver(to, self.tag, Message::Signal)?;
            if let Message::Array(_) = self.endpoint.transport.wait(from, self.tag)? {
                return self.endpoint.confused(from, self.tag, ["a barrier", "an array"]);
            }
        }
        Ok(())
    }
}

/// An array cut into `count` flat parts, as evenly as its elements allow.
fn cut<B: Backend>(array: Array<B>, count: usize) -> Vec<Array<B>> {
    let sizes = even_sizes(array.num_elements(), count);
    array.flatten().split(0, &sizes)
}

/// The inverse of [`cut`].
fn join<B: Backend>(mut parts: Vec<Array<B>>, shape: &[usize]) -> Array<B> {
    let num_filled = parts.iter().filter(|part| part.num_elements() > 0).count();
    parts.truncate(num_filled.max(1));
    Array::concat(parts, 0).reshape(shape)
}
