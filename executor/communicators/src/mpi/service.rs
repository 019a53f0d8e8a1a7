//! The only thread of a process that calls MPI.
//!
//! MPI libraries differ in which calls they allow several threads, and are slow where they allow many. So one thread
//! starts MPI, sends parcels without waiting, receives others, and ends MPI when all ranks have ended.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

use burn::tensor::{Bytes, Shape, TensorData};
use mpi::Threading;
use mpi::datatype::Equivalence;
use mpi::point_to_point::{Source, Status};
use mpi::topology::{Communicator, SimpleCommunicator};

use super::parcel::{Header, HostMessage, Parcel};
use super::sending::{HEADER, PAYLOAD, PIECE_BYTES, Sending};
use crate::mailbox::Mailbox;
use crate::{ArraySpec, CommunicationError, Tag};

/// Number of unsuccessful polls, each of which yields to other threads, before the service sleeps.
const NUM_LOOKS: u32 = 200;

/// Sleep between later polls: an eighth of the time that it has slept, within these bounds. So ranks that share a core
/// leave it to each other, and a message is late by at most an eighth of the wait for it, or by the shortest sleep. A
/// parcel to send wakes the service at once.
const SHORTEST_SLEEP: Duration = Duration::from_micros(20);
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Exit code of the whole job if this thread fails.
const EXIT_CODE: i32 = 2;

/// A process's place in its job.
pub(super) struct ProcessRank {
    pub(super) rank: u32,
    pub(super) num_ranks: u32,
    /// True if the MPI library allows a process to have other threads that do not call MPI.
    pub(super) has_threads: bool,
}

/// Receiving rank and parcel.
type Outgoing = (u32, Parcel);

/// Starts MPI on a new thread, which puts messages into `mailbox` and sends parcels, until all ranks have announced
/// that they have ended.
pub(super) fn start(
    mailbox: Arc<Mailbox<Tag, HostMessage>>,
) -> (ProcessRank, Sender<Outgoing>, JoinHandle<()>) {
    let (outgoing, parcels) = mpsc::channel();
    let (found, place) = mpsc::channel();
    let thread = Builder::new().name("mpi".to_owned()).spawn(move || {
        // Funneled: no thread but the one that starts MPI will call it.
        let (universe, provided) = mpi::initialize_with_threading(Threading::Funneled)
            .expect("MPI is started once in a process");
        let world = universe.world();
        let place = ProcessRank {
            rank: world.rank().cast_unsigned(),
            num_ranks: world.size().cast_unsigned(),
            has_threads: provided >= Threading::Funneled,
        };
        let num_running = place.num_ranks - 1;
        if found.send(place).is_err() {
            return;
        }
        let service = Service { world, mailbox, sendings: Vec::new(), num_running };
        if panic::catch_unwind(AssertUnwindSafe(|| service.run(&parcels))).is_err() {
            // The other ranks would wait for this one for ever.
            universe.world().abort(EXIT_CODE);
        }
    });
    let thread = thread.unwrap_or_else(|error| panic!("the MPI thread cannot be started: {error}"));
    let place = place.recv().expect("the MPI thread says where it is");
    (place, outgoing, thread)
}

struct Service {
    world: SimpleCommunicator,
    mailbox: Arc<Mailbox<Tag, HostMessage>>,
    sendings: Vec<Sending>,
    /// Number of other ranks that have not announced their end.
    num_running: u32,
}

impl Service {
    fn run(mut self, parcels: &Receiver<Outgoing>) {
        let mut is_open = true;
        let mut num_looks = 0;
        let mut slept = Duration::ZERO;
        while is_open || self.num_running > 0 || !self.sendings.is_empty() {
            let mut is_busy = false;
            loop {
                match parcels.try_recv() {
                    Ok((to, parcel)) => self.send(to, parcel),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        is_open = false;
                        break;
                    }
                }
                is_busy = true;
            }
            self.sendings.retain_mut(|sending| !sending.is_done());
            while let Some(status) = self.world.any_process().immediate_probe_with_tag(HEADER) {
                self.receive(status.source_rank(), &status);
                is_busy = true;
            }
            if is_busy || !self.sendings.is_empty() {
                (num_looks, slept) = (0, Duration::ZERO);
            }
            num_looks += 1;
            if num_looks < NUM_LOOKS {
                thread::yield_now();
                continue;
            }
            let sleep = (slept / 8).clamp(SHORTEST_SLEEP, LONGEST_SLEEP);
            slept += sleep;
            if !is_open {
                thread::sleep(sleep);
            } else if let Ok((to, parcel)) = parcels.recv_timeout(sleep) {
                self.send(to, parcel);
            }
        }
    }

    fn send(&mut self, to: u32, parcel: Parcel) {
        self.sendings.push(Sending::start(&self.world, to, parcel));
    }

    /// Receives a parcel whose header has come. Its payload was sent right after it, so the wait is short, and MPI goes
    /// on with this rank's sends in the meantime.
    fn receive(&mut self, from: mpi::Rank, status: &Status) {
        let sender = self.world.process_at_rank(from);
        let mut header = vec![0_u8; status.count(u8::equivalent_datatype()) as usize];
        sender.receive_into_with_tag(&mut header[..], HEADER);
        let header = Header::read(&header);
        let mut payload = vec![0_u8; header.payload_bytes() as usize];
        for piece in payload.chunks_mut(PIECE_BYTES) {
            sender.receive_into_with_tag(piece, PAYLOAD);
        }
        let from = from.cast_unsigned();
        match header {
            Header::Array { tag, spec: ArraySpec { element, shape } } => {
                let payload = Bytes::from_bytes_vec(payload);
                let data = TensorData::from_bytes(payload, Shape::from(shape), element);
                self.mailbox.put(from, tag.of_sender(), HostMessage::Array(data));
            }
            Header::Signal { tag } => self.mailbox.put(from, tag.of_sender(), HostMessage::Signal),
            Header::Stop { cause } => {
                self.mailbox.hear_stop(CommunicationError::Stopped { rank: from, cause });
            }
            Header::End => {
                self.mailbox.set_gone(from);
                self.num_running -= 1;
            }
        }
    }
}
