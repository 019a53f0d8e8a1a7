//! Tests of operators and kernels: what they compute, against definitions and other libraries.

mod array;
mod empty_arrays;
mod ops;
#[cfg(feature = "wgpu")]
mod wgpu;
