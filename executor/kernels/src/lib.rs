//! Operators of deep learning on arrays of a burn backend: forward passes, gradients, and the kernels that run them.
//!
//! Knows arrays, devices and single operators; never a rank, a message, a plan or a file.

pub mod array;
pub mod clock;
pub mod comparison;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod failure;
pub mod lock;
pub mod ops;
pub mod random;
pub mod streams;
pub mod trials;
#[cfg(feature = "wgpu")]
pub mod wgpu;
