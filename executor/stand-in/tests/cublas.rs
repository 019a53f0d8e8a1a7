//! The functions of cuBLASLt, called as a program calls them.
#![expect(unsafe_code, reason = "they are functions of C")]

use std::ffi::c_void;
use std::ptr::{from_mut, from_ref, null};

// The functions are exported by the library alone.
use stand_in as _;

unsafe extern "C" {
    fn cuInit(flags: u32) -> i32;
    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: i32) -> i32;
    fn cuCtxSetCurrent(context: usize) -> i32;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> i32;
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> i32;
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> i32;
    fn cublasLtCreate(handle: *mut usize) -> i32;
    fn cublasLtMatmulDescCreate(description: *mut usize, compute: i32, scale: i32) -> i32;
    fn cublasLtMatmulDescSetAttribute(
        description: usize,
        number: i32,
        value: *const c_void,
        bytes: usize,
    ) -> i32;
    fn cublasLtMatrixLayoutCreate(
        layout: *mut usize,
        element: i32,
        rows: u64,
        columns: u64,
        leading: i64,
    ) -> i32;
    fn cublasLtMatmulPreferenceCreate(preference: *mut usize) -> i32;
    fn cublasLtMatmulAlgoGetHeuristic(
        handle: usize,
        description: usize,
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        preference: usize,
        num_asked: i32,
        found: *mut [u64; 12],
        num_found: *mut i32,
    ) -> i32;
    fn cublasLtMatmul(
        handle: usize,
        description: usize,
        alpha: *const f32,
        a: u64,
        a_layout: usize,
        b: u64,
        b_layout: usize,
        beta: *const f32,
        c: u64,
        c_layout: usize,
        d: u64,
        d_layout: usize,
        algorithm: *const [u64; 12],
        workspace: u64,
        workspace_bytes: usize,
        stream: usize,
    ) -> i32;
}

const F32: i32 = 0;
const COMPUTE_F32: i32 = 68;
const TRANSPOSE_A: i32 = 3;
/// `CUBLAS_STATUS_INVALID_VALUE` and `CUBLAS_STATUS_EXECUTION_FAILED`.
const INVALID: i32 = 7;
const FAILED: i32 = 13;
#[track_caller]
fn done(code: i32) {
    assert_eq!(code, 0);
}

/// What a function makes, through a pointer.
fn made(make: impl FnOnce(*mut usize) -> i32) -> usize {
    let mut handle = 0;
    done(make(&raw mut handle));
    handle
}

fn on_device(numbers: &[f32]) -> u64 {
    let (mut address, bytes) = (0, size_of_val(numbers));
    // SAFETY: the pointers are of places and numbers that are there.
    unsafe {
        done(cuMemAlloc_v2(&raw mut address, bytes));
        done(cuMemcpyHtoD_v2(address, numbers.as_ptr().cast(), bytes));
    }
    address
}

/// `A^T B`, of three numbers to a sum, by columns.
#[test]
fn products_are_computed_where_they_lie_well() {
    // SAFETY: no other thread of this process reads its environment meanwhile.
    unsafe { std::env::set_var("STAND_IN_COMPUTE", "1") };
    // SAFETY: all pointers are of values that live as long as the calls.
    unsafe {
        done(cuInit(0));
        done(cuCtxSetCurrent(made(|at| cuDevicePrimaryCtxRetain(at, 0))));
        let (a, b) = (on_device(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), on_device(&[1.0, 0.0, -1.0]));
        let d = on_device(&[0.0; 2]);
        let handle = made(|at| cublasLtCreate(at));
        let description = made(|at| cublasLtMatmulDescCreate(at, COMPUTE_F32, F32));
        let transposes = from_ref(&1_i32).cast();
        done(cublasLtMatmulDescSetAttribute(description, TRANSPOSE_A, transposes, 4));
        let layout = |rows, columns, leading| {
            made(|at| cublasLtMatrixLayoutCreate(at, F32, rows, columns, leading))
        };
        let (of_a, of_b, of_d) = (layout(3, 2, 3), layout(3, 1, 3), layout(2, 1, 2));
        let preference = made(|at| cublasLtMatmulPreferenceCreate(at));
        let (mut algorithm, mut count) = ([0; 12], 0);
        done(cublasLtMatmulAlgoGetHeuristic(
            handle,
            description,
            of_a,
            of_b,
            of_d,
            of_d,
            preference,
            1,
            &raw mut algorithm,
            &raw mut count,
        ));
        assert_eq!(count, 1);
        let multiply = |d: u64, algorithm: *const [u64; 12]| {
            let (alpha, beta) = (1.0, 0.0);
            cublasLtMatmul(
                handle,
                description,
                &raw const alpha,
                a,
                of_a,
                b,
                of_b,
                &raw const beta,
                d,
                of_d,
                d,
                of_d,
                algorithm,
                0,
                0,
                0,
            )
        };
        done(multiply(d, &raw const algorithm));
        let mut result = [0_f32; 2];
        done(cuMemcpyDtoH_v2(from_mut(&mut result).cast(), d, 8));
        assert_eq!(result.map(f32::to_bits), [-2_f32, -2.0].map(f32::to_bits));
        // The algorithm was found for matrices that begin at multiples of 256.
        assert_eq!(multiply(d + 4, &raw const algorithm), INVALID);
        assert_eq!(multiply(d + 4, null()), FAILED, "its end is not there");
    }
}
