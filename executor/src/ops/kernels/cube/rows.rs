//! One cube for each row: norms and exponentials, which need a sum over it.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{UNITS, addresses, beside, cube_sum, cubes, has_planes, len, like};

/// What a norm measured of each row, `[rows, 1]` in fp32.
pub(super) struct Measured<R: CubeRuntime> {
    /// None for a root-mean-square norm.
    pub(super) mean: Option<CubeTensor<R>>,
    pub(super) inverse_deviation: CubeTensor<R>,
}

/// Normalised rows, and what was measured.
pub(super) fn norm<R: CubeRuntime>(
    x: CubeTensor<R>,
    weight: Option<CubeTensor<R>>,
    bias: Option<CubeTensor<R>>,
    epsilon: f32,
    has_mean: bool,
) -> (CubeTensor<R>, Measured<R>) {
    let x = into_contiguous(x);
    let (client, element, y) = (x.client.clone(), x.dtype, like(&x));
    let (rows, width) = (x.meta.shape()[0], x.meta.shape()[1]);
    let statistic = || beside(&x, &[rows, 1], DType::F32);
    let measured = Measured { mean: has_mean.then(statistic), inverse_deviation: statistic() };
    if rows > 0 {
        let (has_weight, has_bias) = (weight.is_some(), bias.is_some());
        norm_kernel::launch(
            &client,
            cubes(&client, rows),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[&x, &y]),
            x.clone().into_array_arg(),
            // What is absent is not read: anything will do.
            into_contiguous(weight.unwrap_or_else(|| x.clone())).into_array_arg(),
            into_contiguous(bias.unwrap_or(x)).into_array_arg(),
            y.clone().into_array_arg(),
            measured.mean.as_ref().unwrap_or(&measured.inverse_deviation).clone().into_array_arg(),
            measured.inverse_deviation.clone().into_array_arg(),
            rows,
            width,
            epsilon,
            has_mean,
            has_weight,
            has_bias,
            has_planes(&client),
            element.into(),
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
    let (client, element, input_grad) = (x.client.clone(), x.dtype, like(&x));
    let (rows, width) = (x.meta.shape()[0], x.meta.shape()[1]);
    if rows > 0 {
        let (has_mean, has_weight) = (measured.mean.is_some(), weight.is_some());
        let inverse_deviation = into_contiguous(measured.inverse_deviation);
        let mean = measured.mean.map_or_else(|| inverse_deviation.clone(), into_contiguous);
        norm_input_grad_kernel::launch(
            &client,
            cubes(&client, rows),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[&x, &grad]),
            x.clone().into_array_arg(),
            into_contiguous(weight.unwrap_or(x)).into_array_arg(),
            grad.into_array_arg(),
            mean.into_array_arg(),
            inverse_deviation.into_array_arg(),
            input_grad.clone().into_array_arg(),
            rows,
            width,
            has_mean,
            has_weight,
            has_planes(&client),
            element.into(),
        );
    }
    input_grad
}

/// `e^(logit - max)` in fp32, and its sum over each row, `[rows, 1]`.
pub(super) fn exponentials<R: CubeRuntime>(
    logits: CubeTensor<R>,
    max: CubeTensor<R>,
) -> (CubeTensor<R>, CubeTensor<R>) {
    let logits = into_contiguous(logits);
    let (client, element) = (logits.client.clone(), logits.dtype);
    let (rows, width) = (logits.meta.shape()[0], logits.meta.shape()[1]);
    let exponentials = beside(&logits, &[rows, width], DType::F32);
    let sum = beside(&logits, &[rows, 1], DType::F32);
    if len(&exponentials) > 0 {
        exponentials_kernel::launch(
            &client,
            cubes(&client, rows),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[&logits]),
            logits.into_array_arg(),
            into_contiguous(max).into_array_arg(),
            exponentials.clone().into_array_arg(),
            sum.clone().into_array_arg(),
            rows,
            width,
            has_planes(&client),
            element.into(),
        );
    }
    (exponentials, sum)
}

#[cube(launch, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "a kernel has no other way to be told")]
fn norm_kernel<F: Float>(
    x: &Array<F>,
    weight: &Array<F>,
    bias: &Array<F>,
    y: &mut Array<F>,
    means: &mut Array<f32>,
    inverse_deviations: &mut Array<f32>,
    rows: usize,
    width: usize,
    epsilon: f32,
    #[comptime] has_mean: bool,
    #[comptime] has_weight: bool,
    #[comptime] has_bias: bool,
    #[comptime] planes: bool,
    #[define(F)] _element: StorageType,
) {
    let row = CUBE_POS;
    if row < rows {
        let base = row * width;
        let unit = UNIT_POS as usize;
        let count = f32::cast_from(width);
        let mut mean = f32::new(0.0);
        if has_mean {
            let mut sum = f32::new(0.0);
            for i in range_stepped(unit, width, UNITS) {
                sum += f32::cast_from(x[base + i]);
            }
            mean = cube_sum(sum, UNITS, planes) / count;
        }
        let mut squares = f32::new(0.0);
        for i in range_stepped(unit, width, UNITS) {
            let centred = f32::cast_from(x[base + i]) - mean;
            squares += centred * centred;
        }
        let variance = cube_sum(squares, UNITS, planes) / count;
        let inverse_deviation = 1.0 / f32::sqrt(variance + epsilon);
        for i in range_stepped(unit, width, UNITS) {
            let mut value = (f32::cast_from(x[base + i]) - mean) * inverse_deviation;
            if has_weight {
                value *= f32::cast_from(weight[i]);
            }
            if has_bias {
                value += f32::cast_from(bias[i]);
            }
            y[base + i] = F::cast_from(value);
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
#[expect(clippy::too_many_arguments, reason = "a kernel has no other way to be told")]
fn norm_input_grad_kernel<F: Float>(
    x: &Array<F>,
    weight: &Array<F>,
    grad: &Array<F>,
    means: &Array<f32>,
    inverse_deviations: &Array<f32>,
    input_grad: &mut Array<F>,
    rows: usize,
    width: usize,
    #[comptime] has_mean: bool,
    #[comptime] has_weight: bool,
    #[comptime] planes: bool,
    #[define(F)] _element: StorageType,
) {
    let row = CUBE_POS;
    if row < rows {
        let base = row * width;
        let unit = UNIT_POS as usize;
        let count = f32::cast_from(width);
        let inverse_deviation = inverse_deviations[row];
        let mut mean = f32::new(0.0);
        if has_mean {
            mean = means[row];
        }
        let mut along = f32::new(0.0);
        let mut total = f32::new(0.0);
        for i in range_stepped(unit, width, UNITS) {
            let normalised = (f32::cast_from(x[base + i]) - mean) * inverse_deviation;
            let mut weighted = f32::cast_from(grad[base + i]);
            if has_weight {
                weighted *= f32::cast_from(weight[i]);
            }
            along += weighted * normalised;
            total += weighted;
        }
        let projection = cube_sum(along, UNITS, planes) / count;
        let mut mean_grad = f32::new(0.0);
        if has_mean {
            mean_grad = cube_sum(total, UNITS, planes) / count;
        }
        for i in range_stepped(unit, width, UNITS) {
            let normalised = (f32::cast_from(x[base + i]) - mean) * inverse_deviation;
            let mut weighted = f32::cast_from(grad[base + i]);
            if has_weight {
                weighted *= f32::cast_from(weight[i]);
            }
            let across = weighted - mean_grad - normalised * projection;
            input_grad[base + i] = F::cast_from(across * inverse_deviation);
        }
    }
}

/// The sums of `e^(logit - max)` over rows, `[rows, 1]`.
pub(super) fn exponential_sums<R: CubeRuntime>(
    logits: CubeTensor<R>,
    max: CubeTensor<R>,
) -> CubeTensor<R> {
    let (logits, max) = (into_contiguous(logits), into_contiguous(max));
    let (rows, width) = (logits.meta.shape()[0], logits.meta.shape()[1]);
    let (client, element) = (logits.client.clone(), logits.dtype);
    let sums = beside(&logits, &[rows, 1], DType::F32);
    if rows > 0 {
        exponential_sums_kernel::launch(
            &client,
            cubes(&client, rows),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[&logits]),
            logits.into_array_arg(),
            max.into_array_arg(),
            sums.clone().into_array_arg(),
            rows,
            width,
            has_planes(&client),
            element.into(),
        );
    }
    sums
}

#[cube(launch, address_type = "dynamic")]
fn exponential_sums_kernel<F: Float>(
    logits: &Array<F>,
    max: &Array<f32>,
    sums: &mut Array<f32>,
    rows: usize,
    width: usize,
    #[comptime] planes: bool,
    #[define(F)] _element: StorageType,
) {
    let row = CUBE_POS;
    if row < rows {
        let base = row * width;
        let max = max[row];
        let mut sum = f32::new(0.0);
        for i in range_stepped(UNIT_POS as usize, width, UNITS) {
            sum += f32::exp(f32::cast_from(logits[base + i]) - max);
        }
        let sum = cube_sum(sum, UNITS, planes);
        if UNIT_POS == 0 {
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
    let sums = beside(&a, &[shape[0], heads, length], DType::F32);
    let rows = len(&sums);
    if rows > 0 {
        let (client, element) = (a.client.clone(), a.dtype);
        row_products_kernel::launch(
            &client,
            cubes(&client, rows.div_ceil(UNITS / LANES)),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[&a, &b]),
            a.into_array_arg(),
            b.into_array_arg(),
            sums.clone().into_array_arg(),
            length,
            heads,
            width,
            element.into(),
        );
    }
    sums
}

#[cube(launch, address_type = "dynamic")]
fn row_products_kernel<F: Float>(
    a: &Array<F>,
    b: &Array<F>,
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
        for i in range_stepped(lane, width, LANES) {
            sum += f32::cast_from(a[row * width + i]) * f32::cast_from(b[row * width + i]);
        }
    }
    parts[UNIT_POS as usize] = sum;
    sync_cube();
    if row < sums.len() && lane == 0 {
        let mut total = f32::new(0.0);
        for part in 0..LANES {
            total += parts[UNIT_POS as usize + part];
        }
        // Rows lie by batch, position and head, sums by batch, head and position.
        let (head, position) = (row % heads, row / heads % length);
        let batch = row / (heads * length);
        sums[(batch * heads + head) * length + position] = total;
    }
}

#[cube(launch, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "a kernel has no other way to be told")]
fn exponentials_kernel<F: Float>(
    logits: &Array<F>,
    max: &Array<f32>,
    exponentials: &mut Array<f32>,
    sums: &mut Array<f32>,
    rows: usize,
    width: usize,
    #[comptime] planes: bool,
    #[define(F)] _element: StorageType,
) {
    let row = CUBE_POS;
    if row < rows {
        let base = row * width;
        let unit = UNIT_POS as usize;
        let max = max[row];
        let mut sum = f32::new(0.0);
        for i in range_stepped(unit, width, UNITS) {
            let exponential = f32::exp(f32::cast_from(logits[base + i]) - max);
            exponentials[base + i] = exponential;
            sum += exponential;
        }
        let sum = cube_sum(sum, UNITS, planes);
        if unit == 0 {
            sums[row] = sum;
        }
    }
}
