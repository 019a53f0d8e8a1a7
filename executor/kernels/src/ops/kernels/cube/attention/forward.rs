//! The output and the log-sum-exp: one cube for each tile of a head's queries, which loops over the keys.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::launch::{Grid, empty, launch};
use super::problem::Problem;
use super::scores::{
    LOW, LOWEST, Numbers, NumbersLaunch, Terms, bias, capped, end_of_keys, first_key, sees,
    slope_of,
};
use super::tiles::{
    LANES, ROWS, Tiling, accumulate, features, first_row, lane, load, pitch, products, store, zeros,
};

/// The output and the log-sum-exp, or none where a device's shared memory is too small.
pub(super) fn forward<R: CubeRuntime>(
    problem: &Problem<R>,
    [q, k, v]: [&CubeTensor<R>; 3],
) -> Option<[CubeTensor<R>; 2]> {
    let dims = &problem.dims;
    let (width, value_width) = (dims.features, dims.value_features);
    let tiling = Tiling::fitting(&q.client, |Tiling { own, other }| {
        (own + other) * pitch(width) + other * pitch(value_width) + own * (other + 1)
    })?;
    let out = empty(q, &[dims.batch, dims.queries, dims.heads, value_width], q.dtype);
    let log_sum_exp = empty(q, &[dims.batch, dims.heads, dims.queries], DType::F32);
    let cubes = [dims.queries.div_ceil(tiling.own), dims.heads, dims.batch];
    launch!(
        forward_kernel,
        Grid::new(&[q, k, v, &out], cubes, CubeDim::new_1d(tiling.units() as u32)),
        q.clone().into_tensor_arg(),
        k.clone().into_tensor_arg(),
        v.clone().into_tensor_arg(),
        problem.slopes.as_ref().unwrap_or(&log_sum_exp).clone().into_array_arg(),
        out.clone().into_tensor_arg(),
        log_sum_exp.clone().into_tensor_arg(),
        problem.numbers(),
        [width, value_width],
        tiling,
        problem.terms(),
        q.dtype.into(),
    );
    Some([out, log_sum_exp])
}

impl<R: CubeRuntime> Problem<R> {
    /// The kernels' scalar arguments.
    pub(super) fn numbers(&self) -> NumbersLaunch<R> {
        let cap = self.soft_cap.unwrap_or(1.0) as f32;
        NumbersLaunch::new(self.scale as f32, cap, self.shift(), self.window())
    }
}

#[cube(launch, address_type = "dynamic")]
fn forward_kernel<F: Float>(
    q: &Tensor<F>,
    k: &Tensor<F>,
    v: &Tensor<F>,
    slopes: &Array<f32>,
    out: &mut Tensor<F>,
    log_sum_exp: &mut Tensor<f32>,
    numbers: Numbers,
    #[comptime] widths: [usize; 2],
    #[comptime] tiling: Tiling,
    #[comptime] terms: Terms,
    #[define(F)] _element: StorageType,
) {
    let (own, other) = comptime!((tiling.own, tiling.other));
    let [width, value_width] = widths;
    let (queries, keys) = (q.shape(1), k.shape(1));
    let head = CUBE_POS_Y as usize;
    let kv_head = head / (q.shape(2) / k.shape(2));
    let first = CUBE_POS_X as usize * own;
    let mut q_tile = SharedMemory::<f32>::new(comptime!(own * pitch(width)));
    let mut k_tile = SharedMemory::<f32>::new(comptime!(other * pitch(width)));
    let mut v_tile = SharedMemory::<f32>::new(comptime!(other * pitch(value_width)));
    let mut weights = SharedMemory::<f32>::new(comptime!(own * tiling.pitch()));
    load::<F>(&mut q_tile, q, head, first, own, width, tiling);
    let slope = slope_of(slopes, head, terms);
    let mut sums = zeros(comptime!(ROWS * features(value_width)));
    let mut total = zeros(ROWS);
    let mut top = Array::<f32>::new(ROWS);
    #[unroll]
    for row in 0..ROWS {
        top[row] = f32::new(LOWEST);
    }
    let last = min(first + own, queries) - 1;
    let start = first_key(first, keys, &numbers, terms) / other;
    let end = end_of_keys(last, keys, &numbers, terms).div_ceil(other);
    for tile in start..end {
        let first_of_tile = tile * other;
        sync_cube();
        load::<F>(&mut k_tile, k, kv_head, first_of_tile, other, width, tiling);
        load::<F>(&mut v_tile, v, kv_head, first_of_tile, other, value_width, tiling);
        sync_cube();
        let products = products(&q_tile, &k_tile, width, tiling);
        #[unroll]
        for row in 0..ROWS {
            let query = first + first_row() + row;
            #[unroll]
            for column in 0..comptime!(tiling.columns()) {
                let place = column * LANES + lane();
                let key = first_of_tile + place;
                let mut score = f32::new(LOWEST);
                if key < keys && sees(query, key, &numbers, terms) {
                    let product = products[row * comptime!(tiling.columns()) + column];
                    score =
                        capped(product, &numbers, terms) + bias(query, key, slope, &numbers, terms);
                }
                weights[(first_row() + row) * comptime!(tiling.pitch()) + place] = score;
            }
        }
        sync_cube();
        #[unroll]
        for row in 0..ROWS {
            let base = (first_row() + row) * comptime!(tiling.pitch());
            let mut highest = top[row];
            for place in 0..other {
                highest = max(highest, weights[base + place]);
            }
            let shrink = f32::exp(top[row] - highest);
            top[row] = highest;
            total[row] *= shrink;
            #[unroll]
            for feature in 0..comptime!(features(value_width)) {
                sums[row * comptime!(features(value_width)) + feature] *= shrink;
            }
        }
        sync_cube();
        exponentiate(&mut weights, &top, tiling);
        sync_cube();
        #[unroll]
        for row in 0..ROWS {
            let base = (first_row() + row) * comptime!(tiling.pitch());
            for place in 0..other {
                total[row] += weights[base + place];
            }
        }
        accumulate(&mut sums, &weights, &v_tile, value_width, tiling);
    }
    #[unroll]
    for row in 0..ROWS {
        let query = first + first_row() + row;
        // In a row that sees a key, the largest score alone contributes 1 to the sum.
        let share = 1.0 / max(total[row], f32::new(1.0));
        #[unroll]
        for feature in 0..comptime!(features(value_width)) {
            sums[row * comptime!(features(value_width)) + feature] *= share;
        }
        if lane() == 0 && query < queries {
            let base = CUBE_POS_Z as usize * log_sum_exp.stride(0) + head * log_sum_exp.stride(1);
            // The logarithm of zero is minus infinity.
            log_sum_exp[base + query] = top[row] + f32::ln(total[row]);
        }
    }
    store::<F>(&sums, out, head, first, f32::new(1.0), value_width);
}

/// Replaces the unit's scores by exponentials relative to the row's greatest score so far; hidden keys by zero.
#[cube]
fn exponentiate(weights: &mut SharedMemory<f32>, top: &Array<f32>, #[comptime] tiling: Tiling) {
    #[unroll]
    for row in 0..ROWS {
        let base = (first_row() + row) * comptime!(tiling.pitch());
        #[unroll]
        for column in 0..comptime!(tiling.columns()) {
            let place = base + column * LANES + lane();
            let score = weights[place];
            let mut exponential = f32::new(0.0);
            if score > LOW {
                exponential = f32::exp(score - top[row]);
            }
            weights[place] = exponential;
        }
    }
}
