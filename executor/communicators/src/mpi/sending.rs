//! Parcels that are being sent.

#![expect(unsafe_code, reason = "MPI reads memory after the call that gave it to it has returned")]

use std::mem;
use std::ptr::NonNull;

use mpi::point_to_point::Destination;
use mpi::request::Request;
use mpi::topology::{Communicator, SimpleCommunicator};

use super::parcel::Parcel;

/// MPI's tag of headers.
pub(super) const HEADER: mpi::Tag = 1;

/// MPI's tag of payloads.
pub(super) const PAYLOAD: mpi::Tag = 2;

/// Upper bound of the bytes of one MPI message, because MPI counts with 32 bits.
pub(super) const PIECE_BYTES: usize = 64 << 20;

/// A parcel that is being sent, and whose memory MPI may read until it is done.
pub(super) struct Sending {
    requests: Vec<Request<'static, [u8]>>,
    /// The parcel, in a box that [`Drop`] frees.
    parcel: NonNull<Parcel>,
}

impl Sending {
    /// Begins to send a header and then its payload, in pieces.
    pub(super) fn start(world: &SimpleCommunicator, to: u32, parcel: Parcel) -> Self {
        let parcel = NonNull::from(Box::leak(Box::new(parcel)));
        // SAFETY: the box was just made, and is freed by `drop` alone, when there are no requests; this reference and
        // its slices live in nothing but the requests.
        let Parcel { header, payload } = unsafe { parcel.as_ref() };
        let receiver = world.process_at_rank(to.cast_signed());
        let send =
            |piece, tag| receiver.immediate_send_with_tag(mpi::request::StaticScope, piece, tag);
        let header = std::iter::once(send(&header[..], HEADER));
        let requests =
            header.chain(payload.chunks(PIECE_BYTES).map(|piece| send(piece, PAYLOAD))).collect();
        Self { requests, parcel }
    }

    /// True once MPI has no more use for the parcel.
    pub(super) fn is_done(&mut self) -> bool {
        let requests = mem::take(&mut self.requests).into_iter();
        self.requests = requests.filter_map(|request| request.test().err()).collect();
        self.requests.is_empty()
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        // If a panic left requests, MPI may still read the parcel: it stays.
        if self.requests.is_empty() {
            // SAFETY: the pointer is that of the box which `start` made and leaked, `drop` runs once, and the
            // references to the box ended with the requests.
            drop(unsafe { Box::from_raw(self.parcel.as_ptr()) });
        }
    }
}
