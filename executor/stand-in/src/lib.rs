//! Stands in for the CUDA driver, for cuBLASLt and for NCCL where there is no GPU.
//!
//! As a shared library under the names of all three, it lets a program run that computes on GPUs.
//! What is checked is everything around the computing: launches that CUDA would refuse, memory that
//! is used by two streams without an order or after it was freed, and ranks that call NCCL unlike
//! each other. With `STAND_IN_COMPUTE=1` kernels are [computed](compute) too, and ranks
//! [`exchange`] what NCCL would; else what a program computes means nothing.
//!
//! The checks are values in, values out: a [`Recording`](recording::Recording) of calls goes to
//! [`detect`](detector::detect), which gives what is wrong. The library's functions only write the
//! recording.

pub mod clock;
pub mod compute;
pub mod detector;
mod driver;
pub mod exchange;
pub mod launch;
pub mod members;
pub mod metadata;
pub mod number;
pub mod product;
pub mod ptx;
pub mod recording;
pub mod report;
