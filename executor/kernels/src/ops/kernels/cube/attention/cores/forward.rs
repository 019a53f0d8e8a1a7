//! The output and the log-sum-exp, by tensor cores: one cube for each tile of a head's queries, in which each plane has
//! strips of 16 queries and loops over all keys.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::FastMath;
use cubecl::prelude::*;

use super::super::super::fragments::{
    COLUMNS, Chunk, DEPTH, PLANES, Pair, Registers, STRIP, UNITS, column_of_unit, pitch, plane,
    row_of_unit, zeros,
};
use super::super::super::launch::{Grid, empty, launch};
use super::super::problem::Problem;
use super::super::scores::{
    LOWEST, Numbers, Terms, bias, capped, end_of_keys, first_key, is_whole, sees, slope_of,
};
use super::rows::{
    accumulate, chunks_of_unit, fetch, fetches_ahead, left_of_memory, max_of_row, place, products,
    rows_of, store, sum_of_row,
};

/// Keys of a tile.
const KEYS: usize = 64;

/// Number of strips of a plane where rows are short enough for its registers. Keys and values are read once for all
/// strips.
const STRIPS: usize = 2;

/// The widest row for which a plane has several strips.
const SHORT: usize = 64;

/// The output `[b, s, heads, dv]` and the log-sum-exp `[b, heads, s]`.
pub(super) fn forward<R: CubeRuntime>(
    problem: &Problem<R>,
    [q, k, v]: [&CubeTensor<R>; 3],
) -> [CubeTensor<R>; 2] {
    let dims = &problem.dims;
    let widths = [dims.features, dims.value_features];
    let strips = if widths[0].max(widths[1]) <= SHORT { STRIPS } else { 1 };
    let out = empty(q, &[dims.batch, dims.queries, dims.heads, widths[1]], q.dtype);
    let log_sum_exp = empty(q, &[dims.batch, dims.heads, dims.queries], DType::F32);
    let tiles = dims.queries.div_ceil(PLANES * strips * STRIP);
    let cubes = [tiles, dims.heads, dims.batch];
    #[expect(unsafe_code, reason = "bounds that hold are not checked for each element")]
    // SAFETY: accesses stop at the last row, and features and heads are those of the arrays' shapes.
    unsafe {
        launch!(
            forward_kernel::launch_unchecked,
            Grid::new(&[q, k, v, &out], cubes, CubeDim::new_1d(UNITS as u32)),
            q.clone().into_tensor_arg(),
            k.clone().into_tensor_arg(),
            v.clone().into_tensor_arg(),
            problem.slopes.as_ref().unwrap_or(&log_sum_exp).clone().into_array_arg(),
            out.clone().into_tensor_arg(),
            log_sum_exp.clone().into_tensor_arg(),
            problem.numbers(),
            widths,
            strips,
            problem.terms(),
            q.dtype.into(),
        );
    }
    [out, log_sum_exp]
}

#[cube(launch_unchecked, address_type = "dynamic", fast_math = FastMath::all())]
#[expect(clippy::too_many_lines, reason = "what registers hold cannot be passed on piece by piece")]
fn forward_kernel<F: Float>(
    q: &Tensor<Pair<F>>,
    k: &Tensor<Chunk<F>>,
    v: &Tensor<Chunk<F>>,
    slopes: &Array<f32>,
    out: &mut Tensor<Pair<F>>,
    log_sum_exp: &mut Tensor<f32>,
    numbers: Numbers,
    #[comptime] widths: [usize; 2],
    #[comptime] strips: usize,
    #[comptime] terms: Terms,
    #[define(F)] _element: StorageType,
) {
    let [width, value_width] = widths;
    let steps = comptime!(width / DEPTH);
    let key_blocks = comptime!(KEYS / COLUMNS);
    let value_blocks = comptime!(value_width / COLUMNS);
    let (queries, keys) = (q.shape(1), k.shape(1));
    let head = CUBE_POS_Y as usize;
    let kv_head = head / (q.shape(2) / k.shape(2));
    let own = comptime!(PLANES * strips * STRIP);
    // The last queries come first: where masks leave fewer keys to the first queries, the cubes that start first have
    // the most keys.
    let first = (queries.div_ceil(own) - 1 - CUBE_POS_X as usize) * own;
    let first_of_plane = first + plane() * comptime!(strips * STRIP);
    let mut k_tile = SharedMemory::<Chunk<F>>::new_aligned(comptime!(KEYS * pitch(width)), 16usize);
    let mut v_tile =
        SharedMemory::<Chunk<F>>::new_aligned(comptime!(KEYS * pitch(value_width)), 16usize);
    let mut next_k = Array::<Chunk<F>>::new(comptime!(chunks_of_unit(KEYS, width)));
    let mut next_v = Array::<Chunk<F>>::new(comptime!(chunks_of_unit(KEYS, value_width)));
    let slope = slope_of(slopes, head, terms);
    let mut q_parts = Sequence::<Registers<F>>::new();
    #[unroll]
    for strip in 0..strips {
        #[unroll]
        for step in 0..steps {
            let first_of_strip = first_of_plane + strip * STRIP;
            q_parts.push(left_of_memory::<F>(q, head, first_of_strip, comptime!(step * DEPTH)));
        }
    }
    // Products are scaled in the exponential, unless a cap or a bias is applied before it.
    let mut factor = f32::new(1.0);
    if comptime!(terms.is_plain()) {
        factor = numbers.scale;
    }
    let mut sums = zeros(comptime!(strips * value_blocks));
    // The unit has two rows of each strip.
    let mut tops = Array::<f32>::new(comptime!(2 * strips));
    let mut totals = Array::<f32>::new(comptime!(2 * strips));
    #[unroll]
    for row in 0..comptime!(2 * strips) {
        tops[row] = f32::new(LOWEST);
        totals[row] = f32::new(0.0);
    }
    let last = min(first + own, queries) - 1;
    let start = first_key(first, keys, &numbers, terms) / KEYS;
    let end = end_of_keys(last, keys, &numbers, terms).div_ceil(KEYS);
    let (k_rows, v_rows) = (rows_of::<F>(k, kv_head), rows_of::<F>(v, kv_head));
    let fetches_ahead = comptime!(fetches_ahead(widths));
    if fetches_ahead {
        fetch::<F>(&mut next_k, k, &k_rows, start * KEYS, KEYS, width);
        fetch::<F>(&mut next_v, v, &v_rows, start * KEYS, KEYS, value_width);
    }
    for tile in start..end {
        let first_of_tile = tile * KEYS;
        if !fetches_ahead {
            fetch::<F>(&mut next_k, k, &k_rows, first_of_tile, KEYS, width);
            fetch::<F>(&mut next_v, v, &v_rows, first_of_tile, KEYS, value_width);
        }
        sync_cube();
        place::<F>(&mut k_tile, &next_k, KEYS, width);
        place::<F>(&mut v_tile, &next_v, KEYS, value_width);
        sync_cube();
        if fetches_ahead {
            fetch::<F>(&mut next_k, k, &k_rows, first_of_tile + KEYS, KEYS, width);
            fetch::<F>(&mut next_v, v, &v_rows, first_of_tile + KEYS, KEYS, value_width);
        }
        let mut scores = zeros(comptime!(strips * key_blocks));
        products::<F>(&q_parts, &k_tile, &mut scores, width, KEYS, strips);
        let is_whole = is_whole(first, last, first_of_tile, KEYS, keys, &numbers, terms);
        #[unroll]
        for strip in 0..strips {
            #[unroll]
            for half in 0..2usize {
                let query = first_of_plane + strip * STRIP + row_of_unit() + half * 8;
                let row = comptime!(2 * strip + half);
                if comptime!(!terms.is_plain()) {
                    score(&mut scores, query, first_of_tile, slope, &numbers, row, terms);
                }
                if !is_whole {
                    hide(&mut scores, query, first_of_tile, keys, &numbers, row, terms);
                }
                let shrink = weigh(&mut scores, &mut tops, &mut totals, factor, row);
                #[unroll]
                for block in 0..value_blocks {
                    let registers = sums.index_mut(comptime!(strip * value_blocks + block));
                    registers[half] *= Pair::<f32>::new(shrink);
                }
            }
        }
        accumulate::<F>(&scores, &v_tile, &mut sums, value_width, KEYS, strips);
    }
    #[unroll]
    for strip in 0..strips {
        let first_of_strip = first_of_plane + strip * STRIP;
        let mut shares = Array::<f32>::new(2usize);
        #[unroll]
        for half in 0..2usize {
            let row = comptime!(2 * strip + half);
            let total = sum_of_row(totals[row]);
            // In a row that sees a key, the largest score alone contributes 1 to the sum.
            shares[half] = 1.0 / max(total, f32::new(1.0));
            let query = first_of_strip + row_of_unit() + half * 8;
            if column_of_unit() == 0 && query < queries {
                let base =
                    CUBE_POS_Z as usize * log_sum_exp.stride(0) + head * log_sum_exp.stride(1);
                // The logarithm of zero is minus infinity.
                log_sum_exp[base + query] = tops[row] * factor + f32::ln(total);
            }
        }
        store::<F>(
            &sums,
            out,
            head,
            first_of_strip,
            &shares,
            comptime!(strip * value_blocks),
            value_width,
        );
    }
}

/// Turns the products of one of the unit's rows into scores: caps them, and adds the position bias.
#[cube]
fn score(
    scores: &mut Sequence<Registers<f32>>,
    query: usize,
    first_key: usize,
    slope: f32,
    numbers: &Numbers,
    #[comptime] row: usize,
    #[comptime] terms: Terms,
) {
    #[unroll]
    for block in 0..comptime!(KEYS / COLUMNS) {
        let registers = scores.index_mut(comptime!(row / 2 * (KEYS / COLUMNS) + block));
        let mut pair = registers[comptime!(row % 2)];
        #[unroll]
        for column in 0..2usize {
            let key = first_key + block * COLUMNS + column_of_unit() + column;
            pair[column] =
                capped(pair[column], numbers, terms) + bias(query, key, slope, numbers, terms);
        }
        registers[comptime!(row % 2)] = pair;
    }
}

/// Masks the keys that a query does not see in one of the unit's rows.
#[cube]
fn hide(
    scores: &mut Sequence<Registers<f32>>,
    query: usize,
    first_key: usize,
    keys: usize,
    numbers: &Numbers,
    #[comptime] row: usize,
    #[comptime] terms: Terms,
) {
    #[unroll]
    for block in 0..comptime!(KEYS / COLUMNS) {
        let registers = scores.index_mut(comptime!(row / 2 * (KEYS / COLUMNS) + block));
        let mut pair = registers[comptime!(row % 2)];
        #[unroll]
        for column in 0..2usize {
            let key = first_key + block * COLUMNS + column_of_unit() + column;
            let is_seen = key < keys && sees(query, key, numbers, terms);
            pair[column] = select(is_seen, pair[column], f32::new(LOWEST));
        }
        registers[comptime!(row % 2)] = pair;
    }
}

/// Turns the scores of one of the unit's rows into weights, and adds them to their total. Returns the factor by which
/// earlier sums shrink.
#[cube]
fn weigh(
    scores: &mut Sequence<Registers<f32>>,
    tops: &mut Array<f32>,
    totals: &mut Array<f32>,
    factor: f32,
    #[comptime] row: usize,
) -> f32 {
    let blocks = comptime!(KEYS / COLUMNS);
    let mut highest = f32::new(LOWEST);
    #[unroll]
    for block in 0..blocks {
        let pair = scores.index(comptime!(row / 2 * blocks + block))[comptime!(row % 2)];
        highest = max(highest, max(pair[0], pair[1]));
    }
    let top = max(tops[row], max_of_row(highest));
    // A row that has seen no key yet has nothing to shrink, and stays zero.
    let reference = select(top <= f32::new(LOWEST), f32::new(0.0), top * factor);
    let shrink = f32::exp(tops[row] * factor - reference);
    tops[row] = top;
    let mut total = totals[row] * shrink;
    #[unroll]
    for block in 0..blocks {
        let registers = scores.index_mut(comptime!(row / 2 * blocks + block));
        let pair = registers[comptime!(row % 2)];
        let mut weights = Pair::<f32>::empty();
        weights[0] = f32::exp(pair[0] * factor - reference);
        weights[1] = f32::exp(pair[1] * factor - reference);
        total += weights[0] + weights[1];
        registers[comptime!(row % 2)] = weights;
    }
    totals[row] = total;
    shrink
}
