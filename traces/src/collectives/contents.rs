//! Buffers of ranks: sums of contributions in each slot.

use std::collections::BTreeSet;
use std::fmt;

/// A chunk that one rank had before the operation. Prints as `b2`: chunk 2 of the second rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InputChunk {
    /// Rank that had the chunk.
    pub rank: u32,
    /// Index of the chunk in its buffer.
    pub chunk: u32,
}

impl fmt::Display for InputChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", letters(self.rank), self.chunk)
    }
}

/// Letters of a rank: `a` to `z`, then `aa`, `ab` and so on.
fn letters(rank: u32) -> String {
    let last = char::from(b'a' + (rank % 26) as u8);
    match (rank / 26).checked_sub(1) {
        Some(rest) => format!("{}{last}", letters(rest)),
        None => last.to_string(),
    }
}

/// Contents of each rank's buffer: in each slot the sum of the pieces in its set; empty where there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferContents {
    ranks: Vec<Vec<BTreeSet<InputChunk>>>,
}

impl BufferContents {
    /// Buffers in which each slot holds `sum(rank, slot)`.
    pub(super) fn new(
        num_ranks: u32,
        num_slots: u32,
        sum: impl Fn(u32, u32) -> BTreeSet<InputChunk>,
    ) -> Self {
        let slots = |rank| (0..num_slots).map(|slot| sum(rank, slot)).collect();
        Self { ranks: (0..num_ranks).map(slots).collect() }
    }

    /// All pairs of rank and slot.
    pub(super) fn cells(&self) -> impl Iterator<Item = (u32, u32)> {
        let num_slots = self.num_slots();
        (0..self.num_ranks()).flat_map(move |rank| (0..num_slots).map(move |slot| (rank, slot)))
    }

    /// Number of ranks.
    pub fn num_ranks(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Number of slots of a rank's buffer.
    pub fn num_slots(&self) -> u32 {
        self.ranks.first().map_or(0, Vec::len) as u32
    }

    /// Pieces whose sum is in a slot.
    pub fn slot(&self, rank: u32, slot: u32) -> &BTreeSet<InputChunk> {
        &self.ranks[rank as usize][slot as usize]
    }

    pub(super) fn slot_mut(&mut self, rank: u32, slot: u32) -> &mut BTreeSet<InputChunk> {
        &mut self.ranks[rank as usize][slot as usize]
    }

    /// Label of a slot: the piece, the sum of a few, `Σ2` for the sum of chunk 2 over all ranks, and `3 of Σ2` for the
    /// sum over three of them.
    pub fn label(&self, rank: u32, slot: u32) -> String {
        const MOST_TERMS: usize = 2;
        let pieces = self.slot(rank, slot);
        let Some(first) = pieces.first() else { return String::new() };
        if pieces.len() == 1 {
            return first.to_string();
        }
        if pieces.len() == self.ranks.len() {
            return format!("Σ{}", first.chunk);
        }
        if pieces.len() <= MOST_TERMS {
            let terms: Vec<String> = pieces.iter().map(InputChunk::to_string).collect();
            return terms.join("+");
        }
        format!("{} of Σ{}", pieces.len(), first.chunk)
    }
}
