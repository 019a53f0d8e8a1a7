//! Ids of operators.

/// Id of an operator in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub(super) usize);

impl OpId {
    /// Position of the operator in [`Block::nodes`](super::Block::nodes).
    pub fn index(self) -> usize {
        self.0
    }
}
