//! Operators for comparisons between backends: each trial takes arrays of any backend, and returns the outputs and
//! gradients of its operator.

use ir::graph::{NormKind, RotaryPairs, RotaryScaling};

use crate::array::Array;
use crate::ops::activation::{Function, gated_forward, gated_input_grad};
use crate::ops::attention::{self, Bias, KeyVisibility, Scoring};
use crate::ops::experts::{self, RoutingRule};
use crate::ops::rotary::{Rotary, frequencies};
use crate::ops::{AdamW, BasicKernels, Kernels};
use crate::ops::{linear, loss, norm};
use crate::random::{Plain, random, random_indices};

/// A computation that runs on any backend.
pub trait OperatorTrial {
    /// The outputs, on the device of `inputs`, computed in their element type.
    fn run<B: Kernels>(&self, inputs: Vec<Array<B>>) -> Vec<Array<B>>;
}

/// The inputs of a trial as an array of `N`.
fn named<B: Kernels, const N: usize>(inputs: Vec<Array<B>>) -> [Array<B>; N] {
    let count = inputs.len();
    inputs.try_into().unwrap_or_else(|_| panic!("a trial takes {N} inputs, not {count}"))
}

/// Products `[m, k] [k, n]`, and both gradients.
#[derive(Clone, Copy, Debug)]
pub struct MatrixProduct;

impl MatrixProduct {
    /// An input `[m, k]`, a weight `[k, n]` and a gradient `[m, n]`, scaled so that sums are about as large as their
    /// terms.
    pub fn inputs([m, n, k]: [usize; 3]) -> Vec<Plain> {
        let scale = |width: usize| 1.0 / (width as f64).sqrt();
        vec![
            random(&[m, k], 1).scale(scale(k)),
            random(&[k, n], 2),
            random(&[m, n], 3).scale(scale(n.max(m))),
        ]
    }
}

impl OperatorTrial for MatrixProduct {
    fn run<B: Kernels>(&self, inputs: Vec<Array<B>>) -> Vec<Array<B>> {
        let [x, weight, grad] = named(inputs);
        vec![
            linear::forward(x.clone(), weight.clone(), None),
            linear::input_grad(grad.clone(), weight),
            linear::weight_grad(x, grad),
        ]
    }
}

/// An activation function, alone and as a gate. Its inputs are a gate, a value and a gradient, `[.., d]` each.
#[derive(Clone, Copy, Debug)]
pub struct Activations(pub Function);

impl Activations {
    /// Gate, value and gradient.
    pub fn inputs(shape: &[usize]) -> Vec<Plain> {
        vec![random(shape, 1).scale(5.0), random(shape, 2), random(shape, 3)]
    }
}

impl OperatorTrial for Activations {
    fn run<B: Kernels>(&self, inputs: Vec<Array<B>>) -> Vec<Array<B>> {
        let ([x, value, grad], function) = (named(inputs), self.0);
        let (gate_grad, value_grad) =
            gated_input_grad(function, x.clone(), value.clone(), grad.clone());
        vec![
            function.forward(x.clone()),
            function.input_grad(x.clone(), grad),
            gated_forward(function, x, value),
            gate_grad,
            value_grad,
        ]
    }
}

/// A norm of rows `[n, d]`, with and without parameters `[d]`; gradients of parameters are divided by the number of
/// rows.
#[derive(Clone, Copy, Debug)]
pub struct Norms(pub NormKind);

impl Norms {
    /// Rows, a gradient, a scale and a shift.
    pub fn inputs([rows, width]: [usize; 2]) -> Vec<Plain> {
        let [x, grad] = [1, 2].map(|seed| random(&[rows, width], seed));
        let [weight, bias] = [3, 4].map(|seed| random(&[width], seed));
        vec![x, grad, weight, bias]
    }
}

impl OperatorTrial for Norms {
    fn run<B: Kernels>(&self, inputs: Vec<Array<B>>) -> Vec<Array<B>> {
        let ([x, grad, weight, bias], kind) = (named(inputs), self.0);
        let per_row = 1.0 / x.size(0) as f64;
        let (y, statistics) =
            norm::forward(kind, x.clone(), Some(weight.clone()), Some(bias), 1e-5);
        let (plain, _) = norm::forward(kind, x.clone(), None, None, 1e-5);
        let input_grad = norm::input_grad(kind, x.clone(), &statistics, Some(weight), grad.clone());
        let plain_grad = norm::input_grad(kind, x.clone(), &statistics, None, grad.clone());
        let (scale, shift) = norm::weight_grad(kind, x, &statistics, grad);
        let (scale, shift) = (scale.scale(per_row), shift.scale(per_row));
        vec![y, plain, input_grad, plain_grad, scale, shift, statistics.inverse_deviation]
    }
}

/// Rotary embeddings of `[b, s, heads, d]` and `[b, s, d]`.
#[derive(Clone, Copy, Debug)]
pub struct Rotations {
    /// Pairing of features.
    pub pairs: RotaryPairs,
    /// Number of rotated features.
    pub turned: usize,
}

impl Rotations {
    /// Heads of a width, and features without heads.
    pub fn inputs(width: usize) -> Vec<Plain> {
        vec![random(&[3, 41, 5, width], 1), random(&[3, 41, width], 2)]
    }
}

impl OperatorTrial for Rotations {
    fn run<B: Kernels>(&self, inputs: Vec<Array<B>>) -> Vec<Array<B>> {
        let [heads, flat] = named(inputs);
        let positions: Vec<u32> = (3..3 + heads.size(1) as u32).collect();
        let (angles, _) = frequencies(self.turned, 10_000.0, &RotaryScaling::None, 1);
        let (element, device) = (heads.element(), heads.device());
        let rotary = Rotary::new(&positions, self.pairs, &angles, 1.2, element, &device);
        let part = heads.narrow(2, 1..4);
        vec![
            rotary.apply(heads.clone()),
            rotary.apply_inverse(heads),
            rotary.apply(part),
            rotary.apply(flat),
        ]
    }
}

/// Cross entropy over the classes from `first_class` on, of `num_classes` in all, from logits `[n, classes]`.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy {
    /// The first class of the shard.
    pub first_class: usize,
    /// Number of all classes.
    pub num_classes: u32,
}

impl CrossEntropy {
    /// Logits.
    pub fn inputs(shape: [usize; 2]) -> Vec<Plain> {
        vec![random(&shape, 1).scale(10.0)]
    }
}

impl OperatorTrial for CrossEntropy {
    fn run<B: Kernels>(&self, inputs: Vec<Array<B>>) -> Vec<Array<B>> {
        let [logits] = named(inputs);
        let targets = random_indices(logits.size(0), self.num_classes, 1);
        let measures = loss::Measures::of(&logits);
        let max = measures.max.clone();
        let target = loss::target_logits(&logits, &targets, self.first_class, max);
        let (softmax, sum) = loss::Softmax::of(logits, measures);
        let gradient = softmax.input_grad(sum.clone(), &targets, self.first_class, 0.7);
        vec![loss::losses(sum, target), gradient]
    }
}

/// The sum of the squares of all elements, divided by their number.
#[derive(Clone, Copy, Debug)]
pub struct Squares;

impl Squares {
    /// The elements.
    pub fn inputs(shape: [usize; 2]) -> Vec<Plain> {
        vec![random(&[shape[0] * shape[1]], 1)]
    }
}

impl OperatorTrial for Squares {
    fn run<B: Kernels>(&self, inputs: Vec<Array<B>>) -> Vec<Array<B>> {
        let [x] = named(inputs);
        let [whole, part] = [0, 3.min(x.size(0) - 1)].map(|start| x.narrow(0, start..x.size(0)));
        let mean = |x: Array<B>| {
            let count = x.num_elements() as f64;
            B::sum_of_squares(x).scale(1.0 / count)
        };
        vec![mean(whole), mean(part)]
    }
}

/// An AdamW update; arrays that share memory with weights and moments do not change.
#[derive(Clone, Copy, Debug)]
pub struct Update;

impl Update {
    /// Weights, both moments and a gradient.
    pub fn inputs(shape: &[usize]) -> Vec<Plain> {
        let [weights, first, second, grad] = [1, 2, 3, 4].map(|seed| random(shape, seed));
        vec![weights, first, second.square(), grad]
    }
}

impl OperatorTrial for Update {
    fn run<B: Kernels>(&self, inputs: Vec<Array<B>>) -> Vec<Array<B>> {
        let [weights, first, second, grad] = named(inputs);
        let rates = AdamW {
            factor: 0.5,
            beta1: 0.9,
            beta2: 0.95,
            kept_share: 0.999,
            step: 0.01,
            root_scale: 1.5,
            epsilon: 1e-8,
        };
        // Weights and moments are fp32, whatever the type of gradients.
        let [weights, first, second] = [weights, first, second].map(Array::widened);
        let moments = [first, second.clone()];
        let (new, [m, v]) = BasicKernels::adamw(&rates, weights.clone(), moments, grad);
        vec![new, m, v, weights, second]
    }
}

/// Rows dispatched to the experts that they choose, multiplied by each expert's matrix and combined; and all gradients.
/// Gradients of parameters are divided by the number of rows.
#[derive(Clone, Copy, Debug)]
pub struct ToExperts(pub RoutingRule);

/// Sizes of a mixture of experts.
#[derive(Clone, Copy, Debug)]
pub struct MixtureSizes {
    /// Rows before dispatch.
    pub rows: usize,
    /// Number of experts.
    pub experts: usize,
    /// Features of a row before and after its expert.
    pub widths: [usize; 2],
}

impl ToExperts {
    /// Rows, probabilities and their corrections, a matrix and a bias of each expert, and a gradient.
    pub fn inputs(sizes: MixtureSizes) -> Vec<Plain> {
        let MixtureSizes { rows, experts, widths: [inputs, outputs] } = sizes;
        let scale = |width: usize| 1.0 / (width as f64).sqrt();
        vec![
            random(&[rows, inputs], 1),
            random(&[rows, experts], 2).square().scale(0.2).shift(0.05),
            random(&[experts], 3).scale(0.1),
            random(&[experts, inputs, outputs], 4).scale(scale(inputs)),
            random(&[experts, outputs], 5),
            random(&[rows, outputs], 6),
        ]
    }
}

impl OperatorTrial for ToExperts {
    fn run<B: Kernels>(&self, inputs: Vec<Array<B>>) -> Vec<Array<B>> {
        let ([x, probabilities, correction, weight, bias, grad], rule) = (named(inputs), &self.0);
        let per_row = 1.0 / x.size(0) as f64;
        let per_feature = 1.0 / grad.size(1) as f64;
        let (probabilities, correction) = (probabilities.widened(), correction.widened());
        let choices = experts::choose(&probabilities, Some(&correction), rule);
        let sorted = experts::sort(&choices.experts, probabilities.size(1));
        let counts = &sorted.counts;
        let sent = experts::dispatch(&x, &sorted);
        let y = linear::grouped_forward(sent.clone(), counts, weight.clone(), Some(bias));
        let combined = experts::combine(y.clone(), &sorted, &choices);
        let y_grad = experts::combine_input_grad(&grad, &sorted, &choices);
        let of_weights = experts::combine_weight_grad(y.clone(), grad, &sorted).scale(per_feature);
        let of_probabilities =
            experts::probability_grad(&probabilities, &choices, of_weights.clone(), rule);
        let sent_grad = linear::grouped_input_grad(y_grad.clone(), counts, weight);
        let weight_grad = linear::grouped_weight_grad(sent.clone(), counts, y_grad.clone());
        let bias_grad = linear::grouped_bias_grad(counts, y_grad.clone());
        vec![
            choices.experts.numbers(probabilities.element()),
            counts.numbers(),
            choices.weights,
            sent,
            y,
            combined,
            y_grad,
            of_weights,
            of_probabilities,
            experts::dispatch_grad(sent_grad.clone(), &sorted),
            sent_grad,
            weight_grad.scale(per_row),
            bias_grad.scale(per_row),
        ]
    }
}

/// Attention: output, log-sum-exp and gradients.
#[derive(Clone, Copy, Debug)]
pub struct Attend {
    /// The cap of scores; none if they are not capped.
    pub soft_cap: Option<f64>,
    /// True where scores have a slope for each head.
    pub has_slopes: bool,
    /// True where each head has a sink; the gradient of sinks is then one more output.
    pub has_sinks: bool,
    /// Visible keys.
    pub visibility: KeyVisibility,
}

/// Sizes of attention of two sequences.
#[derive(Clone, Copy, Debug)]
pub struct AttentionSizes {
    /// Queries of a sequence.
    pub queries: usize,
    /// Keys of a sequence.
    pub keys: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Features of a head of queries and keys.
    pub width: usize,
    /// Features of a head of values.
    pub value_width: usize,
}

impl Attend {
    /// Attention without cap, slopes and sinks.
    pub const fn plain(visibility: KeyVisibility) -> Self {
        Self { soft_cap: None, has_slopes: false, has_sinks: false, visibility }
    }

    /// Queries `[2, s, heads, d]`, keys `[2, t, kv_heads, d]`, values `[2, t, kv_heads, dv]`, a gradient of the output
    /// `[2, s, heads, dv]`, and one number for each head.
    pub fn inputs(sizes: AttentionSizes) -> Vec<Plain> {
        let AttentionSizes { queries, keys, heads, kv_heads, width, value_width } = sizes;
        vec![
            random(&[2, queries, heads, width], 1),
            random(&[2, keys, kv_heads, width], 2),
            random(&[2, keys, kv_heads, value_width], 3),
            random(&[2, queries, heads, value_width], 4),
            random(&[heads], 5).scale(0.1),
        ]
    }
}

impl OperatorTrial for Attend {
    fn run<B: Kernels>(&self, inputs: Vec<Array<B>>) -> Vec<Array<B>> {
        let Self { soft_cap, has_slopes, has_sinks, visibility } = *self;
        let [q, k, v, grad, of_heads] = named(inputs);
        let bias = if has_slopes { Bias::Slopes(of_heads.clone()) } else { Bias::None };
        let scale = 1.0 / (q.size(3) as f64).sqrt();
        let scoring = Scoring { soft_cap, bias, ..Scoring::plain(scale) };
        let (mut out, mut lse) =
            attention::forward(q.clone(), k.clone(), v.clone(), &scoring, visibility);
        let mut sinks_grad = None;
        if has_sinks {
            (out, lse) = attention::with_sinks(out, lse, of_heads.clone());
            let [kept, grad] = [&out, &grad].map(Array::clone);
            sinks_grad = Some(attention::sinks_grad(of_heads, kept, lse.clone(), grad));
        }
        let (kept, known) = (out.clone(), lse.clone());
        let grads = attention::input_grad(q, k, v, kept, known, grad, &scoring, visibility);
        let outputs = [out, lse, grads.query, grads.key, grads.value];
        outputs.into_iter().chain(sinks_grad).collect()
    }
}
