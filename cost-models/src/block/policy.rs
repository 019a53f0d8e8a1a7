//! What depends on the policy of recompute.

use ir::graph::Recompute;

/// Something for each [`Recompute`] policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByPolicy<T>([T; 3]);

impl<T> ByPolicy<T> {
    /// What `of` says of each.
    pub fn new(of: impl FnMut(Recompute) -> T) -> Self {
        Self(Recompute::ALL.map(of))
    }
}

impl<T> std::ops::Index<Recompute> for ByPolicy<T> {
    type Output = T;

    fn index(&self, policy: Recompute) -> &T {
        &self.0[policy as usize]
    }
}
