//! What the library of a GPU's maker does better than kernels written for all.

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;

/// A runtime of cubecl's, with its maker's library.
pub(crate) trait Vendor: CubeRuntime {
    /// `left right`, `[.., m, k]` by `[.., k, n]`; none where there is no library for it.
    fn matmul(_left: &CubeTensor<Self>, _right: &CubeTensor<Self>) -> Option<CubeTensor<Self>> {
        None
    }
}

#[cfg(feature = "cuda")]
impl Vendor for cubecl::cuda::CudaRuntime {
    fn matmul(left: &CubeTensor<Self>, right: &CubeTensor<Self>) -> Option<CubeTensor<Self>> {
        crate::cuda::products::matmul(left, right)
    }
}

#[cfg(feature = "wgpu")]
impl Vendor for burn_wgpu::WgpuRuntime {}
