//! Values by recompute policy.

use ir::graph::BlockRecompute;

/// One value for each [`BlockRecompute`] policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByPolicy<T>([T; 3]);

impl<T> ByPolicy<T> {
    /// The values of `of` for every policy.
    pub fn new(of: impl FnMut(BlockRecompute) -> T) -> Self {
        Self(BlockRecompute::ALL.map(of))
    }
}

impl ByPolicy<bool> {
    /// True if any value is.
    pub fn any(self) -> bool {
        self.0.contains(&true)
    }
}

impl<T> std::ops::Index<BlockRecompute> for ByPolicy<T> {
    type Output = T;

    fn index(&self, policy: BlockRecompute) -> &T {
        &self.0[policy as usize]
    }
}
