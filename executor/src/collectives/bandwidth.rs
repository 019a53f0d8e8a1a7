//! Bandwidths as nccl-tests states them.

use ir::collective::Collective;
use traces::collectives::Operation;

/// What the bandwidth of an operation, its bytes over its time, is multiplied by so that it can be held
/// against the bandwidth of the links, whatever the number of ranks.
///
/// ```text
/// all-reduce                                              2 (n - 1) / n
/// all-gather, reduce-scatter, all-to-all, gather, scatter   (n - 1) / n
/// broadcast, reduce, send-receive                            1
/// ```
///
/// # Source
///
/// NVIDIA, nccl-tests, `doc/PERFORMANCE.md`, and the functions `..GetBw` of `src/`, which have gather and
/// scatter too.
pub fn bus_factor(operation: Operation, num_ranks: u32) -> f64 {
    let n = f64::from(num_ranks);
    match operation {
        Operation::Collective(Collective::AllReduce) => 2.0 * (n - 1.0) / n,
        Operation::Collective(
            Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll,
        )
        | Operation::Gather
        | Operation::Scatter => (n - 1.0) / n,
        Operation::Collective(Collective::Broadcast | Collective::SendReceive)
        | Operation::Reduce => 1.0,
    }
}
