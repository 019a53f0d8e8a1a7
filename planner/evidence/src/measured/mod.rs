//! Readers of other tools' measurements: tables of nccl-tests, traces of PyTorch's profiler.

pub mod kineto;
pub mod nccl_tests;
mod operators;
pub mod profile;
pub mod timeline;

/// Reason why a file of measurements cannot be used, with a hint on what can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnusableFile(pub(crate) String);
