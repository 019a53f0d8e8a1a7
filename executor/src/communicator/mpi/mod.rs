//! Ranks as processes that `mpirun` or `srun` starts, one a rank.
//!
//! Building needs an MPI library with its headers (`mpicc` finds them) and libclang. MPI sees
//! messages of single arrays only: the collectives are those of all transports, so sums are the
//! same bits as on threads.

mod parcel;
mod sending;
mod service;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use burn::tensor::backend::Backend;

use super::error::{Cause, CommunicationError, RankFailure, attempt, conclude};
use super::mailbox::Mailbox;
use super::tag::Tag;
use super::traffic::{Counters, Traffic};
use super::transport::{Message, Transport};
use super::{Collectives, Communicator};
use crate::array::Array;
use parcel::{Content, Letter, Parcel};

/// One rank among processes. When it is dropped, the rank has ended for the others.
pub struct MpiCommunicator<B: Backend> {
    rank: u32,
    num_ranks: u32,
    device: B::Device,
    mailbox: Arc<Mailbox<Letter>>,
    /// To the thread that alone speaks with MPI: rank and what it gets.
    outgoing: Sender<(u32, Parcel)>,
    sent: Counters,
}

/// What `program` returns on this process's rank, whose arrays are on the device that `device`
/// gives for it.
///
/// All processes of the job call this once, and return together when all programs have ended. A
/// rank's program may end while jobs that it left in queues still run; they are waited for.
///
/// # Panics
///
/// If MPI was started before in this process.
///
/// # Errors
///
/// The failure of this rank, or that of the rank that stopped the run first, as this one was told.
/// If a process dies, `mpirun` ends the job.
pub fn run<B: Backend, T, E: fmt::Display>(
    device: impl FnOnce(u32) -> B::Device,
    program: impl FnOnce(Arc<dyn Communicator<B>>) -> Result<T, E>,
) -> Result<T, RankFailure<E>> {
    let (communicator, service, has_threads) = connect(device);
    let own = communicator.0.rank;
    let mailbox = Arc::clone(&communicator.0.mailbox);
    let given: Arc<dyn Communicator<B>> = Arc::clone(&communicator) as _;
    let outcome = if has_threads {
        attempt(|| program(given))
    } else {
        Err(Cause::Start(io::Error::other("the MPI library allows a process one thread alone")))
    };
    if let Err(cause) = &outcome {
        Transport::stop(&communicator.0, &cause.to_string());
    }
    drop(communicator);
    service.join().expect("the thread that speaks with MPI ends the process if it fails");
    conclude(own, mailbox.stopped(), outcome)
}

/// The communicator of this process; the thread that carries its messages, which ends when all
/// ranks have dropped theirs; whether the MPI library allows that there are two threads.
fn connect<B: Backend>(
    device: impl FnOnce(u32) -> B::Device,
) -> (Arc<Collectives<MpiCommunicator<B>>>, JoinHandle<()>, bool) {
    let mailbox = Arc::new(Mailbox::default());
    let (place, outgoing, service) = service::start(Arc::clone(&mailbox));
    let communicator = MpiCommunicator {
        rank: place.rank,
        num_ranks: place.num_ranks,
        device: device(place.rank),
        mailbox,
        outgoing,
        sent: Counters::default(),
    };
    (Arc::new(Collectives(communicator)), service, place.has_threads)
}

impl<B: Backend> MpiCommunicator<B> {
    fn hand_over(&self, to: u32, parcel: Parcel) {
        self.outgoing.send((to, parcel)).expect("the service outlives its communicator");
    }

    fn tell_all(&self, parcel: impl Fn() -> Parcel) {
        for to in (0..self.num_ranks).filter(|to| *to != self.rank) {
            self.hand_over(to, parcel());
        }
    }
}

impl<B: Backend> Transport<B> for MpiCommunicator<B> {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn num_ranks(&self) -> u32 {
        self.num_ranks
    }

    fn deliver(&self, to: u32, tag: Tag, message: Message<B>) -> Result<(), CommunicationError> {
        self.mailbox.check(self.rank, to, tag)?;
        let num_bytes = message.num_bytes();
        let letter = match message {
            Message::Array(array) => Letter::Array(array.into_data()),
            Message::Signal => Letter::Signal,
        };
        if to == self.rank {
            self.mailbox.put(to, tag, letter);
        } else {
            self.sent.add(tag.stream(), num_bytes);
            self.hand_over(to, Parcel::new(Content::Letter { tag, letter }));
        }
        Ok(())
    }

    fn wait(&self, from: u32, tag: Tag) -> Result<Message<B>, CommunicationError> {
        Ok(match self.mailbox.take(self.rank, from, tag)? {
            Letter::Array(data) => Message::Array(Array::from_data(data, &self.device)),
            Letter::Signal => Message::Signal,
        })
    }

    fn traffic(&self) -> Traffic {
        self.sent.read()
    }

    fn stop(&self, cause: &str) {
        if self.mailbox.stop(self.rank, cause) {
            self.tell_all(|| Parcel::new(Content::Stop { cause: cause.to_owned() }));
        }
    }
}

impl<B: Backend> Drop for MpiCommunicator<B> {
    fn drop(&mut self) {
        self.tell_all(|| Parcel::new(Content::End));
    }
}
