//! The sum of the squares of all elements, as the norm of gradients needs it.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{UNITS, addresses, beside, cube_sum, has_planes, len, sum_of, vector_size};

/// The most parts that elements are cut into: some cubes for each multiprocessor of any device.
const PARTS: usize = 1024;

/// The sum of the squares of the elements of a flat tensor, in one element of fp32.
pub(super) fn of_squares<R: CubeRuntime>(x: CubeTensor<R>) -> CubeTensor<R> {
    let x = into_contiguous(x);
    let (client, element) = (x.client.clone(), x.dtype);
    let size = vector_size(&[&x]);
    let vectors = len(&x) / size;
    let parts = vectors.div_ceil(UNITS).clamp(1, PARTS);
    let [sums, sum] = [parts, 1].map(|count| beside(&x, &[count], DType::F32));
    let dim = CubeDim::new_1d(UNITS as u32);
    squares_kernel::launch(
        &client,
        CubeCount::Static(parts as u32, 1, 1),
        dim,
        addresses(&[&x]),
        size,
        x.into_array_arg(),
        sums.clone().into_array_arg(),
        vectors,
        parts * UNITS,
        has_planes(&client),
        element.into(),
    );
    parts_kernel::launch(
        &client,
        CubeCount::Static(1, 1, 1),
        dim,
        addresses(&[&sums]),
        sums.into_array_arg(),
        sum.clone().into_array_arg(),
        parts,
        has_planes(&client),
    );
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
