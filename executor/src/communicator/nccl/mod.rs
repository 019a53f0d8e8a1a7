//! Collectives by NCCL, on ranks that are processes with a GPU each.
//!
//! Each group has a clique of NCCL's for each stream on which it communicates, and each two ranks
//! one for each direction in which they send arrays, and one more for those that each step sends alike, all made when
//! they are first used. What NCCL does not carry goes over the [`Line`] of the rendezvous: what cliques are known by,
//! and shapes where the receiver does not know them.
//!
//! What is here orders the calls, for any [`Engine`]; `cuda`, with the feature of that name, is the
//! one that makes them. Results are those of [`Communicator`], but for the order in which NCCL
//! sums, which is its own: the same for equal calls on the same GPUs, not the same for another cut.
//! Traffic is counted as the trait says; NCCL may choose another way.

mod arrivals;
#[cfg(feature = "cuda")]
mod clique;
mod collectives;
mod course;
#[cfg(feature = "cuda")]
pub mod cuda;
mod engine;
#[cfg(feature = "cuda")]
mod guard;
mod letters;
#[cfg(feature = "cuda")]
mod library;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use burn::tensor::backend::Backend;
use traces::timeline::Stream;

use super::error::{Cause, CommunicationError, RankFailure, attempt, conclude};
use super::rendezvous::{Ending, Lane, Line};
use super::traffic::Counters;
use super::{Communicator, Group, Queue, Tag};
use crate::array::Array;
use crate::clock::Spans;
use crate::lock::lock;
use arrivals::{Arrivals, Sender};
use course::Course;
use letters::Letter;

pub use engine::{Call, Clique, Engine, Form, Membership, Watch};

/// One rank among processes, whose arrays an [`Engine`] moves. When it and what it has started is
/// done, the rank has ended for the others.
pub struct NcclCommunicator<B: Backend> {
    line: Arc<Line>,
    engine: Arc<dyn Engine<B>>,
    device: B::Device,
    checks: Checks,
    cliques: Mutex<Cliques<B>>,
    /// By receiver. Sending does not wait, so what is sent waits here.
    outgoing: Mutex<BTreeMap<(u32, Lane), Outgoing<B>>>,
    /// By sender.
    incoming: Mutex<Incoming<B>>,
    /// How many steps have begun.
    num_steps: AtomicU64,
    sent: Counters,
}

type Incoming<B> = BTreeMap<(u32, Lane), Arc<Arrivals<B>>>;
type SharedClique<B> = Arc<Mutex<Box<dyn Clique<B>>>>;
type Cliques<B> = BTreeMap<(Group, Stream), SharedClique<B>>;

/// What is compared before arrays are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// Nothing: the ranks must give equal shapes, or the library reads beyond them or hangs.
    None,
    /// That they give equal shapes, which costs a letter from each rank to each other.
    Reductions,
}

/// What is on its way to one rank.
struct Outgoing<B: Backend> {
    queue: Queue,
    sender: Arc<Mutex<Sender<B>>>,
    course: Course,
}

/// What `program` returns on this process's rank, whose line is given, with what `engine` opens.
///
/// All processes of the job call this once, and return together when all programs have ended.
///
/// # Errors
///
/// The failure of this rank, or that of the rank that stopped the run first, as this one was told.
pub fn run<B: Backend, T, E: fmt::Display>(
    (line, ending): (Line, Ending),
    engine: impl FnOnce(&Line) -> Result<(Arc<dyn Engine<B>>, B::Device), E>,
    checks: Checks,
    program: impl FnOnce(Arc<dyn Communicator<B>>, B::Device) -> Result<T, E>,
) -> Result<T, RankFailure<E>> {
    let own = line.rank();
    let line = Arc::new(line);
    let mut opened = None;
    let outcome = attempt(|| {
        let (engine, device) = engine(&line)?;
        let engine = Arc::clone(opened.insert(engine));
        let communicator = NcclCommunicator::new(Arc::clone(&line), engine, device.clone(), checks);
        program(Arc::new(communicator), device)
    });
    // What was sent last may still be on its way to ranks that go on.
    let outcome = outcome.and_then(|value| match opened.as_ref().map(|engine| engine.finish()) {
        Some(Err(error)) => Err(Cause::Stopped(error.to_string())),
        Some(Ok(())) | None => Ok(value),
    });
    if let Err(cause) = &outcome {
        line.stop(&cause.to_string());
    }
    // Jobs that are left in queues hold the line too: the rank has ended with the last of them.
    drop(line);
    let ended = ending.wait();
    if let Some(engine) = opened {
        engine.close();
    }
    conclude(own, ended, outcome)
}

/// Fails if two ranks, which all call this, have the same device; NCCL would refuse it in fewer
/// words.
///
/// # Errors
///
/// [`CommunicationError::SharedDevice`].
pub fn check_devices(line: &Line, device: &[u8]) -> Result<(), CommunicationError> {
    let ranks: Vec<u32> = (0..line.num_ranks()).collect();
    let devices = line.all_gather(&ranks, Lane::Calls(Stream::Host), device)?;
    let mut seen: BTreeMap<&[u8], u32> = BTreeMap::new();
    for (device, rank) in devices.iter().zip(ranks) {
        if let Some(first) = seen.insert(device, rank) {
            return Err(CommunicationError::SharedDevice { first, second: rank });
        }
    }
    Ok(())
}

/// Fails if ranks, which all call this, have libraries of different versions, which need not understand each other.
///
/// # Errors
///
/// [`CommunicationError::Versions`].
pub fn check_versions(line: &Line, version: u32) -> Result<(), CommunicationError> {
    let ranks: Vec<u32> = (0..line.num_ranks()).collect();
    let lane = Lane::Calls(Stream::Host);
    let versions = line.all_gather(&ranks, lane, &version.to_le_bytes())?;
    let versions = versions.iter().map(|bytes| {
        let bytes = bytes.as_slice().try_into();
        u32::from_le_bytes(bytes.expect("ranks run the same program: a version has four bytes"))
    });
    let versions: Vec<u32> = versions.collect();
    let first = versions.first().copied().unwrap_or(version);
    match versions.iter().position(|other| *other != first) {
        None => Ok(()),
        Some(rank) => Err(CommunicationError::Versions {
            first: in_words(first),
            rank: rank as u32,
            other: in_words(versions[rank]),
        }),
    }
}

/// NCCL's number of a version as people write it.
fn in_words(version: u32) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

impl<B: Backend> NcclCommunicator<B> {
    /// The communicator of the rank whose line is given.
    pub fn new(
        line: Arc<Line>,
        engine: Arc<dyn Engine<B>>,
        device: B::Device,
        checks: Checks,
    ) -> Self {
        Self {
            line,
            engine,
            device,
            checks,
            cliques: Mutex::default(),
            outgoing: Mutex::default(),
            incoming: Mutex::default(),
            num_steps: AtomicU64::new(0),
            sent: Counters::default(),
        }
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::clone(&self.line) as Arc<dyn Watch>
    }

    /// The clique of a group on a stream, made if this is the first call.
    fn clique(&self, group: &Group, stream: Stream) -> Result<SharedClique<B>, CommunicationError> {
        let key = (group.clone(), stream);
        if let Some(clique) = lock(&self.cliques).get(&key) {
            return Ok(Arc::clone(clique));
        }
        // The others of the group are waited for here, so calls on other streams must not be held
        // up.
        let position = group.position(self.line.rank()).expect("a rank calls its own groups");
        let (lane, first) = (Lane::Calls(stream), group.ranks()[0]);
        let id = if position == 0 {
            let id = self.engine.new_clique()?;
            for other in &group.ranks()[1..] {
                self.line.send(*other, lane, id.clone())?;
            }
            id
        } else {
            self.line.receive(first, lane)?
        };
        let ranks = group.ranks().to_vec();
        let membership = Membership { position, ranks, stream: Some(stream) };
        let clique = self.engine.join(&id, membership, self.watch())?;
        let clique = Arc::new(Mutex::new(clique));
        lock(&self.cliques).insert(key, Arc::clone(&clique));
        Ok(clique)
    }

    /// Starts to send an array to another rank.
    fn start_sending(&self, to: u32, tag: Tag, array: Array<B>) -> Result<(), CommunicationError> {
        let form = Form::of(&array);
        let marked = if array.is_empty() { (array, None) } else { self.engine.marked(array)? };
        let lane = Lane::of(tag);
        let mut outgoing = lock(&self.outgoing);
        let Outgoing { queue, sender, course } =
            outgoing.entry((to, lane)).or_insert_with(|| Outgoing {
                queue: Queue::new(format!("from rank {} to {to}", self.line.rank())),
                sender: Arc::default(),
                course: Course::default(),
            });
        let letter = if let Some(known) = course.next(self.step(lane)) {
            assert_eq!(known, (tag.of_sender(), form), "steps send the same");
            None
        } else {
            course.learn(tag, &form);
            Some(Letter::new(Some(tag), &[&form]))
        };
        let (line, engine) = (Arc::clone(&self.line), Arc::clone(&self.engine));
        let (sender, noted) = (Arc::clone(sender), Spans::current());
        // Dropped unwaited: who needs the array waits for it, and is told if it does not come.
        drop(queue.start(move || {
            let send = || lock(&sender).send(&line, &*engine, (to, lane), letter, marked);
            let sent = match noted {
                Some(spans) => spans.note(send),
                None => send(),
            };
            if let Err(error) = &sent {
                line.stop(&error.to_string());
            }
            sent
        }));
        Ok(())
    }

    /// The next array that another rank sends with a tag.
    fn next_arrival(&self, from: u32, tag: Tag) -> Result<Array<B>, CommunicationError> {
        let wanted = (tag, self.step(Lane::of(tag)));
        self.arrivals(from, tag).take(&self.line, &*self.engine, &self.device, from, wanted)
    }

    fn arrivals(&self, from: u32, tag: Tag) -> Arc<Arrivals<B>> {
        Arc::clone(lock(&self.incoming).entry((from, Lane::of(tag))).or_default())
    }

    /// The step whose arrays go on a lane; zero where steps do not repeat each other.
    fn step(&self, lane: Lane) -> u64 {
        match lane {
            Lane::Repeated => self.num_steps.load(Ordering::Relaxed),
            Lane::Calls(_) | Lane::Arrays => 0,
        }
    }
}
