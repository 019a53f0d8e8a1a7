//! Times of kernels on one GPU: matrix products, attention, and memory-bound kernels.

mod attention;
mod matmul;
mod measured;
mod memory;
mod rates;
mod timing;
mod training;

pub use attention::SelfAttentionShape;
pub use matmul::{MatmulFormat, MatmulShape};
pub use timing::{Basis, Bound, Timing};
pub use training::TrainingRates;

use std::collections::BTreeMap;

use ir::cluster::{Gpu, MeasuredKernels, Precision};
use ir::framework::{AttentionLibrary, Framework, KernelChoice, UnalignedRows};
use ir::graph::Pass;
use ir::units::{Bytes, FlopsPerSecond, Seconds};

/// Names of the built-in fitted kernel rates.
pub fn fitted_rates() -> Vec<String> {
    rates::names()
}

/// One GPU, with the rates of its kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    matmul: matmul::Rates,
    attention: attention::Rates,
    memory: memory::Rates,
    /// Highest sustained rate of products, by the precision of their inputs.
    sustained: BTreeMap<Precision, FlopsPerSecond>,
    /// Kernels that were measured on the machine itself; they take precedence.
    measured: Option<MeasuredKernels>,
    /// Rates of kernels in a training step, relative to the same kernels timed alone.
    pub training: TrainingRates,
    /// Name of the set of training rates.
    pub training_set: String,
    /// Units that run products whose rows tensor cores load badly.
    unaligned_rows: UnalignedRows,
    /// By how many standard deviations the slowest GPU of a job is slower than the mean.
    slowest: f64,
}

impl Device {
    /// Kernel rates of `gpu`: fitted where its `kernel_rates` name a fit, else scaled from the nearest.
    pub fn new(gpu: &Gpu) -> Self {
        Self::for_training(gpu, AttentionLibrary::Cudnn)
    }

    /// Kernel rates of a GPU with a framework.
    pub fn of(gpu: &Gpu, framework: &Framework) -> Self {
        let attention = framework.attention_on(gpu.architecture);
        Self {
            unaligned_rows: framework.kernels.unaligned_rows,
            ..Self::with(gpu, attention, framework.kernels.choice)
        }
    }

    /// True if kernels that are tuned for their shapes were measured to be faster on GPUs of this kind.
    pub fn gains_by_tuning(gpu: &Gpu) -> bool {
        let set = |choice| TrainingRates::new(gpu, AttentionLibrary::Cudnn, choice).0;
        set(KernelChoice::Tuned) != set(KernelChoice::Heuristic)
    }

    /// Kernel rates of a GPU, with the training attention of a library.
    pub fn for_training(gpu: &Gpu, attention: AttentionLibrary) -> Self {
        Self::with(gpu, attention, KernelChoice::Heuristic)
    }

    fn with(gpu: &Gpu, attention: AttentionLibrary, choice: KernelChoice) -> Self {
        let chosen = rates::Chosen::for_gpu(gpu);
        let (training_set, training) = TrainingRates::new(gpu, attention, choice);
        Self {
            matmul: matmul::Rates::new(gpu, &chosen),
            attention: attention::Rates::new(gpu, &chosen),
            memory: memory::Rates::new(gpu),
            sustained: gpu.sustained.clone(),
            measured: gpu.measured.clone(),
            training,
            training_set,
            unaligned_rows: UnalignedRows::TensorCores,
            slowest: 0.0,
        }
    }

    /// Makes the device the slowest of the GPUs of a job, for which all others wait.
    pub(crate) fn take_slowest_of(&mut self, num_gpus: u32) {
        self.slowest = expected_largest(num_gpus);
    }

    /// Time of a kernel on the slowest GPU of a job over that on most.
    fn slowness(&self) -> f64 {
        1.0 + self.training.spread_of_speeds * self.slowest
    }

    /// Time of `batch` products `C[m, n] = A[m, k] B[k, n]` in one kernel.
    pub fn matmul(&self, format: impl Into<MatmulFormat>, shape: MatmulShape) -> Seconds {
        self.matmul.time(format.into(), shape, 1.0).time
    }

    /// Time of [`Self::matmul`] within a training step, and its bound. The tables were measured in short runs, in which
    /// power does not throttle the clocks, and are scaled; times measured in whole steps are used unchanged.
    ///
    /// `pass` is the pass of the linear layer that the product belongs to; `cast`, the share of the first matrix that
    /// is cast for this product alone; `sum_bytes`, the size of an element of the buffer into which the product is
    /// accumulated, if it is.
    pub fn training_matmul(
        &self,
        format: impl Into<MatmulFormat>,
        shape: MatmulShape,
        pass: Pass,
        sum_bytes: Option<u64>,
        cast: f64,
    ) -> Timing {
        let format = format.into();
        let measured = measured::times(self.measured.as_ref(), format.precision());
        if let Some(time) = measured.and_then(|times| measured::product(times, pass, shape)) {
            let time = time.max(self.least_matmul(format, shape));
            return Timing { time, bound: Bound::Compute };
        }
        let mut timing = self.matmul.time(format, shape, cast);
        if let Some(bytes) = sum_bytes {
            timing.time += self.matmul.accumulation(format, shape, bytes as f64);
        }
        timing.time = timing.time
            / match format.precision() {
                Precision::Fp8 => self.training.matmul_8_bit,
                Precision::Fp4 => self.training.matmul_4_bit,
                _ => self.training.matmul,
            };
        timing.time = timing.time.max(self.least_matmul(format, shape));
        timing.time = timing.time * self.slowness();
        // For a weight gradient `x' dy`, the inner dimension is the number of tokens, along which no row runs.
        let rows = if pass == Pass::WeightGrad { [shape.m, shape.n] } else { [shape.n, shape.k] };
        timing.time =
            timing.time.max(self.matmul.unaligned(format, shape, rows, self.unaligned_rows));
        timing
    }

    /// Lower bound of the time of a product in training: at the peak rate, or at the sustained rate if that is known.
    pub fn least_matmul(&self, format: impl Into<MatmulFormat>, shape: MatmulShape) -> Seconds {
        let format = format.into();
        let peak = self.matmul.least(format, shape);
        let Some(rate) = self.sustained.get(&format.precision()) else { return peak };
        let [batch, m, n, k] = [shape.batch, shape.m, shape.n, shape.k].map(|size| size as f64);
        peak.max(Seconds::new(2.0 * batch * m * n * k / rate.get()))
    }

    /// Time of a fused attention's forward pass, as measured with inference kernels.
    pub fn attention_forward(&self, precision: Precision, shape: SelfAttentionShape) -> Seconds {
        self.attention.forward(precision, shape).time
    }

    /// Time of a pass of a fused attention with training kernels (FlashAttention); backward recomputes the scores.
    pub fn training_attention(
        &self,
        precision: Precision,
        shape: SelfAttentionShape,
        pass: Pass,
    ) -> Seconds {
        let measured = measured::times(self.measured.as_ref(), precision);
        if let Some(time) = measured.and_then(|times| measured::attention(times, pass, shape)) {
            return time;
        }
        let rate = match pass {
            Pass::Forward => self.training.attention_forward,
            _ => self.training.attention_backward,
        };
        self.attention.training(precision, shape, pass, rate / self.slowness())
    }

    /// Time of a memory-bound kernel in a training step of a precision that reads and writes `bytes` in total.
    pub fn training_memory_bound(&self, precision: Precision, bytes: Bytes) -> Seconds {
        if let Some(times) = measured::times(self.measured.as_ref(), precision) {
            return measured::plain_memory(times, bytes);
        }
        self.memory.time(bytes, self.training.memory / self.slowness())
    }

    /// Time of an operator's kernel that moves `bytes`, if operators of its family, or any, were measured in steps of
    /// the precision.
    pub fn measured_operator(
        &self,
        precision: Precision,
        family: &str,
        pass: Pass,
        bytes: Bytes,
    ) -> Option<Seconds> {
        let times = measured::times(self.measured.as_ref(), precision)?;
        Some(measured::memory(times, family, pass, bytes))
    }

    /// Time to assemble `gradients` gradients and to update `updated` parameters, if that was measured.
    pub fn measured_update(
        &self,
        precision: Precision,
        gradients: u64,
        updated: u64,
    ) -> Option<Seconds> {
        let times = measured::times(self.measured.as_ref(), precision)?;
        let each = times.seconds_per_gradient * gradients as f64
            + times.seconds_per_update * updated as f64;
        Some(Seconds::new(times.update_start_seconds + each))
    }

    /// Returns whether kernels of a precision were measured on the machine itself.
    pub fn is_measured(&self, precision: Precision) -> bool {
        measured::times(self.measured.as_ref(), precision).is_some()
    }

    /// Evidence on which the time of a product is based.
    pub fn matmul_basis(&self, format: impl Into<MatmulFormat>, shape: MatmulShape) -> Basis {
        let format = format.into();
        if self.is_measured(format.precision()) {
            return Basis::Interpolated;
        }
        self.matmul.basis(format, shape)
    }

    /// Evidence on which the time of an attention is based.
    pub fn attention_basis(&self, precision: Precision, shape: SelfAttentionShape) -> Basis {
        if self.is_measured(precision) {
            return Basis::Interpolated;
        }
        self.attention.basis(precision, shape)
    }

    /// Least time of any kernel; zero where kernels were measured on the machine itself, as it is not known there.
    pub fn launch_floor(&self) -> Seconds {
        if self.measured.is_some() {
            return Seconds::ZERO;
        }
        self.memory.launch_floor()
    }
}

/// The expected largest of `count` standard normal deviates.
///
/// # Source
///
/// Cramér 1946, *Mathematical Methods of Statistics*, 28.6: with `s = sqrt(2 ln n)` the largest has a Gumbel
/// distribution of location `s - (ln ln n + ln 4 pi) / (2 s)` and scale `1 / s`, whose mean is the location plus
/// Euler's constant times the scale. It is 1.52 for 8 deviates (exactly 1.42), and 3.27 for 1,000 (3.24).
fn expected_largest(count: u32) -> f64 {
    const EULER: f64 = 0.577_215_664_901_532_9;

    if count < 2 {
        return 0.0;
    }
    let log = f64::from(count).ln();
    let scale = (2.0 * log).sqrt();
    scale - (log.ln() + (4.0 * std::f64::consts::PI).ln()) / (2.0 * scale) + EULER / scale
}
