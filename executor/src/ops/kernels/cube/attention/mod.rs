//! Attention whose scores exist a tile at a time, in a cube's shared memory.
//!
//! What a query sees follows from positions, which the device counts itself: tiles that nobody sees are left out,
//! and nothing but numbers is sent there.
//!
//! # Source
//!
//! Dao 2023, *FlashAttention-2*, sections 2.3 and 3.1, <https://arxiv.org/abs/2307.08691>.

mod backward;
mod cores;
mod forward;
mod scores;
mod tiles;

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use ir::graph::AttentionMask;

use self::scores::{Mask, Terms};
use crate::ops::attention::Visibility;
use crate::ops::attention::dims::Dims;

/// Positions from here on are not counted in 32 bits with a sign, twice over.
const MOST_POSITIONS: i32 = 1 << 29;

/// The output and the log-sum-exp, or none where a device's shared memory is too small.
pub(super) fn forward<R: CubeRuntime>(
    problem: &Problem<R>,
    qkv: [&CubeTensor<R>; 3],
) -> Option<[CubeTensor<R>; 2]> {
    cores::forward(problem, qkv).or_else(|| forward::forward(problem, qkv))
}

/// The gradients of queries, keys and values, or none where a device's shared memory is too small; from the queries'
/// log-sum-exp and `delta = rowsum(dO O)`, `[b, heads, s]` in fp32, and the gradient of the output.
pub(super) fn input_grad<R: CubeRuntime>(
    problem: &Problem<R>,
    qkv: [&CubeTensor<R>; 3],
    given: &[CubeTensor<R>; 3],
) -> Option<[CubeTensor<R>; 3]> {
    cores::input_grad(problem, qkv, given).or_else(|| backward::input_grad(problem, qkv, given))
}

/// Attention that these kernels cover.
pub(super) struct Problem<R: CubeRuntime> {
    pub(super) dims: Dims,
    pub(super) scale: f64,
    pub(super) soft_cap: Option<f64>,
    /// What a position adds to the scores of each head, `[heads]`.
    pub(super) slopes: Option<CubeTensor<R>>,
    pub(super) visibility: Visibility,
}

impl<R: CubeRuntime> Problem<R> {
    /// Whether the device can count positions and cubes.
    pub(super) fn is_countable(&self, client: &ComputeClient<R>) -> bool {
        let Dims { batch, queries, keys, heads, .. } = self.dims;
        let last = self.visibility.query_start.max(self.visibility.key_start) + queries.max(keys);
        let (across, down, deep) = client.properties().hardware.max_cube_count;
        let tiles = queries.max(keys).div_ceil(tiles::LANES);
        last < MOST_POSITIONS as usize
            && tiles <= across as usize
            && heads <= down as usize
            && batch <= deep as usize
            && batch * queries * keys > 0
    }

    /// How many positions the first query is after the first key.
    fn shift(&self) -> i32 {
        let position = |start: usize| i32::try_from(start).unwrap_or(i32::MAX);
        position(self.visibility.query_start) - position(self.visibility.key_start)
    }

    /// How many positions a query sees where they are limited.
    fn window(&self) -> i32 {
        match self.visibility.mask {
            AttentionMask::SlidingWindow { window } => {
                i32::try_from(window).unwrap_or(i32::MAX).min(MOST_POSITIONS)
            }
            AttentionMask::Full | AttentionMask::Causal => 0,
        }
    }

    /// What the kernels are generated for.
    fn terms(&self) -> Terms {
        let mask = match self.visibility.mask {
            AttentionMask::Full => Mask::Full,
            AttentionMask::Causal => Mask::Causal,
            AttentionMask::SlidingWindow { .. } => Mask::Window,
        };
        Terms { mask, is_capped: self.soft_cap.is_some(), has_slopes: self.slopes.is_some() }
    }
}

/// The number of a query, of `[b, heads, s]`.
#[cube]
fn of_query(x: &Tensor<f32>, head: usize, query: usize) -> f32 {
    let base = CUBE_POS_Z as usize * x.stride(0) + head * x.stride(1);
    x[base + query * x.stride(2)]
}
