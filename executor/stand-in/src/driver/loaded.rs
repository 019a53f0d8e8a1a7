//! Loaded modules and kernels.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::compute::{DecodedKernel, Fault};
use crate::ptx::KernelAttributes;

/// Modules and kernels by handle.
#[derive(Default)]
pub(super) struct Kernels {
    /// Texts of modules.
    pub(super) modules: BTreeMap<usize, String>,
    /// Kernels that were looked up.
    pub(super) functions: BTreeMap<usize, Function>,
}

/// A kernel that was looked up.
pub(super) struct Function {
    /// The kernel's name.
    pub(super) name: Arc<str>,
    /// The kernel's parameters and limits, from its text.
    pub(super) kernel: KernelAttributes,
    /// The decoded program, or why it could not be decoded, if kernels are computed.
    pub(super) program: Option<Result<Arc<DecodedKernel>, Fault>>,
    /// The limit of dynamic shared memory in bytes, if it was set.
    pub(super) allowed_bytes: Option<u64>,
}
