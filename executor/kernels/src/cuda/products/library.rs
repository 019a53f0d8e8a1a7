//! cuBLASLt on one GPU: choice of the kernel for a product, and its launch.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

use burn::tensor::DType;
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use cudarc::cublaslt::sys::cublasLtMatmulPreferenceAttributes_t as Preference;
use cudarc::cublaslt::sys::cublasLtMatrixLayoutAttribute_t as Attribute;
use cudarc::driver::CudaContext;

use super::super::compute_stream::ComputeStream;
use super::layout::{Operand, Product, Stored};
use crate::failure::DeviceError;

/// Start of the error message where the library fails.
pub(super) const FAILED: &str = "cuBLASLt, which multiplies matrices, does not start";

/// Workspace of kernels in bytes, as NVIDIA advises for its GPUs since Hopper.
const WORKSPACE_BYTES: usize = 32 << 20;

/// The best alignment that kernels ask for, in bytes.
const BEST_ALIGNMENT: u64 = 256;

/// Device addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    /// Address of the right array.
    pub(super) first: u64,
    /// Address of the left array.
    pub(super) second: u64,
    /// Address of the summand: laid out as the result, which it may be.
    pub(super) addend: u64,
    pub(super) result: u64,
}

/// cuBLASLt, ready to compute on burn's stream of one GPU.
pub(super) struct Library {
    handle: sys::cublasLtHandle_t,
    context: Arc<CudaContext>,
    stream: Arc<ComputeStream>,
    /// Workspace shared by all products, which run one after the other on the stream.
    workspace: u64,
    /// Chosen kernels. Measured times play no part, so all ranks with the same version of the library choose alike.
    choices: BTreeMap<Key, Prepared>,
}

/// Key of the choice of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    product: Product,
    elements: ProductElements,
    alignments: [u64; 4],
}

/// Element types of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProductElements {
    /// Element type of both operands.
    pub(super) read: ProductElement,
    /// Element type of the result and of the summand.
    pub(super) written: ProductElement,
}

/// An element type of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProductElement {
    Fp32,
    Fp16,
    Bf16,
}

impl ProductElement {
    /// The type of an array's elements; none if cuBLASLt is not used for it.
    pub(super) fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F32 => Some(Self::Fp32),
            DType::F16 => Some(Self::Fp16),
            DType::BF16 => Some(Self::Bf16),
            _ => None,
        }
    }

    fn number(self) -> sys::cudaDataType_t {
        match self {
            Self::Fp32 => sys::cudaDataType_t::CUDA_R_32F,
            Self::Fp16 => sys::cudaDataType_t::CUDA_R_16F,
            Self::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
        }
    }
}

/// Handles of cuBLASLt that describe a product, and the kernel for it. Never freed.
#[derive(Clone, Copy)]
struct Prepared {
    description: sys::cublasLtMatmulDesc_t,
    first: sys::cublasLtMatrixLayout_t,
    second: sys::cublasLtMatrixLayout_t,
    result: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

#[expect(unsafe_code, reason = "the pointers are cuBLASLt's")]
// SAFETY: any thread may use cuBLASLt's descriptions and handles, one after the other.
unsafe impl Send for Library {}

impl Library {
    /// Returns whether the library is found.
    #[expect(unsafe_code, reason = "whether a library is there is found by loading it")]
    pub(super) fn is_present() -> bool {
        // SAFETY: its initialisers may run at any time.
        unsafe { sys::is_culib_present() }
    }

    /// The library on a GPU.
    pub(super) fn open(
        context: Arc<CudaContext>,
        stream: Arc<ComputeStream>,
    ) -> Result<Self, DeviceError> {
        let error_of = DeviceError::of(FAILED);
        context.bind_to_thread().map_err(|error| error_of(error.to_string()))?;
        let handle = result::create_handle().map_err(|error| error_of(error.to_string()))?;
        #[expect(unsafe_code, reason = "memory is the driver's")]
        // SAFETY: a context is current on this thread; the memory is kept until the process ends.
        let workspace = unsafe { cudarc::driver::result::malloc_sync(WORKSPACE_BYTES) }
            .map_err(|error| error_of(error.to_string()))?;
        Ok(Self { handle, context, stream, workspace, choices: BTreeMap::new() })
    }

    /// Starts a product on burn's stream, and adds the summand to it where `adds`.
    ///
    /// # Safety
    ///
    /// The addresses are those of arrays on the GPU that the product reads and writes. No other work changes these
    /// arrays between the work that was enqueued on burn's stream before the product and the work that is enqueued
    /// after it.
    #[expect(unsafe_code, reason = "cuBLASLt is written in C")]
    pub(super) unsafe fn start(
        &mut self,
        product: Product,
        elements: ProductElements,
        addresses: Addresses,
        adds: bool,
    ) -> Result<(), String> {
        self.context.bind_to_thread().map_err(|error| error.to_string())?;
        let Addresses { first, second, addend, result: target } = addresses;
        let alignments = [first, second, addend, target].map(alignment);
        let key = Key { product, elements, alignments };
        let chosen = if let Some(known) = self.choices.get(&key) {
            *known
        } else {
            let made = self.prepared(&key).map_err(|error| error.to_string())?;
            self.choices.insert(key, made);
            made
        };
        let (factor, share_added) = (1.0f32, if adds { 1.0f32 } else { 0.0 });
        // SAFETY: the descriptions were made for this product and live; the caller vouches for the addresses, which
        // are as well aligned as the kernel needs, and the workspace is used by nothing else on the stream.
        unsafe {
            result::matmul(
                self.handle,
                chosen.description,
                (&raw const factor).cast(),
                (&raw const share_added).cast(),
                first as *const c_void,
                chosen.first,
                second as *const c_void,
                chosen.second,
                addend as *const c_void,
                chosen.result,
                target as *mut c_void,
                chosen.result,
                &raw const chosen.algorithm,
                self.workspace as *mut c_void,
                WORKSPACE_BYTES,
                self.stream.raw().cast(),
            )
        }
        .map_err(|error| error.to_string())
    }

    /// The handles of a product, and the kernel that cuBLASLt's heuristic ranks first.
    #[expect(unsafe_code, reason = "cuBLASLt is written in C")]
    fn prepared(&self, key: &Key) -> Result<Prepared, CublasError> {
        let Key { product, elements, alignments } = key;
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let description = result::create_matmul_desc(compute, sys::cudaDataType_t::CUDA_R_32F)?;
        let transposed = |operand: &Operand| i32::from(operand.is_transposed);
        for (attribute, value) in [
            (sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA, &product.first),
            (sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSB, &product.second),
        ] {
            let value = transposed(value);
            // SAFETY: the description lives, and the attribute is a number of 32 bits.
            unsafe {
                let value = (&raw const value).cast();
                result::set_matmul_desc_attribute(description, attribute, value, size_of::<i32>())
            }?;
        }
        let read = |operand: &Operand| matrix(&operand.stored, elements.read, product.batch);
        let (first, second) = (read(&product.first)?, read(&product.second)?);
        let result = matrix(&product.result, elements.written, product.batch)?;
        let preference = result::create_matmul_pref()?;
        let set = |attribute, value: u64, bytes: usize| {
            // SAFETY: the preference lives; the attribute has `bytes` bytes, the lowest of the number.
            unsafe {
                let value = (&raw const value).cast();
                result::set_matmul_pref_attribute(preference, attribute, value, bytes)
            }
        };
        set(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, WORKSPACE_BYTES as u64, 8)?;
        set(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[0], 4)?;
        set(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[1], 4)?;
        set(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2], 4)?;
        set(Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments[3], 4)?;
        // SAFETY: all arguments were made above and live.
        let found = unsafe {
            let (a, b, c) = (first, second, result);
            result::get_matmul_algo_heuristic(self.handle, description, a, b, c, c, preference)
        };
        // SAFETY: it was made above, and no other code holds it.
        unsafe { result::destroy_matmul_pref(preference) }?;
        Ok(Prepared { description, first, second, result, algorithm: found?.algo })
    }
}

/// Alignment of an address in bytes, a power of two, at most [`BEST_ALIGNMENT`].
fn alignment(address: u64) -> u64 {
    if address == 0 { BEST_ALIGNMENT } else { BEST_ALIGNMENT.min(1 << address.trailing_zeros()) }
}

/// The layout of a matrix, or of a batch of them.
#[expect(unsafe_code, reason = "cuBLASLt is written in C")]
fn matrix(
    stored: &Stored,
    element: ProductElement,
    batch: usize,
) -> Result<sys::cublasLtMatrixLayout_t, CublasError> {
    let Stored { rows, columns, leading, batch_stride } = *stored;
    let layout = result::create_matrix_layout(
        element.number(),
        rows as u64,
        columns as u64,
        signed(leading),
    )?;
    let count = i32::try_from(batch).expect("a batch has fewer than 2^31 matrices");
    let stride = signed(batch_stride);
    // SAFETY: the layout lives, the first attribute is a number of 32 bits, the second one of 64.
    unsafe {
        let count = (&raw const count).cast();
        result::set_matrix_layout_attribute(
            layout,
            Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
            count,
            size_of::<i32>(),
        )?;
        let stride = (&raw const stride).cast();
        result::set_matrix_layout_attribute(
            layout,
            Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
            stride,
            size_of::<i64>(),
        )?;
    }
    Ok(layout)
}

/// A number of elements with a sign, as cuBLASLt counts them.
fn signed(elements: usize) -> i64 {
    i64::try_from(elements).expect("an array has fewer than 2^63 elements")
}
