//! The cross entropy of logits `[rows, classes]`, in pieces.

use burn::tensor::backend::Backend;

use crate::array::{Array, ElementExt, Indices};

/// Positions of the targets of rows in a shard of classes.
pub(in crate::ops) struct Targets<B: Backend> {
    /// The class within the shard, `[rows, 1]`; the first one for targets outside.
    pub(in crate::ops) classes: Indices<B>,
    /// One where the target lies inside, zero elsewhere, `[rows, 1]`, fp32 at least.
    pub(in crate::ops) inside: Array<B>,
}

impl<B: Backend> Targets<B> {
    pub(in crate::ops) fn new(targets: &[u32], first_class: usize, logits: &Array<B>) -> Self {
        let (shape, device) = ([targets.len(), 1], logits.device());
        assert_eq!(targets.len(), logits.size(0), "every row has a target");
        let classes: Vec<Option<usize>> = targets
            .iter()
            .map(|target| (*target as usize).checked_sub(first_class))
            .map(|class| class.filter(|class| *class < logits.size(1)))
            .collect();
        let inside = classes.iter().map(|class| if class.is_some() { 1.0 } else { 0.0 }).collect();
        let classes: Vec<u32> = classes.iter().map(|class| class.unwrap_or(0) as u32).collect();
        Self {
            classes: Indices::new(&classes, &shape, &device),
            inside: Array::from_f64(inside, &shape, logits.element().widened(), &device),
        }
    }
}

/// `e^(logit - max)`, `[rows, classes]`, and its sum over each row, `[rows, 1]`.
pub(in crate::ops) fn exponentials<B: Backend>(
    logits: Array<B>,
    max: Array<B>,
) -> (Array<B>, Array<B>) {
    let exponentials = (logits.widened() - max).exp();
    let sum = exponentials.clone().sum_dim(1);
    (exponentials, sum)
}

/// `scale (softmax - onehot)`, `[rows, classes]`.
pub(in crate::ops) fn input_grad<B: Backend>(
    exponentials: Array<B>,
    sum: Array<B>,
    targets: &[u32],
    first_class: usize,
    scale: f64,
) -> Array<B> {
    let places = Targets::new(targets, first_class, &exponentials);
    let probabilities = exponentials * sum.recip().scale(scale);
    probabilities.scatter_add(1, &places.classes, places.inside.scale(-scale))
}
