//! Error codes of the driver, of cuBLASLt and of NCCL.

use std::ffi::CStr;

/// A `CUresult`, a `cublasStatus_t` or an `ncclResult_t` that is not a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub(super) i32);

impl Code {
    pub(super) const INVALID_VALUE: Self = Self(1);
    pub(super) const OUT_OF_MEMORY: Self = Self(2);
    pub(super) const NO_DEVICE: Self = Self(100);
    pub(super) const INVALID_DEVICE: Self = Self(101);
    pub(super) const INVALID_CONTEXT: Self = Self(201);
    pub(super) const INVALID_HANDLE: Self = Self(400);
    pub(super) const NOT_FOUND: Self = Self(500);
    pub(super) const NOT_READY: Self = Self(600);
    pub(super) const ILLEGAL_ADDRESS: Self = Self(700);
    pub(super) const LAUNCH_TIMEOUT: Self = Self(702);
    pub(super) const CONTEXT_IS_DESTROYED: Self = Self(709);
    pub(super) const LAUNCH_FAILED: Self = Self(719);
    pub(super) const UNKNOWN: Self = Self(999);

    /// Used only by [`super::call`]: the call must be repeated, because its wait is not over.
    pub(super) const AGAIN: Self = Self(-1);

    pub(super) const CUBLAS_NOT_INITIALIZED: Self = Self(1);
    pub(super) const CUBLAS_INVALID_VALUE: Self = Self(7);
    pub(super) const CUBLAS_EXECUTION_FAILED: Self = Self(13);
    pub(super) const CUBLAS_NOT_SUPPORTED: Self = Self(15);

    pub(super) const NCCL_SYSTEM_ERROR: Self = Self(2);
    pub(super) const NCCL_INVALID_ARGUMENT: Self = Self(4);
    pub(super) const NCCL_INVALID_USAGE: Self = Self(5);
    pub(super) const NCCL_REMOTE_ERROR: Self = Self(6);
    pub(super) const NCCL_IN_PROGRESS: Self = Self(7);

    /// The default error of a planned failure of a function.
    pub(super) fn usual(function: &str) -> Self {
        match function {
            "cuLaunchKernel" => Self::LAUNCH_FAILED,
            "async" | "join" | "peer" => Self::NCCL_REMOTE_ERROR,
            name if name.starts_with("cublas") => Self::CUBLAS_EXECUTION_FAILED,
            name if name.starts_with("nccl") => Self::NCCL_REMOTE_ERROR,
            name if name.contains("Alloc") => Self::OUT_OF_MEMORY,
            _ => Self::UNKNOWN,
        }
    }

    /// Returns whether all later calls fail with the same error.
    pub(super) fn is_sticky(self) -> bool {
        [Self::ILLEGAL_ADDRESS, Self::LAUNCH_FAILED].contains(&self)
    }
}

/// The driver's name of an error code.
pub(super) fn cuda_name(code: i32) -> &'static CStr {
    match code {
        0 => c"CUDA_SUCCESS",
        1 => c"CUDA_ERROR_INVALID_VALUE",
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        100 => c"CUDA_ERROR_NO_DEVICE",
        101 => c"CUDA_ERROR_INVALID_DEVICE",
        201 => c"CUDA_ERROR_INVALID_CONTEXT",
        400 => c"CUDA_ERROR_INVALID_HANDLE",
        500 => c"CUDA_ERROR_NOT_FOUND",
        600 => c"CUDA_ERROR_NOT_READY",
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        702 => c"CUDA_ERROR_LAUNCH_TIMEOUT",
        709 => c"CUDA_ERROR_CONTEXT_IS_DESTROYED",
        719 => c"CUDA_ERROR_LAUNCH_FAILED",
        801 => c"CUDA_ERROR_NOT_SUPPORTED",
        _ => c"CUDA_ERROR_UNKNOWN",
    }
}

/// NCCL's text of a result code.
pub(super) fn nccl_text(code: i32) -> &'static CStr {
    match code {
        0 => c"no error",
        1 => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        2 => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        3 => c"internal error - please report this issue to the NCCL developers",
        4 => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        5 => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        _ => c"unknown result code",
    }
}
