//! Mamba-2's scan. For each head, with `p` features and `n` numbers of state per feature, at each position
//!
//! ```text
//! D = clamp(softplus(time_step + time_bias))
//! S = exp(-exp(a_log) D) S + D b x^T,   S [n, p]
//! y = S^T c + skip x
//! ```
//!
//! where heads of a group share `b` and `c`.
//!
//! # Source
//!
//! Dao and Gu 2024, *Transformers are SSMs* (arXiv 2405.21060), section 6; `Mamba2Mixer` of Hugging Face transformers.

use super::chunks::{Chunk, Decays, pairs_grad};
use super::{
    by_head, by_position, joined, matrix_sums, no_state, of_heads, row_sums, softplus,
    summed_by_head,
};
use crate::array::Array;
use crate::ops::Kernels;

/// Inputs of a scan, or their gradients, at `s` positions of `b` sequences.
#[derive(Clone, Debug)]
pub struct ScanInputs<B: Kernels> {
    /// `[b, s, groups, heads of a group, p]`.
    pub x: Array<B>,
    /// `[b, s, groups, n]`.
    pub b: Array<B>,
    /// `[b, s, groups, n]`.
    pub c: Array<B>,
    /// `[b, s, groups, heads of a group]`.
    pub time_step: Array<B>,
}

/// Trained parameters of a scan, or their gradients, `[groups, heads of a group]` each.
#[derive(Clone, Debug)]
pub struct ScanParameters<B: Kernels> {
    /// Logarithm of the rate of decay.
    pub a_log: Array<B>,
    /// Factor of the input that is added to the output.
    pub skip: Array<B>,
    /// Added to time steps.
    pub time_bias: Array<B>,
}

/// Constants of a scan.
#[derive(Clone, Copy, Debug)]
pub struct ScanConstants {
    /// Number of positions of a chunk. It determines the amount of work, not the result.
    pub chunk: usize,
    /// Least and greatest time step.
    pub time_steps: [f64; 2],
}

/// The output, of the shape of `x`.
pub fn forward<B: Kernels>(
    inputs: &ScanInputs<B>,
    parameters: &ScanParameters<B>,
    rule: ScanConstants,
) -> Array<B> {
    let scan = Scan::new(inputs, parameters, rule);
    let mut state = scan.no_state();
    let mut outputs = Vec::new();
    for chunk in Chunk::all(&scan.x, rule.chunk) {
        let part = scan.part(&chunk);
        outputs.push(part.output(&state));
        state = part.next(state);
    }
    let y = Array::concat(outputs, 2) + scan.skip * scan.x;
    by_position(y, scan.batch).cast(inputs.x.element())
}

/// The gradients of inputs and parameters from that of the output.
pub fn grads<B: Kernels>(
    inputs: &ScanInputs<B>,
    parameters: &ScanParameters<B>,
    rule: ScanConstants,
    grad: Array<B>,
) -> (ScanInputs<B>, ScanParameters<B>) {
    let scan = Scan::new(inputs, parameters, rule);
    let grad = by_head(grad.widened());
    let chunks = Chunk::all(&scan.x, rule.chunk);
    let mut states = vec![scan.no_state()];
    for chunk in &chunks[..chunks.len() - 1] {
        let state = states[states.len() - 1].clone();
        states.push(scan.part(chunk).next(state));
    }
    let mut of_state = scan.no_state();
    let mut parts = Vec::new();
    for (chunk, state) in chunks.iter().zip(states).rev() {
        let (part, of_next) = scan.part(chunk).grads(&state, chunk.of(&grad), of_state, chunk);
        of_state = of_next;
        parts.push(part);
    }
    scan.input_grads(joined(parts), grad, (inputs, parameters), rule)
}

/// A scan in the order of heads, `[b groups, heads, s, ..]`.
struct Scan<B: Kernels> {
    batch: usize,
    x: Array<B>,
    b: Array<B>,
    c: Array<B>,
    /// Time steps before the softplus, after it, and limited.
    biased: Array<B>,
    unlimited: Array<B>,
    steps: Array<B>,
    /// `-exp(a_log)`, of each head.
    rate: Array<B>,
    skip: Array<B>,
}

impl<B: Kernels> Scan<B> {
    fn new(inputs: &ScanInputs<B>, parameters: &ScanParameters<B>, rule: ScanConstants) -> Self {
        let shape = inputs.x.shape();
        let [batch, length, groups, heads, _] = shape[..] else {
            panic!("a scan is of five dimensions, not {shape:?}")
        };
        let state = inputs.b.size(3);
        let shared =
            |x: &Array<B>| by_head(x.clone().widened().reshape(&[batch, length, groups, 1, state]));
        let raw = inputs.time_step.clone().widened();
        let raw = by_head(raw.reshape(&[batch, length, groups, heads, 1]));
        let biased = raw + of_heads(parameters.time_bias.clone(), batch);
        let unlimited = softplus(biased.clone());
        let [least, most] = rule.time_steps;
        let steps = -(-unlimited.clone().at_least(least)).at_least(-most);
        Self {
            batch,
            x: by_head(inputs.x.clone().widened()),
            b: shared(&inputs.b),
            c: shared(&inputs.c),
            biased,
            unlimited,
            steps,
            rate: -of_heads(parameters.a_log.clone(), batch).exp(),
            skip: of_heads(parameters.skip.clone(), batch),
        }
    }

    fn no_state(&self) -> Array<B> {
        no_state(&self.x, self.b.size(3), self.x.size(3))
    }

    fn part(&self, chunk: &Chunk<B>) -> ScanChunk<B> {
        let steps = chunk.of(&self.steps);
        let sums = chunk.triangle.sums_to(steps.clone() * self.rate.clone());
        ScanChunk {
            written: steps * chunk.of(&self.x),
            b: chunk.of(&self.b),
            c: chunk.of(&self.c),
            decays: Decays::new(sums, &chunk.triangle),
        }
    }

    /// Gradients in the order of positions, from those that [`ScanChunk::grads`] makes.
    fn input_grads(
        self,
        [written, b, c, logs]: [Array<B>; 4],
        grad: Array<B>,
        (inputs, parameters): (&ScanInputs<B>, &ScanParameters<B>),
        rule: ScanConstants,
    ) -> (ScanInputs<B>, ScanParameters<B>) {
        let batch = self.batch;
        let of_rate = logs.clone() * self.steps.clone() * self.rate.clone();
        let of_skip = row_sums(grad.clone() * self.x.clone());
        let of_steps = row_sums(written.clone() * self.x) + logs * self.rate;
        let [least, most] = rule.time_steps;
        let of_steps = self.unlimited.clone().shift(-least).where_positive(of_steps);
        let of_steps = (-self.unlimited).shift(most).where_positive(of_steps);
        let of_steps = of_steps * self.biased.sigmoid();
        let of_x = written * self.steps + grad * self.skip;
        let element = inputs.x.element();
        let ordered = |x: Array<B>, like: &Array<B>| {
            by_position(x, batch).reshape(&like.shape()).cast(element)
        };
        let parameters = ScanParameters {
            a_log: summed_by_head(of_rate, batch, &parameters.a_log),
            skip: summed_by_head(of_skip, batch, &parameters.skip),
            time_bias: summed_by_head(of_steps.clone(), batch, &parameters.time_bias),
        };
        let inputs = ScanInputs {
            x: ordered(of_x, &inputs.x),
            b: ordered(b, &inputs.b),
            c: ordered(c, &inputs.c),
            time_step: ordered(of_steps, &inputs.time_step),
        };
        (inputs, parameters)
    }
}

/// A chunk of a scan.
struct ScanChunk<B: Kernels> {
    /// Inputs `x` times time steps.
    written: Array<B>,
    b: Array<B>,
    c: Array<B>,
    decays: Decays<B>,
}

impl<B: Kernels> ScanChunk<B> {
    /// Weights with which each position (a row) reads the values that it and each earlier position (a column) wrote,
    /// `[.., c, c]`.
    fn weights(&self) -> Array<B> {
        B::matmul(self.c.clone(), self.b.clone().transpose()) * self.decays.pairs.clone()
    }

    fn output(&self, state: &Array<B>) -> Array<B> {
        let within = B::matmul(self.weights(), self.written.clone());
        within + self.decays.from_start.clone() * B::matmul(self.c.clone(), state.clone())
    }

    /// The state after the chunk.
    fn next(&self, state: Array<B>) -> Array<B> {
        let written = self.decays.to_end.clone() * self.written.clone();
        self.decays.across.clone() * state + B::matmul(self.b.clone().transpose(), written)
    }

    /// Gradients of the written values, `b`, `c` and logarithms of decays, and of the state before the chunk, from the
    /// gradients of the output and of the state after the chunk.
    fn grads(
        self,
        state: &Array<B>,
        grad: Array<B>,
        of_next: Array<B>,
        chunk: &Chunk<B>,
    ) -> ([Array<B>; 4], Array<B>) {
        let weights = self.weights();
        let Self { written, b, c, decays } = self;
        let Decays { from_start, to_end, across, pairs } = decays;
        let read = B::matmul(c.clone(), state.clone());
        let of_read = from_start * grad.clone();
        let of_weights = B::matmul(grad.clone(), written.clone().transpose());
        let of_scores = (of_weights.clone() * pairs).sum_dim(1);
        let of_end = to_end.clone() * B::matmul(b.clone(), of_next.clone());
        let ending = row_sums(written.clone() * of_end.clone());
        let of_b = B::matmul(to_end * written, of_next.clone().transpose()).sum_dim(1)
            + B::matmul(of_scores.clone().transpose(), c.clone());
        let of_c = B::matmul(of_read.clone(), state.clone().transpose()).sum_dim(1)
            + B::matmul(of_scores, b);
        let of_sums = row_sums(of_read.clone() * read) + pairs_grad(of_weights * weights.clone())
            - ending.clone();
        let of_last =
            ending.sum_dim(2) + across.clone() * matrix_sums(of_next.clone() * state.clone());
        let of_written = B::matmul(weights.transpose(), grad) + of_end;
        let of_logs = chunk.triangle.sums_from(of_sums) + of_last;
        let of_state = B::matmul(c.transpose(), of_read) + across * of_next;
        ([of_written, of_b, of_c, of_logs], of_state)
    }
}
