//! One cube for some neighbouring columns: the gradients of a norm's scale and shift, which are sums over rows.

use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{addresses, beside, cubes};
use super::rows::Measured;

/// Columns of a cube: what one plane of units reads at a time.
const COLUMNS: usize = 32;

/// Rows that a cube reads at a time.
const ROWS: usize = 8;

/// The gradients of scale and shift, `[width]` each.
pub(super) fn norm_weight_grad<R: CubeRuntime>(
    x: CubeTensor<R>,
    measured: Measured<R>,
    grad: CubeTensor<R>,
) -> (CubeTensor<R>, CubeTensor<R>) {
    let (x, grad) = (into_contiguous(x), into_contiguous(grad));
    let (client, element) = (x.client.clone(), x.dtype);
    let (rows, width) = (x.meta.shape()[0], x.meta.shape()[1]);
    let gradient = || beside(&x, &[width], element);
    let (scale, shift) = (gradient(), gradient());
    if width > 0 {
        let has_mean = measured.mean.is_some();
        let inverse_deviation = into_contiguous(measured.inverse_deviation);
        let mean = measured.mean.map_or_else(|| inverse_deviation.clone(), into_contiguous);
        norm_weight_grad_kernel::launch(
            &client,
            cubes(&client, width.div_ceil(COLUMNS)),
            CubeDim::new_2d(COLUMNS as u32, ROWS as u32),
            addresses(&[&x, &grad]),
            x.into_array_arg(),
            grad.into_array_arg(),
            mean.into_array_arg(),
            inverse_deviation.into_array_arg(),
            scale.clone().into_array_arg(),
            shift.clone().into_array_arg(),
            rows,
            width,
            has_mean,
            element.into(),
        );
    }
    (scale, shift)
}

#[cube(launch, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "a kernel has no other way to be told")]
fn norm_weight_grad_kernel<F: Float>(
    x: &Array<F>,
    grad: &Array<F>,
    means: &Array<f32>,
    inverse_deviations: &Array<f32>,
    scale: &mut Array<F>,
    shift: &mut Array<F>,
    rows: usize,
    width: usize,
    #[comptime] has_mean: bool,
    #[define(F)] _element: StorageType,
) {
    let (lane, part) = (UNIT_POS_X as usize, UNIT_POS_Y as usize);
    let column = CUBE_POS * COLUMNS + lane;
    let mut scales = SharedMemory::<f32>::new(COLUMNS * ROWS);
    let mut shifts = SharedMemory::<f32>::new(COLUMNS * ROWS);
    let mut along = f32::new(0.0);
    let mut total = f32::new(0.0);
    if column < width {
        for row in range_stepped(part, rows, ROWS) {
            let mut centred = f32::cast_from(x[row * width + column]);
            if has_mean {
                centred -= means[row];
            }
            let grad = f32::cast_from(grad[row * width + column]);
            along += grad * centred * inverse_deviations[row];
            total += grad;
        }
    }
    scales[part * COLUMNS + lane] = along;
    shifts[part * COLUMNS + lane] = total;
    sync_cube();
    if part == 0 && column < width {
        for other in 1..ROWS {
            along += scales[other * COLUMNS + lane];
            total += shifts[other * COLUMNS + lane];
        }
        scale[column] = F::cast_from(along);
        shift[column] = F::cast_from(total);
    }
}
