//! Kernels with one cube for each row: norms and exponentials, which need a sum over the row.
//!
//! Units read vectors of elements. A row that a kernel reads twice comes from a cache the second time.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{
    Grid, UNITS, cube_max, cube_sum, empty, has_planes, launch, len, like, rows_and_width, sum_of,
    units_of_row, vector_size,
};

/// Statistics of a norm, `[rows, 1]` in fp32.
pub(super) struct Measured<R: CubeRuntime> {
    /// The mean of each row; none for a root-mean-square norm.
    pub(super) mean: Option<CubeTensor<R>>,
    pub(super) inverse_deviation: CubeTensor<R>,
}

/// Normalised rows, and their statistics.
pub(super) fn norm<R: CubeRuntime>(
    x: CubeTensor<R>,
    weight: Option<CubeTensor<R>>,
    bias: Option<CubeTensor<R>>,
    epsilon: f32,
    has_mean: bool,
) -> (CubeTensor<R>, Measured<R>) {
    let x = into_contiguous(x);
    let ([rows, width], y) = (rows_and_width(&x), like(&x));
    let statistic = || empty(&x, &[rows, 1], DType::F32);
    let measured = Measured { mean: has_mean.then(statistic), inverse_deviation: statistic() };
    if rows > 0 {
        let (has_weight, has_bias) = (weight.is_some(), bias.is_some());
        // Absent parameters are not read: any array will do.
        let weight = into_contiguous(weight.unwrap_or_else(|| x.clone()));
        let bias = into_contiguous(bias.unwrap_or_else(|| x.clone()));
        let size = vector_size(&[&x, &weight, &bias]);
        let (units, planes) = (units_of_row(width / size), has_planes(&x.client));
        let element = x.dtype.into();
        launch!(
            norm_kernel,
            Grid::of_cubes(&[&x, &y], rows, units),
            size,
            x.into_array_arg(),
            weight.into_array_arg(),
            bias.into_array_arg(),
            y.clone().into_array_arg(),
            measured.mean.as_ref().unwrap_or(&measured.inverse_deviation).clone().into_array_arg(),
            measured.inverse_deviation.clone().into_array_arg(),
            rows,
            width,
            epsilon,
            has_mean,
            has_weight,
            has_bias,
            units,
            planes,
            element,
        );
    }
    (y, measured)
}

/// The gradient of the rows.
pub(super) fn norm_input_grad<R: CubeRuntime>(
    x: CubeTensor<R>,
    measured: Measured<R>,
    weight: Option<CubeTensor<R>>,
    grad: CubeTensor<R>,
) -> CubeTensor<R> {
    let (x, grad) = (into_contiguous(x), into_contiguous(grad));
    let ([rows, width], input_grad) = (rows_and_width(&x), like(&x));
    if rows > 0 {
        let (has_mean, has_weight) = (measured.mean.is_some(), weight.is_some());
        let inverse_deviation = into_contiguous(measured.inverse_deviation);
        let mean = measured.mean.map_or_else(|| inverse_deviation.clone(), into_contiguous);
        let weight = into_contiguous(weight.unwrap_or_else(|| x.clone()));
        let size = vector_size(&[&x, &grad, &weight]);
        let (units, planes) = (units_of_row(width / size), has_planes(&x.client));
        let element = x.dtype.into();
        launch!(
            norm_input_grad_kernel,
            Grid::of_cubes(&[&x, &grad], rows, units),
            size,
            x.into_array_arg(),
            weight.into_array_arg(),
            grad.into_array_arg(),
            mean.into_array_arg(),
            inverse_deviation.into_array_arg(),
            input_grad.clone().into_array_arg(),
            rows,
            width,
            has_mean,
            has_weight,
            units,
            planes,
            element,
        );
    }
    input_grad
}

/// `e^(logit - max)` in fp32, and its sum over each row, `[rows, 1]`.
pub(super) fn exponentials<R: CubeRuntime>(
    logits: CubeTensor<R>,
    max: CubeTensor<R>,
) -> [CubeTensor<R>; 2] {
    let logits = into_contiguous(logits);
    let [rows, width] = rows_and_width(&logits);
    let exponentials = empty(&logits, &[rows, width], DType::F32);
    let sum = empty(&logits, &[rows, 1], DType::F32);
    if len(&exponentials) > 0 {
        let (planes, element) = (has_planes(&logits.client), logits.dtype.into());
        launch!(
            exponentials_kernel,
            Grid::of_cubes(&[&exponentials], rows, UNITS),
            vector_size(&[&logits, &exponentials]),
            logits.into_array_arg(),
            into_contiguous(max).into_array_arg(),
            exponentials.clone().into_array_arg(),
            sum.clone().into_array_arg(),
            rows,
            width,
            planes,
            element,
        );
    }
    [exponentials, sum]
}

/// The greatest logit of each row, and the sum of `e^(logit - greatest)` over it, `[rows, 1]` in fp32.
pub(super) fn measures<R: CubeRuntime>(logits: CubeTensor<R>) -> [CubeTensor<R>; 2] {
    let logits = into_contiguous(logits);
    let [rows, width] = rows_and_width(&logits);
    let [greatest, sums] = [(); 2].map(|()| empty(&logits, &[rows, 1], DType::F32));
    if rows > 0 {
        let (planes, element) = (has_planes(&logits.client), logits.dtype.into());
        launch!(
            measures_kernel,
            Grid::of_cubes(&[&logits], rows, UNITS),
            vector_size(&[&logits]),
            logits.into_array_arg(),
            greatest.clone().into_array_arg(),
            sums.clone().into_array_arg(),
            rows,
            width,
            planes,
            element,
        );
    }
    [greatest, sums]
}

#[cube(launch, address_type = "dynamic")]
fn norm_kernel<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    weight: &Array<Vector<F, N>>,
    bias: &Array<Vector<F, N>>,
    y: &mut Array<Vector<F, N>>,
    means: &mut Array<f32>,
    inverse_deviations: &mut Array<f32>,
    rows: usize,
    width: usize,
    epsilon: f32,
    #[comptime] has_mean: bool,
    #[comptime] has_weight: bool,
    #[comptime] has_bias: bool,
    #[comptime] units: usize,
    #[comptime] planes: bool,
    #[define(F)] _element: StorageType,
) {
    let row = CUBE_POS;
    if row < rows {
        let vectors = width / N::value();
        let base = row * vectors;
        let unit = UNIT_POS as usize;
        let count = f32::cast_from(width);
        let mut mean = f32::new(0.0);
        if has_mean {
            let mut sum = f32::new(0.0);
            for i in range_stepped(unit, vectors, units) {
                sum += sum_of::<N>(Vector::cast_from(x[base + i]));
            }
            mean = cube_sum(sum, units, planes) / count;
        }
        let mut squares = f32::new(0.0);
        for i in range_stepped(unit, vectors, units) {
            let centred = Vector::<f32, N>::cast_from(x[base + i]) - Vector::new(mean);
            squares += sum_of::<N>(centred * centred);
        }
        let variance = cube_sum(squares, units, planes) / count;
        let inverse_deviation = 1.0 / f32::sqrt(variance + epsilon);
        for i in range_stepped(unit, vectors, units) {
            let centred = Vector::<f32, N>::cast_from(x[base + i]) - Vector::new(mean);
            let mut value = centred * Vector::new(inverse_deviation);
            if has_weight {
                value *= Vector::cast_from(weight[i]);
            }
            if has_bias {
                value += Vector::cast_from(bias[i]);
            }
            y[base + i] = Vector::cast_from(value);
        }
        if unit == 0 {
            if has_mean {
                means[row] = mean;
            }
            inverse_deviations[row] = inverse_deviation;
        }
    }
}

#[cube(launch, address_type = "dynamic")]
fn norm_input_grad_kernel<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    weight: &Array<Vector<F, N>>,
    grad: &Array<Vector<F, N>>,
    means: &Array<f32>,
    inverse_deviations: &Array<f32>,
    input_grad: &mut Array<Vector<F, N>>,
    rows: usize,
    width: usize,
    #[comptime] has_mean: bool,
    #[comptime] has_weight: bool,
    #[comptime] units: usize,
    #[comptime] planes: bool,
    #[define(F)] _element: StorageType,
) {
    let row = CUBE_POS;
    if row < rows {
        let vectors = width / N::value();
        let base = row * vectors;
        let unit = UNIT_POS as usize;
        let count = f32::cast_from(width);
        let inverse_deviation = Vector::<f32, N>::new(inverse_deviations[row]);
        let mut mean = Vector::<f32, N>::new(0.0);
        if has_mean {
            mean = Vector::new(means[row]);
        }
        let mut along = f32::new(0.0);
        let mut total = f32::new(0.0);
        for i in range_stepped(unit, vectors, units) {
            let normalised = (Vector::cast_from(x[base + i]) - mean) * inverse_deviation;
            let mut weighted = Vector::<f32, N>::cast_from(grad[base + i]);
            if has_weight {
                weighted *= Vector::cast_from(weight[i]);
            }
            along += sum_of::<N>(weighted * normalised);
            total += sum_of::<N>(weighted);
        }
        let projection = Vector::<f32, N>::new(cube_sum(along, units, planes) / count);
        let mut mean_grad = Vector::<f32, N>::new(0.0);
        if has_mean {
            mean_grad = Vector::new(cube_sum(total, units, planes) / count);
        }
        for i in range_stepped(unit, vectors, units) {
            let normalised = (Vector::cast_from(x[base + i]) - mean) * inverse_deviation;
            let mut weighted = Vector::<f32, N>::cast_from(grad[base + i]);
            if has_weight {
                weighted *= Vector::cast_from(weight[i]);
            }
            let across = weighted - mean_grad - normalised * projection;
            input_grad[base + i] = Vector::cast_from(across * inverse_deviation);
        }
    }
}

/// Finite replacement for minus infinity, below any logit: differences of infinities are NaN.
const LOWEST: f32 = -3.0e38;

#[cube(launch, address_type = "dynamic")]
fn measures_kernel<F: Float, N: Size>(
    logits: &Array<Vector<F, N>>,
    greatest: &mut Array<f32>,
    sums: &mut Array<f32>,
    rows: usize,
    width: usize,
    #[comptime] planes: bool,
    #[define(F)] _element: StorageType,
) {
    let row = CUBE_POS;
    if row < rows {
        let vectors = width / N::value();
        let base = row * vectors;
        let mut top = f32::new(LOWEST);
        let mut sum = f32::new(0.0);
        for i in range_stepped(UNIT_POS as usize, vectors, UNITS) {
            let logits = Vector::<f32, N>::cast_from(logits[base + i]);
            let mut next = top;
            #[unroll]
            for j in 0..logits.vector_size() {
                next = max(next, logits[j]);
            }
            sum *= f32::exp(top - next);
            #[unroll]
            for j in 0..logits.vector_size() {
                sum += f32::exp(logits[j] - next);
            }
            top = next;
        }
        let of_row = cube_max(top, UNITS, planes);
        let sum = cube_sum(sum * f32::exp(top - of_row), UNITS, planes);
        if UNIT_POS == 0 {
            greatest[row] = of_row;
            sums[row] = sum;
        }
    }
}

#[cube(launch, address_type = "dynamic")]
fn exponentials_kernel<F: Float, N: Size>(
    logits: &Array<Vector<F, N>>,
    max: &Array<f32>,
    exponentials: &mut Array<Vector<f32, N>>,
    sums: &mut Array<f32>,
    rows: usize,
    width: usize,
    #[comptime] planes: bool,
    #[define(F)] _element: StorageType,
) {
    let row = CUBE_POS;
    if row < rows {
        let vectors = width / N::value();
        let base = row * vectors;
        let unit = UNIT_POS as usize;
        let max = max[row];
        let mut sum = f32::new(0.0);
        for i in range_stepped(unit, vectors, UNITS) {
            let mut values = Vector::<f32, N>::cast_from(logits[base + i]);
            #[unroll]
            for j in 0..values.vector_size() {
                values[j] = f32::exp(values[j] - max);
            }
            exponentials[base + i] = values;
            sum += sum_of::<N>(values);
        }
        let sum = cube_sum(sum, UNITS, planes);
        if unit == 0 {
            sums[row] = sum;
        }
    }
}

/// Units that add up one row's products.
const LANES: usize = 16;

/// `rowsum(a b)`, `[b, heads, s]` in fp32, of `[b, s, heads, d]`.
pub(super) fn row_products<R: CubeRuntime>(a: CubeTensor<R>, b: CubeTensor<R>) -> CubeTensor<R> {
    let (a, b) = (into_contiguous(a), into_contiguous(b));
    let shape = a.meta.shape();
    let (length, heads, width) = (shape[1], shape[2], shape[3]);
    let sums = empty(&a, &[shape[0], heads, length], DType::F32);
    let rows = len(&sums);
    if rows > 0 {
        let element = a.dtype.into();
        launch!(
            row_products_kernel,
            Grid::of_cubes(&[&a, &b], rows.div_ceil(UNITS / LANES), UNITS),
            vector_size(&[&a, &b]),
            a.into_array_arg(),
            b.into_array_arg(),
            sums.clone().into_array_arg(),
            length,
            heads,
            width,
            element,
        );
    }
    sums
}

#[cube(launch, address_type = "dynamic")]
fn row_products_kernel<F: Float, N: Size>(
    a: &Array<Vector<F, N>>,
    b: &Array<Vector<F, N>>,
    sums: &mut Array<f32>,
    length: usize,
    heads: usize,
    width: usize,
    #[define(F)] _element: StorageType,
) {
    let lane = UNIT_POS as usize % LANES;
    let row = CUBE_POS * comptime!(UNITS / LANES) + UNIT_POS as usize / LANES;
    let mut parts = SharedMemory::<f32>::new(UNITS);
    let mut sum = f32::new(0.0);
    if row < sums.len() {
        let vectors = width / N::value();
        for i in range_stepped(lane, vectors, LANES) {
            let a = Vector::<f32, N>::cast_from(a[row * vectors + i]);
            sum += sum_of::<N>(a * Vector::cast_from(b[row * vectors + i]));
        }
    }
    parts[UNIT_POS as usize] = sum;
    sync_cube();
    if row < sums.len() && lane == 0 {
        let mut total = f32::new(0.0);
        for part in 0..LANES {
            total += parts[UNIT_POS as usize + part];
        }
        // Rows are ordered by batch, position and head, sums by batch, head and position.
        let (head, position) = (row % heads, row / heads % length);
        let batch = row / (heads * length);
        sums[(batch * heads + head) * length + position] = total;
    }
}
