//! Fake CUDA driver, cuBLASLt and NCCL for machines without a GPU.
//!
//! As a shared library under the names of all three, it runs programs that compute on GPUs. It checks everything around
//! the computation: launches that CUDA would refuse, memory that two streams use without an order between them, or that
//! is used after it was freed, and ranks whose calls to NCCL do not match. With `STAND_IN_COMPUTE=1` kernels are
//! [computed](compute) too, and ranks [`exchange`] messages as NCCL would; without it, the program's results are
//! meaningless.
//!
//! The checks are pure functions: [`detect`](detector::detect) takes a [`Recording`](recording::Recording) of calls and
//! returns the mistakes. The library's functions only write the recording.

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
