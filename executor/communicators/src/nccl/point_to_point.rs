//! Arrays that one rank sends to another.
//!
//! A library pairs sends and receives by their order alone. So the receiver takes arrays in the order in which they
//! were sent. While it looks for the array that was asked for, it stores the others until they are asked for. A control
//! message announces each array, unless a [`RecordedStep`] does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use burn::tensor::backend::Backend;
use executor_kernels::array::Array;
use executor_kernels::clock::{Point, Spans};
use executor_kernels::lock::lock;

use super::context::Context;
use super::engine::{LibraryCall, LibraryCommunicator, LibraryFunction};
use super::recorded_step::RecordedStep;
use crate::control::ControlMessage;
use crate::error::Result;
use crate::rendezvous::Channel;
use crate::{ArraySpec, CommunicationError, DeviceWork, InFlight, Queue, Tag};

/// One direction between two ranks on a channel: the first rank sends to the second. It has its own communicator of the
/// library, made at first use.
struct Pair<B: Backend> {
    context: Arc<Context<B>>,
    ranks: [u32; 2],
    channel: Channel,
    communicator: Option<Box<dyn LibraryCommunicator<B>>>,
}

impl<B: Backend> Pair<B> {
    fn new(context: &Arc<Context<B>>, ranks: [u32; 2], channel: Channel) -> Self {
        Self { context: Arc::clone(context), ranks, channel, communicator: None }
    }

    fn start(&mut self, call: LibraryCall<B>) -> Result<InFlight<Vec<Array<B>>>> {
        let communicator = match &mut self.communicator {
            Some(communicator) => communicator,
            none => none.insert(self.context.join(&self.ranks, self.channel, None)?),
        };
        communicator.start(vec![call])
    }
}

/// Arrays that this rank sends to another on a channel.
pub(super) struct Outgoing<B: Backend> {
    /// Sending does not wait, so arrays to send wait here.
    queue: Queue,
    sender: Arc<Mutex<Sender<B>>>,
    step: RecordedStep,
}

struct Sender<B: Backend> {
    pair: Pair<B>,
    /// Holds the memory of arrays that may not have been sent yet.
    in_flight: VecDeque<Box<dyn DeviceWork>>,
}

impl<B: Backend> Outgoing<B> {
    pub(super) fn new(context: &Arc<Context<B>>, to: u32, channel: Channel) -> Self {
        let own = context.connection.rank();
        let pair = Pair::new(context, [own, to], channel);
        Self {
            queue: Queue::new(format!("from rank {own} to {to}")),
            sender: Arc::new(Mutex::new(Sender { pair, in_flight: VecDeque::new() })),
            step: RecordedStep::default(),
        }
    }

    /// Starts to send an array once the device has passed `after`. `step` is zero on channels whose arrays are not
    /// repeated in each step.
    pub(super) fn start(&mut self, tag: Tag, step: u64, array: Array<B>, after: Option<Point>) {
        let spec = ArraySpec::of(&array);
        let message = if let Some(known) = self.step.next(step) {
            assert_eq!(known, (tag.of_sender(), spec), "steps send the same");
            None
        } else {
            self.step.record(tag, &spec);
            Some(ControlMessage::new(Some(tag), &[spec]))
        };
        let (sender, noted) = (Arc::clone(&self.sender), Spans::current());
        // Dropped without a wait: the receiver waits for the array, and is told if it does not come.
        drop(self.queue.start(move || {
            let mut sender = lock(&sender);
            let send = || sender.send(message, array, after);
            let sent = match noted {
                Some(spans) => spans.note(send),
                None => send(),
            };
            if let Err(error) = &sent {
                sender.pair.context.connection.stop(&error.to_string());
            }
            sent
        }));
    }
}

impl<B: Backend> Sender<B> {
    fn send(
        &mut self,
        message: Option<ControlMessage>,
        array: Array<B>,
        after: Option<Point>,
    ) -> Result<()> {
        let Pair { context, ranks: [_, to], channel, .. } = &self.pair;
        if let Some(message) = message {
            context.connection.send(*to, *channel, message.to_bytes())?;
        }
        while self.in_flight.pop_front_if(|first| first.is_over()).is_some() {}
        if !array.is_empty() {
            let call = LibraryCall::new(LibraryFunction::Send { to: 1 }, Some(array), None);
            let sent = self.pair.start(LibraryCall { after, ..call })?;
            self.in_flight.extend(sent.into_work());
        }
        Ok(())
    }
}

/// Arrays of one rank on a channel, received or still to come.
pub(super) struct Incoming<B: Backend> {
    state: Mutex<State<B>>,
    changed: Condvar,
    /// Locked by the thread that takes the next array.
    source: Mutex<Source<B>>,
}

/// The arrays' sender for the library.
struct Source<B: Backend> {
    pair: Pair<B>,
    step: RecordedStep,
}

struct State<B: Backend> {
    arrays: BTreeMap<Tag, VecDeque<Received<B>>>,
    /// True while a thread takes the next array.
    is_taking: bool,
}

/// An array, with the device's work that received it: the thread that receives an array may not be the thread that
/// asked for it.
struct Received<B: Backend> {
    array: Array<B>,
    spans: Spans,
}

impl<B: Backend> Incoming<B> {
    pub(super) fn new(context: &Arc<Context<B>>, from: u32, channel: Channel) -> Self {
        let pair = Pair::new(context, [from, context.connection.rank()], channel);
        Self {
            state: Mutex::new(State { arrays: BTreeMap::new(), is_taking: false }),
            changed: Condvar::new(),
            source: Mutex::new(Source { pair, step: RecordedStep::default() }),
        }
    }

    /// Adds an array that comes without the library: a rank's message to itself.
    pub(super) fn put(&self, tag: Tag, array: Array<B>) {
        let received = Received { array, spans: Spans::default() };
        lock(&self.state).arrays.entry(tag.of_sender()).or_default().push_back(received);
        self.changed.notify_all();
    }

    /// The next array with a tag in a step. `step` is zero on channels whose arrays are not repeated in each step.
    /// Waits for the array.
    pub(super) fn take(&self, tag: Tag, step: u64) -> Result<Array<B>> {
        let key = tag.of_sender();
        let mut state = lock(&self.state);
        loop {
            if let Some(received) = state.arrays.get_mut(&key).and_then(VecDeque::pop_front) {
                if let Some(noted) = Spans::current() {
                    noted.extend(&received.spans);
                }
                return Ok(received.array);
            }
            if state.is_taking {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_taking = true;
            drop(state);
            let spans = Spans::default();
            let taken = spans.note(|| lock(&self.source).take_next(step));
            state = lock(&self.state);
            state.is_taking = false;
            self.changed.notify_all();
            let (of, array) = taken.map_err(|error| match error {
                CommunicationError::Gone { rank, waiting, .. } => {
                    CommunicationError::Gone { rank, waiting, tag }
                }
                error => error,
            })?;
            state.arrays.entry(of).or_default().push_back(Received { array, spans });
        }
    }
}

impl<B: Backend> Source<B> {
    /// The next array that the rank has sent, with any tag.
    fn take_next(&mut self, step: u64) -> Result<(Tag, Array<B>)> {
        let (tag, spec) = if let Some(known) = self.step.next(step) {
            known
        } else {
            let Pair { context, ranks: [from, _], channel, .. } = &self.pair;
            let message = context.connection.receive(*from, *channel)?;
            let (tag, spec) = ControlMessage::from_bytes(&message).tagged();
            self.step.record(tag, &spec);
            (tag, spec)
        };
        if spec.num_elements() == 0 {
            return Ok((tag, self.pair.context.empty(&spec)));
        }
        let call = LibraryCall::new(LibraryFunction::Receive { from: 0 }, None, Some(spec));
        let array = self.pair.start(call)?.wait()?.pop().expect("a receive leaves an array");
        Ok((tag, array))
    }
}
