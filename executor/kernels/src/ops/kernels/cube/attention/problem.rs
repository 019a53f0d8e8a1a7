//! Problem description of the attention kernels.

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use ir::graph::AttentionMask;

use super::scores::{Mask, Terms};
use super::tiles;
use crate::ops::attention::KeyVisibility;
use crate::ops::attention::dims::Dims;

/// Upper bound of the number of positions: twice this number still fits a signed 32-bit integer.
const MOST_POSITIONS: i32 = 1 << 29;

/// An attention problem that these kernels support.
pub(in super::super) struct Problem<R: CubeRuntime> {
    pub(in super::super) dims: Dims,
    pub(in super::super) scale: f64,
    pub(in super::super) soft_cap: Option<f64>,
    /// Slope of each head, by which a score grows per position, `[heads]`.
    pub(in super::super) slopes: Option<CubeTensor<R>>,
    pub(in super::super) visibility: KeyVisibility,
}

impl<R: CubeRuntime> Problem<R> {
    /// Returns whether the device can count positions and cubes.
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

    /// Position of the first query minus that of the first key.
    pub(super) fn shift(&self) -> i32 {
        let position = |start: usize| i32::try_from(start).unwrap_or(i32::MAX);
        position(self.visibility.query_start) - position(self.visibility.key_start)
    }

    /// Number of positions that a query sees under a sliding window; 0 without one.
    pub(super) fn window(&self) -> i32 {
        match self.visibility.mask {
            AttentionMask::SlidingWindow { window } => {
                i32::try_from(window).unwrap_or(i32::MAX).min(MOST_POSITIONS)
            }
            _ => 0,
        }
    }

    /// Compile-time options of the kernels.
    pub(super) fn terms(&self) -> Terms {
        let mask = match self.visibility.mask {
            AttentionMask::Full => Mask::Full,
            AttentionMask::SlidingWindow { .. } => Mask::Window,
            _ => Mask::Causal,
        };
        Terms { mask, is_capped: self.soft_cap.is_some(), has_slopes: self.slopes.is_some() }
    }
}

/// Location of a head's queries in `[b, heads, s]`: the first, and the distance from one to the next.
#[derive(Clone, Copy, CubeType)]
pub(super) struct Queries {
    pub(super) base: usize,
    pub(super) stride: usize,
}

/// Location of a head's queries in `[b, heads, s]`.
#[cube]
pub(super) fn queries_of(x: &Tensor<f32>, head: usize) -> Queries {
    Queries { base: CUBE_POS_Z as usize * x.stride(0) + head * x.stride(1), stride: x.stride(2) }
}

/// The element of a head's query in `[b, heads, s]`.
#[cube]
pub(super) fn of_query(x: &Tensor<f32>, head: usize, query: usize) -> f32 {
    let queries = queries_of(x, head);
    x[queries.base + query * queries.stride]
}
