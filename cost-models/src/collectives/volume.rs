//! How much a rank sends.

use ir::collective::Collective;
use ir::units::Bytes;

/// The bytes that a rank sends, as a multiple of the whole buffer, by the algorithm that sends
/// least.
///
/// ```text
/// all-reduce                              2 (n - 1) / n
/// all-gather, reduce-scatter, all-to-all    (n - 1) / n
/// broadcast, send                           1
/// ```
///
/// Zero for one rank.
///
/// # Source
///
/// Thakur, Rabenseifner and Gropp 2005, *Optimization of Collective Communication Operations in
/// MPICH*, sections 4.1 to 4.4.
pub fn volume_factor(kind: Collective, num_ranks: u32) -> f64 {
    if num_ranks < 2 {
        return 0.0;
    }
    let n = f64::from(num_ranks);
    match kind {
        Collective::AllReduce => 2.0 * (n - 1.0) / n,
        Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => (n - 1.0) / n,
        Collective::Broadcast | Collective::SendReceive => 1.0,
    }
}

/// The bytes that each of `num_ranks` ranks sends in a collective on a whole buffer of `bytes`.
///
/// # Source
///
/// [`volume_factor`].
pub fn volume_per_rank(kind: Collective, num_ranks: u32, bytes: Bytes) -> Bytes {
    Bytes::from_f64(volume_factor(kind, num_ranks) * bytes.as_f64())
}
