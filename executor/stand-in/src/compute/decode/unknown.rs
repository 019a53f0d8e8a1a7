//! What is not decoded.

/// An instruction is not known, or not used as it is known.
pub(super) struct Unknown;

pub(super) type Result<T> = std::result::Result<T, Unknown>;
