//! Products of matrices by cuBLASLt, NVIDIA's library, which has kernels for each GPU's tensor cores.
//!
//! The library is loaded at run time. If it is missing, burn's kernels compute products, at a fraction of its speed.
//! The thread that launches burn's kernels calls the library on burn's stream, in the order of the calls, so no thread
//! waits.
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

use self::layout::{Product, View};
use self::library::{Addresses, FAILED, Library, ProductElement, ProductElements};
use super::compute_stream::ComputeStream;
use super::context_of;
use crate::failure::DeviceError;
use crate::lock::lock;

type Tensor = CubeTensor<CudaRuntime>;

type Server = <CudaRuntime as Runtime>::Server;

/// The library on each GPU that has computed a product, or why it cannot be used there.
static LIBRARIES: Mutex<BTreeMap<usize, Opened>> = Mutex::new(BTreeMap::new());

type Opened = Result<Arc<Mutex<Library>>, DeviceError>;

/// Returns whether cuBLASLt is found.
pub fn is_present() -> bool {
    static IS_PRESENT: LazyLock<bool> = LazyLock::new(Library::is_present);
    *IS_PRESENT
}

/// `left right`, `[.., m, k]` by `[.., k, n]`; other dimensions broadcast. None where cuBLASLt is missing or has no
/// such product.
pub(crate) fn matmul(left: &Tensor, right: &Tensor) -> Option<Tensor> {
    let request = ProductRequest::new(left, right)?;
    let out = request.new_result();
    request.start(&out, None);
    Some(out)
}

/// `left right + addend`, where the sum has the shape of the addend; none as for [`matmul`].
pub(crate) fn matmul_plus(left: &Tensor, right: &Tensor, addend: &Tensor) -> Option<Tensor> {
    let request = ProductRequest::new(left, right)?;
    let is_alike = *addend.meta.shape() == request.shape() && addend.dtype == left.dtype;
    let addend = is_alike.then(|| into_contiguous(addend.clone()))?;
    let out = request.new_result();
    request.start(&out, Some(&addend));
    Some(out)
}

/// Writes `left right`, `[m, k]` by `[k, n]`, to a flat array from element `start` on, or adds it there if `adds`. The
/// sum is accumulated in the flat array's type. Returns false, and writes nothing, where [`matmul`] would return none.
pub(crate) fn matmul_into(
    flat: &Tensor,
    start: usize,
    [left, right]: [&Tensor; 2],
    adds: bool,
) -> bool {
    let is_covered = flat.dtype == DType::F32 || flat.dtype == left.dtype;
    let Some(request) = ProductRequest::new(left, right).filter(|_| is_covered) else {
        return false;
    };
    let mut part = flat.clone();
    let offset = part.handle.offset_start.unwrap_or(0);
    part.handle.offset_start = Some(offset + (start * flat.dtype.size()) as u64);
    request.start(&part, adds.then_some(&part));
    true
}

/// A product that cuBLASLt supports, with its arrays.
struct ProductRequest {
    product: Product,
    left: Tensor,
    right: Tensor,
}

impl ProductRequest {
    fn new(left: &Tensor, right: &Tensor) -> Option<Self> {
        if ProductElement::of(left.dtype).is_none() || left.dtype != right.dtype || !is_present() {
            return None;
        }
        let (left, right) = (left.clone(), right.clone());
        if let Some(product) = product(&left, &right) {
            return Some(Self { product, left, right });
        }
        let [left, right] = [left, right].map(into_contiguous);
        product(&left, &right).map(|product| Self { product, left, right })
    }

    /// The shape of the result.
    fn shape(&self) -> Shape {
        let [left, right] = [&self.left, &self.right].map(|tensor| tensor.meta.shape());
        let mut shape: Vec<usize> =
            left.iter().zip(right.iter()).map(|(&left, &right)| left.max(right)).collect();
        let rank = shape.len();
        (shape[rank - 2], shape[rank - 1]) = (left[rank - 2], right[rank - 1]);
        Shape::from(shape)
    }

    fn new_result(&self) -> Tensor {
        let Self { left, .. } = self;
        let (client, device) = (left.client.clone(), left.device.clone());
        empty_device_contiguous_dtype(client, device, self.shape(), left.dtype)
    }

    /// Makes the thread that launches burn's kernels start the product. The summand is laid out as the result, which it
    /// may be.
    ///
    /// # Panics
    ///
    /// On that thread if cuBLASLt fails, as for a failed kernel of burn.
    fn start(self, result: &Tensor, addend: Option<&Tensor>) {
        let Self { product, left, right } = self;
        let library = library_on(&left.device);
        let element = |tensor: &Tensor| {
            ProductElement::of(tensor.dtype)
                .expect("what products are asked of is looked at before")
        };
        let elements = ProductElements { read: element(&left), written: element(result) };
        let (device, stream, adds) = (left.device.clone(), StreamId::current(), addend.is_some());
        let binding = |tensor: &Tensor| tensor.handle.clone().binding();
        let addend = addend.unwrap_or(result);
        let bindings = [&right, &left, addend, result].map(binding);
        DeviceHandle::<Server>::new(device.to_id()).submit(move |server| {
            let address = |binding| match server.get_resource(binding, stream) {
                Ok(resource) => resource.resource().ptr,
                Err(error) => panic!("memory of a product of matrices: {error}"),
            };
            let [first, second, addend, result] = bindings.map(address);
            let addresses = Addresses { first, second, addend, result };
            let library = library.unwrap_or_else(|error| panic!("{error}"));
            #[expect(unsafe_code, reason = "cuBLASLt takes addresses")]
            // SAFETY: the addresses are of the product's arrays, which were held until now, and burn reuses their
            // memory only for work that it launches on the same stream after this.
            let started = unsafe { lock(&library).start(product, elements, addresses, adds) };
            if let Err(error) = started {
                panic!("cuBLASLt does not compute {product:?} in {elements:?}: {error}");
            }
        });
    }
}

fn product(left: &Tensor, right: &Tensor) -> Option<Product> {
    let [left, right] = [left, right]
        .map(|tensor| View { shape: tensor.meta.shape(), strides: tensor.meta.strides() });
    Product::of(left, right)
}

/// The library on a GPU.
fn library_on(device: &CudaDevice) -> Opened {
    let mut libraries = lock(&LIBRARIES);
    let open = || {
        let error_of = DeviceError::of(FAILED);
        let context = context_of(device).map_err(|error| error_of(error.to_string()))?;
        let stream = ComputeStream::of(device, Arc::clone(&context))?;
        Library::open(context, Arc::new(stream)).map(|library| Arc::new(Mutex::new(library)))
    };
    libraries.entry(device.index).or_insert_with(open).clone()
}
