//! How large a graph may be.

/// The largest size of a dimension, kernel or padding: far above any model, far below overflow.
pub const MAX_SIZE: u64 = 1 << 40;

/// The most elements that a tensor may have for each sample (and position of a symbolic sequence).
pub const MAX_ELEMENTS: u64 = 1 << 40;

/// The most parameters that a model may have: a thousand times those of the largest so far.
pub const MAX_PARAMETERS: u64 = 1 << 50;
