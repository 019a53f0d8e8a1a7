//! Limits on the size of a graph.

/// Largest size of a dimension, kernel or padding: far above any model, far below overflow.
pub const MAX_SIZE: u64 = 1 << 40;

/// Largest number of elements of a tensor for each sample (and position of a symbolic sequence).
pub const MAX_ELEMENTS: u64 = 1 << 40;

/// Largest number of parameters of a model: a thousand times that of the largest model so far.
pub const MAX_PARAMETERS: u64 = 1 << 50;
