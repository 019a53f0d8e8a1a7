//! Lowering of a transformer to its graph of operators.
//!
//! The chain is `embedding`, a `layer` for each layer, and `head`. With an encoder, `encoder` layers and
//! `decoder_embedding` precede the decoder's layers. If requested, multi-token prediction modules, `mtp`, precede the
//! head.
//!
//! The first inputs of a block are the outputs of the block before it, in order; further inputs are data: `tokens`,
//! `decoder_tokens`, `pixels`, `sound`.

mod attention;
mod compressed;
mod ends;
mod feed_forward;
mod layer;
mod recurrent;
mod streams;

use std::collections::BTreeMap;

use super::transformer::{
    DropoutRates, Embedding, Encoder, Layer, Layers, Norm, NormType, Scales, SharedBy, Streams,
    Transformer,
};
use crate::graph::{
    Block, BlockBuilder, Dim, DimName, Graph, GraphError, NormKind, OpKind, Real, Tensor, Value,
};

/// Implementation of attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttentionKernel {
    /// Fused attention, which never stores the scores.
    #[default]
    Flash,
    /// A kernel for each step, which stores scores and probabilities.
    Unfused,
}

/// Parts of a model that its graph includes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GraphOptions {
    /// Implementation of attention. It also decides what selective recompute recomputes: unfused, the steps of
    /// attention (Korthikanti et al. 2022, section 5); fused, norms and activations.
    pub attention: AttentionKernel,
    /// True where dropout is applied, if the model has it.
    pub dropout: bool,
    /// True where multi-token prediction modules are trained too.
    pub multi_token_prediction: bool,
}

/// Name of the token table, to which heads are tied.
const TOKEN_TABLE: &str = "embedding.tokens";

/// Builds the graph of `transformer`.
pub(super) fn lower(transformer: &Transformer, options: GraphOptions) -> Result<Graph, GraphError> {
    let lowering = Lowering::new(transformer, options);
    let mut carried = CarriedTensors::new();
    let takes_embedding =
        |layer: &Layer| layer.own_embedding.is_some() || layer.shared_block.is_some();
    if transformer.layers.iter().any(|layers| takes_embedding(&layers.layer)) {
        carried.insert(Carried::Embedding, lowering.residual());
    }
    let mut blocks = Vec::new();
    if let Some(encoder) = &transformer.encoder {
        let of_encoder = lowering.of_encoder(encoder);
        blocks.push((of_encoder.encoder_embedding(encoder, &transformer.embedding)?, 1));
        let none = &mut CarriedTensors::new();
        of_encoder.layers(&mut blocks, "encoder", &encoder.layers, none)?;
        let output = of_encoder.residual();
        let decoder = lowering.decoder_embedding(encoder, &transformer.embedding, &output)?;
        blocks.push((decoder, 1));
        carried.insert(Carried::EncoderOutput, output);
    } else {
        let embedding = &transformer.embedding;
        let block = lowering.embedding("embedding", embedding, !carried.is_empty())?;
        blocks.push((block, 1));
    }
    lowering.layers(&mut blocks, "layer", &transformer.layers, &mut carried)?;
    let modules: &[_] =
        if options.multi_token_prediction { &transformer.prediction_modules } else { &[] };
    for (index, layer) in modules.iter().enumerate() {
        blocks.push((lowering.mtp_module(transformer, index, layer)?, 1));
    }
    blocks.push((lowering.head(transformer, modules.len(), &carried)?, 1));
    Graph::new(blocks)
}

/// A tensor that blocks pass on to later ones, in addition to the residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Carried {
    /// The embedding of the tokens.
    Embedding,
    /// The encoder's output.
    EncoderOutput,
    /// Keys that several layers use.
    Keys(SharedBy),
    /// Values that several layers use.
    Values(SharedBy),
}

impl Carried {
    /// Name of a block's input.
    const fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedded",
            Self::EncoderOutput => "encoder_output",
            Self::Keys(SharedBy::Sliding) => "sliding_keys",
            Self::Keys(SharedBy::Full) => "full_keys",
            Self::Values(SharedBy::Sliding) => "sliding_values",
            Self::Values(SharedBy::Full) => "full_values",
        }
    }
}

/// Tensors between blocks in addition to the residual stream.
type CarriedTensors = BTreeMap<Carried, Tensor>;

/// Carried values within a block.
type CarriedValues = BTreeMap<Carried, Value>;

/// Properties common to all blocks of a graph.
struct Lowering {
    sequence: Dim,
    hidden: Dim,
    streams: Option<Streams>,
    kernel: AttentionKernel,
    scales: Scales,
    dropout: DropoutRates,
}

impl Lowering {
    fn new(transformer: &Transformer, options: GraphOptions) -> Self {
        let sequence = match transformer.embedding {
            Embedding::Tokens { .. } => Dim::SEQUENCE,
            Embedding::Patches { image_size, patch_size, .. } => {
                let side = image_size / patch_size;
                Dim::fixed(DimName::Sequence, side * side + 1)
            }
        };
        Self {
            sequence,
            hidden: Dim::fixed(DimName::Hidden, transformer.hidden_size),
            streams: transformer.streams,
            kernel: options.attention,
            scales: transformer.scales,
            dropout: if options.dropout { transformer.dropout } else { DropoutRates::default() },
        }
    }

    /// Lowering of an encoder, which may have positions of its own.
    fn of_encoder(&self, encoder: &Encoder) -> Self {
        let sequence = match encoder.sound {
            Some(sound) => Dim::fixed(DimName::Sequence, sound.max_source_positions),
            None => self.sequence,
        };
        Self { sequence, ..*self }
    }

    /// Tensor of the residual stream, or of several streams.
    fn residual(&self) -> Tensor {
        let streams = self.streams.map(Streams::dim);
        let dims = [Dim::BATCH, self.sequence].into_iter().chain(streams).chain([self.hidden]);
        Tensor::new(dims.collect::<Vec<_>>())
    }

    /// Appends blocks of `layers`, all called `name`, which pass on the tensors in `carried`.
    fn layers(
        &self,
        blocks: &mut Vec<(Block, u32)>,
        name: &str,
        layers: &[Layers],
        carried: &mut CarriedTensors,
    ) -> Result<(), GraphError> {
        for Layers { count, layer } in layers {
            let mut block = BlockBuilder::new(name);
            let x = block.input("x", self.residual());
            let mut values: CarriedValues = carried
                .iter()
                .map(|(it, tensor)| (*it, block.input(it.name(), tensor.clone())))
                .collect();
            let y = self.layer(&mut block, layer, x, &mut values)?;
            *carried =
                values.iter().map(|(it, value)| (*it, block.tensor(*value).clone())).collect();
            let outputs: Vec<Value> = std::iter::once(y).chain(values.into_values()).collect();
            blocks.push((block.finish(outputs), *count));
        }
        Ok(())
    }

    /// Adds a norm over the dimensions `over`.
    fn norm(
        &self,
        block: &mut BlockBuilder,
        name: &str,
        norm: Norm,
        over: &[DimName],
        x: Value,
    ) -> Result<Value, GraphError> {
        let kind = match norm.kind {
            NormType::LayerNorm => NormKind::LayerNorm,
            NormType::RmsNorm => NormKind::RmsNorm,
        };
        let over = over.to_vec();
        let Norm { weight, bias, epsilon, unit_offset, .. } = norm;
        let kind = OpKind::Norm { kind, over, weight, bias, epsilon, unit_offset };
        let y = block.push(name, kind, &[x])?;
        self.recompute_if_flash(block, y);
        Ok(y)
    }

    /// Adds dropout, where the rate is above 0.
    fn dropout(
        block: &mut BlockBuilder,
        name: &str,
        rate: Real,
        x: Value,
    ) -> Result<Value, GraphError> {
        if *rate > 0.0 { block.push(name, OpKind::Dropout { rate }, &[x]) } else { Ok(x) }
    }

    /// Multiplies `x` by a factor, where there is one.
    fn scaled(
        block: &mut BlockBuilder,
        name: &str,
        factor: Option<Real>,
        x: Value,
    ) -> Result<Value, GraphError> {
        factor.map_or(Ok(x), |factor| block.push(name, OpKind::Scale { factor }, &[x]))
    }

    /// Output of a sublayer, multiplied by the model's residual scale.
    fn summand(&self, block: &mut BlockBuilder, name: &str, x: Value) -> Result<Value, GraphError> {
        Self::scaled(block, &format!("{name}.scale"), self.scales.residual, x)
    }

    /// Marks a value for selective recompute with fused attention. There scores are never stored, so norms and
    /// activations, which are cheap relative to their bytes, are recomputed.
    fn recompute_if_flash(&self, block: &mut BlockBuilder, value: Value) {
        if self.kernel == AttentionKernel::Flash {
            block.recompute_selectively(value);
        }
    }
}

/// Adds a linear layer.
fn linear(
    block: &mut BlockBuilder,
    name: &str,
    contracted: &[DimName],
    produced: &[Dim],
    bias: bool,
    x: Value,
) -> Result<Value, GraphError> {
    let (contracted, produced) = (contracted.to_vec(), produced.to_vec());
    block.push(name, OpKind::Linear { contracted, produced, bias }, &[x])
}
