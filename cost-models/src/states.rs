//! Model states: parameters, gradients and optimizer state, and the time of their update.

use ir::cluster::Precision;
use ir::framework::WeightShards;
use ir::graph::{Pass, ShapeCounts};
use ir::layout::{Offload, ZeroStage};
use ir::plan::{Optimizer, Training};
use ir::units::{Bytes, Seconds};

use crate::kernels::{Device, MatmulShape};

/// Bytes of model state for each parameter.
///
/// Mixed precision with Adam takes 2 + 2 + 12: 16-bit weights and gradients, and weights and two
/// moments in fp32 (Rajbhandari et al. 2020, arXiv 1910.02054, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateBytes {
    /// Bytes of a weight that kernels read.
    pub parameter: u64,
    /// Bytes of its shard where weights are sharded (ZeRO-3): none if they are gathered from the master weights.
    pub shard: u64,
    /// Bytes of a gradient.
    pub gradient: u64,
    /// Bytes of master weight and moments: `K`. Where the optimizer keeps more for some parameters than for others, the
    /// least; after [`Self::of`], the mean of the given parameters.
    pub optimizer: f64,
    /// True if there are master weights among them.
    pub has_master: bool,
    /// Bytes of one moment.
    pub moment: f64,
    /// Optimizer that updates the parameters.
    pub kind: Optimizer,
}

/// Number of 8-bit moments that share one scale in fp32.
const MOMENTS_OF_SCALE: f64 = 256.0;

impl StateBytes {
    /// 16-bit weights and gradients with AdamW: `K = 12` (Rajbhandari et al. 2020, section 3.1).
    pub const MIXED_ADAM: Self = Self {
        parameter: 2,
        shard: 2,
        gradient: 2,
        optimizer: 12.0,
        has_master: true,
        moment: 4.0,
        kind: Optimizer::AdamW,
    };

    /// The bytes per parameter for a precision and optimizer. Training in fp32 has no second copy of the weights.
    pub fn new(training: &Training) -> Self {
        let parameter = training.compute_bytes();
        let has_master = parameter < 4 && !training.no_master_weights;
        let kind = training.optimizer;
        let moment = match kind {
            Optimizer::AdamW8bit => 1.0 + 4.0 / MOMENTS_OF_SCALE,
            _ if kind.has_full_moments() && training.bf16_moments => 2.0,
            _ => 4.0,
        };
        let least = Self {
            parameter,
            shard: parameter,
            gradient: if training.fp32_gradients { 4 } else { parameter },
            optimizer: 0.0,
            has_master,
            moment,
            kind,
        };
        least.of(1, ShapeCounts::default())
    }

    /// State bytes per parameter, as a mean over a number of parameters of these shapes.
    #[must_use]
    pub fn of(self, parameters: u64, shapes: ShapeCounts) -> Self {
        let master = if self.has_master { 4.0 } else { 0.0 };
        let moments = self.kind.num_moments(parameters, shapes) as f64 / parameters.max(1) as f64;
        Self { optimizer: master + self.moment * moments, ..self }
    }

    /// State bytes with a framework that shards weights as given.
    #[must_use]
    pub const fn with_shards(self, shards: WeightShards) -> Self {
        match shards {
            WeightShards::Masters if self.has_master => Self { shard: 0, ..self },
            _ => self,
        }
    }

    /// Bytes per parameter of an update on the host, without its gradient: weights are included even where the device
    /// has them in full precision.
    pub const fn on_host(&self) -> f64 {
        if self.has_master { self.optimizer } else { self.optimizer + self.parameter as f64 }
    }
}

/// Model states on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelStates {
    /// Bytes of weights.
    pub parameters: Bytes,
    /// Bytes of gradients.
    pub gradients: Bytes,
    /// Bytes of master weights and moments.
    pub optimizer: Bytes,
}

impl ModelStates {
    /// The states of `num_parameters` sharded over `shards` ranks.
    ///
    /// ```text
    /// stage 0: (2 + 2 + K) N       stage 1: (2 + 2) N + K N / d
    /// stage 2: 2 N + (2 + K) N / d stage 3: (2 + 2 + K) N / d
    /// ```
    ///
    /// # Source
    ///
    /// Rajbhandari et al. 2020, *ZeRO* (arXiv 1910.02054), figure 1 and table 1.
    pub fn new(num_parameters: u64, zero: ZeroStage, shards: u64, bytes: StateBytes) -> Self {
        let is_sharded = zero >= ZeroStage::OptimizerState;
        let owned = if is_sharded { num_parameters.div_ceil(shards) } else { num_parameters };
        Self::of_rank([num_parameters, owned], zero, bytes)
    }

    /// The states of a rank that uses `held` parameters and updates `owned` of them.
    pub fn of_rank([held, owned]: [u64; 2], zero: ZeroStage, bytes: StateBytes) -> Self {
        let kept = |from: ZeroStage| if zero >= from { owned } else { held };
        let of_weight = if zero == ZeroStage::Parameters { bytes.shard } else { bytes.parameter };
        Self {
            parameters: Bytes::new(of_weight) * kept(ZeroStage::Parameters),
            gradients: Bytes::new(bytes.gradient) * kept(ZeroStage::Gradients),
            optimizer: Bytes::from_f64(bytes.optimizer * owned as f64),
        }
    }

    /// The states of frozen weights stored in `stored` bytes: the weights alone, sharded over `shards` ranks where
    /// parameters are.
    pub fn of_frozen(stored: Bytes, zero: ZeroStage, shards: u64) -> Self {
        let is_sharded = zero == ZeroStage::Parameters;
        let parameters = if is_sharded { stored.shard(shards) } else { stored };
        Self { parameters, ..Self::default() }
    }

    /// The states that stay on the device with an offload. Sharded gradients leave it as they are reduced.
    pub fn on_device(self, zero: ZeroStage, offload: Offload) -> Self {
        let Self { mut parameters, mut gradients, mut optimizer } = self;
        if offload.optimizer {
            optimizer = Bytes::ZERO;
            if zero >= ZeroStage::Gradients {
                gradients = Bytes::ZERO;
            }
        }
        if offload.parameters {
            parameters = Bytes::ZERO;
        }
        Self { parameters, gradients, optimizer }
    }

    /// Bytes of all states.
    pub fn total(&self) -> Bytes {
        self.parameters + self.gradients + self.optimizer
    }
}

impl std::ops::Add for ModelStates {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            parameters: self.parameters + other.parameters,
            gradients: self.gradients + other.gradients,
            optimizer: self.optimizer + other.optimizer,
        }
    }
}

/// Time to clip the gradients and update the parameters that a rank owns; `held` is the number of parameters for which
/// it has gradients.
///
/// Memory-bound: gradients are read for their norm and for the update, optimizer state is read and written, and the
/// 16-bit weights are written.
pub fn optimizer_step(
    [held, owned]: [u64; 2],
    bytes: StateBytes,
    precision: Precision,
    device: &Device,
) -> Seconds {
    if let Some(time) = device.measured_update(precision, held, owned) {
        return time;
    }
    let touched = touched_by_update(owned, bytes);
    touched.into_iter().map(|it| device.training_memory_bound(precision, it)).sum()
}

/// Iterations of Newton and Schulz for an update: five in Jordan et al. 2024, in `torch.optim.Muon`, in Megatron-Core
/// (`muon_num_ns_steps`) and in torchtitan.
const ITERATIONS: u64 = 5;

/// Time to make momenta orthogonal, where one iteration on all matrices takes `iteration_flops`. The rate is that of a
/// product of square matrices, as wide as many layers are, in the format of activations.
pub fn orthogonalisation(iteration_flops: u64, precision: Precision, device: &Device) -> Seconds {
    const WIDTH: u64 = 4096;
    let square = MatmulShape { batch: 1, m: WIDTH, n: WIDTH, k: WIDTH };
    let time = device.training_matmul(precision, square, Pass::Forward, None, 0.0).time;
    time * ((ITERATIONS * iteration_flops) as f64 / (2 * WIDTH.pow(3)) as f64)
}

/// Bytes read and written by the gradient norm of `owned` parameters, and by their update.
pub fn touched_by_update(owned: u64, bytes: StateBytes) -> [Bytes; 2] {
    let norm = owned * bytes.gradient;
    // Without a master copy the weights themselves are read and written.
    let weights = if bytes.has_master { bytes.parameter } else { 2 * bytes.parameter };
    let update = owned as f64 * ((bytes.gradient + weights) as f64 + 2.0 * bytes.optimizer);
    [Bytes::new(norm), Bytes::from_f64(update)]
}

/// Bytes that an update on the host reads and writes for `owned` parameters: gradients twice, once for their norm;
/// states, read and written; and the weights that go to the device.
pub fn touched_by_host_update(owned: u64, bytes: StateBytes) -> Bytes {
    let sent = if bytes.has_master { bytes.parameter } else { 0 };
    let each = (2 * bytes.gradient + sent) as f64 + 2.0 * bytes.on_host();
    Bytes::from_f64(owned as f64 * each)
}

#[cfg(test)]
mod tests {
    use ir::replication::DataParallelMethod;

    use super::*;

    const MIXED_ADAM: StateBytes = StateBytes::MIXED_ADAM;

    #[test]
    fn mixed_precision_adam_takes_sixteen_bytes() {
        let training = |precision| Training {
            sequence_length: 1,
            global_batch_size: 1,
            precision,
            optimizer: Optimizer::AdamW,
            fp32_gradients: false,
            bf16_moments: false,
            no_master_weights: false,
            data_parallel_method: DataParallelMethod::AllReduce,
            gradient_compression: None,
        };
        assert_eq!(StateBytes::new(&training(Precision::Bf16)), MIXED_ADAM);
        let less = Training { bf16_moments: true, ..training(Precision::Bf16) };
        assert_eq!(
            StateBytes::new(&less),
            StateBytes { optimizer: 8.0, moment: 2.0, ..MIXED_ADAM }
        );
        let weights_alone = Training { no_master_weights: true, ..less };
        let expected = StateBytes { optimizer: 4.0, has_master: false, moment: 2.0, ..MIXED_ADAM };
        assert_eq!(StateBytes::new(&weights_alone), expected);
        let fp32 = StateBytes::new(&training(Precision::Fp32));
        assert_eq!(
            fp32,
            StateBytes {
                parameter: 4,
                shard: 4,
                gradient: 4,
                optimizer: 8.0,
                has_master: false,
                ..MIXED_ADAM
            }
        );
    }

    /// Rajbhandari et al. 2020, figure 1: 7.5B parameters on 64 ranks, K = 12.
    #[test]
    fn zero_stages_take_what_their_figure_says() {
        for (zero, gigabytes) in [
            (ZeroStage::None, 120.0),
            (ZeroStage::OptimizerState, 31.4),
            (ZeroStage::Gradients, 16.6),
            (ZeroStage::Parameters, 1.9),
        ] {
            let states = ModelStates::new(7_500_000_000, zero, 64, MIXED_ADAM);
            assert!((states.total().as_f64() / 1e9 - gigabytes).abs() < 0.06, "{states:?}");
        }
    }
}
