//! Attention by tensor cores: arrays of 16 bits, on GPUs whose planes multiply 16 by 16 by 8.
//!
//! Each plane's scores and sums stay in registers; keys and values, or queries and gradients, are loaded to shared
//! memory once for all planes of a cube.
//!
//! # Source
//!
//! Dao 2023, *FlashAttention-2*, section 3.3, <https://arxiv.org/abs/2307.08691>.

mod backward;
mod forward;
mod rows;

use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::super::fragments::{CHUNK, DEPTH, are_multiplied};
use super::problem::Problem;

/// The widest rows whose sums fit a plane's registers.
const WIDEST: usize = 192;

/// The output and the log-sum-exp, or none where these kernels do not apply.
pub(super) fn forward<R: CubeRuntime>(
    problem: &Problem<R>,
    qkv: [&CubeTensor<R>; 3],
) -> Option<[CubeTensor<R>; 2]> {
    applies(problem, qkv[0]).then(|| {
        let [q, k, v] = qkv.map(aligned);
        forward::forward(problem, [&q, &k, &v])
    })
}

/// The gradients of queries, keys and values, or none where these kernels do not apply.
pub(super) fn input_grad<R: CubeRuntime>(
    problem: &Problem<R>,
    qkv: [&CubeTensor<R>; 3],
    [log_sum_exp, delta, grad]: &[CubeTensor<R>; 3],
) -> Option<[CubeTensor<R>; 3]> {
    applies(problem, qkv[0]).then(|| {
        let ([q, k, v], grad) = (qkv.map(aligned), aligned(grad));
        backward::input_grad(problem, [&q, &k, &v], [log_sum_exp, delta, &grad])
    })
}

/// Returns whether a device supports these kernels, and these kernels support the widths of the rows.
fn applies<R: CubeRuntime>(problem: &Problem<R>, q: &CubeTensor<R>) -> bool {
    let widths = [problem.dims.features, problem.dims.value_features];
    widths.iter().all(|width| width.is_multiple_of(DEPTH) && *width <= WIDEST)
        && q.client.properties().hardware.max_shared_memory_size >= backward::shared_bytes(widths)
        && are_multiplied(&q.client, q.dtype)
}

/// The array, copied where its rows are not aligned to whole chunks.
fn aligned<R: CubeRuntime>(x: &CubeTensor<R>) -> CubeTensor<R> {
    let strides = x.meta.strides();
    let (last, others) = strides.split_last().expect("an array of attention has four dimensions");
    let offset = x.handle.offset_start.unwrap_or(0);
    let chunk_bytes = (CHUNK * x.dtype.size()) as u64;
    let lie_well = others.iter().all(|stride| stride.is_multiple_of(CHUNK));
    if *last == 1 && lie_well && offset.is_multiple_of(chunk_bytes) {
        x.clone()
    } else {
        into_contiguous(x.clone())
    }
}
