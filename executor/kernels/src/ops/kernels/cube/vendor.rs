//! Functions of the vendor's library for which it is faster than portable kernels.

use std::sync::Arc;

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;

use crate::clock::DeviceClock;

/// A runtime of cubecl with the vendor's library. Without the library, the methods do nothing and return none or false.
pub(crate) trait Vendor: CubeRuntime {
    /// The clock of a device, by the vendor's driver.
    fn clock(_device: &Self::Device) -> Result<Option<Arc<dyn DeviceClock>>, String> {
        Ok(None)
    }

    /// `left right`, `[.., m, k]` by `[.., k, n]`.
    fn matmul(_left: &CubeTensor<Self>, _right: &CubeTensor<Self>) -> Option<CubeTensor<Self>> {
        None
    }

    /// `left right + addend`.
    fn matmul_plus(
        _left: &CubeTensor<Self>,
        _right: &CubeTensor<Self>,
        _addend: &CubeTensor<Self>,
    ) -> Option<CubeTensor<Self>> {
        None
    }

    /// Writes `left right`, `[m, k]` by `[k, n]`, to a flat array from element `start` on, or adds it there.
    fn matmul_into(
        _flat: &CubeTensor<Self>,
        _start: usize,
        _factors: [&CubeTensor<Self>; 2],
        _adds: bool,
    ) -> bool {
        false
    }

    /// Returns whether the kernels that compute products also add them to an array.
    fn adds_products() -> bool {
        false
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    use std::sync::Arc;

    use burn_cubecl::tensor::CubeTensor;
    use cubecl::cuda::CudaRuntime;

    use super::Vendor;
    use crate::clock::DeviceClock;
    use crate::cuda::clock::CudaClock;
    use crate::cuda::products;

    impl Vendor for CudaRuntime {
        fn clock(device: &Self::Device) -> Result<Option<Arc<dyn DeviceClock>>, String> {
            Ok(Some(Arc::new(CudaClock::of(device)?)))
        }

        fn matmul(left: &CubeTensor<Self>, right: &CubeTensor<Self>) -> Option<CubeTensor<Self>> {
            products::matmul(left, right)
        }

        fn matmul_plus(
            left: &CubeTensor<Self>,
            right: &CubeTensor<Self>,
            addend: &CubeTensor<Self>,
        ) -> Option<CubeTensor<Self>> {
            products::matmul_plus(left, right, addend)
        }

        fn matmul_into(
            flat: &CubeTensor<Self>,
            start: usize,
            factors: [&CubeTensor<Self>; 2],
            adds: bool,
        ) -> bool {
            products::matmul_into(flat, start, factors, adds)
        }

        fn adds_products() -> bool {
            products::is_present()
        }
    }
}

#[cfg(feature = "wgpu")]
impl Vendor for burn_wgpu::WgpuRuntime {}
