//! What other tools measured, read: nccl-tests' tables, and traces of PyTorch's profiler.

pub mod kind;
pub mod kineto;
pub mod nccl_tests;
mod operators;
pub mod profile;
pub mod timeline;
