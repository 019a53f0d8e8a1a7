//! Computation of scores from products of queries and keys: scale, cap and position bias; and dropout of probabilities.

use std::ops::Range;

use half::bf16;
use ir::graph::AlibiSlopes;

use super::dims::Dims;
use super::visibility::{Block, KeyVisibility};
use crate::array::{Array, Indices};
use crate::ops::BasicKernels;
use crate::ops::dropout::{Dropout, Extract};

/// Computation of scores from products of queries and keys.
///
/// ```text
/// s = scale q k,   c = cap tanh(s / cap),   score = c + bias(head, position of k - position of q)
/// ```
#[derive(Clone, Debug)]
pub struct Scoring<B: BasicKernels> {
    /// Factor of the products.
    pub scale: f64,
    /// The cap; none if scores are not capped.
    pub soft_cap: Option<f64>,
    /// Position bias.
    pub bias: Bias<B>,
    /// Dropout of probabilities; none if there is no dropout.
    pub dropout: Option<ProbabilityDropout>,
}

/// Dropout of probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbabilityDropout {
    /// Rate and random numbers.
    pub dropout: Dropout,
    /// The query heads of this rank, of all heads of the model.
    pub heads: Extract,
    /// Number of keys of a sequence.
    pub num_keys: usize,
    /// Number of queries of a sequence.
    pub num_queries: usize,
}

/// Position bias of scores.
#[derive(Clone, Debug)]
pub enum Bias<B: BasicKernels> {
    /// No bias.
    None,
    /// The distance times a slope of each head, `[heads]`.
    Slopes(Array<B>),
    /// The position of the key times a slope of each head, rounded to 16 bits, times `factor`.
    Rounded {
        /// Slope of each head.
        slopes: Vec<f64>,
        /// Factor of the rounded bias.
        factor: f64,
    },
    /// A learned bias of each bucket of distances and head, `[buckets, heads]`.
    Table(Array<B>, Buckets),
}

/// Buckets of distances: each small distance has a bucket of its own, and larger distances share buckets that widen
/// with the distance.
///
/// # Source
///
/// Raffel et al. 2019, *T5* (arXiv 1910.10683), section 2.1; `_relative_position_bucket` of Hugging Face transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Number of buckets.
    pub count: usize,
    /// Distances from this one on share the last bucket.
    pub max_distance: usize,
    /// True where keys after the query have separate buckets.
    pub both_ways: bool,
}

impl Buckets {
    /// The bucket of a key `distance` positions after the query.
    pub fn of(&self, distance: i64) -> usize {
        let (count, first) = match (self.both_ways, distance > 0) {
            (true, true) => (self.count / 2, self.count / 2),
            (true, false) => (self.count / 2, 0),
            (false, _) => (self.count, 0),
        };
        let distance = if self.both_ways { distance.abs() } else { (-distance).max(0) };
        let distance = usize::try_from(distance).unwrap_or(usize::MAX);
        let exact = count / 2;
        if distance < exact {
            return first + distance;
        }
        // In single precision, as in transformers: at a bucket's boundary the last digit decides.
        let ratio = (distance as f32 / exact as f32).ln();
        let share = ratio / (self.max_distance as f64 / exact as f64).ln() as f32;
        let further = (share * (count - exact) as f32) as usize;
        first + (exact + further).min(count - 1)
    }
}

/// The slope of each of `num_heads` heads.
///
/// # Source
///
/// Press et al. 2021 (arXiv 2108.12409), section 3; `build_alibi_tensor` and `build_mpt_alibi_tensor` of Hugging Face
/// transformers where the heads are no power of two.
pub fn alibi_slopes(rule: AlibiSlopes, num_heads: usize) -> Vec<f64> {
    let of_power = |heads: usize| (1..=heads).map(move |i| (-8.0 * i as f64 / heads as f64).exp2());
    let above = num_heads.next_power_of_two();
    match rule {
        AlibiSlopes::PowerAbove => {
            let all: Vec<f64> = of_power(above).collect();
            let odd = all.iter().skip(1).step_by(2);
            let in_order: Vec<f64> = odd.chain(all.iter().step_by(2)).copied().collect();
            if above == num_heads { all } else { in_order[..num_heads].to_vec() }
        }
        AlibiSlopes::PowerBelow | AlibiSlopes::Rounded if above == num_heads => {
            of_power(num_heads).collect()
        }
        AlibiSlopes::PowerBelow | AlibiSlopes::Rounded => {
            let below = above / 2;
            let further = of_power(above).step_by(2).take(num_heads - below);
            of_power(below).chain(further).collect()
        }
    }
}

impl<B: BasicKernels> Scoring<B> {
    /// Scores that are products times `scale`, without cap, bias and dropout.
    pub const fn plain(scale: f64) -> Self {
        Self { scale, soft_cap: None, bias: Bias::None, dropout: None }
    }

    /// The scores of a block from products that are scaled already, `[b, kv_heads, group queries, keys]`; and the slope
    /// of the cap, where there is one.
    pub(super) fn scores(
        &self,
        products: Array<B>,
        dims: &Dims,
        visibility: &KeyVisibility,
        block: &Block,
    ) -> (Array<B>, Option<Array<B>>) {
        let (scores, slope) = match self.soft_cap {
            Some(cap) => {
                let bent = products.scale(1.0 / cap).tanh();
                let slope = bent.clone().square().scale(-1.0).shift(1.0);
                (bent.scale(cap), Some(slope))
            }
            None => (products, None),
        };
        match self.bias(dims, visibility, block, &scores) {
            Some(bias) => (scores + bias, slope),
            None => (scores, slope),
        }
    }

    /// The dropout mask for the probabilities of a block, `[b, kv_heads, group queries, keys]`, where there is dropout.
    pub(super) fn dropout_mask(
        &self,
        dims: &Dims,
        visibility: &KeyVisibility,
        block: &Block,
        like: &Array<B>,
    ) -> Option<Array<B>> {
        let ProbabilityDropout { dropout, heads, num_queries, num_keys } = self.dropout.as_ref()?;
        let at = |range: &Range<usize>, start: usize, of: usize| Extract {
            indices: range.clone().map(|index| start + index).collect(),
            of,
        };
        let queries = at(&block.queries, visibility.query_start, *num_queries);
        let keys = at(&block.keys, visibility.key_start, *num_keys);
        let by_head = [heads.clone(), queries, keys];
        let mask = dropout.mask(dims.batch, &by_head, like.element(), &like.device());
        Some(mask.reshape(&like.shape()))
    }

    /// The position bias of the scores of a block, `[1, kv_heads, group queries, keys]`.
    fn bias(
        &self,
        dims: &Dims,
        visibility: &KeyVisibility,
        block: &Block,
        like: &Array<B>,
    ) -> Option<Array<B>> {
        let (queries, keys) = (block.queries.len(), block.keys.len());
        let by_head = match &self.bias {
            Bias::None => return None,
            Bias::Slopes(slopes) => {
                let distances = visibility.distances(block).map(|it| it as f64).collect();
                let shape = [1, queries * keys];
                let distances = Array::from_f64(distances, &shape, like.element(), &like.device());
                let slopes = slopes.clone().cast(like.element()).reshape(&[dims.heads, 1]);
                slopes * distances
            }
            Bias::Rounded { slopes, factor } => {
                let first = visibility.key_start + block.keys.start;
                let of_key = |slope: f64, key: usize| {
                    let (slope, position) = (bf16::from_f64(slope), bf16::from_f64(key as f64));
                    (slope * position).to_f64() * factor
                };
                let of_head = |slope: &f64| {
                    let slope = *slope;
                    (first..first + keys).map(move |key| of_key(slope, key))
                };
                let of_query = |slope| std::iter::repeat_n(slope, queries).flat_map(of_head);
                let values = slopes.iter().flat_map(of_query).collect();
                let shape = [dims.heads, queries * keys];
                Array::from_f64(values, &shape, like.element(), &like.device())
            }
            Bias::Table(table, buckets) => {
                let rows = rows_of_table(visibility, block, *buckets, table);
                B::select_rows(&table.clone().cast(like.element()), &rows).transpose()
            }
        };
        Some(by_head.reshape(&[1, dims.kv_heads, dims.group() * queries, keys]))
    }

    /// The gradient of the table, increased by the contribution of a block's score gradients `[b, kv_heads, group
    /// queries, keys]`; none where there is no table.
    pub(super) fn with_table_grad(
        &self,
        sum: Option<Array<B>>,
        score_grad: &Array<B>,
        dims: &Dims,
        visibility: &KeyVisibility,
        block: &Block,
    ) -> Option<Array<B>> {
        let Bias::Table(table, buckets) = &self.bias else { return None };
        let rows = rows_of_table(visibility, block, *buckets, table);
        let pairs = block.queries.len() * block.keys.len();
        let by_head = score_grad.clone().sum_dim(0).reshape(&[dims.heads, pairs]).transpose();
        let element = score_grad.element();
        let sum = sum.unwrap_or_else(|| Array::zeros(&table.shape(), element, &table.device()));
        Some(sum.select_add(0, &rows, by_head))
    }
}

/// The row of the table for each query and key of a block.
fn rows_of_table<B: BasicKernels>(
    visibility: &KeyVisibility,
    block: &Block,
    buckets: Buckets,
    table: &Array<B>,
) -> Indices<B> {
    let rows = visibility.distances(block).map(|distance| buckets.of(distance) as u32);
    let rows: Vec<u32> = rows.collect();
    Indices::new(&rows, &[rows.len()], &table.device())
}
