//! Losses: the cross entropy of logits `[rows, classes]`, and the mean squared error.
//!
//! Logits may be a shard: classes `first_class..first_class + classes` of all classes. The cross entropy is computed in
//! pieces. Between the pieces, ranks that share the classes all-reduce `[rows, 1]` numbers, in fp32 at least:
//!
//! ```text
//! max    = Measures::of(logits)                 all-reduce (max)
//! e, sum = Softmax::of(logits, measures)        all-reduce (sum) of sum
//! target = target_logits(logits, .., max)       all-reduce (sum)
//! loss   = losses(sum, target) = log(sum) - target
//! dx     = input_grad(e, sum, ..)
//! ```
//!
//! A shard may have no class, where there are fewer classes than ranks.
//!
//! # Source
//!
//! Shoeybi et al. 2019, *Megatron-LM*, section 3, <https://arxiv.org/abs/1909.08053>.

use super::Kernels;
use super::composed::loss::Targets;
use crate::array::{Array, ElementExt};

/// Statistics of rows of logits before their exponentials are taken, `[rows, 1]` each.
#[derive(Clone, Debug)]
pub struct Measures<B: Kernels> {
    /// The greatest logit.
    pub max: Array<B>,
    /// The sum of `e^(logit - max)`, where a backend finds both in one pass.
    sum: Option<Array<B>>,
}

impl<B: Kernels> Measures<B> {
    /// The measures of logits.
    pub fn of(logits: &Array<B>) -> Self {
        if logits.size(1) == 0 {
            return Self { max: zero_for_each_row(logits).shift(f64::NEG_INFINITY), sum: None };
        }
        match B::row_measures(logits) {
            Some([max, sum]) => Self { max, sum: Some(sum) },
            None => Self { max: logits.clone().max_dim(1).widened(), sum: None },
        }
    }

    /// The measures with their maximum replaced by that of the whole rows, of which the logits are shards.
    #[must_use]
    pub fn with_max(self, max: Array<B>) -> Self {
        let shrunk = |sum: Array<B>| sum * (self.max - max.clone()).exp();
        Self { sum: self.sum.map(shrunk), max }
    }
}

/// `e^(logit - max)`, `[rows, classes]`, and its sum over each row, `[rows, 1]`.
pub fn exponentials<B: Kernels>(logits: Array<B>, max: Array<B>) -> (Array<B>, Array<B>) {
    if logits.size(1) == 0 {
        let sum = zero_for_each_row(&logits);
        return (logits.widened(), sum);
    }
    B::exponentials(logits, max)
}

/// The saved softmax of rows of logits, for its gradient.
#[derive(Clone, Debug)]
pub enum Softmax<B: Kernels> {
    /// The result of [`exponentials`].
    Exponentials(Array<B>),
    /// The logits, in 16 bits, and the maxima of their rows, from which the exponentials are recomputed.
    Logits(Array<B>, Array<B>),
}

impl<B: Kernels> Softmax<B> {
    /// The softmax of logits, in the form that is cheaper on the backend, and the sums of [`exponentials`].
    pub fn of(logits: Array<B>, measures: Measures<B>) -> (Self, Array<B>) {
        let Measures { max, sum } = measures;
        if let Some(sum) = sum {
            return (Self::Logits(logits, max), sum);
        }
        let (exponentials, sum) = exponentials(logits, max);
        (Self::Exponentials(exponentials), sum)
    }

    /// [`input_grad`].
    pub fn input_grad(
        self,
        sum: Array<B>,
        targets: &[u32],
        first_class: usize,
        scale: f64,
    ) -> Array<B> {
        match self {
            Self::Exponentials(exponentials) => {
                input_grad(exponentials, sum, targets, first_class, scale)
            }
            Self::Logits(logits, max) => {
                B::cross_entropy_grad_of_logits(logits, [max, sum], targets, first_class, scale)
            }
        }
    }

    /// Saved bytes.
    pub fn num_bytes(&self) -> u64 {
        match self {
            Self::Exponentials(exponentials) => exponentials.num_bytes(),
            Self::Logits(logits, max) => logits.num_bytes() + max.num_bytes(),
        }
    }
}

/// `logit - max` of each row's target where it is in this shard, zero elsewhere, `[rows, 1]`.
pub fn target_logits<B: Kernels>(
    logits: &Array<B>,
    targets: &[u32],
    first_class: usize,
    max: Array<B>,
) -> Array<B> {
    if logits.size(1) == 0 {
        return zero_for_each_row(logits);
    }
    let places = Targets::new(targets, first_class, logits);
    (logits.gather(1, &places.classes).widened() - max) * places.inside
}

/// `log(sum) - target`: the negative log-likelihood of each row's target, `[rows, 1]`.
pub fn losses<B: Kernels>(sum: Array<B>, target: Array<B>) -> Array<B> {
    sum.log() - target
}

/// `scale (softmax - onehot)`, `[rows, classes]`: the gradient of the logits of `scale` times the sum of all losses,
/// from the result of [`exponentials`] and its sum over all classes.
pub fn input_grad<B: Kernels>(
    exponentials: Array<B>,
    sum: Array<B>,
    targets: &[u32],
    first_class: usize,
    scale: f64,
) -> Array<B> {
    assert_eq!(targets.len(), exponentials.size(0), "every row has a target");
    if exponentials.size(1) == 0 {
        return exponentials;
    }
    B::cross_entropy_grad(exponentials, sum, targets, first_class, scale)
}

/// Zeros, `[rows, 1]`.
fn zero_for_each_row<B: Kernels>(logits: &Array<B>) -> Array<B> {
    Array::zeros(&[logits.size(0), 1], logits.element().widened(), &logits.device())
}
