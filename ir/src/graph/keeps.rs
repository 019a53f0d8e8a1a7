//! Tensors that operators save.

/// A tensor that an operator saves for its backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// The input of this index.
    Input(usize),
    /// The output.
    Output,
    /// The softmax of the input in fp32.
    Softmax,
    /// A byte for each element of the output.
    Mask,
    /// One index for each element (or token) of the output.
    Indices,
    /// This number of fp32 values for each row.
    Statistics(u64),
}
