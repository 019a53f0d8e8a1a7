//! Modules and kernels that were loaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::compute::{Fault, Program};
use crate::ptx::Kernel;

/// What was loaded, by handle.
#[derive(Default)]
pub(super) struct Kernels {
    /// Their texts.
    pub(super) modules: BTreeMap<usize, String>,
    /// What was looked up in them.
    pub(super) functions: BTreeMap<usize, Function>,
}

/// A kernel that was looked up.
pub(super) struct Function {
    /// Its own name.
    pub(super) name: Arc<str>,
    /// What its text says.
    pub(super) kernel: Kernel,
    /// What it computes, or why that is not known, if kernels are computed.
    pub(super) program: Option<Result<Arc<Program>, Fault>>,
    /// Bytes of shared memory that launches may ask for, if it was said.
    pub(super) allowed_bytes: Option<u64>,
}
