//! Bytes that a rank sends in a collective.

use ir::collective::Collective;
use ir::units::Bytes;

/// Bytes that each of `num_ranks` ranks sends in a collective on a whole buffer of `bytes`.
///
/// # Source
///
/// [`Collective::volume_factor`].
pub fn volume_per_rank(kind: Collective, num_ranks: u32, bytes: Bytes) -> Bytes {
    Bytes::from_f64(kind.volume_factor(num_ranks) * bytes.as_f64())
}
