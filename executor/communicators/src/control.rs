//! Control messages: specs of arrays that NCCL carries.

use serde::{Deserialize, Serialize};

use super::{ArraySpec, Tag};

/// Announces arrays whose specs the receiver does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ControlMessage {
    /// The tag of a tagged array.
    tag: Option<Tag>,
    arrays: Vec<ArraySpec>,
}

impl ControlMessage {
    pub(super) fn new(tag: Option<Tag>, arrays: &[ArraySpec]) -> Self {
        Self { tag: tag.map(Tag::of_sender), arrays: arrays.to_vec() }
    }

    /// The tag and the spec of one array with a tag.
    pub(super) fn tagged(self) -> (Tag, ArraySpec) {
        let tag =
            self.tag.expect("ranks run the same program: where a tag is read, one was written");
        (tag, self.array())
    }

    /// The spec of one array.
    pub(super) fn array(self) -> ArraySpec {
        let [array] = self.arrays.try_into().expect("where one array is read, one was written");
        array
    }

    /// The specs of all arrays.
    pub(super) fn arrays(self) -> Vec<ArraySpec> {
        self.arrays
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data prints as JSON")
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes)
            .expect("ranks run the same program: what one writes, all read")
    }
}
