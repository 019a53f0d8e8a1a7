//! Training settings that the user chooses.

use executor_kernels::array::Element;
use ir::cluster::Precision;
use ir::plan::Optimizer;
use ir::replication::{Replication, Straggler};

/// Training settings that a plan does not fix.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Settings of the optimizer.
    pub optimizer: OptimizerSettings,
    /// Limit of the norm of all gradients; gradients with a larger norm are scaled down to it.
    pub max_gradient_norm: Option<f64>,
    /// Schedule of the learning rate over the steps.
    pub schedule: LearningRate,
    /// Element type of activations, and of the weights that kernels read.
    pub compute: Element,
    /// Element type in which gradients are accumulated.
    pub gradients: Element,
    /// Element type of master weights.
    pub master: Element,
    /// Element type of moments.
    pub moments: Element,
    /// For fp16: scaling of the loss, so that small gradients do not underflow.
    pub loss_scaling: Option<LossScaling>,
    /// Bytes of gradients at which a bucket is reduced.
    pub bucket_bytes: u64,
    /// Capacity of an expert in tokens of a micro-batch, as a multiple of its even share, rounded up. The expert takes
    /// the first tokens in the order of sequences and positions. No limit if none.
    pub expert_capacity_factor: Option<f64>,
    /// The way in which replicas synchronize their weights, and the compression of their gradients.
    pub replication: Replication,
    /// A rank that is slowed down, to study its effect on the others.
    pub straggler: Option<Straggler>,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// The element type of computation in a plan of this precision.
pub const fn compute_element(precision: Precision) -> Element {
    match precision {
        Precision::Fp32 => Element::F32,
        Precision::Fp16 => Element::F16,
        Precision::Bf16 | Precision::Fp8 | Precision::Fp4 => Element::BF16,
    }
}

impl Settings {
    /// The usual settings of an optimizer, with gradients in the compute element type and states in fp32 at least; the
    /// learning rate is left at zero.
    pub fn usual(optimizer: Optimizer, compute: Element) -> Self {
        let master = if compute == Element::F64 { Element::F64 } else { Element::F32 };
        Self {
            optimizer: OptimizerSettings::usual(optimizer),
            max_gradient_norm: Some(1.0),
            schedule: LearningRate::constant(0.0),
            compute,
            gradients: compute,
            master,
            moments: master,
            loss_scaling: None,
            bucket_bytes: 25 << 20,
            expert_capacity_factor: None,
            replication: Replication::default(),
            straggler: None,
            seed: 0,
        }
    }
}

/// Settings of an optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerSettings {
    /// The kind of optimizer.
    pub kind: Optimizer,
    /// Decay rate of the first moment, or the momentum factor.
    pub beta1: f64,
    /// Decay rate of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Weight decay: the share of each weight that a step subtracts, times the learning rate.
    pub weight_decay: f64,
}

impl OptimizerSettings {
    /// The usual settings of an optimizer; for AdamW, those of Llama 2 except for epsilon, which is PyTorch's.
    pub fn usual(kind: Optimizer) -> Self {
        let (beta1, weight_decay) = match kind {
            Optimizer::Momentum => (0.9, 0.0),
            Optimizer::Sgd => (0.0, 0.0),
            _ => (0.9, 0.1),
        };
        Self { kind, beta1, beta2: 0.95, epsilon: 1e-8, weight_decay }
    }
}

/// Schedule of the learning rate: linear warmup, then cosine decay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearningRate {
    /// The peak rate.
    pub peak: f64,
    /// Steps of warmup.
    pub warmup_steps: u64,
    /// Step at which the rate reaches its minimum; none if it stays at its peak.
    pub decay_steps: Option<u64>,
    /// The minimum rate, at the end.
    pub least: f64,
}

impl LearningRate {
    /// A constant rate.
    pub const fn constant(rate: f64) -> Self {
        Self { peak: rate, warmup_steps: 0, decay_steps: None, least: rate }
    }

    /// The rate of step `step`, counting from 0.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return self.peak * (step + 1) as f64 / self.warmup_steps as f64;
        }
        let Some(decay_steps) = self.decay_steps else { return self.peak };
        let span = decay_steps.saturating_sub(self.warmup_steps).max(1);
        let done = ((step - self.warmup_steps) as f64 / span as f64).min(1.0);
        let cosine = f64::midpoint(1.0, (std::f64::consts::PI * done).cos());
        self.least + (self.peak - self.least) * cosine
    }
}

/// Dynamic loss scaling.
///
/// # Source
///
/// Micikevicius et al. 2017 (arXiv 1710.03740), section 3.2, with the constants of PyTorch's `GradScaler`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScaling {
    /// The initial scale.
    pub initial: f64,
    /// Factor by which the scale grows.
    pub growth: f64,
    /// Factor of the scale after a step that overflowed.
    pub backoff: f64,
    /// Steps without overflow until the scale grows.
    pub growth_interval: u64,
}

impl Default for LossScaling {
    fn default() -> Self {
        Self { initial: 65_536.0, growth: 2.0, backoff: 0.5, growth_interval: 2000 }
    }
}
