//! What attention kernels are asked for.

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use ir::graph::AttentionMask;

use super::scores::{Mask, Terms};
use super::tiles;
use crate::ops::attention::Visibility;
use crate::ops::attention::dims::Dims;

/// Positions from here on are not counted in 32 bits with a sign, twice over.
const MOST_POSITIONS: i32 = 1 << 29;

/// Attention that these kernels cover.
pub(in super::super) struct Problem<R: CubeRuntime> {
    pub(in super::super) dims: Dims,
    pub(in super::super) scale: f64,
    pub(in super::super) soft_cap: Option<f64>,
    /// What a position adds to the scores of each head, `[heads]`.
    pub(in super::super) slopes: Option<CubeTensor<R>>,
    pub(in super::super) visibility: Visibility,
}

impl<R: CubeRuntime> Problem<R> {
    /// Whether the device can count positions and cubes.
    pub(in super::super) fn is_countable(&self, client: &ComputeClient<R>) -> bool {
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
    pub(super) fn shift(&self) -> i32 {
        let position = |start: usize| i32::try_from(start).unwrap_or(i32::MAX);
        position(self.visibility.query_start) - position(self.visibility.key_start)
    }

    /// How many positions a query sees where they are limited.
    pub(super) fn window(&self) -> i32 {
        match self.visibility.mask {
            AttentionMask::SlidingWindow { window } => {
                i32::try_from(window).unwrap_or(i32::MAX).min(MOST_POSITIONS)
            }
            AttentionMask::Full | AttentionMask::Causal => 0,
        }
    }

    /// What the kernels are generated for.
    pub(super) fn terms(&self) -> Terms {
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
pub(super) fn of_query(x: &Tensor<f32>, head: usize, query: usize) -> f32 {
    let base = CUBE_POS_Z as usize * x.stride(0) + head * x.stride(1);
    x[base + query * x.stride(2)]
}
