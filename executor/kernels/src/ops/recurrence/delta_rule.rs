//! The gated delta rule. For each head of values, at each position
//!
//! ```text
//! g = -exp(a_log) softplus(decay + time_bias),   b = sigmoid(beta)
//! S = e^g S + k^ b (v - e^g S^T k^)^T,   S [n, p]
//! y = S^T q^ / sqrt(n)
//! ```
//!
//! with queries and keys divided by their length, `x^ = x / sqrt(|x|^2 + epsilon)`, each shared by neighbouring heads
//! of values.
//!
//! Within a chunk, what positions write depends on what earlier ones wrote: a triangular system, whose inverse
//! is saved.
//!
//! # Source
//!
//! Yang, Kautz and Hatamizadeh 2024, *Gated Delta Networks* (arXiv 2412.06464), section 3.3; flash-linear-attention,
//! `fla/ops/gated_delta_rule`; `Qwen3NextGatedDeltaNet` of Hugging Face transformers.

use super::chunks::{Chunk, Decays, Triangle, pairs_grad};
use super::{
    by_head, by_position, joined, matrix_sums, no_state, of_heads, row_sums, softplus,
    summed_by_head,
};
use crate::array::Array;
use crate::ops::Kernels;

/// Added to squares of lengths: `l2norm` of flash-linear-attention.
const EPSILON: f64 = 1e-6;

/// Size up to which a triangular matrix is inverted by its powers, whose elements grow with the size.
const LEAST_SPLIT: usize = 8;

/// Inputs of the rule, or their gradients, at `s` positions of `b` sequences.
#[derive(Clone, Debug)]
pub struct DeltaInputs<B: Kernels> {
    /// `[b, s, key heads, n]`.
    pub query: Array<B>,
    /// `[b, s, key heads, n]`.
    pub key: Array<B>,
    /// `[b, s, heads, p]`.
    pub value: Array<B>,
    /// `[b, s, heads]`.
    pub beta: Array<B>,
    /// `[b, s, heads]`.
    pub decay: Array<B>,
}

/// Trained parameters of the rule, or their gradients, `[heads]` each.
#[derive(Clone, Debug)]
pub struct DeltaParameters<B: Kernels> {
    /// Logarithm of the rate of decay.
    pub a_log: Array<B>,
    /// Added to decays.
    pub time_bias: Array<B>,
}

/// Arrays that the forward pass saves for the gradients, for each head of values.
#[derive(Clone, Debug)]
pub struct DeltaSaved<B: Kernels> {
    /// Normalised queries, divided by the root of their number of features, `[b, heads, s, n]`.
    query: Array<B>,
    /// Normalised keys, `[b, heads, s, n]`.
    key: Array<B>,
    /// Values that each position writes, `[b, heads, s, p]`.
    written: Array<B>,
    /// The inverse of the system of each chunk of `c` positions, `[b, heads, c, c]`.
    inverses: Vec<Array<B>>,
    /// Logarithms of decays, summed from the chunk's start, `[b, heads, s, 1]`, in fp32 at least.
    sums: Array<B>,
}

impl<B: Kernels> DeltaSaved<B> {
    /// Bytes on the device.
    pub fn num_bytes(&self) -> u64 {
        let arrays = [&self.query, &self.key, &self.written, &self.sums].into_iter();
        arrays.chain(&self.inverses).map(Array::num_bytes).sum()
    }
}

/// The output, of the shape of the values, and what is saved. `chunk` positions are computed at a time.
pub fn forward<B: Kernels>(
    inputs: &DeltaInputs<B>,
    parameters: &DeltaParameters<B>,
    chunk: usize,
) -> (Array<B>, DeltaSaved<B>) {
    let element = inputs.value.element();
    let gates = Gates::new(inputs, parameters);
    let value = in_heads(inputs.value.clone());
    let [query, key] = normalised(inputs);
    let mut state = no_state(&value, key.size(3), value.size(3));
    let [mut outputs, mut written, mut inverses, mut sums] = [const { Vec::new() }; 4];
    for chunk in Chunk::all(&value, chunk) {
        let of_chunk = chunk.triangle.sums_to(chunk.of(&gates.logs));
        let part = DeltaChunk {
            query: chunk.of(&query),
            key: chunk.of(&key),
            decays: Decays::new(of_chunk.clone(), &chunk.triangle),
        };
        let beta = chunk.of(&gates.beta);
        let inverse = inverse(part.system(&chunk.triangle) * beta.clone());
        let difference = chunk.of(&value) - part.predicted(&state);
        let new = B::matmul(inverse.clone(), beta * difference);
        outputs.push(part.output(&state, &new));
        state = part.next(state, &new);
        written.push(new.cast(element));
        inverses.push(inverse.cast(element));
        sums.push(of_chunk);
    }
    let y = by_position(Array::concat(outputs, 2), inputs.value.size(0));
    let saved = DeltaSaved {
        query: query.cast(element),
        key: key.cast(element),
        written: Array::concat(written, 2),
        inverses,
        sums: Array::concat(sums, 2),
    };
    (y.reshape(&inputs.value.shape()).cast(element), saved)
}

/// The gradients of inputs and parameters from that of the output.
pub fn grads<B: Kernels>(
    inputs: &DeltaInputs<B>,
    parameters: &DeltaParameters<B>,
    saved: &DeltaSaved<B>,
    chunk: usize,
    grad: Array<B>,
) -> (DeltaInputs<B>, DeltaParameters<B>) {
    let gates = Gates::new(inputs, parameters);
    let value = in_heads(inputs.value.clone());
    let grad = in_heads(grad);
    let chunks = Chunk::all(&value, chunk);
    let part = |chunk: &Chunk<B>| DeltaChunk {
        query: chunk.of(&saved.query).widened(),
        key: chunk.of(&saved.key).widened(),
        decays: Decays::new(chunk.of(&saved.sums), &chunk.triangle),
    };
    let mut states = vec![no_state(&value, saved.key.size(3), value.size(3))];
    for chunk in &chunks[..chunks.len() - 1] {
        let (state, new) = (states[states.len() - 1].clone(), chunk.of(&saved.written).widened());
        states.push(part(chunk).next(state, &new));
    }
    let mut of_state = no_state(&value, saved.key.size(3), value.size(3));
    let mut parts = Vec::new();
    let each = chunks.iter().zip(states).zip(&saved.inverses).rev();
    for ((chunk, state), inverse) in each {
        let of_chunk = OfChunk {
            chunk,
            value: chunk.of(&value),
            beta: chunk.of(&gates.beta),
            written: chunk.of(&saved.written).widened(),
            inverse: inverse.clone().widened(),
        };
        let (grads, of_next) = part(chunk).grads(of_chunk, &state, chunk.of(&grad), of_state);
        of_state = of_next;
        parts.push(grads);
    }
    let [query, key, value, beta, logs] = joined(parts);
    let (beta, decay, parameters) = gates.grads(beta, logs, parameters);
    let heads = |x: Array<B>, like: &Array<B>| {
        by_position(x, like.size(0)).reshape(&like.shape()).cast(like.element())
    };
    let inputs = DeltaInputs {
        query: direction_grad(&inputs.query, query, root(saved.key.size(3)).recip()),
        key: direction_grad(&inputs.key, key, 1.0),
        value: heads(value, &inputs.value),
        beta: heads(beta, &inputs.beta),
        decay: heads(decay, &inputs.decay),
    };
    (inputs, parameters)
}

fn root(size: usize) -> f64 {
    (size as f64).sqrt()
}

/// `[b, s, heads]` or `[b, s, heads, features]` as `[b, heads, s, features]`.
fn in_heads<B: Kernels>(x: Array<B>) -> Array<B> {
    let [batch, length, heads] = [0, 1, 2].map(|dim| x.size(dim));
    let features = x.num_elements() / (batch * length * heads);
    by_head(x.widened().reshape(&[batch, length, 1, heads, features]))
}

/// Queries and keys divided by their lengths, for each head of values. Queries are also divided by the root of their
/// number of features.
fn normalised<B: Kernels>(inputs: &DeltaInputs<B>) -> [Array<B>; 2] {
    let DeltaInputs { query, key, value, .. } = inputs;
    let [batch, length, heads, features] = [0, 1, 2, 3].map(|dim| key.size(dim));
    let shared = value.size(2) / heads;
    let each = |x: &Array<B>, scale: f64| {
        let x = x.clone().widened();
        let direction = (x.clone() * inverse_length(x)).scale(scale);
        let repeated = direction.reshape(&[batch, length, heads, 1, features]);
        let repeated = repeated.expand(&[batch, length, heads, shared, features]);
        in_heads(repeated.reshape(&[batch, length, heads * shared, features]))
    };
    [each(query, root(features).recip()), each(key, 1.0)]
}

fn inverse_length<B: Kernels>(x: Array<B>) -> Array<B> {
    row_sums(x.square()).shift(EPSILON).sqrt().recip()
}

/// The gradient of queries or keys from that of their directions, times `scale`, of each head of values.
fn direction_grad<B: Kernels>(x: &Array<B>, grad: Array<B>, scale: f64) -> Array<B> {
    let [batch, length, heads, features] = [0, 1, 2, 3].map(|dim| x.size(dim));
    let shared = grad.size(1) / heads;
    let grad = by_position(grad, batch).reshape(&[batch, length, heads, shared, features]);
    let grad = grad.sum_dim(3).reshape(&x.shape()).scale(scale);
    let wide = x.clone().widened();
    let inverse = inverse_length(wide.clone());
    let direction = wide * inverse.clone();
    let along = row_sums(direction.clone() * grad.clone());
    (inverse * (grad - direction * along)).cast(x.element())
}

/// Decays and strengths of writing, `[b, heads, s, 1]`.
struct Gates<B: Kernels> {
    batch: usize,
    /// Decays before the softplus.
    biased: Array<B>,
    rate: Array<B>,
    logs: Array<B>,
    beta: Array<B>,
}

impl<B: Kernels> Gates<B> {
    fn new(inputs: &DeltaInputs<B>, parameters: &DeltaParameters<B>) -> Self {
        let batch = inputs.value.size(0);
        let heads = |parameter: &Array<B>| {
            of_heads(parameter.clone().reshape(&[1, parameter.num_elements()]), batch)
        };
        let biased = in_heads(inputs.decay.clone()) + heads(&parameters.time_bias);
        let rate = -heads(&parameters.a_log).exp();
        let logs = softplus(biased.clone()) * rate.clone();
        Self { batch, biased, rate, logs, beta: in_heads(inputs.beta.clone()).sigmoid() }
    }

    /// Gradients of the inputs of the gates, and of the parameters.
    fn grads(
        self,
        of_beta: Array<B>,
        of_logs: Array<B>,
        parameters: &DeltaParameters<B>,
    ) -> (Array<B>, Array<B>, DeltaParameters<B>) {
        let slope = self.beta.clone() * self.beta.scale(-1.0).shift(1.0);
        let of_decay = of_logs.clone() * self.rate * self.biased.sigmoid();
        let parameters = DeltaParameters {
            a_log: summed_by_head(of_logs * self.logs, self.batch, &parameters.a_log),
            time_bias: summed_by_head(of_decay.clone(), self.batch, &parameters.time_bias),
        };
        (of_beta * slope, of_decay, parameters)
    }
}

/// A chunk of the rule.
struct DeltaChunk<B: Kernels> {
    query: Array<B>,
    key: Array<B>,
    decays: Decays<B>,
}

/// Further arrays from which the gradients of a chunk are computed.
struct OfChunk<'a, B: Kernels> {
    chunk: &'a Chunk<B>,
    value: Array<B>,
    beta: Array<B>,
    written: Array<B>,
    inverse: Array<B>,
}

impl<B: Kernels> DeltaChunk<B> {
    /// Weights with which each position (a row) reads along its key the values that each earlier position (a column)
    /// wrote.
    fn system(&self, triangle: &Triangle<B>) -> Array<B> {
        let products = B::matmul(self.key.clone(), self.key.clone().transpose());
        products * self.decays.pairs.clone() * triangle.below_diagonal()
    }

    /// Values that the state before the chunk holds for each key.
    fn predicted(&self, state: &Array<B>) -> Array<B> {
        self.decays.from_start.clone() * B::matmul(self.key.clone(), state.clone())
    }

    /// Weights with which each position (a row) reads the values that it and each earlier position (a column) wrote.
    fn weights(&self) -> Array<B> {
        let products = B::matmul(self.query.clone(), self.key.clone().transpose());
        products * self.decays.pairs.clone()
    }

    fn output(&self, state: &Array<B>, written: &Array<B>) -> Array<B> {
        let read = B::matmul(self.query.clone(), state.clone());
        self.decays.from_start.clone() * read + B::matmul(self.weights(), written.clone())
    }

    /// The state after the chunk.
    fn next(&self, state: Array<B>, written: &Array<B>) -> Array<B> {
        let keys = (self.decays.to_end.clone() * self.key.clone()).transpose();
        self.decays.across.clone() * state + B::matmul(keys, written.clone())
    }

    /// Gradients of queries, keys, values, `beta` and logarithms of decays, and of the state before the chunk, from the
    /// gradients of the output and of the state after the chunk.
    fn grads(
        self,
        of_chunk: OfChunk<'_, B>,
        state: &Array<B>,
        grad: Array<B>,
        of_next: Array<B>,
    ) -> ([Array<B>; 5], Array<B>) {
        let OfChunk { chunk, value, beta, written, inverse } = of_chunk;
        let (system, weights) = (self.system(&chunk.triangle), self.weights());
        let predicted = self.predicted(state);
        let Self { query, key, decays: Decays { from_start, to_end, across, pairs } } = self;

        // Through the output.
        let of_read = from_start.clone() * grad.clone();
        let read = B::matmul(query.clone(), state.clone());
        let of_weights = B::matmul(grad.clone(), written.clone().transpose());
        let of_products = of_weights.clone() * pairs.clone();
        let of_query = B::matmul(of_read.clone(), state.clone().transpose())
            + B::matmul(of_products.clone(), key.clone());
        let mut of_key = B::matmul(of_products.transpose(), query.clone());
        let mut of_sums =
            row_sums(of_read.clone() * read) + pairs_grad(of_weights * weights.clone());

        // Through the state after the chunk.
        let of_end = to_end.clone() * B::matmul(key.clone(), of_next.clone());
        let ending = row_sums(of_end.clone() * written.clone());
        let of_written = B::matmul(weights.transpose(), grad) + of_end;
        of_key = of_key + to_end * B::matmul(written.clone(), of_next.clone().transpose());
        let of_last = ending.clone().sum_dim(2)
            + across.clone() * matrix_sums(of_next.clone() * state.clone());
        of_sums = of_sums - ending;

        // Through the triangular system for the written values.
        let of_solved = B::matmul(inverse.transpose(), of_written);
        let of_system = -B::matmul(of_solved.clone(), written.transpose());
        let of_beta = row_sums(of_solved.clone() * (value - predicted.clone()))
            + row_sums(of_system.clone() * system.clone());
        of_sums = of_sums + pairs_grad(of_system.clone() * system * beta.clone());
        let of_products = of_system * beta.clone() * pairs * chunk.triangle.below_diagonal();
        of_key = of_key
            + B::matmul(of_products.clone(), key.clone())
            + B::matmul(of_products.transpose(), key.clone());
        let of_value = beta * of_solved;
        of_sums = of_sums - row_sums(of_value.clone() * predicted);
        let of_predicted = -(from_start * of_value.clone());
        of_key = of_key + B::matmul(of_predicted.clone(), state.clone().transpose());

        let of_state = B::matmul(query.transpose(), of_read)
            + across * of_next
            + B::matmul(key.transpose(), of_predicted);
        let of_logs = chunk.triangle.sums_from(of_sums) + of_last;
        ([of_query, of_key, of_value, of_beta, of_logs], of_state)
    }
}

/// The inverse of the identity plus `x`, `[.., c, c]`, where `x` has zeros on and above its diagonal. It is computed
/// recursively from halves; for small matrices, as the sum of powers of `-x`.
fn inverse<B: Kernels>(x: Array<B>) -> Array<B> {
    let size = x.size(2);
    if size <= LEAST_SPLIT {
        let mut power = -x;
        let mut sum = with_identity(power.clone());
        let mut terms = 2;
        while terms < size {
            power = B::matmul(power.clone(), power);
            sum = sum.clone() + B::matmul(sum, power.clone());
            terms *= 2;
        }
        return sum;
    }
    let half = size / 2;
    let part = |rows: std::ops::Range<usize>, columns| x.narrow(2, rows).narrow(3, columns);
    let upper = inverse(part(0..half, 0..half));
    let lower = inverse(part(half..size, half..size));
    let between = -B::matmul(lower.clone(), B::matmul(part(half..size, 0..half), upper.clone()));
    let nothing = part(0..half, half..size);
    let rows = [Array::concat(vec![upper, nothing], 3), Array::concat(vec![between, lower], 3)];
    Array::concat(rows.into(), 2)
}

fn with_identity<B: Kernels>(x: Array<B>) -> Array<B> {
    let size = x.size(2);
    let ones = (0..size * size).map(|at| if at % (size + 1) == 0 { 1.0 } else { 0.0 });
    let identity = Array::from_f64(ones.collect(), &[1, 1, size, size], x.element(), &x.device());
    x + identity
}
