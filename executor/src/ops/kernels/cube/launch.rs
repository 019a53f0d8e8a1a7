//! What kernels are launched with: memory, and how many cubes of how many units.
//!
//! A *unit* is one thread of a device; a *cube* is a group of units that share fast memory, as CUDA's block and
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

/// Units of a cube where nothing else decides.
pub(super) const UNITS: usize = 256;

/// Whether all of these are of a type that kernels read: fp32 or 16 bits.
pub(super) fn are_covered<'a, R: CubeRuntime>(
    tensors: impl IntoIterator<Item = &'a CubeTensor<R>>,
) -> bool {
    let covered = |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    tensors.into_iter().all(|tensor| covered(tensor.dtype))
}

/// Whether all of these are of one type that kernels read.
pub(super) fn are_alike<R: CubeRuntime>(tensors: &[&CubeTensor<R>]) -> bool {
    are_covered(tensors.iter().copied())
        && tensors.windows(2).all(|pair| pair[0].dtype == pair[1].dtype)
}

/// Whether all of these are in fp32.
pub(super) fn are_fp32<R: CubeRuntime>(tensors: &[&CubeTensor<R>]) -> bool {
    tensors.iter().all(|tensor| tensor.dtype == DType::F32)
}

/// Memory of another shape and type beside a tensor, with whatever was in it before, in row-major order.
pub(super) fn beside<R: CubeRuntime>(
    tensor: &CubeTensor<R>,
    shape: &[usize],
    dtype: DType,
) -> CubeTensor<R> {
    let (client, device) = (tensor.client.clone(), tensor.device.clone());
    empty_device_contiguous_dtype(client, device, Shape::from(shape), dtype)
}

/// Memory for what becomes of a tensor, in row-major order.
pub(super) fn like<R: CubeRuntime>(tensor: &CubeTensor<R>) -> CubeTensor<R> {
    beside(tensor, tensor.meta.shape(), tensor.dtype)
}

/// The same elements in row-major order, to be changed: the tensor's own memory if nobody else holds it, otherwise
/// a copy.
pub(super) fn owned<R: CubeRuntime>(tensor: CubeTensor<R>) -> CubeTensor<R> {
    let tensor = into_contiguous(tensor);
    if tensor.can_mut() { tensor } else { into_contiguous(tensor.copy()) }
}

/// How many elements a tensor has.
pub(super) fn len<R: CubeRuntime>(tensor: &CubeTensor<R>) -> usize {
    tensor.meta.num_elements()
}

/// What the elements of these tensors are counted in.
pub(super) fn addresses<R: CubeRuntime>(tensors: &[&CubeTensor<R>]) -> AddressType {
    let types = tensors.iter().map(|tensor| tensor.required_address_type());
    types.max().unwrap_or_default()
}

/// Elements that units read and write at once of tensors of equal shape: as many as a device takes best (16 bytes on
/// CUDA) of those that divide their rows.
pub(super) fn vector_size<R: CubeRuntime>(tensors: &[&CubeTensor<R>]) -> VectorSize {
    shared_vector_size(tensors, &[])
}

/// The same, for tensors whose last dimensions may be of different sizes, and which divides `others` too.
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

/// Cubes of [`UNITS`] units, one unit for each of so many elements.
pub(super) fn by_element<R: CubeRuntime>(
    client: &ComputeClient<R>,
    count: usize,
) -> (CubeCount, CubeDim) {
    (cubes(client, count.div_ceil(UNITS)), CubeDim::new_1d(UNITS as u32))
}

/// At least so many cubes, in as many dimensions as that takes.
pub(super) fn cubes<R: CubeRuntime>(client: &ComputeClient<R>, count: usize) -> CubeCount {
    let (most, ..) = client.properties().hardware.max_cube_count;
    let columns = count.min(most as usize);
    CubeCount::Static(columns as u32, count.div_ceil(columns) as u32, 1)
}

/// Whether units of a device can add up their numbers without shared memory.
pub(super) fn has_planes<R: CubeRuntime>(client: &ComputeClient<R>) -> bool {
    client.properties().features.plane.contains(Plane::Ops)
}

/// Units of a cube that works on a row of so many vectors: a power of two, and no fewer than a plane has.
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

/// The greatest of a number of each of `units` units of a cube, as [`cube_sum`].
#[cube]
pub(super) fn cube_max(value: f32, #[comptime] units: usize, #[comptime] planes: bool) -> f32 {
    let unit = UNIT_POS as usize;
    let mut parts = SharedMemory::<f32>::new(units);
    if planes {
        let part = plane_max(value);
        if UNIT_POS_PLANE == 0 {
            parts[(UNIT_POS / PLANE_DIM) as usize] = part;
        }
        sync_cube();
        let mut greatest = parts[0];
        for plane in 1..units as u32 / PLANE_DIM {
            greatest = max(greatest, parts[plane as usize]);
        }
        greatest
    } else {
        parts[unit] = value;
        sync_cube();
        let mut step = (units / 2).runtime();
        while step > 0 {
            if unit < step {
                let other = parts[unit + step];
                parts[unit] = max(parts[unit], other);
            }
            sync_cube();
            step /= 2;
        }
        parts[0]
    }
}

/// The sum of a number of each of `units` units of a cube, which every one of them gets.
///
/// `units` is a power of two, no less than a plane has, and `planes` says whether the device adds up within planes by itself.
#[cube]
pub(super) fn cube_sum(value: f32, #[comptime] units: usize, #[comptime] planes: bool) -> f32 {
    let unit = UNIT_POS as usize;
    let mut parts = SharedMemory::<f32>::new(units);
    if planes {
        let part = plane_sum(value);
        if UNIT_POS_PLANE == 0 {
            parts[(UNIT_POS / PLANE_DIM) as usize] = part;
        }
        sync_cube();
        let mut total = f32::new(0.0);
        for plane in 0..units as u32 / PLANE_DIM {
            total += parts[plane as usize];
        }
        total
    } else {
        parts[unit] = value;
        sync_cube();
        let mut step = (units / 2).runtime();
        while step > 0 {
            if unit < step {
                let other = parts[unit + step];
                parts[unit] += other;
            }
            sync_cube();
            step /= 2;
        }
        parts[0]
    }
}
