//! The gradients: one kernel for the queries, in which a cube has a tile of a head's queries, and one for keys and
//! values, in which it has a tile of a head's keys. Both kernels recompute the scores. No two units add to the same
//! memory, so results do not depend on the order of execution.

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::launch::{Grid, launch, like};
use super::problem::{Problem, of_query};
use super::scores::{
    Numbers, Terms, bias, capped, end_of_keys, end_of_queries, first_key, first_query, score_grad,
    sees, slope_of,
};
use super::tiles::{
    LANES, ROWS, Tiling, accumulate, features, first_row, lane, load, pitch, products, store, zeros,
};

/// The gradients of queries, keys and values, from the queries' log-sum-exp and `delta = rowsum(dO O)`, `[b, heads, s]`
/// in fp32, and the gradient of the output; none where a device's shared memory is too small.
pub(super) fn input_grad<R: CubeRuntime>(
    problem: &Problem<R>,
    [q, k, v]: [&CubeTensor<R>; 3],
    [log_sum_exp, delta, grad]: &[CubeTensor<R>; 3],
) -> Option<[CubeTensor<R>; 3]> {
    let (client, dims) = (&q.client, &problem.dims);
    let widths = [dims.features, dims.value_features];
    let tiles = |Tiling { own, other }| (own + other) * (pitch(widths[0]) + pitch(widths[1]));
    let of_queries = Tiling::fitting(client, |tiling| tiles(tiling) + tiling.own * tiling.pitch())?;
    let of_keys = Tiling::fitting(client, |tiling| {
        tiles(tiling) + 2 * tiling.own * tiling.pitch() + 2 * tiling.other
    })?;
    let [q_grad, k_grad, v_grad] = [q, k, v].map(like);
    let slopes = problem.slopes.as_ref().unwrap_or(delta);
    let grid = |rows: usize, heads: usize, tiling: Tiling| {
        let cubes = [rows.div_ceil(tiling.own), heads, dims.batch];
        Grid::new(&[q, k, v], cubes, CubeDim::new_1d(tiling.units() as u32))
    };
    launch!(
        query_kernel,
        grid(dims.queries, dims.heads, of_queries),
        q.clone().into_tensor_arg(),
        k.clone().into_tensor_arg(),
        v.clone().into_tensor_arg(),
        grad.clone().into_tensor_arg(),
        log_sum_exp.clone().into_tensor_arg(),
        delta.clone().into_tensor_arg(),
        slopes.clone().into_array_arg(),
        q_grad.clone().into_tensor_arg(),
        problem.numbers(),
        widths,
        of_queries,
        problem.terms(),
        q.dtype.into(),
    );
    launch!(
        key_kernel,
        grid(dims.keys, dims.kv_heads, of_keys),
        q.clone().into_tensor_arg(),
        k.clone().into_tensor_arg(),
        v.clone().into_tensor_arg(),
        grad.clone().into_tensor_arg(),
        log_sum_exp.clone().into_tensor_arg(),
        delta.clone().into_tensor_arg(),
        slopes.clone().into_array_arg(),
        k_grad.clone().into_tensor_arg(),
        v_grad.clone().into_tensor_arg(),
        problem.numbers(),
        widths,
        of_keys,
        problem.terms(),
        q.dtype.into(),
    );
    Some([q_grad, k_grad, v_grad])
}

/// `dQ = scale dS K`.
#[cube(launch, address_type = "dynamic")]
fn query_kernel<F: Float>(
    q: &Tensor<F>,
    k: &Tensor<F>,
    v: &Tensor<F>,
    grad: &Tensor<F>,
    log_sum_exp: &Tensor<f32>,
    delta: &Tensor<f32>,
    slopes: &Array<f32>,
    q_grad: &mut Tensor<F>,
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
    let mut grad_tile = SharedMemory::<f32>::new(comptime!(own * pitch(value_width)));
    let mut k_tile = SharedMemory::<f32>::new(comptime!(other * pitch(width)));
    let mut v_tile = SharedMemory::<f32>::new(comptime!(other * pitch(value_width)));
    let mut score_grads = SharedMemory::<f32>::new(comptime!(own * tiling.pitch()));
    load::<F>(&mut q_tile, q, head, first, own, width, tiling);
    load::<F>(&mut grad_tile, grad, head, first, own, value_width, tiling);
    let slope = slope_of(slopes, head, terms);
    let (mut log_sum_exps, mut deltas) = (zeros(ROWS), zeros(ROWS));
    #[unroll]
    for row in 0..ROWS {
        let query = first + first_row() + row;
        if query < queries {
            log_sum_exps[row] = of_query(log_sum_exp, head, query);
            deltas[row] = of_query(delta, head, query);
        }
    }
    let mut sums = zeros(comptime!(ROWS * features(width)));
    let last = min(first + own, queries) - 1;
    let start = first_key(first, keys, &numbers, terms) / other;
    let end = end_of_keys(last, keys, &numbers, terms).div_ceil(other);
    for tile in start..end {
        let first_of_tile = tile * other;
        sync_cube();
        load::<F>(&mut k_tile, k, kv_head, first_of_tile, other, width, tiling);
        load::<F>(&mut v_tile, v, kv_head, first_of_tile, other, value_width, tiling);
        sync_cube();
        let scores = products(&q_tile, &k_tile, width, tiling);
        let probability_grads = products(&grad_tile, &v_tile, value_width, tiling);
        #[unroll]
        for row in 0..ROWS {
            let query = first + first_row() + row;
            #[unroll]
            for column in 0..comptime!(tiling.columns()) {
                let place = column * LANES + lane();
                let key = first_of_tile + place;
                let mut gradient = f32::new(0.0);
                if query < queries && key < keys && sees(query, key, &numbers, terms) {
                    let cell = comptime!(row * tiling.columns() + column);
                    let capped = capped(scores[cell], &numbers, terms);
                    let score = capped + bias(query, key, slope, &numbers, terms);
                    gradient = score_grad(
                        f32::exp(score - log_sum_exps[row]),
                        probability_grads[cell],
                        deltas[row],
                        capped,
                        &numbers,
                        terms,
                    );
                }
                score_grads[(first_row() + row) * comptime!(tiling.pitch()) + place] = gradient;
            }
        }
        sync_cube();
        accumulate(&mut sums, &score_grads, &k_tile, width, tiling);
    }
    store::<F>(&sums, q_grad, head, first, numbers.scale, width);
}

/// `dV = P^T dO` and `dK = scale dS^T Q`, over all query heads that share the key-value head.
#[cube(launch, address_type = "dynamic")]
fn key_kernel<F: Float>(
    q: &Tensor<F>,
    k: &Tensor<F>,
    v: &Tensor<F>,
    grad: &Tensor<F>,
    log_sum_exp: &Tensor<f32>,
    delta: &Tensor<f32>,
    slopes: &Array<f32>,
    k_grad: &mut Tensor<F>,
    v_grad: &mut Tensor<F>,
    numbers: Numbers,
    #[comptime] widths: [usize; 2],
    #[comptime] tiling: Tiling,
    #[comptime] terms: Terms,
    #[define(F)] _element: StorageType,
) {
    let (own, other) = comptime!((tiling.own, tiling.other));
    let [width, value_width] = widths;
    let (queries, keys) = (q.shape(1), k.shape(1));
    let kv_head = CUBE_POS_Y as usize;
    let group = q.shape(2) / k.shape(2);
    let first = CUBE_POS_X as usize * own;
    let mut k_tile = SharedMemory::<f32>::new(comptime!(own * pitch(width)));
    let mut v_tile = SharedMemory::<f32>::new(comptime!(own * pitch(value_width)));
    let mut q_tile = SharedMemory::<f32>::new(comptime!(other * pitch(width)));
    let mut grad_tile = SharedMemory::<f32>::new(comptime!(other * pitch(value_width)));
    let mut weights = SharedMemory::<f32>::new(comptime!(own * tiling.pitch()));
    let mut score_grads = SharedMemory::<f32>::new(comptime!(own * tiling.pitch()));
    let mut log_sum_exps = SharedMemory::<f32>::new(other);
    let mut deltas = SharedMemory::<f32>::new(other);
    load::<F>(&mut k_tile, k, kv_head, first, own, width, tiling);
    load::<F>(&mut v_tile, v, kv_head, first, own, value_width, tiling);
    let mut k_sums = zeros(comptime!(ROWS * features(width)));
    let mut v_sums = zeros(comptime!(ROWS * features(value_width)));
    let last = min(first + own, keys) - 1;
    let start = first_query(first, queries, &numbers, terms) / other;
    let end = end_of_queries(last, queries, &numbers, terms).div_ceil(other);
    for member in 0..group {
        let head = kv_head * group + member;
        let slope = slope_of(slopes, head, terms);
        for tile in start..end {
            let first_of_tile = tile * other;
            sync_cube();
            load::<F>(&mut q_tile, q, head, first_of_tile, other, width, tiling);
            load::<F>(&mut grad_tile, grad, head, first_of_tile, other, value_width, tiling);
            let own_query = first_of_tile + UNIT_POS as usize;
            if (UNIT_POS as usize) < other && own_query < queries {
                log_sum_exps[UNIT_POS as usize] = of_query(log_sum_exp, head, own_query);
                deltas[UNIT_POS as usize] = of_query(delta, head, own_query);
            }
            sync_cube();
            let scores = products(&k_tile, &q_tile, width, tiling);
            let probability_grads = products(&v_tile, &grad_tile, value_width, tiling);
            #[unroll]
            for row in 0..ROWS {
                let key = first + first_row() + row;
                #[unroll]
                for column in 0..comptime!(tiling.columns()) {
                    let place = column * LANES + lane();
                    let query = first_of_tile + place;
                    let mut probability = f32::new(0.0);
                    let mut gradient = f32::new(0.0);
                    if query < queries && key < keys && sees(query, key, &numbers, terms) {
                        let cell = comptime!(row * tiling.columns() + column);
                        let capped = capped(scores[cell], &numbers, terms);
                        let score = capped + bias(query, key, slope, &numbers, terms);
                        probability = f32::exp(score - log_sum_exps[place]);
                        gradient = score_grad(
                            probability,
                            probability_grads[cell],
                            deltas[place],
                            capped,
                            &numbers,
                            terms,
                        );
                    }
                    let cell = (first_row() + row) * comptime!(tiling.pitch()) + place;
                    weights[cell] = probability;
                    score_grads[cell] = gradient;
                }
            }
            sync_cube();
            accumulate(&mut v_sums, &weights, &grad_tile, value_width, tiling);
            accumulate(&mut k_sums, &score_grads, &q_tile, width, tiling);
        }
    }
    store::<F>(&k_sums, k_grad, kv_head, first, numbers.scale, width);
    store::<F>(&v_sums, v_grad, kv_head, first, f32::new(1.0), value_width);
}
