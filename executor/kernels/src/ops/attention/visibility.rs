//! Visibility of keys to queries under a mask, and blocks of queries that leave out most hidden keys.

use std::ops::Range;

use ir::graph::AttentionMask;

/// Number of blocks that few queries are cut into: under a causal mask, 8 blocks compute 9/16 of all scores, and more
/// blocks save little but make products of matrices small.
const FEWEST_BLOCKS: usize = 8;

/// The minimum number of queries of a block.
const SMALLEST_BLOCK: usize = 64;

/// The most queries whose scores exist at a time, so that scores stay small compared with activations.
const LARGEST_BLOCK: usize = 512;

/// The keys that queries see, where both are consecutive positions of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyVisibility {
    /// Mask of the attention.
    pub mask: AttentionMask,
    /// The position of the first query.
    pub query_start: usize,
    /// The position of the first key.
    pub key_start: usize,
}

/// Consecutive queries and the keys that at least one of them sees, both counted from the first.
pub(super) struct Block {
    pub(super) queries: Range<usize>,
    pub(super) keys: Range<usize>,
    /// The keys that each query sees, counted from the first of `keys`.
    pub(super) seen: Vec<Range<usize>>,
}

/// Position of `key` minus that of `query`.
fn distance(query: usize, key: usize) -> i64 {
    let apart = i64::try_from(key.abs_diff(query)).unwrap_or(i64::MAX);
    if key < query { -apart } else { apart }
}

impl KeyVisibility {
    /// All queries see all keys.
    pub const FULL: Self = Self { mask: AttentionMask::Full, query_start: 0, key_start: 0 };

    /// Returns whether none of `queries` queries sees any of `keys` keys.
    pub fn sees_nothing(&self, queries: usize, keys: usize) -> bool {
        queries == 0 || self.keys_of_any(&(0..queries), keys).is_empty()
    }

    /// The blocks of `queries` queries, with the keys that each needs.
    pub(super) fn blocks(&self, queries: usize, keys: usize) -> impl Iterator<Item = Block> {
        let size = queries.div_ceil(FEWEST_BLOCKS).clamp(SMALLEST_BLOCK, LARGEST_BLOCK);
        let visibility = *self;
        (0..queries).step_by(size).map(move |start| {
            let queries = start..(start + size).min(queries);
            let keys = visibility.keys_of_any(&queries, keys);
            let seen = queries.clone().map(|query| {
                let seen = visibility.keys_of(query, keys.end);
                seen.start.saturating_sub(keys.start)..seen.end.saturating_sub(keys.start)
            });
            Block { seen: seen.collect(), queries, keys }
        })
    }

    /// The position of each key of a block minus that of each query, query by query.
    pub(super) fn distances(&self, block: &Block) -> impl Iterator<Item = i64> {
        let (queries, keys) = (block.queries.clone(), block.keys.clone());
        let (query_start, key_start) = (self.query_start, self.key_start);
        queries.flat_map(move |query| {
            let query = query_start + query;
            keys.clone().map(move |key| distance(query, key_start + key))
        })
    }

    /// The keys that query number `query` sees, of the first `keys`.
    fn keys_of(&self, query: usize, keys: usize) -> Range<usize> {
        let position = self.query_start + query;
        let (first, end) = match self.mask {
            AttentionMask::Full => return 0..keys,
            AttentionMask::Causal
            | AttentionMask::Chosen { .. }
            | AttentionMask::Chunked { .. }
            | AttentionMask::Compressed { .. } => (0, position + 1),
            AttentionMask::SlidingWindow { window } => {
                let window = usize::try_from(window).unwrap_or(usize::MAX);
                ((position + 1).saturating_sub(window), position + 1)
            }
        };
        let local = |position: usize| position.saturating_sub(self.key_start).min(keys);
        local(first)..local(end)
    }

    /// The keys that at least one of `queries` sees. First and last key increase from query to query.
    fn keys_of_any(&self, queries: &Range<usize>, keys: usize) -> Range<usize> {
        self.keys_of(queries.start, keys).start..self.keys_of(queries.end - 1, keys).end
    }
}
