//! Collectives by NCCL, on ranks that are processes with a GPU each.
//!
//! Each group has an NCCL communicator for each stream on which it communicates. Each pair of ranks has one for each
//! direction in which it sends arrays, and one more for the arrays that are repeated in each step. All are made at
//! first use. Other messages use the [`Connection`] of the rendezvous: identifiers of NCCL's communicators, and shapes
//! where the receiver does not know them.
//!
//! This module orders the calls, for any [`Engine`]; `cuda`, with the feature of that name, is the engine that makes
//! them. Results are those of [`Communicator`], except for the order in which NCCL sums. The order is the same for
//! equal calls on the same GPUs, but not for another cut of the buffer. Traffic is counted as the trait says; NCCL may
//! choose another algorithm.

mod collectives;
#[cfg(feature = "cuda")]
mod communicator;
mod context;
#[cfg(feature = "cuda")]
pub mod cuda;
mod engine;
#[cfg(feature = "cuda")]
mod guard;
#[cfg(feature = "cuda")]
mod library;
mod point_to_point;
mod recorded_step;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use burn::tensor::backend::Backend;
use executor_kernels::array::Array;
use executor_kernels::lock::lock;
use traces::timeline::Stream;

use super::error::{Cause, CommunicationError, RankFailure, Result, attempt, conclude};
use super::rendezvous::{Channel, Connection, Shutdown};
use super::traffic::Counters;
use super::{Communicator, Group, Tag};
use context::Context;
use point_to_point::{Incoming, Outgoing};

pub use engine::{Engine, LibraryCall, LibraryCommunicator, LibraryFunction, Membership};

/// One rank among processes, whose arrays an [`Engine`] moves. When it and its started work are done, other ranks see
/// the rank as ended.
pub struct NcclCommunicator<B: Backend> {
    context: Arc<Context<B>>,
    checks: Checks,
    communicators: Mutex<BTreeMap<(Group, Stream), SharedCommunicator<B>>>,
    /// Sent arrays by receiver.
    outgoing: Mutex<BTreeMap<(u32, Channel), Outgoing<B>>>,
    /// Received arrays by sender.
    incoming: Mutex<BTreeMap<(u32, Channel), SharedIncoming<B>>>,
    /// Number of steps that have begun.
    num_steps: AtomicU64,
    sent: Counters,
}

type SharedIncoming<B> = Arc<Incoming<B>>;
type SharedCommunicator<B> = Arc<Mutex<Box<dyn LibraryCommunicator<B>>>>;

/// Comparison of ranks' arrays before reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// No comparison: the ranks must give equal shapes, or the library reads beyond them or hangs.
    None,
    /// Comparison of all ranks' shapes, which costs a control message from each rank to each other rank.
    Reductions,
}

/// Result of `program` on this process's rank, with its connection and the engine that `engine` opens.
///
/// All processes of the job call this once, and return together when all programs have ended.
///
/// # Errors
///
/// The failure of this rank, or of the rank that stopped the run first.
pub fn run<B: Backend, T, E: fmt::Display>(
    (connection, shutdown): (Connection, Shutdown),
    engine: impl FnOnce(&Connection) -> Result<(Arc<dyn Engine<B>>, B::Device), E>,
    checks: Checks,
    program: impl FnOnce(Arc<dyn Communicator<B>>, B::Device) -> Result<T, E>,
) -> Result<T, RankFailure<E>> {
    let own = connection.rank();
    let connection = Arc::new(connection);
    let mut opened = None;
    let outcome = attempt(|| {
        let (engine, device) = engine(&connection)?;
        let engine = Arc::clone(opened.insert(engine));
        let connection = Arc::clone(&connection);
        let communicator = NcclCommunicator::new(connection, engine, device.clone(), checks);
        program(Arc::new(communicator), device)
    });
    // The last messages may still be on their way to ranks that continue.
    let outcome = outcome.and_then(|value| match opened.as_ref().map(|engine| engine.finish()) {
        Some(Err(error)) => Err(Cause::Stopped(error.to_string())),
        Some(Ok(())) | None => Ok(value),
    });
    if let Err(cause) = &outcome {
        connection.stop(&cause.to_string());
    }
    // Jobs that are left in queues hold the connection too: the rank has ended once the last job has.
    drop(connection);
    let ended = shutdown.wait();
    if let Some(engine) = opened {
        engine.close();
    }
    conclude(own, ended, outcome)
}

/// Fails if two ranks have the same device; all ranks call this. NCCL's own message for it is less clear.
///
/// # Errors
///
/// [`CommunicationError::SharedDevice`].
pub fn check_devices(connection: &Connection, device: &[u8]) -> Result<()> {
    let devices = of_all_ranks(connection, device)?;
    for (second, device) in devices.iter().enumerate() {
        if let Some(first) = devices[..second].iter().position(|other| other == device) {
            let (first, second) = (first as u32, second as u32);
            return Err(CommunicationError::SharedDevice { first, second });
        }
    }
    Ok(())
}

/// Fails if ranks have libraries of different versions, which may be incompatible; all ranks call this.
///
/// # Errors
///
/// [`CommunicationError::Versions`].
pub fn check_versions(connection: &Connection, version: &str) -> Result<()> {
    let versions = of_all_ranks(connection, version.as_bytes())?;
    match versions.iter().position(|other| *other != versions[0]) {
        None => Ok(()),
        Some(rank) => Err(CommunicationError::Versions {
            first: String::from_utf8_lossy(&versions[0]).into_owned(),
            rank: rank as u32,
            other: String::from_utf8_lossy(&versions[rank]).into_owned(),
        }),
    }
}

/// The bytes of each rank; all ranks call this.
fn of_all_ranks(connection: &Connection, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    let ranks: Vec<u32> = (0..connection.num_ranks()).collect();
    connection.all_gather(&ranks, Channel::Calls(Stream::Host), bytes)
}

impl<B: Backend> NcclCommunicator<B> {
    /// The communicator of the rank of a connection.
    pub fn new(
        connection: Arc<Connection>,
        engine: Arc<dyn Engine<B>>,
        device: B::Device,
        checks: Checks,
    ) -> Self {
        Self {
            context: Arc::new(Context { connection, engine, device }),
            checks,
            communicators: Mutex::default(),
            outgoing: Mutex::default(),
            incoming: Mutex::default(),
            num_steps: AtomicU64::new(0),
            sent: Counters::default(),
        }
    }

    /// The library's communicator of a group on a stream, made at the first call.
    fn communicator(&self, group: &Group, stream: Stream) -> Result<SharedCommunicator<B>> {
        let key = (group.clone(), stream);
        if let Some(communicator) = lock(&self.communicators).get(&key) {
            return Ok(Arc::clone(communicator));
        }
        // This waits for the other ranks of the group, so calls on other streams must not be blocked.
        let joined = self.context.join(group.ranks(), Channel::Calls(stream), Some(stream))?;
        let communicator = Arc::new(Mutex::new(joined));
        lock(&self.communicators).insert(key, Arc::clone(&communicator));
        Ok(communicator)
    }

    /// Starts to send an array to another rank.
    fn start_sending(&self, to: u32, tag: Tag, array: Array<B>) -> Result<()> {
        let (array, after) =
            if array.is_empty() { (array, None) } else { self.context.engine.marked(array)? };
        let channel = Channel::of(tag);
        let mut outgoing = lock(&self.outgoing);
        let new = || Outgoing::new(&self.context, to, channel);
        let outgoing = outgoing.entry((to, channel)).or_insert_with(new);
        outgoing.start(tag, self.step(channel), array, after);
        Ok(())
    }

    /// Arrays that a rank sends on the channel of a tag.
    fn incoming(&self, from: u32, tag: Tag) -> SharedIncoming<B> {
        let channel = Channel::of(tag);
        let new = || Arc::new(Incoming::new(&self.context, from, channel));
        Arc::clone(lock(&self.incoming).entry((from, channel)).or_insert_with(new))
    }

    /// The current step on a channel; zero on channels whose arrays are not repeated in each step.
    fn step(&self, channel: Channel) -> u64 {
        match channel {
            Channel::Repeated => self.num_steps.load(Ordering::Relaxed),
            Channel::Calls(_) | Channel::Arrays => 0,
        }
    }
}
