//! Attention whose scores exist a tile at a time, in a cube's shared memory.
//!
//! Visibility follows from positions, which the device computes itself: tiles of hidden keys are skipped, and only a
//! few scalars are sent to the device.
//!
//! # Source
//!
//! Dao 2023, *FlashAttention-2*, sections 2.3 and 3.1, <https://arxiv.org/abs/2307.08691>.

mod backward;
mod cores;
mod forward;
mod problem;
mod scores;
mod tiles;

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;

pub(super) use self::problem::Problem;

/// The output and the log-sum-exp, or none where a device's shared memory is too small.
pub(super) fn forward<R: CubeRuntime>(
    problem: &Problem<R>,
    qkv: [&CubeTensor<R>; 3],
) -> Option<[CubeTensor<R>; 2]> {
    cores::forward(problem, qkv).or_else(|| forward::forward(problem, qkv))
}

/// The gradients of queries, keys and values, from the queries' log-sum-exp and `delta = rowsum(dO O)`, `[b, heads, s]`
/// in fp32, and the gradient of the output; none where a device's shared memory is too small.
pub(super) fn input_grad<R: CubeRuntime>(
    problem: &Problem<R>,
    qkv: [&CubeTensor<R>; 3],
    given: &[CubeTensor<R>; 3],
) -> Option<[CubeTensor<R>; 3]> {
    cores::input_grad(problem, qkv, given).or_else(|| backward::input_grad(problem, qkv, given))
}
