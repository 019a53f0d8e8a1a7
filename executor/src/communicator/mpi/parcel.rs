//! Messages as bytes.

use burn::tensor::{Bytes, DType, Shape, TensorData};
use ir::schedule::{Action, ActionKind};
use traces::timeline::Stream;

use crate::communicator::tag::Tag;

/// What a process sends to another: a header of a few words, and what it announces.
pub(super) struct Parcel {
    /// Words of 8 bytes, little-endian.
    pub(super) header: Vec<u8>,
    /// As many bytes as the header says; none for most kinds.
    pub(super) payload: Bytes,
}

/// What a parcel says.
pub(super) enum Content {
    /// A message for the mailbox.
    Letter { tag: Tag, letter: Letter },
    /// The sender stops the run.
    Stop { cause: String },
    /// The sender has ended: nothing comes after this.
    End,
}

/// A message on the host.
#[derive(Debug)]
pub(super) enum Letter {
    /// An array.
    Array(TensorData),
    /// That the sender has come to a point.
    Signal,
}

/// Element types by their number in headers.
const ELEMENTS: [DType; 6] =
    [DType::F64, DType::F32, DType::Flex32, DType::F16, DType::BF16, DType::U8];

/// Kinds of content by their number in headers.
const ARRAY: u64 = 0;
const SIGNAL: u64 = 1;
const STOP: u64 = 2;
const END: u64 = 3;

/// Words of a header before the shape: kind, payload's bytes, four for the tag, element type.
const FIXED_WORDS: usize = 7;

impl Parcel {
    pub(super) fn new(content: Content) -> Self {
        let none = Bytes::from_bytes_vec(Vec::new());
        let (kind, tag, element, shape, payload) = match content {
            Content::Letter { tag, letter: Letter::Array(TensorData { bytes, shape, dtype }) } => {
                let element = number(&ELEMENTS, &dtype);
                (ARRAY, tag_words(tag), element, shape.to_vec(), bytes)
            }
            Content::Letter { tag, letter: Letter::Signal } => {
                (SIGNAL, tag_words(tag), 0, Vec::new(), none)
            }
            Content::Stop { cause } => {
                (STOP, [0; 4], 0, Vec::new(), Bytes::from_bytes_vec(cause.into_bytes()))
            }
            Content::End => (END, [0; 4], 0, Vec::new(), none),
        };
        let words = [kind, payload.len() as u64].into_iter().chain(tag).chain([element]);
        let words = words.chain(shape.into_iter().map(|size| size as u64));
        Self { header: words.flat_map(u64::to_le_bytes).collect(), payload }
    }

    /// How many bytes the payload of a header takes.
    pub(super) fn payload_bytes(header: &[u8]) -> usize {
        usize::try_from(words(header)[1]).expect("what was sent from memory fits into memory")
    }

    /// What it says.
    pub(super) fn open(self) -> Content {
        let words = words(&self.header);
        let (fixed, shape) = words.split_at(FIXED_WORDS);
        let letter = match fixed[0] {
            ARRAY => {
                let shape: Vec<usize> = shape.iter().map(|size| *size as usize).collect();
                let element = ELEMENTS[fixed[6] as usize];
                Letter::Array(TensorData::from_bytes(self.payload, Shape::from(shape), element))
            }
            SIGNAL => Letter::Signal,
            STOP => {
                let cause = String::from_utf8_lossy(&self.payload).into_owned();
                return Content::Stop { cause };
            }
            END => return Content::End,
            kind => panic!("all ranks run the same program: it sends no parcels of kind {kind}"),
        };
        Content::Letter { tag: read_tag(&fixed[2..6]), letter }
    }
}

fn words(header: &[u8]) -> Vec<u64> {
    let (words, rest) = header.as_chunks();
    assert!(words.len() >= FIXED_WORDS && rest.is_empty(), "headers are of whole words");
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

fn tag_words(tag: Tag) -> [u64; 4] {
    match tag {
        Tag::Stream(stream) => [0, number(&Stream::ALL, &stream), 0, 0],
        Tag::Message(Action { stage, kind, micro_batch }) => {
            [1, number(&ActionKind::ALL, &kind), stage.into(), micro_batch.into()]
        }
    }
}

fn read_tag(words: &[u64]) -> Tag {
    if words[0] == 0 {
        return Tag::Stream(Stream::ALL[words[1] as usize]);
    }
    let kind = ActionKind::ALL[words[1] as usize];
    Tag::Message(Action { stage: words[2] as u32, kind, micro_batch: words[3] as u32 })
}

fn number<T: PartialEq>(all: &[T], item: &T) -> u64 {
    let position = all.iter().position(|other| other == item);
    position.expect("the lists are complete") as u64
}
