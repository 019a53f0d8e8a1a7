//! The functions of cuBLASLt for products of matrices.
//!
//! A product is checked against NVIDIA's documentation and recorded with its reads and writes, including those of its
//! workspace. It is computed if kernels are computed.
//!
//! # Source
//!
//! NVIDIA, *cuBLAS* 12.9, section 3.4.
#![expect(unsafe_code, reason = "these are functions of C")]

use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::Arc;

use super::call::{Outcome, exported, put};
use super::codes::Code;
use super::descriptors::{Attribute, Description, Preference};
use super::state::State;
use super::task::Task;
use crate::number::word;
use crate::product::{ComputeType, MatrixLayout, Operands, Product, ProductRefusal, cuda_format};
use crate::recording::{Access, Range, Usage};

/// `cublasLtMatmulAlgo_t`: the problem that an algorithm was found for. NVIDIA does not document its content.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Algorithm {
    magic: u64,
    workspace_bytes: u64,
    alignments: [u32; 4],
    rest: [u64; 4],
}

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
pub(crate) struct HeuristicResult {
    algorithm: Algorithm,
    workspace_bytes: usize,
    state: c_int,
    num_waves: f32,
    reserved: [c_int; 4],
}

const MAGIC: u64 = 0x616c_676f_7269_7468;

/// Alignment of workspaces in bytes.
const WORKSPACE_ALIGN: u64 = 16;

/// Bytes of workspace that an algorithm asks for if it is allowed any, so that conflicting uses are noticed.
const WORKSPACE_BYTES: u64 = 1 << 20;

exported! {
    fn cublasLtCreate(state, handle: *mut usize) {
        let new = state.new_handle();
        state.descriptors.handles.insert(new);
        put(handle, new)
    }

    fn cublasLtMatmulDescCreate(state, description: *mut usize, compute: c_int, scale: c_int) {
        let new = state.new_handle();
        state.descriptors.products.insert(new, Description::new(compute, scale)?);
        put(description, new)
    }

    fn cublasLtMatmulDescSetAttribute(state, description: usize, number: c_int,
        value: *const u8, bytes: usize) {
        let attribute = Attribute { number, bytes: given(value, bytes)? };
        let outcome = state.descriptors.set_product(description, &attribute);
        recorded(state, "cublasLtMatmulDescSetAttribute", number, outcome)
    }

    fn cublasLtMatrixLayoutCreate(state, layout: *mut usize, element: c_int, rows: u64,
        columns: u64, leading: i64) {
        let element = cuda_format(element).ok_or(Code::CUBLAS_NOT_SUPPORTED)?;
        let leading = u64::try_from(leading).map_err(|_| Code::CUBLAS_INVALID_VALUE)?;
        let new = state.new_handle();
        state.descriptors.layouts.insert(new, MatrixLayout::new(element, rows, columns, leading));
        put(layout, new)
    }

    fn cublasLtMatrixLayoutSetAttribute(state, layout: usize, number: c_int, value: *const u8,
        bytes: usize) {
        let attribute = Attribute { number, bytes: given(value, bytes)? };
        let outcome = state.descriptors.set_layout(layout, &attribute);
        recorded(state, "cublasLtMatrixLayoutSetAttribute", number, outcome)
    }

    fn cublasLtMatmulPreferenceCreate(state, preference: *mut usize) {
        let new = state.new_handle();
        state.descriptors.preferences.insert(new, Preference::new());
        put(preference, new)
    }

    fn cublasLtMatmulPreferenceSetAttribute(state, preference: usize, number: c_int,
        value: *const u8, bytes: usize) {
        let attribute = Attribute { number, bytes: given(value, bytes)? };
        let outcome = state.descriptors.set_preference(preference, &attribute);
        recorded(state, "cublasLtMatmulPreferenceSetAttribute", number, outcome)
    }

    fn cublasLtMatmulPreferenceDestroy(state, preference: usize) {
        state.descriptors.remove_preference(preference)
    }

    fn cublasLtMatmulAlgoGetHeuristic(state, handle: usize, description: usize, a: usize,
        b: usize, c: usize, d: usize, preference: usize, num_asked: c_int, found: *mut HeuristicResult,
        num_found: *mut c_int) {
        state.descriptors.check_handle(handle)?;
        if num_asked < 1 {
            return Err(Code::CUBLAS_INVALID_VALUE);
        }
        let product = state.descriptors.product(description, [a, b, c, d])?;
        let preference = state.descriptors.preference(preference)?;
        checked(state, product.check())?;
        let workspace_bytes = WORKSPACE_BYTES.min(preference.workspace_bytes);
        let alignments = preference.alignments;
        let algorithm = Algorithm { magic: MAGIC, workspace_bytes, alignments, rest: [0; 4] };
        let workspace_bytes = workspace_bytes as usize;
        put(found, HeuristicResult { algorithm, workspace_bytes, state: 0, num_waves: 1.0, reserved: [0; 4] })?;
        put(num_found, 1)
    }

    fn cublasLtMatmul(state, handle: usize, description: usize, alpha: *const c_void, a: u64,
        a_layout: usize, b: u64, b_layout: usize, beta: *const c_void, c: u64, c_layout: usize,
        d: u64, d_layout: usize, algorithm: *const Algorithm, workspace: u64,
        workspace_bytes: usize, stream: usize) {
        state.descriptors.check_handle(handle)?;
        let layouts = [a_layout, b_layout, c_layout, d_layout];
        let product = state.descriptors.product(description, layouts)?;
        let (alpha, beta) = (scalar(alpha, product.compute_type)?, scalar(beta, product.compute_type)?);
        let operands = Operands { addresses: [a, b, c, d], alpha, beta };
        let algorithm = if algorithm.is_null() { None } else { Some(*algorithm) };
        let workspace = Range::new(workspace, workspace_bytes as u64);
        multiply(state, &product, &operands, algorithm, workspace, stream)
    }
}

/// The bytes of an attribute's value.
///
/// # Safety
///
/// The pointer is null or valid for `bytes` bytes.
unsafe fn given<'a>(value: *const u8, bytes: usize) -> Result<&'a [u8], Code> {
    if value.is_null() {
        return Err(Code::CUBLAS_INVALID_VALUE);
    }
    // SAFETY: it is not null, so it is valid for `bytes` bytes.
    Ok(unsafe { slice::from_raw_parts(value, bytes) })
}

/// A scalar in memory of the host.
///
/// # Safety
///
/// The pointer is null or to a number of the precision's scalar type.
unsafe fn scalar(value: *const c_void, compute_type: ComputeType) -> Result<f64, Code> {
    if value.is_null() {
        return Err(Code::CUBLAS_INVALID_VALUE);
    }
    // SAFETY: it points to a number of that type.
    Ok(unsafe {
        match compute_type {
            ComputeType::F64 => value.cast::<f64>().read_unaligned(),
            _ => f64::from(value.cast::<f32>().read_unaligned()),
        }
    })
}

/// Counts an attribute that is refused.
fn recorded(state: &mut State, function: &str, number: c_int, outcome: Outcome) -> Outcome {
    outcome.inspect_err(|_| refuse(state, format!("{function} of attribute {number}")))
}

fn refuse(state: &mut State, what: String) {
    *state.counts.refused.entry(what).or_default() += 1;
}

/// Counts a product that is refused.
fn checked(state: &mut State, outcome: Result<(), ProductRefusal>) -> Outcome {
    outcome.map_err(|refusal| {
        refuse(state, format!("cublasLtMatmul: {refusal}"));
        match refusal {
            ProductRefusal::Invalid(_) => Code::CUBLAS_INVALID_VALUE,
            ProductRefusal::NotSupported(_) => Code::CUBLAS_NOT_SUPPORTED,
        }
    })
}

/// Fails if an algorithm was found for another problem.
fn suits(
    algorithm: &Algorithm,
    product: &Product,
    operands: &Operands,
    workspace: Range,
) -> Result<(), ProductRefusal> {
    let invalid = |what: String| Err(ProductRefusal::Invalid(what));
    if algorithm.magic != MAGIC {
        return invalid("the algorithm is not one that was found".to_owned());
    }
    if algorithm.workspace_bytes > workspace.end - workspace.start {
        let (given, wanted) = (workspace.end - workspace.start, algorithm.workspace_bytes);
        return invalid(format!("a workspace of {given} bytes, where {wanted} were asked for"));
    }
    let matrices = operands.addresses.iter().zip(&algorithm.alignments).zip(["A", "B", "C", "D"]);
    for ((address, alignment), name) in matrices {
        let is_read = name != "C" || operands.beta != 0.0;
        if is_read && address % u64::from(*alignment) != 0 {
            let dims = product.dims();
            let what = format!(
                "{name} of a product of {dims:?} is not aligned to the {alignment} bytes for which \
                 the algorithm was found"
            );
            return invalid(what);
        }
    }
    Ok(())
}

/// Checks a product, records it, and computes it if kernels are computed.
fn multiply(
    state: &mut State,
    product: &Product,
    operands: &Operands,
    algorithm: Option<Algorithm>,
    workspace: Range,
    stream: usize,
) -> Outcome {
    const NAME: &str = "cublasLtMatmul";
    let stream = state.stream(stream).map_err(|_| Code::CUBLAS_INVALID_VALUE)?.id;
    checked(state, product.check())?;
    checked(state, product.check_operands(operands))?;
    let workspace = if workspace.start == 0 { Range::new(0, 0) } else { workspace };
    if workspace.start % WORKSPACE_ALIGN != 0 {
        let what = format!("the workspace lies at {:#x}, unaligned", workspace.start);
        return checked(state, Err(ProductRefusal::Invalid(what)));
    }
    if let Some(algorithm) = &algorithm {
        checked(state, suits(algorithm, product, operands, workspace))?;
    }
    let mut accesses = product.accesses(operands);
    if !workspace.is_empty() {
        accesses.push(Access { range: workspace, usage: Usage::ReadWrite });
    }
    *state.counts.launches.entry(NAME.to_owned()).or_default() += 1;
    let is_there = accesses.iter().all(|access| state.space.holds(access.range));
    if !is_there {
        state.misuse(format!("{NAME} beyond what is allocated"));
    }
    state.record_work(stream, &Arc::from(NAME), accesses);
    if !is_there {
        return Err(Code::CUBLAS_EXECUTION_FAILED);
    }
    if state.config.computes {
        return state.give(stream, Task::Product(Box::new((*product, *operands))));
    }
    state.space.blank(product.accesses(operands).last().expect("D is written").range);
    Ok(())
}

/// Computes a product whose memory is allocated.
pub(super) fn compute(product: &Product, operands: &Operands) {
    let read = |address: u64, bytes: usize| {
        let at = std::ptr::with_exposed_provenance::<u8>(address as usize);
        // SAFETY: it is within memory that the product reads, which is allocated.
        word(unsafe { slice::from_raw_parts(at, bytes) })
    };
    let mut write = |address: u64, bytes: usize, bits: u64| {
        let at = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        // SAFETY: it is within memory that the product writes, which is allocated and which no other code uses: it is
        // the program's memory of a device.
        let place = unsafe { slice::from_raw_parts_mut(at, bytes) };
        place.copy_from_slice(&bits.to_le_bytes()[..bytes]);
    };
    product.compute(operands, &read, &mut write);
}
