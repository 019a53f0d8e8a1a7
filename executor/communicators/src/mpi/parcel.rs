//! Messages as bytes.

use burn::tensor::{Bytes, TensorData};
use serde::{Deserialize, Serialize};

use crate::{ArraySpec, Tag};

/// A message between processes: a header, and the array that it announces.
pub(super) struct Parcel {
    /// A [`Header`] as JSON.
    pub(super) header: Vec<u8>,
    /// The bytes of the array; none for other headers.
    pub(super) payload: Bytes,
}

/// The content of a parcel except for an array's bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Header {
    /// An array for the mailbox.
    Array { tag: Tag, spec: ArraySpec },
    /// A signal for the mailbox.
    Signal { tag: Tag },
    /// The sender stops the run.
    Stop { cause: String },
    /// The sender has ended: nothing comes after this.
    End,
}

/// A message on the host.
#[derive(Debug)]
pub(super) enum HostMessage {
    /// An array.
    Array(TensorData),
    /// A signal of a barrier.
    Signal,
}

impl Parcel {
    /// A message for a mailbox.
    pub(super) fn of_message(tag: Tag, message: HostMessage) -> Self {
        match message {
            HostMessage::Array(TensorData { bytes, shape, dtype }) => {
                let spec = ArraySpec { element: dtype, shape: shape.to_vec() };
                Self { payload: bytes, ..Self::new(&Header::Array { tag, spec }) }
            }
            HostMessage::Signal => Self::new(&Header::Signal { tag }),
        }
    }

    /// A parcel without an array.
    pub(super) fn new(header: &Header) -> Self {
        let header = serde_json::to_vec(header).expect("plain data prints as JSON");
        Self { header, payload: Bytes::from_bytes_vec(Vec::new()) }
    }
}

impl Header {
    pub(super) fn read(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes)
            .expect("ranks run the same program: what one writes, all read")
    }

    /// Bytes of the array that it announces.
    pub(super) fn payload_bytes(&self) -> u64 {
        match self {
            Self::Array { spec, .. } => spec.num_bytes(),
            Self::Signal { .. } | Self::Stop { .. } | Self::End => 0,
        }
    }
}
