//! Time of kernels on one GPU: matrix products, attention, and what memory bandwidth bounds.

mod attention;
mod matmul;
mod memory;
mod rates;
mod timing;
mod training;

pub use attention::AttentionShape;
pub use matmul::{MatmulFormat, MatmulShape};
pub use timing::{Basis, Bound, Timing};
pub use training::{AttentionLibrary, TrainingRates};

use std::collections::BTreeMap;

use ir::cluster::{Gpu, Precision};
use ir::units::{Bytes, FlopsPerSecond, Seconds};

/// The names of the fitted kernel rates that ship.
pub fn fitted_rates() -> Vec<String> {
    rates::names()
}

/// One GPU, ready to time kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    matmul: matmul::Rates,
    attention: attention::Rates,
    memory: memory::Rates,
    /// The most that products reach for long, by the precision of their inputs.
    sustained: BTreeMap<Precision, FlopsPerSecond>,
    /// How kernels of a step differ from the same kernels timed alone.
    pub training: TrainingRates,
    /// Whose these are.
    pub training_set: String,
}

impl Device {
    /// The kernels of `gpu`, fitted where its `kernel_rates` name a fit, else scaled.
    pub fn new(gpu: &Gpu) -> Self {
        Self::for_training(gpu, AttentionLibrary::Cudnn)
    }

    /// The rates of a GPU, on which training calls the attention of a library.
    pub fn for_training(gpu: &Gpu, attention: AttentionLibrary) -> Self {
        let chosen = rates::Chosen::for_gpu(gpu);
        let (training_set, training) = TrainingRates::new(gpu, attention);
        Self {
            matmul: matmul::Rates::new(gpu, &chosen),
            attention: attention::Rates::new(gpu, &chosen),
            memory: memory::Rates::new(gpu),
            sustained: gpu.sustained.clone(),
            training,
            training_set,
        }
    }

    /// Time of `batch` products `C[m, n] = A[m, k] B[k, n]` in one kernel.
    pub fn matmul(&self, format: impl Into<MatmulFormat>, shape: MatmulShape) -> Seconds {
        self.matmul.time(format.into(), shape, 1.0).time
    }

    /// As [`Self::matmul`] in the midst of training, with what bounds it: the tables were measured in short
    /// runs, whose clocks power does not hold down. `cast` is the share of the first matrix that is cast
    /// for this product alone; `sum_bytes`, the size of an element of the sum that the product is
    /// added to, if it is.
    pub fn training_matmul(
        &self,
        format: impl Into<MatmulFormat>,
        shape: MatmulShape,
        is_weight_grad: bool,
        sum_bytes: Option<u64>,
        cast: f64,
    ) -> Timing {
        let format = format.into();
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
        // Of a weight's gradient `x' dy`, the depth is the number of tokens, along which no row runs.
        let rows = if is_weight_grad { [shape.m, shape.n] } else { [shape.n, shape.k] };
        timing.time = timing.time.max(self.matmul.unaligned(format, shape, rows));
        timing
    }

    /// The least time of a product in training: at the peak, or at the rate that power lets it hold.
    pub fn least_matmul(&self, format: impl Into<MatmulFormat>, shape: MatmulShape) -> Seconds {
        let format = format.into();
        let peak = self.matmul.least(format, shape);
        let Some(rate) = self.sustained.get(&format.precision()) else { return peak };
        let [batch, m, n, k] = [shape.batch, shape.m, shape.n, shape.k].map(|size| size as f64);
        peak.max(Seconds::new(2.0 * batch * m * n * k / rate.get()))
    }

    /// Time of a fused attention's forward pass, as measured with the kernels of serving.
    pub fn attention_forward(&self, precision: Precision, shape: AttentionShape) -> Seconds {
        self.attention.forward(precision, shape).time
    }

    /// Time of a fused attention's forward pass with the kernels of training (FlashAttention).
    pub fn training_attention_forward(
        &self,
        precision: Precision,
        shape: AttentionShape,
    ) -> Seconds {
        self.attention.training_forward(precision, shape, self.training.attention_forward).time
    }

    /// Time of a fused attention's backward pass, which computes the scores again.
    pub fn attention_backward(&self, precision: Precision, shape: AttentionShape) -> Seconds {
        self.attention.training_backward(precision, shape, self.training.attention_backward).time
    }

    /// Time of a kernel that only moves data: `bytes` read and written together.
    pub fn memory_bound(&self, bytes: Bytes) -> Seconds {
        self.memory.time(bytes)
    }

    /// The same in a training step.
    pub fn training_memory_bound(&self, bytes: Bytes) -> Seconds {
        self.memory.time_at(bytes, self.training.memory)
    }

    /// What the time of a product rests on.
    pub fn matmul_basis(&self, format: impl Into<MatmulFormat>, shape: MatmulShape) -> Basis {
        self.matmul.basis(format.into(), shape)
    }

    /// What the time of an attention rests on.
    pub fn attention_basis(&self, precision: Precision, shape: AttentionShape) -> Basis {
        self.attention.basis(precision, shape)
    }

    /// The least time of any kernel.
    pub fn launch_floor(&self) -> Seconds {
        self.memory.launch_floor()
    }
}
