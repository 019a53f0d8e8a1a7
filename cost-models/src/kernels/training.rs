//! How kernels of a training step differ from the same kernels timed alone.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use ir::cluster::{Architecture, Gpu};
use ir::framework::AttentionLibrary;
use serde::Deserialize;

use crate::fitted::section;

/// Rate of the executor's backward of attention over FlashAttention-2's: seven products of the same size for five, as
/// the scores and the gradients of probabilities are computed in the kernel of the queries' gradients and again in
/// that of the keys' and values'.
///
/// # Source
///
/// Dao 2023, *FlashAttention-2*, section 3.1.2; `executor/kernels/src/ops/kernels/cube/attention/cores/backward.rs`.
///
/// # Assumes
///
/// Products as fast as FlashAttention-2's, which are of the same `mma.sync` instructions. Nobody measured it.
const EXECUTORS_BACKWARD: f64 = 5.0 / 7.0;

/// Rates in a training step over those of the kernels that were measured alone, in short runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainingRates {
    /// Matrix products.
    pub matmul: f64,
    /// Matrix products in 8 bits, which take less power.
    pub matmul_8_bit: f64,
    /// Matrix products in 4 bits, over what kernels of 8 bits would reach of a peak as high.
    pub matmul_4_bit: f64,
    /// Kernels bound by memory bandwidth.
    pub memory: f64,
    /// Attention forward: training's kernels over those measured, which are TensorRT-LLM's.
    pub attention_forward: f64,
    /// Attention backward, over the forward kernels measured.
    pub attention_backward: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuRates {
    matmul: f64,
    matmul_8_bit: f64,
    /// As in 8 bits, where no step was measured.
    matmul_4_bit: Option<f64>,
    memory: f64,
    /// Forward and backward.
    attention: BTreeMap<AttentionLibrary, [f64; 2]>,
}

impl TrainingRates {
    /// Those of a GPU, and whose they are: its own, else of its generation, else H100's.
    pub(crate) fn new(gpu: &Gpu, library: AttentionLibrary) -> (String, Self) {
        static RATES: LazyLock<BTreeMap<String, GpuRates>> = LazyLock::new(|| section("gpus"));
        let names = [
            gpu.name.as_str(),
            // Of the same generation as B200, at a higher power.
            if gpu.name.contains("B300") { "b300" } else { "" },
            gpu.kernel_rates.as_deref().unwrap_or_default(),
            generation(gpu.architecture),
            "h100",
        ];
        let known = names.into_iter().find_map(|name| Some((name, RATES.get(name)?)));
        let (name, of_gpu) = known.expect("H100 is there; a test asks for it");
        let GpuRates { matmul, matmul_8_bit, matmul_4_bit, memory, ref attention } = *of_gpu;
        let (library, of_backward) = match library {
            AttentionLibrary::Executor => (AttentionLibrary::FlashAttention2, EXECUTORS_BACKWARD),
            library => (library, 1.0),
        };
        // A library that did not know the GPU yet is stood in for by the next.
        let newer = attention.range(library..).next();
        let [attention_forward, attention_backward] =
            *newer.or_else(|| attention.last_key_value()).expect("each GPU has some").1;
        let matmul_4_bit = matmul_4_bit.unwrap_or(matmul_8_bit);
        let rates = Self {
            matmul,
            matmul_8_bit,
            matmul_4_bit,
            memory,
            attention_forward,
            attention_backward: attention_backward * of_backward,
        };
        (name.to_owned(), rates)
    }
}

const fn generation(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Volta => "v100",
        Architecture::Ampere | Architecture::Ada => "a100",
        Architecture::Blackwell => "b200",
        _ => "h100",
    }
}
