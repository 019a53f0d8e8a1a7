//! Collectives as calls of NCCL.

use std::sync::atomic::Ordering;

use burn::tensor::backend::Backend;
use executor_kernels::array::Array;
use executor_kernels::lock::lock;
use traces::timeline::Stream;

use super::engine::{LibraryCall, LibraryFunction};
use super::{Checks, NcclCommunicator};
use crate::collective::{broadcast_tree, even_sizes};
use crate::control::ControlMessage;
use crate::error::Result;
use crate::rendezvous::Channel;
use crate::{
    ArraySpec, CollectiveCall, CommunicationError, Communicator, Group, InFlight, Tag, Traffic,
};

impl<B: Backend> Communicator<B> for NcclCommunicator<B> {
    fn rank(&self) -> u32 {
        self.context.connection.rank()
    }

    fn num_ranks(&self) -> u32 {
        self.context.connection.num_ranks()
    }

    fn is_asynchronous(&self) -> bool {
        self.context.engine.is_asynchronous()
    }

    fn begin_step(&self) {
        self.num_steps.fetch_add(1, Ordering::Relaxed);
    }

    fn send(&self, to: u32, tag: Tag, array: Array<B>) -> Result<()> {
        self.context.connection.check()?;
        if to == self.context.connection.rank() {
            self.incoming(to, tag).put(tag, array);
        } else {
            self.sent.add(tag.stream(), array.num_bytes());
            self.start_sending(to, tag, array)?;
        }
        Ok(())
    }

    fn receive(&self, from: u32, tag: Tag) -> Result<Array<B>> {
        self.context.connection.check()?;
        self.incoming(from, tag).take(tag, self.step(Channel::of(tag)))
    }

    fn start(
        &self,
        group: &Group,
        stream: Stream,
        call: CollectiveCall<B>,
    ) -> Result<InFlight<Vec<Array<B>>>> {
        let position = group.position_of(self.context.connection.rank());
        self.context.connection.check()?;
        NcclMember { own: self, group, stream, position }.start(call)
    }

    fn traffic(&self) -> Traffic {
        self.sent.read()
    }

    fn stop(&self, cause: &str) {
        self.context.connection.stop(cause);
    }
}

/// A rank's membership of a group, on a stream.
struct NcclMember<'a, B: Backend> {
    own: &'a NcclCommunicator<B>,
    group: &'a Group,
    stream: Stream,
    position: usize,
}

impl<B: Backend> NcclMember<'_, B> {
    fn start(&self, call: CollectiveCall<B>) -> Result<InFlight<Vec<Array<B>>>> {
        let (position, len) = (self.position, self.group.len());
        match call {
            CollectiveCall::Broadcast { root, array } => {
                let root_position = self.group.position_of(root);
                let is_root = position == root_position;
                // Arrays of ranks other than the root are ignored.
                let array = array.filter(|_| is_root);
                let spec = if is_root {
                    let array = array.as_ref().expect("the root of a broadcast gives the array");
                    let spec = ArraySpec::of(array);
                    for other in self.group.others(root) {
                        self.tell(other, &spec)?;
                    }
                    spec
                } else {
                    self.hear(root)?
                };
                let (_, children) = broadcast_tree(position, root_position, len);
                self.count(children.len() as u64 * spec.num_bytes());
                let function = LibraryFunction::Broadcast { root: root_position };
                self.call(LibraryCall::new(function, array, Some(spec)))
            }
            CollectiveCall::Reduce { root, array, reduction } => {
                let root = self.group.position_of(root);
                let spec = ArraySpec::of(&array);
                self.check(std::slice::from_ref(&spec))?;
                let result = (position == root).then(|| spec.clone());
                // The volume of a reduce-scatter, and of the parts that go to the root.
                let kept = if position == root { self.part_bytes(&spec) } else { 0 };
                self.count(spec.num_bytes() - kept);
                let function = LibraryFunction::Reduce { root, reduction };
                self.call(LibraryCall::new(function, Some(array), result))
            }
            CollectiveCall::AllReduce { array, reduction } => {
                let spec = ArraySpec::of(&array);
                self.check(std::slice::from_ref(&spec))?;
                // All parts but the rank's own are sent to be reduced, then its own reduced part to all other ranks.
                let part = self.part_bytes(&spec);
                self.count(spec.num_bytes() - part + (len as u64 - 1) * part);
                self.call(LibraryCall::new(
                    LibraryFunction::AllReduce(reduction),
                    Some(array),
                    Some(spec),
                ))
            }
            CollectiveCall::AllGather { array, dim } => {
                let spec = ArraySpec::of(&array);
                self.check(std::slice::from_ref(&spec))?;
                self.count((len as u64 - 1) * spec.num_bytes());
                // Each index of the dimensions before `dim` is a contiguous piece of the result: nothing is copied.
                let pieces = spec.shape[..dim].iter().product();
                let whole = spec.resized(dim, spec.shape[dim] * len);
                let call = LibraryCall::new(LibraryFunction::AllGather, Some(array), Some(whole));
                self.call(LibraryCall { pieces, ..call })
            }
            CollectiveCall::ReduceScatter { array, dim, sizes, reduction } => {
                assert_eq!(sizes.len(), len, "there is a part for each rank of {}", self.group);
                let whole = ArraySpec::of(&array);
                let parts: Vec<_> = sizes.iter().map(|size| whole.resized(dim, *size)).collect();
                self.check(&parts)?;
                let part = parts[position].clone();
                self.count(whole.num_bytes() - part.num_bytes());
                if parts.iter().all(|other| *other == part) {
                    let pieces = whole.shape[..dim].iter().product();
                    let function = LibraryFunction::ReduceScatter(reduction);
                    let call = LibraryCall::new(function, Some(array), Some(part));
                    return self.call(LibraryCall { pieces, ..call });
                }
                // The library scatters equal parts only.
                let reduce = |(root, array)| {
                    let result = (root == position).then(|| part.clone());
                    LibraryCall::new(
                        LibraryFunction::Reduce { root, reduction },
                        Some(array),
                        result,
                    )
                };
                let arrays = array.split(dim, &sizes).into_iter().enumerate();
                let arrays = arrays.filter(|(_, array)| !array.is_empty());
                let results = self.call_together(arrays.map(reduce).collect())?;
                Ok(results.map(|some| {
                    if some.is_empty() { vec![self.own.context.empty(&part)] } else { some }
                }))
            }
            CollectiveCall::Exchange { .. } if len == 1 => Ok(InFlight::done(Vec::new())),
            CollectiveCall::Exchange { sends, receives, specs } => {
                self.exchange(sends, &receives, specs)
            }
            CollectiveCall::Barrier => {
                let channel = Channel::Calls(self.stream);
                self.own.context.connection.all_gather(self.group.ranks(), channel, &[])?;
                Ok(InFlight::done(Vec::new()))
            }
        }
    }

    fn exchange(
        &self,
        sends: Vec<(u32, Array<B>)>,
        receives: &[u32],
        specs: Option<Vec<ArraySpec>>,
    ) -> Result<InFlight<Vec<Array<B>>>> {
        let specs = if let Some(specs) = specs {
            specs
        } else {
            for (to, array) in &sends {
                self.tell(*to, &ArraySpec::of(array))?;
            }
            receives.iter().map(|from| self.hear(*from)).collect::<Result<_>>()?
        };
        self.count(sends.iter().map(|(_, array)| array.num_bytes()).sum());
        let mut calls = Vec::new();
        for (to, array) in sends {
            if !array.is_empty() {
                let function = LibraryFunction::Send { to: self.group.position_of(to) };
                calls.push(LibraryCall::new(function, Some(array), None));
            }
        }
        for (from, spec) in receives.iter().zip(&specs) {
            if spec.num_elements() > 0 {
                let function = LibraryFunction::Receive { from: self.group.position_of(*from) };
                calls.push(LibraryCall::new(function, None, Some(spec.clone())));
            }
        }
        // The communicator is made by all its members, also by those that send and receive nothing.
        let filled = self.call_together(calls)?;
        Ok(filled.map(|filled| {
            let mut filled = filled.into_iter();
            let array = |spec: &ArraySpec| match spec.num_elements() {
                0 => self.own.context.empty(spec),
                _ => filled.next().expect("each receive leaves an array"),
            };
            specs.iter().map(array).collect()
        }))
    }

    /// Bytes of the member's part of an array that is cut as evenly as possible.
    fn part_bytes(&self, spec: &ArraySpec) -> u64 {
        let sizes = even_sizes(spec.num_elements(), self.group.len());
        (sizes[self.position] * spec.element.size()) as u64
    }

    fn count(&self, bytes: u64) {
        self.own.sent.add(self.stream, bytes);
    }

    fn tell(&self, to: u32, spec: &ArraySpec) -> Result<()> {
        let message = ControlMessage::new(None, std::slice::from_ref(spec)).to_bytes();
        self.own.context.connection.send(to, Channel::Calls(self.stream), message)
    }

    fn hear(&self, from: u32) -> Result<ArraySpec> {
        let message = self.own.context.connection.receive(from, Channel::Calls(self.stream))?;
        Ok(ControlMessage::from_bytes(&message).array())
    }

    /// Fails if the arrays of the other members differ.
    fn check(&self, specs: &[ArraySpec]) -> Result<()> {
        if self.own.checks == Checks::None || self.group.len() == 1 {
            return Ok(());
        }
        let message = ControlMessage::new(None, specs).to_bytes();
        let channel = Channel::Calls(self.stream);
        let messages =
            self.own.context.connection.all_gather(self.group.ranks(), channel, &message)?;
        for (message, other) in messages.iter().zip(self.group.ranks()) {
            let others = ControlMessage::from_bytes(message).arrays();
            for (spec, other_spec) in specs.iter().zip(others) {
                if *spec != other_spec {
                    let (rank, spec, other) = (self.own.rank(), spec.clone(), *other);
                    return Err(CommunicationError::Mismatch { rank, spec, other, other_spec });
                }
            }
        }
        Ok(())
    }

    /// Starts a call, unless there is nothing to move.
    fn call(&self, call: LibraryCall<B>) -> Result<InFlight<Vec<Array<B>>>> {
        let LibraryCall { array, result, .. } = &call;
        let is_alone = self.group.len() == 1;
        let is_empty = match array {
            Some(array) => array.is_empty(),
            None => result.as_ref().is_none_or(|spec| spec.num_elements() == 0),
        };
        if !is_alone && !is_empty {
            return self.call_together(vec![call]);
        }
        let own = |spec: &ArraySpec| match array {
            Some(array) if is_alone => array.clone().reshape(&spec.shape),
            _ => self.own.context.empty(spec),
        };
        Ok(InFlight::done(result.iter().map(own).collect()))
    }

    fn call_together(&self, calls: Vec<LibraryCall<B>>) -> Result<InFlight<Vec<Array<B>>>> {
        let communicator = self.own.communicator(self.group, self.stream)?;
        lock(&communicator).start(calls)
    }
}
