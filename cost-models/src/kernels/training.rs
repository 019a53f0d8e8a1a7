//! Ratios of kernel rates in a training step to those of the same kernels timed alone.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use ir::cluster::{Architecture, Gpu};
use ir::framework::{AttentionLibrary, KernelChoice};
use serde::Deserialize;

use crate::fitted::section;

/// Rates in a training step, relative to the kernels measured alone in short runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainingRates {
    /// Ratio for matrix products in 16 or 32 bits.
    pub matmul: f64,
    /// Ratio for matrix products in 8 bits, which take less power.
    pub matmul_8_bit: f64,
    /// Ratio for matrix products in 4 bits, relative to the share of peak that 8-bit kernels would reach.
    pub matmul_4_bit: f64,
    /// Ratio for memory-bound kernels.
    pub memory: f64,
    /// Ratio of the host's time to launch kernels, over that of the hosts of most GPUs.
    pub host: f64,
    /// Standard deviation of the speeds of a job's GPUs, relative to their mean.
    pub spread_of_speeds: f64,
    /// Ratio for attention forward: training kernels over the measured ones, which are TensorRT-LLM's.
    pub attention_forward: f64,
    /// Ratio for attention backward, over the measured forward kernels.
    pub attention_backward: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuRates {
    matmul: f64,
    matmul_8_bit: f64,
    /// The ratio for 4 bits; that for 8 bits where no step was measured.
    matmul_4_bit: Option<f64>,
    memory: f64,
    /// The host's ratio; 1 where no host of its kind was measured.
    host: Option<f64>,
    /// Ratios for forward and backward, by library.
    attention: BTreeMap<AttentionLibrary, [f64; 2]>,
}

impl TrainingRates {
    /// The rates of a GPU, and the name of their set. It is the first set that was measured of these: tuned kernels on
    /// the GPU or its kind, where such kernels are used; the GPU itself; the GPU whose kernels it takes; its
    /// generation; H100.
    pub(crate) fn new(
        gpu: &Gpu,
        library: AttentionLibrary,
        choice: KernelChoice,
    ) -> (String, Self) {
        static RATES: LazyLock<BTreeMap<String, GpuRates>> = LazyLock::new(|| section("gpus"));
        let tuned = format!("{}-tuned", gpu.name);
        let of_tuned =
            if choice == KernelChoice::Tuned { [&tuned, tuned_kind(gpu)] } else { [""; 2] };
        let names = [
            of_tuned[0],
            of_tuned[1],
            gpu.name.as_str(),
            // Of the same generation as B200, at a higher power.
            match () {
                () if gpu.name.contains("B300") => "b300",
                () if gpu.name.contains("GB200") => "gb200",
                () => "",
            },
            gpu.kernel_rates.as_deref().unwrap_or_default(),
            generation(gpu.architecture),
            "h100",
        ];
        let known = names.into_iter().find_map(|name| Some((name, RATES.get(name)?)));
        let (name, of_gpu) = known.expect("H100 is there; a test asks for it");
        let GpuRates { matmul, matmul_8_bit, matmul_4_bit, memory, host, ref attention } = *of_gpu;
        // A library that did not support the GPU yet takes the rates of the next newer one.
        let newer = attention.range(library..).next();
        let [attention_forward, attention_backward] =
            *newer.or_else(|| attention.last_key_value()).expect("each GPU has some").1;
        let matmul_4_bit = matmul_4_bit.unwrap_or(matmul_8_bit);
        let rates = Self {
            matmul,
            matmul_8_bit,
            matmul_4_bit,
            memory,
            host: host.unwrap_or(1.0),
            spread_of_speeds: section::<BTreeMap<String, f64>>("all_gpus")["spread_of_speeds"],
            attention_forward,
            attention_backward,
        };
        (name.to_owned(), rates)
    }
}

/// The set of tuned kernels that was measured on GPUs of this kind; empty if there is none.
fn tuned_kind(gpu: &Gpu) -> &'static str {
    match gpu.architecture {
        Architecture::Cdna3 | Architecture::Cdna4 => "MI355X-tuned",
        _ => "",
    }
}

const fn generation(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Volta => "v100",
        Architecture::Ampere | Architecture::Ada => "a100",
        Architecture::Blackwell => "b200",
        Architecture::Cdna3 => "MI300X",
        Architecture::Cdna4 => "MI355X",
        _ => "h100",
    }
}
