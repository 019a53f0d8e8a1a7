//! The gradients, by tensor cores: one kernel for the queries, in which a plane has a strip of a head's queries, and
//! one for keys and values, in which it has a strip of a head's keys. Both kernels recompute the scores, and no two
//! units add to the same memory. That takes seven products instead of the five of a kernel with atomic additions, but
//! results are deterministic.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::FastMath;
use cubecl::prelude::*;

use super::super::super::fragments::{
    CHUNK, COLUMNS, Chunk, DEPTH, PLANES, Pair, Registers, STRIP, UNITS, column_of_unit, left,
    pitch, plane, row_of_unit, zeros,
};
use super::super::super::launch::{Grid, empty, launch, len, like, vector_size};
use super::super::problem::{Problem, of_query, queries_of};
use super::super::scores::{
    Numbers, Terms, bias, capped, end_of_keys, end_of_queries, first_key, first_query, is_whole,
    score_grad, sees, slope_of,
};
use super::rows::{
    accumulate, chunks_of_unit, fetch, fetches_ahead, left_of_memory, place, products, rows_of,
    store,
};

/// Rows of a cube's own tile.
const OWN: usize = PLANES * STRIP;

/// Number of rows of the other side's tile. Their scores and gradients are in registers, so there are fewer rows where
/// rows are long.
const fn others(widths: [usize; 2]) -> usize {
    if widths[0] <= 64 && widths[1] <= 64 { 64 } else { 32 }
}

/// Shared memory of the kernel that needs more of it, in bytes.
pub(super) fn shared_bytes(widths: [usize; 2]) -> usize {
    let rows = OWN + others(widths);
    rows * (pitch(widths[0]) + pitch(widths[1])) * 16 + 2 * others(widths) * size_of::<f32>()
}

/// The gradients of queries, keys and values, from the queries' log-sum-exp and `delta = rowsum(dO O)`, `[b, heads, s]`
/// in fp32, and the gradient of the output.
pub(super) fn input_grad<R: CubeRuntime>(
    problem: &Problem<R>,
    [q, k, v]: [&CubeTensor<R>; 3],
    [log_sum_exp, delta, grad]: [&CubeTensor<R>; 3],
) -> [CubeTensor<R>; 3] {
    let dims = &problem.dims;
    let widths = [dims.features, dims.value_features];
    let q_grad = like(q);
    // Query heads that share keys and values are summed afterwards, so that there are cubes enough for all
    // multiprocessors.
    let group = dims.heads / dims.kv_heads;
    let written = if group == 1 { q.dtype } else { DType::F32 };
    let [k_parts, v_parts] =
        widths.map(|width| empty(q, &[dims.batch, dims.keys, dims.heads, width], written));
    let slopes = problem.slopes.as_ref().unwrap_or(delta);
    let grid = |rows: usize| {
        let cubes = [rows.div_ceil(OWN), dims.heads, dims.batch];
        Grid::new(&[q, k, v, &k_parts, &v_parts], cubes, CubeDim::new_1d(UNITS as u32))
    };
    #[expect(unsafe_code, reason = "bounds that hold are not checked for each element")]
    // SAFETY: accesses stop at the last row, and features and heads are those of the arrays' shapes.
    unsafe {
        launch!(
            query_kernel::launch_unchecked,
            grid(dims.queries),
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
            problem.terms(),
            q.dtype.into(),
        );
        launch!(
            key_kernel::launch_unchecked,
            grid(dims.keys),
            q.clone().into_tensor_arg(),
            k.clone().into_tensor_arg(),
            v.clone().into_tensor_arg(),
            grad.clone().into_tensor_arg(),
            log_sum_exp.clone().into_tensor_arg(),
            delta.clone().into_tensor_arg(),
            slopes.clone().into_array_arg(),
            k_parts.clone().into_tensor_arg(),
            v_parts.clone().into_tensor_arg(),
            problem.numbers(),
            widths,
            problem.terms(),
            q.dtype.into(),
            written.into(),
        );
    }
    if group == 1 {
        return [q_grad, k_parts, v_parts];
    }
    [q_grad, sum_of_groups(k_parts, k, group), sum_of_groups(v_parts, v, group)]
}

/// `dQ = scale dS K`.
#[cube(launch_unchecked, address_type = "dynamic", fast_math = FastMath::all())]
#[expect(clippy::too_many_lines, reason = "what registers hold cannot be passed on piece by piece")]
fn query_kernel<F: Float>(
    q: &Tensor<Pair<F>>,
    k: &Tensor<Chunk<F>>,
    v: &Tensor<Chunk<F>>,
    grad: &Tensor<Pair<F>>,
    log_sum_exp: &Tensor<f32>,
    delta: &Tensor<f32>,
    slopes: &Array<f32>,
    q_grad: &mut Tensor<Pair<F>>,
    numbers: Numbers,
    #[comptime] widths: [usize; 2],
    #[comptime] terms: Terms,
    #[define(F)] _element: StorageType,
) {
    let [width, value_width] = widths;
    let other = comptime!(others(widths));
    let blocks = comptime!(other / COLUMNS);
    let (queries, keys) = (q.shape(1), k.shape(1));
    let head = CUBE_POS_Y as usize;
    let kv_head = head / (q.shape(2) / k.shape(2));
    // The last queries come first: where masks leave fewer keys to the first queries, the cubes that start first have
    // the most keys.
    let first = (queries.div_ceil(OWN) - 1 - CUBE_POS_X as usize) * OWN;
    let first_of_plane = first + plane() * STRIP;
    let mut k_tile =
        SharedMemory::<Chunk<F>>::new_aligned(comptime!(other * pitch(width)), 16usize);
    let mut v_tile =
        SharedMemory::<Chunk<F>>::new_aligned(comptime!(other * pitch(value_width)), 16usize);
    let mut next_k = Array::<Chunk<F>>::new(comptime!(chunks_of_unit(other, width)));
    let mut next_v = Array::<Chunk<F>>::new(comptime!(chunks_of_unit(other, value_width)));
    let slope = slope_of(slopes, head, terms);
    let mut q_parts = Sequence::<Registers<F>>::new();
    let mut grad_parts = Sequence::<Registers<F>>::new();
    #[unroll]
    for step in 0..comptime!(width / DEPTH) {
        q_parts.push(left_of_memory::<F>(q, head, first_of_plane, comptime!(step * DEPTH)));
    }
    #[unroll]
    for step in 0..comptime!(value_width / DEPTH) {
        grad_parts.push(left_of_memory::<F>(grad, head, first_of_plane, comptime!(step * DEPTH)));
    }
    let mut log_sum_exps = Array::<f32>::new(2usize);
    let mut deltas = Array::<f32>::new(2usize);
    #[unroll]
    for half in 0..2usize {
        let query = first_of_plane + row_of_unit() + half * 8;
        log_sum_exps[half] = f32::new(0.0);
        deltas[half] = f32::new(0.0);
        if query < queries {
            log_sum_exps[half] = of_query(log_sum_exp, head, query);
            deltas[half] = of_query(delta, head, query);
        }
    }
    let mut sums = zeros(comptime!(width / COLUMNS));
    let last = min(first + OWN, queries) - 1;
    let start = first_key(first, keys, &numbers, terms) / other;
    let end = end_of_keys(last, keys, &numbers, terms).div_ceil(other);
    let (k_rows, v_rows) = (rows_of::<F>(k, kv_head), rows_of::<F>(v, kv_head));
    let fetches_ahead = comptime!(fetches_ahead(widths));
    if fetches_ahead {
        fetch::<F>(&mut next_k, k, &k_rows, start * other, other, width);
        fetch::<F>(&mut next_v, v, &v_rows, start * other, other, value_width);
    }
    for tile in start..end {
        let first_of_tile = tile * other;
        if !fetches_ahead {
            fetch::<F>(&mut next_k, k, &k_rows, first_of_tile, other, width);
            fetch::<F>(&mut next_v, v, &v_rows, first_of_tile, other, value_width);
        }
        sync_cube();
        place::<F>(&mut k_tile, &next_k, other, width);
        place::<F>(&mut v_tile, &next_v, other, value_width);
        sync_cube();
        if fetches_ahead {
            fetch::<F>(&mut next_k, k, &k_rows, first_of_tile + other, other, width);
            fetch::<F>(&mut next_v, v, &v_rows, first_of_tile + other, other, value_width);
        }
        let mut scores = zeros(blocks);
        let mut grads = zeros(blocks);
        products::<F>(&q_parts, &k_tile, &mut scores, width, other, 1usize);
        products::<F>(&grad_parts, &v_tile, &mut grads, value_width, other, 1usize);
        let is_whole = is_whole(first, last, first_of_tile, other, keys, &numbers, terms);
        #[unroll]
        for block in 0..blocks {
            let of_scores = scores.index_mut(block);
            let of_grads = grads.index(block);
            #[unroll]
            for half in 0..2usize {
                let query = first_of_plane + row_of_unit() + half * 8;
                let mut pair = of_scores[half];
                let probability_grads = of_grads[half];
                #[unroll]
                for column in 0..2usize {
                    let key = first_of_tile + block * COLUMNS + column_of_unit() + column;
                    let capped = capped(pair[column], &numbers, terms);
                    let score = capped + bias(query, key, slope, &numbers, terms);
                    pair[column] = score_grad(
                        f32::exp(score - log_sum_exps[half]),
                        probability_grads[column],
                        deltas[half],
                        capped,
                        &numbers,
                        terms,
                    );
                }
                of_scores[half] = pair;
            }
        }
        if !is_whole {
            #[unroll]
            for block in 0..blocks {
                let of_scores = scores.index_mut(block);
                #[unroll]
                for half in 0..2usize {
                    let query = first_of_plane + row_of_unit() + half * 8;
                    let mut pair = of_scores[half];
                    #[unroll]
                    for column in 0..2usize {
                        let key = first_of_tile + block * COLUMNS + column_of_unit() + column;
                        let is_seen = key < keys && sees(query, key, &numbers, terms);
                        pair[column] = select(is_seen, pair[column], f32::new(0.0));
                    }
                    of_scores[half] = pair;
                }
            }
        }
        accumulate::<F>(&scores, &k_tile, &mut sums, width, other, 1usize);
    }
    let mut factors = Array::<f32>::new(2usize);
    factors[0] = numbers.scale;
    factors[1] = numbers.scale;
    store::<F>(&sums, q_grad, head, first_of_plane, &factors, 0usize, width);
}

/// `dV = P^T dO` and `dK = scale dS^T Q` of one query head.
#[cube(launch_unchecked, address_type = "dynamic", fast_math = FastMath::all())]
#[expect(clippy::too_many_lines, reason = "what registers hold cannot be passed on piece by piece")]
fn key_kernel<F: Float, O: Float>(
    q: &Tensor<Chunk<F>>,
    k: &Tensor<Chunk<F>>,
    v: &Tensor<Chunk<F>>,
    grad: &Tensor<Chunk<F>>,
    log_sum_exp: &Tensor<f32>,
    delta: &Tensor<f32>,
    slopes: &Array<f32>,
    k_grad: &mut Tensor<Pair<O>>,
    v_grad: &mut Tensor<Pair<O>>,
    numbers: Numbers,
    #[comptime] widths: [usize; 2],
    #[comptime] terms: Terms,
    #[define(F)] _element: StorageType,
    #[define(O)] _written: StorageType,
) {
    let [width, value_width] = widths;
    let other = comptime!(others(widths));
    let blocks = comptime!(other / COLUMNS);
    let (queries, keys) = (q.shape(1), k.shape(1));
    let head = CUBE_POS_Y as usize;
    let kv_head = head / (q.shape(2) / k.shape(2));
    let first = CUBE_POS_X as usize * OWN;
    let row_of_plane = plane() * STRIP;
    let first_of_plane = first + row_of_plane;
    let mut k_tile = SharedMemory::<Chunk<F>>::new_aligned(comptime!(OWN * pitch(width)), 16usize);
    let mut v_tile =
        SharedMemory::<Chunk<F>>::new_aligned(comptime!(OWN * pitch(value_width)), 16usize);
    let mut q_tile =
        SharedMemory::<Chunk<F>>::new_aligned(comptime!(other * pitch(width)), 16usize);
    let mut grad_tile =
        SharedMemory::<Chunk<F>>::new_aligned(comptime!(other * pitch(value_width)), 16usize);
    let mut log_sum_exps = SharedMemory::<f32>::new(other);
    let mut deltas = SharedMemory::<f32>::new(other);
    let (k_rows, v_rows) = (rows_of::<F>(k, kv_head), rows_of::<F>(v, kv_head));
    let (q_rows, grad_rows) = (rows_of::<F>(q, head), rows_of::<F>(grad, head));
    let mut own_k = Array::<Chunk<F>>::new(comptime!(chunks_of_unit(OWN, width)));
    let mut own_v = Array::<Chunk<F>>::new(comptime!(chunks_of_unit(OWN, value_width)));
    fetch::<F>(&mut own_k, k, &k_rows, first, OWN, width);
    fetch::<F>(&mut own_v, v, &v_rows, first, OWN, value_width);
    place::<F>(&mut k_tile, &own_k, OWN, width);
    place::<F>(&mut v_tile, &own_v, OWN, value_width);
    let slope = slope_of(slopes, head, terms);
    let mut k_sums = zeros(comptime!(width / COLUMNS));
    let mut v_sums = zeros(comptime!(value_width / COLUMNS));
    let last = min(first + OWN, keys) - 1;
    let start = first_query(first, queries, &numbers, terms) / other;
    let end = end_of_queries(last, queries, &numbers, terms).div_ceil(other);
    let mut next_q = Array::<Chunk<F>>::new(comptime!(chunks_of_unit(other, width)));
    let mut next_grad = Array::<Chunk<F>>::new(comptime!(chunks_of_unit(other, value_width)));
    let mut next_of_query = Array::<f32>::new(2usize);
    let unit = UNIT_POS as usize;
    let (sums_of, deltas_of) = (queries_of(log_sum_exp, head), queries_of(delta, head));
    let fetches_ahead = comptime!(fetches_ahead(widths));
    if fetches_ahead {
        fetch::<F>(&mut next_q, q, &q_rows, start * other, other, width);
        fetch::<F>(&mut next_grad, grad, &grad_rows, start * other, other, value_width);
        let query = min(start * other + unit, queries - 1);
        next_of_query[0] = log_sum_exp[sums_of.base + query * sums_of.stride];
        next_of_query[1] = delta[deltas_of.base + query * deltas_of.stride];
    }
    for tile in start..end {
        let first_of_tile = tile * other;
        if !fetches_ahead {
            fetch::<F>(&mut next_q, q, &q_rows, first_of_tile, other, width);
            fetch::<F>(&mut next_grad, grad, &grad_rows, first_of_tile, other, value_width);
            let query = min(first_of_tile + unit, queries - 1);
            next_of_query[0] = log_sum_exp[sums_of.base + query * sums_of.stride];
            next_of_query[1] = delta[deltas_of.base + query * deltas_of.stride];
        }
        sync_cube();
        place::<F>(&mut q_tile, &next_q, other, width);
        place::<F>(&mut grad_tile, &next_grad, other, value_width);
        if unit < other {
            log_sum_exps[unit] = next_of_query[0];
            deltas[unit] = next_of_query[1];
        }
        sync_cube();
        if fetches_ahead {
            let first_of_next = first_of_tile + other;
            fetch::<F>(&mut next_q, q, &q_rows, first_of_next, other, width);
            fetch::<F>(&mut next_grad, grad, &grad_rows, first_of_next, other, value_width);
            let query = min(first_of_next + unit, queries - 1);
            next_of_query[0] = log_sum_exp[sums_of.base + query * sums_of.stride];
            next_of_query[1] = delta[deltas_of.base + query * deltas_of.stride];
        }
        // Keys and values are read again in each step: registers hold the sums of both.
        let mut k_parts = Sequence::<Registers<F>>::new();
        #[unroll]
        for step in 0..comptime!(width / DEPTH) {
            let chunk = comptime!(step * DEPTH / CHUNK);
            k_parts.push(left::<F>(&k_tile, row_of_plane, chunk, comptime!(pitch(width))));
        }
        let mut scores = zeros(blocks);
        products::<F>(&k_parts, &q_tile, &mut scores, width, other, 1usize);
        let mut v_parts = Sequence::<Registers<F>>::new();
        #[unroll]
        for step in 0..comptime!(value_width / DEPTH) {
            let chunk = comptime!(step * DEPTH / CHUNK);
            let pitch = comptime!(pitch(value_width));
            v_parts.push(left::<F>(&v_tile, row_of_plane, chunk, pitch));
        }
        let mut grads = zeros(blocks);
        products::<F>(&v_parts, &grad_tile, &mut grads, value_width, other, 1usize);
        let last_query = min(first_of_tile + other, queries) - 1;
        let is_whole = last_query + 1 == first_of_tile + other
            && is_whole(first_of_tile, last_query, first, OWN, keys, &numbers, terms);
        #[unroll]
        for block in 0..blocks {
            let of_scores = scores.index_mut(block);
            let of_grads = grads.index_mut(block);
            #[unroll]
            for half in 0..2usize {
                let key = first_of_plane + row_of_unit() + half * 8;
                let first_query = first_of_tile + block * COLUMNS + column_of_unit();
                let mut probabilities = of_scores[half];
                let mut pair = of_grads[half];
                #[unroll]
                for column in 0..2usize {
                    let place = block * COLUMNS + column_of_unit() + column;
                    let capped = capped(probabilities[column], &numbers, terms);
                    let of_place = bias(first_query + column, key, slope, &numbers, terms);
                    let probability = f32::exp(capped + of_place - log_sum_exps[place]);
                    let (grad, delta) = (pair[column], deltas[place]);
                    pair[column] = score_grad(probability, grad, delta, capped, &numbers, terms);
                    probabilities[column] = probability;
                }
                of_scores[half] = probabilities;
                of_grads[half] = pair;
            }
        }
        if !is_whole {
            #[unroll]
            for block in 0..blocks {
                let of_scores = scores.index_mut(block);
                let of_grads = grads.index_mut(block);
                #[unroll]
                for half in 0..2usize {
                    let key = first_of_plane + row_of_unit() + half * 8;
                    let mut probabilities = of_scores[half];
                    let mut pair = of_grads[half];
                    #[unroll]
                    for column in 0..2usize {
                        let query = first_of_tile + block * COLUMNS + column_of_unit() + column;
                        let is_there = query < queries && key < keys;
                        let is_seen = is_there && sees(query, key, &numbers, terms);
                        pair[column] = select(is_seen, pair[column], f32::new(0.0));
                        probabilities[column] =
                            select(is_seen, probabilities[column], f32::new(0.0));
                    }
                    of_scores[half] = probabilities;
                    of_grads[half] = pair;
                }
            }
        }
        accumulate::<F>(&scores, &grad_tile, &mut v_sums, value_width, other, 1usize);
        accumulate::<F>(&grads, &q_tile, &mut k_sums, width, other, 1usize);
    }
    let mut factors = Array::<f32>::new(2usize);
    factors[0] = numbers.scale;
    factors[1] = numbers.scale;
    store::<O>(&k_sums, k_grad, head, first_of_plane, &factors, 0usize, width);
    factors[0] = f32::new(1.0);
    factors[1] = f32::new(1.0);
    store::<O>(&v_sums, v_grad, head, first_of_plane, &factors, 0usize, value_width);
}

/// The sums of `[.., kv_heads, group, width]` over the heads of a group, in order.
fn sum_of_groups<R: CubeRuntime>(
    parts: CubeTensor<R>,
    x: &CubeTensor<R>,
    group: usize,
) -> CubeTensor<R> {
    let sums = like(x);
    let size = vector_size(&[&parts, &sums]);
    let width = x.meta.shape()[3] / size;
    let count = len(&sums) / size;
    let grid = Grid::of_units(&[&parts], count);
    let (parts, of_groups) = (parts.into_array_arg(), sums.clone().into_array_arg());
    launch!(group_kernel, grid, size, parts, of_groups, group, width, count, x.dtype.into());
    sums
}

#[cube(launch, address_type = "dynamic")]
fn group_kernel<F: Float, N: Size>(
    parts: &Array<Vector<f32, N>>,
    sums: &mut Array<Vector<F, N>>,
    group: usize,
    width: usize,
    count: usize,
    #[define(F)] _element: StorageType,
) {
    if ABSOLUTE_POS < count {
        let first = ABSOLUTE_POS / width * group * width + ABSOLUTE_POS % width;
        let mut sum = parts[first];
        for member in 1..group {
            sum += parts[first + member * width];
        }
        sums[ABSOLUTE_POS] = Vector::<F, N>::cast_from(sum);
    }
}
