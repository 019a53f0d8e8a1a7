//! What other tools measured, read: nccl-tests' tables, traces of PyTorch's profiler, exports of Nsight Systems.

pub mod kind;
pub mod kineto;
pub mod nccl_tests;
pub mod nsys;
mod operators;
pub mod profile;
pub mod timeline;
