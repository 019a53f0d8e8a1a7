//! Lowering of hyper-connections: how layers read parallel residual streams, and how they add to them.
//!
//! Norms of all streams are applied to the weights, after the product that computes these. The doubly stochastic
//! matrix that mixes streams is one softmax here. Both are small compared with the streams (Xie et al. 2025, arXiv
//! 2512.24880, section 4.3).

use super::attention::parameter;
use super::{Lowering, linear};
use crate::graph::{Activation, BlockBuilder, Dim, DimName, GraphError, OpKind, Value};
use crate::model::transformer::Streams;

impl Streams {
    /// The dimension of a tensor that enumerates the streams.
    pub(super) const fn dim(self) -> Dim {
        Dim::fixed(DimName::Streams, self.count)
    }
}

/// The input that a half of a layer reads from the streams, and the weights with which its output is added to them.
#[derive(Clone, Copy)]
pub(super) struct WeightedStreams {
    /// The weighted sum of the streams.
    pub(super) sum: Value,
    /// Weights of the output.
    output: Value,
    /// Weights of the streams in each other.
    mix: Option<Value>,
}

impl Lowering {
    /// Copies of `x` as streams, where the model has several.
    pub(super) fn copied_to_streams(
        &self,
        block: &mut BlockBuilder,
        x: Value,
    ) -> Result<Value, GraphError> {
        let Some(streams) = self.streams else { return Ok(x) };
        let one = Dim::fixed(DimName::Streams, 1);
        let dims = vec![Dim::BATCH, self.sequence, one, self.hidden];
        let x = block.push("embedding.stream", OpKind::Reshape { dims }, &[x])?;
        if streams.count == 1 {
            return Ok(x);
        }
        let copies = vec![x; streams.count as usize];
        block.push("embedding.streams", OpKind::Concat { over: DimName::Streams }, &copies)
    }

    /// The sum of the streams that the head `name` reads, where the model has several.
    pub(super) fn sum_of_streams(
        &self,
        block: &mut BlockBuilder,
        name: &str,
        x: Value,
    ) -> Result<Value, GraphError> {
        let Some(streams) = self.streams else { return Ok(x) };
        let weights = Self::stream_weights(block, name, [streams.count, 1], x)?;
        let weights = self.gates(block, &format!("{name}.weights"), streams, 0, weights)?;
        let sum = OpKind::Product { over: vec![DimName::Streams] };
        block.push(format!("{name}.streams"), sum, &[x, weights])
    }

    /// The input that the half `name` of a layer reads from the streams `x`.
    pub(super) fn weighted_streams(
        &self,
        block: &mut BlockBuilder,
        name: &str,
        streams: Streams,
        x: Value,
    ) -> Result<WeightedStreams, GraphError> {
        let count = streams.count;
        let (mixed, factors) =
            if streams.are_mixed { (count.saturating_mul(count), 3) } else { (0, 2) };
        let all = count.saturating_mul(2).saturating_add(mixed);
        let weights = Self::stream_weights(block, name, [all, factors], x)?;
        let input = format!("{name}.input_weights");
        let input = self.gates(block, &input, streams, 0, weights)?;
        let sum = OpKind::Product { over: vec![DimName::Streams] };
        let sum = block.push(format!("{name}.streams"), sum, &[x, input])?;
        let output = format!("{name}.output_weights");
        let output = self.gates(block, &output, streams, count, weights)?;
        let mix = if streams.are_mixed {
            let part = Dim::fixed(DimName::Features, mixed);
            let slice = OpKind::Slice { dim: part, start: count.saturating_mul(2) };
            let mix = block.push(format!("{name}.mix_part"), slice, &[weights])?;
            let rows = Dim::fixed(DimName::Latent, count);
            let dims = vec![Dim::BATCH, self.sequence, rows, streams.dim()];
            let mix = block.push(format!("{name}.mix_rows"), OpKind::Reshape { dims }, &[mix])?;
            let softmax = OpKind::Softmax { over: DimName::Streams };
            Some(block.push(format!("{name}.mix"), softmax, &[mix])?)
        } else {
            None
        };
        Ok(WeightedStreams { sum, output, mix })
    }

    /// The streams `x`, with `y` added to each.
    pub(super) fn added_to_streams(
        &self,
        block: &mut BlockBuilder,
        name: &str,
        weights: WeightedStreams,
        [x, y]: [Value; 2],
    ) -> Result<Value, GraphError> {
        let Some(streams) = self.streams else { return Ok(y) };
        let each = OpKind::Product { over: Vec::new() };
        let y = block.push(format!("{name}.to_streams"), each, &[weights.output, y])?;
        let x = match weights.mix {
            Some(mix) => {
                let product = OpKind::Product { over: vec![DimName::Streams] };
                let x = block.push(format!("{name}.mixed"), product, &[mix, x])?;
                let dims = vec![Dim::BATCH, self.sequence, streams.dim(), self.hidden];
                block.push(format!("{name}.mixed_streams"), OpKind::Reshape { dims }, &[x])?
            }
            None => x,
        };
        block.push(format!("{name}.residual"), OpKind::Add, &[x, y])
    }

    /// The given number of weights for each token, by a linear layer over all streams, with trained factors.
    fn stream_weights(
        block: &mut BlockBuilder,
        name: &str,
        [count, factors]: [u64; 2],
        x: Value,
    ) -> Result<Value, GraphError> {
        let contracted = [DimName::Streams, DimName::Hidden];
        let produced = [Dim::fixed(DimName::Features, count)];
        let weights =
            linear(block, &format!("{name}.stream_weights"), &contracted, &produced, true, x)?;
        let factors = vec![Dim::fixed(DimName::Features, factors)];
        block.add_parameter(weights, parameter("scale", factors));
        Ok(weights)
    }

    /// The sigmoid of one weight for each stream, from the index `start` on.
    fn gates(
        &self,
        block: &mut BlockBuilder,
        name: &str,
        streams: Streams,
        start: u64,
        weights: Value,
    ) -> Result<Value, GraphError> {
        let slice = OpKind::Slice { dim: Dim::fixed(DimName::Features, streams.count), start };
        let part = block.push(format!("{name}.part"), slice, &[weights])?;
        let dims = vec![Dim::BATCH, self.sequence, streams.dim()];
        let part = block.push(format!("{name}.each"), OpKind::Reshape { dims }, &[part])?;
        block.push(name, OpKind::Activation(Activation::Sigmoid), &[part])
    }
}
