//! Launch of kernels: memory of results, and numbers of cubes and units.
//!
//! A *unit* is one thread of a device; a *cube* is a group of units that share fast memory, like CUDA's block and
//! WGSL's workgroup.

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::features::Plane;
use cubecl::ir::VectorSize;
use cubecl::prelude::*;
use cubecl::tensor_vector_size_parallel;

/// Default number of units of a cube.
pub(super) const UNITS: usize = 256;

/// Launch configuration: device, number of cubes, and units of a cube.
pub(super) struct Grid<R: CubeRuntime> {
    pub(super) client: ComputeClient<R>,
    pub(super) count: CubeCount,
    pub(super) dim: CubeDim,
    pub(super) addresses: AddressType,
}

impl<R: CubeRuntime> Grid<R> {
    /// Cubes in three dimensions; `tensors` include the largest that the kernel reads or writes.
    pub(super) fn new(tensors: &[&CubeTensor<R>], cubes: [usize; 3], dim: CubeDim) -> Self {
        let [x, y, z] = cubes.map(|count| count as u32);
        let types = tensors.iter().map(|tensor| tensor.required_address_type());
        Self {
            client: tensors[0].client.clone(),
            count: CubeCount::Static(x, y, z),
            dim,
            addresses: types.max().unwrap_or_default(),
        }
    }

    /// At least `count` cubes of `units` units each, in as many dimensions as that takes.
    pub(super) fn of_cubes(tensors: &[&CubeTensor<R>], count: usize, units: usize) -> Self {
        let (most, ..) = tensors[0].client.properties().hardware.max_cube_count;
        let columns = count.min(most as usize);
        let cubes = [columns, count.div_ceil(columns), 1];
        Self::new(tensors, cubes, CubeDim::new_1d(units as u32))
    }

    /// Cubes of [`UNITS`] units, one unit for each of `count` elements.
    pub(super) fn of_units(tensors: &[&CubeTensor<R>], count: usize) -> Self {
        Self::of_cubes(tensors, count.div_ceil(UNITS), UNITS)
    }
}

/// Launches a kernel on a [`Grid`] with its arguments. The first argument is the size of the kernel's vectors, if it
/// has any. If a path is given, as in `kernel::launch_unchecked`, that function launches the kernel instead of
/// `launch`.
macro_rules! launch {
    ($kernel:ident, $grid:expr, $($argument:expr),+ $(,)?) => {
        launch!($kernel::launch, $grid, $($argument),+)
    };
    ($launch:path, $grid:expr, $($argument:expr),+ $(,)?) => {{
        let Grid { client, count, dim, addresses } = $grid;
        $launch(&client, count, dim, addresses, $($argument),+);
    }};
}
pub(super) use launch;

/// Rows and columns of a matrix.
pub(super) fn rows_and_width<R: CubeRuntime>(x: &CubeTensor<R>) -> [usize; 2] {
    [x.meta.shape()[0], x.meta.shape()[1]]
}

/// An uninitialised tensor of this shape and type on the device of another tensor, in row-major order.
pub(super) fn empty<R: CubeRuntime>(
    tensor: &CubeTensor<R>,
    shape: &[usize],
    dtype: DType,
) -> CubeTensor<R> {
    let (client, device) = (tensor.client.clone(), tensor.device.clone());
    empty_device_contiguous_dtype(client, device, Shape::from(shape), dtype)
}

/// An uninitialised tensor of the shape and type of another one, in row-major order.
pub(super) fn like<R: CubeRuntime>(tensor: &CubeTensor<R>) -> CubeTensor<R> {
    empty(tensor, tensor.meta.shape(), tensor.dtype)
}

/// The tensor in row-major order, for writing: in its own memory if no other tensor shares it, otherwise a copy.
pub(super) fn owned<R: CubeRuntime>(tensor: CubeTensor<R>) -> CubeTensor<R> {
    let tensor = into_contiguous(tensor);
    if tensor.can_mut() { tensor } else { into_contiguous(tensor.copy()) }
}

/// Number of elements of a tensor.
pub(super) fn len<R: CubeRuntime>(tensor: &CubeTensor<R>) -> usize {
    tensor.meta.num_elements()
}

/// Number of elements that units read and write at once, for tensors of equal shape: the widest vector that the device
/// prefers (16 bytes on CUDA) and that divides the tensors' rows.
pub(super) fn vector_size<R: CubeRuntime>(tensors: &[&CubeTensor<R>]) -> VectorSize {
    shared_vector_size(tensors, &[])
}

/// The vector size of tensors whose last dimensions may differ, which also divides `others`.
pub(super) fn shared_vector_size<R: CubeRuntime>(
    tensors: &[&CubeTensor<R>],
    others: &[usize],
) -> VectorSize {
    let of_tensor = |tensor: &&CubeTensor<R>| {
        let (bytes, meta) = (tensor.dtype.size(), &tensor.meta);
        let offset = tensor.handle.offset_start.unwrap_or(0) as usize;
        let is_aligned = |size: &VectorSize| offset.is_multiple_of(size * bytes);
        let sizes = tensor.client.io_optimized_vector_sizes(bytes).filter(is_aligned);
        tensor_vector_size_parallel(sizes, meta.shape(), meta.strides(), meta.num_dims() - 1)
    };
    let of_tensors = tensors.iter().map(of_tensor).min().unwrap_or(1);
    // All are powers of two.
    others.iter().fold(of_tensors, |size, other| size.min(1 << other.trailing_zeros().min(8)))
}

/// Returns whether units of a device can add up their numbers without shared memory.
pub(super) fn has_planes<R: CubeRuntime>(client: &ComputeClient<R>) -> bool {
    client.properties().features.plane.contains(Plane::Ops)
}

/// Units of a cube that works on a row of this many vectors: a power of two, and no fewer than the units of a plane.
pub(super) fn units_of_row(vectors: usize) -> usize {
    vectors.next_power_of_two().clamp(64, UNITS)
}

/// The sum of the elements of a vector.
#[cube]
pub(super) fn sum_of<N: Size>(vector: Vector<f32, N>) -> f32 {
    let mut sum = f32::new(0.0);
    #[unroll]
    for i in 0..vector.vector_size() {
        sum += vector[i];
    }
    sum
}

/// Reduction of the numbers of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Combination {
    Sum,
    Greatest,
}

/// The greatest of the numbers of `units` units of a cube, returned to each unit, as by [`cube_sum`].
#[cube]
pub(super) fn cube_max(value: f32, #[comptime] units: usize, #[comptime] planes: bool) -> f32 {
    of_cube(value, units, planes, Combination::Greatest)
}

/// The sum of the numbers of `units` units of a cube, returned to each unit.
///
/// `units` is a power of two, no less than the number of units of a plane; `planes` is true where the device has
/// reductions within planes.
#[cube]
pub(super) fn cube_sum(value: f32, #[comptime] units: usize, #[comptime] planes: bool) -> f32 {
    of_cube(value, units, planes, Combination::Sum)
}

#[cube]
fn of_cube(
    value: f32,
    #[comptime] units: usize,
    #[comptime] planes: bool,
    #[comptime] combination: Combination,
) -> f32 {
    let unit = UNIT_POS as usize;
    let mut parts = SharedMemory::<f32>::new(units);
    if planes {
        let part = match combination {
            Combination::Sum => plane_sum(value),
            Combination::Greatest => plane_max(value),
        };
        if UNIT_POS_PLANE == 0 {
            parts[(UNIT_POS / PLANE_DIM) as usize] = part;
        }
        sync_cube();
        let mut all = parts[0];
        for plane in 1..units as u32 / PLANE_DIM {
            all = of_two(all, parts[plane as usize], combination);
        }
        all
    } else {
        parts[unit] = value;
        sync_cube();
        let mut step = (units / 2).runtime();
        while step > 0 {
            if unit < step {
                let other = parts[unit + step];
                parts[unit] = of_two(parts[unit], other, combination);
            }
            sync_cube();
            step /= 2;
        }
        parts[0]
    }
}

#[cube]
fn of_two(one: f32, other: f32, #[comptime] combination: Combination) -> f32 {
    match combination {
        Combination::Sum => one + other,
        Combination::Greatest => max(one, other),
    }
}
