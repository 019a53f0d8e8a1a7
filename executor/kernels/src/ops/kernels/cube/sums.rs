//! The sum of the squares of all elements, as the norm of gradients needs it.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{Grid, UNITS, cube_sum, empty, has_planes, launch, len, sum_of, vector_size};

/// Upper bound of the number of parts that elements are cut into, one cube for each: several cubes for each
/// multiprocessor of any device.
const PARTS: usize = 1024;

/// The sum of the squares of the elements of a flat tensor, in one element of fp32.
pub(super) fn of_squares<R: CubeRuntime>(x: CubeTensor<R>) -> CubeTensor<R> {
    let x = into_contiguous(x);
    let (planes, element) = (has_planes(&x.client), x.dtype.into());
    let size = vector_size(&[&x]);
    let vectors = len(&x) / size;
    let parts = vectors.div_ceil(UNITS).clamp(1, PARTS);
    let [sums, sum] = [parts, 1].map(|count| empty(&x, &[count], DType::F32));
    let grid = Grid::of_cubes(&[&x], parts, UNITS);
    let (x, of_parts) = (x.into_array_arg(), sums.clone().into_array_arg());
    launch!(squares_kernel, grid, size, x, of_parts, vectors, parts * UNITS, planes, element);
    let grid = Grid::of_cubes(&[&sums], 1, UNITS);
    let (sums, total) = (sums.into_array_arg(), sum.clone().into_array_arg());
    launch!(parts_kernel, grid, sums, total, parts, planes);
    sum
}

#[cube(launch, address_type = "dynamic")]
fn squares_kernel<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    sums: &mut Array<f32>,
    vectors: usize,
    units: usize,
    #[comptime] planes: bool,
    #[define(F)] _element: StorageType,
) {
    let mut sum = f32::new(0.0);
    for i in range_stepped(ABSOLUTE_POS, vectors, units) {
        let values = Vector::<f32, N>::cast_from(x[i]);
        sum += sum_of::<N>(values * values);
    }
    let sum = cube_sum(sum, UNITS, planes);
    if UNIT_POS == 0 {
        sums[CUBE_POS] = sum;
    }
}

#[cube(launch, address_type = "dynamic")]
fn parts_kernel(sums: &Array<f32>, total: &mut Array<f32>, parts: usize, #[comptime] planes: bool) {
    let mut sum = f32::new(0.0);
    for i in range_stepped(UNIT_POS as usize, parts, UNITS) {
        sum += sums[i];
    }
    let sum = cube_sum(sum, UNITS, planes);
    if UNIT_POS == 0 {
        total[0] = sum;
    }
}
