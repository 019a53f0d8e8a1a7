//! Kernels, computed.
