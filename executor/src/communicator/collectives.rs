//! Collectives, written once above messages.
//!
//! A rank sends all that it has before it waits, and sending does not wait, so there is no order of
//! ranks in which they could wait for each other.

use burn::tensor::backend::Backend;
use traces::timeline::Stream;

use super::error::CommunicationError;
use super::group::Group;
use super::tag::Tag;
use super::traffic::Traffic;
use super::transport::{Message, Transport};
use super::{Communicator, Reduction};
use crate::array::Array;

type Result<T> = std::result::Result<T, CommunicationError>;

/// A transport, with the collectives written above it: a [`Communicator`].
#[derive(Clone, Debug)]
pub struct Collectives<T>(pub T);

impl<B: Backend, T: Transport<B>> Communicator<B> for Collectives<T> {
    fn rank(&self) -> u32 {
        self.0.rank()
    }

    fn num_ranks(&self) -> u32 {
        self.0.num_ranks()
    }

    fn send(&self, to: u32, tag: Tag, array: Array<B>) -> Result<()> {
        self.0.deliver(to, tag, Message::Array(array))
    }

    fn receive(&self, from: u32, tag: Tag) -> Result<Array<B>> {
        receive(&self.0, from, tag)
    }

    fn broadcast(
        &self,
        group: &Group,
        stream: Stream,
        root: u32,
        array: Option<Array<B>>,
    ) -> Result<Array<B>> {
        let member = Member::new(&self.0, group, stream);
        let root = member.position(root);
        // Places are counted from the root. In the round of reach `r` the places below `r`, which
        // have the array, send it to those `r` further on; so a place receives in the round of its
        // highest bit.
        let place = (member.position + member.len() - root) % member.len();
        let at = |place: usize| (place + root) % member.len();
        let array = match place.checked_ilog2() {
            None => array.expect("the root of a broadcast gives the array"),
            Some(bit) => member.receive(at(place - (1 << bit)))?,
        };
        let first = place.checked_ilog2().map_or(0, |bit| bit + 1);
        for reach in (first..usize::BITS)
            .map(|bit| 1 << bit)
            .take_while(|reach| place + reach < member.len())
        {
            member.send(at(place + reach), array.clone())?;
        }
        Ok(array)
    }

    fn reduce(
        &self,
        group: &Group,
        stream: Stream,
        root: u32,
        array: Array<B>,
        reduction: Reduction,
    ) -> Result<Option<Array<B>>> {
        let member = Member::new(&self.0, group, stream);
        let root = member.position(root);
        let shape = array.shape();
        let part = member.reduce_scatter(cut(array, member.len()), reduction)?;
        if member.position != root {
            return member.send(root, part).map(|()| None);
        }
        let parts = member.receive_others(part)?;
        Ok(Some(join(parts, &shape)))
    }

    fn all_reduce(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
        reduction: Reduction,
    ) -> Result<Array<B>> {
        let member = Member::new(&self.0, group, stream);
        if member.len() == 1 {
            return Ok(array);
        }
        let shape = array.shape();
        let part = member.reduce_scatter(cut(array, member.len()), reduction)?;
        let parts = member.all_gather(part)?;
        Ok(join(parts, &shape))
    }

    fn gather(
        &self,
        group: &Group,
        stream: Stream,
        root: u32,
        array: Array<B>,
    ) -> Result<Option<Vec<Array<B>>>> {
        let member = Member::new(&self.0, group, stream);
        let root = member.position(root);
        if member.position != root {
            return member.send(root, array).map(|()| None);
        }
        member.receive_others(array).map(Some)
    }

    fn all_gather(&self, group: &Group, stream: Stream, array: Array<B>) -> Result<Vec<Array<B>>> {
        Member::new(&self.0, group, stream).all_gather(array)
    }

    fn scatter(
        &self,
        group: &Group,
        stream: Stream,
        root: u32,
        parts: Option<Vec<Array<B>>>,
    ) -> Result<Array<B>> {
        let member = Member::new(&self.0, group, stream);
        let root = member.position(root);
        if member.position != root {
            return member.receive(root);
        }
        member.send_parts(parts.expect("the root of a scatter gives the parts"))
    }

    fn reduce_scatter(
        &self,
        group: &Group,
        stream: Stream,
        parts: Vec<Array<B>>,
        reduction: Reduction,
    ) -> Result<Array<B>> {
        Member::new(&self.0, group, stream).reduce_scatter(parts, reduction)
    }

    fn all_to_all(
        &self,
        group: &Group,
        stream: Stream,
        parts: Vec<Array<B>>,
    ) -> Result<Vec<Array<B>>> {
        let member = Member::new(&self.0, group, stream);
        let own = member.send_parts(parts)?;
        member.receive_others(own)
    }

    fn barrier(&self, group: &Group, stream: Stream) -> Result<()> {
        let member = Member::new(&self.0, group, stream);
        // After the round of reach `r` a rank has heard, directly or not, of the `2 r - 1` before
        // it.
        for reach in (0..usize::BITS).map(|bit| 1 << bit).take_while(|reach| *reach < member.len())
        {
            let to = group.ranks()[(member.position + reach) % member.len()];
            let from = group.ranks()[(member.position + member.len() - reach) % member.len()];
            self.0.deliver(to, member.tag, Message::Signal)?;
            if let Message::Array(_) = self.0.wait(from, member.tag)? {
                return Err(CommunicationError::Confused {
                    rank: self.0.rank(),
                    tag: member.tag,
                    expected: "a barrier",
                    from,
                    found: "an array",
                });
            }
        }
        Ok(())
    }

    fn traffic(&self) -> Traffic {
        self.0.traffic()
    }

    fn stop(&self, cause: &str) {
        self.0.stop(cause);
    }
}

fn receive<B: Backend>(transport: &dyn Transport<B>, from: u32, tag: Tag) -> Result<Array<B>> {
    match transport.wait(from, tag)? {
        Message::Array(array) => Ok(array),
        Message::Signal => Err(CommunicationError::Confused {
            rank: transport.rank(),
            tag,
            expected: "an array",
            from,
            found: "that it is at a barrier",
        }),
    }
}

/// A rank in a group on a stream. It and its peers are named by their positions in the group.
struct Member<'a, B: Backend> {
    transport: &'a dyn Transport<B>,
    group: &'a Group,
    tag: Tag,
    position: usize,
}

impl<'a, B: Backend> Member<'a, B> {
    fn new(transport: &'a dyn Transport<B>, group: &'a Group, stream: Stream) -> Self {
        let rank = transport.rank();
        let Some(position) = group.position(rank) else {
            panic!("a rank calls collectives of its own groups: {rank} is not in {group}")
        };
        Self { transport, group, tag: Tag::Stream(stream), position }
    }

    fn len(&self) -> usize {
        self.group.len()
    }

    fn position(&self, root: u32) -> usize {
        let Some(position) = self.group.position(root) else {
            panic!("the root of a collective belongs to its group: {root} is not in {}", self.group)
        };
        position
    }

    /// The other positions, from the next one on, so that not all send to the same rank at once.
    fn others(&self) -> impl Iterator<Item = usize> + use<B> {
        let (position, len) = (self.position, self.len());
        (1..len).map(move |distance| (position + distance) % len)
    }

    fn send(&self, to: usize, array: Array<B>) -> Result<()> {
        self.transport.deliver(self.group.ranks()[to], self.tag, Message::Array(array))
    }

    fn receive(&self, from: usize) -> Result<Array<B>> {
        receive(self.transport, self.group.ranks()[from], self.tag)
    }

    /// Sends each other member its part; what is left is the rank's own.
    fn send_parts(&self, parts: Vec<Array<B>>) -> Result<Array<B>> {
        assert_eq!(parts.len(), self.len(), "there is a part for each rank of {}", self.group);
        let mut parts: Vec<_> = parts.into_iter().map(Some).collect();
        for other in self.others() {
            let part = parts[other].take().expect("each position comes once");
            self.send(other, part)?;
        }
        Ok(parts[self.position].take().expect("a rank is none of the others"))
    }

    /// An array of each other member, and `own` in its place among them.
    fn receive_others(&self, own: Array<B>) -> Result<Vec<Array<B>>> {
        let mut own = Some(own);
        let array = |position| match own.take_if(|_| position == self.position) {
            Some(own) => Ok(own),
            None => self.receive(position),
        };
        (0..self.len()).map(array).collect()
    }

    fn all_gather(&self, array: Array<B>) -> Result<Vec<Array<B>>> {
        for other in self.others() {
            self.send(other, array.clone())?;
        }
        self.receive_others(array)
    }

    fn reduce_scatter(&self, parts: Vec<Array<B>>, reduction: Reduction) -> Result<Array<B>> {
        let mut own = Some(self.send_parts(parts)?);
        let (shape, element) =
            own.as_ref().map(|own| (own.shape(), own.dtype())).expect("it was just put there");
        let mut result: Option<Array<B>> = None;
        for position in 0..self.len() {
            let next = match own.take_if(|_| position == self.position) {
                Some(own) => own,
                None => self.receive(position)?,
            };
            if next.shape() != shape || next.dtype() != element {
                return Err(CommunicationError::Mismatch {
                    rank: self.transport.rank(),
                    element,
                    shape,
                    other: self.group.ranks()[position],
                    other_element: next.dtype(),
                    other_shape: next.shape(),
                });
            }
            result = Some(match result {
                Some(result) if result.num_elements() > 0 => reduction.combine(result, next),
                _ => next,
            });
        }
        Ok(result.expect("a rank's group has at least itself"))
    }
}

/// An array cut into `count` flat parts, as evenly as its elements allow: the first ones are
/// longer.
fn cut<B: Backend>(array: Array<B>, count: usize) -> Vec<Array<B>> {
    let num_elements = array.num_elements();
    let size = |part: usize| num_elements / count + usize::from(part < num_elements % count);
    let sizes: Vec<usize> = (0..count).map(size).collect();
    array.flatten().split(0, &sizes)
}

/// The inverse of [`cut`].
fn join<B: Backend>(mut parts: Vec<Array<B>>, shape: &[usize]) -> Array<B> {
    let num_filled = parts.iter().filter(|part| part.num_elements() > 0).count();
    parts.truncate(num_filled.max(1));
    Array::concat(parts, 0).reshape(shape)
}
