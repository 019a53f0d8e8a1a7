//! The error of unknown instructions.

/// An instruction that is unknown, or has unknown modifiers or operands.
pub(super) struct Unknown;

pub(super) type Result<T> = std::result::Result<T, Unknown>;
