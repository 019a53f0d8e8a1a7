//! Readers of other tools' measurements: tables of nccl-tests, traces of PyTorch's profiler, exports of Nsight Systems.

pub mod kineto;
pub mod nccl_tests;
pub mod nsys;
mod operators;
pub mod profile;
pub mod timeline;
