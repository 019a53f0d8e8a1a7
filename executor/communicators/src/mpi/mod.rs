//! Ranks as processes that `mpirun` or `srun` starts, one for each rank.
//!
//! Building needs an MPI library with its headers (`mpicc` finds them) and libclang. MPI carries messages of single
//! arrays only: the collectives are those of all transports, so sums are the same bits as on threads.

mod parcel;
mod sending;
mod service;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use burn::tensor::backend::Backend;
use executor_kernels::array::Array;

use super::error::{Cause, RankFailure, Result, attempt, conclude};
use super::mailbox::Mailbox;
use super::tag::Tag;
use super::transport::{Message, Transport};
use super::{Communicator, MessagePassing};
use parcel::{Header, HostMessage, Parcel};

/// The transport of one rank among processes. When it is dropped, other ranks see the rank as ended.
pub struct MpiTransport<B: Backend> {
    rank: u32,
    num_ranks: u32,
    device: B::Device,
    mailbox: Arc<Mailbox<Tag, HostMessage>>,
    /// Channel to the only thread that calls MPI: receiving rank and parcel.
    outgoing: Sender<(u32, Parcel)>,
}

/// Result of `program` on this process's rank, whose arrays are on the device that `device` returns for it.
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
/// The failure of this rank, or of the rank that stopped the run first. If a process dies, `mpirun` ends the job.
pub fn run<B: Backend, T, E: fmt::Display>(
    device: impl FnOnce(u32) -> B::Device,
    program: impl FnOnce(Arc<dyn Communicator<B>>) -> Result<T, E>,
) -> Result<T, RankFailure<E>> {
    let mailbox = Arc::new(Mailbox::default());
    let (place, outgoing, service) = service::start(Arc::clone(&mailbox));
    let service::ProcessRank { rank, num_ranks, has_threads } = place;
    let (device, incoming) = (device(rank), Arc::clone(&mailbox));
    let transport = MpiTransport { rank, num_ranks, device, mailbox: incoming, outgoing };
    let communicator = Arc::new(MessagePassing::new(rank, num_ranks, transport));
    let given: Arc<dyn Communicator<B>> = Arc::clone(&communicator) as _;
    let outcome = if has_threads {
        attempt(|| program(given))
    } else {
        Err(Cause::Start(io::Error::other("the MPI library allows a process one thread alone")))
    };
    if let Err(cause) = &outcome {
        communicator.stop(&cause.to_string());
    }
    drop(communicator);
    service.join().expect("the thread that speaks with MPI ends the process if it fails");
    conclude(rank, mailbox.stopped(), outcome)
}

impl<B: Backend> MpiTransport<B> {
    fn hand_over(&self, to: u32, parcel: Parcel) {
        self.outgoing.send((to, parcel)).expect("the service outlives its communicator");
    }

    fn tell_all(&self, header: &Header) {
        for to in (0..self.num_ranks).filter(|to| *to != self.rank) {
            self.hand_over(to, Parcel::new(header));
        }
    }
}

impl<B: Backend> Transport<B> for MpiTransport<B> {
    fn deliver(&self, to: u32, tag: Tag, message: Message<B>) -> Result<()> {
        self.mailbox.check(self.rank, to, tag)?;
        let message = match message {
            Message::Array(array) => HostMessage::Array(array.into_data()),
            Message::Signal => HostMessage::Signal,
        };
        if to == self.rank {
            self.mailbox.put(to, tag.of_sender(), message);
        } else {
            self.hand_over(to, Parcel::of_message(tag, message));
        }
        Ok(())
    }

    fn wait(&self, from: u32, tag: Tag) -> Result<Message<B>> {
        Ok(match self.mailbox.take(self.rank, from, tag.of_sender(), tag)? {
            HostMessage::Array(data) => Message::Array(Array::from_data(data, &self.device)),
            HostMessage::Signal => Message::Signal,
        })
    }

    fn stop(&self, cause: &str) {
        if self.mailbox.stop(self.rank, cause) {
            self.tell_all(&Header::Stop { cause: cause.to_owned() });
        }
    }
}

impl<B: Backend> Drop for MpiTransport<B> {
    fn drop(&mut self) {
        self.tell_all(&Header::End);
    }
}
