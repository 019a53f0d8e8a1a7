//! Products of matrices by cuBLASLt, NVIDIA's library, which has kernels for each GPU's tensor cores.
//!
//! The library is looked for when the program runs; where it is missing, products are made by burn's kernels, which
//! reach a part of its speed. It is called on burn's stream by the thread that launches burn's kernels, in the order
//! in which they were asked for, so no thread waits.
//!
//! # Source
//!
//! NVIDIA, cuBLAS documentation, "Using the cuBLASLt API", <https://docs.nvidia.com/cuda/cublas/>.

mod layout;
mod library;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use burn::tensor::{DType, Shape};
use burn_cubecl::cubecl::Runtime;
use burn_cubecl::cubecl::cuda::CudaRuntime;
use burn_cubecl::cubecl::device::Device as _;
use burn_cubecl::cubecl::device_handle::DeviceHandle;
use burn_cubecl::cubecl::server::ComputeServer;
use burn_cubecl::cubecl::stream_id::StreamId;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_cuda::CudaDevice;
use cudarc::driver::CudaContext;

use self::layout::{Product, View};
use self::library::Library;
use super::DeviceError;
use super::compute_stream::ComputeStream;
use crate::lock::lock;

type Tensor = CubeTensor<CudaRuntime>;

type Server = <CudaRuntime as Runtime>::Server;

/// The library on each GPU that was multiplied on, or why it cannot be used there.
static LIBRARIES: Mutex<BTreeMap<usize, Result<Arc<Mutex<Library>>, DeviceError>>> =
    Mutex::new(BTreeMap::new());

/// Whether cuBLASLt is there.
pub fn is_present() -> bool {
    static IS_PRESENT: LazyLock<bool> = LazyLock::new(Library::is_present);
    *IS_PRESENT
}

/// `left right`, `[.., m, k]` by `[.., k, n]`; other dimensions broadcast. None where cuBLASLt is not asked: it is not
/// there, or has no product of this kind.
pub(crate) fn matmul(left: &Tensor, right: &Tensor) -> Option<Tensor> {
    let is_covered = matches!(left.dtype, DType::F32 | DType::F16 | DType::BF16);
    if !is_covered || left.dtype != right.dtype || !is_present() {
        return None;
    }
    let [left, right] = [left, right].map(Clone::clone);
    match product(&left, &right) {
        Some(product) => Some(start(product, &left, &right)),
        None => {
            let [left, right] = [left, right].map(into_contiguous);
            let product = product(&left, &right)?;
            Some(start(product, &left, &right))
        }
    }
}

fn product(left: &Tensor, right: &Tensor) -> Option<Product> {
    let view = |tensor: &'_ Tensor| -> (Vec<usize>, Vec<usize>) {
        (tensor.meta.shape().to_vec(), tensor.meta.strides().to_vec())
    };
    let (left, right) = (view(left), view(right));
    let view = |(shape, strides)| View { shape, strides };
    Product::of(view((&left.0, &left.1)), view((&right.0, &right.1)))
}

/// Has the thread that launches burn's kernels start a product.
///
/// # Panics
///
/// On that thread where cuBLASLt fails, as where a kernel of burn's does.
fn start(product: Product, left: &Tensor, right: &Tensor) -> Tensor {
    let mut shape: Vec<usize> =
        left.meta.shape().iter().zip(right.meta.shape().iter()).map(|(&l, &r)| l.max(r)).collect();
    let rank = shape.len();
    shape[rank - 2] = left.meta.shape()[rank - 2];
    shape[rank - 1] = right.meta.shape()[rank - 1];
    let (client, device) = (left.client.clone(), left.device.clone());
    let out = empty_device_contiguous_dtype(client, device, Shape::from(shape), left.dtype);
    let library = library_on(&left.device);
    let bindings = [right, left, &out].map(|tensor| tensor.handle.clone().binding());
    let (element, stream) = (left.dtype, StreamId::current());
    DeviceHandle::<Server>::new(left.device.to_id()).submit(move |server| {
        let addresses = bindings.map(|binding| match server.get_resource(binding, stream) {
            Ok(resource) => resource.resource().ptr,
            Err(error) => panic!("memory of a product of matrices: {error}"),
        });
        let library = library.unwrap_or_else(|error| panic!("{error}"));
        let mut library = lock(&library);
        #[expect(unsafe_code, reason = "cuBLASLt takes addresses")]
        // SAFETY: the addresses are of the product's arrays, which were held until now, and burn gives their memory
        // to nobody but what it launches on the same stream after this.
        let started = unsafe { library.start(product, element, addresses) };
        if let Err(error) = started {
            panic!("cuBLASLt does not compute {product:?} in {element:?}: {error}");
        }
    });
    out
}

/// The library on a GPU.
fn library_on(device: &CudaDevice) -> Result<Arc<Mutex<Library>>, DeviceError> {
    let mut libraries = lock(&LIBRARIES);
    let open = || {
        let told = |message: String| DeviceError::Products { message };
        let context = CudaContext::new(device.index).map_err(|error| told(error.to_string()))?;
        let stream = ComputeStream::of(device, Arc::clone(&context))?;
        Library::open(context, Arc::new(stream)).map(|library| Arc::new(Mutex::new(library)))
    };
    libraries.entry(device.index).or_insert_with(open).clone()
}
