//! How a model is trained, as the one who starts it decides.

use executor_kernels::array::Element;
use ir::cluster::Precision;
use ir::plan::Optimizer;
use ir::replication::{Replication, Straggler};

/// Numbers of training that a plan does not fix.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What updates the parameters.
    pub optimizer: OptimizerSettings,
    /// The largest norm of all gradients together; larger ones are scaled down to it.
    pub max_gradient_norm: Option<f64>,
    /// The learning rate over the steps.
    pub schedule: LearningRate,
    /// What activations, and the weights that kernels read, are made of.
    pub compute: Element,
    /// What gradients are added up in.
    pub gradients: Element,
    /// What is held of weights.
    pub master: Element,
    /// What moments are held in.
    pub moments: Element,
    /// For fp16: what the loss is multiplied by, so that small gradients do not vanish.
    pub loss_scaling: Option<LossScaling>,
    /// Gradients are reduced once so many bytes of them are there.
    pub bucket_bytes: u64,
    /// The most tokens that an expert takes of a micro-batch, over its even share, rounded up; the first in
    /// the order of sequences and positions. All of them if none.
    pub expert_capacity_factor: Option<f64>,
    /// How replicas come to have weights in common, and what they send of gradients.
    pub replication: Replication,
    /// A rank that is made slower than it is, to see what others do meanwhile.
    pub straggler: Option<Straggler>,
    /// Which random numbers.
    pub seed: u64,
}

/// The elements that a plan of this precision computes in.
pub const fn compute_element(precision: Precision) -> Element {
    match precision {
        Precision::Fp32 => Element::F32,
        Precision::Fp16 => Element::F16,
        Precision::Bf16 | Precision::Fp8 | Precision::Fp4 => Element::BF16,
    }
}

impl Settings {
    /// The usual settings of an optimizer, with gradients in the elements that are computed in and states in fp32 at
    /// least; the learning rate is left to be chosen.
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

/// What updates parameters from gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerSettings {
    /// The rule.
    pub kind: Optimizer,
    /// How much of the first moment (or momentum) stays.
    pub beta1: f64,
    /// How much of the second moment stays.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Share of each weight that is taken off a step, times the learning rate.
    pub weight_decay: f64,
}

impl OptimizerSettings {
    /// The usual numbers for a rule: those of Llama 2 for AdamW.
    pub fn usual(kind: Optimizer) -> Self {
        let (beta1, weight_decay) = match kind {
            Optimizer::AdamW => (0.9, 0.1),
            Optimizer::Momentum => (0.9, 0.0),
            Optimizer::Sgd => (0.0, 0.0),
        };
        Self { kind, beta1, beta2: 0.95, epsilon: 1e-8, weight_decay }
    }
}

/// The learning rate over the steps: up in a line, then down along half a cosine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearningRate {
    /// The highest.
    pub peak: f64,
    /// Steps until then.
    pub warmup_steps: u64,
    /// Steps until it is at its lowest; none if it stays at its peak.
    pub decay_steps: Option<u64>,
    /// The lowest, at the end.
    pub least: f64,
}

impl LearningRate {
    /// The same at every step.
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
/// Micikevicius et al. 2017 (arXiv 1710.03740), section 3.2, with the constants of PyTorch's
/// `GradScaler`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScaling {
    /// The scale at first.
    pub initial: f64,
    /// By how much it grows.
    pub growth: f64,
    /// By how much it is cut after a step that overflowed.
    pub backoff: f64,
    /// Steps without overflow until it grows.
    pub growth_interval: u64,
}

impl Default for LossScaling {
    fn default() -> Self {
        Self { initial: 65_536.0, growth: 2.0, backoff: 0.5, growth_interval: 2000 }
    }
}
