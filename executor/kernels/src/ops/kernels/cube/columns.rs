//! Sums over rows: the gradients of a norm's scale and shift. A first kernel sums parts of the rows and a second one
//! the parts, so that all multiprocessors have work.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{Grid, empty, launch, rows_and_width, vector_size};
use super::rows::Measured;

/// Number of vectors of neighbouring columns in a cube, which one plane of units reads at a time.
const COLUMNS: usize = 32;

/// Rows that a cube reads at a time.
const ROWS: usize = 8;

/// The minimum number of rows of a part.
const LEAST_ROWS: usize = 64;

/// The most parts that rows are cut into.
const PARTS: usize = 256;

/// The gradients of scale and shift, `[width]` each.
pub(super) fn norm_weight_grad<R: CubeRuntime>(
    x: CubeTensor<R>,
    measured: Measured<R>,
    grad: CubeTensor<R>,
) -> [CubeTensor<R>; 2] {
    let (x, grad) = (into_contiguous(x), into_contiguous(grad));
    let ([rows, width], element) = (rows_and_width(&x), x.dtype);
    let [scale, shift] = [(); 2].map(|()| empty(&x, &[width], element));
    if width == 0 {
        return [scale, shift];
    }
    let has_mean = measured.mean.is_some();
    let inverse_deviation = into_contiguous(measured.inverse_deviation);
    let mean = measured.mean.map_or_else(|| inverse_deviation.clone(), into_contiguous);
    let rows_of_part = rows.div_ceil(PARTS).max(LEAST_ROWS);
    let parts = rows.div_ceil(rows_of_part);
    let sums = || empty(&x, &[parts, width], DType::F32);
    let (scales, shifts) = (sums(), sums());
    let dim = CubeDim::new_2d(COLUMNS as u32, ROWS as u32);
    if parts > 0 {
        let size = vector_size(&[&x, &grad, &scales]);
        let columns = (width / size).div_ceil(COLUMNS);
        launch!(
            parts_kernel,
            Grid::new(&[&x, &grad], [columns, parts, 1], dim),
            size,
            x.into_array_arg(),
            grad.into_array_arg(),
            mean.into_array_arg(),
            inverse_deviation.into_array_arg(),
            scales.clone().into_array_arg(),
            shifts.clone().into_array_arg(),
            rows,
            width,
            rows_of_part,
            has_mean,
            element.into(),
        );
    }
    launch!(
        sum_kernel,
        Grid::new(&[&scales], [width.div_ceil(COLUMNS), 1, 1], dim),
        scales.into_array_arg(),
        shifts.into_array_arg(),
        scale.clone().into_array_arg(),
        shift.clone().into_array_arg(),
        parts,
        width,
        element.into(),
    );
    [scale, shift]
}

/// The sums over the rows of a part.
#[cube(launch, address_type = "dynamic")]
fn parts_kernel<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    grad: &Array<Vector<F, N>>,
    means: &Array<f32>,
    inverse_deviations: &Array<f32>,
    scales: &mut Array<Vector<f32, N>>,
    shifts: &mut Array<Vector<f32, N>>,
    rows: usize,
    width: usize,
    rows_of_part: usize,
    #[comptime] has_mean: bool,
    #[define(F)] _element: StorageType,
) {
    let (lane, turn) = (UNIT_POS_X as usize, UNIT_POS_Y as usize);
    let vectors = width / N::value();
    let column = CUBE_POS_X as usize * COLUMNS + lane;
    let first = CUBE_POS_Y as usize * rows_of_part;
    let last = min(first + rows_of_part, rows);
    let mut along = Vector::<f32, N>::new(0.0);
    let mut total = Vector::<f32, N>::new(0.0);
    if column < vectors {
        for row in range_stepped(first + turn, last, ROWS) {
            let mut centred = Vector::<f32, N>::cast_from(x[row * vectors + column]);
            if has_mean {
                centred -= Vector::new(means[row]);
            }
            let grad = Vector::<f32, N>::cast_from(grad[row * vectors + column]);
            along += grad * centred * Vector::new(inverse_deviations[row]);
            total += grad;
        }
    }
    let mut of_scales = SharedMemory::<Vector<f32, N>>::new(COLUMNS * ROWS);
    let mut of_shifts = SharedMemory::<Vector<f32, N>>::new(COLUMNS * ROWS);
    of_scales[turn * COLUMNS + lane] = along;
    of_shifts[turn * COLUMNS + lane] = total;
    sync_cube();
    if turn == 0 && column < vectors {
        for other in 1..ROWS {
            along += of_scales[other * COLUMNS + lane];
            total += of_shifts[other * COLUMNS + lane];
        }
        scales[CUBE_POS_Y as usize * vectors + column] = along;
        shifts[CUBE_POS_Y as usize * vectors + column] = total;
    }
}

/// The sums over all parts.
#[cube(launch, address_type = "dynamic")]
fn sum_kernel<F: Float>(
    scales: &Array<f32>,
    shifts: &Array<f32>,
    scale: &mut Array<F>,
    shift: &mut Array<F>,
    parts: usize,
    width: usize,
    #[define(F)] _element: StorageType,
) {
    let (lane, turn) = (UNIT_POS_X as usize, UNIT_POS_Y as usize);
    let column = CUBE_POS_X as usize * COLUMNS + lane;
    let mut along = f32::new(0.0);
    let mut total = f32::new(0.0);
    if column < width {
        for part in range_stepped(turn, parts, ROWS) {
            along += scales[part * width + column];
            total += shifts[part * width + column];
        }
    }
    let mut of_scales = SharedMemory::<f32>::new(COLUMNS * ROWS);
    let mut of_shifts = SharedMemory::<f32>::new(COLUMNS * ROWS);
    of_scales[turn * COLUMNS + lane] = along;
    of_shifts[turn * COLUMNS + lane] = total;
    sync_cube();
    if turn == 0 && column < width {
        for other in 1..ROWS {
            along += of_scales[other * COLUMNS + lane];
            total += of_shifts[other * COLUMNS + lane];
        }
        scale[column] = F::cast_from(along);
        shift[column] = F::cast_from(total);
    }
}
