//! Arrays that one rank sends to another.
//!
//! A library pairs sends and receives by their order alone. So the receiver takes arrays in the
//! order in which they were sent, whichever it is asked for, and keeps those that it was not asked
//! for. A letter goes before each array and says what comes, unless its [`Course`] does; before the first, another says
//! what the clique of the two is known by.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use burn::tensor::backend::Backend;

use super::course::Course;
use super::engine::{Call, Clique, Engine, Membership, Watch};
use super::letters::Letter;
use crate::array::Array;
use crate::clock::{Point, Spans};
use crate::communicator::rendezvous::{Lane, Line};
use crate::communicator::{CommunicationError, Tag, Underway};
use crate::lock::lock;

type Result<T> = std::result::Result<T, CommunicationError>;

/// In the clique of two ranks, the sender is the first, the receiver the second.
const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// What has come from one rank, and is still to come.
pub(super) struct Arrivals<B: Backend> {
    state: Mutex<State<B>>,
    changed: Condvar,
    /// Locked by the one thread that takes the next array.
    source: Mutex<Source<B>>,
}

/// Where arrays come from.
struct Source<B: Backend> {
    clique: Option<Box<dyn Clique<B>>>,
    course: Course,
}

struct State<B: Backend> {
    arrays: BTreeMap<Tag, VecDeque<Arrived<B>>>,
    /// Whether a thread takes the next array at this time.
    is_taking: bool,
}

/// An array, with what the device did to bring it: whoever takes it may not be who has asked for it.
struct Arrived<B: Backend> {
    array: Array<B>,
    spans: Spans,
}

impl<B: Backend> Default for Arrivals<B> {
    fn default() -> Self {
        let state = State { arrays: BTreeMap::new(), is_taking: false };
        let source = Source { clique: None, course: Course::default() };
        Self { state: Mutex::new(state), changed: Condvar::new(), source: Mutex::new(source) }
    }
}

impl<B: Backend> Arrivals<B> {
    /// Puts in what comes without a library: a rank's message to itself.
    pub(super) fn put(&self, tag: Tag, array: Array<B>) {
        let arrived = Arrived { array, spans: Spans::default() };
        lock(&self.state).arrays.entry(tag.of_sender()).or_default().push_back(arrived);
        self.changed.notify_all();
    }

    /// The next array with a tag, wanted in a step, or in none that repeats. Waits for it.
    pub(super) fn take(
        &self,
        line: &Arc<Line>,
        engine: &dyn Engine<B>,
        device: &B::Device,
        from: u32,
        (tag, step): (Tag, u64),
    ) -> Result<Array<B>> {
        let key = tag.of_sender();
        let mut state = lock(&self.state);
        loop {
            if let Some(arrived) = state.arrays.get_mut(&key).and_then(VecDeque::pop_front) {
                if let Some(noted) = Spans::current() {
                    noted.extend(&arrived.spans);
                }
                return Ok(arrived.array);
            }
            if state.is_taking {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_taking = true;
            drop(state);
            let spans = Spans::default();
            let taken =
                spans.note(|| self.take_next(line, engine, device, from, (Lane::of(tag), step)));
            state = lock(&self.state);
            state.is_taking = false;
            self.changed.notify_all();
            match taken {
                Ok((tag, array)) => {
                    state.arrays.entry(tag).or_default().push_back(Arrived { array, spans });
                }
                Err(CommunicationError::Gone { rank, waiting, .. }) => {
                    return Err(CommunicationError::Gone { rank, waiting, tag });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// What the rank has sent next, whatever it is.
    fn take_next(
        &self,
        line: &Arc<Line>,
        engine: &dyn Engine<B>,
        device: &B::Device,
        from: u32,
        (lane, step): (Lane, u64),
    ) -> Result<(Tag, Array<B>)> {
        let mut source = lock(&self.source);
        let Source { clique, course } = &mut *source;
        let clique = match clique {
            Some(clique) => clique,
            none => {
                let id = line.receive(from, lane)?;
                let ranks = vec![from, line.rank()];
                let membership = Membership { position: RECEIVER, ranks, stream: None };
                none.insert(engine.join(&id, membership, Arc::clone(line) as Arc<dyn Watch>)?)
            }
        };
        let (tag, form) = if let Some(known) = course.next(step) {
            known
        } else {
            let letter = Letter::from_bytes(&line.receive(from, lane)?);
            let (tag, form) = (letter.tag(), letter.form());
            course.learn(tag, &form);
            (tag, form)
        };
        if form.num_elements() == 0 {
            return Ok((tag, Array::zeros_of(&form.shape, form.element, device)));
        }
        let mut left = clique.call(vec![Call::Receive { from: SENDER, form }])?.wait()?;
        let array = left.pop().flatten().expect("a receive leaves an array");
        Ok((tag, array))
    }
}

/// What one rank sends to another.
pub(super) struct Sender<B: Backend> {
    clique: Option<Box<dyn Clique<B>>>,
    /// Holds the memory of arrays that may not have gone yet.
    underway: VecDeque<Box<dyn Underway>>,
}

impl<B: Backend> Default for Sender<B> {
    fn default() -> Self {
        Self { clique: None, underway: VecDeque::new() }
    }
}

impl<B: Backend> Sender<B> {
    /// Starts to send an array, after a letter if the receiver does not know what comes.
    pub(super) fn send(
        &mut self,
        line: &Arc<Line>,
        engine: &dyn Engine<B>,
        (to, lane): (u32, Lane),
        letter: Option<Letter>,
        (array, after): (Array<B>, Option<Point>),
    ) -> Result<()> {
        let clique = match &mut self.clique {
            Some(clique) => clique,
            none => {
                let id = engine.new_clique()?;
                line.send(to, lane, id.clone())?;
                let ranks = vec![line.rank(), to];
                let membership = Membership { position: SENDER, ranks, stream: None };
                none.insert(engine.join(&id, membership, Arc::clone(line) as Arc<dyn Watch>)?)
            }
        };
        if let Some(letter) = letter {
            line.send(to, lane, letter.to_bytes())?;
        }
        while self.underway.pop_front_if(|first| first.is_over()).is_some() {}
        if !array.is_empty() {
            let sent = clique.call(vec![Call::Send { to: RECEIVER, array, after }])?;
            self.underway.extend(sent.into_underway());
        }
        Ok(())
    }
}
